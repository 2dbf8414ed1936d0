/* SPDX-License-Identifier: MIT
 * op_q_judge.c - oracles of matmul_q and take_q, written from docs/ops.md. An answer of class EXACT is
 * compared with the sums in their order, to the bit; that of another class with sums in fp64, within the
 * bound over the exact terms of the quantised X. Where a query is small, EXACT is held to both. */
#include <math.h>

#include "kit/op_q.h"
#include "lab/activation.h"

enum { X, BIAS, RESIDUAL, Y };
enum { BOTH = 200000 /* products */ };

/* X of a query: as it is, or whole numbers and the scale of each column. */
typedef struct numbers {
  const kit_data *d;
  const kit_q *w;
  int wide, bytes;                                 /* bytes: 1 quantised, 2 bytes as they came */
  int64_t x_group;                                 /* columns of one scale of X */
  double *x;                                       /* [B][K]; in bytes the whole numbers */
  double *scale;                                   /* [B][K], in bytes */
  double *pieces, *low_pieces, *terms, *low_terms; /* [K]: of one row of W, in terms of X */
} numbers;

static float scale_of(const kit_q *w, int64_t n, int64_t k) {
  const int64_t span = k / w->form.span, group = k / w->form.group;
  const float scale = w->scales[n * w->spans + span];
  if ((w->form.flags & BS_QUANT_STEPS) == 0) return scale;
  return scale * (float)w->steps[n * w->groups + group];
}

static float low_of(const kit_q *w, int64_t n, int64_t k) {
  const int64_t span = k / w->form.span, group = k / w->form.group;
  const float low = w->lows[n * w->spans + span];
  if ((w->form.flags & BS_QUANT_STEPS) == 0) return low;
  return low * (float)w->low_steps[n * w->groups + group];
}

static int code_of(const kit_q *w, int64_t n, int64_t k) {
  const int zero =
      (w->form.flags & BS_QUANT_ZEROS) != 0 ? w->zeros[n * w->groups + k / w->form.group] : w->form.zero;
  return w->codes[n * w->form.cols + k] - zero;
}

float kit_q_value(const kit_data *d, int64_t n, int64_t k) {
  const kit_q *w = d->q;
  const float product = scale_of(w, n, k) * (float)code_of(w, n, k);
  return (w->form.flags & BS_QUANT_LOWS) != 0 ? product - low_of(w, n, k) : product;
}

/* ---- X ---------------------------------------------------------------------------------------- */

/* Columns first .. end - 1 of row b. */
static void quantize(numbers *q, int64_t b, int64_t first, int64_t end) {
  const int64_t K = q->w->form.cols;
  float most = 0.0f;
  int finite = 1;
  for (int64_t k = first; k < end; k++) {
    const float v = (float)q->x[b * K + k];
    finite &= isfinite(v) != 0;
    most = fmaxf(most, fabsf(v));
  }
  const float scale = finite ? most / 127.0f : NAN;
  for (int64_t k = first; k < end; k++) {
    const float of = scale > 0.0f ? (float)q->x[b * K + k] / scale : 0.0f;
    q->x[b * K + k] = rint(fmax(-127.0, fmin(127.0, (double)of))); /* halves to even */
    q->scale[b * K + k] = (double)scale;
  }
}

static int64_t x_group_of(const kit_data *d) {
  const bs_quant *f = &d->q->form;
  if (d->query.attrs[1] != 0) return d->query.attrs[1];
  if ((f->flags & BS_QUANT_STEPS) != 0) return f->span;
  return f->group < 32 ? 32 : f->group;
}

static double *room(int64_t n) {
  double *p = calloc((size_t)n + 1, sizeof *p);
  kit_assert(p != NULL, "no memory for the oracle");
  return p;
}

static void numbers_make(numbers *q, const kit_data *d) {
  const int64_t B = d->shape.B, K = d->shape.K;
  *q = (numbers){.d = d, .w = d->q, .wide = kit_wide(d), .x_group = x_group_of(d)};
  q->bytes = !bs_dtype_is_float(d->shape.x) ? 2 : d->query.attrs[0] != 0;
  q->x = room(B * K);
  q->scale = room(B * K);
  q->pieces = room(K);
  q->low_pieces = room(K);
  q->terms = room(K);
  q->low_terms = room(K);
  for (int64_t b = 0; b < B; b++) {
    for (int64_t k = 0; k < K; k++) q->x[b * K + k] = kit_get(&d->a[X], b, k);
    for (int64_t k = 0; k < K && q->bytes == 1; k += q->x_group)
      quantize(q, b, k, K - k < q->x_group ? K : k + q->x_group);
  }
}

static void numbers_free(numbers *q) {
  double *const all[] = {q->x, q->scale, q->pieces, q->low_pieces, q->terms, q->low_terms};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

/* Row n of W by columns: codes, times their step where X is in bytes, and the low's step; and the exact
 * terms. */
static void numbers_row(numbers *q, int64_t n) {
  const kit_q *w = q->w;
  const int steps = (w->form.flags & BS_QUANT_STEPS) != 0, lows = (w->form.flags & BS_QUANT_LOWS) != 0;
  for (int64_t k = 0; k < w->form.cols; k++) {
    const int64_t at = n * w->groups + k / w->form.group, span = n * w->spans + k / w->form.span;
    const double code = code_of(w, n, k), step = steps ? w->steps[at] : 1;
    const double low_step = !lows ? 0 : steps ? w->low_steps[at] : 1;
    q->pieces[k] = q->bytes ? step * code : code;
    q->low_pieces[k] = low_step;
    q->terms[k] = (double)w->scales[span] * step * code;
    q->low_terms[k] = lows ? (double)w->lows[span] * low_step : 0.0;
  }
}

/* ---- the sums in their order ------------------------------------------------------------------ */

static double fused(const numbers *q, double a, double b, double c) {
  return q->wide ? fma(a, b, c) : (double)fmaf((float)a, (float)b, (float)c);
}

static double rounded(const numbers *q, double v) {
  return q->wide ? v : (double)(float)v;
}

/* One group of X as it is: the product, and the sum of X. */
static void group_in_order(const numbers *q, const double *x, int64_t first, int64_t end, double *out_t,
                           double *out_sum) {
  double t = 0.0, sum = 0.0;
  for (int64_t k = first; k < end; k++) {
    t = fused(q, q->pieces[k], x[k], t);
    sum = rounded(q, sum + x[k]);
  }
  *out_t = t;
  *out_sum = sum;
}

static double floats_in_order(const numbers *q, const double *x, int64_t n) {
  const kit_q *w = q->w;
  const bs_quant *f = &w->form;
  const int steps = (f->flags & BS_QUANT_STEPS) != 0, lows = (f->flags & BS_QUANT_LOWS) != 0;
  double acc = 0.0;
  for (int64_t s = 0; s < w->spans; s++) {
    const int64_t last = (s + 1) * f->span < f->cols ? (s + 1) * f->span : f->cols;
    const double scale = (double)w->scales[n * w->spans + s], low = (double)w->lows[n * w->spans + s];
    double u = 0.0, v = 0.0;
    for (int64_t first = s * f->span; first < last; first += f->group) {
      const int64_t at = n * w->groups + first / f->group;
      double t, sum;
      group_in_order(q, x, first, first + f->group < last ? first + f->group : last, &t, &sum);
      u = steps ? fused(q, (double)w->steps[at], t, u) : t;
      v = steps ? fused(q, (double)w->low_steps[at], sum, v) : sum;
    }
    acc = fused(q, scale, u, acc);
    if (lows) acc = fused(q, -low, v, acc);
  }
  return acc;
}

/* A link ends where a scale of X or one of W does. */
static double bytes_in_order(const numbers *q, const double *x, const double *x_scale, int64_t n) {
  const kit_q *w = q->w;
  const bs_quant *f = &w->form;
  double acc = 0.0;
  for (int64_t first = 0, end; first < f->cols; first = end) {
    const int64_t x_end = (first / q->x_group + 1) * q->x_group, w_end = (first / f->span + 1) * f->span;
    int64_t i = 0, sum = 0;
    end = x_end < w_end ? x_end : w_end;
    if (end > f->cols) end = f->cols;
    for (int64_t k = first; k < end; k++) {
      i += (int64_t)(q->pieces[k] * x[k]);
      sum += (int64_t)(q->low_pieces[k] * x[k]);
    }
    const int64_t span = n * w->spans + first / f->span;
    acc = fused(q, rounded(q, (double)w->scales[span] * x_scale[first]), (double)i, acc);
    if ((f->flags & BS_QUANT_LOWS) != 0)
      acc = fused(q, rounded(q, -(double)w->lows[span] * x_scale[first]), (double)sum, acc);
  }
  return acc;
}

static int same_bits(uint32_t dtype, double got, double want) {
  unsigned char at[8] = {0};
  bs_store_f64(dtype, at, 0, want);
  const double stored = bs_load_f64(dtype, at, 0);
  if (isnan(stored)) return isnan(got);
  return got == stored && signbit(got) == signbit(stored);
}

static void wrong(const kit_data *d, int64_t b, int64_t n, double got, const char *whose, double want,
                  double slack) {
  kit_fail("%s: output [%lld,%lld] is %.9g, %s %.9g, bound %.3g", kit_data_text(d), (long long)b,
           (long long)n, got, whose, want, slack);
}

/* Bias, activation, residual, each rounded. Curved activations may be off as those of matmul. */
static void check_in_order(const numbers *q, int64_t b, int64_t n, double sum) {
  const kit_data *d = q->d;
  const kit_shape *s = &d->shape;
  const double got = kit_get(&d->a[Y], b, n), u = q->wide ? 0x1p-53 : 0x1p-24;
  const double least = q->wide ? 0x1p-1074 : 0x1p-149; /* the distance of numbers below the normal ones */
  double slack = 0.0;
  if (s->bias != 0) sum = rounded(q, sum + kit_get(&d->a[BIAS], 0, n));
  double want = rounded(q, bs_activation_value(s->activation, sum));
  if (kit_curved(s->activation))
    slack = bs_activation_error(s->activation, sum, u) + u * fabs(want) + 2 * least;
  if (s->residual != 0) want = rounded(q, want + kit_get(&d->a[RESIDUAL], b, n));
  if (slack > 0.0 && s->residual != 0) slack += 2 * u * (fabs(want) + slack);
  const int fits =
      slack > 0.0 && isfinite(want) ? kit_within(s->y, got, want, slack) : same_bits(s->y, got, want);
  if (!fits) wrong(d, b, n, got, "the sums of ops.md give", want, slack);
}

/* ---- within a bound --------------------------------------------------------------------------- */

/* The exact sum; its terms' sizes; and what numbers below the normal ones may lose on the way. */
static double sum_of(const numbers *q, const double *x, const double *x_scale, double *out_size,
                     double *out_lost) {
  double v = 0.0, size = 0.0, lost = 0.0;
  for (int64_t k = 0; k < q->w->form.cols; k++) {
    const double by = q->bytes == 1 ? x[k] * x_scale[k] : x[k];
    v += (q->terms[k] - q->low_terms[k]) * by;
    size += (fabs(q->terms[k]) + fabs(q->low_terms[k])) * fabs(by);
    lost += fabs(q->terms[k]) + fabs(q->low_terms[k]) + 4 * fabs(by);
    if (q->bytes == 1) lost += (fabs(q->pieces[k]) + fabs(q->low_pieces[k])) * fabs(x[k]);
  }
  *out_size = size;
  *out_lost = lost * (q->wide ? 0x1p-1074 : 0x1p-149);
  return v;
}

static void check_bound(const numbers *q, uint32_t tolerance, int64_t b, int64_t n) {
  const kit_data *d = q->d;
  const kit_shape *s = &d->shape;
  const int64_t K = s->K;
  const double got = kit_get(&d->a[Y], b, n), u = kit_graph_unit(d, tolerance);
  double size, lost;
  double pre = sum_of(q, q->x + b * K, q->scale + b * K, &size, &lost);
  double slack = kit_slack(d, tolerance, 2 * K + 8, size) + lost;
  if (s->bias != 0) pre += kit_get(&d->a[BIAS], 0, n);
  slack += 2 * u * fabs(pre);
  double want = bs_activation_value(s->activation, pre);
  if (s->activation != BS_ACT_NONE && isfinite(pre))
    slack = slack * bs_activation_slope(s->activation, pre - slack, pre + slack) +
            bs_activation_error(s->activation, pre, u) + 2 * u * fabs(want);
  if (s->residual != 0) want += kit_get(&d->a[RESIDUAL], b, n);
  slack += 2 * u * (fabs(want) + slack);
  /* Where the sum is no number the order decides which of NaN and the infinities comes out, and of -infinity
   * an activation may make 0. */
  const int fits = isfinite(want)                                      ? kit_within(s->y, got, want, slack)
                   : s->y == BS_F8E4M3 || s->activation != BS_ACT_NONE ? 1
                                                                       : !isfinite(got);
  if (!fits) wrong(d, b, n, got, "the fp64 oracle says", want, slack);
}

/* ---- judging ---------------------------------------------------------------------------------- */

static void judge_take(const kit_data *d) {
  for (int64_t b = 0; b < d->shape.B; b++) {
    const int64_t index = (int64_t)kit_get(&d->a[0], 0, b), row = index < 0 ? index + d->shape.N : index;
    for (int64_t k = 0; k < d->shape.K; k++) {
      const double got = kit_get(&d->a[1], b, k), want = (double)kit_q_value(d, row, k);
      if (!same_bits(d->shape.y, got, want)) wrong(d, b, k, got, "the weight there is", want, 0.0);
    }
  }
}

static void judge_whole(const numbers *q, int64_t b, int64_t n) {
  const kit_data *d = q->d;
  int64_t sum = 0;
  for (int64_t k = 0; k < d->shape.K; k++) sum += (int64_t)(q->pieces[k] * q->x[b * d->shape.K + k]);
  kit_check_value(d, BS_I32, 0, b, n, kit_get(&d->a[Y], b, n), kit_wrapped(BS_I32, (double)sum), 0.0);
}

void kit_q_judge(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  numbers q;
  (void)special; /* the values are what they are */
  if (kit_is_take_q(d->op)) {
    judge_take(d);
    return;
  }
  numbers_make(&q, d);
  for (int64_t n = 0; n < s->N; n++) {
    numbers_row(&q, n);
    for (int64_t b = 0; b < s->B; b++) {
      const double *x = q.x + b * s->K;
      if (q.bytes == 2) {
        judge_whole(&q, b, n);
        continue;
      }
      if (tolerance == BS_TOL_EXACT)
        check_in_order(&q, b, n,
                       q.bytes ? bytes_in_order(&q, x, q.scale + b * s->K, n) : floats_in_order(&q, x, n));
      if (tolerance != BS_TOL_EXACT || s->B * s->N * s->K <= BOTH) check_bound(&q, tolerance, b, n);
    }
  }
  numbers_free(&q);
}
