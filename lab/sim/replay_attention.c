/* SPDX-License-Identifier: MIT
 * replay_attention.c - the data of a log of attention. Softmax is online: exp takes the largest score of its
 * block of keys, values scale what was added before. The maximum and the sum of each row, and the positions
 * of queries and keys, follow the bytes that they belong to: the log has no jobs for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/kernel/case.h"
#include "lab/kernel/oracle.h"
#include "lab/sim/replay_parts.h"

/* What follows the bytes of a buffer of a lane. */
typedef struct note {
  uint64_t start; /* of the buffer in the scratch */
  uint64_t first; /* of its rows: a query, or a key */
  uint64_t rows;
  float *most, *sum; /* of each row; NULL: none */
} note;

typedef struct notes {
  uint32_t n, room;
  note *all;
} notes;

typedef struct attending {
  const bs_oplog_plan *plan;
  notes *lanes;
  note *pending; /* of each job, from its begin to its end */
} attending;

/* ---- rows --------------------------------------------------------------------------------------- */

/* Scores of a query with keys from `key` on; those that it does not see are -inf. */
static void scores_row(const bs_kernel_problem *p, uint64_t query, uint64_t key, uint64_t keys,
                       const float *q, const float *k, float *out) {
  const float scale = 1.0f / sqrtf((float)p->D);
  int64_t first, end;
  bs_kernel_keys(p, (int64_t)query, &first, &end);
  for (uint64_t i = 0; i < keys; i++) {
    const int64_t at = (int64_t)(key + i);
    float sum = 0;
    for (int64_t d = 0; d < p->D; d++) sum += q[d] * k[(int64_t)i * p->D + d];
    out[i] = at >= first && at < end ? sum * scale : -INFINITY;
  }
}

static void exp_row(float *scores, uint64_t keys, float *out_most, float *out_sum) {
  float most = -INFINITY, sum = 0;
  for (uint64_t i = 0; i < keys; i++) most = scores[i] > most ? scores[i] : most;
  for (uint64_t i = 0; i < keys; i++) {
    scores[i] = most > -INFINITY ? expf(scores[i] - most) : 0;
    sum += scores[i];
  }
  *out_most = most;
  *out_sum = sum;
}

/* Adds a block of keys to a row of sums, whose maximum and sum of weights are *most and *sum. */
static void values_row(const float *weights, uint64_t keys, const float *v, uint64_t width, float most_now,
                       float sum_now, float *sums, float *most, float *sum) {
  const float larger = most_now > *most ? most_now : *most;
  const float before = *most > -INFINITY ? expf(*most - larger) : 0,
              now = most_now > -INFINITY ? expf(most_now - larger) : 0;
  for (uint64_t e = 0; e < width; e++) {
    float add = 0;
    for (uint64_t i = 0; i < keys; i++) add += weights[i] * v[i * width + e];
    sums[e] = sums[e] * before + add * now;
  }
  *sum = *sum * before + sum_now * now;
  *most = larger;
}

static int32_t store_row(const bs_oplog_plan *p, const float *sums, float sum, float *rest, char *out) {
  const uint64_t width = p->what.attention.e;
  for (uint64_t e = 0; e < width; e++) rest[e] = sum > 0 ? sums[e] / sum : 0;
  return bs_convert(bs_kernel_y_dtype(&p->problem), out, BS_F32, rest, width);
}

/* ---- notes -------------------------------------------------------------------------------------- */

static void forget(note *n) {
  free(n->most);
  free(n->sum);
  n->most = n->sum = NULL;
}

static const note *note_of(const attending *a, const sim_logged *j, const sim_range *range) {
  const notes *lane = &a->lanes[j->lane];
  for (uint32_t i = 0; i < lane->n; i++)
    if (lane->all[i].start == range->start) return &lane->all[i];
  return NULL;
}

/* A row of most and of sum for each of `rows`. */
static int32_t make_note(attending *a, uint64_t at, uint64_t first, uint64_t rows, int sums, bs_error *err) {
  note *n = &a->pending[at];
  forget(n);
  *n = (note){.first = first, .rows = rows};
  if (!sums) return BS_OK;
  n->most = malloc((rows > 0 ? rows : 1) * sizeof *n->most);
  n->sum = calloc(rows > 0 ? rows : 1, sizeof *n->sum);
  if (n->most == NULL || n->sum == NULL) return bs_no_memory(err, "the rows of attention");
  for (uint64_t i = 0; i < rows; i++) n->most[i] = -INFINITY;
  return BS_OK;
}

static int32_t landed(bs_replaying *r, uint64_t at) {
  attending *a = r->user;
  const sim_logged *j = &r->log->jobs[at];
  notes *lane = &a->lanes[j->lane];
  note *now = &a->pending[at];
  uint32_t i = 0;
  if (j->writes.space != SIM_SPACE_SCRATCH) return BS_OK;
  now->start = j->writes.start;
  while (i < lane->n && lane->all[i].start != now->start) i++;
  if (i == lane->room) {
    const uint32_t room = lane->room > 0 ? 2 * lane->room : 16;
    note *all = realloc(lane->all, room * sizeof *all);
    if (all == NULL) return bs_no_memory(r->err, "the buffers of a lane");
    lane->all = all;
    lane->room = room;
  }
  if (i == lane->n)
    lane->n++;
  else
    forget(&lane->all[i]);
  lane->all[i] = *now;
  *now = (note){0};
  return BS_OK;
}

/* ---- jobs --------------------------------------------------------------------------------------- */

/* What a job reads, as f32; the caller frees. NULL: no memory. */
static float *widened(bs_replaying *r, const sim_logged *j, const sim_range *range, uint32_t dtype,
                      uint64_t n) {
  float *out = malloc((n > 0 ? n : 1) * sizeof *out);
  if (out != NULL && bs_convert(BS_F32, out, dtype, bs_replay_bytes(r, j, range), n) == BS_OK) return out;
  free(out);
  return NULL;
}

static uint64_t rows_of(const sim_range *range, uint64_t width, uint64_t bytes) {
  return bs_range_bytes(range) / (width * bytes);
}

/* Q and K of a head each: the first row says which. */
static int32_t load(bs_replaying *r, uint64_t at, char *out) {
  const sim_attention_shape *s = &r->plan->what.attention;
  const sim_logged *j = &r->log->jobs[at];
  const sim_range *from = &j->reads[0];
  const uint64_t width = j->what == SIM_LOAD_V ? s->e : s->d, rows = j->what == SIM_LOAD_Q ? s->s : s->t;
  const int32_t rc = make_note(r->user, at, from->start / (width * s->in_bytes) % rows,
                               rows_of(from, width, s->in_bytes), 0, r->err);
  return rc == BS_OK ? bs_replay_copied(r, at, out) : rc;
}

static int32_t scores(bs_replaying *r, uint64_t at, char *out) {
  const sim_attention_shape *s = &r->plan->what.attention;
  const sim_logged *j = &r->log->jobs[at];
  if (j->n_reads != 2) return bs_replay_bad_job(r, at, "scores read Q and K");
  const uint64_t queries = rows_of(&j->reads[0], s->d, s->in_bytes),
                 keys = rows_of(&j->reads[1], s->d, s->in_bytes);
  const note *q_at = note_of(r->user, j, &j->reads[0]), *k_at = note_of(r->user, j, &j->reads[1]);
  if (bs_range_bytes(&j->writes) != queries * keys * sizeof(float))
    return bs_replay_bad_job(r, at, "its sizes are those of no scores");
  r->products += queries * keys * s->d;
  if (r->products > 2 * BS_OPLOG_PRODUCTS)
    return bs_replay_bad_job(r, at, "the log has more work than its op");
  float *q = widened(r, j, &j->reads[0], r->plan->dtype, queries * s->d),
        *k = widened(r, j, &j->reads[1], r->plan->dtype, keys * s->d);
  int32_t rc =
      q != NULL && k != NULL ? make_note(r->user, at, 0, queries, 1, r->err) : bs_no_memory(r->err, "scores");
  for (uint64_t i = 0; rc == BS_OK && i < queries; i++)
    scores_row(&r->plan->problem, (q_at != NULL ? q_at->first : 0) + i, k_at != NULL ? k_at->first : 0, keys,
               q + i * s->d, k, (float *)(void *)out + i * keys);
  free(q);
  free(k);
  return rc;
}

/* Rows of a buffer of scores; 0: no job has made scores there. */
static uint64_t queries_of(const bs_replaying *r, const sim_logged *j, const sim_range *range) {
  const note *n = note_of(r->user, j, range);
  const uint64_t values = bs_range_bytes(range) / sizeof(float);
  return n != NULL && n->rows > 0 && values % n->rows == 0 ? n->rows : 0;
}

static int32_t weights(bs_replaying *r, uint64_t at, char *out) {
  attending *a = r->user;
  const sim_logged *j = &r->log->jobs[at];
  const uint64_t n = bs_range_bytes(&j->reads[0]), queries = queries_of(r, j, &j->reads[0]);
  if (n != bs_range_bytes(&j->writes))
    return bs_replay_bad_job(r, at, "exp works in the place of its scores");
  memcpy(out, bs_replay_bytes(r, j, &j->reads[0]), n);
  const int32_t rc = make_note(a, at, 0, queries, 1, r->err);
  for (uint64_t i = 0; rc == BS_OK && i < queries; i++) {
    const uint64_t keys = n / sizeof(float) / queries;
    exp_row((float *)(void *)out + i * keys, keys, &a->pending[at].most[i], &a->pending[at].sum[i]);
  }
  return rc;
}

static int32_t values(bs_replaying *r, uint64_t at, char *out) {
  attending *a = r->user;
  const sim_attention_shape *s = &r->plan->what.attention;
  const sim_logged *j = &r->log->jobs[at];
  if (j->n_reads < 2) return bs_replay_bad_job(r, at, "values read weights and V");
  const uint64_t keys = rows_of(&j->reads[1], s->e, s->in_bytes), queries = rows_of(&j->writes, s->e, 4);
  const note *of = note_of(a, j, &j->reads[0]), *sums = j->n_reads > 2 ? note_of(a, j, &j->reads[2]) : NULL;
  if (bs_range_bytes(&j->reads[0]) != queries * keys * sizeof(float) ||
      (j->n_reads > 2 && bs_range_bytes(&j->reads[2]) != bs_range_bytes(&j->writes)))
    return bs_replay_bad_job(r, at, "its sizes are those of no values");
  float *v = widened(r, j, &j->reads[1], r->plan->dtype, keys * s->e),
        *p = widened(r, j, &j->reads[0], BS_F32, queries * keys), *to = (float *)(void *)out;
  int32_t rc =
      v != NULL && p != NULL ? make_note(a, at, 0, queries, 1, r->err) : bs_no_memory(r->err, "values");
  if (rc == BS_OK && j->n_reads > 2)
    memcpy(out, bs_replay_bytes(r, j, &j->reads[2]), bs_range_bytes(&j->writes));
  else
    memset(out, 0, bs_range_bytes(&j->writes));
  for (uint64_t i = 0; rc == BS_OK && i < queries; i++) {
    note *now = &a->pending[at];
    const int has = of != NULL && of->most != NULL && i < of->rows;
    if (sums != NULL && sums->most != NULL && i < sums->rows) {
      now->most[i] = sums->most[i];
      now->sum[i] = sums->sum[i];
    }
    values_row(p + i * keys, keys, v, s->e, has ? of->most[i] : NAN, has ? of->sum[i] : NAN, to + i * s->e,
               &now->most[i], &now->sum[i]);
  }
  free(v);
  free(p);
  return rc;
}

static int32_t store(bs_replaying *r, uint64_t at, char *out) {
  const sim_attention_shape *s = &r->plan->what.attention;
  const sim_logged *j = &r->log->jobs[at];
  const uint64_t rows = rows_of(&j->reads[0], s->e, 4);
  const note *of = note_of(r->user, j, &j->reads[0]);
  if (bs_range_bytes(&j->writes) != rows * s->e * s->out_bytes)
    return bs_replay_bad_job(r, at, "its sizes are those of no block of O");
  float *sums = widened(r, j, &j->reads[0], BS_F32, rows * s->e);
  float *rest = malloc((s->e > 0 ? s->e : 1) * sizeof *rest);
  int32_t rc = sums != NULL && rest != NULL ? BS_OK : bs_no_memory(r->err, "a block of O");
  for (uint64_t i = 0; rc == BS_OK && i < rows; i++)
    rc = store_row(r->plan, sums + i * s->e, of != NULL && of->sum != NULL && i < of->rows ? of->sum[i] : NAN,
                   rest, out + i * s->e * s->out_bytes);
  free(sums);
  free(rest);
  return rc;
}

static int32_t compute(bs_replaying *r, uint64_t at, char *out) {
  static int32_t (*const jobs[SIM_WHATS])(bs_replaying *, uint64_t, char *) = {
      [SIM_LOAD_Q] = load, [SIM_LOAD_K] = load,   [SIM_LOAD_V] = load, [SIM_SCORES] = scores,
      [SIM_EXP] = weights, [SIM_VALUES] = values, [SIM_STORE] = store};
  const uint32_t what = r->log->jobs[at].what;
  return jobs[what] != NULL ? jobs[what](r, at, out) : bs_replay_bad_job(r, at, "attention has no such job");
}

/* ---- a run -------------------------------------------------------------------------------------- */

typedef struct operands {
  bs_kernel_data *data;
  const char *in[3]; /* Q, K, V */
  uint64_t bytes[3];
  char *o, *right;
} operands;

static int32_t open_operands(const bs_oplog_plan *p, uint64_t seed, operands *out, bs_error *err) {
  const sim_attention_shape *s = &p->what.attention;
  const uint64_t o = s->heads * s->s * s->e * s->out_bytes;
  memset(out, 0, sizeof *out);
  int32_t rc = bs_replay_check_size((double)s->heads * (double)s->s * (double)s->t * (double)(s->d + s->e),
                                    2 * o, err);
  if (rc == BS_OK) rc = bs_kernel_data_make(&p->problem, seed, &out->data, err);
  for (uint32_t i = 0; rc == BS_OK && i < 3; i++) {
    int64_t rows, columns;
    rc = bs_replay_set_input(out->data, i, 0, seed, err);
    out->in[i] = bs_kernel_data_input(out->data, i, &rows, &columns);
    out->bytes[i] = (uint64_t)rows * (uint64_t)columns * s->in_bytes;
  }
  if (rc != BS_OK) return rc;
  out->o = malloc(o + 64);
  out->right = malloc(o + 64);
  if (out->o == NULL || out->right == NULL) return bs_no_memory(err, "the operands of a replay");
  memset(out->o, 0xff, o);
  return BS_OK;
}

static int32_t run_log(const sim_oplog *log, const bs_oplog_plan *plan, const operands *given,
                       bs_error *err) {
  const sim_attention_shape *s = &plan->what.attention;
  attending a = {.plan = plan};
  bs_replaying r = {.log = log, .plan = plan, .compute = compute, .landed = landed, .user = &a, .err = err};
  a.lanes = calloc(log->n_lanes > 0 ? log->n_lanes : 1, sizeof *a.lanes);
  a.pending = calloc(log->n > 0 ? log->n : 1, sizeof *a.pending);
  for (uint32_t i = 0; i < 3; i++) {
    r.space[SIM_SPACE_Q + i] = (char *)(uintptr_t)given->in[i];
    r.bytes[SIM_SPACE_Q + i] = given->bytes[i];
  }
  r.space[SIM_SPACE_O] = given->o;
  r.bytes[SIM_SPACE_O] = s->heads * s->s * s->e * s->out_bytes;
  const int32_t rc = a.lanes != NULL && a.pending != NULL ? bs_replay_log(&r) : bs_no_memory(err, "a replay");
  for (uint64_t i = 0; a.pending != NULL && i < log->n; i++) forget(&a.pending[i]);
  for (uint32_t l = 0; a.lanes != NULL && l < log->n_lanes; l++) {
    for (uint32_t i = 0; i < a.lanes[l].n; i++) forget(&a.lanes[l].all[i]);
    free(a.lanes[l].all);
  }
  free(a.pending);
  free(a.lanes);
  return rc;
}

/* One row after the other, its keys in the program's blocks. wide: Q, K, V in f32. */
static int32_t untiled(const bs_oplog_plan *p, float *const *wide, float *room, char *out) {
  const sim_attention_shape *s = &p->what.attention;
  float *scores_of = room, *sums = room + p->knobs.tn, *rest = sums + s->e;
  int32_t rc = BS_OK;
  for (uint64_t row = 0; rc == BS_OK && row < s->heads * s->s; row++) {
    const uint64_t of = row / s->s / s->group * s->t;
    float most = -INFINITY, sum = 0, most_now, sum_now;
    memset(sums, 0, s->e * sizeof *sums);
    for (uint64_t key = 0; key < s->t; key += p->knobs.tn) {
      const uint64_t keys = s->t - key < p->knobs.tn ? s->t - key : p->knobs.tn;
      scores_row(&p->problem, row % s->s, key, keys, wide[0] + row * s->d, wide[1] + (of + key) * s->d,
                 scores_of);
      exp_row(scores_of, keys, &most_now, &sum_now);
      values_row(scores_of, keys, wide[2] + (of + key) * s->e, s->e, most_now, sum_now, sums, &most, &sum);
    }
    rc = store_row(p, sums, sum, rest, out + row * s->e * s->out_bytes);
  }
  return rc;
}

static int32_t run_untiled(const bs_oplog_plan *p, const operands *given, bs_error *err) {
  const sim_attention_shape *s = &p->what.attention;
  float *wide[3] = {NULL}, *room = malloc((p->knobs.tn + 2 * s->e) * sizeof *room);
  int32_t rc = room != NULL ? BS_OK : bs_no_memory(err, "an untiled loop");
  for (uint32_t i = 0; rc == BS_OK && i < 3; i++) {
    const uint64_t n = given->bytes[i] / s->in_bytes;
    wide[i] = malloc((n > 0 ? n : 1) * sizeof *wide[i]);
    rc = wide[i] != NULL ? bs_convert(BS_F32, wide[i], p->dtype, given->in[i], n)
                         : bs_no_memory(err, "an untiled loop");
  }
  if (rc == BS_OK) rc = untiled(p, wide, room, given->right);
  for (uint32_t i = 0; i < 3; i++) free(wide[i]);
  free(room);
  return rc;
}

int32_t bs_oplog_replay_attention(const sim_oplog *log, const bs_oplog_plan *plan, uint64_t seed,
                                  bs_oplog_replayed *out, bs_error *err) {
  const sim_attention_shape *s = &plan->what.attention;
  bs_kernel_numbers judged = {0};
  bs_tail tail;
  operands given;
  *out = (bs_oplog_replayed){.values = s->heads * s->s * s->e,
                             .checks = BS_REPLAYED_UNTILED | BS_REPLAYED_ERROR};
  int32_t rc = open_operands(plan, seed, &given, err);
  if (rc == BS_OK) rc = run_log(log, plan, &given, err);
  if (rc == BS_OK) rc = run_untiled(plan, &given, err);
  for (uint64_t i = 0; rc == BS_OK && i < out->values; i++)
    out->untiled += memcmp(given.o + i * s->out_bytes, given.right + i * s->out_bytes, s->out_bytes) != 0;
  if (rc == BS_OK) rc = bs_kernel_data_judge(given.data, given.o, &judged, err);
  if (rc == BS_OK) rc = bs_kernel_data_predict(given.data, BS_TOL_ACC_F32, &out->predicted, &tail, err);
  out->error = judged.relative_rmse;
  out->limit = BS_SDPA_SLACK + 2 / sqrt((double)(judged.values > 0 ? judged.values : 1)); /* gate T1 */
  bs_kernel_data_free(given.data);
  free(given.o);
  free(given.right);
  return rc;
}
