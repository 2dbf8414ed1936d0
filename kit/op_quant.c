/* SPDX-License-Identifier: MIT
 * op_quant.c - queries and oracles of quantize_groups, dequantize_sum and dequantize_product. docs/ops.md
 * defines scales, values and sums in the order of the terms to the bit. They are compared to the bit if the
 * answer is EXACT, and within a few roundings otherwise. Groups have K columns, values the dtype w. */
#include <math.h>

#include "kit/op.h"
#include "lab/activation.h"

enum { SUMS, ROWS, COLUMNS, BIAS, BASE, OUT }; /* args of dequantize_product */
static const double u32 = 0x1p-24;

static int quantizes(const kit_data *d) {
  return strcmp(d->op, "quantize_groups") == 0;
}
static int joins(const kit_data *d) {
  return strcmp(d->op, "dequantize_product") == 0;
}

int kit_is_quant(const char *op) {
  return strcmp(op, "quantize_groups") == 0 || strncmp(op, "dequantize_", 11) == 0 || kit_is_scaled(op);
}

int kit_has_base(const char *op) {
  return strcmp(op, "dequantize_product") == 0 || kit_is_scaled(op);
}
uint32_t kit_base(const kit_data *d) {
  return kit_is_scaled(d->op) ? BASE + 1 : BASE;
}

static const int64_t groups_[] = {1, 3, 32, 128, 5, 2, 16, 64, 1000};

/* Sets the dtypes that the schema requires, for any draw; and the columns of a group. */
void kit_quant_fit(const char *op, kit_shape *s) {
  static const uint32_t values[] = {BS_I8, BS_F8E4M3, BS_I8, BS_F8E5M2};
  if (!kit_is_quant(op)) return;
  if (kit_is_scaled(op)) {
    kit_scaled_fit(s);
    return;
  }
  const int product = strcmp(op, "dequantize_product") == 0;
  if (strcmp(op, "quantize_groups") == 0 || !bs_dtype_is_float(s->y)) s->y = BS_F32;
  s->x = BS_F32;
  s->w = product ? (uint32_t)BS_F32 : values[s->seed / 27 % 4];
  s->bias = product && s->bias != 0 ? BS_F32 : 0;
  s->residual = product && s->residual != 0 ? BS_F32 : 0;
  if (!product) s->activation = BS_ACT_NONE;
  s->K = groups_[s->seed % 9];
}

int64_t kit_quant_group(const kit_data *d) {
  return joins(d) ? 0 : kit_is_scaled(d->op) ? groups_[d->shape.seed % 9] : d->shape.K;
}

/* For quantize_groups: 1 if rows share their scales. */
static int64_t together(const kit_data *d) {
  return (int64_t)(d->shape.seed / 108 % 3 == 1);
}

int64_t kit_quant_terms(const kit_data *d) {
  if (quantizes(d)) return together(d);
  return 1 + (int64_t)(d->shape.seed / 9 % 3);
}

static int64_t groups_of(const kit_data *d, int64_t N) {
  return (N + d->shape.K - 1) / d->shape.K;
}

/* Columns of argument i of a query of N. */
static int64_t columns(const kit_data *d, uint32_t i, int64_t N) {
  const int64_t terms = kit_quant_terms(d), groups = groups_of(d, N);
  if (quantizes(d)) return i == 2 ? groups : N;
  if (joins(d)) return i == ROWS ? 1 : N;
  return i == 0 ? terms * N : i == 1 ? terms * groups : N;
}

void kit_quant_args(kit_data *d) {
  const kit_shape *s = &d->shape;
  const uint32_t dtypes[3][KIT_ARGS] = {
      {BS_F32, s->w, BS_F32}, {s->w, BS_F32, s->y}, {BS_I32, BS_F32, BS_F32, s->bias, s->residual, s->y}};
  const int which = quantizes(d) ? 0 : joins(d) ? 2 : 1;
  if (kit_is_scaled(d->op)) {
    kit_scaled_args(d);
    return;
  }
  d->nargs = which == 2 ? 6 : 3;
  for (uint32_t i = 0; i < d->nargs; i++) {
    const int vector = which == 2 && (i == COLUMNS || i == BIAS);
    if (dtypes[which][i] != 0)
      kit_tensor_make(&d->a[i], dtypes[which][i], vector ? 1 : 2, vector ? 1 : s->B, columns(d, i, s->N),
                      s->spread);
  }
}

static float largest(const kit_data *d) {
  return d->shape.w == BS_F8E4M3 ? 448.0f : d->shape.w == BS_F8E5M2 ? 57344.0f : 127.0f;
}

/* Rows of several sizes; of every third one most values lie in the middle between two integers. */
static void fill_floats(kit_data *d, uint64_t *seed) {
  for (int64_t b = 0; b < d->shape.B; b++)
    for (int64_t n = 0; n < d->shape.N; n++) {
      double v = ldexp(kit_get(&d->a[0], b, n), (int)(b % 5) * 9 - 18);
      if (b % 3 == 1) v = 0.125 * ((double)kit_below(seed, 251) - 125.5);
      if (b % 3 == 1 && n % d->shape.K == 0) v = (double)largest(d) * 0.125;
      if (b % 7 == 6) v = 0.0;
      kit_set(&d->a[0], b, n, v);
    }
}

void kit_quant_fill(kit_data *d, uint64_t *seed) {
  const kit_shape *s = &d->shape;
  if (kit_is_scaled(d->op)) return;
  if (quantizes(d)) {
    fill_floats(d, seed);
    return;
  }
  for (int64_t b = 0; b < s->B; b++) {
    for (int64_t n = 0; n < columns(d, 0, s->N); n++) {
      const int64_t any =
          joins(d) ? (int64_t)(int32_t)kit_next(seed) >> kit_below(seed, 24) : kit_below(seed, 255) - 127;
      kit_set(&d->a[0], b, n, (double)any);
    }
    if (joins(d)) kit_set(&d->a[ROWS], b, 0, ldexp(kit_get(&d->a[ROWS], b, 0), -20));
  }
}

kit_tensor *kit_quant_floats(kit_data *d) {
  return &d->a[quantizes(d) ? 0 : kit_has_base(d->op) ? kit_base(d) : 1];
}

void kit_quant_huge(kit_data *d, int64_t B, int64_t N) {
  if (kit_is_scaled(d->op)) {
    kit_scaled_huge(d, B, N);
    return;
  }
  for (uint32_t i = 0; i < d->nargs; i++) {
    bs_tensor_desc *desc = &d->a[i].d;
    if (d->a[i].block == NULL) continue;
    desc->dims[0] = desc->rank == 1 ? N : B;
    desc->dims[1] = desc->rank == 1 ? 0 : columns(d, i, N);
  }
}

/* ---- judging -------------------------------------------------------------------------------- */

static void check(const kit_data *d, const char *what, uint32_t dtype, int64_t b, int64_t n, double got,
                  double want, double slack) {
  if (!kit_within(dtype, got, want, slack))
    kit_fail("%s: %s [%lld,%lld] is %.9g, the definition gives %.9g, bound %.3g", kit_data_text(d), what,
             (long long)b, (long long)n, got, want, slack);
}

/* The largest magnitude of a group, of one row or of all; NaN stays. */
static float most_of(const kit_data *d, int64_t b, int64_t first, int64_t end) {
  const int64_t from = together(d) ? 0 : b, to = together(d) ? d->shape.B : b + 1;
  float most = 0.0f;
  for (int64_t r = from; r < to; r++)
    for (int64_t n = first; n < end; n++) {
      const float v = (float)fabs(kit_get(&d->a[0], r, n));
      if (!(v <= most) && !isnan(most)) most = v;
    }
  return most;
}

/* One group of a row: its scale, then what each value is of it. */
static void judge_group(const kit_data *d, int exact, int64_t b, int64_t g) {
  const int64_t first = g * d->shape.K,
                end = first + d->shape.K < d->shape.N ? first + d->shape.K : d->shape.N;
  const float most = most_of(d, b, first, end), limit = largest(d);
  const float want = isfinite(most) ? most / limit : NAN;
  const float scale = (float)kit_get(&d->a[2], b, g);
  check(d, "the scale", BS_F32, b, g, (double)scale, (double)want,
        exact ? 0.0 : 2 * u32 * fabs((double)want) + 0x1p-149);
  for (int64_t n = first; n < end; n++) {
    const float of = scale > 0.0f ? (float)kit_get(&d->a[0], b, n) / scale : 0.0f;
    const double near = (double)(of > limit ? limit : of < -limit ? -limit : of);
    const double got = kit_get(&d->a[1], b, n);
    if (!kit_within(d->shape.w, got, near, exact ? 0.0 : 4 * u32 * fabs(near)))
      kit_fail("%s: q [%lld,%lld] is %g, %.9g / %.9g is %.9g", kit_data_text(d), (long long)b, (long long)n,
               got, kit_get(&d->a[0], b, n), (double)scale, (double)of);
  }
}

/* Terms in their order, each product and each sum rounded. */
static void judge_sum(const kit_data *d, int exact, int special, int64_t b, int64_t n) {
  const int64_t terms = kit_quant_terms(d), groups = groups_of(d, d->shape.N);
  float sum = 0.0f;
  double size = 0.0;
  for (int64_t t = 0; t < terms; t++) {
    const float q = (float)kit_get(&d->a[0], b, t * d->shape.N + n);
    const float term = q * (float)kit_get(&d->a[1], b, t * groups + n / d->shape.K);
    sum = t == 0 ? term : sum + term;
    size += fabs((double)term);
  }
  const double slack = exact || special ? 0.0 : (double)(terms + 2) * u32 * size + 0x1p-149;
  if (special)
    kit_check_value(d, d->shape.y, 1, b, n, kit_get(&d->a[2], b, n), (double)sum, 0.0);
  else
    check(d, "out", d->shape.y, b, n, kit_get(&d->a[2], b, n), (double)sum, slack);
}

static void judge_product(const kit_data *d, int exact, int special, int64_t b, int64_t n) {
  const kit_shape *s = &d->shape;
  const int curved = kit_curved(s->activation);
  const float scaled = (float)kit_get(&d->a[SUMS], b, n) * (float)kit_get(&d->a[ROWS], b, 0);
  float v = scaled * (float)kit_get(&d->a[COLUMNS], 0, n);
  double size = fabs((double)v);
  if (s->residual != 0) {
    v += (float)kit_get(&d->a[BASE], b, n);
    size += fabs(kit_get(&d->a[BASE], b, n));
  }
  if (s->bias != 0) {
    v += (float)kit_get(&d->a[BIAS], 0, n);
    size += fabs(kit_get(&d->a[BIAS], 0, n));
  }
  const double in = (double)v, want = bs_activation_value(s->activation, in);
  double slack = exact ? 0.0 : 6 * u32 * size + 0x1p-149;
  if (!special && s->activation != BS_ACT_NONE)
    slack = slack * bs_activation_slope(s->activation, in - slack, in + slack);
  if (!special && curved)
    slack += bs_activation_error(s->activation, in, u32) + 2 * u32 * fabs(want) + (exact ? 0.0 : 0x1p-149);
  if (special)
    kit_check_value(d, s->y, 1, b, n, kit_get(&d->a[OUT], b, n), want, 0.0);
  else
    check(d, "out", s->y, b, n, kit_get(&d->a[OUT], b, n), want, slack);
}

void kit_quant_judge(const kit_data *d, uint32_t tolerance, int special) {
  const int exact = tolerance == BS_TOL_EXACT;
  if (kit_is_scaled(d->op)) {
    kit_scaled_judge(d, tolerance, special);
    return;
  }
  const int64_t per_row = quantizes(d) ? groups_of(d, d->shape.N) : d->shape.N;
  for (int64_t b = 0; b < d->shape.B; b++)
    for (int64_t i = 0; i < per_row; i++) {
      if (quantizes(d))
        judge_group(d, exact, b, i);
      else if (joins(d))
        judge_product(d, exact, special, b, i);
      else
        judge_sum(d, exact, special, b, i);
    }
}
