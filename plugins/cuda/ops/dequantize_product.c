/* SPDX-License-Identifier: MIT
 * dequantize_product.c - converts the i32 sums of a product of two int8 matrices, with the terms added to it:
 * out = act(sums rows columns + base + bias). base may be out. Any strides; the arithmetic is in
 * dequantize_product_body.h. */
#include "dequantize_product_body.h"

#include "ops.h"

typedef struct product_plan {
  cuda_plan plan;
  uint32_t activation;
} product_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[6] = {2, 2, 1, 1, 2, 2};
  if (q->nargs != 6)
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs sums, two scales, bias, base and output");
  for (uint32_t i = 0; i < 6; i++) {
    const int optional = i == 3 || i == 4;
    if (optional && q->args[i] == NULL) continue;
    if (!cuda_arg_ok(q, i, ranks[i]))
      return cuda_answer_no(out_answer, BS_REASON_RANK, "arg %u: %u dimensions of a known dtype", i,
                            ranks[i]);
    const uint32_t dtype = q->args[i]->dtype;
    if (i == 5 ? !cuda_is_float(dtype) : dtype != (i == 0 ? (uint32_t)BS_I32 : (uint32_t)BS_F32))
      return cuda_answer_no(out_answer, BS_REASON_DTYPE, "arg %u: dtype 0x%04x", i, dtype);
  }
  if (q->activation > BS_ACT_GELU_TANH)
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", q->activation);
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_ACC_F32, 0, "vectors", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc =
      cuda_plan_new(&cuda_dequantize_product, state, exec, q, sizeof(product_plan), out_plan, err);
  if (rc == BS_OK) ((product_plan *)*out_plan)->activation = q->activation;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const product_plan *plan = opaque;
  cuda_view views[5] = {cuda_view_of(tensors[0]), cuda_view_of(tensors[2]), cuda_view_of(tensors[3]),
                        cuda_view_of(tensors[4]), cuda_view_of(tensors[5])};
  dequantize_product_args args = {.rows = cuda_view_of(tensors[1]), .activation = plan->activation};
  cuda_walk_make(views, 5, 0, 4, 0, &args.walk);
  args.sums = views[0];
  args.columns = views[1];
  args.bias = views[2];
  args.base = views[3];
  args.out = views[4];
  return cuda_launch_items(plan->plan.device, CUDA_DEQUANTIZE_PRODUCT, cuda_walk_threads(&args.walk),
                           cuda_stream(plan->plan.device, stream), &args, err);
}

const bs_op_impl cuda_dequantize_product = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "dequantize_product",
    .backend = "cuda",
    .name = "kernels",
    .summary = "i32 sums of int8 products by the scales of rows and columns",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
