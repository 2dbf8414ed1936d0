/* SPDX-License-Identifier: MIT
 * matmul24_dw.c - the kept part of dW = dY^T X: for each kept weight the sum of dY[b,n] X[b,k], b ascending;
 * zero at places beyond the last column. Tiles are matmul_dw's, of which the kept sums are stored. */
#include "products24.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !cuda_product_shapes(q, 0, 1) || !cuda_arg_ok(q, 2, 2))
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs X [B,K], dY [B,N], dW [N,2 ceil(K/4)]");
  if (!cuda_kept_ok(q, q->args[1]->dims[1], cuda_product_columns(q, 0), out_answer)) return BS_OK;
  return cuda_product_answer(q, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  cuda_product_plan *plan = NULL;
  const uint32_t compute = cuda_product_compute(q, q->args[0]->dtype, q->args[1]->dtype, q->args[2]->dtype);
  (void)packed;
  const int32_t rc =
      cuda_product_prepare(&cuda_matmul24_dw, state, exec, q, compute, 0, 1, 0, NULL, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_product_plan *plan = opaque;
  product24_args product;
  (void)nargs;
  memset(&product, 0, sizeof product);
  cuda_matmul_dw_args(plan, args, &product.p);
  product.p.c = cuda_view_of(args[2]);
  product.p.rows = plan->own.rows;
  product.p.cols = plan->own.cols;
  cuda_product24_fill(&plan->own, PRODUCT24_OUT, &product);
  return cuda_product24_launch(plan->plan.device, plan->compute, cuda_stream(plan->plan.device, stream),
                               &product, err);
}

const bs_op_impl cuda_matmul24_dw = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24_dw",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "our own tiles, of which the kept sums are stored, sums in order of the tokens",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_product_plan_free,
    .echo = cuda_product_echo,
};
