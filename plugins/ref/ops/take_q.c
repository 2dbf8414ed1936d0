/* SPDX-License-Identifier: MIT
 * take_q.c - out[b,:] = row index[b] of a quantised weight that was packed for matmul_q, each element in f32,
 * rounded to out's dtype. A negative index counts from the end, one outside is an error. Rows are divided
 * over the team. */
#include "quant.h"

enum { INDEX, OUT, ARGS };
enum { PIECE = 128 };

typedef struct take_plan {
  ref_plan base;
  const ref_quant *w;
} take_plan;

typedef struct take_job {
  const take_plan *plan;
  ref_view index, out;
} take_job;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[ARGS] = {1, 2};
  if (q->nargs != ARGS || q->quant == NULL)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs index, out and a quantised weight");
  if (!ref_args_fit(q, ARGS, ranks, 0, out_answer)) return BS_OK;
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  void *made = NULL;
  int32_t rc = ref_plan_make(&ref_take_q, state, exec, q, sizeof(take_plan), &made, err);
  if (rc != BS_OK) return rc;
  take_plan *plan = made;
  plan->w = packed;
  rc = ref_quant_check(q, packed, err);
  if (rc != BS_OK) {
    ref_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t take_row(const take_job *job, int64_t b, bs_error *err) {
  const ref_quant *w = job->plan->w;
  const bs_host *host = job->plan->base.host;
  const int64_t rows = w->form.rows;
  int64_t index = 0;
  float piece[PIECE];
  int32_t rc = ref_load(host, &job->index, 0, NULL, b, 1, BS_I64, &index);
  const int64_t row = index < 0 ? index + rows : index;
  if (rc == BS_OK && (row < 0 || row >= rows)) {
    bs_fail(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX", "take_q: index %lld is outside of %lld rows",
            (long long)index, (long long)rows);
    return bs_fail_hint(err, "an index must be in [%lld, %lld)", (long long)-rows, (long long)rows);
  }
  for (int64_t c = 0; rc == BS_OK && c < job->out.cols; c += PIECE) {
    const int64_t n = job->out.cols - c < PIECE ? job->out.cols - c : PIECE;
    ref_quant_row(w, row, c, n, piece);
    rc = ref_store(host, &job->out, b, c, n, BS_F32, piece);
  }
  return rc;
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)member;
  int32_t rc = BS_OK;
  for (int64_t b = begin; rc == BS_OK && b < end; b++) rc = take_row(items->user, b, err);
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const take_plan *plan = opaque;
  take_job job = {.plan = plan, .index = ref_view_of(args[INDEX]), .out = ref_view_of(args[OUT])};
  ref_items items = {.plan = &plan->base, .part = part, .user = &job, .count = job.out.rows};
  return ref_items_run(&items, err);
}

const bs_src_loc ref_take_q_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_take_q = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "take_q",
    .backend = "ref",
    .name = "portable",
    .summary = "rows of a quantised weight",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
