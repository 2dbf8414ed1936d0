/* SPDX-License-Identifier: MIT
 * measure.c - measures the undecided products of one world: the whole world, all ranks busy, as it will run.
 * An alternative is one implementation, taken for every undecided product that it can serve. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/measure/arm.h"
#include "lab/peers/peers.h"
#include "lab/store/env.h"
#include "lab/tune/contest.h"
#include "lab/tune/internal.h"

enum { MAX_ALTERNATIVES = 15 };
static const double USUAL_SECONDS = 4; /* the default of tune.seconds */

typedef struct job {
  const bs_tuning *of;
  const bs_arm_case *arm;
  uint32_t index; /* of the world */
  uint32_t n_names;
  const char *names[MAX_ALTERNATIVES + 1]; /* [0]: the default */
  bs_arm *open[MAX_ALTERNATIVES + 1];
} job;

static int serves(const bs_decision *d, const char *name) {
  return bs_tune_row(json_object_get(d->asked, "candidates"), name) != NULL;
}

static void add_names(job *j, const bs_decision *d) {
  size_t i;
  const json_t *c;
  json_array_foreach(json_object_get(d->asked, "candidates"), i, c) {
    const char *name = bs_tune_text(c, "name");
    int known = strcmp(name, bs_tune_text(d->asked, "default")) == 0;
    for (uint32_t k = 1; k < j->n_names; k++) known = known || strcmp(j->names[k], name) == 0;
    if (!known && j->n_names <= MAX_ALTERNATIVES) j->names[j->n_names++] = name;
  }
}

/* ---- arms ----------------------------------------------------------------------------------- */

/* The choices of the world when `name` (NULL: the default) serves the undecided products. */
static const char **choices_for(const job *j, const char *name) {
  const char **texts = calloc(j->of->n, sizeof *texts);
  for (size_t i = 0; texts != NULL && i < j->of->n; i++) {
    const bs_decision *d = &j->of->decisions[i];
    const int other = name != NULL && bs_decision_waits(d, j->index) && serves(d, name);
    texts[i] = bs_decision_pin(d, other ? name : NULL);
    if (texts[i] != NULL) continue;
    bs_choices_free((uint32_t)i, texts);
    return NULL;
  }
  return texts;
}

static void arm_close(void *user, uint32_t arm) {
  job *j = user;
  if (j->open[arm] != NULL) bs_arm_close(j->open[arm], NULL, NULL);
  j->open[arm] = NULL;
}

static int32_t arm_open(void *user, uint32_t arm, bs_sampler_arm *out, bs_error *err) {
  job *j = user;
  bs_case c = j->arm->c;
  const char **texts = choices_for(j, arm > 0 ? j->names[arm] : NULL);
  if (texts == NULL) return bs_no_memory(err, "the tuning");
  c.comm = bs_peers_alone(c.context, c.comm);
  c.peers = NULL;
  c.choices = texts;
  c.n_choices = (uint32_t)j->of->n;
  int32_t rc = bs_arm_open(&c, j->names[arm], &j->open[arm], err);
  bs_choices_free(c.n_choices, texts);
  if (rc != BS_OK) return rc;
  const double built = bs_arm_build(j->open[arm]).seconds, patience = j->of->e->tune_seconds;
  if (built > patience) { /* another run may have more */
    arm_close(j, arm);
    return bs_error_set(err, BS_DEADLINE, "BS-TUNE-SLOW", "packing took %.1f s, tune.seconds is %g", built,
                        patience);
  }
  *out = bs_arm_sampled(j->open[arm], j->names[arm], BS_TIME_HOT);
  return BS_OK;
}

/* ---- results -------------------------------------------------------------------------------- */

/* A line a candidate: "KEY: cpu:packed; cpu:dnnl: speedup 0.86 against cpu:packed". */
static void tell(const bs_tuner *tuner, const json_t *entry) {
  size_t i;
  const json_t *c;
  json_array_foreach(json_object_get(entry, "candidates"), i, c) {
    char words[256];
    const char *name = bs_tune_text(c, "name");
    if (strcmp(name, bs_tune_text(entry, "default")) != 0)
      bs_tuner_say(tuner, 1, "%s: %s; %s: %s", bs_tune_text(entry, "key"), bs_tune_text(entry, "choice"),
                   name, bs_tune_words(entry, name, words, sizeof words));
  }
}

/* Is the result for a product only valid now? Then the default serves this run, and the next one measures
 * again. */
static int is_passing(job *j, bs_decision *d, int wins, const json_t *results) {
  size_t i;
  const json_t *r;
  json_array_foreach(results, i, r) {
    const char *name = bs_tune_text(r, "name");
    if (!serves(d, name) || strcmp(name, bs_tune_text(d->asked, "default")) == 0) continue;
    const char *why = bs_contest_passing(r, !wins && j->of->e->tune_seconds < USUAL_SECONDS);
    if (why == NULL) continue;
    snprintf(d->why, sizeof d->why, "not settled: %.32s: %.100s", name, why);
    bs_tuner_say(j->of->tuner, 1, "%s: %s for now, nothing is kept; %s", bs_tune_text(d->asked, "key"),
                 d->choice, d->why);
    return 1;
  }
  return 0;
}

static int32_t settle(job *j, uint32_t winner, const json_t *results, bs_error *err) {
  for (size_t i = 0; i < j->of->n; i++) {
    bs_decision *d = &j->of->decisions[i];
    if (!bs_decision_waits(d, j->index)) continue;
    const int wins = winner > 0 && serves(d, j->names[winner]);
    if (is_passing(j, d, wins, results)) continue;
    json_t *entry =
        bs_tune_entry(&j->of->tuner->cache, d->asked, wins ? j->names[winner] : d->choice, results);
    json_object_set_new(entry, "method", json_string(j->arm->c.method));
    json_object_set_new(entry, "world", json_string(j->arm->name));
    json_object_set_new(entry, "pending", json_integer(j->index));
    if (json_array_append_new(j->of->tuner->cache.lines.entries, entry) != 0)
      return bs_no_memory(err, "the tuning");
    d->entry = entry;
    d->choice = bs_tune_text(entry, "choice");
    d->origin = "measured";
    tell(j->of->tuner, entry);
  }
  return BS_OK;
}

/* Two copies of the weights exist at a time. 1: they fit. */
static int fits_memory(const bs_case *c, char why[160]) {
  const uint64_t each = BS_DTYPE_BYTES(c->spec.w_dtype);
  const double available = (double)bs_memory_available(""),
               need = 2.0 * (double)each * (double)c->spec.N * (double)c->spec.K;
  if (available == 0.0 || need < 0.875 * available) return 1;
  snprintf(why, 160, "not measured: two copies of the weights need %.1f GiB, %.1f are free",
           need / 1073741824.0, available / 1073741824.0);
  return 0;
}

/* Runs the contest. The default itself may be too slow to pack, or fail: then the phase reports that, with a
 * run folder. The host only reports progress, so its user is the progress's. */
static int32_t contest(job *j, double seconds, char why[160], bs_error *err) {
  const bs_contest of = {.n = j->n_names, .user = j, .names = j->names, .open = arm_open, .close = arm_close};
  const bs_sampler_host host = {.user = j->of->tuner->options.progress_user,
                                .progress = j->of->tuner->options.progress};
  uint32_t winner = 0;
  json_t *results = NULL;
  bs_error failed = BS_ERROR_INIT;
  int32_t rc = bs_contest_run(&of, seconds, j->of->e->tune_margin, &host, &winner, &results, &failed);
  if (rc != BS_OK) snprintf(why, 160, "not measured: [%.31s] %.110s", failed.id, failed.message);
  rc = rc == BS_OK ? settle(j, winner, results, err) : BS_OK;
  json_decref(results);
  return rc;
}

int32_t bs_tune_measure(const bs_tuning *of, uint32_t arm, double seconds, char why[160], bs_error *err) {
  job j = {.of = of, .arm = &of->arms[arm], .index = arm, .n_names = 1, .names = {"default"}};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < of->n; i++)
    if (bs_decision_waits(&of->decisions[i], arm)) add_names(&j, &of->decisions[i]);
  if (fits_memory(&j.arm->c, why)) {
    bs_tuner_say(of->tuner, 1,
                 "measuring which of %u implementations is the fastest for: %s (%zu product%s, about %.2g s)",
                 j.n_names, j.arm->name, of->waiting[arm], of->waiting[arm] == 1 ? "" : "s", seconds);
    rc = contest(&j, seconds, why, err);
  }
  if (why[0] != '\0') bs_tuner_say(of->tuner, 0, "%s: %s", j.arm->name, why);
  return rc;
}
