/* SPDX-License-Identifier: MIT
 * record.c - see record.h. */
#include "lab/kernel/record.h"

#include <math.h>
#include <string.h>

#include "lab/error.h"
#include "lab/kernel/oracle.h"

enum { SMALL_ALLOCATIONS = 64 * 1024 }; /* a plan's own fields, and what aligning takes */

static json_t *number(double value) {
  if (isfinite(value)) return json_real(value);
  return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

/* Takes the object over; NULL: out of memory. */
static int32_t add(json_t *record, const char *stage, json_t *fields, bs_error *err) {
  if (fields != NULL && json_object_set_new(record, stage, fields) == 0) return BS_OK;
  return bs_no_memory(err, "the record of a kernel");
}

/* ---- build and resource ------------------------------------------------------------------------- */

static int32_t record_build(const bs_kernel_arm *arm, const char *error_id, const char *stored_id,
                            json_t *record, bs_error *err) {
  json_t *build = json_pack("{s:i,s:i,s:i}", "prepared", arm != NULL, "unshown_knobs",
                            strcmp(error_id, "BS-OP-KNOB-ECHO") == 0, "has_stored", stored_id != NULL);
  if (arm == NULL) json_object_set_new(build, "error", json_string(error_id));
  if (stored_id != NULL) json_object_set_new(build, "stored_id", json_string(stored_id));
  return add(record, "build", build, err);
}

/* ---- numbers ------------------------------------------------------------------------------------ */

/* What a right provider's error would be. */
static int32_t predict(bs_kernel_arm *arm, const bs_kernel_problem *p, double *out_rmse, double *out_worst,
                       bs_error *err) {
  if (p->kind != BS_KERNEL_SDPA) { /* the largest of n normal errors */
    const double n = (double)bs_kernel_data_outputs(bs_kernel_arm_data(arm));
    const int32_t rc = bs_kernel_data_predict(bs_kernel_arm_data(arm), out_rmse, err);
    *out_worst = *out_rmse * sqrt(2.0 * log(2.0 * n + 1.0));
    return rc;
  }
  const bs_sdpa_format f = {.B = p->B,
                            .H = p->H,
                            .S = p->S,
                            .T = p->T,
                            .D = p->D,
                            .E = p->E,
                            .dtype = p->dtype,
                            .tolerance = bs_kernel_arm_tolerance(arm),
                            .causal = p->causal,
                            .left = p->left,
                            .right = p->right,
                            .seed = bs_kernel_data_seed(bs_kernel_arm_data(arm))};
  bs_sdpa_error predicted;
  const int32_t rc = bs_sdpa_emulate(&f, &predicted, err);
  *out_rmse = rc == BS_OK ? predicted.rmse : NAN;
  *out_worst = rc == BS_OK ? predicted.worst : NAN;
  return rc;
}

/* The larger one; NaN wins. */
static double worse(double a, double b) {
  return isnan(a) || a > b ? a : b;
}

static void keep_worse(bs_kernel_numbers *all, const bs_kernel_numbers *one) {
  all->relative_rmse = worse(all->relative_rmse, one->relative_rmse);
  all->worst = worse(all->worst, one->worst);
  all->max_error = worse(all->max_error, one->max_error);
  all->worst_slice = worse(all->worst_slice, one->worst_slice);
  all->rows += one->rows;
  all->nonfinite += one->nonfinite;
}

static int32_t judge_other_seed(bs_kernel_arm *arm, uint64_t seed, bs_kernel_numbers *all, bs_error *err) {
  bs_kernel_data *own = bs_kernel_arm_data(arm), *other = NULL;
  bs_kernel_numbers one;
  int32_t rc = bs_kernel_data_make(bs_kernel_data_problem(own), seed, &other, err);
  if (rc != BS_OK) return rc;
  rc = bs_kernel_arm_load(arm, other, err);
  if (rc == BS_OK) rc = bs_kernel_arm_judge(arm, &one, err);
  if (rc == BS_OK) keep_worse(all, &one);
  const int32_t back = bs_kernel_arm_load(arm, own, rc == BS_OK ? err : NULL);
  bs_kernel_data_free(other);
  return rc != BS_OK ? rc : back;
}

static int32_t record_numbers(bs_kernel_arm *arm, const bs_kernel_setup *setup, uint32_t seeds,
                              json_t *record, bs_error *err) {
  bs_kernel_numbers all;
  double rmse = NAN, worst = NAN;
  const uint64_t first = bs_kernel_data_seed(bs_kernel_arm_data(arm));
  int32_t rc = bs_kernel_arm_judge(arm, &all, err);
  for (uint32_t i = 1; rc == BS_OK && i < seeds; i++) rc = judge_other_seed(arm, first + i, &all, err);
  if (rc == BS_OK) rc = predict(arm, setup->problem, &rmse, &worst, err);
  if (rc != BS_OK) return rc;
  return add(record, "numeric",
             json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:i}", "relative_rmse", number(all.relative_rmse),
                       "predicted_rmse", number(rmse), "worst", number(all.worst), "predicted_worst",
                       number(worst), "worst_slice_rmse", number(all.worst_slice), "max_error",
                       number(all.max_error), "nonfinite", (json_int_t)all.nonfinite, "rows",
                       (json_int_t)all.rows, "seeds", (int)(seeds > 0 ? seeds : 1)),
             err);
}

/* ---- determinism, memory, time ------------------------------------------------------------------ */

static int32_t record_repeat(bs_kernel_arm *arm, json_t *record, bs_error *err) {
  uint64_t differing;
  const int32_t rc = bs_kernel_arm_repeat(arm, &differing, err);
  if (rc != BS_OK) return rc;
  return add(record, "determinism", json_pack("{s:I}", "differing_bytes", (json_int_t)differing), err);
}

/* Each member of the team may have what supports told, and its own rows of the problem in f64. */
static uint64_t promised_bytes(const bs_kernel_arm *arm, const bs_kernel_setup *setup) {
  const bs_kernel_problem *p = setup->problem;
  const uint64_t threads = setup->threads > 0 ? setup->threads : 1;
  const uint64_t row = p->kind == BS_KERNEL_SDPA ? (uint64_t)(p->T + 2 * p->D + 2 * p->E) : 0;
  const uint64_t weight = p->kind == BS_KERNEL_SDPA ? 0 : 2 * (uint64_t)p->N * (uint64_t)p->K * 4;
  return weight + threads * (bs_kernel_arm_workspace(arm) + row * sizeof(double) + SMALL_ALLOCATIONS);
}

static int32_t record_memory(const bs_kernel_arm *arm, const bs_kernel_setup *setup, json_t *record,
                             bs_error *err) {
  return add(record, "memory",
             json_pack("{s:I,s:I}", "plan_bytes", (json_int_t)bs_kernel_arm_bytes(arm), "promised_bytes",
                       (json_int_t)promised_bytes(arm, setup)),
             err);
}

/* The request itself is wrong, or the machine at its end: no property of the kernel. */
static int is_callers(int32_t code) {
  return code == BS_USAGE || code == BS_CONFIG || code == BS_INVALID_ARGUMENT || code == BS_NO_MEMORY;
}

int32_t bs_kernel_examine(const bs_kernel_setup *setup, uint32_t seeds, const char *stored_id,
                          bs_kernel_arm **out_arm, json_t *record, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_kernel_arm *arm = NULL;
  *out_arm = NULL;
  int32_t rc = bs_kernel_arm_open(setup, &arm, &why);
  if (rc != BS_OK && is_callers(rc)) {
    if (err != NULL) *err = why;
    return rc;
  }
  rc = record_build(arm, why.id, stored_id, record, err);
  if (arm == NULL) return rc;
  if (rc == BS_OK) rc = record_numbers(arm, setup, seeds, record, err);
  if (rc == BS_OK) rc = record_repeat(arm, record, err);
  if (rc == BS_OK) rc = record_memory(arm, setup, record, err);
  if (rc != BS_OK) {
    bs_kernel_arm_close(arm);
    return rc;
  }
  *out_arm = arm;
  return BS_OK;
}

int32_t bs_kernel_record_times(const bs_kernel_timed *t, json_t *record, bs_error *err) {
  json_t *performance = json_pack("{s:o,s:I,s:i}", "seconds", number(t->seconds), "peers",
                                  (json_int_t)t->peers, "candidate", t->candidate != 0);
  if (t->best != NULL && t->peers > 0) {
    json_object_set_new(performance, "ratio", number(t->best->ratio));
    json_object_set_new(performance, "ratio_low", number(t->best->low));
    json_object_set_new(performance, "ratio_high", number(t->best->high));
    json_object_set_new(performance, "word", json_string(bs_comparison_name(t->best->word)));
  }
  if (t->bound != NULL) {
    json_object_set_new(performance, "bound_percent", number(100.0 * t->bound->seconds / t->seconds));
    json_object_set_new(performance, "bound", json_string(bs_kernel_limit_names[t->bound->binding]));
  }
  const int32_t rc = add(record, "performance", performance, err);
  if (rc != BS_OK) return rc;
  return add(record, "evidence", json_pack("{s:I}", "samples", (json_int_t)t->samples), err);
}
