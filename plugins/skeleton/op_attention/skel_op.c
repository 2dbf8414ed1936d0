/* SPDX-License-Identifier: MIT
 * skel_op.c - attention@cpu/skel_op: Y = softmax(scale Q K^T) V of f32 tensors, one query at a time, with or
 * without the causal mask. Q is [B,H,S,D], K [B,G,T,D], V [B,G,T,E], Y [B,H,S,E]; H is a multiple of G. The
 * scores of a query are in the rank's scratch memory. It refuses other queries with a reason, and the host
 * asks another implementation. */
#include "skel_op.h"

#include <math.h>

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, ARGS };

typedef struct op_plan {
  const bs_host *host;
  const bs_exec *exec; /* lives as long as the plan */
  float scale;
  int causal;
  int64_t keys; /* the most that a call has: T of the query */
} op_plan;

/* One run, as the members of the rank's team see it. */
typedef struct op_job {
  const op_plan *plan;
  const bs_tensor *q, *k, *v, *y;
  float *scores; /* [width][plan->keys] */
} op_job;

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

/* Pure, and true: what is answered NATIVE here must run, what is answered NO must be refused by prepare. The
 * host has compared ranks and dims with the op's schema. */
static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  if (q->args[MASK] != NULL || q->args[LENGTHS] != NULL || q->args[DESCALE] != NULL || q->args[LSE] != NULL)
    return no(answer, BS_REASON_NOT_BUILT, "no mask, lengths or factors, and no LSE");
  if (q->args[Q]->dtype != BS_F32 || q->args[K]->dtype != BS_F32 || q->args[V]->dtype != BS_F32 ||
      q->args[Y]->dtype != BS_F32)
    return no(answer, BS_REASON_DTYPE, "f32 only");
  if (q->attrs[0] == BS_CAUSAL_LOWER_RIGHT || q->attrs[1] != 0 || q->attrs[2] != 0 || q->attrs[3] != 0 ||
      q->numbers[1] != 0.0)
    return no(answer, BS_REASON_NOT_BUILT, "no window, no softcap, causal from the upper left only");
  answer->level = BS_LEVEL_NATIVE;
  answer->score = 1; /* of 1000: chosen only by name, or by the tuner */
  answer->reason = BS_REASON_NONE;
  answer->tolerance = BS_TOL_ACC_F32; /* powers are f32 */
  answer->workspace = sizeof(float) * (uint64_t)q->args[K]->dims[2];
  snprintf(answer->algo, sizeof answer->algo, "query by query");
  return BS_OK;
}

static void plan_free(void *ptr) {
  op_plan *plan = (op_plan *)ptr;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
}

/* Everything slow, once a shape. Dims may be smaller at a run than they are here, and strides others. */
static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  bs_op_answer answer;
  (void)packed;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  supports(state, q, &answer);
  if (answer.level == BS_LEVEL_NO)
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-OP-QUERY", "attention@cpu/skel_op: %s", answer.text);
  op_plan *plan = (op_plan *)host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for a plan");
  plan->host = host;
  plan->exec = exec;
  plan->scale = (float)q->numbers[0];
  plan->causal = q->attrs[0] == BS_CAUSAL_UPPER_LEFT;
  plan->keys = q->args[K]->dims[2];
  if (exec->reserve(exec->ctx, sizeof(float) * (uint64_t)plan->keys * exec->width) != BS_OK) {
    plan_free(plan);
    return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for the scores of %lld keys",
                   (long long)q->args[K]->dims[2]);
  }
  *out_plan = plan;
  return BS_OK;
}

/* Element `at` of row [batch, head, row]. */
static float *element(const bs_tensor *t, int64_t batch, int64_t head, int64_t row, int64_t at) {
  const int64_t *s = t->strides;
  return (float *)t->data + batch * s[0] + head * s[1] + row * s[2] + at * s[3];
}

/* The scores of one query over n keys, as powers of e below the largest; their sum. NaN stays NaN. */
static double soften(const op_job *job, int64_t batch, int64_t head, int64_t group, int64_t s, int64_t n,
                     float *scores) {
  const int64_t D = job->q->dims[3];
  float largest = -INFINITY;
  double total = 0.0;
  for (int64_t t = 0; t < n; t++) {
    double sum = 0.0;
    for (int64_t d = 0; d < D; d++)
      sum += (double)*element(job->q, batch, head, s, d) * (double)*element(job->k, batch, group, t, d);
    scores[t] = (float)sum * job->plan->scale;
    if (!(scores[t] <= largest)) largest = scores[t];
  }
  for (int64_t t = 0; t < n; t++) {
    scores[t] = expf(scores[t] - largest);
    total += (double)scores[t];
  }
  return total;
}

/* This member's share of the queries. */
static void queries(void *arg, uint32_t member, uint32_t width) {
  const op_job *job = (const op_job *)arg;
  const int64_t H = job->q->dims[1], S = job->q->dims[2], T = job->k->dims[2], E = job->v->dims[3];
  const int64_t all = job->q->dims[0] * H * S, repeat = H / job->k->dims[1];
  float *scores = job->scores + job->plan->keys * member;
  for (int64_t i = all * member / width; i < all * (member + 1) / width; i++) {
    const int64_t s = i % S, head = i / S % H, batch = i / S / H, group = head / repeat;
    const int64_t n = job->plan->causal && s + 1 < T ? s + 1 : T;
    const double total = soften(job, batch, head, group, s, n, scores);
    for (int64_t e = 0; e < E; e++) {
      double sum = 0.0;
      for (int64_t t = 0; t < n; t++) sum += (double)scores[t] * (double)*element(job->v, batch, group, t, e);
      *element(job->y, batch, head, s, e) = n > 0 ? (float)(sum / total) : 0.0f;
    }
  }
}

/* The hot call: the host has compared the tensors with the query. No memory, no locks, no names. */
static int32_t run(void *ptr, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const op_plan *plan = (const op_plan *)ptr;
  op_job job = {plan, args[Q], args[K], args[V], args[Y], NULL};
  (void)nargs;
  (void)stream; /* cpu's ops are done when run returns */
  if (job.q->dims[0] == 0 || job.q->dims[1] == 0 || job.q->dims[2] == 0) return BS_OK;
  job.scores = (float *)plan->exec->scratch(plan->exec->ctx);
  const int32_t rc = plan->exec->parallel_for(plan->exec->ctx, queries, &job);
  return rc == BS_OK ? BS_OK : bs_fail(err, rc, "BS-SKEL-OP-TEAM", "the rank's team failed");
}

void skel_op_table(bs_op_impl *impl) {
  memset(impl, 0, sizeof *impl);
  impl->struct_size = (uint32_t)sizeof *impl;
  impl->op = "attention";
  impl->backend = "cpu";
  impl->name = "skel_op";
  impl->summary = "attention, one query at a time";
  impl->supports = supports;
  impl->prepare = prepare;
  impl->run = run;
  impl->plan_free = plan_free;
}
