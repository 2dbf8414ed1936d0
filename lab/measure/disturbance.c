/* SPDX-License-Identifier: MIT
 * disturbance.c - see disturbance.h. */
#include "lab/measure/disturbance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double WINDOW = 0.5;  /* seconds */
static const double SHORT = 0.1;   /* a last window of less is judged as the one before it */
static const double SPARE = 0.2;   /* of a processor: others may have so much of those that the arms need */
static const double PRESENT = 0.1; /* of a processor: others ran at all */
static const size_t ONE_OF = 5;    /* pairs: the share of disturbed ones that does not decide */

/* ---- the rule ------------------------------------------------------------------------------------ */

int bs_disturbance_decides(const bs_disturbance *d) {
  return ONE_OF * d->disturbed > d->pairs;
}

/* The cause that most pairs had. */
static uint32_t main_cause(const bs_disturbance *d) {
  uint32_t most = 0;
  for (uint32_t k = 1; k < BS_BY_COUNT_; ++k)
    if (d->by[k] > d->by[most]) most = k;
  return most;
}

static double percent(double part) {
  return 100.0 * fmax(part, 0.0);
}

const char *bs_disturbance_cause(const bs_disturbance *d, char *out, size_t size) {
  const uint32_t k = main_cause(d);
  out[0] = '\0';
  if (d->disturbed == 0) return out;
  if (k == BS_BY_OTHERS)
    snprintf(out, size,
             "others took %.0f %% of the processors' time during the measurement (%zu of %zu pairs)",
             percent(d->others), d->by[k], d->pairs);
  else if (k == BS_BY_WAITING)
    snprintf(out, size, "threads waited for a processor in %zu of %zu pairs; others took %.0f %% of the time",
             d->by[k], d->pairs, percent(d->others));
  else if (k == BS_BY_STEAL)
    snprintf(out, size, "the hypervisor took %.2g %% of the processors' time, and a part of %zu of %zu pairs",
             percent(d->stolen), d->by[k], d->pairs);
  else
    snprintf(out, size, "the cgroup's quota ran out in %zu of %zu pairs", d->by[k], d->pairs);
  return out;
}

/* ---- as JSON ------------------------------------------------------------------------------------- */

static const char *const pairs_keys[BS_BY_COUNT_] = {"others_pairs", "waiting_pairs", "stolen_pairs",
                                                     "quota_pairs"};

static json_t *part(double value) {
  return value >= 0.0 ? json_real(value) : json_null();
}

json_t *bs_disturbance_json(const bs_disturbance *d) {
  char cause[160];
  json_t *out =
      json_pack("{s:I,s:I,s:o,s:o,s:b,s:s}", "pairs", (json_int_t)d->pairs, "disturbed",
                (json_int_t)d->disturbed, "others", part(d->others), "stolen", part(d->stolen), "decides",
                bs_disturbance_decides(d), "cause", bs_disturbance_cause(d, cause, sizeof cause));
  for (uint32_t k = 0; k < BS_BY_COUNT_; ++k)
    json_object_set_new(out, pairs_keys[k], json_integer((json_int_t)d->by[k]));
  return out;
}

static size_t count_in(const json_t *object, const char *key) {
  const json_int_t value = json_integer_value(json_object_get(object, key));
  return value > 0 ? (size_t)value : 0;
}

static double part_in(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : -1.0;
}

void bs_disturbance_read(const json_t *object, bs_disturbance *out) {
  *out = (bs_disturbance){.pairs = count_in(object, "pairs"),
                          .disturbed = count_in(object, "disturbed"),
                          .others = part_in(object, "others"),
                          .stolen = part_in(object, "stolen")};
  for (uint32_t k = 0; k < BS_BY_COUNT_; ++k) out->by[k] = count_in(object, pairs_keys[k]);
}

/* ---- while pairs are taken ----------------------------------------------------------------------- */

int bs_disturbance_open(bs_disturbance_judge *j, size_t pairs_max, uint32_t threads, uint32_t crowded) {
  *j = (bs_disturbance_judge){.threads = threads, .crowded = crowded, .room = pairs_max, .last = -1.0};
  j->pair = calloc(pairs_max, sizeof *j->pair);
  return j->pair != NULL;
}

void bs_disturbance_close(bs_disturbance_judge *j) {
  free(j->pair);
  *j = (bs_disturbance_judge){0};
}

void bs_disturbance_begin(bs_disturbance_judge *j, const bs_disturb *now) {
  j->begin = j->window = now->load;
}

/* others: processors that other programs used, below 0 if not known. Other programs may use those that the
 * arms leave idle. */
static void judge_window(bs_disturbance_judge *j, uint32_t cores, double others, double doubt) {
  const double needed = j->threads > 0 && j->threads < cores ? j->threads : cores;
  const int too_many = others > cores - needed + SPARE + doubt, present = others > PRESENT + doubt;
  for (; j->from < j->pairs; ++j->from) {
    const bs_disturbed_pair *p = &j->pair[j->from];
    const int by[BS_BY_COUNT_] = {too_many, p->waited && present && !j->crowded, p->steal, p->quota};
    int any = 0;
    for (uint32_t k = 0; k < BS_BY_COUNT_; ++k) {
      j->sum.by[k] += (size_t)(by[k] != 0);
      any |= by[k];
    }
    j->sum.disturbed += (size_t)(any != 0);
  }
}

static void close_window(bs_disturbance_judge *j, const bs_load *now) {
  j->last = bs_load_others(&j->window, now, &j->last_doubt);
  judge_window(j, now->cores, j->last, j->last_doubt);
  j->window = *now;
}

void bs_disturbance_pair(bs_disturbance_judge *j, const bs_disturbed_pair *pair, const bs_disturb *now) {
  if (j->pairs < j->room) j->pair[j->pairs++] = *pair;
  if (now->load.clock - j->window.clock >= WINDOW) close_window(j, &now->load);
}

void bs_disturbance_end(bs_disturbance_judge *j, const bs_disturb *now, bs_disturbance *out) {
  double doubt = 0.0;
  const double passed = now->load.clock - j->begin.clock, all = passed * now->load.cores;
  if (now->load.clock - j->window.clock < SHORT && j->last >= 0.0)
    judge_window(j, now->load.cores, j->last, j->last_doubt);
  else
    close_window(j, &now->load);
  const double others = bs_load_others(&j->begin, &now->load, &doubt);
  j->sum.pairs = j->pairs;
  j->sum.others = others >= 0.0 ? others / fmax(now->load.cores, 1.0) : -1.0;
  j->sum.stolen = all > 0.0 ? (now->load.stolen - j->begin.stolen) / all : -1.0;
  *out = j->sum;
}
