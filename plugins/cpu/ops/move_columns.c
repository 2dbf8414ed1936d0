/* SPDX-License-Identifier: MIT
 *
 * move_columns.c - the common part of gather_columns and scatter_columns: answers, plans, sharing of the
 * work over the team. */
#include "move_columns.h"

#include <stdlib.h>

#define PIECE 4096      /* columns of a piece of work */
#define ALONE (1 << 15) /* elements below which waking the team costs more than it saves */

typedef struct move_plan {
  const bs_exec *exec;
  cpu_columns columns;
  bs_partition *partition; /* own copy */
  cpu_move_piece piece;
} move_plan;

typedef struct move_call {
  const move_plan *plan;
  const bs_tensor *in;
  const bs_tensor *out;
} move_call;

void cpu_move_supports(const bs_op_query *query, bs_op_answer *answer) {
  const uint32_t size = BS_DTYPE_BYTES(query->args[0]->dtype);
  if (query->partition == NULL) {
    cpu_answer_no(answer, BS_REASON_SHAPE, "needs a partition");
    return;
  }
  if (size != 1 && size != 2 && size != 4 && size != 8) {
    cpu_answer_no(answer, BS_REASON_DTYPE, "elements of %u bytes", size);
    return;
  }
  for (uint32_t i = 0; i < 2; i++)
    if (!cpu_rows_dense(query->args[i])) {
      cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                    (long long)query->args[i]->strides[1]);
      return;
    }
  cpu_answer_yes(answer, 700, BS_TOL_EXACT, "rows", "");
}

int32_t cpu_move_prepare(const cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                         cpu_move_piece piece, void **out_plan, bs_error *err) {
  move_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  const int32_t rc = cpu_columns_copy(query->partition, &plan->partition, err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  plan->exec = exec;
  plan->piece = piece;
  cpu_columns_make(&state->kernels, plan->partition, BS_DTYPE_BYTES(query->args[0]->dtype), &plan->columns);
  *out_plan = plan;
  return BS_OK;
}

static void move_share(void *arg, uint32_t member, uint32_t width) {
  const move_call *call = arg;
  const move_plan *plan = call->plan;
  const int64_t kept = plan->partition->count, pieces = (kept + PIECE - 1) / PIECE;
  const size_t size = plan->columns.size;
  int64_t begin, end;
  cpu_share(call->in->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / pieces, first = i % pieces * PIECE;
    void *rows[2] = {(uint8_t *)call->in->data + (size_t)(row * call->in->strides[0]) * size,
                     (uint8_t *)call->out->data + (size_t)(row * call->out->strides[0]) * size};
    plan->piece(&plan->columns, first, kept - first < PIECE ? kept - first : PIECE, rows);
  }
}

int32_t cpu_move_run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const move_plan *plan = opaque;
  move_call call = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (args[0]->dims[0] <= 0 || plan->partition->count == 0) return BS_OK;
  return cpu_team(plan->exec, args[0]->dims[0] * plan->partition->count < ALONE, move_share, &call, err);
}

void cpu_move_free(void *opaque) {
  move_plan *plan = opaque;
  if (plan == NULL) return;
  free(plan->partition);
  free(plan);
}
