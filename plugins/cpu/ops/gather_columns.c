/* SPDX-License-Identifier: MIT
 *
 * gather_columns.c - out[b,i] = X[b, columns[i]] for any dtype of 1, 2, 4 or 8 bytes. Work is shared over
 * the team in pieces of rows, or of parts of rows when there are few. */
#include "move_columns.h"

static void gather_piece(const cpu_columns *columns, int64_t first, int64_t count, void *const *rows) {
  cpu_columns_gather(columns, first, count, (uint8_t *)rows[1] + (size_t)first * columns->size, rows[0]);
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
  return rc == BS_OK ? cpu_move_prepare(state, exec, query, gather_piece, out_plan, err) : rc;
}

const bs_src_loc cpu_gather_columns_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_gather_columns = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "gather_columns",
    .backend = "cpu",
    .name = "cpu",
    .summary = "run copies, vector permutations for repeating patterns, lists otherwise",
    .supports = supports,
    .prepare = prepare,
    .run = cpu_move_run,
    .plan_free = cpu_move_free,
};
