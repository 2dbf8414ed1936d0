/* SPDX-License-Identifier: MIT
 * activate_dx.c - dZ = dY act'(Z), Z what the activation was applied to; dZ may be in dY or in Z. Any
 * strides; the arithmetic is in activate_dx_body.h. */
#include "activate_dx_body.h"

#include "ops.h"

typedef struct activate_dx_plan {
  cuda_plan plan;
  uint32_t activation;
} activate_dx_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  for (uint32_t i = 0; i < 3; i++)
    if (q->nargs != 3 || !cuda_arg_ok(q, i, 2) || q->args[i]->dims[0] != q->args[0]->dims[0] ||
        q->args[i]->dims[1] != q->args[0]->dims[1])
      return cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs dY, Z and dZ of one shape");
  for (uint32_t i = 0; i < 3; i++)
    if (!cuda_is_float(q->args[i]->dtype))
      return cuda_answer_no(out_answer, BS_REASON_DTYPE, "needs float dtypes");
  if (q->activation == BS_ACT_NONE || q->activation > BS_ACT_SILU)
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", q->activation);
  const uint32_t tolerance = q->activation > BS_ACT_RELU ? BS_TOL_ACC_F32 : BS_TOL_EXACT;
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, tolerance, 0, "vectors", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc =
      cuda_plan_new(&cuda_activate_dx, state, exec, q, sizeof(activate_dx_plan), out_plan, err);
  if (rc == BS_OK) ((activate_dx_plan *)*out_plan)->activation = q->activation;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const activate_dx_plan *plan = opaque;
  cuda_view views[3];
  activate_dx_args args = {.activation = plan->activation, .by = CUDA_BY_F32};
  for (int i = 0; i < 3; i++) {
    views[i] = cuda_view_of(tensors[i]);
    if (views[i].dtype == BS_F64) args.by = CUDA_BY_F64;
  }
  cuda_walk_make(views, 3, 1, CUDA_SLOPE_WIDTH, 0, &args.walk);
  args.dy = views[0];
  args.z = views[1];
  args.dz = views[2];
  return cuda_launch_items(plan->plan.device, CUDA_ACTIVATE_DX, cuda_walk_threads(&args.walk),
                           cuda_stream(plan->plan.device, stream), &args, err);
}

const bs_op_impl cuda_activate_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "activate_dx",
    .backend = "cuda",
    .name = "kernels",
    .summary = "multiplies by the slope of an activation",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
