/* SPDX-License-Identifier: MIT
 *
 * optimizer.h - the training functions of an instruction set's table: the steps of SGD and AdamW on a run of
 * weights, and dY times the slope of an activation. Multiply-adds are explicit, so that the bits are those of
 * the instruction set and not of the compiler. Slopes of gelu and silu use double like the functions
 * themselves (activate.h). */
#ifndef BS_PLUGINS_CPU_ISA_OPTIMIZER_H
#define BS_PLUGINS_CPU_ISA_OPTIMIZER_H

#include <string.h>

#include "activate.h"

#define LOG2_E 1.4426950408889634

/* hyper: lr, momentum, weight_decay. v NULL: no velocity. */
INLINE vec sgd_one(vec w, vec dw, vec *v, const float *hyper) {
  vec g = vec_fma(vec_set1(hyper[2]), w, dw);
  if (v != NULL) g = *v = vec_fma(vec_set1(hyper[1]), *v, g);
  return vec_fma(vec_set1(-hyper[0]), g, w);
}

static void sgd(float *w, const float *dw, float *v, const float *hyper, int64_t n) {
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) {
    vec speed = vec_load(v != NULL ? v + i : w + i);
    vec_store(w + i, sgd_one(vec_load(w + i), vec_load(dw + i), v != NULL ? &speed : NULL, hyper));
    if (v != NULL) vec_store(v + i, speed);
  }
  if (i == n) return;
  float last[3][VEC] = {{0}};
  const size_t bytes = (size_t)(n - i) * sizeof *w;
  memcpy(last[0], w + i, bytes);
  memcpy(last[1], dw + i, bytes);
  if (v != NULL) memcpy(last[2], v + i, bytes);
  vec speed = vec_load(last[2]);
  vec_store(last[0], sgd_one(vec_load(last[0]), vec_load(last[1]), v != NULL ? &speed : NULL, hyper));
  vec_store(last[2], speed);
  memcpy(w + i, last[0], bytes);
  if (v != NULL) memcpy(v + i, last[2], bytes);
}

/* m (1 - a) + a g, computed as m - a m + a g: 1 - a in f32 would have a large relative error for a small
 * a. */
INLINE vec moment(vec m, vec a, vec g) {
  return vec_fma(a, g, vec_fma(vec_set1(0.0f) - a, m, m));
}

/* hyper: lr, 1 - beta1, 1 - beta2, eps, weight_decay, and the corrections of the moments' bias. */
INLINE vec adamw_one(vec w, vec g, vec *m, vec *v, const float *hyper) {
  *m = moment(*m, vec_set1(hyper[1]), g);
  *v = moment(*v, vec_set1(hyper[2]), g * g);
  const vec root = vec_add(vec_sqrt(vec_set1(hyper[6]) * *v), vec_set1(hyper[3]));
  const vec change = vec_fma(vec_set1(hyper[4]), w, vec_set1(hyper[5]) * *m / root);
  return vec_fma(vec_set1(-hyper[0]), change, w);
}

static void adamw(float *w, const float *dw, float *m, float *v, const float *hyper, int64_t n) {
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) {
    vec first = vec_load(m + i), second = vec_load(v + i);
    vec_store(w + i, adamw_one(vec_load(w + i), vec_load(dw + i), &first, &second, hyper));
    vec_store(m + i, first);
    vec_store(v + i, second);
  }
  if (i == n) return;
  float last[4][VEC] = {{0}};
  const size_t bytes = (size_t)(n - i) * sizeof *w;
  memcpy(last[0], w + i, bytes);
  memcpy(last[1], dw + i, bytes);
  memcpy(last[2], m + i, bytes);
  memcpy(last[3], v + i, bytes);
  vec first = vec_load(last[2]), second = vec_load(last[3]);
  vec_store(last[0], adamw_one(vec_load(last[0]), vec_load(last[1]), &first, &second, hyper));
  vec_store(last[2], first);
  vec_store(last[3], second);
  memcpy(w + i, last[0], bytes);
  memcpy(m + i, last[2], bytes);
  memcpy(v + i, last[3], bytes);
}

/* Phi(x) + x phi(x), from Phi(-|x|) and a step function that is 0 up to x = 0 and 1 above it. */
INLINE dbl dbl_gelu_slope(dbl x) {
  const dbl y = dbl_max(dbl_negabs(x), dbl_set1(-37.66)), k = dbl_set1(3.75);
  const dbl w = dbl_div(dbl_set1(1.0), dbl_sub(k, y));
  const dbl e = dbl_exp2(dbl_mul(y, y), dbl_set1(-0.5 * LOG2_E));
  const dbl low = dbl_mul(dbl_mul(dbl_tail(dbl_mul(dbl_add(k, y), w)), w), e);
  const dbl step = dbl_min(dbl_max(dbl_mul(x, dbl_set1(1e200)), dbl_set1(0.0)), dbl_set1(1.0));
  const dbl phi = dbl_fma(dbl_sub(dbl_set1(1.0), dbl_add(step, step)), low, step);
  return dbl_fma(dbl_mul(x, dbl_set1(0.39894228040143267794)), e, phi);
}

/* s (1 + x (1 - s)), s = 1 / (1 + exp(-x)) */
INLINE dbl dbl_silu_slope(dbl x) {
  const dbl v = dbl_max(dbl_min(x, dbl_set1(700.0)), dbl_set1(-709.7)), one = dbl_set1(1.0);
  const dbl s = dbl_div(one, dbl_add(one, dbl_exp2(v, dbl_set1(-LOG2_E))));
  return dbl_mul(s, dbl_fma(x, dbl_sub(one, s), one));
}

INLINE vec gelu_slope(vec z) {
  return vec_narrow(dbl_gelu_slope(dbl_first(z)), dbl_gelu_slope(dbl_second(z)));
}

INLINE vec silu_slope(vec z) {
  return vec_narrow(dbl_silu_slope(dbl_first(z)), dbl_silu_slope(dbl_second(z)));
}

/* z is overwritten with dy times its slope. */
INLINE void times_slope(vec (*f)(vec), float *z, const float *dy, int64_t n) {
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(z + i, vec_load(dy + i) * f(vec_load(z + i)));
  if (i == n) return;
  float last[2][VEC] = {{0}};
  const size_t bytes = (size_t)(n - i) * sizeof *z;
  memcpy(last[0], z + i, bytes);
  memcpy(last[1], dy + i, bytes);
  vec_store(last[0], vec_load(last[1]) * f(vec_load(last[0])));
  memcpy(z + i, last[0], bytes);
}

static void slope_relu(float *z, const float *dy, int64_t n) {
  for (int64_t i = 0; i < n; i++) z[i] = dy[i] * (z[i] > 0.0f ? 1.0f : z[i] <= 0.0f ? 0.0f : z[i]);
}

static void slope_gelu(float *z, const float *dy, int64_t n) {
  times_slope(gelu_slope, z, dy, n);
}

static void slope_silu(float *z, const float *dy, int64_t n) {
  times_slope(silu_slope, z, dy, n);
}

#undef LOG2_E
#endif
