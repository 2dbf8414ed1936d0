/* SPDX-License-Identifier: MIT
 * diagnosis.c - runs the checks of a subject and collects their results. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/diagnose/check.h"
#include "lab/error.h"
#include "lab/json.h"
#include "lab/stop.h"
#include "lab/store/record.h"

const char *const bs_preset_names[BS_PRESETS_] = {"quick", "full", "large"};
/* seconds of one timing */
static const double preset_seconds[BS_PRESETS_] = {0.5, 1.5, 4.0};
/* A finding's share of a pass from which on it is "high", and "medium". */
static const double HIGH = 0.2, MEDIUM = 0.05;
static const double DECIDED = 1.05; /* the ratio from which a decided difference is reported */

/* ---- words ----------------------------------------------------------------------------------- */

int bs_diagnose_check(size_t index, bs_check_info *out) {
  if (index >= bs_n_checks) return 0;
  const bs_check *c = &bs_checks[index];
  *out = (bs_check_info){c->id, c->title, c->layer != NULL, c->model != NULL, (int)c->quick};
  return 1;
}

static int listed(const char *const *words, size_t n, const char *id) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(words[i], id) == 0) return 1;
  return 0;
}

static int wanted(const bs_diagnose_request *r, const bs_check *c, int model) {
  if (model ? c->model == NULL : c->layer == NULL) return 0;
  if (listed(r->skip, r->n_skip, c->id)) return 0;
  if (r->n_ablate > 0 && strcmp(c->id, "ablate") == 0) return 1;
  if (r->n_only > 0) return listed(r->only, r->n_only, c->id);
  return r->preset != BS_PRESET_QUICK || c->quick;
}

static int32_t known(const char *option, const char *const *words, size_t n, bs_error *err) {
  const char *ids[64];
  for (size_t i = 0; i < bs_n_checks; i++) ids[i] = bs_checks[i].id;
  for (size_t i = 0; i < n; i++) {
    if (listed(ids, bs_n_checks, words[i])) continue;
    const char *nearest = bs_nearest(words[i], ids, bs_n_checks);
    bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "--%s: there is no check '%.60s'", option, words[i]);
    if (nearest != NULL) bs_error_hint(err, "did you mean '%s'?", nearest);
    if (nearest == NULL) bs_error_hint(err, "bsrun diagnose --dry-run has all");
    return BS_USAGE;
  }
  return BS_OK;
}

/* The check that reads the words of an option must be among those that run. */
static int32_t needed(const bs_diagnose_request *r, const char *option, const char *id, int model,
                      bs_error *err) {
  for (size_t i = 0; i < bs_n_checks; i++)
    if (strcmp(bs_checks[i].id, id) == 0 && wanted(r, &bs_checks[i], model)) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-DIAG-NONE", "--%s is read by the check %s, which is left out", option, id);
  bs_error_hint(err, "leave out --%s, or let %s be among the checks of --only and not of --skip", option, id);
  return BS_USAGE;
}

int32_t bs_diagnose_words(const bs_diagnose_request *r, int model, bs_error *err) {
  int32_t rc = known("only", r->only, r->n_only, err);
  if (rc == BS_OK) rc = known("skip", r->skip, r->n_skip, err);
  size_t n = 0;
  for (size_t i = 0; i < bs_n_checks; i++) n += (size_t)wanted(r, &bs_checks[i], model);
  if (rc == BS_OK && r->n_vary > 0) rc = needed(r, "vary", "shapes", model, err);
  if (rc == BS_OK && r->n_ablate > 0) rc = needed(r, "ablate", "ablate", model, err);
  if (rc != BS_OK || n > 0) return rc;
  bs_error_set(err, BS_USAGE, "BS-DIAG-NONE", "no check of a %s is left", model ? "model" : "layer");
  bs_error_hint(err, "bsrun diagnose --dry-run says which subject a check looks at");
  return BS_USAGE;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void put_text(json_t *object, const char *key, const char *fmt, va_list args) {
  char text[640];
  vsnprintf(text, sizeof text, fmt, args);
  json_object_set_new(object, key, bs_model_json_text(text));
}

static void find(bs_diagnosis *d, double cost_s, double share, const char *more, const char *fmt,
                 va_list args) {
  char only[48];
  bs_text command = {0};
  share = fmin(share, 1); /* the pass was timed at another moment */
  snprintf(only, sizeof only, "--only %s", d->now->id);
  bs_text_printf(&command, "%s %s", d->asked->command, more != NULL ? more : only);
  json_t *finding = json_pack("{s:s, s:s, s:o, s:o}", "check", d->now->id, "severity",
                              share >= HIGH     ? "high"
                              : share >= MEDIUM ? "medium"
                                                : "low",
                              "cost_s", bs_record_number(cost_s), "share", bs_record_number(share));
  put_text(finding, "evidence", fmt, args);
  json_object_set_new(finding, "command", bs_model_json_text(command.data != NULL ? command.data : ""));
  json_array_append_new(d->findings, finding);
  bs_text_free(&command);
  d->found++;
}

void bs_find(bs_diagnosis *d, double cost_s, const char *more, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  find(d, cost_s, d->pass_s > 0 ? cost_s / d->pass_s : 0, more, fmt, args);
  va_end(args);
}

void bs_find_pair(bs_diagnosis *d, const bs_pair_times *t, const char *fmt, ...) {
  const double share = fmax(0, 1 - t->comparison.ratio);
  va_list args;
  va_start(args, fmt);
  find(d, share * t->as_is, share, NULL, fmt, args);
  va_end(args);
}

void bs_fact(bs_diagnosis *d, const char *fact, double value, const char *unit) {
  json_array_append_new(
      d->facts, json_pack("{s:s, s:o, s:s}", "fact", fact, "value", bs_record_number(value), "unit", unit));
}

void bs_fact_text(bs_diagnosis *d, const char *fact, const char *fmt, ...) {
  json_t *row = json_pack("{s:s, s:s}", "fact", fact, "unit", "");
  va_list args;
  va_start(args, fmt);
  put_text(row, "value", fmt, args);
  va_end(args);
  json_array_append_new(d->facts, row);
}

int32_t bs_skip(bs_diagnosis *d, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(d->skip, sizeof d->skip, fmt, args);
  va_end(args);
  return BS_OK;
}

void bs_tell(const bs_diagnosis *d, const char *what, uint64_t done, uint64_t total) {
  if (d->asked->progress != NULL) d->asked->progress(d->asked->progress_user, what, done, total);
}

/* ---- times ----------------------------------------------------------------------------------- */

static void tell_sampled(void *user, const char *what, uint64_t done, uint64_t total) {
  bs_tell(user, what, done, total);
}

static int32_t sample(const bs_diagnosis *d, const bs_sampler_arm *arms, uint32_t n, bs_sampled **out,
                      bs_error *err) {
  const bs_sampler_host host = {
      .user = (void *)(uintptr_t)d, .disturb = bs_disturb_host, .progress = tell_sampled};
  bs_sampler_options o;
  bs_sampler_defaults(&o);
  if (d->asked->samples > 0) o.pairs_max = (size_t)d->asked->samples;
  o.pairs_min = d->asked->preset == BS_PRESET_LARGE ? 20 : 6;
  if (o.pairs_min > o.pairs_max) o.pairs_min = o.pairs_max;
  o.group = 2;
  o.seconds = d->seconds * n;
  o.warm_seconds = d->seconds / 4;
  return bs_sampler_run(&o, &host, arms, n, out, err);
}

/* Keeps the first disturbance of a check, which is reported. */
static void note_disturbance(bs_diagnosis *d, const bs_comparison *c) {
  if (c->cause == BS_UNCLEAR_DISTURBED && d->disturbed[0] == '\0')
    bs_disturbance_cause(&c->disturbance, d->disturbed, sizeof d->disturbed);
}

int32_t bs_pair_time(bs_diagnosis *d, const bs_sampler_arm arms[2], bs_pair_times *out, bs_error *err) {
  bs_sampled *s = NULL;
  memset(out, 0, sizeof *out);
  const int32_t rc = sample(d, arms, 2, &s, err);
  if (rc == BS_OK) {
    out->as_is = s->arm[0].look.p50;
    out->other = s->arm[1].look.p50;
    out->comparison = s->arm[1].comparison;
    note_disturbance(d, &out->comparison);
  }
  bs_sampling_free(s);
  return rc;
}

int32_t bs_arm_time(const bs_diagnosis *d, const bs_sampler_arm *arm, double *out_median, double *out_first,
                    bs_error *err) {
  bs_sampled *s = NULL;
  const int32_t rc = sample(d, arm, 1, &s, err);
  if (rc == BS_OK) {
    *out_median = s->arm[0].look.p50;
    *out_first = s->arm[0].warm.first.seconds;
  }
  bs_sampling_free(s);
  return rc;
}

int bs_pair_is_slower(const bs_pair_times *t) {
  return t->comparison.word == BS_WORD_SLOWER && DECIDED * t->comparison.ratio < 1;
}

int32_t bs_ablated(bs_diagnosis *d, const char *setting, const bs_pair_times *t, bs_error *err) {
  const bs_comparison *c = &t->comparison;
  json_t *row = json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:s}", "setting",
                          bs_model_json_text(setting), "pairs", (json_int_t)c->pairs, "seconds",
                          bs_record_number(t->other), "as_is_s", bs_record_number(t->as_is), "ratio",
                          bs_record_number(c->ratio), "low", bs_record_number(c->low), "high",
                          bs_record_number(c->high), "verdict", bs_comparison_name(bs_word_turned(c->word)),
                          "cause", bs_unclear_name(c->cause)); /* of the setting, not the subject */
  return row != NULL && json_array_append_new(d->ablations, row) == 0 ? BS_OK : bs_no_memory(err, "a row");
}

/* Does this error end the whole diagnosis, not only one check? */
static int is_fatal(int32_t rc) {
  return rc == BS_USAGE || rc == BS_NO_MEMORY || rc == BS_DEADLINE || bs_stop_asked() != 0;
}

int32_t bs_ablation_failed(bs_diagnosis *d, const char *setting, int32_t rc, const bs_error *why,
                           bs_error *err) {
  if (is_fatal(rc)) {
    if (err != NULL) *err = *why;
    return rc;
  }
  char verdict[320];
  snprintf(verdict, sizeof verdict, "failed: %.300s", why->message);
  json_t *row =
      json_pack("{s:o, s:n, s:n, s:n, s:n, s:n, s:o}", "setting", bs_model_json_text(setting), "seconds",
                "as_is_s", "ratio", "low", "high", "verdict", bs_model_json_text(verdict));
  return row != NULL && json_array_append_new(d->ablations, row) == 0 ? BS_OK : bs_no_memory(err, "a row");
}

/* ---- choices --------------------------------------------------------------------------------- */

/* BS_USAGE: no row has the text `word` under `key`. what: as in "there is no WHAT 'word'". */
static int32_t unknown(const json_t *rows, const char *key, const char *option, const char *what,
                       const char *word, const char *all, bs_error *err) {
  const size_t n = json_array_size(rows);
  const char **names = calloc(n + 1, sizeof *names);
  if (names == NULL) return bs_no_memory(err, "names");
  for (size_t i = 0; i < n; i++) names[i] = bs_get_text(json_array_get(rows, i), key);
  const char *nearest = bs_nearest(word, names, n);
  bs_error_set(err, BS_USAGE, "BS-DIAG-CHOICE", "%s: %s '%.300s'", option, what, word);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "%s", all);
  free(names);
  return BS_USAGE;
}

int32_t bs_choice_known(const json_t *asked, const char *option, const char *word, bs_error *err) {
  const char *arrow = strstr(word, " -> "), *name = arrow != NULL ? arrow + 4 : "";
  char key[512], implementation[96];
  const json_t *row = NULL, *candidate;
  size_t i;
  snprintf(key, sizeof key, "%.*s", (int)(arrow != NULL ? arrow - word : 0), word);
  snprintf(implementation, sizeof implementation, "%.*s", (int)strcspn(name, "{"), name);
  json_array_foreach(asked, i, candidate) if (strcmp(bs_get_text(candidate, "key"), key) == 0) row =
      candidate;
  if (row == NULL)
    return unknown(asked, "key", option, "nothing here has the key", key,
                   "bsrun model explain -o json has the keys of a model, bsrun tune those of a layer", err);
  const json_t *candidates = json_object_get(row, "candidates");
  json_array_foreach(candidates, i,
                     candidate) if (strcmp(bs_get_text(candidate, "name"), implementation) == 0) return BS_OK;
  return unknown(candidates, "name", option, "the key is there, and not served by", implementation,
                 "bsrun explain has the implementations of an op", err);
}

/* ---- running --------------------------------------------------------------------------------- */

int32_t bs_diagnosis_open(bs_diagnosis *d, const bs_diagnose_request *asked, bs_error *err) {
  *d = (bs_diagnosis){
      .asked = asked,
      .findings = json_array(),
      .checks = json_array(),
      .ablations = json_array(),
      .seconds = asked->seconds > 0 ? asked->seconds : preset_seconds[asked->preset % BS_PRESETS_]};
  return d->findings != NULL && d->checks != NULL && d->ablations != NULL ? BS_OK
                                                                          : bs_no_memory(err, "findings");
}

void bs_diagnosis_close(bs_diagnosis *d) {
  json_decref(d->findings);
  json_decref(d->checks);
  json_decref(d->ablations);
  json_decref(d->facts);
  memset(d, 0, sizeof *d);
}

static int32_t run_check(bs_diagnosis *d, const bs_check *c, struct diag_layer *layer,
                         struct diag_model *model, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  const double began = bs_clock_s();
  d->now = c;
  d->found = 0;
  d->skip[0] = d->disturbed[0] = '\0';
  json_decref(d->facts);
  d->facts = json_array();
  bs_tell(d, c->id, 0, 0);
  const int32_t rc = layer != NULL ? c->layer(d, layer, &why) : c->model(d, model, &why);
  if (is_fatal(rc)) {
    if (err != NULL) *err = why;
    return rc;
  }
  const char *state = rc != BS_OK               ? "failed"
                      : d->found > 0            ? "found"
                      : d->skip[0] != '\0'      ? "skipped"
                      : d->disturbed[0] != '\0' ? "unclear"
                                                : "clean";
  json_t *row =
      json_pack("{s:s, s:s, s:s, s:o, s:f, s:O}", "check", c->id, "title", c->title, "state", state, "why",
                bs_model_json_text(rc != BS_OK          ? why.message
                                   : d->skip[0] != '\0' ? d->skip
                                                        : d->disturbed),
                "seconds", 1e-3 * round(1e3 * (bs_clock_s() - began)), "facts", d->facts);
  return row != NULL && json_array_append_new(d->checks, row) == 0 ? BS_OK : bs_no_memory(err, "a check");
}

int32_t bs_diagnosis_run(bs_diagnosis *d, struct diag_layer *layer, struct diag_model *model, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < bs_n_checks; i++) {
    if (!wanted(d->asked, &bs_checks[i], model != NULL)) continue;
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = run_check(d, &bs_checks[i], layer, model, err);
  }
  return bs_stop_asked() != 0 ? BS_OK : rc; /* the checks until then are the result */
}

static int dearer_first(const void *a, const void *b) {
  const double x = json_number_value(json_object_get(*(json_t *const *)a, "cost_s"));
  const double y = json_number_value(json_object_get(*(json_t *const *)b, "cost_s"));
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Findings ordered by cost, with their rank. */
static json_t *in_order(const json_t *findings) {
  const size_t n = json_array_size(findings);
  json_t **order = calloc(n + 1, sizeof *order), *rows = json_array();
  for (size_t i = 0; order != NULL && i < n; i++) order[i] = json_array_get(findings, i);
  if (order != NULL) qsort(order, n, sizeof *order, dearer_first);
  for (size_t i = 0; order != NULL && i < n; i++) {
    json_object_set_new(order[i], "rank", json_integer((json_int_t)i + 1));
    json_array_append(rows, order[i]);
  }
  free(order);
  return rows;
}

int32_t bs_diagnosis_result(bs_diagnosis *d, const char *kind, json_t *subject, json_t *conditions,
                            json_t **out, bs_error *err) {
  *out = json_pack("{s:s, s:s, s:o, s:o, s:o, s:O, s:O, s:o}", "kind", kind, "preset",
                   bs_preset_names[d->asked->preset], "subject", subject, "pass_s",
                   bs_record_number(d->pass_s), "findings", in_order(d->findings), "checks", d->checks,
                   "ablations", d->ablations, "conditions", conditions);
  return *out != NULL ? BS_OK : bs_no_memory(err, "a diagnosis");
}
