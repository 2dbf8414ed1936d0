/* SPDX-License-Identifier: MIT
 * check_layer.h - one linear layer as somebody else computes it: products and sums in f32 (f64 for f64), the
 * activation as usual libraries write it, with the faults that a test asks for. */
#ifndef TESTS_LAB_CHECK_LAYER_H
#define TESTS_LAB_CHECK_LAYER_H
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/check/check.h"
#include "tests/run_tests.h"

enum { MOST = 64, RANKS = 8 };

typedef struct layer {
  int B, N, K, P;
  uint32_t dtype, activation, seed;
  int stored;                                        /* the sum is rounded to dtype before the activation */
  double scale, shift;                               /* of X, and of the bias */
  double x[MOST * MOST], w[MOST * MOST], bias[MOST]; /* values of dtype */
  double partial[RANKS][MOST * MOST], y[MOST * MOST];
} layer;

static inline double rounded(uint32_t dtype, double value) {
  uint64_t room = 0;
  bs_store_f64(dtype, &room, 0, value);
  return bs_load_f64(dtype, &room, 0);
}

/* About normal. */
static inline double draw(uint32_t *state) {
  double sum = 0;
  for (int i = 0; i < 12; i++) {
    *state = *state * 1664525u + 1013904223u;
    sum += (double)(*state >> 8) / 16777216.0;
  }
  return sum - 6.0;
}

/* erf of Abramowitz and Stegun 7.1.26, as PyTorch has it in f32: 1.5e-7 off. */
static inline float rough_erf(float x) {
  const float a = fabsf(x), t = 1.0f / (1.0f + 0.3275911f * a);
  const float sum =
      ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  return copysignf(1.0f - sum * expf(-a * a), x);
}

/* The usual formulas, each in f32. */
static inline double usual(uint32_t activation, double z, int wide) {
  const float s = (float)z;
  if (activation == BS_ACT_RELU) return z > 0 || isnan(z) ? z : 0;
  if (wide && activation == BS_ACT_GELU) return 0.5 * z * (1.0 + erf(z * 0.70710678118654752));
  if (wide && activation == BS_ACT_SILU) return z / (1.0 + exp(-z));
  if (wide && activation == BS_ACT_GELU_TANH)
    return 0.5 * z * (1.0 + tanh(0.79788456080286536 * (z + 0.044715 * z * z * z)));
  if (activation == BS_ACT_GELU) return 0.5f * s * (1.0f + rough_erf(s * 0.70710678f));
  if (activation == BS_ACT_SILU) return s / (1.0f + expf(-s));
  if (activation == BS_ACT_GELU_TANH)
    return 0.5f * s * (1.0f + tanhf(0.79788456f * (s + 0.044715f * s * s * s)));
  return z;
}

static inline void make_inputs(layer *l) {
  uint32_t state = 77u + 1000u * l->seed;
  for (int i = 0; i < l->B * l->K; i++) l->x[i] = rounded(l->dtype, l->scale * draw(&state));
  for (int i = 0; i < l->N * l->K; i++) l->w[i] = rounded(l->dtype, draw(&state) / sqrt(l->K));
  for (int i = 0; i < l->N; i++) l->bias[i] = rounded(l->dtype, draw(&state) + l->shift);
}

/* Rank r has columns r*K/P .. (r+1)*K/P - 1. */
static inline int first_column(const layer *l, int r) {
  return r * l->K / l->P;
}

static inline void make_partials(layer *l) {
  const int wide = l->dtype == BS_F64;
  for (int r = 0; r < l->P; r++) {
    for (int at = 0; at < l->B * l->N; at++) {
      const double *x = l->x + at / l->N * l->K, *w = l->w + at % l->N * l->K;
      double sum = 0;
      for (int k = first_column(l, r); k < first_column(l, r + 1); k++)
        sum = wide ? sum + x[k] * w[k] : (double)(float)(sum + (double)(float)(x[k] * w[k]));
      l->partial[r][at] = sum;
    }
  }
}

static inline double output_of(const layer *l, double sum) {
  const int wide = l->dtype == BS_F64;
  if (l->stored) sum = rounded(l->dtype, sum);
  return rounded(l->dtype, usual(l->activation, sum, wide));
}

/* Y of the partials, and the bias behind them. */
static inline void make_outputs(layer *l) {
  for (int at = 0; at < l->B * l->N; at++) {
    double sum = 0;
    for (int r = 0; r < l->P; r++)
      sum = l->dtype == BS_F64 ? sum + l->partial[r][at] : (double)(float)(sum + l->partial[r][at]);
    sum = l->dtype == BS_F64 ? sum + l->bias[at % l->N] : (double)(float)(sum + l->bias[at % l->N]);
    l->y[at] = output_of(l, sum);
  }
}

static inline void make_layer(layer *l) {
  make_inputs(l);
  make_partials(l);
  make_outputs(l);
}

/* ---- as a set of tensors ---- */

static inline void put(bs_check_list *list, uint32_t r, uint32_t dtype, int rows, int cols,
                       const double *values) {
  bs_check_tensor *t = &list->of[r];
  const size_t count = (size_t)rows * (size_t)cols;
  *t = (bs_check_tensor){rows, cols, dtype, malloc(count * 8 + 1)};
  for (size_t i = 0; i < count; i++) bs_store_f64(dtype, t->data, (int64_t)i, values[i]);
  if (r >= list->n) list->n = r + 1;
}

static inline void put_columns(const layer *l, bs_check_set *set) {
  double columns[MOST];
  for (int r = 0; r < l->P; r++) {
    const int first = first_column(l, r), n = first_column(l, r + 1) - first;
    for (int i = 0; i < n; i++) columns[i] = first + i;
    put(&set->columns, (uint32_t)r, BS_I32, 1, n, columns);
  }
}

static inline void put_partials(const layer *l, bs_check_set *set) {
  for (int r = 0; r < l->P; r++)
    put(&set->partial, (uint32_t)r, l->dtype == BS_F64 ? BS_F64 : BS_F32, l->B, l->N, l->partial[r]);
}

/* X, W, the bias and Y. The caller frees. */
static inline bs_check_set *set_of(const layer *l) {
  bs_check_set *set = calloc(1, sizeof *set);
  put(&set->x, 0, l->dtype, l->B, l->K, l->x);
  put(&set->w, 0, l->dtype, l->N, l->K, l->w);
  put(&set->bias, 0, l->dtype, 1, l->N, l->bias);
  put(&set->y, 0, l->dtype, l->B, l->N, l->y);
  return set;
}

static inline void judge(bs_check_set *set, const bs_check_options *options, bs_check_result *out) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_check_judge(set, options, out, &err) == BS_OK, "%s %s", err.id, err.message);
  bs_check_free(set);
  free(set);
}

static inline const bs_gate *gate_in(const bs_check_result *r, const char *name) {
  for (uint32_t g = 0; g < r->n_gates; g++)
    if (strcmp(r->gates[g].name, name) == 0) return &r->gates[g];
  return NULL;
}

/* "T1 FAIL 2 (limit 1) ..", for a message. */
static inline const char *failures(const bs_check_result *r) {
  static char text[600];
  text[0] = '\0';
  for (uint32_t g = 0; g < r->n_gates; g++) {
    const size_t at = strlen(text);
    if (r->gates[g].state == BS_GATE_FAIL)
      snprintf(text + at, sizeof text - at, "%s %.4g (limit %.4g); ", r->gates[g].name, r->gates[g].value,
               r->gates[g].limit);
  }
  return text;
}
#endif
