/* SPDX-License-Identifier: MIT
 * record.c - see record.h. */
#include "lab/kernel/record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "lab/kernel/oracle.h"
#include "lab/store/env.h"

json_t *bs_kernel_number(double value) {
  if (isfinite(value)) return json_real(value);
  return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static int32_t add(json_t *record, const char *stage, json_t *fields, bs_error *err) {
  return fields != NULL && json_object_set_new(record, stage, fields) == 0 ? BS_OK
                                                                           : bs_no_memory(err, "a record");
}

/* ---- seeds -------------------------------------------------------------------------------------- */

int32_t bs_kernel_seeds_get(bs_kernel_seeds *s, uint32_t index, bs_kernel_data **out, bs_error *err) {
  int32_t rc = BS_OK;
  if (s->of[index] == NULL) rc = bs_kernel_data_make(&s->problem, s->first + index, &s->of[index], err);
  *out = s->of[index];
  return rc;
}

void bs_kernel_seeds_free(bs_kernel_seeds *s) {
  for (uint32_t i = 0; i < BS_KERNEL_SEEDS; i++) {
    bs_kernel_data_free(s->of[i]);
    s->of[i] = NULL;
  }
}

/* ---- stages ------------------------------------------------------------------------------------- */

static int32_t build(const bs_kernel_setup *setup, bs_kernel_seeds *seeds, bs_kernel_arm **arm,
                     json_t *record, bs_error *err) {
  bs_kernel_setup own = *setup;
  bs_error why = BS_ERROR_INIT;
  int32_t rc = bs_kernel_seeds_get(seeds, 0, &own.data, err);
  if (rc != BS_OK) return rc;
  rc = bs_kernel_arm_open(&own, arm, &why);
  if (rc == BS_NO_MEMORY || rc == BS_USAGE || rc == BS_CONFIG) {
    if (err != NULL) *err = why;
    return rc;
  }
  json_t *fields = json_pack("{s:i,s:i,s:i}", "prepared", rc == BS_OK, "unshown_knobs",
                             strcmp(why.id, "BS-OP-KNOB-ECHO") == 0, "has_stored", setup->stored_id != NULL);
  if (setup->stored_id != NULL) json_object_set_new(fields, "stored_id", bs_env_string(setup->stored_id));
  if (rc != BS_OK) {
    json_object_set_new(fields, "code", json_string(bs_status_name(rc)));
    json_object_set_new(fields, "error", json_string(why.id));
    json_object_set_new(fields, "message", bs_env_string(why.message));
    if (setup->provider != NULL) json_object_set_new(fields, "provider", bs_env_string(setup->provider));
    return add(record, "build", fields, err);
  }
  json_object_set_new(fields, "provider", json_string(bs_kernel_arm_provider(*arm)));
  json_object_set_new(fields, "algorithm", bs_env_string(bs_kernel_arm_algorithm(*arm)));
  json_object_set_new(fields, "key", bs_env_string(bs_kernel_arm_key(*arm)));
  const bs_op_echo *echo = bs_kernel_arm_echo(*arm);
  if (echo != NULL) json_object_set_new(fields, "knobs", bs_env_string(echo->knobs));
  if (echo != NULL && echo->build[0] != '\0') json_object_set_new(fields, "id", bs_env_string(echo->build));
  return add(record, "build", fields, err);
}

static int add_known(json_t *fields, const char *key, int64_t value) {
  if (value >= 0) json_object_set_new(fields, key, json_integer(value));
  return value >= 0;
}

/* Adds the stage resource. A plan on a processor may report no registers; a plan on a device must report
 * them. */
static int32_t resource(const bs_kernel_arm *arm, json_t *record, bs_error *err) {
  const bs_op_echo *echo = bs_kernel_arm_echo(arm);
  json_t *fields = json_object();
  int known = bs_kernel_arm_on_device(arm);
  if (echo != NULL) {
    known |= add_known(fields, "registers", echo->registers);
    known |= add_known(fields, "shared_bytes", echo->shared_bytes);
    known |= add_known(fields, "spill_bytes", echo->spill_bytes);
  }
  json_object_set_new(fields, "reported", json_integer(known != 0));
  return add(record, "resource", fields, err);
}

int32_t bs_kernel_predict(const bs_kernel_arm *arm, bs_kernel_data *data, double *out_rmse, bs_tail *out_tail,
                          bs_error *err) {
  return bs_kernel_data_predict(data, bs_kernel_arm_tolerance(arm), out_rmse, out_tail, err);
}

static double larger(double a, double b) {
  return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

static int32_t numeric(bs_kernel_seeds *seeds, bs_kernel_arm *arm, json_t *record, bs_error *err) {
  bs_kernel_numbers all = {0};
  bs_kernel_data *data = NULL;
  bs_tail tail = {0}, own;
  double predicted = 0.0, of_seed = 0.0;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < seeds->n; i++) {
    bs_kernel_numbers n;
    rc = bs_kernel_seeds_get(seeds, i, &data, err);
    if (rc == BS_OK && i > 0) rc = bs_kernel_arm_load(arm, data, err);
    if (rc == BS_OK) rc = bs_kernel_arm_judge(arm, &n, err);
    if (rc == BS_OK) rc = bs_kernel_predict(arm, data, &of_seed, &own, err);
    if (rc != BS_OK) break;
    predicted = larger(predicted, of_seed);
    bs_tail_join(&tail, &own);
    all.relative_rmse = larger(all.relative_rmse, n.relative_rmse);
    all.worst = larger(all.worst, n.worst);
    all.worst_slice = larger(all.worst_slice, n.worst_slice);
    all.max_error = larger(all.max_error, n.max_error);
    all.rms = n.rms;
    all.rows += n.rows;
    all.values += n.values;
    all.nonfinite += n.nonfinite;
  }
  if (rc == BS_OK) rc = bs_kernel_seeds_get(seeds, 0, &data, err);
  if (rc == BS_OK && seeds->n > 1) rc = bs_kernel_arm_load(arm, data, err);
  if (rc != BS_OK) return rc;
  const double slices = (double)seeds->n * (double)bs_kernel_data_slices(data),
               worst = bs_tail_largest(&tail, (double)all.values, BS_TAIL_ODDS),
               slice = bs_tail_slice(&tail, slices, (double)all.rows / slices, (double)all.values / slices,
                                     BS_TAIL_ODDS),
               ratio = bs_tail_ratio(&tail, seeds->n, (double)all.values / seeds->n, BS_TAIL_ODDS);
  return add(
      record, "numeric",
      json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:i}", "relative_rmse",
                bs_kernel_number(all.relative_rmse), "predicted_rmse", bs_kernel_number(predicted),
                "predicted_worst_rmse", bs_kernel_number(predicted * ratio), "worst",
                bs_kernel_number(all.worst), "predicted_worst", bs_kernel_number(worst), "worst_slice_rmse",
                bs_kernel_number(all.worst_slice), "predicted_slice_rmse", bs_kernel_number(slice),
                "max_error", bs_kernel_number(all.max_error), "rms", bs_kernel_number(all.rms), "nonfinite",
                (json_int_t)all.nonfinite, "rows", (json_int_t)all.rows, "seeds", (int)seeds->n),
      err);
}

static int32_t determinism(bs_kernel_arm *arm, json_t *record, bs_error *err) {
  uint64_t differing = 0;
  const int32_t rc = bs_kernel_arm_repeat(arm, &differing, err);
  return rc == BS_OK
             ? add(record, "determinism", json_pack("{s:I}", "differing_bytes", (json_int_t)differing), err)
             : rc;
}

/* The promised memory: the answer's bytes for each member of the team, the weights of a product, and an
 * allowance for rows and tables of the shape. */
static double promised(const bs_kernel_setup *setup, const bs_kernel_arm *arm) {
  const bs_kernel_problem *p = setup->problem;
  const double members = setup->threads > 0 ? setup->threads : 1;
  const double row = 16.0 * (double)(p->T + p->D + p->E + p->K), rest = 65536.0;
  const double weights =
      p->kind == BS_KERNEL_SDPA || p->kind == BS_KERNEL_SDPA_DX ? 0.0 : 1.1 * bs_kernel_bytes(p);
  return members * ((double)bs_kernel_arm_workspace(arm) + row + rest) + weights;
}

static int32_t memory(const bs_kernel_setup *setup, const bs_kernel_arm *arm, json_t *record, bs_error *err) {
  return add(record, "memory",
             json_pack("{s:I, s:I}", "plan_bytes", (json_int_t)bs_kernel_arm_bytes(arm), "promised_bytes",
                       (json_int_t)promised(setup, arm)),
             err);
}

int32_t bs_kernel_stage(uint32_t stage, const bs_kernel_setup *setup, bs_kernel_seeds *seeds,
                        bs_kernel_arm **arm, json_t *record, bs_error *err) {
  switch (stage) {
    case BS_STAGE_BUILD:
      return build(setup, seeds, arm, record, err);
    case BS_STAGE_RESOURCE:
      return resource(*arm, record, err);
    case BS_STAGE_NUMERIC:
      return numeric(seeds, *arm, record, err);
    case BS_STAGE_DETERMINISM:
      return determinism(*arm, record, err);
    case BS_STAGE_MEMORY:
      return memory(setup, *arm, record, err);
    default:
      return bs_error_set(err, BS_USAGE, "BS-KERNEL-STAGE", "stage %u is not made of an arm alone", stage);
  }
}

int32_t bs_kernel_examine(const bs_kernel_setup *setup, bs_kernel_seeds *seeds, bs_kernel_arm **arm,
                          json_t *record, bs_error *err) {
  int32_t rc = BS_OK;
  *arm = NULL;
  for (uint32_t stage = BS_STAGE_BUILD; rc == BS_OK && stage <= BS_STAGE_MEMORY; stage++)
    if (stage == BS_STAGE_BUILD || *arm != NULL) rc = bs_kernel_stage(stage, setup, seeds, arm, record, err);
  return rc;
}

/* 1: there is no verdict for want of a quiet machine, whatever the interval says. */
static int is_disturbed(const bs_comparison *c) {
  return c->word == BS_WORD_NONE || (c->word == BS_WORD_UNCLEAR && c->cause == BS_UNCLEAR_DISTURBED);
}

int bs_kernel_undecided(const bs_comparison *best) {
  return is_disturbed(best) ||
         (best->word == BS_WORD_UNCLEAR && best->cause == BS_UNCLEAR_FEW && best->high < 1.0);
}

static void set_text(json_t *performance, const char *name, const char *end, json_t *value) {
  char key[32];
  snprintf(key, sizeof key, "%s%s", name, end);
  json_object_set_new(performance, key, value);
}

/* A ratio that gates judge, or why it is not known: NAME, NAME_low and NAME_high, or NAME_unknown. c NULL:
 * there were no pairs. */
static void add_ratio(const char *name, const bs_comparison *c, int undecided, const char *unpaired,
                      json_t *performance) {
  char few[200];
  if (unpaired != NULL) set_text(performance, name, "_unknown", json_string(unpaired));
  if (c == NULL) return;
  if (!undecided) {
    set_text(performance, name, "", bs_kernel_number(c->ratio));
    set_text(performance, name, "_low", bs_kernel_number(c->low));
    set_text(performance, name, "_high", bs_kernel_number(c->high));
    return;
  }
  if (c->cause != BS_UNCLEAR_FEW) {
    char next[BS_LOOK_SENTENCE];
    bs_comparison_next(c, next, sizeof next);
    snprintf(few, sizeof few, "%.3g [%.3g, %.3g]: %s%s%s", c->ratio, c->low, c->high,
             bs_unclear_name(c->cause), next[0] != '\0' ? ": " : "", next);
  } else {
    snprintf(
        few, sizeof few,
        "%.3g [%.3g, %.3g] is UNCLEAR: %zu pairs are too few, about %zu are needed: a longer --seconds, or a "
        "quiet machine",
        c->ratio, c->low, c->high, c->pairs, c->needs);
  }
  set_text(performance, name, "_unknown", json_string(few));
}

int32_t bs_kernel_record_times(const bs_kernel_timed *t, json_t *record, bs_error *err) {
  json_t *performance =
      json_pack("{s:o,s:I,s:i,s:i}", "seconds", bs_kernel_number(t->seconds), "peers", (json_int_t)t->peers,
                "candidate", t->candidate != 0, "baseline", t->baseline != 0);
  const bs_comparison *best = t->peers > 0 ? t->best : NULL, *progress = t->baseline ? t->progress : NULL;
  add_ratio("ratio", best, best != NULL && bs_kernel_undecided(best), t->unpaired, performance);
  if (t->baseline)
    add_ratio("progress", progress, progress != NULL && is_disturbed(progress), t->no_progress, performance);
  if (t->bound != NULL) {
    json_object_set_new(performance, "bound_percent",
                        bs_kernel_number(100.0 * t->bound->seconds / t->seconds));
    json_object_set_new(performance, "bound", json_string(bs_kernel_limit_names[t->bound->binding]));
  }
  const int32_t rc = add(record, "performance", performance, err);
  if (rc != BS_OK) return rc;
  return add(record, "evidence", json_pack("{s:I}", "samples", (json_int_t)t->samples), err);
}
