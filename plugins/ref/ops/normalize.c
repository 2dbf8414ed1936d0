/* SPDX-License-Identifier: MIT
 * normalize.c - layer and rms normalisation, softmax and log_softmax over the last dimension. A row is
 * x + add. All is computed in f64 and rounded once, to Y's dtype, and the row itself to sum's:
 *   layer        (row - mean) / sqrt(mean of (row - mean)^2 + eps) gamma + beta
 *   rms          row / sqrt(mean of row^2 + eps) gamma + beta
 *   softmax      e^(row - max) / sum of e^(row - max)
 *   log_softmax  row - max - log(sum of e^(row - max))
 * A row is read once more for each of its statistics, and last written, piece by piece: Y and sum may be X or
 * add. Rows are divided over the team. */
#include <math.h>

#include "../ref.h"

enum { X, ADD, GAMMA, BETA, Y, SUM, ARGS };
enum { PIECE = 128 };

typedef struct normalize_job {
  const ref_plan *plan;
  ref_spread args[ARGS];
} normalize_job;

/* One row: its lines, and what is known of it. */
typedef struct row {
  const normalize_job *job;
  ref_view lines[ARGS];
  int64_t n;
  double shift, scale; /* subtracted from the values, then multiplied with them */
} row;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS || q->args[X] == NULL || q->args[Y] == NULL)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs X and Y of six arguments");
  for (uint32_t i = 0; i < ARGS; i++)
    if (q->args[i] != NULL && !ref_is_float(q->args[i]->dtype))
      return ref_answer_no(out_answer, BS_REASON_DTYPE, "argument %u is not of floats", i);
  if (q->attrs[0] < BS_NORMALIZE_LAYER || q->attrs[0] > BS_NORMALIZE_LOG_SOFTMAX)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "kind %lld", (long long)q->attrs[0]);
  return ref_answer_native(out_answer, BS_TOL_ACC_F64, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_normalize, state, exec, q, sizeof(ref_plan), out_plan, err);
}

static int32_t load(const row *r, uint32_t arg, int64_t c, int64_t n, double *out) {
  return ref_load(r->job->plan->host, &r->lines[arg], 0, NULL, c, n, BS_F64, out);
}

/* Values c .. c+n of the row. */
static int32_t load_row(const row *r, int64_t c, int64_t n, double *out) {
  double add[PIECE];
  int32_t rc = load(r, X, c, n, out);
  if (r->lines[ADD].data != NULL) {
    if (rc == BS_OK) rc = load(r, ADD, c, n, add);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) out[i] += add[i];
  }
  return rc;
}

/* The term that a statistic adds for one value. */
typedef double (*term)(const row *r, double v);
static double of_value(const row *r, double v) {
  (void)r;
  return v;
}
static double of_square(const row *r, double v) {
  return (v - r->shift) * (v - r->shift);
}
static double of_power(const row *r, double v) {
  return exp(v - r->shift);
}

static int32_t sum_of(const row *r, term of, double *out_sum) {
  double v[PIECE], sum = 0.0;
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < r->n; c += PIECE) {
    const int64_t n = r->n - c < PIECE ? r->n - c : PIECE;
    rc = load_row(r, c, n, v);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) sum += of(r, v[i]);
  }
  *out_sum = sum;
  return rc;
}

/* The largest value; NaN wins. */
static int32_t max_of(const row *r, double *out_max) {
  double v[PIECE], most = -INFINITY;
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < r->n; c += PIECE) {
    const int64_t n = r->n - c < PIECE ? r->n - c : PIECE;
    rc = load_row(r, c, n, v);
    for (int64_t i = 0; rc == BS_OK && i < n; i++)
      if (v[i] > most || isnan(v[i])) most = isnan(most) ? most : v[i];
  }
  *out_max = most;
  return rc;
}

static int32_t measure(row *r) {
  const ref_plan *plan = r->job->plan;
  double sum = 0.0;
  int32_t rc = BS_OK;
  r->shift = 0.0;
  if (plan->attrs[0] >= BS_NORMALIZE_SOFTMAX) {
    rc = max_of(r, &r->shift);
    if (rc == BS_OK) rc = sum_of(r, of_power, &sum);
    r->scale = plan->attrs[0] == BS_NORMALIZE_SOFTMAX ? 1.0 / sum : log(sum);
    return rc;
  }
  if (plan->attrs[0] == BS_NORMALIZE_LAYER) {
    rc = sum_of(r, of_value, &sum);
    r->shift = sum / (double)r->n;
  }
  if (rc == BS_OK) rc = sum_of(r, of_square, &sum);
  r->scale = sqrt(sum / (double)r->n + plan->numbers[0]);
  return rc;
}

static void normalize(const row *r, int64_t n, double *v) {
  const int64_t kind = r->job->plan->attrs[0];
  for (int64_t i = 0; i < n; i++) {
    const double of = v[i] - r->shift;
    if (kind == BS_NORMALIZE_SOFTMAX)
      v[i] = exp(of) * r->scale;
    else if (kind == BS_NORMALIZE_LOG_SOFTMAX)
      v[i] = of - r->scale;
    else
      v[i] = of / r->scale;
  }
}

static int32_t write_piece(const row *r, int64_t c, int64_t n) {
  const bs_host *host = r->job->plan->host;
  double v[PIECE], by[PIECE];
  int32_t rc = load_row(r, c, n, v);
  if (rc == BS_OK && r->lines[SUM].data != NULL) rc = ref_store(host, &r->lines[SUM], 0, c, n, BS_F64, v);
  if (rc == BS_OK) normalize(r, n, v);
  if (rc == BS_OK && r->lines[GAMMA].data != NULL) {
    rc = load(r, GAMMA, c, n, by);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) v[i] *= by[i];
  }
  if (rc == BS_OK && r->lines[BETA].data != NULL) {
    rc = load(r, BETA, c, n, by);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) v[i] += by[i];
  }
  return rc == BS_OK ? ref_store(host, &r->lines[Y], 0, c, n, BS_F64, v) : rc;
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)member;
  (void)err;
  const normalize_job *job = items->user;
  int32_t rc = BS_OK;
  for (int64_t i = begin; rc == BS_OK && i < end; i++) {
    row r = {.job = job};
    for (uint32_t a = 0; a < ARGS; a++)
      if (job->args[a].data != NULL) r.lines[a] = ref_line(&job->args[a], i);
    r.n = r.lines[X].cols;
    if (r.n > 0) rc = measure(&r);
    for (int64_t c = 0; rc == BS_OK && c < r.n; c += PIECE)
      rc = write_piece(&r, c, r.n - c < PIECE ? r.n - c : PIECE);
  }
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)stream;
  const ref_plan *plan = opaque;
  const bs_tensor *y = args[Y];
  normalize_job job = {.plan = plan};
  for (uint32_t i = 0; i < nargs; i++) job.args[i] = ref_spread_of(args[i], y->rank, y->dims);
  ref_items items = {.plan = plan, .part = part, .user = &job};
  items.count = ref_lines(y->rank, y->dims);
  return ref_items_run(&items, err);
}

const bs_src_loc ref_normalize_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_normalize = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "normalize",
    .backend = "ref",
    .name = "portable",
    .summary = "layer, rms, softmax and log_softmax of rows",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
