/* SPDX-License-Identifier: MIT
 *
 * scatter_columns.c - out[b, columns[i]] = in[b,i] for any dtype of 1, 2, 4 or 8 bytes; the other columns
 * are not written, not even with their own values. */
#include "move_columns.h"

static void scatter_piece(const cpu_columns *columns, int64_t first, int64_t count, void *const *rows) {
  cpu_columns_scatter(columns, first, count, rows[1],
                      (const uint8_t *)rows[0] + (size_t)first * columns->size);
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  (void)state;
  cpu_move_supports(query, answer);
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cpu_require(supports, state, query, err);
  return rc == BS_OK ? cpu_move_prepare(state, exec, query, scatter_piece, out_plan, err) : rc;
}

const bs_src_loc cpu_scatter_columns_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_scatter_columns = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "scatter_columns",
    .backend = "cpu",
    .name = "cpu",
    .summary = "run copies, masked vector stores for repeating patterns, lists otherwise",
    .supports = supports,
    .prepare = prepare,
    .run = cpu_move_run,
    .plan_free = cpu_move_free,
};
