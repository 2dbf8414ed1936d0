/* SPDX-License-Identifier: MIT
 *
 * dequantize_product.c - out = act(sums rows columns + base + bias), docs/ops.md: i32 sums of a product of
 * two int8 matrices by the scales of both. Pieces of rows are divided over the team. */
#include <stdlib.h>

#include "elementwise.h"

#define ALONE (1 << 13) /* elements below which the team is not woken */
#define PIECE 1024

enum { SUMS, ROWS, COLUMNS, BIAS, BASE, OUT };

static void product_piece(const cpu_elementwise *plan, bs_tensor *const *args, int64_t row, int64_t first,
                          int64_t n) {
  const cpu_kernels *kernels = &plan->state->kernels;
  const uint32_t to_type = args[OUT]->dtype;
  void *to = cpu_row_at(args[OUT], row, first);
  float wide[PIECE], *v = to_type == BS_F32 ? to : wide;
  kernels->scale_sums(v, cpu_row_at(args[SUMS], row, first), *(const float *)cpu_row_at(args[ROWS], row, 0),
                      (const float *)args[COLUMNS]->data + first,
                      args[BASE] != NULL ? cpu_row_at(args[BASE], row, first) : NULL,
                      args[BIAS] != NULL ? (const float *)args[BIAS]->data + first : NULL, n);
  if (plan->activation != BS_ACT_NONE) kernels->activate[plan->activation](v, n);
  if (v == wide) kernels->store[cpu_type_index(to_type)](to, wide, n);
}

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
  static const cpu_elementwise like = {.cut = OUT, .most = PIECE, .alone = ALONE, .piece = product_piece};
  (void)packed;
  return cpu_elementwise_make(&like, sizeof like, supports, state, exec, query, out_plan, err);
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
    .run = cpu_elementwise_run,
    .plan_free = free,
};
