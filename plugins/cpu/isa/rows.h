/* SPDX-License-Identifier: MIT
 *
 * rows.h - the operations of normalize on a row of f32: sums, the largest value, powers, and the last step.
 * One source for every instruction set. Sums always have 64 lanes, which are then added in pairs, so that a
 * row's bits depend only on the row. */
#ifndef BS_PLUGINS_CPU_ISA_ROWS_H
#define BS_PLUGINS_CPU_ISA_ROWS_H

#include "attention.h"

#define ROW_LANES 64
#define ROW_VECTORS (ROW_LANES / VEC)

INLINE float row_fold(const vec *sums) {
  float lanes[ROW_LANES];
  for (int j = 0; j < ROW_VECTORS; j++) vec_store(lanes + (int64_t)j * VEC, sums[j]);
  for (int half = ROW_LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}

/* The last elements of a row of n, filled up with `fill`. */
INLINE void row_end(float *end, const float *x, int64_t n, float fill) {
  const int64_t whole = n / ROW_LANES * ROW_LANES;
  for (int i = 0; i < ROW_LANES; i++) end[i] = fill;
  memcpy(end, x + whole, (size_t)(n - whole) * sizeof *x);
}

static float row_sum(const float *x, int64_t n) {
  vec sums[ROW_VECTORS];
  float end[ROW_LANES];
  int64_t i = 0;
  for (int j = 0; j < ROW_VECTORS; j++) sums[j] = vec_set1(0.0f);
  for (; i + ROW_LANES <= n; i += ROW_LANES)
    for (int j = 0; j < ROW_VECTORS; j++) sums[j] = vec_add(sums[j], vec_load(x + i + (int64_t)j * VEC));
  row_end(end, x, n, 0.0f);
  for (int j = 0; i < n && j < ROW_VECTORS; j++) sums[j] = vec_add(sums[j], vec_load(end + (int64_t)j * VEC));
  return row_fold(sums);
}

/* Sum of (x - shift)^2. */
static float row_squares(const float *x, float shift, int64_t n) {
  const vec by = vec_set1(shift);
  vec sums[ROW_VECTORS];
  float end[ROW_LANES];
  int64_t i = 0;
  for (int j = 0; j < ROW_VECTORS; j++) sums[j] = vec_set1(0.0f);
  for (; i + ROW_LANES <= n; i += ROW_LANES)
    for (int j = 0; j < ROW_VECTORS; j++) {
      const vec d = vec_load(x + i + (int64_t)j * VEC) - by;
      sums[j] = vec_fma(d, d, sums[j]);
    }
  row_end(end, x, n, shift);
  for (int j = 0; i < n && j < ROW_VECTORS; j++) {
    const vec d = vec_load(end + (int64_t)j * VEC) - by;
    sums[j] = vec_fma(d, d, sums[j]);
  }
  return row_fold(sums);
}

/* The largest value; of a row with NaN any. -INFINITY of no elements. */
static float row_largest(const float *x, int64_t n) {
  float lanes[VEC], largest = -INFINITY;
  vec most = vec_set1(-INFINITY);
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) most = vec_max(vec_load(x + i), most); /* passes over NaN */
  vec_store(lanes, most);
  for (int j = 0; j < VEC; j++) largest = lanes[j] > largest ? lanes[j] : largest;
  for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

/* e^x within 2 ulp for -87.3 <= x <= 0; 0 below; NaN stays. 2^n e^r with |r| <= ln 2 / 2; n ln 2 is
 * subtracted in two parts, the first of which has few digits. */
INLINE vec row_exp(vec x) {
  const vec low = vec_set1(-87.3f), round = vec_set1(0x1.8p23f);
  const vec v = vec_max(low, x); /* the second where it is NaN */
  const vec t = vec_fma(v, vec_set1(1.44269504f), round), n = t - round;
  const vec r = vec_fma(n, vec_set1(-1.42860677e-06f), vec_fma(n, vec_set1(-0.693145752f), v));
  vec p = vec_set1(0.00139304f);
  p = vec_fma(p, r, vec_set1(0.00836164f));
  p = vec_fma(p, r, vec_set1(0.0416667f));
  p = vec_fma(p, r, vec_set1(0.16666653f));
  p = vec_fma(p, r, vec_set1(0.5f));
  p = vec_fma(p * r, r, r) + vec_set1(1.0f);
  const vec_words power = (vec_words)p + ((vec_words)t << 23);
  const vec_words below = (vec_words)(x < low), nan = (vec_words)(((vec_words)x << 1) > 0xff000000u);
  return (vec)((power & ~below & ~nan) | ((vec_words)x & nan));
}

/* out = e^(x - shift), shift the largest of x; their sum. out may be x. */
static float row_powers(float *out, const float *x, float shift, int64_t n) {
  const vec by = vec_set1(shift);
  vec sums[ROW_VECTORS];
  float end[ROW_LANES];
  int64_t i = 0;
  for (int j = 0; j < ROW_VECTORS; j++) sums[j] = vec_set1(0.0f);
  for (; i + ROW_LANES <= n; i += ROW_LANES)
    for (int j = 0; j < ROW_VECTORS; j++) {
      const vec p = row_exp(vec_load(x + i + (int64_t)j * VEC) - by);
      vec_store(out + i + (int64_t)j * VEC, p);
      sums[j] = vec_add(sums[j], p);
    }
  if (i == n) return row_fold(sums);
  row_end(end, x, n, -INFINITY);
  for (int j = 0; j < ROW_VECTORS; j++)
    vec_store(end + (int64_t)j * VEC, vec_load(end + (int64_t)j * VEC) - by);
  for (int64_t k = n - i; k < ROW_LANES; k++) end[k] = -INFINITY; /* also where shift is -INFINITY */
  for (int j = 0; j < ROW_VECTORS; j++) {
    const vec p = row_exp(vec_load(end + (int64_t)j * VEC));
    vec_store(end + (int64_t)j * VEC, p);
    sums[j] = vec_add(sums[j], p);
  }
  memcpy(out + i, end, (size_t)(n - i) * sizeof *out);
  return row_fold(sums);
}

INLINE vec row_finish_vec(vec x, vec shift, vec scale, const float *gamma, const float *beta) {
  vec v = (x - shift) * scale;
  if (gamma != NULL) v = v * vec_load(gamma);
  return beta != NULL ? vec_add(v, vec_load(beta)) : v;
}

/* out = (x - shift) scale gamma + beta; gamma and beta may be NULL, out may be x. */
static void row_finish(float *out, const float *x, float shift, float scale, const float *gamma,
                       const float *beta, int64_t n) {
  const vec by = vec_set1(shift), with = vec_set1(scale);
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC)
    vec_store(out + i, row_finish_vec(vec_load(x + i), by, with, gamma != NULL ? gamma + i : NULL,
                                      beta != NULL ? beta + i : NULL));
  for (; i < n; i++) {
    float v = (x[i] - shift) * scale;
    if (gamma != NULL) v *= gamma[i];
    out[i] = beta != NULL ? v + beta[i] : v;
  }
}

static const cpu_rows_fns row_fns = {row_sum, row_squares, row_largest, row_powers, row_finish};

#endif
