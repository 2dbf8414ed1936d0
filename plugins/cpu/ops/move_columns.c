/* SPDX-License-Identifier: MIT
 *
 * move_columns.c - gather_columns, out[b,i] = X[b, columns[i]], and scatter_columns, out[b, columns[i]] =
 * in[b,i], for any dtype of 1, 2, 4 or 8 bytes. scatter_columns does not write the other columns, not even
 * with their own values. Work is shared over the team in pieces of rows, or of parts of rows when there are
 * few. */
#include <stdlib.h>

#include "../columns.h"

#define PIECE 4096      /* columns of a piece of work */
#define ALONE (1 << 15) /* elements below which waking the team costs more than it saves */

/* Move partition columns first..first+count-1 of one row. */
typedef void (*move_piece)(const cpu_columns *columns, int64_t first, int64_t count, const void *in,
                           void *out);

typedef struct move_plan {
  const bs_exec *exec;
  cpu_columns columns;
  bs_partition *partition; /* own copy */
  move_piece piece;
} move_plan;

typedef struct move_call {
  const move_plan *plan;
  const bs_tensor *in;
  const bs_tensor *out;
} move_call;

static void gather_piece(const cpu_columns *columns, int64_t first, int64_t count, const void *in,
                         void *out) {
  cpu_columns_gather(columns, first, count, (uint8_t *)out + (size_t)first * columns->size, in);
}

static void scatter_piece(const cpu_columns *columns, int64_t first, int64_t count, const void *in,
                          void *out) {
  cpu_columns_scatter(columns, first, count, out, (const uint8_t *)in + (size_t)first * columns->size);
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

static int32_t move_prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, move_piece piece,
                            void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  int32_t rc = cpu_require(supports, opaque, query, err);
  if (rc != BS_OK) return rc;
  move_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  rc = cpu_columns_copy(query->partition, &plan->partition, err);
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

static int32_t gather_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                              void **out_plan, bs_error *err) {
  (void)packed;
  return move_prepare(state, exec, query, gather_piece, out_plan, err);
}

static int32_t scatter_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                               void **out_plan, bs_error *err) {
  (void)packed;
  return move_prepare(state, exec, query, scatter_piece, out_plan, err);
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
    plan->piece(&plan->columns, first, kept - first < PIECE ? kept - first : PIECE,
                (const uint8_t *)call->in->data + (size_t)(row * call->in->strides[0]) * size,
                (uint8_t *)call->out->data + (size_t)(row * call->out->strides[0]) * size);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const move_plan *plan = opaque;
  move_call call = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (args[0]->dims[0] <= 0 || plan->partition->count == 0) return BS_OK;
  return cpu_team(plan->exec, args[0]->dims[0] * plan->partition->count < ALONE, move_share, &call, err);
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
    .run = run,
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
    .run = run,
    .plan_free = plan_free,
};
