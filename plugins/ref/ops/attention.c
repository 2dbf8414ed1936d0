/* SPDX-License-Identifier: MIT
 * attention.c - Y = softmax(mask(softcap(scale Q K^T))) V for each query of each head, in f64, rounded once:
 * scores of the keys that the query sees, their largest one, then the sum of the rows of V by their powers.
 * Keys outside are not read, nor are those whose score is -inf. A query that sees no key gets Y = 0 and
 * LSE = -inf; with attrs[3] the powers of one that have no sum (a score is NaN or +inf) are zeros. Queries
 * are divided over the team; each member keeps a row of scores in the rank's scratch. */
#include <math.h>

#include "../ref.h"

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, ARGS };

typedef struct attention_plan {
  ref_plan base;
  uint64_t member_bytes; /* of scratch */
} attention_plan;

typedef struct attention_job {
  const attention_plan *plan;
  int64_t heads, groups, S, T, D, E;
  double scale, out_scale; /* descale included */
  unsigned char *scratch;
  ref_spread q, k, v, mask, lengths, y, lse;
} attention_job;

/* One query of one head, and a member's own memory. */
typedef struct query {
  int64_t at[4]; /* batch, head, query, 0 */
  int64_t group;
  int64_t first, end; /* of the keys that position and length let it see */
  double *q, *row, *sum, *scores;
} query;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS || q->args[Q] == NULL || q->args[K] == NULL || q->args[V] == NULL ||
      q->args[Y] == NULL)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs Q, K, V and Y of eight arguments");
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL || i == LENGTHS || (i == MASK && d->dtype == BS_BOOL)) continue;
    if (!ref_is_float(d->dtype))
      return ref_answer_no(out_answer, BS_REASON_DTYPE, "argument %u is not of floats", i);
  }
  return ref_answer_native(out_answer, BS_TOL_ACC_F64, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  void *made = NULL;
  int32_t rc = ref_plan_make(&ref_attention, state, exec, q, sizeof(attention_plan), &made, err);
  if (rc != BS_OK) return rc;
  attention_plan *plan = made;
  const uint64_t D = (uint64_t)q->args[Q]->dims[3], T = (uint64_t)q->args[K]->dims[2],
                 E = (uint64_t)q->args[V]->dims[3];
  plan->member_bytes = (2 * D + 2 * E + T) * sizeof(double);
  rc = ref_scratch_reserve(&plan->base, (D | T | E) >> 40 != 0 ? UINT64_MAX : plan->member_bytes, err);
  if (rc != BS_OK) {
    ref_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t load(const attention_job *job, const ref_spread *s, const int64_t *at, int64_t n,
                    double *out) {
  ref_view v = ref_line_along(s, 3, at);
  return ref_load(job->plan->base.host, &v, 0, NULL, 0, n, BS_F64, out);
}

/* The keys that a query's position, its window and the length let it see. */
static int32_t bounds(const attention_job *job, query *one) {
  const int64_t *attrs = job->plan->base.attrs;
  int64_t length = job->T;
  if (job->lengths.data != NULL) {
    const ref_view v = ref_line(&job->lengths, 0);
    const int32_t rc = ref_load(job->plan->base.host, &v, 0, NULL, one->at[0], 1, BS_I64, &length);
    if (rc != BS_OK) return rc;
    length = length < 0 ? 0 : length > job->T ? job->T : length;
  }
  const int64_t position = one->at[2] + (attrs[0] == BS_CAUSAL_LOWER_RIGHT ? length - job->S : 0);
  one->first = attrs[1] > 0 && attrs[1] <= position ? position - attrs[1] + 1 : 0;
  one->end = length;
  if (attrs[0] != BS_CAUSAL_NONE && position + 1 < length) one->end = position + 1;
  if (attrs[2] > 0 && attrs[2] < one->end - position) one->end = position + attrs[2];
  return BS_OK;
}

/* scores[j] of the keys that are seen so far, and the largest one; NaN wins. */
static int32_t score(const attention_job *job, query *one, double *out_most) {
  const double softcap = job->plan->base.numbers[1];
  int64_t at[4] = {one->at[0], one->group, 0, 0};
  double most = -INFINITY;
  int32_t rc = load(job, &job->q, one->at, job->D, one->q);
  if (rc == BS_OK && job->mask.data != NULL && one->end > one->first) {
    const int64_t from[4] = {one->at[0], one->at[1], one->at[2], one->first};
    rc = load(job, &job->mask, from, one->end - one->first, one->scores + one->first);
  }
  const int seen_or_not = job->mask.dtype == BS_BOOL;
  for (int64_t j = one->first; rc == BS_OK && j < one->end; j++) {
    const double mask = job->mask.data == NULL ? 0.0
                        : !seen_or_not         ? one->scores[j]
                        : one->scores[j] != 0  ? 0.0
                                               : -INFINITY;
    double dot = 0.0;
    one->scores[j] = -INFINITY;
    if (mask == -INFINITY) continue;
    at[2] = j;
    rc = load(job, &job->k, at, job->D, one->row);
    for (int64_t d = 0; d < job->D; d++) dot += one->q[d] * one->row[d];
    dot *= job->scale;
    if (softcap > 0.0) dot = softcap * tanh(dot / softcap);
    one->scores[j] = dot + mask;
    if (one->scores[j] > most || isnan(one->scores[j])) most = isnan(most) ? most : one->scores[j];
  }
  *out_most = most;
  return rc;
}

/* The sum of the powers, and that of the rows of V by them; by zeros where the powers have no sum. */
static int32_t gather(const attention_job *job, query *one, double most, double *out_total) {
  int64_t at[4] = {one->at[0], one->group, 0, 0};
  double total = 0.0;
  int32_t rc = BS_OK;
  for (int64_t e = 0; e < job->E; e++) one->sum[e] = 0.0;
  for (int64_t j = one->first; j < one->end; j++)
    if (one->scores[j] != -INFINITY) total += exp(one->scores[j] - most);
  const int zeros = isnan(total) && job->plan->base.attrs[3] != 0;
  for (int64_t j = one->first; rc == BS_OK && j < one->end; j++) {
    if (one->scores[j] == -INFINITY) continue;
    const double power = zeros ? 0.0 : exp(one->scores[j] - most);
    at[2] = j;
    rc = load(job, &job->v, at, job->E, one->row);
    for (int64_t e = 0; e < job->E; e++) one->sum[e] += power * one->row[e];
  }
  *out_total = total;
  return rc;
}

static int32_t one_query(const attention_job *job, query *one) {
  const bs_host *host = job->plan->base.host;
  double most = 0.0, total = 0.0, lse = -INFINITY;
  int32_t rc = bounds(job, one);
  if (rc == BS_OK) rc = score(job, one, &most);
  if (rc == BS_OK) rc = gather(job, one, most, &total);
  if (rc != BS_OK) return rc;
  if (most != -INFINITY) {
    lse = most + log(total);
    const double by = isnan(total) && job->plan->base.attrs[3] != 0 ? 1.0 : total;
    for (int64_t e = 0; e < job->E; e++) one->sum[e] = one->sum[e] / by * job->out_scale;
  }
  const ref_view y = ref_line_along(&job->y, 3, one->at);
  rc = ref_store(host, &y, 0, 0, job->E, BS_F64, one->sum);
  if (rc != BS_OK || job->lse.data == NULL) return rc;
  const ref_view l = ref_line_along(&job->lse, 2, one->at);
  return ref_store(host, &l, 0, 0, 1, BS_F64, &lse);
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)err;
  const attention_job *job = items->user;
  const int64_t dims[3] = {0, job->heads, job->S};
  const int64_t wide = job->D > job->E ? job->D : job->E;
  query one;
  memset(&one, 0, sizeof one);
  one.q = (double *)(void *)(job->scratch + job->plan->member_bytes * member);
  one.row = one.q + job->D;
  one.sum = one.row + wide;
  one.scores = one.sum + job->E;
  int32_t rc = BS_OK;
  for (int64_t i = begin; rc == BS_OK && i < end; i++) {
    one.at[2] = i % dims[2];
    one.at[1] = i / dims[2] % dims[1];
    one.at[0] = i / dims[2] / dims[1];
    one.group = one.at[1] / (job->heads / job->groups);
    rc = one_query(job, &one);
  }
  return rc;
}

static int32_t scales(attention_job *job, const bs_tensor *descale) {
  double by[3] = {1.0, 1.0, 1.0};
  int32_t rc = BS_OK;
  if (descale != NULL) {
    const ref_view v = ref_view_of(descale);
    rc = ref_load(job->plan->base.host, &v, 0, NULL, 0, 3, BS_F64, by);
  }
  job->scale = job->plan->base.numbers[0] * by[0] * by[1];
  job->out_scale = by[2];
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const attention_plan *plan = opaque;
  const int64_t *q = args[Q]->dims, *k = args[K]->dims, *y = args[Y]->dims;
  attention_job job = {
      .plan = plan, .heads = q[1], .groups = k[1], .S = q[2], .T = k[2], .D = q[3], .E = y[3]};
  const int64_t scores[4] = {q[0], q[1], q[2], k[2]};
  job.q = ref_spread_of(args[Q], 4, q);
  job.k = ref_spread_of(args[K], 4, k);
  job.v = ref_spread_of(args[V], 4, args[V]->dims);
  job.mask = ref_spread_of(args[MASK], 4, scores);
  job.lengths = ref_spread_of(args[LENGTHS], 1, scores);
  job.y = ref_spread_of(args[Y], 4, y);
  job.lse = ref_spread_of(args[LSE], 3, scores);
  const int32_t rc = scales(&job, args[DESCALE]);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-CONVERT", "the host does not convert descale");
  job.scratch = ref_scratch(&plan->base);
  ref_items items = {.plan = &plan->base, .part = part, .user = &job};
  items.count = q[0] * q[1] * q[2];
  return ref_items_run(&items, err);
}

const bs_src_loc ref_attention_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_attention = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention",
    .backend = "ref",
    .name = "portable",
    .summary = "softmax(Q K^T) V with masks",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
