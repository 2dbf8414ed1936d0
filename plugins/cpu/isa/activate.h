/* SPDX-License-Identifier: MIT
 *
 * activate.h - relu, gelu and silu of f32 in place, from one source for every instruction set. NaN,
 * infinities and zeros give the results of IEEE 754 for the formulas in docs/ops.md: -Inf gives NaN (except
 * relu), an underflow keeps its sign.
 *
 * gelu and silu use double: their exponential multiplies the rounding of its argument by up to 100, and a
 * correction in f32 costs about as much as the second half of the vector.
 *
 * Both polynomials are fitted to the relative error (reweighted least squares, Lawson): 2.0e-9 and 1.5e-8.
 * Measured against the C library's double over every float of magnitude 2^-15 .. 15 and every 256th of the
 * rest: gelu within 0.77, silu within 0.54 units in the last place, on all instruction sets. */
#ifndef BS_PLUGINS_CPU_ISA_ACTIVATE_H
#define BS_PLUGINS_CPU_ISA_ACTIVATE_H

#include <stdint.h>
#include <string.h>

#define ROUND 0x1.8p52 /* added to a small number: its nearest integer is in the low bits */
#define LOG2_E 1.4426950408889634

/* 2^(a scale) between 2^-1022 and 2^1023; zero down to -1023, infinity up to 1024. */
INLINE dbl dbl_exp2(dbl a, dbl scale) {
  const dbl t = dbl_fma(a, scale, dbl_set1(ROUND));
  const dbl r = dbl_fma(a, scale, dbl_sub(dbl_set1(ROUND), t));
  dbl p = dbl_set1(0.000153532995805);
  p = dbl_fma(p, r, dbl_set1(0.00133989518012));
  p = dbl_fma(p, r, dbl_set1(0.00961843810297));
  p = dbl_fma(p, r, dbl_set1(0.0555033228639));
  p = dbl_fma(p, r, dbl_set1(0.240226479036));
  p = dbl_fma(p, r, dbl_set1(0.693147202933));
  p = dbl_fma(p, r, dbl_set1(1.0));
  return dbl_mul(p, dbl_pow2(t));
}

/* (k - y) exp(y^2 / 2) Phi(y) at t = (k + y) / (k - y), k = 3.75, -14.6 <= y <= 0. */
INLINE dbl dbl_tail(dbl t) {
  dbl g = dbl_set1(0.000443448745222);
  g = dbl_fma(g, t, dbl_set1(-0.000509627328029));
  g = dbl_fma(g, t, dbl_set1(-0.00416901763087));
  g = dbl_fma(g, t, dbl_set1(-0.00120007427749));
  g = dbl_fma(g, t, dbl_set1(0.037492506368));
  g = dbl_fma(g, t, dbl_set1(0.151520835214));
  g = dbl_fma(g, t, dbl_set1(0.352939604253));
  g = dbl_fma(g, t, dbl_set1(0.588188277658));
  return dbl_fma(g, t, dbl_set1(0.750294074215));
}

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|), Phi(y) = exp(-y^2 / 2) tail. The exponential is zero beyond the range
 * of y. */
INLINE dbl dbl_gelu(dbl x) {
  const dbl y = dbl_max(dbl_negabs(x), dbl_set1(-37.66)), k = dbl_set1(3.75);
  const dbl w = dbl_div(dbl_set1(1.0), dbl_sub(k, y));
  const dbl phi = dbl_mul(dbl_tail(dbl_mul(dbl_add(k, y), w)), w);
  const dbl e = dbl_exp2(dbl_mul(y, y), dbl_set1(-0.5 * LOG2_E));
  return dbl_fma(dbl_mul(dbl_min(x, y), phi), e, dbl_max(dbl_set1(-0.0), x)); /* min: -|x|, or y */
}

/* x / (1 + exp(-x)); the exponential is infinity beyond the range of -x. */
INLINE dbl dbl_silu(dbl x) {
  const dbl v = dbl_max(dbl_min(x, dbl_set1(700.0)), dbl_set1(-709.7));
  return dbl_div(x, dbl_add(dbl_set1(1.0), dbl_exp2(v, dbl_set1(-LOG2_E))));
}

/* x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3), which is x (1 + tanh(u)) / 2; as silu. */
INLINE dbl dbl_gelu_tanh(dbl x) {
  const dbl one = dbl_set1(1.0), k = dbl_set1(-2.0 * 0.79788456080286535588);
  const dbl u = dbl_mul(dbl_mul(k, x), dbl_fma(dbl_set1(0.044715), dbl_mul(x, x), one));
  const dbl v = dbl_min(dbl_set1(709.7), dbl_max(dbl_set1(-700.0), u)); /* NaN stays */
  return dbl_div(x, dbl_add(one, dbl_exp2(v, dbl_set1(LOG2_E))));
}

/* -0 before +0, so that the zero of v is kept, and NaN. */
INLINE vec relu(vec v) {
  return vec_max(vec_set1(0.0f), v);
}

INLINE vec gelu(vec v) {
  return vec_narrow(dbl_gelu(dbl_first(v)), dbl_gelu(dbl_second(v)));
}

INLINE vec silu(vec v) {
  return vec_narrow(dbl_silu(dbl_first(v)), dbl_silu(dbl_second(v)));
}

INLINE vec gelu_tanh(vec v) {
  return vec_narrow(dbl_gelu_tanh(dbl_first(v)), dbl_gelu_tanh(dbl_second(v)));
}

/* The last few values go through a whole vector: a value's bits do not depend on its place. */
INLINE void activate(vec (*f)(vec), float *v, int64_t n) {
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(v + i, f(vec_load(v + i)));
  if (i == n) return;
  float last[VEC] = {0};
  const size_t bytes = (size_t)(n - i) * sizeof *v;
  memcpy(last, v + i, bytes);
  vec_store(last, f(vec_load(last)));
  memcpy(v + i, last, bytes);
}

static void activate_relu(float *v, int64_t n) {
  activate(relu, v, n);
}

static void activate_gelu(float *v, int64_t n) {
  activate(gelu, v, n);
}

static void activate_silu(float *v, int64_t n) {
  activate(silu, v, n);
}

static void activate_gelu_tanh(float *v, int64_t n) {
  activate(gelu_tanh, v, n);
}

#undef ROUND
#undef LOG2_E
#endif
