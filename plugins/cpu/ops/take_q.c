/* SPDX-License-Identifier: MIT
 *
 * take_q.c - out[b,:] = row index[b] of a weight that was packed for matmul_q, each element in f32, rounded
 * to out's dtype. Every index is compared with the rows before anything is written. */
#include <stdlib.h>

#include "packed_q.h"
#include "spread.h"

enum { INDEX, OUT };
#define ALONE (1 << 13) /* elements up to which the team is not woken */
#define PIECE 256       /* columns */

typedef struct take_plan {
  const bs_exec *exec;
  const cpu_packed_q *w;
} take_plan;

typedef struct take_call {
  const take_plan *plan;
  const bs_tensor *index, *out;
  int32_t failed; /* relaxed */
} take_call;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  if (q->quant == NULL) {
    cpu_answer_no(answer, BS_REASON_RANK, "needs a quantised weight");
    return BS_OK;
  }
  cpu_answer_yes(answer, 700, BS_TOL_EXACT, "rows", "widens rows of packed panels");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  int32_t rc = cpu_require(supports, state, q, err);
  if (rc == BS_OK) rc = cpu_packed_q_check(packed, q, err);
  if (rc != BS_OK) return rc;
  take_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->w = packed;
  *out_plan = plan;
  return BS_OK;
}

static int64_t index_at(const bs_tensor *index, int64_t b) {
  const uint8_t *at =
      (const uint8_t *)index->data + (size_t)(b * index->strides[0]) * BS_DTYPE_BYTES(index->dtype);
  int32_t narrow;
  int64_t wide;
  if (index->dtype == BS_I32) {
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
  }
  memcpy(&wide, at, sizeof wide);
  return wide;
}

static int32_t check(const take_call *c, bs_error *err) {
  const int64_t rows = c->plan->w->form.rows;
  for (int64_t b = 0; b < c->out->dims[0]; b++) {
    const int64_t index = index_at(c->index, b);
    if (index >= -rows && index < rows) continue;
    bs_fail(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX", "take_q: index %lld is outside of %lld rows",
            (long long)index, (long long)rows);
    return bs_fail_hint(err, "an index must be in [%lld, %lld)", (long long)-rows, (long long)rows);
  }
  return BS_OK;
}

/* Items are pieces of rows. */
static void share(void *arg, uint32_t member, uint32_t width) {
  take_call *c = arg;
  const cpu_packed_q *w = c->plan->w;
  const bs_tensor *out = c->out;
  const int64_t cols = w->form.cols, pieces = (cols + PIECE - 1) / PIECE;
  int64_t begin, end;
  cpu_share(out->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t b = i / pieces, k = i % pieces * PIECE, n = cols - k < PIECE ? cols - k : PIECE;
    const int64_t index = index_at(c->index, b), offset = b * out->strides[0] + k * out->strides[1];
    float piece[PIECE];
    double buffer[PIECE];
    cpu_packed_q_row(w, index < 0 ? index + w->form.rows : index, k, n, piece);
    const int32_t rc = cpu_run_store(w->state, out->dtype,
                                     (uint8_t *)out->data + offset * (int64_t)BS_DTYPE_BYTES(out->dtype),
                                     out->strides[1], BS_F32, piece, n, buffer);
    if (rc != BS_OK) __atomic_store_n(&c->failed, rc, __ATOMIC_RELAXED);
  }
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  take_call c = {plan, args[INDEX], args[OUT], BS_OK};
  (void)nargs;
  (void)stream;
  int32_t rc = check(&c, err);
  const int64_t elements = c.out->dims[0] * c.plan->w->form.cols;
  if (rc != BS_OK || elements == 0) return rc;
  rc = cpu_team(c.plan->exec, elements < ALONE, share, &c, err);
  if (rc != BS_OK || c.failed == BS_OK) return rc;
  return bs_fail(err, c.failed, "BS-CPU-CONVERT", "rows of a quantised weight could not be converted");
}

const bs_src_loc cpu_take_q_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_take_q = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "take_q",
    .backend = "cpu",
    .name = "panels",
    .summary = "rows of a quantised weight in panels",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
