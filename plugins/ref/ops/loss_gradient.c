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

typedef struct loss_plan {
  const bs_host *host;
  const bs_exec *exec;
  int64_t kind;
  double factor;
} loss_plan;

typedef struct loss_job {
  const loss_plan *plan;
  ref_view v[ARGS]; /* data NULL: absent */
  int32_t failed;   /* relaxed atomics */
} loss_job;

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != ARGS) return ref_answer_no(out_answer, BS_REASON_RANK, "needs Y, target, dY and loss");
  for (uint32_t i = 0; i < ARGS; i++)
    if (!(i == TARGET && query->args[i] == NULL) && !ref_arg_ok(query, i, 2))
      return ref_answer_no(out_answer, BS_REASON_RANK, "arg %u: two dimensions of a known dtype", i);
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  ref_state *state = opaque;
  const int32_t rc = ref_require(&ref_loss_gradient, state, query, err);
  if (rc != BS_OK) return rc;
  loss_plan *plan = state->host->alloc(state->host->ctx, sizeof *plan, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of loss_gradient");
  *plan = (loss_plan){state->host, exec, query->attrs[0], 2.0 / (double)query->attrs[1]};
  *out_plan = plan;
  return BS_OK;
}

static int32_t piece(const loss_job *job, int64_t row, int64_t first, int64_t n, double *sum) {
  const bs_host *host = job->plan->host;
  double y[PIECE], t[PIECE] = {0}, dy[PIECE];
  int32_t rc = ref_load(host, &job->v[Y], row, NULL, first, n, BS_F64, y);
  if (rc == BS_OK && job->v[TARGET].data != NULL)
    rc = ref_load(host, &job->v[TARGET], row, NULL, first, n, BS_F64, t);
  for (int64_t i = 0; rc == BS_OK && i < n; i++) {
    const double d = y[i] - t[i], square = d * d;
    const int whole = job->plan->kind == SUM;
    *sum += whole ? y[i] : square;
    dy[i] = whole ? 1.0 : d * job->plan->factor;
  }
  return rc == BS_OK ? ref_store(host, &job->v[DY], row, first, n, BS_F64, dy) : rc;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  loss_job *job = arg;
  const int64_t cols = job->v[Y].cols;
  int64_t begin, end;
  ref_share(job->v[Y].rows, member, width, &begin, &end);
  for (int64_t r = begin; r < end; r++) {
    double sum = 0.0;
    int32_t rc = BS_OK;
    for (int64_t c = 0; rc == BS_OK && c < cols; c += PIECE)
      rc = piece(job, r, c, cols - c < PIECE ? cols - c : PIECE, &sum);
    if (rc == BS_OK) rc = ref_store(job->plan->host, &job->v[LOSS], r, 0, 1, BS_F64, &sum);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const loss_plan *plan = opaque;
  loss_job job;
  memset(&job, 0, sizeof job);
  job.plan = plan;
  for (uint32_t i = 0; i < ARGS; i++)
    if (args[i] != NULL) job.v[i] = ref_view_of(args[i]);
  int32_t rc = plan->exec->parallel_for(plan->exec->ctx, share, &job);
  if (rc == BS_OK) rc = job.failed;
  return rc == BS_OK ? rc : bs_fail(err, rc, "BS-REF-LOSS", "outputs could not be converted");
}

static void plan_free(void *opaque) {
  loss_plan *plan = opaque;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
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
    .plan_free = plan_free,
};
