/* SPDX-License-Identifier: MIT
 * loss_gradient.c - a loss of outputs and its gradient, token by token, in f64:
 *   sum:      loss[b] = sum over n of y,          dY = 1
 *   squares:  loss[b] = sum over n of (y - t)^2,  dY = (y - t) 2 / count, t = 0 without a target
 * dY is rounded once to its dtype, and may be in Y. Sums run upwards in n. Any strides; rows are divided over
 * the team. */
#include "../ref.h"

enum { PIECE = 128 };
enum { Y, TARGET, DY, LOSS, ARGS };
enum { SUM = 0, SQUARES = 1 };

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[ARGS] = {2, 2, 2, 2};
  if (query->nargs != ARGS) return ref_answer_no(out_answer, BS_REASON_RANK, "needs Y, target, dY and loss");
  if (!ref_args_fit(query, ARGS, ranks, 1u << TARGET, out_answer)) return BS_OK;
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_loss_gradient, state, exec, query, sizeof(ref_plan), out_plan, err);
}

static int32_t piece(const ref_job *job, int64_t row, int64_t first, int64_t n, double *sum) {
  const bs_host *host = job->plan->host;
  const int whole = job->plan->attrs[0] == SUM;
  const double factor = 2.0 / (double)job->plan->attrs[1];
  double y[PIECE], t[PIECE] = {0}, dy[PIECE];
  int32_t rc = ref_load(host, &job->v[Y], row, NULL, first, n, BS_F64, y);
  if (rc == BS_OK && job->v[TARGET].data != NULL)
    rc = ref_load(host, &job->v[TARGET], row, NULL, first, n, BS_F64, t);
  for (int64_t i = 0; rc == BS_OK && i < n; i++) {
    const double d = y[i] - t[i], square = d * d;
    *sum += whole ? y[i] : square;
    dy[i] = whole ? 1.0 : d * factor;
  }
  return rc == BS_OK ? ref_store(host, &job->v[DY], row, first, n, BS_F64, dy) : rc;
}

static int32_t one_row(const ref_job *job, int64_t row) {
  const int64_t cols = job->v[Y].cols;
  double sum = 0.0;
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < cols; c += PIECE)
    rc = piece(job, row, c, cols - c < PIECE ? cols - c : PIECE, &sum);
  return rc == BS_OK ? ref_store(job->plan->host, &job->v[LOSS], row, 0, 1, BS_F64, &sum) : rc;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  ref_job *job = arg;
  ref_job_items(job, job->v[Y].rows, member, width, one_row);
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)stream;
  return ref_job_run(plan, args, nargs, share, "BS-REF-LOSS", "outputs could not be converted", err);
}

const bs_src_loc ref_loss_gradient_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_loss_gradient = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "loss_gradient",
    .backend = "ref",
    .name = "portable",
    .summary = "a loss of outputs, token by token, and its gradient, in f64",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
