/* SPDX-License-Identifier: MIT
 * matmul24_dw.c - the kept part of dW = dY^T X: for each kept weight the sum of dY[b,n] X[b,k], b ascending;
 * zero at places beyond the last column. With X_FULL the partition's columns are those of a whole X. */
#include "matmul24.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !ref_grad_shapes(q, 0, 1) || !ref_arg_ok(q, 2, 2))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs X [B,K], dY [B,N], dW [N,2 ceil(K/4)]");
  return ref_grad24_answer(q, 0, 1, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const uint32_t compute = ref_grad_compute(q, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype);
  return ref_grad24_prepare(&ref_matmul24_dw, state, exec, q, compute, NULL, out_plan, err);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  ref_grad24_job job;
  (void)nargs, (void)stream;
  memset(&job, 0, sizeof job);
  job.plan = opaque;
  job.x = ref_view_of(args[0]);
  job.dy = ref_view_of(args[1]);
  job.out = ref_view_of(args[2]);
  job.rows = job.out.rows;
  job.tile = ref_grad24_dw_tile;
  return ref_grad24_run(&job, err);
}

const bs_src_loc ref_matmul24_dw_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul24_dw = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24_dw",
    .backend = "ref",
    .name = "portable",
    .summary = "kept weights in portable C, sums in order of the tokens",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_grad24_plan_free,
};
