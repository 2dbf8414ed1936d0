/* SPDX-License-Identifier: MIT
 * matmul_update.c - W += alpha dY^T X in matmul's packed weight. The sum is matmul_dw's; alpha times it is
 * rounded to the dtype of the sums, added to the weight in f64 and rounded once to the weight's dtype, as an
 * update by that delta would be. */
#include "matmul_grad.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !ref_grad_shapes(q, 0, 1) || !ref_arg_ok(q, 2, 1))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs X [B,K], dY [B,N], alpha [1]");
  if (!ref_is_float(q->weight_dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "integer weights are not updated");
  return ref_grad_answer(q, q->args[0]->dtype, q->args[1]->dtype, q->weight_dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  ref_grad_plan *plan = NULL;
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "matmul_update needs a packed weight");
  const uint32_t compute = ref_grad_compute(q, q->args[0]->dtype, q->args[1]->dtype, q->weight_dtype);
  const int32_t rc = ref_grad_prepare(&ref_matmul_update, state, exec, q, compute, 0, 1, packed, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t finish(const ref_grad_job *job, int64_t i, int64_t j, int64_t n, unsigned char *sums) {
  const ref_grad_plan *plan = job->plan;
  double w[REF_GRAD_COLS];
  int32_t rc = ref_load(plan->host, &job->out, i, NULL, j, n, BS_F64, w);
  for (int64_t c = 0; c < n && rc == BS_OK; c++) w[c] += ref_grad_delta(plan->compute, job->alpha, sums, c);
  return rc == BS_OK ? ref_store(plan->host, &job->out, i, j, n, BS_F64, w) : rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_grad_plan *plan = opaque;
  const ref_packed *w = plan->weight;
  float alpha;
  ref_grad_job job;
  memset(&job, 0, sizeof job);
  memcpy(&alpha, args[2]->data, sizeof alpha);
  job.plan = plan;
  job.alpha = (double)alpha;
  job.left = ref_view_of(args[1]);
  job.turned = 1;
  job.right = ref_view_of(args[0]);
  job.pick = plan->full;
  job.out = (ref_view){w->data, w->dtype, w->size, w->rows, w->cols, w->cols, 1};
  job.rows = w->rows;
  job.cols = w->cols;
  job.depth = job.left.rows;
  job.finish = finish;
  return job.depth > 0 ? ref_grad_run(&job, err) : BS_OK;
}

const bs_src_loc ref_matmul_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul_update = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_update",
    .backend = "ref",
    .name = "portable",
    .summary = "tiles in portable C, sums in order of the tokens, one rounding of the weight",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_grad_plan_free,
};
