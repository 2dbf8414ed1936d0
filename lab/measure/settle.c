/* SPDX-License-Identifier: MIT
 * settle.c - the warm-up of one arm: blocks of samples until they stop getting faster, while the calls in a
 * sample grow until it is long enough for the clock. Also the warm-up of a rebuilt arm. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/measure/sampler_arm.h"
#include "lab/stop.h"

enum { BLOCK = 4 };
static const double LONG_CALL = 0.05; /* for such a long call its start hardly matters: it needs no lead */
static const double SETTLED = 0.01;   /* a block that is less than this share faster than the one before */
static const double LONGER = 1.25;    /* a sample may turn out this much too short before it is made longer */

int32_t bs_sampler_batch(const bs_sampler_arm *arm, uint64_t lead, uint64_t calls, bs_sample *out,
                         bs_error *err) {
  *out = (bs_sample){0};
  const int32_t rc = arm->batch(arm->user, lead, calls, out, err);
  if (rc != BS_OK) return rc;
  if (out->seconds > 0 && isfinite(out->seconds)) return BS_OK;
  return bs_error_set(err, BS_INTERNAL, "BS-SAMPLER-TIME", "%s: a call of %llu took %g s", arm->name,
                      (unsigned long long)calls, out->seconds);
}

/* The calls that make a sample long enough. */
static uint64_t calls_for(const bs_sampler_options *o, double each) {
  const double wanted = ceil(o->batch_seconds / each);
  if (wanted >= (double)o->batch_calls) return o->batch_calls;
  return wanted > 1 ? (uint64_t)wanted : 1;
}

/* One block. 0 in *out_whole when the time was up before its end. */
static int32_t take_block(const bs_sampler_host *host, double until, const bs_sampler_arm *arm, bs_warm *w,
                          double *out_each, int *out_whole, bs_error *err) {
  double seconds[BLOCK];
  size_t n = 0;
  while (n < BLOCK) {
    bs_sample sample;
    const int32_t rc = bs_sampler_batch(arm, w->lead, w->calls, &sample, err);
    if (rc != BS_OK) return rc;
    seconds[n++] = sample.seconds;
    w->warm.count += w->lead + w->calls;
    w->warm.seconds += sample.seconds * (double)(w->lead + w->calls);
    if (bs_sampler_now(host) >= until) break;
  }
  *out_each = bs_median(seconds, n);
  *out_whole = n == BLOCK;
  return BS_OK;
}

int32_t bs_sampler_warm(const bs_sampler_options *o, const bs_sampler_host *host, const bs_sampler_arm *arm,
                        bs_warm *out, bs_error *err) {
  double before = INFINITY, each;
  int whole = 1;
  bs_sample first;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_sampler_batch(arm, 0, 1, &first, err);
  out->first = bs_span_make(BS_TIME_FIRST, first.seconds, 1);
  out->lead = o->phase != BS_TIME_COLD;
  out->warm = bs_span_make(BS_TIME_WARM, 0.0, 0);
  out->calls = 1;
  const double until = bs_sampler_now(host) + o->warm_seconds;
  while (rc == BS_OK && whole && !out->settled && out->blocks < o->warm_blocks) {
    if (out->blocks > 0 && bs_sampler_now(host) >= until) break;
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = take_block(host, until, arm, out, &each, &whole, err);
    if (rc != BS_OK) break;
    ++out->blocks;
    if (each >= LONG_CALL) out->lead = 0;
    const uint64_t calls = calls_for(o, each);
    const int long_enough = (double)calls <= LONGER * (double)out->calls;
    out->settled =
        whole && each > before * (1.0 - SETTLED) && long_enough && out->warm.count + 1 >= o->warm_calls;
    if (calls > out->calls) out->calls = calls;
    before = each;
  }
  return rc;
}

int32_t bs_sampler_warm_again(const bs_sampler_arm *arms, const bs_sampled *s, int backwards, bs_error *err) {
  bs_sample sample;
  int32_t rc = BS_OK;
  for (int round = 0; round <= BLOCK; ++round) {
    for (uint32_t k = 0; rc == BS_OK && k < s->n_arms; ++k) {
      const uint32_t i = backwards ? s->n_arms - 1 - k : k;
      const bs_warm *w = &s->arm[i].warm;
      if (round == 0)
        rc = bs_sampler_batch(&arms[i], 0, 1, &sample, err);
      else if (w->lead > 0)
        rc = bs_sampler_batch(&arms[i], w->lead, w->calls, &sample, err);
    }
  }
  return rc;
}
