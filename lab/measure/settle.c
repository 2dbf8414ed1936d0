/* SPDX-License-Identifier: MIT
 * settle.c - the warm-up of one arm: blocks of samples until they stop getting faster, while the calls in a
 * sample grow until it is long enough for the clock. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/measure/sampler_arm.h"

enum { BLOCK = 4 };
static const double SETTLED = 0.01; /* a block that is less than this share faster than the one before */
static const double LONGER = 1.25;  /* a sample may turn out this much too short before it is made longer */

int32_t bs_sampler_batch(const bs_sampler_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  const int32_t rc = arm->batch(arm->user, calls, out_seconds, err);
  if (rc != BS_OK) return rc;
  if (*out_seconds > 0 && isfinite(*out_seconds)) return BS_OK;
  return bs_error_set(err, BS_INTERNAL, "BS-SAMPLER-TIME", "%s: a call of %llu took %g s", arm->name,
                      (unsigned long long)calls, *out_seconds);
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
    const int32_t rc = bs_sampler_batch(arm, w->calls, &seconds[n], err);
    if (rc != BS_OK) return rc;
    w->warm.count += w->calls;
    w->warm.seconds += seconds[n++] * (double)w->calls;
    if (bs_sampler_now(host) >= until) break;
  }
  *out_each = bs_median(seconds, n);
  *out_whole = n == BLOCK;
  return BS_OK;
}

int32_t bs_sampler_warm(const bs_sampler_options *o, const bs_sampler_host *host, const bs_sampler_arm *arm,
                        bs_warm *out, bs_error *err) {
  double before = INFINITY, each = 0.0;
  int whole = 1;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_sampler_batch(arm, 1, &each, err);
  out->first = bs_span_make(BS_TIME_FIRST, each, 1);
  out->warm = bs_span_make(BS_TIME_WARM, 0.0, 0);
  out->calls = 1;
  const double until = bs_sampler_now(host) + o->warm_seconds;
  while (rc == BS_OK && whole && !out->settled && out->blocks < o->warm_blocks) {
    if (out->blocks > 0 && bs_sampler_now(host) >= until) break;
    rc = take_block(host, until, arm, out, &each, &whole, err);
    if (rc != BS_OK) break;
    ++out->blocks;
    const uint64_t calls = calls_for(o, each);
    const int long_enough = (double)calls <= LONGER * (double)out->calls;
    out->settled =
        whole && each > before * (1.0 - SETTLED) && long_enough && out->warm.count + 1 >= o->warm_calls;
    if (calls > out->calls) out->calls = calls;
    before = each;
  }
  return rc;
}
