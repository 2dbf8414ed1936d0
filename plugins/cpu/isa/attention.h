/* SPDX-License-Identifier: MIT
 *
 * attention.h - the inner loops of attention beside its two products: a row of scores becomes powers, a row
 * of sums is scaled, and rows of V are added up for a few queries. Once for every instruction set: the file
 * that includes it has chosen `vec` before, which is a vector of the compiler's own kind everywhere. */
#ifndef BS_PLUGINS_CPU_ISA_ATTENTION_H
#define BS_PLUGINS_CPU_ISA_ATTENTION_H

#include <math.h>
#include <string.h>

#include "../kernels.h"

typedef uint32_t vec_words __attribute__((vector_size(4 * VEC)));

/* e^x within 2 ulp for -87.3 <= x <= 0; 0 below; NaN stays. 2^n e^r with |r| <= ln 2 / 2; n ln 2 is
 * subtracted in two parts, the first of which has few digits. */
INLINE vec attend_exp(vec x) {
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

INLINE float attend_fold(vec v, const int largest) {
  float lanes[VEC], all;
  vec_store(lanes, v);
  all = lanes[0];
  for (int i = 1; i < VEC; i++) all = !largest ? all + lanes[i] : lanes[i] > all ? lanes[i] : all;
  return all;
}

/* Scores of n more keys of one query, a multiple of 16, become e^(s - most); *most and *total are those of
 * all keys so far, and what was summed up before has to be scaled by the result. -INFINITY: not seen. NaN
 * spoils the total. */
static float attend(float *s, int64_t n, float *most, float *total) {
  vec here = vec_set1(-INFINITY), sums = vec_set1(0.0f);
  for (int64_t i = 0; i < n; i += VEC) here = vec_max(vec_load(s + i), here); /* passes over NaN */
  const float before = *most, tile = attend_fold(here, 1), now = tile > before ? tile : before;
  /* Nothing is seen so far: e^-inf is 0 beside any number. */
  const vec by = vec_set1(now == -INFINITY ? 0.0f : now);
  for (int64_t i = 0; i < n; i += VEC) {
    const vec p = attend_exp(vec_load(s + i) - by);
    vec_store(s + i, p);
    sums = sums + p;
  }
  float lanes[VEC];
  vec_store(lanes, attend_exp(vec_set1(now == before ? 0.0f : before - now)));
  *most = now;
  *total = *total * lanes[0] + attend_fold(sums, 0);
  return lanes[0];
}

/* v *= by, n a multiple of 16. */
static void attend_scale(float *v, float by, int64_t n) {
  for (int64_t i = 0; i < n; i += VEC) vec_store(v + i, vec_load(v + i) * vec_set1(by));
}

/* sums[i] += sum over `keys` of p[k] * v[k * ld + i], n of them, a multiple of 16. */
static void attend_gather(float *sums, const float *p, const float *v, int64_t ld, int64_t keys, int64_t n) {
  enum { ROW = 16 / VEC };
  for (int64_t i = 0; i < n; i += 16) {
    vec at[ROW];
    for (int j = 0; j < ROW; j++) at[j] = vec_load(sums + i + (int64_t)j * VEC);
    for (int64_t k = 0; k < keys; k++)
      for (int j = 0; j < ROW; j++)
        at[j] = vec_fma(vec_set1(p[k]), vec_load(v + k * ld + i + (int64_t)j * VEC), at[j]);
    for (int j = 0; j < ROW; j++) vec_store(sums + i + (int64_t)j * VEC, at[j]);
  }
}

#endif
