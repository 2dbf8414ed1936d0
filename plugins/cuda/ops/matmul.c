/* SPDX-License-Identifier: MIT
 * matmul.c - Y = act(X W^T + bias) + residual by this plugin's own tiles, for every dtype and promise. Each
 * output is one sum over the columns, ascending, in f32, f64 or 64-bit integers, with fused multiply-adds; a
 * token's bits depend only on that token. A is X, B is the packed W, C is Y. */
#include "products.h"

uint32_t cuda_matmul_compute(const bs_op_query *q) {
  if (cuda_is_integer(q->args[0]->dtype)) return BS_I64;
  int wide = q->weight_dtype == BS_F64;
  for (uint32_t i = 0; i < 4; i++) wide |= q->args[i] != NULL && q->args[i]->dtype == BS_F64;
  if (q->accumulate == BS_ACC_DEFAULT) return wide ? BS_F64 : BS_F32;
  return q->accumulate == BS_ACC_F64 ? BS_F64 : BS_F32;
}

/* The fault of the query's dtypes; NULL: none. */
static const char *dtype_problem(const bs_op_query *q) {
  const uint32_t x = q->args[0]->dtype, w = q->weight_dtype, y = q->args[3]->dtype;
  const int integers = cuda_is_integer(x);
  int wide_input = w == BS_F64;
  if (integers ? !cuda_is_integer(w) : !cuda_is_float(x) || !cuda_is_float(w))
    return "X and weight must be all float or all integer";
  if (integers ? y != BS_I32 && y != BS_I64 : !cuda_is_float(y))
    return "Y must be float for floats, i32 or i64 for integers";
  for (uint32_t i = 0; i < 3; i++) {
    if (q->args[i] == NULL) continue;
    wide_input |= q->args[i]->dtype == BS_F64;
    if (integers ? !cuda_is_integer(q->args[i]->dtype) : !cuda_is_float(q->args[i]->dtype))
      return "bias and residual must be float or integer as X is";
  }
  if (wide_input && q->accumulate == BS_ACC_F32) return "f64 operands are not summed in f32";
  if (integers && q->activation != BS_ACT_NONE && q->activation != BS_ACT_RELU)
    return "gelu and silu need floats";
  return NULL;
}

int32_t cuda_matmul_supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  const bs_partition *p = q->partition;
  if (q->nargs != 4 || !cuda_arg_ok(q, 0, 2) || !cuda_arg_ok(q, 3, 2) ||
      (q->args[1] != NULL && !cuda_arg_ok(q, 1, 1)) || (q->args[2] != NULL && !cuda_arg_ok(q, 2, 2)))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs X [B,K], bias [N], residual [B,N], Y [B,N]");
  const bs_tensor_desc *x = q->args[0], *bias = q->args[1], *residual = q->args[2], *y = q->args[3];
  const int64_t columns = p == NULL ? x->dims[1] : q->flags & BS_QUERY_X_FULL ? p->total : p->count;
  if (x->dims[0] != y->dims[0] || x->dims[1] != columns || (bias != NULL && bias->dims[0] != y->dims[1]) ||
      (residual != NULL && (residual->dims[0] != y->dims[0] || residual->dims[1] != y->dims[1])))
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "shapes of X, bias, residual and Y do not fit");
  if (q->activation > BS_ACT_GELU_TANH || q->accumulate > BS_ACC_F64)
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u, accumulate %u", q->activation,
                          q->accumulate);
  const char *problem = dtype_problem(q);
  if (problem != NULL)
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "X 0x%04x, weight 0x%04x, Y 0x%04x: %s", x->dtype,
                          q->weight_dtype, y->dtype, problem);
  return cuda_product_answer_as(cuda_matmul_compute(q), out_answer);
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  return cuda_packed_make(&cuda_matmul, state, exec, query, weights, out_packed, out_bytes, err);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  cuda_product_plan *plan = NULL;
  const uint32_t compute = cuda_matmul_compute(q);
  const int32_t rc = cuda_product_prepare(&cuda_matmul, state, exec, q, compute, 0, 3, 1, packed, &plan, err);
  *out_plan = plan;
  return rc;
}

void cuda_matmul_args(const cuda_product_plan *plan, bs_tensor *const *args, product_args *out) {
  cuda_view x = cuda_view_of(args[0]);
  memset(out, 0, sizeof *out);
  cuda_product_pick(plan, PRODUCT_PICKS_A_DEPTH, &x, out);
  out->a = cuda_product_side(&x);
  out->bias = cuda_view_of(args[1]);
  out->residual = cuda_view_of(args[2]);
  out->c = cuda_view_of(args[3]);
  out->rows = out->c.rows;
  out->cols = plan->weight->rows;
  out->depth = plan->weight->places != NULL ? plan->weight->places->cols : plan->weight->cols;
  out->activation = plan->activation;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_product_plan *plan = opaque;
  const cuda_view w = cuda_packed_view(plan->weight);
  product_args product;
  (void)nargs;
  cuda_matmul_args(plan, args, &product);
  product.b = cuda_product_side(&w);
  return cuda_product_launch(plan->plan.device, plan->compute, cuda_stream(plan->plan.device, stream),
                             &product, err);
}

const bs_op_impl cuda_matmul = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "our own tiles, sums in order of the columns",
    .supports = cuda_matmul_supports,
    .pack = pack,
    .packed_update = cuda_packed_update,
    .packed_read = cuda_packed_read,
    .packed_free = cuda_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_product_plan_free,
    .echo = cuda_product_echo,
};
