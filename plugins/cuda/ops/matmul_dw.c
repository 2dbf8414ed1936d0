/* SPDX-License-Identifier: MIT
 * matmul_dw.c - dW = dY^T X: dW[n,k] is the sum of dY[b,n] X[b,k], b ascending. A is dY turned, B is X turned
 * (with X_FULL the partition's columns of it), C is dW. */
#include "products.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !cuda_product_shapes(q, 0, 1) || !cuda_arg_ok(q, 2, 2))
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs X [B,K], dY [B,N], dW [N,K]");
  return cuda_product_answer(q, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  cuda_product_plan *plan = NULL;
  const uint32_t compute = cuda_product_compute(q, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype);
  (void)packed;
  const int32_t rc =
      cuda_product_prepare(&cuda_matmul_dw, state, exec, q, compute, 0, 1, 0, NULL, &plan, err);
  *out_plan = plan;
  return rc;
}

void cuda_matmul_dw_args(const cuda_product_plan *plan, bs_tensor *const *args, product_args *out) {
  cuda_view x = cuda_view_of(args[0]), dy = cuda_view_of(args[1]);
  memset(out, 0, sizeof *out);
  out->depth = dy.rows;
  cuda_product_pick(plan, PRODUCT_PICKS_B_ROWS, &x, out);
  x = cuda_turned(&x);
  dy = cuda_turned(&dy);
  out->a = cuda_product_side(&dy);
  out->b = cuda_product_side(&x);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_product_plan *plan = opaque;
  product_args product;
  (void)nargs;
  cuda_matmul_dw_args(plan, args, &product);
  product.c = cuda_view_of(args[2]);
  product.rows = product.c.rows;
  product.cols = product.c.cols;
  return cuda_product_launch(plan->plan.device, plan->compute, cuda_stream(plan->plan.device, stream),
                             &product, err);
}

const bs_op_impl cuda_matmul_dw = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_dw",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "our own tiles, sums in order of the tokens",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_product_plan_free,
    .echo = cuda_product_echo,
};
