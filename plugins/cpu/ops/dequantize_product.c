/* SPDX-License-Identifier: MIT
 *
 * dequantize_product.c - out = act(sums rows columns + base + bias), docs/ops.md: i32 sums of a product of
 * two int8 matrices by the scales of both. Pieces of rows are divided over the team. */
#include <stdlib.h>

#include "../cpu.h"

#define ALONE (1 << 13) /* elements below which the team is not woken */
#define PIECE 1024

typedef struct product_plan {
  const bs_exec *exec;
  const cpu_state *state;
  uint32_t activation, to;
} product_plan;

typedef struct product_call {
  const product_plan *plan;
  const bs_tensor *sums, *rows, *columns, *bias, *base, *out;
} product_call;

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  for (uint32_t i = 0; i < 6; i++) {
    const bs_tensor_desc *d = query->args[i];
    if (d == NULL || i == 1) continue;
    const int dense = d->rank == 1 ? d->dims[0] <= 1 || d->strides[0] <= 1 : cpu_rows_dense(d);
    if (!dense) return cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has elements apart", i);
  }
  if (cpu_type_index(query->args[5]->dtype) < 0)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "output goes to f32, bf16 or f16");
  cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, state->kernels.name, "");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cpu_require(supports, state, query, err);
  if (rc != BS_OK) return rc;
  product_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (product_plan){exec, state, query->activation, query->args[5]->dtype};
  *out_plan = plan;
  return BS_OK;
}

static void piece(const product_call *c, int64_t row, int64_t first, int64_t n) {
  const product_plan *plan = c->plan;
  const cpu_kernels *kernels = &plan->state->kernels;
  const bs_tensor *out = c->out;
  uint8_t *to = (uint8_t *)out->data + (size_t)(row * out->strides[0] + first) * BS_DTYPE_BYTES(plan->to);
  float wide[PIECE], *v = plan->to == BS_F32 ? (float *)(void *)to : wide;
  kernels->scale_sums(
      v, (const int32_t *)c->sums->data + row * c->sums->strides[0] + first,
      ((const float *)c->rows->data)[row * c->rows->strides[0]], (const float *)c->columns->data + first,
      c->base != NULL ? (const float *)c->base->data + row * c->base->strides[0] + first : NULL,
      c->bias != NULL ? (const float *)c->bias->data + first : NULL, n);
  if (plan->activation != BS_ACT_NONE) kernels->activate[plan->activation](v, n);
  if (v == wide) kernels->store[cpu_type_index(plan->to)](to, wide, n);
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const product_call *c = arg;
  const int64_t cols = c->out->dims[1], pieces = (cols + PIECE - 1) / PIECE;
  int64_t begin, end;
  cpu_share(c->out->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = i % pieces * PIECE;
    piece(c, i / pieces, first, cols - first < PIECE ? cols - first : PIECE);
  }
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  product_call c = {plan, args[0], args[1], args[2], args[3], args[4], args[5]};
  (void)nargs;
  (void)stream;
  const int64_t rows = c.out->dims[0], cols = c.out->dims[1];
  if (rows <= 0 || cols <= 0) return BS_OK;
  return cpu_team(c.plan->exec, rows * cols < ALONE, share, &c, err);
}

const bs_src_loc cpu_dequantize_product_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_dequantize_product = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "dequantize_product",
    .backend = "cpu",
    .name = "cpu",
    .summary = "i32 sums of int8 products by the scales of rows and columns",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
