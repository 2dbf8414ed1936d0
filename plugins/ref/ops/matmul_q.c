/* SPDX-License-Identifier: MIT
 * matmul_q.c - Y = act(X W^T + bias) + residual over a quantised W, the meaning of it (docs/ops.md). Every
 * output is one ascending chain of fused multiply-adds over the groups; sums of whole numbers are exact. The
 * same bits for any team width. Numbers are f32, or f64 where X, Y, bias or residual is. */
#include <math.h>

#include "quant.h"

enum { X, BIAS, RESIDUAL, Y, ARGS };
enum { OUTPUTS = 64, X_GROUP_MIN = 32, PIECE = 256 };
/* A sum of so many products of bytes fits in 32 bits: 255 * 255 * 32,768 < 2^31. */
enum { WHOLE_COLUMNS = 32768 };

typedef struct q_plan {
  ref_plan base;
  const ref_quant *w;
  int wide;        /* 1: numbers are f64 */
  int bytes;       /* 1: X is quantised; 2: X is i8 or u8 */
  int64_t x_group; /* columns of one scale of X */
  int64_t link;    /* columns of one step of the chain: the group, with steps the span; or less, x_group */
  int64_t slice;   /* columns of a link that have one zero and one step */
  uint64_t scales_at, x_at, whole_at, member_bytes; /* of scratch */
} q_plan;

/* A row of X: as numbers, or as whole numbers with a scale for each group of X; and the sum of each slice,
 * which the lows need. */
typedef struct q_row {
  double *sums, *scales;
  double *wide; /* X as it is, in f64 */
  float *x;     /* X in f32, where wide is not used */
  int16_t *whole;
} q_row;

static int is_byte(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8;
}

static int is_wide(const bs_op_query *q) {
  int wide = q->accumulate == BS_ACC_F64;
  for (uint32_t i = 0; i < ARGS; i++) wide |= q->args[i] != NULL && q->args[i]->dtype == BS_F64;
  return wide;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[ARGS] = {2, 1, 2, 2};
  if (q->nargs != ARGS || q->quant == NULL)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs X, bias, residual, Y and a quantised weight");
  if (!ref_args_fit(q, ARGS, ranks, 1u << BIAS | 1u << RESIDUAL, out_answer)) return BS_OK;
  if (q->activation > BS_ACT_GELU_TANH || q->accumulate > BS_ACC_F64)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u, accumulate %u", q->activation,
                         q->accumulate);
  if (q->accumulate == BS_ACC_F32 && is_wide(q))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "f64 operands are not summed in f32");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C, fused sums in order");
}

static int64_t parts(int64_t cols, int64_t size) {
  return cols / size + (cols % size != 0);
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The sizes of groups, and where the arrays of a row lie in scratch. */
static void lay_out(q_plan *plan, const bs_op_query *q) {
  const bs_quant *form = q->quant;
  const int64_t cols = form->cols, some = cols > 0 ? cols : 1;
  const int steps = (form->flags & BS_QUANT_STEPS) != 0;
  const int64_t standard = steps ? form->span : form->group < X_GROUP_MIN ? X_GROUP_MIN : form->group;
  const int64_t x_group = plan->bytes == 1 ? (q->attrs[1] != 0 ? q->attrs[1] : standard) : some;
  plan->x_group = least(x_group, some);
  plan->link = least(plan->x_group, form->span > 0 ? form->span : 1);
  plan->slice = least(plan->link, form->group > 0 ? form->group : 1);
  plan->scales_at = (uint64_t)parts(cols, plan->slice) * 8u;
  plan->x_at = plan->scales_at + (uint64_t)parts(cols, plan->x_group) * 8u;
  plan->whole_at = plan->x_at + (uint64_t)cols * (plan->wide && plan->bytes == 0 ? 8u : 4u);
  plan->member_bytes = (plan->whole_at + (uint64_t)cols * 2u + 64u) / 64u * 64u;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  void *made = NULL;
  int32_t rc = ref_plan_make(&ref_matmul_q, state, exec, q, sizeof(q_plan), &made, err);
  if (rc != BS_OK) return rc;
  q_plan *plan = made;
  plan->w = packed;
  plan->wide = is_wide(q);
  plan->bytes = is_byte(q->args[X]->dtype) ? 2 : q->attrs[0] != 0;
  lay_out(plan, q);
  rc = ref_quant_check(q, packed, err);
  if (rc == BS_OK) rc = ref_scratch_reserve(&plan->base, plan->member_bytes, err);
  if (rc != BS_OK) {
    ref_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* a b + c, rounded once. */
static double fused(const q_plan *plan, double a, double b, double c) {
  return plan->wide ? fma(a, b, c) : (double)fmaf((float)a, (float)b, (float)c);
}

static double times(const q_plan *plan, double a, double b) {
  return plan->wide ? a * b : (double)((float)a * (float)b);
}

static double plus(const q_plan *plan, double a, double b) {
  return plan->wide ? a + b : (double)((float)a + (float)b);
}

/* ---- X ------------------------------------------------------------------------------------------ */

/* The rule is that of quantize_groups: scale = max / 127; a group with NaN or infinity has the scale NaN. */
static void quantize(const q_plan *plan, q_row *row) {
  const int64_t cols = plan->w->form.cols;
  for (int64_t begin = 0; begin < cols; begin += plan->x_group) {
    const int64_t end = begin + least(plan->x_group, cols - begin);
    float most = 0.0f;
    for (int64_t k = begin; k < end; k++) {
      const float size = fabsf(row->x[k]);
      if (!(size <= most) && !isnan(most)) most = size;
    }
    const float scale = isfinite(most) ? most / 127.0f : NAN;
    for (int64_t k = begin; k < end; k++) {
      const float of = scale > 0.0f ? row->x[k] / scale : 0.0f;
      row->whole[k] = (int16_t)nearbyintf(of > 127.0f ? 127.0f : of < -127.0f ? -127.0f : of);
    }
    row->scales[begin / plan->x_group] = (double)scale;
  }
}

/* The sum of each slice of X, ascending. */
static void sum_slices(const q_plan *plan, q_row *row) {
  const int64_t cols = plan->w->form.cols;
  for (int64_t begin = 0; begin < cols; begin += plan->slice) {
    const int64_t end = begin + least(plan->slice, cols - begin);
    double wide = 0.0;
    float narrow = 0.0f;
    int32_t whole = 0;
    for (int64_t k = begin; k < end; k++) {
      if (plan->bytes)
        whole += row->whole[k];
      else if (plan->wide)
        wide += row->wide[k];
      else
        narrow += row->x[k];
    }
    row->sums[begin / plan->slice] = plan->bytes ? (double)whole : plan->wide ? wide : (double)narrow;
  }
}

static int32_t load_bytes(const ref_job *job, int64_t b, int64_t cols, int16_t *out) {
  int32_t piece[PIECE], rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < cols; c += PIECE) {
    const int64_t n = least(PIECE, cols - c);
    rc = ref_load(job->plan->host, &job->v[X], b, NULL, c, n, BS_I32, piece);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) out[c + i] = (int16_t)piece[i];
  }
  return rc;
}

static int32_t load_row(const ref_job *job, const q_plan *plan, int64_t b, q_row *row) {
  const bs_host *host = job->plan->host;
  const int64_t cols = plan->w->form.cols;
  if (plan->bytes == 2) return load_bytes(job, b, cols, row->whole);
  const int wide = plan->wide && plan->bytes == 0;
  const int32_t rc = ref_load(host, &job->v[X], b, NULL, 0, cols, wide ? BS_F64 : BS_F32,
                              wide ? (void *)row->wide : (void *)row->x);
  if (rc != BS_OK) return rc;
  if (plan->bytes) quantize(plan, row);
  if (plan->w->lows != NULL) sum_slices(plan, row);
  return BS_OK;
}

/* ---- one output --------------------------------------------------------------------------------- */

static float product_f32(const uint8_t *codes, int32_t zero, const float *x, int64_t count) {
  float t = 0.0f;
  for (int64_t k = 0; k < count; k++) t = fmaf((float)((int32_t)codes[k] - zero), x[k], t);
  return t;
}

static double product_f64(const uint8_t *codes, int32_t zero, const double *x, int64_t count) {
  double t = 0.0;
  for (int64_t k = 0; k < count; k++) t = fma((double)((int32_t)codes[k] - zero), x[k], t);
  return t;
}

static int32_t product_whole(const uint8_t *codes, int32_t zero, const int16_t *x, int64_t count) {
  int32_t sum = 0;
  for (int64_t k = 0; k < count; k++) sum += ((int32_t)codes[k] - zero) * x[k];
  return sum;
}

/* X as it is: t over each group, then by its scale; with steps by the step, and a span by its scale. */
static double sum_floats(const q_plan *plan, const q_row *row, int64_t n) {
  const ref_quant *w = plan->w;
  const int64_t cols = w->form.cols, group = w->form.group, span = w->form.span;
  const uint8_t *codes = w->codes + n * cols;
  double acc = 0.0, by_step = 0.0, lows = 0.0;
  for (int64_t g = 0; g < w->groups; g++) {
    const int64_t begin = g * group, count = least(group, cols - begin), at = n * w->groups + g;
    const int64_t s = n * w->spans + begin / span;
    const int32_t zero = ref_quant_zero(w, n, g);
    const double t = plan->wide ? product_f64(codes + begin, zero, row->wide + begin, count)
                                : (double)product_f32(codes + begin, zero, row->x + begin, count);
    if (w->steps != NULL) by_step = fused(plan, (double)w->steps[at], t, by_step);
    if (w->low_steps != NULL) lows = fused(plan, (double)w->low_steps[at], row->sums[g], lows);
    if ((begin + count) % span != 0 && begin + count != cols) continue;
    acc = fused(plan, (double)w->scales[s], w->steps != NULL ? by_step : t, acc);
    if (w->lows != NULL)
      acc = fused(plan, -(double)w->lows[s], w->low_steps != NULL ? lows : row->sums[g], acc);
    by_step = lows = 0.0;
  }
  return acc;
}

/* X in bytes: the whole number of a link, by both scales. */
static double sum_bytes(const q_plan *plan, const q_row *row, int64_t n) {
  const ref_quant *w = plan->w;
  const int64_t cols = w->form.cols;
  const uint8_t *codes = w->codes + n * cols;
  double acc = 0.0;
  for (int64_t begin = 0; begin < cols; begin += plan->link) {
    const int64_t end = begin + least(plan->link, cols - begin);
    int64_t sum = 0, x_sum = 0;
    for (int64_t k = begin; k < end; k += plan->slice) {
      const int64_t g = k / w->form.group, at = n * w->groups + g;
      const int32_t part =
          product_whole(codes + k, ref_quant_zero(w, n, g), row->whole + k, least(plan->slice, end - k));
      sum += (int64_t)(w->steps != NULL ? w->steps[at] : 1) * part;
      if (w->lows != NULL)
        x_sum += (w->low_steps != NULL ? w->low_steps[at] : 1) * (int64_t)row->sums[k / plan->slice];
    }
    const int64_t s = n * w->spans + begin / w->form.span;
    const double x_scale = row->scales[begin / plan->x_group];
    acc = fused(plan, times(plan, (double)w->scales[s], x_scale), (double)sum, acc);
    if (w->lows != NULL) acc = fused(plan, times(plan, -(double)w->lows[s], x_scale), (double)x_sum, acc);
  }
  return acc;
}

/* X i8 or u8: the whole number, its low 32 bits. */
static int32_t sum_whole(const q_plan *plan, const q_row *row, int64_t n) {
  const ref_quant *w = plan->w;
  const int64_t cols = w->form.cols;
  uint32_t sum = 0;
  for (int64_t k = 0; k < cols; k += WHOLE_COLUMNS)
    sum += (uint32_t)product_whole(w->codes + n * cols + k, ref_quant_zero(w, n, 0), row->whole + k,
                                   least(WHOLE_COLUMNS, cols - k));
  int32_t out;
  memcpy(&out, &sum, sizeof out);
  return out;
}

/* act(sum + bias) + residual, each step rounded. */
static int32_t finish(const ref_job *job, const q_plan *plan, int64_t b, int64_t n, int64_t count,
                      double *sums) {
  const bs_host *host = job->plan->host;
  double more[OUTPUTS] = {0};
  int32_t rc = BS_OK;
  if (job->v[BIAS].data != NULL) {
    rc = ref_load(host, &job->v[BIAS], 0, NULL, n, count, BS_F64, more);
    for (int64_t i = 0; i < count; i++) sums[i] = plus(plan, sums[i], more[i]);
  }
  for (int64_t i = 0; i < count && plan->base.activation != BS_ACT_NONE; i++) {
    const double v = ref_activation(plan->base.activation, sums[i]);
    sums[i] = plan->wide ? v : (double)(float)v;
  }
  if (rc == BS_OK && job->v[RESIDUAL].data != NULL) {
    rc = ref_load(host, &job->v[RESIDUAL], b, NULL, n, count, BS_F64, more);
    for (int64_t i = 0; i < count; i++) sums[i] = plus(plan, sums[i], more[i]);
  }
  return rc == BS_OK ? ref_store(host, &job->v[Y], b, n, count, BS_F64, sums) : rc;
}

static int32_t outputs(const ref_job *job, const q_plan *plan, const q_row *row, int64_t b, int64_t n,
                       int64_t count) {
  double sums[OUTPUTS];
  int32_t whole[OUTPUTS];
  for (int64_t i = 0; i < count; i++) {
    if (plan->bytes == 2)
      whole[i] = sum_whole(plan, row, n + i);
    else
      sums[i] = plan->bytes ? sum_bytes(plan, row, n + i) : sum_floats(plan, row, n + i);
  }
  if (plan->bytes == 2) return ref_store(job->plan->host, &job->v[Y], b, n, count, BS_I32, whole);
  return finish(job, plan, b, n, count, sums);
}

typedef struct q_job {
  ref_job job;
  unsigned char *scratch; /* a row of X for each member */
} q_job;

/* Items are rows by blocks of outputs, the rows outside. */
static void share(void *arg, uint32_t member, uint32_t width) {
  q_job *q = arg;
  ref_job *job = &q->job;
  const q_plan *plan = (const q_plan *)job->plan;
  unsigned char *scratch = q->scratch + member * plan->member_bytes;
  q_row row = {.sums = (double *)(void *)scratch,
               .scales = (double *)(void *)(scratch + plan->scales_at),
               .wide = (double *)(void *)(scratch + plan->x_at),
               .x = (float *)(void *)(scratch + plan->x_at),
               .whole = (int16_t *)(void *)(scratch + plan->whole_at)};
  const int64_t cols = job->v[Y].cols, blocks = cols / OUTPUTS + (cols % OUTPUTS != 0);
  int64_t begin, end, loaded = -1;
  ref_share(job->v[Y].rows * blocks, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t b = i / blocks, n = i % blocks * OUTPUTS;
    int32_t rc = b == loaded ? BS_OK : load_row(job, plan, b, &row);
    loaded = b;
    if (rc == BS_OK) rc = outputs(job, plan, &row, b, n, least(OUTPUTS, cols - n));
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const q_plan *plan = opaque;
  const bs_exec *exec = plan->base.exec;
  (void)stream;
  q_job q = {.job.plan = &plan->base, .scratch = ref_scratch(&plan->base)};
  for (uint32_t i = 0; i < nargs; i++)
    if (args[i] != NULL) q.job.v[i] = ref_view_of(args[i]);
  const int32_t rc = exec->parallel_for(exec->ctx, share, &q);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-TEAM", "the rank's thread team failed");
  if (q.job.failed == BS_OK) return BS_OK;
  return bs_fail(err, q.job.failed, "BS-REF-CONVERT", "X, bias or residual could not be converted");
}

const bs_src_loc ref_matmul_q_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul_q = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_q",
    .backend = "ref",
    .name = "portable",
    .summary = "a product by a quantised weight: whole sums, one chain of fused steps an output",
    .supports = supports,
    .pack = ref_quant_pack,
    .packed_read = ref_quant_packed_read,
    .packed_free = ref_quant_free,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
