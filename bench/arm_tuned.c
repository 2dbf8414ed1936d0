/* SPDX-License-Identifier: MIT
 *
 * arm_tuned.c - the plugin by the measured choice (docs/tuning.md): for each shape its implementations are
 * timed in turn before anything else is, and the faster serves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arms.h"
#include "core/base/error.h"

enum { CANDIDATES = 2, ROUNDS = 5, ROUNDS_LONG = 2 };
#define LONG_CALL 0.02
#define CLEARLY 0.98 /* of the time of the one before it: bsrun asks for 2 % as well */

typedef struct tuned_arm {
  bench_arm candidates[CANDIDATES]; /* packed, dnnl */
  bench_arm *chosen;
} tuned_arm;

/* The best of a few turns of each; `best` of an arm that is not ready stays 0. */
static int32_t contest(tuned_arm *t, const int *ready, double *best, bs_error *err) {
  int32_t rc = BS_OK;
  int rounds = ROUNDS;
  for (int round = 0; rc == BS_OK && round <= rounds; ++round) {
    for (int i = 0; rc == BS_OK && i < CANDIDATES; ++i) {
      double seconds = 0.0;
      bench_arm *a = &t->candidates[i];
      if (!ready[i]) continue;
      rc = a->ops->batch(a, best[i] > 0.0 && best[i] < 1e-3 ? (uint64_t)(1e-3 / best[i]) : 1, &seconds, err);
      if (best[i] <= 0.0 || seconds < best[i]) best[i] = seconds;
      if (seconds > LONG_CALL) rounds = ROUNDS_LONG;
    }
  }
  return rc;
}

static int32_t tuned_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  tuned_arm *t = arm->self;
  int ready[CANDIDATES] = {0};
  double best[CANDIDATES] = {0.0};
  int32_t rc = BS_OK;
  t->chosen = NULL;
  for (int i = 0; i < CANDIDATES; ++i) {
    bench_arm *a = &t->candidates[i];
    if (a->ops == NULL) continue;
    rc = a->ops->ready(a, m, err);
    ready[i] = rc == BS_OK;
    if (rc != BS_OK) a->ops->release(a);
    if (rc != BS_OK && (i == 0 || rc != BS_UNSUPPORTED)) return rc;
  }
  rc = contest(t, ready, best, err);
  t->chosen = &t->candidates[ready[1] && best[1] < CLEARLY * best[0] ? 1 : 0];
  for (int i = 0; i < CANDIDATES; ++i) {
    if (ready[i] && &t->candidates[i] != t->chosen) t->candidates[i].ops->release(&t->candidates[i]);
  }
  memcpy(arm->way, t->chosen->way, sizeof arm->way);
  return rc;
}

static int32_t tuned_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  tuned_arm *t = arm->self;
  return t->chosen->ops->batch(t->chosen, calls, out_seconds, err);
}

static const void *tuned_output(bench_arm *arm, bs_error *err) {
  tuned_arm *t = arm->self;
  return t->chosen->ops->output(t->chosen, err);
}

static void tuned_release(bench_arm *arm) {
  tuned_arm *t = arm->self;
  if (t->chosen != NULL) t->chosen->ops->release(t->chosen);
  t->chosen = NULL;
}

static void tuned_close(bench_arm *arm) {
  tuned_arm *t = arm->self;
  tuned_release(arm);
  for (int i = 0; i < CANDIDATES; ++i) bench_arm_close(&t->candidates[i]);
  free(t);
}

int32_t bench_open_tuned(const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const bench_arm_ops ops = {tuned_ready, tuned_batch, tuned_output, tuned_release, tuned_close};
  static const char *const names[CANDIDATES] = {"packed", "dnnl"};
  tuned_arm *t = calloc(1, sizeof *t);
  int32_t rc = BS_OK;
  if (t == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for an arm");
  arm->self = t;
  arm->ops = &ops;
  for (int i = 0; rc == BS_OK && i < CANDIDATES; ++i) {
    bench_arm *a = &t->candidates[i];
    a->dtype = arm->dtype;
    snprintf(a->name, sizeof a->name, "%s", names[i]);
    rc = bench_open_plugin(names[i], o, a, err);
    if (rc != BS_OK && i > 0) { /* a build without oneDNN has one implementation */
      bench_arm_close(a);
      rc = BS_OK;
    }
  }
  memcpy(arm->version, t->candidates[0].version, sizeof arm->version);
  return rc;
}
