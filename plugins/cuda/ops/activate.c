/* SPDX-License-Identifier: MIT
 * activate.c - out[b,n] = act(in[b,n]) rounded to out's dtype; out may be in itself. Any strides; the
 * arithmetic is in activate_body.h. */
#include "activate_body.h"

#include "ops.h"

typedef struct activate_plan {
  cuda_plan plan;
  uint32_t activation;
} activate_plan;

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != 2 || !cuda_arg_ok(query, 0, 2) || !cuda_arg_ok(query, 1, 2))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  const bs_tensor_desc *in = query->args[0], *out = query->args[1];
  const int integers = in->dtype == out->dtype && (in->dtype == BS_I32 || in->dtype == BS_I64);
  if (in->dims[0] != out->dims[0] || in->dims[1] != out->dims[1])
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "input and output differ in shape");
  if (!integers && !(cuda_is_float(in->dtype) && cuda_is_float(out->dtype)))
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "two floats, or i32 or i64 twice");
  if (query->activation > BS_ACT_GELU_TANH)
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", query->activation);
  if (integers && query->activation > BS_ACT_RELU)
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "gelu and silu need float dtypes");
  const uint32_t tolerance = query->activation > BS_ACT_RELU ? BS_TOL_ACC_F32 : BS_TOL_EXACT;
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, tolerance, 0, "vectors", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_activate, state, exec, query, sizeof(activate_plan), out_plan, err);
  if (rc == BS_OK) ((activate_plan *)*out_plan)->activation = query->activation;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const activate_plan *plan = opaque;
  cuda_view views[2] = {cuda_view_of(tensors[0]), cuda_view_of(tensors[1])};
  activate_args args = {.activation = plan->activation, .by = CUDA_BY_F32};
  if (cuda_is_integer(views[0].dtype)) {
    args.by = CUDA_BY_I64;
  } else if (views[0].dtype == BS_F64 || views[1].dtype == BS_F64) {
    args.by = CUDA_BY_F64;
  }
  cuda_walk_make(views, 2, 1, CUDA_WALK_WIDTH, 0, &args.walk);
  args.in = views[0];
  args.out = views[1];
  return cuda_launch_items(plan->plan.device, CUDA_ACTIVATE, cuda_walk_threads(&args.walk),
                           cuda_stream(plan->plan.device, stream), &args, err);
}

const bs_op_impl cuda_activate = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "activate",
    .backend = "cuda",
    .name = "kernels",
    .summary = "applies an activation",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
