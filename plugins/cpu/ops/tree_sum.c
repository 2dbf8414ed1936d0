/* SPDX-License-Identifier: MIT
 *
 * tree_sum.c - out[b,n] = act(p0 + p1 + ..) rounded to out's dtype, over L blocks of N columns of the input
 * in the order of attrs: neighbours are added until one sum is left. f32, bf16 and f16 in f32, f64 in f64.
 * Rows are cut into pieces, so that few long rows occupy a whole team; a piece's blocks stay in L1. */
#include <math.h>
#include <stdlib.h>

#include "elementwise.h"

#define PIECE 256                /* columns: eight blocks of them are 8 KiB, 16 of f64 */
#define MAX_BLOCKS 8             /* of an input */
#define ALONE (INT64_C(1) << 13) /* elements of the input below which the team is not woken */

typedef struct tree_plan {
  cpu_elementwise rows;
  int64_t blocks;
  int64_t order[MAX_BLOCKS];
} tree_plan;

/* The blocks of a row are as far apart as out is wide. */
static void piece_f32(const tree_plan *plan, bs_tensor *const *args, int64_t row, int64_t first,
                      int64_t count) {
  const cpu_kernels *kernels = &plan->rows.state->kernels;
  const int64_t wide = args[1]->dims[1];
  float block[MAX_BLOCKS][PIECE];
  for (int64_t i = 0; i < plan->blocks; i++)
    kernels->load[cpu_type_index(args[0]->dtype)](
        block[i], cpu_row_at(args[0], row, first + plan->order[i] * wide), count);
  for (int64_t apart = 1; apart < plan->blocks; apart *= 2)
    for (int64_t i = 0; i < plan->blocks; i += 2 * apart) kernels->add(block[i], block[i + apart], count);
  if (plan->rows.activation != BS_ACT_NONE) kernels->activate[plan->rows.activation](block[0], count);
  kernels->store[cpu_type_index(args[1]->dtype)](cpu_row_at(args[1], row, first), block[0], count);
}

static void piece_f64(const tree_plan *plan, bs_tensor *const *args, int64_t row, int64_t first,
                      int64_t count) {
  const double *src = cpu_row_at(args[0], row, first);
  double *dst = cpu_row_at(args[1], row, first);
  for (int64_t n = 0; n < count; n++) {
    double sum[MAX_BLOCKS] = {0};
    for (int64_t i = 0; i < plan->blocks; i++) sum[i] = src[plan->order[i] * args[1]->dims[1] + n];
    for (int64_t apart = 1; apart < plan->blocks; apart *= 2)
      for (int64_t i = 0; i < plan->blocks; i += 2 * apart) sum[i] += sum[i + apart];
    dst[n] = cpu_activation_f64(plan->rows.activation, sum[0]);
  }
}

static void tree_piece(const cpu_elementwise *rows, bs_tensor *const *args, int64_t row, int64_t first,
                       int64_t count) {
  const tree_plan *plan = (const tree_plan *)(const void *)rows;
  if (args[0]->dtype == BS_F64)
    piece_f64(plan, args, row, first, count);
  else
    piece_f32(plan, args, row, first, count);
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  const uint32_t from = query->args[0]->dtype, to = query->args[1]->dtype;
  if (!cpu_args_dense(query, 2, answer)) return BS_OK;
  if (query->activation > BS_ACT_GELU_TANH)
    cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", query->activation);
  else if ((from == BS_F64 && to == BS_F64) || (cpu_type_index(from) >= 0 && cpu_type_index(to) >= 0))
    cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, from == BS_F64 ? "libm" : state->kernels.name, "");
  else
    cpu_answer_no(answer, BS_REASON_DTYPE, "f32, bf16 and f16 in any pair, or f64 twice");
  answer->bits = from != BS_F64 || query->activation == BS_ACT_NONE; /* f64 takes functions of libm */
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  static const cpu_elementwise like = {.cut = 1, .most = PIECE, .piece = tree_piece};
  (void)packed;
  const int32_t rc =
      cpu_elementwise_make(&like, sizeof(tree_plan), supports, state, exec, query, out_plan, err);
  if (rc != BS_OK) return rc;
  tree_plan *plan = *out_plan;
  const int64_t n = query->args[1]->dims[1];
  plan->blocks = n > 0 ? query->args[0]->dims[1] / n : 1;
  plan->rows.alone = plan->blocks > 0 ? (ALONE + plan->blocks - 1) / plan->blocks : ALONE;
  int given = 0;
  for (int64_t i = 0; i < plan->blocks; i++) given |= query->attrs[i] != 0;
  for (int64_t i = 0; i < plan->blocks; i++) plan->order[i] = given ? query->attrs[i] : i;
  return BS_OK;
}

const bs_src_loc cpu_tree_sum_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_tree_sum = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "tree_sum",
    .backend = "cpu",
    .name = "cpu",
    .summary = "adds a few blocks in the order of a binary tree, a piece of a row at a time",
    .supports = supports,
    .prepare = prepare,
    .run = cpu_elementwise_run,
    .plan_free = free,
};
