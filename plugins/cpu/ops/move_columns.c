/* SPDX-License-Identifier: MIT
 *
 * move_columns.c - gather_columns, out[b,i] = X[b, columns[i]], and scatter_columns, out[b, columns[i]] =
 * in[b,i], for any dtype of 1, 2, 4 or 8 bytes. scatter_columns does not write the other columns, not even
 * with their own values. Work is shared over the team in pieces of rows, or of parts of rows when there are
 * few. */
#include <stdlib.h>

#include "../columns.h"
#include "elementwise.h"

#define PIECE 4096      /* columns of a piece of work */
#define ALONE (1 << 15) /* elements below which waking the team costs more than it saves */

typedef struct move_plan {
  cpu_elementwise rows;
  cpu_columns columns;
  bs_partition *partition; /* own copy */
} move_plan;

static void gather_piece(const cpu_elementwise *rows, bs_tensor *const *args, int64_t row, int64_t first,
                         int64_t count) {
  const move_plan *plan = (const move_plan *)(const void *)rows;
  cpu_columns_gather(&plan->columns, first, count, cpu_row_at(args[1], row, first),
                     cpu_row_at(args[0], row, 0));
}

static void scatter_piece(const cpu_elementwise *rows, bs_tensor *const *args, int64_t row, int64_t first,
                          int64_t count) {
  const move_plan *plan = (const move_plan *)(const void *)rows;
  cpu_columns_scatter(&plan->columns, first, count, cpu_row_at(args[1], row, 0),
                      cpu_row_at(args[0], row, first));
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  const uint32_t size = BS_DTYPE_BYTES(query->args[0]->dtype);
  (void)state;
  if (query->partition == NULL)
    cpu_answer_no(answer, BS_REASON_SHAPE, "needs a partition");
  else if (size != 1 && size != 2 && size != 4 && size != 8)
    cpu_answer_no(answer, BS_REASON_DTYPE, "elements of %u bytes", size);
  else if (cpu_args_dense(query, 2, answer))
    cpu_answer_yes(answer, 700, BS_TOL_EXACT, "rows", "");
  return BS_OK;
}

static int32_t move_prepare(const cpu_elementwise *like, void *opaque, const bs_exec *exec,
                            const bs_op_query *query, void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  void *made = NULL;
  int32_t rc = cpu_elementwise_make(like, sizeof(move_plan), supports, opaque, exec, query, &made, err);
  if (rc != BS_OK) return rc;
  move_plan *plan = made;
  rc = cpu_columns_copy(query->partition, &plan->partition, err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  cpu_columns_make(&state->kernels, plan->partition, BS_DTYPE_BYTES(query->args[0]->dtype), &plan->columns);
  *out_plan = plan;
  return BS_OK;
}

static int32_t gather_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                              void **out_plan, bs_error *err) {
  static const cpu_elementwise like = {.cut = 1, .most = PIECE, .alone = ALONE, .piece = gather_piece};
  (void)packed;
  return move_prepare(&like, state, exec, query, out_plan, err);
}

static int32_t scatter_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                               void **out_plan, bs_error *err) {
  static const cpu_elementwise like = {.cut = 0, .most = PIECE, .alone = ALONE, .piece = scatter_piece};
  (void)packed;
  return move_prepare(&like, state, exec, query, out_plan, err);
}

static void plan_free(void *opaque) {
  move_plan *plan = opaque;
  if (plan == NULL) return;
  free(plan->partition);
  free(plan);
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
    .prepare = gather_prepare,
    .run = cpu_elementwise_run,
    .plan_free = plan_free,
};

const bs_src_loc cpu_scatter_columns_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_scatter_columns = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "scatter_columns",
    .backend = "cpu",
    .name = "cpu",
    .summary = "run copies, masked vector stores for repeating patterns, lists otherwise",
    .supports = supports,
    .prepare = scatter_prepare,
    .run = cpu_elementwise_run,
    .plan_free = plan_free,
};
