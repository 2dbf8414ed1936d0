/* SPDX-License-Identifier: MIT
 * step.h - shared parts of sgd_update.c, adamw_update.c and activate_dx.c: rows of up to three matrices that
 * are loaded as f64, changed by a function and stored, each value rounded once to its own dtype. */
#ifndef BS_PLUGIN_REF_STEP_H
#define BS_PLUGIN_REF_STEP_H
#include "matmul.h"

enum { REF_STEP_CHUNK = 128, REF_STEP_MATRICES = 4 };

typedef struct ref_step_plan {
  ref_plan base;
  ref_packed *weight; /* NULL: activate_dx */
} ref_step_plan;

/* One run: matrices of equal shape, data NULL if absent. n values of each are in v[i]; those with their bit
 * in `written` are stored afterwards. */
typedef struct ref_step_job {
  const ref_step_plan *plan;
  ref_view m[REF_STEP_MATRICES];
  uint32_t written;
  void (*change)(const struct ref_step_job *job, double *const *v, int64_t n);
  float hyper[8];
  int32_t failed;
} ref_step_job;

/* 1 when arg i, if it is there, is a matrix of the query's first. */
int ref_step_fits(const bs_op_query *query, uint32_t i);
int32_t ref_step_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                         const bs_op_query *query, ref_packed *weight, void **out_plan, bs_error *err);
ref_view ref_step_weight(const ref_step_plan *plan);
int32_t ref_step_run(ref_step_job *job, bs_error *err);
#endif
