/* SPDX-License-Identifier: MIT
 *
 * expand24.c - kept values of a 2:4 matrix to their places in a dense one, zeros elsewhere. Rows are divided
 * over the team; values are moved by size, so that -0 and a NaN's payload stay. */
#include <stdlib.h>

#include "packed24.h"

typedef struct expand_plan {
  const bs_exec *exec;
  cpu_state *state;
  cpu_codes *codes;
  uint32_t other;
  uint32_t size;
} expand_plan;

typedef struct expand_call {
  const expand_plan *plan;
  const bs_tensor *values, *dense;
} expand_call;

static void expand_row(const expand_call *call, int64_t n) {
  const expand_plan *plan = call->plan;
  const int64_t K = plan->codes->cols, size = plan->size;
  const uint8_t *from = (const uint8_t *)call->values->data + n * call->values->strides[0] * size;
  uint8_t *to = (uint8_t *)call->dense->data + n * call->dense->strides[0] * size;
  memset(to, 0, (size_t)(K * size));
  for (int64_t j = 0; j < cpu_kept_length(K); j++) {
    const int64_t k = cpu_kept_column(plan->codes, plan->other, n, j);
    if (k < K) memcpy(to + k * size, from + j * size, (size_t)size);
  }
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const expand_call *call = arg;
  int64_t begin, end;
  cpu_share(call->dense->dims[0], member, width, &begin, &end);
  for (int64_t n = begin; n < end; n++) expand_row(call, n);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const expand_plan *plan = opaque;
  expand_call call = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (plan->codes->cols == 0) return BS_OK;
  const int32_t rc = cpu_parallel(plan->exec, share, &call);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CPU-TEAM", "the rank's team did not run (%d)", rc);
  return BS_OK;
}

static void plan_free(void *opaque) {
  expand_plan *plan = opaque;
  if (plan == NULL) return;
  cpu_codes_drop(plan->state, plan->codes);
  free(plan);
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  const bs_tensor_desc *values = query->args[0], *dense = query->args[1];
  (void)state;
  if (!cpu_kept_fits(query, dense->dims[0], dense->dims[1], answer)) return BS_OK;
  if (!cpu_rows_dense(values) || !cpu_rows_dense(dense))
    cpu_answer_no(answer, BS_REASON_LAYOUT, "elements of a row must lie side by side");
  else
    cpu_answer_yes(answer, 500, BS_TOL_EXACT, "rows", "own loops, row by row");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  int32_t rc = cpu_require(supports, state, query, err);
  if (rc != BS_OK) return rc;
  expand_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = state;
  plan->size = BS_DTYPE_BYTES(query->args[0]->dtype);
  rc = cpu_codes_take(state, exec, query->kept, &plan->codes, &plan->other, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

const bs_op_impl cpu_expand24 = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "expand24",
    .backend = "cpu",
    .name = "packed",
    .summary = "own loops, row by row",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
