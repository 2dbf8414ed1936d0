/* SPDX-License-Identifier: MIT
 * matmul24.c - matmul of a 2:4 weight by this plugin's own tiles: sums of the products of only the kept
 * weights, in ascending order of the columns. A group is widened to four columns when it is loaded into the
 * tile, with a mark of the valid ones. A is X, B the weight's values and codes, C is Y. */
#include "products24.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  if (q->nargs != 4 || !cuda_arg_ok(q, 0, 2) || !cuda_arg_ok(q, 3, 2))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs X [B,K], bias [N], residual [B,N], Y [B,N]");
  if (!cuda_kept_ok(q, q->args[3]->dims[1], cuda_product_columns(q, 0), out_answer)) return BS_OK;
  return cuda_matmul_supports(state, q, out_answer);
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  return cuda_packed24_make(&cuda_matmul24, state, exec, query, weights, out_packed, out_bytes, err);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  cuda_product_plan *plan = NULL;
  const uint32_t compute = cuda_matmul_compute(q);
  const int32_t rc =
      cuda_product_prepare(&cuda_matmul24, state, exec, q, compute, 0, 3, 1, packed, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_product_plan *plan = opaque;
  product24_args product;
  (void)nargs;
  memset(&product, 0, sizeof product);
  cuda_matmul_args(plan, args, &product.p);
  product.p.b.at = cuda_packed_view(plan->weight);
  cuda_product24_fill(plan->weight->places, PRODUCT24_ROWS, &product);
  return cuda_product24_launch(plan->plan.device, plan->compute, cuda_stream(plan->plan.device, stream),
                               &product, err);
}

const bs_op_impl cuda_matmul24 = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "our own tiles of kept weights, sums in order of the columns",
    .supports = supports,
    .pack = pack,
    .packed_update = cuda_packed_update,
    .packed_read = cuda_packed_read,
    .packed_free = cuda_packed24_free,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_product_plan_free,
    .echo = cuda_product_echo,
};
