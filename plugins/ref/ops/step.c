/* SPDX-License-Identifier: MIT
 * step.c - see step.h. */
#include "step.h"

#include "matmul24.h"

int ref_step_fits(const bs_op_query *q, uint32_t i) {
  if (q->args == NULL || i >= q->nargs) return 0;
  if (q->args[i] == NULL) return 1;
  return ref_arg_ok(q, 0, 2) && ref_arg_ok(q, i, 2) && ref_is_float(q->args[i]->dtype) &&
         q->args[i]->dims[0] == q->args[0]->dims[0] && q->args[i]->dims[1] == q->args[0]->dims[1];
}

int32_t ref_step_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec, const bs_op_query *q,
                         ref_packed *weight, void **out_plan, bs_error *err) {
  void *made = NULL;
  const int32_t rc = ref_plan_make(impl, state, exec, q, sizeof(ref_step_plan), &made, err);
  if (rc != BS_OK) return rc;
  if (weight != NULL && (weight->rows != q->args[0]->dims[0] || weight->cols != q->args[0]->dims[1])) {
    ref_plan_free(made);
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "%s: dW is [%lld,%lld], the weight [%lld,%lld]",
                   impl->op, (long long)q->args[0]->dims[0], (long long)q->args[0]->dims[1],
                   (long long)weight->rows, (long long)weight->cols);
  }
  ((ref_step_plan *)made)->weight = weight;
  *out_plan = made;
  return BS_OK;
}

ref_view ref_step_weight(const ref_step_plan *plan) {
  const ref_packed *w = plan->weight;
  return (ref_view){w->data, w->dtype, w->size, w->rows, w->cols, w->cols, 1};
}

static int32_t change_piece(const ref_step_job *job, int64_t row, int64_t first, int64_t n) {
  const bs_host *host = job->plan->base.host;
  double values[REF_STEP_MATRICES][REF_STEP_CHUNK];
  double *v[REF_STEP_MATRICES];
  int32_t rc = BS_OK;
  for (int i = 0; i < REF_STEP_MATRICES && rc == BS_OK; i++) {
    v[i] = job->m[i].data != NULL ? values[i] : NULL;
    if (v[i] != NULL) rc = ref_load(host, &job->m[i], row, NULL, first, n, BS_F64, v[i]);
  }
  if (rc == BS_OK) job->change(job, v, n);
  for (int i = 0; i < REF_STEP_MATRICES && rc == BS_OK; i++)
    if (v[i] != NULL && (job->written >> i & 1u))
      rc = ref_store(host, &job->m[i], row, first, n, BS_F64, v[i]);
  return rc;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  ref_step_job *job = arg;
  const int64_t cols = job->m[0].cols, pieces = (cols + REF_STEP_CHUNK - 1) / REF_STEP_CHUNK;
  int64_t begin, end;
  ref_share(job->m[0].rows * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = i % pieces * REF_STEP_CHUNK;
    const int64_t n = cols - first < REF_STEP_CHUNK ? cols - first : REF_STEP_CHUNK;
    const int32_t rc = change_piece(job, i / pieces, first, n);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

int32_t ref_step_run(ref_step_job *job, bs_error *err) {
  const bs_exec *exec = job->plan->base.exec;
  if (job->m[0].rows == 0 || job->m[0].cols == 0) return BS_OK;
  const int32_t rc = exec->parallel_for(exec->ctx, share, job);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-TEAM", "the rank's thread team failed");
  if (job->failed != BS_OK)
    return bs_fail(err, job->failed, "BS-REF-CONVERT", "the host does not convert between 0x%04x and 0x%04x",
                   job->m[0].dtype, job->m[1].dtype);
  if (job->plan->weight != NULL && job->plan->weight->at != NULL) ref_packed24_clear(job->plan->weight);
  return BS_OK;
}
