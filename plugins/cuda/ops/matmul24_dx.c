/* SPDX-License-Identifier: MIT
 * matmul24_dx.c - dX = dY W over matmul24's packed weight: dX[b,k] is the sum of dY[b,n] W[n,k] over the
 * outputs n that keep k, ascending. A is dY, B the weight turned, C is dX; with X_FULL the partition's
 * columns of it are written and no others. */
#include "products24.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || !cuda_product_shapes(q, 1, 0))
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs dY [B,N], dX [B,K]");
  if (!cuda_kept_ok(q, q->args[0]->dims[1], cuda_product_columns(q, 1), out_answer)) return BS_OK;
  return cuda_product_answer(q, q->args[0]->dtype, q->weight_dtype, q->args[1]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  cuda_product_plan *plan = NULL;
  const uint32_t compute = cuda_product_compute(q, q->args[0]->dtype, q->weight_dtype, q->args[1]->dtype);
  const int32_t rc =
      cuda_product_prepare(&cuda_matmul24_dx, state, exec, q, compute, 1, 0, 1, packed, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_product_plan *plan = opaque;
  const cuda_view dy = cuda_view_of(args[0]);
  product24_args product;
  (void)nargs;
  memset(&product, 0, sizeof product);
  product.p.a = cuda_product_side(&dy);
  product.p.b.at = cuda_packed_view(plan->weight);
  product.p.c = cuda_view_of(args[1]);
  cuda_product_pick(plan, PRODUCT_PICKS_C_COLS, &product.p.c, &product.p);
  product.p.rows = dy.rows;
  product.p.cols = plan->weight->places->cols;
  product.p.depth = plan->weight->rows;
  cuda_product24_fill(plan->weight->places, PRODUCT24_COLS, &product);
  return cuda_product24_launch(plan->plan.device, plan->compute, cuda_stream(plan->plan.device, stream),
                               &product, err);
}

const bs_op_impl cuda_matmul24_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24_dx",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "our own tiles of kept weights, sums in order of the outputs",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_product_plan_free,
    .echo = cuda_product_echo,
};
