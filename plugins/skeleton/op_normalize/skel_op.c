/* SPDX-License-Identifier: MIT
 * skel_op.c - normalize@ref/skel_op: rms normalisation of f32 rows, with or without gamma, of
 * tensors of any rank and any strides. What it does not serve it refuses with a reason, and another
 * implementation is asked. Arguments by <blockshock/op.h>: X, add, gamma, beta, Y, sum; absent ones are NULL.
 */
#include "skel_op.h"

#include <math.h>

enum { X, ADD, GAMMA, BETA, Y, SUM, ARGS };

typedef struct op_plan {
  const bs_host *host;
  const bs_exec *exec; /* lives as long as the plan */
  double eps;
} op_plan;

/* One run, as the members of the rank's team see it. */
typedef struct op_job {
  const bs_tensor *x, *gamma, *y; /* gamma may be NULL */
  double eps;
  int64_t rows, cols;
} op_job;

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

/* Pure, and true: what is answered NATIVE here must run, what is answered NO must be refused by prepare. The
 * host has compared ranks and dims with the op's schema. */
static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  (void)state;
  if (query->attrs[0] != BS_NORMALIZE_RMS) return no(answer, BS_REASON_NOT_BUILT, "rms only");
  if (query->args[ADD] != NULL || query->args[BETA] != NULL || query->args[SUM] != NULL)
    return no(answer, BS_REASON_NOT_BUILT, "no add, no beta and no sum");
  if (query->args[X]->dtype != BS_F32 || query->args[Y]->dtype != BS_F32 ||
      (query->args[GAMMA] != NULL && query->args[GAMMA]->dtype != BS_F32))
    return no(answer, BS_REASON_DTYPE, "f32 only");
  answer->level = BS_LEVEL_NATIVE;
  answer->score = 200; /* of 1000; that of the backend's own is 100 */
  answer->reason = BS_REASON_NONE;
  answer->tolerance = BS_TOL_ACC_F64; /* sums in double */
  answer->workspace = 0;
  snprintf(answer->algo, sizeof answer->algo, "rms");
  return BS_OK;
}

/* Does all slow work, once a shape. A plan of these ops also serves smaller dims and other strides than the
 * query's: keep only facts from the query that do not change, and read dims and strides in each run. */
static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  bs_op_answer answer;
  (void)packed;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  supports(state, query, &answer);
  if (answer.level == BS_LEVEL_NO)
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-OP-QUERY", "normalize@ref/skel_op: %s", answer.text);
  op_plan *plan = (op_plan *)host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for a plan");
  plan->host = host;
  plan->exec = exec;
  plan->eps = query->numbers[0];
  *out_plan = plan;
  return BS_OK;
}

/* The address of row `row` of a tensor: all dims but the last are counted, row-major. */
static float *row_at(const bs_tensor *t, int64_t row) {
  int64_t offset = 0;
  for (int d = (int)t->rank - 2; d >= 0; d--) {
    offset += row % t->dims[d] * t->strides[d];
    row /= t->dims[d];
  }
  return (float *)t->data + offset;
}

/* This member's share of the rows. Y may be X: a row is read whole before it is written. */
static void normalize_rows(void *arg, uint32_t member, uint32_t width) {
  const op_job *job = (const op_job *)arg;
  const int64_t x_step = job->x->strides[job->x->rank - 1], y_step = job->y->strides[job->y->rank - 1];
  for (int64_t r = job->rows * member / width; r < job->rows * (member + 1) / width; r++) {
    const float *x = row_at(job->x, r);
    float *y = row_at(job->y, r);
    double sum = 0.0;
    for (int64_t i = 0; i < job->cols; i++) sum += (double)x[i * x_step] * (double)x[i * x_step];
    const double scale = 1.0 / sqrt(sum / (double)job->cols + job->eps);
    for (int64_t i = 0; i < job->cols; i++) {
      double v = (double)x[i * x_step] * scale;
      if (job->gamma != NULL) v *= (double)((const float *)job->gamma->data)[i * job->gamma->strides[0]];
      y[i * y_step] = (float)v;
    }
  }
}

/* The hot call: the host has compared the tensors with the query. No memory, no locks, no names. */
static int32_t run(void *ptr, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const op_plan *plan = (const op_plan *)ptr;
  op_job job = {args[X], args[GAMMA], args[Y], plan->eps, 1, args[X]->dims[args[X]->rank - 1]};
  (void)nargs;
  (void)stream; /* ref's ops are done when run returns */
  for (uint32_t d = 0; d + 1 < job.x->rank; d++) job.rows *= job.x->dims[d];
  if (job.rows == 0 || job.cols == 0) return BS_OK;
  const int32_t rc = plan->exec->parallel_for(plan->exec->ctx, normalize_rows, &job);
  return rc == BS_OK ? BS_OK : bs_fail(err, rc, "BS-SKEL-OP-TEAM", "the rank's team failed");
}

static void plan_free(void *ptr) {
  op_plan *plan = (op_plan *)ptr;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
}

void skel_op_table(bs_op_impl *impl) {
  memset(impl, 0, sizeof *impl);
  impl->struct_size = (uint32_t)sizeof *impl;
  impl->op = "normalize";
  impl->backend = "ref";
  impl->name = "skel_op";
  impl->summary = "rms normalisation, row by row";
  impl->supports = supports;
  impl->prepare = prepare;
  impl->run = run;
  impl->plan_free = plan_free;
}
