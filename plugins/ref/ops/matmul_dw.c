/* SPDX-License-Identifier: MIT
 * matmul_dw.c - dW = dY^T X: dW[n,k] is the sum of dY[b,n] X[b,k], b ascending. With X_FULL the partition's
 * columns are picked from a whole X. */
#include "matmul_grad.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !ref_grad_shapes(q, 0, 1) || !ref_arg_ok(q, 2, 2))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs X [B,K], dY [B,N], dW [N,K]");
  return ref_grad_answer(q, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  ref_grad_plan *plan = NULL;
  (void)packed;
  const uint32_t compute = ref_grad_compute(q, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype);
  const int32_t rc = ref_grad_prepare(&ref_matmul_dw, state, exec, q, compute, 0, 1, NULL, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_grad_plan *plan = opaque;
  ref_grad_job job;
  memset(&job, 0, sizeof job);
  job.plan = plan;
  job.left = ref_view_of(args[1]);
  job.turned = 1;
  job.right = ref_view_of(args[0]);
  job.pick = plan->full;
  job.out = ref_view_of(args[2]);
  job.rows = job.out.rows;
  job.cols = job.out.cols;
  job.depth = job.left.rows;
  job.finish = ref_grad_store;
  return ref_grad_run(&job, err);
}

const bs_src_loc ref_matmul_dw_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul_dw = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_dw",
    .backend = "ref",
    .name = "portable",
    .summary = "tiles in portable C, sums in order of the tokens",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_grad_plan_free,
};
