/* SPDX-License-Identifier: MIT
 * matmul24_update.c - W += alpha dY^T X in matmul24's packed weight, for the kept weights alone. The sum is
 * matmul24_dw's; rounding is that of matmul_update. */
#include "matmul24.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !ref_grad_shapes(q, 0, 1) || !ref_arg_ok(q, 2, 1))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs X [B,K], dY [B,N], alpha [1]");
  if (!ref_is_float(q->weight_dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "integer weights are not updated");
  return ref_grad24_answer(q, 0, 1, q->args[0]->dtype, q->args[1]->dtype, q->weight_dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "matmul24_update needs a packed weight");
  const uint32_t compute = ref_grad_compute(q, q->args[0]->dtype, q->args[1]->dtype, q->weight_dtype);
  return ref_grad24_prepare(&ref_matmul24_update, state, exec, q, compute, packed, out_plan, err);
}

static int32_t finish(const ref_grad24_job *job, int64_t i, int64_t j, int64_t n, unsigned char *sums) {
  const ref_grad24_plan *plan = job->plan;
  double w[REF_24];
  int32_t rc = ref_load(plan->host, &job->out, i, NULL, j, n, BS_F64, w);
  for (int64_t c = 0; c < n && rc == BS_OK; c++)
    if (ref_position(plan->at, i, j + c) < plan->at->cols)
      w[c] += ref_grad_delta(plan->compute, job->alpha, sums, c);
  return rc == BS_OK ? ref_store(plan->host, &job->out, i, j, n, BS_F64, w) : rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const ref_grad24_plan *plan = opaque;
  const ref_packed *w = &plan->weight->values;
  ref_grad24_job job;
  float alpha;
  (void)nargs, (void)stream;
  memset(&job, 0, sizeof job);
  memcpy(&alpha, args[2]->data, sizeof alpha);
  job.plan = plan;
  job.alpha = (double)alpha;
  job.x = ref_view_of(args[0]);
  job.dy = ref_view_of(args[1]);
  job.out = (ref_view){w->data, w->dtype, w->size, w->rows, w->cols, w->cols, 1};
  job.rows = w->rows;
  job.tile = ref_grad24_dw_tile;
  job.finish = finish;
  return job.dy.rows > 0 ? ref_grad24_run(&job, err) : BS_OK;
}

const bs_src_loc ref_matmul24_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul24_update = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24_update",
    .backend = "ref",
    .name = "portable",
    .summary = "kept weights in portable C, sums in order of the tokens, one rounding of the weight",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_grad24_plan_free,
};
