/* SPDX-License-Identifier: MIT
 * attention_dx.c - dQ, dK and dV of attention in f64, rounded once. With P = e^(score - LSE) and
 * dS = P (dY . V - dY . Y), times the softcap's slope: a query sums dS K over the keys that it sees, a key
 * sums dS Q and P dY over the heads of its group and the queries that see it, upwards. Pairs that do not see
 * each other are not read. Queries and keys are divided over the team. */
#include <math.h>

#include "../ref.h"

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, DY, DQ, DK, DV, ARGS };

typedef struct dx_plan {
  ref_plan base;
  uint64_t member_bytes; /* of scratch */
} dx_plan;

typedef struct dx_job {
  const dx_plan *plan;
  int64_t B, heads, groups, S, T, D, E;
  unsigned char *scratch;
  ref_spread s[ARGS];
} dx_job;

/* A query of a head and a key of its group, and a member's own memory. */
typedef struct pair {
  int64_t b, h, i, j;
  double *q, *k, *v, *y, *dy, *sum, *other; /* rows; sums of an output */
  double lse, delta;                        /* of the query; delta: dY . Y */
  double p, ds;
} pair;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS) return ref_answer_no(out_answer, BS_REASON_RANK, "needs twelve arguments");
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL && (i == MASK || i == LENGTHS || i == DESCALE)) continue;
    if (d == NULL) return ref_answer_no(out_answer, BS_REASON_RANK, "argument %u is not there", i);
    if (i == LENGTHS || (i == MASK && d->dtype == BS_BOOL)) continue;
    if (!ref_is_float(d->dtype))
      return ref_answer_no(out_answer, BS_REASON_DTYPE, "argument %u is not of floats", i);
  }
  return ref_answer_native(out_answer, BS_TOL_ACC_F64, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  void *made = NULL;
  int32_t rc = ref_plan_make(&ref_attention_dx, state, exec, q, sizeof(dx_plan), &made, err);
  if (rc != BS_OK) return rc;
  dx_plan *plan = made;
  const uint64_t D = (uint64_t)q->args[Q]->dims[3], E = (uint64_t)q->args[V]->dims[3];
  plan->member_bytes = (3 * D + 4 * E) * sizeof(double);
  rc = ref_scratch_reserve(&plan->base, (D | E) >> 40 != 0 ? UINT64_MAX : plan->member_bytes, err);
  if (rc != BS_OK) {
    ref_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t load(const dx_job *job, uint32_t arg, int64_t b, int64_t h, int64_t row, int64_t n,
                    double *out) {
  const int64_t at[4] = {b, h, row, 0};
  const ref_view v = ref_line_along(&job->s[arg], 3, at);
  return ref_load(job->plan->base.host, &v, 0, NULL, 0, n, BS_F64, out);
}

static int32_t store(const dx_job *job, uint32_t arg, int64_t b, int64_t h, int64_t row, int64_t n,
                     const double *in) {
  const int64_t at[4] = {b, h, row, 0};
  const ref_view v = ref_line_along(&job->s[arg], 3, at);
  return ref_store(job->plan->base.host, &v, 0, 0, n, BS_F64, in);
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* The query's rows, its LSE and dY . Y. */
static int32_t load_query(const dx_job *job, pair *one) {
  const int64_t at[3] = {one->b, one->h, one->i};
  const ref_view l = ref_line_along(&job->s[LSE], 2, at);
  int32_t rc = ref_load(job->plan->base.host, &l, 0, NULL, 0, 1, BS_F64, &one->lse);
  if (rc == BS_OK) rc = load(job, Q, one->b, one->h, one->i, job->D, one->q);
  if (rc == BS_OK) rc = load(job, Y, one->b, one->h, one->i, job->E, one->y);
  if (rc == BS_OK) rc = load(job, DY, one->b, one->h, one->i, job->E, one->dy);
  if (rc == BS_OK) one->delta = dot(one->dy, one->y, job->E);
  return rc;
}

static int32_t load_key(const dx_job *job, pair *one) {
  const int64_t g = one->h / (job->heads / job->groups);
  const int32_t rc = load(job, K, one->b, g, one->j, job->D, one->k);
  return rc == BS_OK ? load(job, V, one->b, g, one->j, job->E, one->v) : rc;
}

static int32_t length_of(const dx_job *job, int64_t b, int64_t *out) {
  *out = job->T;
  if (job->s[LENGTHS].data == NULL) return BS_OK;
  const ref_view v = ref_line(&job->s[LENGTHS], 0);
  const int32_t rc = ref_load(job->plan->base.host, &v, 0, NULL, b, 1, BS_I64, out);
  *out = *out < 0 ? 0 : *out > job->T ? job->T : *out;
  return rc;
}

/* Does the query see the key, by position and length? (op.h, attention) */
static int sees(const dx_job *job, const pair *one, int64_t length) {
  const int64_t *attrs = job->plan->base.attrs;
  const int64_t at = one->i + (attrs[0] == BS_CAUSAL_LOWER_RIGHT ? length - job->S : 0);
  if (one->j >= length || (attrs[0] != BS_CAUSAL_NONE && one->j > at)) return 0;
  if (attrs[1] > 0 && one->j <= at - attrs[1]) return 0;
  return attrs[2] == 0 || one->j - at < attrs[2];
}

/* The term that the mask adds to the score. */
static int32_t mask_of(const dx_job *job, const pair *one, double *out) {
  *out = 0.0;
  if (job->s[MASK].data == NULL) return BS_OK;
  const int64_t at[4] = {one->b, one->h, one->i, one->j};
  const ref_view v = ref_line_along(&job->s[MASK], 3, at);
  const int32_t rc = ref_load(job->plan->base.host, &v, 0, NULL, 0, 1, BS_F64, out);
  if (job->s[MASK].dtype == BS_BOOL) *out = *out != 0.0 ? 0.0 : -INFINITY;
  return rc;
}

/* P and dS of a pair whose rows are loaded, the key's by this where it is seen; *out_seen 0: nothing is
 * added. */
static int32_t weigh(const dx_job *job, pair *one, int64_t length, int key_too, int *out_seen) {
  const double scale = job->plan->base.numbers[0], cap = job->plan->base.numbers[1];
  double mask = 0.0, slope = 1.0;
  *out_seen = 0;
  if (one->lse == -INFINITY || !sees(job, one, length)) return BS_OK;
  int32_t rc = mask_of(job, one, &mask);
  if (rc == BS_OK && mask != -INFINITY && key_too) rc = load_key(job, one);
  if (rc != BS_OK || mask == -INFINITY) return rc;
  double score = scale * dot(one->q, one->k, job->D);
  if (cap > 0.0) {
    const double t = tanh(score / cap);
    score = cap * t;
    slope = 1.0 - t * t;
  }
  score += mask;
  if (score == -INFINITY) return BS_OK;
  one->p = exp(score - one->lse);
  one->ds = one->p * (dot(one->dy, one->v, job->E) - one->delta) * slope;
  *out_seen = 1;
  return BS_OK;
}

static int32_t one_query(const dx_job *job, pair *one) {
  int64_t length = 0;
  int seen = 0;
  int32_t rc = length_of(job, one->b, &length);
  if (rc == BS_OK) rc = load_query(job, one);
  for (int64_t d = 0; d < job->D; d++) one->sum[d] = 0.0;
  for (one->j = 0; one->j < length && rc == BS_OK; one->j++) {
    rc = weigh(job, one, length, 1, &seen);
    for (int64_t d = 0; seen && d < job->D; d++) one->sum[d] += one->ds * one->k[d];
  }
  for (int64_t d = 0; d < job->D; d++) one->sum[d] *= job->plan->base.numbers[0];
  return rc == BS_OK ? store(job, DQ, one->b, one->h, one->i, job->D, one->sum) : rc;
}

static int32_t one_key(const dx_job *job, pair *one, int64_t group) {
  const int64_t repeat = job->heads / job->groups;
  int64_t length = 0;
  int seen = 0;
  int32_t rc = length_of(job, one->b, &length);
  one->h = group * repeat;
  if (rc == BS_OK && one->j < length) rc = load_key(job, one);
  for (int64_t d = 0; d < job->D; d++) one->sum[d] = 0.0;
  for (int64_t e = 0; e < job->E; e++) one->other[e] = 0.0;
  for (int64_t h = 0; h < repeat; h++)
    for (one->i = 0; one->i < job->S && one->j < length && rc == BS_OK; one->i++) {
      one->h = group * repeat + h;
      rc = load_query(job, one);
      if (rc == BS_OK) rc = weigh(job, one, length, 0, &seen);
      for (int64_t d = 0; seen && d < job->D; d++) one->sum[d] += one->ds * one->q[d];
      for (int64_t e = 0; seen && e < job->E; e++) one->other[e] += one->p * one->dy[e];
      seen = 0;
    }
  for (int64_t d = 0; d < job->D; d++) one->sum[d] *= job->plan->base.numbers[0];
  if (rc == BS_OK) rc = store(job, DK, one->b, group, one->j, job->D, one->sum);
  return rc == BS_OK ? store(job, DV, one->b, group, one->j, job->E, one->other) : rc;
}

/* Queries first, then keys. */
static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)err;
  const dx_job *job = items->user;
  const int64_t queries = job->B * job->heads * job->S;
  pair one;
  memset(&one, 0, sizeof one);
  one.q = (double *)(void *)(job->scratch + job->plan->member_bytes * member);
  one.k = one.q + job->D;
  one.sum = one.k + job->D;
  one.v = one.sum + job->D;
  one.y = one.v + job->E;
  one.dy = one.y + job->E;
  one.other = one.dy + job->E;
  int32_t rc = BS_OK;
  for (int64_t n = begin; rc == BS_OK && n < end; n++) {
    if (n < queries) {
      one.i = n % job->S;
      one.h = n / job->S % job->heads;
      one.b = n / job->S / job->heads;
      rc = one_query(job, &one);
    } else {
      one.j = (n - queries) % job->T;
      one.b = (n - queries) / job->T / job->groups;
      rc = one_key(job, &one, (n - queries) / job->T % job->groups);
    }
  }
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const dx_plan *plan = opaque;
  const int64_t *q = args[Q]->dims, *k = args[K]->dims;
  dx_job job = {.plan = plan, .B = q[0], .heads = q[1], .groups = k[1], .S = q[2], .T = k[2], .D = q[3]};
  const int64_t scores[4] = {q[0], q[1], q[2], k[2]};
  job.E = args[V]->dims[3];
  for (uint32_t i = 0; i < ARGS; i++)
    job.s[i] = i == MASK      ? ref_spread_of(args[i], 4, scores)
               : i == LENGTHS ? ref_spread_of(args[i], 1, scores)
               : i == LSE     ? ref_spread_of(args[i], 3, scores)
                              : ref_spread_of(args[i], 4, args[i] != NULL ? args[i]->dims : scores);
  job.scratch = ref_scratch(&plan->base);
  ref_items items = {.plan = &plan->base, .part = part, .user = &job};
  items.count = q[0] * q[1] * q[2] + k[0] * k[1] * k[2];
  return ref_items_run(&items, err);
}

const bs_src_loc ref_attention_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_attention_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention_dx",
    .backend = "ref",
    .name = "portable",
    .summary = "dQ, dK and dV of attention",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
