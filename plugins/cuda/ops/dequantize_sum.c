/* SPDX-License-Identifier: MIT
 * dequantize_sum.c - out = sum over terms of q scale: int8 or fp8 values with an f32 scale for each group of
 * columns. Any strides; the arithmetic is in dequantize_sum_body.h. */
#include "dequantize_sum_body.h"

#include "ops.h"

typedef struct dequantize_plan {
  cuda_plan plan;
  int64_t group, terms;
} dequantize_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !cuda_arg_ok(q, 0, 2) || !cuda_arg_ok(q, 1, 2) || !cuda_arg_ok(q, 2, 2))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs three matrices of known dtypes");
  const uint32_t from = q->args[0]->dtype;
  if ((from != BS_I8 && from != BS_F8E4M3 && from != BS_F8E5M2) || q->args[1]->dtype != BS_F32 ||
      !cuda_is_float(q->args[2]->dtype))
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "needs i8 or fp8, f32 scales and a float output");
  if (q->attrs[0] < 1 || q->attrs[1] < 1)
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "groups and terms are at least 1");
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "vectors", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc =
      cuda_plan_new(&cuda_dequantize_sum, state, exec, q, sizeof(dequantize_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  dequantize_plan *plan = *out_plan;
  plan->group = q->attrs[0];
  plan->terms = q->attrs[1];
  return BS_OK;
}

static int64_t common(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const dequantize_plan *plan = opaque;
  cuda_view views[2] = {cuda_view_of(tensors[0]), cuda_view_of(tensors[2])};
  dequantize_sum_args args = {.scales = cuda_view_of(tensors[1]),
                              .group = cuda_divisor_make(plan->group),
                              .groups = cuda_view_of(tensors[1]).cols / plan->terms,
                              .terms = plan->terms,
                              .cols = views[1].cols};
  /* A piece lies in one group, and terms begin where pieces do. */
  const int64_t unit = common(plan->group < args.cols ? plan->group : 0, plan->terms > 1 ? args.cols : 0);
  cuda_walk_make(views, 2, 0, CUDA_WALK_WIDTH, unit, &args.walk);
  args.q = views[0];
  args.out = views[1];
  return cuda_launch_items(plan->plan.device, CUDA_DEQUANTIZE_SUM, cuda_walk_threads(&args.walk),
                           cuda_stream(plan->plan.device, stream), &args, err);
}

const bs_op_impl cuda_dequantize_sum = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "dequantize_sum",
    .backend = "cuda",
    .name = "kernels",
    .summary = "sums int8 or fp8 terms with a scale a group",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
