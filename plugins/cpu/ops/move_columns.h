/* SPDX-License-Identifier: MIT
 *
 * move_columns.h - what gather_columns and scatter_columns share: plans over rows whose pieces a team
 * moves. */
#ifndef BS_PLUGINS_CPU_OPS_MOVE_COLUMNS_H
#define BS_PLUGINS_CPU_OPS_MOVE_COLUMNS_H

#include "../columns.h"

/* Move partition columns first..first+count-1 of one row: rows[0] input row, rows[1] output row. */
typedef void (*cpu_move_piece)(const cpu_columns *columns, int64_t first, int64_t count, void *const *rows);

void cpu_move_supports(const bs_op_query *query, bs_op_answer *answer);
int32_t cpu_move_prepare(const cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                         cpu_move_piece piece, void **out_plan, bs_error *err);
int32_t cpu_move_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err);
void cpu_move_free(void *plan);

#endif
