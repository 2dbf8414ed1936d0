/* SPDX-License-Identifier: MIT
 * contest.h - which of several arms is the fastest, without a winner's curse: each is measured in interleaved
 * pairs against arm 0 (the default); the best of those that are FASTER is measured again with fresh samples,
 * and only when it is FASTER again does it win. A pure engine over the sampler: tests drive it with synthetic
 * clocks. */
#ifndef BS_LAB_TUNE_CONTEST_H
#define BS_LAB_TUNE_CONTEST_H
#include <jansson.h>

#include "lab/measure/sampler.h"

typedef struct bs_contest {
  uint32_t n; /* arms, the default included: 2 or more */
  void *user;
  const char *const *names;
  /* At most two arms are open at the same time, arm 0 during all comparisons. If another arm fails, here or
   * in a batch, it drops out, with its error; an error of arm 0 ends the contest. */
  int32_t (*open)(void *user, uint32_t arm, bs_sampler_arm *out, bs_error *err);
  void (*close)(void *user, uint32_t arm);
  int anew; /* both arms are reopened between groups of pairs, so that no single build decides */
} bs_contest;

/* seconds: of all comparisons together. host may be NULL. *out_results: [{name, word, ratio, low, high,
 * pairs, stopped_by, seconds, default_seconds, again}] or {name, failed}, of arms 1..n-1; the caller
 * releases. ratio > 1: faster than the default. UNCLEAR has a cause; of a disturbed machine `disturbed` is
 * the sentence. */
int32_t bs_contest_run(const bs_contest *contest, double seconds, double margin, const bs_sampler_host *host,
                       uint32_t *out_winner, json_t **out_results, bs_error *err);
/* The reason why an arm's row may change in a later contest. It failed for lack of memory or time, or the
 * machine was disturbed. Or the time ended before an UNCLEAR comparison had its pairs, and (hurried) it was
 * less than usual. NULL: the row lasts. The text lives as long as the row. */
const char *bs_contest_passing(const json_t *row, int hurried);
#endif
