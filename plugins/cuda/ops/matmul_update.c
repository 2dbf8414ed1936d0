/* SPDX-License-Identifier: MIT
 * matmul_update.c - W += alpha dY^T X in matmul's packed weight. The sum is matmul_dw's; alpha times it is
 * rounded to the dtype of the sums, added to the weight in f64 and rounded once to the weight's dtype. */
#include "products.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !cuda_product_shapes(q, 0, 1) || !cuda_arg_ok(q, 2, 1))
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs X [B,K], dY [B,N], alpha [1]");
  if (!cuda_is_float(q->weight_dtype))
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "integer weights are not updated");
  return cuda_product_answer(q, q->args[0]->dtype, q->args[1]->dtype, q->weight_dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  cuda_product_plan *plan = NULL;
  const uint32_t compute = cuda_product_compute(q, q->args[0]->dtype, q->args[1]->dtype, q->weight_dtype);
  const int32_t rc =
      cuda_product_prepare(&cuda_matmul_update, state, exec, q, compute, 0, 1, 1, packed, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_product_plan *plan = opaque;
  product_args product;
  (void)nargs;
  cuda_matmul_dw_args(plan, args, &product);
  if (product.depth == 0) return BS_OK;
  product.c = cuda_packed_view(plan->weight);
  product.rows = product.c.rows;
  product.cols = product.c.cols;
  product.alpha = args[2]->data;
  product.adds = 1;
  return cuda_product_launch(plan->plan.device, plan->compute, cuda_stream(plan->plan.device, stream),
                             &product, err);
}

const bs_op_impl cuda_matmul_update = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_update",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "our own tiles, sums in order of the tokens, one rounding of the weight",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_product_plan_free,
    .echo = cuda_product_echo,
};
