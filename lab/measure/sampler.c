/* SPDX-License-Identifier: MIT
 * sampler.c - pairs of samples in ABBA order until a stopping rule holds. settle.c warms the arms up. */
#include "lab/measure/sampler.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "lab/measure/sampler_arm.h"

enum { FEWEST = 5, ORDER_STREAM = 11, ENOUGH_SEEN = 8 };
static const double SHORTEST_BATCH = 1e-3;

typedef struct run {
  const bs_sampler_options *o;
  const bs_sampler_host *host;
  const bs_sampler_arm *arm;
  bs_sampling *out;
  size_t may_discard;
  size_t next_look; /* pairs at which the intervals are looked at again: it takes time too */
  double start;
  bs_disturb seen; /* counts before the pair */
} run;

void bs_sampler_defaults(bs_sampler_options *out) {
  *out = (bs_sampler_options){.phase = BS_TIME_HOT,
                              .warm_blocks = 200,
                              .warm_seconds = 2.0,
                              .batch_seconds = 2e-3,
                              .batch_calls = 1000000000,
                              .pairs_min = 20,
                              .pairs_max = 300,
                              .half_width = 0.005,
                              .margin = 0.01,
                              .seed = 1};
}

const char *bs_stop_name(uint32_t stop) {
  static const char *const names[] = {"?", "interval", "max_pairs", "seconds"};
  return stop < sizeof names / sizeof names[0] ? names[stop] : "?";
}

double bs_sampler_now(const bs_sampler_host *host) {
  struct timespec t;
  if (host != NULL && host->now != NULL) return host->now(host->user);
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t refuse_options(const bs_sampler_options *o, uint32_t n_arms, bs_error *err) {
  if (n_arms == 0 || n_arms > BS_SAMPLER_ARMS)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS", "%u arms (1 to %d)", n_arms,
                        BS_SAMPLER_ARMS);
  if (o->pairs_min < FEWEST || o->pairs_max < o->pairs_min)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS", "%zu to %zu pairs (%d or more)",
                        o->pairs_min, o->pairs_max, FEWEST);
  if (!(o->batch_seconds >= SHORTEST_BATCH) || o->batch_calls == 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS",
                        "samples of %g s (%g s or more) and at most %llu calls", o->batch_seconds,
                        SHORTEST_BATCH, (unsigned long long)o->batch_calls);
  if (o->phase != BS_TIME_HOT && o->phase != BS_TIME_COLD)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS", "samples of phase %s",
                        bs_time_phase_name(o->phase));
  return BS_OK;
}

static int32_t make_room(run *r, uint32_t n_arms, bs_error *err) {
  r->out = calloc(1, sizeof *r->out);
  int good = r->out != NULL;
  r->may_discard = r->o->pairs_max / 4;
  for (uint32_t i = 0; good && i < n_arms; ++i) {
    bs_sampled_arm *a = &r->out->arm[i];
    snprintf(a->name, sizeof a->name, "%s", r->arm[i].name);
    a->seconds = calloc(r->o->pairs_max, sizeof *a->seconds);
    a->discarded = calloc(r->may_discard + 1, sizeof *a->discarded);
    good = a->seconds != NULL && a->discarded != NULL;
    r->out->n_arms = i + 1;
  }
  if (good) return BS_OK;
  return bs_error_set(err, BS_NO_MEMORY, "BS-SAMPLER-MEMORY", "no memory for %zu pairs of %u arms",
                      r->o->pairs_max, n_arms);
}

/* ---- pairs -------------------------------------------------------------------------------------- */

/* What rose since the last look; which kinds did is counted. */
static int disturbed(run *r) {
  bs_disturb now;
  int any = 0;
  if (r->host == NULL || r->host->disturb == NULL) return 0;
  r->host->disturb(r->host->user, &now);
  for (uint32_t k = 0; k < BS_DISTURB_COUNT_; ++k) {
    const int rose = now.known[k] && r->seen.known[k] && now.count[k] > r->seen.count[k];
    r->out->disturbed[k] += (size_t)rose;
    any |= rose;
  }
  r->seen = now;
  return any;
}

/* Where more than half of the pairs are disturbed, others would be too. */
static int worth_discarding(const run *r) {
  const bs_sampling *s = r->out;
  const size_t seen = s->pairs + s->discarded, bad = s->discarded + s->disturbed_kept;
  return s->discarded < r->may_discard && (seen < ENOUGH_SEEN || 2 * bad <= seen);
}

/* Each arm once in the given direction: one pair for each arm with the subject. A disturbed one is taken
 * again, all arms of it, in the same direction. */
static int32_t take_pair(run *r, int backwards, bs_error *err) {
  bs_sampling *s = r->out;
  double seconds[BS_SAMPLER_ARMS];
  for (;;) {
    for (uint32_t i = 0; i < s->n_arms; ++i) {
      const uint32_t at = backwards ? s->n_arms - 1 - i : i;
      const int32_t rc = bs_sampler_batch(&r->arm[at], s->arm[at].warm.calls, &seconds[at], err);
      if (rc != BS_OK) return rc;
      ++s->batches;
    }
    const int bad = disturbed(r), discard = bad && worth_discarding(r);
    for (uint32_t i = 0; i < s->n_arms; ++i)
      *(discard ? &s->arm[i].discarded[s->discarded] : &s->arm[i].seconds[s->pairs]) = seconds[i];
    s->disturbed_kept += (size_t)(bad && !discard);
    if (discard) {
      ++s->discarded;
      continue;
    }
    ++s->pairs;
    return BS_OK;
  }
}

static int32_t compare_all(run *r, bs_error *err) {
  bs_sampling *s = r->out;
  const bs_series subject = bs_sampling_series(s, 0);
  for (uint32_t i = 1; i < s->n_arms; ++i) {
    const bs_series other = bs_sampling_series(s, i);
    const int32_t rc = bs_compare_series(&subject, &other, r->o->margin, &s->arm[i].comparison, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* Are all intervals narrow enough? Looked at every few pairs. */
static int32_t look_at_intervals(run *r, int *out_narrow, bs_error *err) {
  *out_narrow = 0;
  if (r->out->n_arms < 2 || r->out->pairs < r->next_look) return BS_OK;
  r->next_look = r->out->pairs + 2 + r->out->pairs / 8;
  const int32_t rc = compare_all(r, err);
  if (rc != BS_OK) return rc;
  *out_narrow = 1;
  for (uint32_t i = 1; i < r->out->n_arms; ++i) {
    const bs_comparison *c = &r->out->arm[i].comparison;
    if ((c->high - c->low) / 2 > r->o->half_width * c->ratio) *out_narrow = 0;
  }
  return BS_OK;
}

/* A round is two pairs, one in either direction; the seed says which comes first. */
static int32_t take_pairs(run *r, bs_error *err) {
  bs_sampling *s = r->out;
  if (r->host != NULL && r->host->steady != NULL) {
    const int32_t rc = r->host->steady(r->host->user, err);
    if (rc != BS_OK) return rc;
  }
  r->start = bs_sampler_now(r->host);
  if (r->host != NULL && r->host->disturb != NULL) r->host->disturb(r->host->user, &r->seen);
  for (uint64_t round = 0; s->stop == 0; ++round) {
    uint32_t bits = 0;
    int narrow = 0;
    bs_rng_bits(r->o->seed, ORDER_STREAM, round, 1, &bits);
    int32_t rc = take_pair(r, bits >> 31, err);
    if (rc == BS_OK && s->pairs < r->o->pairs_max) rc = take_pair(r, !(bits >> 31), err);
    if (rc != BS_OK) return rc;
    s->seconds = bs_sampler_now(r->host) - r->start;
    if (r->host != NULL && r->host->progress != NULL)
      r->host->progress(r->host->user, "pairs", s->pairs, r->o->pairs_max);
    if (s->pairs < r->o->pairs_min) continue;
    rc = look_at_intervals(r, &narrow, err);
    if (rc != BS_OK) return rc;
    if (narrow)
      s->stop = BS_STOP_INTERVAL;
    else if (s->pairs >= r->o->pairs_max)
      s->stop = BS_STOP_PAIRS;
    else if (r->o->seconds > 0 && s->seconds >= r->o->seconds)
      s->stop = BS_STOP_SECONDS;
  }
  return BS_OK;
}

/* ---- what the reader is told -------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void warn(bs_sampling *s, const char *format, ...) {
  va_list args;
  if (s->n_warnings == BS_SAMPLER_WARNINGS) {
    snprintf(s->warning[s->n_warnings - 1], sizeof s->warning[0], "and more of the kind");
    return;
  }
  va_start(args, format);
  vsnprintf(s->warning[s->n_warnings++], sizeof s->warning[0], format, args);
  va_end(args);
}

static void warn_of_disturbances(bs_sampling *s) {
  for (uint32_t k = 0; k < BS_DISTURB_COUNT_; ++k) {
    if (s->disturbed[k] > 0)
      warn(s, "%s in %zu of %zu pairs; %zu disturbed pairs were discarded and taken again, %zu kept",
           bs_disturb_name(k), s->disturbed[k], s->pairs + s->discarded, s->discarded, s->disturbed_kept);
  }
}

static int32_t look_at_all(bs_sampling *s, bs_error *err) {
  char sentences[BS_LOOK_SENTENCES][BS_LOOK_SENTENCE];
  for (uint32_t i = 0; i < s->n_arms; ++i) {
    bs_sampled_arm *a = &s->arm[i];
    if (!a->warm.settled) warn(s, "%s did not settle in %u blocks of warm-up", a->name, a->warm.blocks);
    if (!bs_look_at(a->seconds, s->pairs, &a->look))
      return bs_error_set(err, BS_NO_MEMORY, "BS-SAMPLER-MEMORY", "no memory to sort %zu samples", s->pairs);
    const size_t n = bs_look_sentences(&a->look, a->name, sentences);
    for (size_t k = 0; k < n; ++k) warn(s, "%s", sentences[k]);
    if (a->comparison.block > 1)
      warn(s, "%s: neighbouring pairs are alike (%.2f): noise lasts, the interval may be too narrow", a->name,
           a->comparison.autocorrelation);
  }
  warn_of_disturbances(s);
  return BS_OK;
}

int32_t bs_sampler_run(const bs_sampler_options *o, const bs_sampler_host *host, const bs_sampler_arm *arms,
                       uint32_t n_arms, bs_sampling **out, bs_error *err) {
  run r = {.o = o, .host = host, .arm = arms, .next_look = 0};
  *out = NULL;
  int32_t rc = refuse_options(o, n_arms, err);
  if (rc == BS_OK) rc = make_room(&r, n_arms, err);
  for (uint32_t i = 0; rc == BS_OK && i < n_arms; ++i) {
    if (host != NULL && host->progress != NULL) host->progress(host->user, "warm-up", i, n_arms);
    rc = bs_sampler_warm(o, host, &arms[i], &r.out->arm[i].warm, err);
  }
  if (rc == BS_OK) {
    r.out->phase = o->phase;
    rc = take_pairs(&r, err);
  }
  if (rc == BS_OK) rc = compare_all(&r, err);
  if (rc == BS_OK) rc = look_at_all(r.out, err);
  if (rc == BS_OK) {
    *out = r.out;
  } else {
    bs_sampling_free(r.out);
  }
  return rc;
}

void bs_sampling_free(bs_sampling *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < BS_SAMPLER_ARMS; ++i) {
    free(s->arm[i].seconds);
    free(s->arm[i].discarded);
  }
  free(s);
}

bs_series bs_sampling_series(const bs_sampling *s, uint32_t arm) {
  return (bs_series){
      .phase = s->phase, .calls = s->arm[arm].warm.calls, .count = s->pairs, .seconds = s->arm[arm].seconds};
}
