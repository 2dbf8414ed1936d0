/* SPDX-License-Identifier: MIT
 * contract.c - Y = act(alpha A B + bias) of two activations, [.., M, K] and [.., K, N], by our own tiles: one
 * launch for each matrix of the batch. Each output is one sum over k, ascending, as matmul's. */
#include "products.h"
#include "space.h"

enum { A, B, BIAS, Y, ARGS };
enum { MOST_LAUNCHES = 4096 };

typedef struct contract_plan {
  cuda_plan plan;
  uint32_t compute, activation;
  double alpha;
} contract_plan;

static int64_t batch_of(const bs_tensor_desc *y) {
  int64_t count = 1;
  for (uint32_t d = 0; d + 2 < y->rank; d++)
    if (__builtin_mul_overflow(count, y->dims[d], &count)) return INT64_MAX;
  return count;
}

/* A bias that differs from row to row is added after the activation, where a product has its residual. */
static int differs_by_row(const bs_tensor_desc *bias) {
  return bias != NULL && bias->rank >= 2 && bias->dims[bias->rank - 2] != 1;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS || q->args[A] == NULL || q->args[B] == NULL || q->args[Y] == NULL ||
      q->args[Y]->rank < 2)
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs A, B and Y of two dimensions at least");
  const bs_tensor_desc *bias = q->args[BIAS];
  const int integers = cuda_is_integer(q->args[A]->dtype);
  if (bias != NULL && !(integers ? cuda_is_integer(bias->dtype) : cuda_is_float(bias->dtype)))
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "the bias must be float or integer as A is");
  if (batch_of(q->args[Y]) > MOST_LAUNCHES)
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "a batch of more than %d matrices", MOST_LAUNCHES);
  if (q->activation > (integers ? (uint32_t)BS_ACT_RELU : (uint32_t)BS_ACT_GELU_TANH))
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u of these dtypes", q->activation);
  if (differs_by_row(bias) && q->activation != BS_ACT_NONE)
    return cuda_answer_no(out_answer, BS_REASON_LAYOUT, "an activation of a bias that differs by row");
  if (integers && q->numbers[0] != 1)
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "integers have an alpha of 1");
  return cuda_product_answer(q, q->args[A]->dtype, q->args[B]->dtype, q->args[Y]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_contract, state, exec, q, sizeof(contract_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  contract_plan *plan = *out_plan;
  plan->compute = cuda_product_compute(q, q->args[A]->dtype, q->args[B]->dtype, q->args[Y]->dtype);
  plan->activation = q->activation;
  plan->alpha = q->numbers[0];
  return BS_OK;
}

/* The matrix of a tensor at a place of the batch; NULL: absent. `of`: the rank of Y. */
static cuda_view matrix_at(const cuda_spread *s, uint32_t of, int64_t offset, int64_t rows, int64_t cols) {
  if (s->data == NULL) return (cuda_view){.data = NULL};
  return (cuda_view){.data = (char *)s->data + offset * (int64_t)s->size,
                     .rows = rows,
                     .cols = cols,
                     .row = s->strides[of - 2],
                     .col = s->strides[of - 1],
                     .dtype = s->dtype,
                     .size = s->size};
}

/* Elements from a tensor's data to its matrix number `i` of the batch. */
static int64_t offset_at(const cuda_spread *s, const bs_tensor *y, int64_t i) {
  int64_t offset = 0;
  for (uint32_t d = y->rank - 2; d-- > 0;) {
    offset += i % y->dims[d] * s->strides[d];
    i /= y->dims[d];
  }
  return offset;
}

static void args_at(const contract_plan *plan, const cuda_spread *all, const bs_tensor *a, const bs_tensor *y,
                    int64_t i, product_args *out) {
  const uint32_t rank = y->rank;
  const int64_t m = y->dims[rank - 2], n = y->dims[rank - 1], k = a->dims[rank - 1];
  const cuda_view left = matrix_at(&all[A], rank, offset_at(&all[A], y, i), m, k);
  const cuda_view right = matrix_at(&all[B], rank, offset_at(&all[B], y, i), k, n),
                  turned = cuda_turned(&right);
  const cuda_view bias = matrix_at(&all[BIAS], rank, offset_at(&all[BIAS], y, i), m, n);
  memset(out, 0, sizeof *out);
  out->a = cuda_product_side(&left);
  out->b = cuda_product_side(&turned);
  out->c = matrix_at(&all[Y], rank, offset_at(&all[Y], y, i), m, n);
  if (bias.row != 0 && m > 1)
    out->residual = bias;
  else
    out->bias = bias;
  out->rows = m;
  out->cols = n;
  out->depth = k;
  out->activation = plan->activation;
  out->scale = plan->alpha == 1 ? 0 : plan->alpha;
  out->scaled = plan->alpha != 1;
}

/* A and B over the dims of the batch, and their own last two. */
static cuda_spread operand_of(const bs_tensor *t, const bs_tensor *y) {
  int64_t dims[BS_MAX_DIMS];
  memcpy(dims, y->dims, sizeof dims);
  for (uint32_t k = 1; k <= 2; k++) dims[y->rank - k] = t->dims[t->rank - k];
  return cuda_spread_of(t, y->rank, dims);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const contract_plan *plan = opaque;
  const bs_tensor *y = args[Y];
  const cuda_spread all[ARGS] = {operand_of(args[A], y), operand_of(args[B], y),
                                 cuda_spread_of(args[BIAS], y->rank, y->dims),
                                 cuda_spread_of(y, y->rank, y->dims)};
  int64_t batch = 1;
  int32_t rc = BS_OK;
  (void)nargs;
  for (uint32_t d = 0; d + 2 < y->rank; d++) batch *= y->dims[d];
  for (int64_t i = 0; i < batch && rc == BS_OK; i++) {
    product_args product;
    args_at(plan, all, args[A], y, i, &product);
    rc = cuda_product_launch(plan->plan.device, plan->compute, cuda_stream(plan->plan.device, stream),
                             &product, err);
  }
  return rc;
}

const bs_op_impl cuda_contract = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "contract",
    .backend = "cuda",
    .name = CUDA_TILES,
    .summary = "our own tiles, a launch for each matrix of the batch",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
};
