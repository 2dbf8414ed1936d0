/* SPDX-License-Identifier: MIT
 * matmul24_dx.c - dX = dY W over matmul24's packed weight: dX[b,k] is the sum of dY[b,n] W[n,k] over the
 * outputs n that keep k, ascending. With X_FULL the partition's columns of a whole dX are written and no
 * others. */
#include "matmul24.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || !ref_grad_shapes(q, 1, 0))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs dY [B,N], dX [B,K]");
  return ref_grad24_answer(q, 1, 0, q->args[0]->dtype, q->weight_dtype, q->args[1]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "matmul24_dx needs a packed weight");
  const uint32_t compute = ref_grad_compute(q, q->args[0]->dtype, q->weight_dtype, q->args[1]->dtype);
  return ref_grad24_prepare(&ref_matmul24_dx, state, exec, q, compute, packed, out_plan, err);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  ref_grad24_job job;
  (void)nargs, (void)stream;
  memset(&job, 0, sizeof job);
  job.plan = opaque;
  job.dy = ref_view_of(args[0]);
  job.x = ref_view_of(args[1]);
  job.rows = job.dy.rows;
  job.tile = ref_grad24_dx_tile;
  return ref_grad24_run(&job, err);
}

const bs_src_loc ref_matmul24_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul24_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24_dx",
    .backend = "ref",
    .name = "portable",
    .summary = "kept weights in portable C, sums in order of the outputs",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_grad24_plan_free,
};
