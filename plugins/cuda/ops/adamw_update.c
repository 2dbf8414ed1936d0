/* SPDX-License-Identifier: MIT
 * adamw_update.c - one step of AdamW on a packed weight, in place; the arithmetic is in adamw_update_body.h.
 */
#include "adamw_update_body.h"

#include "update.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (!cuda_update_fits(q, 2, 0, out_answer)) return BS_OK;
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_ACC_F64, 0, "vectors", "f64, one pass");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  return cuda_update_prepare(&cuda_adamw_update, state, exec, q, packed, out_plan, err);
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const cuda_update_plan *plan = opaque;
  cuda_view views[4] = {cuda_view_of(tensors[0]), cuda_view_of(tensors[1]), cuda_view_of(tensors[2])};
  adamw_update_args args = {.hyper = tensors[3]->data};
  cuda_update_lay(plan, views, 4, &args.walk, &args.beyond);
  args.dw = views[0];
  args.m = views[1];
  args.v = views[2];
  args.w = views[3];
  return cuda_launch_items(plan->plan.device, CUDA_ADAMW_UPDATE, cuda_walk_threads(&args.walk),
                           cuda_stream(plan->plan.device, stream), &args, err);
}

const bs_op_impl cuda_adamw_update = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "adamw_update",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "one pass, one rounding of each value",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
