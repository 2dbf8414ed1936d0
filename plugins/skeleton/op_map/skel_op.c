/* SPDX-License-Identifier: MIT
 * skel_op.c - map@cpu/skel_op: a program of <blockshock/expr.h> with named form, on f32 tensors of any rank
 * and strides: here x + y and x y. Each argument has the dims of the output, or 1 where it is repeated. What
 * it does not serve it refuses with a reason, and another implementation is asked. */
#include "skel_op.h"

enum { LEFT, RIGHT, OUT, ARGS };

typedef struct op_plan {
  const bs_host *host;
  const bs_exec *exec; /* lives as long as the plan */
  uint32_t form;
} op_plan;

/* One run, as the members of the rank's team see it. */
typedef struct op_job {
  const bs_tensor *left, *right, *out;
  uint32_t form;
  int64_t rows, cols; /* of the output: all dims but the last, and the last */
} op_job;

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

/* Pure, and true: what is answered NATIVE here must run, what is answered NO must be refused by prepare. A
 * form with another name has other inputs: it is refused before they are read. */
static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  (void)state;
  const bs_expr *program = query->expr;
  if (program == NULL || (program->form != BS_MAP_ADD && program->form != BS_MAP_MUL))
    return no(answer, BS_REASON_NOT_BUILT, "add and mul only");
  if (program->compute != BS_F32) return no(answer, BS_REASON_DTYPE, "computes in f32 only");
  for (uint32_t i = 0; i < ARGS; i++)
    if (query->args[i]->dtype != BS_F32) return no(answer, BS_REASON_DTYPE, "f32 only");
  answer->level = BS_LEVEL_NATIVE;
  answer->score = 1; /* of 1000: chosen only by name, or by the tuner */
  answer->reason = BS_REASON_NONE;
  answer->tolerance = BS_TOL_EXACT;
  answer->workspace = 0;
  snprintf(answer->algo, sizeof answer->algo, "%s", program->form == BS_MAP_ADD ? "add" : "mul");
  return BS_OK;
}

/* Keep only facts from the query that do not change: a run may have smaller dims and other strides. */
static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  bs_op_answer answer;
  (void)packed;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  supports(state, query, &answer);
  if (answer.level == BS_LEVEL_NO)
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-OP-QUERY", "map@cpu/skel_op: %s", answer.text);
  op_plan *plan = (op_plan *)host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for a plan");
  plan->host = host;
  plan->exec = exec;
  plan->form = query->expr->form;
  *out_plan = plan;
  return BS_OK;
}

/* The address of row `row` of the output in t. A dim of 1 is repeated along the output's. */
static float *row_at(const bs_tensor *t, const bs_tensor *out, int64_t row) {
  int64_t offset = 0;
  for (int d = (int)out->rank - 2; d >= 0; d--) {
    if (t->dims[d] > 1) offset += row % out->dims[d] * t->strides[d];
    row /= out->dims[d];
  }
  return (float *)t->data + offset;
}

static int64_t step_of(const bs_tensor *t) {
  return t->rank == 0 || t->dims[t->rank - 1] == 1 ? 0 : t->strides[t->rank - 1];
}

/* This member's share of the rows. An output may be an input: an element is read before it is written. */
static void rows(void *arg, uint32_t member, uint32_t width) {
  const op_job *job = (const op_job *)arg;
  const int64_t left_step = step_of(job->left), right_step = step_of(job->right), step = step_of(job->out);
  for (int64_t r = job->rows * member / width; r < job->rows * (member + 1) / width; r++) {
    const float *left = row_at(job->left, job->out, r), *right = row_at(job->right, job->out, r);
    float *out = row_at(job->out, job->out, r);
    for (int64_t i = 0; i < job->cols; i++) {
      const float x = left[i * left_step], y = right[i * right_step];
      out[i * step] = job->form == BS_MAP_ADD ? x + y : x * y;
    }
  }
}

/* The hot call: the host has compared the tensors with the query. No memory, no locks, no names. */
static int32_t run(void *ptr, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const op_plan *plan = (const op_plan *)ptr;
  op_job job = {args[LEFT], args[RIGHT], args[OUT], plan->form, 1, 1};
  (void)nargs;
  (void)stream; /* cpu's ops are done when run returns */
  for (uint32_t d = 0; d + 1 < job.out->rank; d++) job.rows *= job.out->dims[d];
  if (job.out->rank > 0) job.cols = job.out->dims[job.out->rank - 1];
  if (job.rows == 0 || job.cols == 0) return BS_OK;
  const int32_t rc = plan->exec->parallel_for(plan->exec->ctx, rows, &job);
  return rc == BS_OK ? BS_OK : bs_fail(err, rc, "BS-SKEL-OP-TEAM", "the rank's team failed");
}

static void plan_free(void *ptr) {
  op_plan *plan = (op_plan *)ptr;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
}

void skel_op_table(bs_op_impl *impl) {
  memset(impl, 0, sizeof *impl);
  impl->struct_size = (uint32_t)sizeof *impl;
  impl->op = "map";
  impl->backend = "cpu";
  impl->name = "skel_op";
  impl->summary = "x + y and x y, row by row";
  impl->supports = supports;
  impl->prepare = prepare;
  impl->run = run;
  impl->plan_free = plan_free;
}
