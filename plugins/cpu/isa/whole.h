/* SPDX-License-Identifier: MIT
 *
 * whole.h - between f32 or 64 bits and integers of 8 and 32 bits, the ends of a row of f32, and frequent
 * steps in 64 bits. Plain loops over whole blocks, which compilers make vectors of; the bits are the same on
 * every instruction set. */
#ifndef BS_PLUGINS_CPU_ISA_WHOLE_H
#define BS_PLUGINS_CPU_ISA_WHOLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define WHOLE_STEP 64

#define WHOLE_LOAD(name, to, from)                                          \
  static void name(to *restrict dst, const void *restrict src, int64_t n) { \
    const from *s = src;                                                    \
    int64_t i = 0;                                                          \
    for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)                            \
      for (int v = 0; v < WHOLE_STEP; v++) dst[i + v] = (to)s[i + v];       \
    for (; i < n; i++) dst[i] = (to)s[i];                                   \
  }
WHOLE_LOAD(load_i8, float, int8_t)
WHOLE_LOAD(load_u8, float, uint8_t)
WHOLE_LOAD(load_i32, float, int32_t)
WHOLE_LOAD(i64_of_i8, int64_t, int8_t)
WHOLE_LOAD(i64_of_u8, int64_t, uint8_t)
WHOLE_LOAD(i64_of_i32, int64_t, int32_t)

/* Towards zero, not beyond the ends; NaN becomes 0. The ends are exact in f32, but for that of i32. */
INLINE int32_t whole_of(float v, float least, float most) {
  const float number = v == v ? v : 0.0f, low = number > least ? number : least;
  return (int32_t)(low < most ? low : most);
}

INLINE int32_t whole_of_i32(float v) {
  const int32_t whole = whole_of(v, -2147483648.0f, 2147483520.0f);
  return v >= 2147483648.0f ? INT32_MAX : whole;
}

static void store_i8(void *restrict dst, const float *restrict src, int64_t n) {
  int8_t *d = dst;
  int64_t i = 0;
  for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)
    for (int v = 0; v < WHOLE_STEP; v++) d[i + v] = (int8_t)whole_of(src[i + v], -128.0f, 127.0f);
  for (; i < n; i++) d[i] = (int8_t)whole_of(src[i], -128.0f, 127.0f);
}

static void store_u8(void *restrict dst, const float *restrict src, int64_t n) {
  uint8_t *d = dst;
  int64_t i = 0;
  for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)
    for (int v = 0; v < WHOLE_STEP; v++) d[i + v] = (uint8_t)whole_of(src[i + v], 0.0f, 255.0f);
  for (; i < n; i++) d[i] = (uint8_t)whole_of(src[i], 0.0f, 255.0f);
}

static void store_i32(void *restrict dst, const float *restrict src, int64_t n) {
  int32_t *d = dst;
  int64_t i = 0;
  for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)
    for (int v = 0; v < WHOLE_STEP; v++) d[i + v] = whole_of_i32(src[i + v]);
  for (; i < n; i++) d[i] = whole_of_i32(src[i]);
}

/* The smallest and the largest of *least, *most and n values; both NaN where a value is. */
static void ends_of_row(const float *x, int64_t n, float *least, float *most) {
  float low[WHOLE_STEP], high[WHOLE_STEP];
  int32_t none[WHOLE_STEP] = {0};
  int64_t i = 0;
  for (int v = 0; v < WHOLE_STEP; v++) low[v] = *least, high[v] = *most;
  for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)
    for (int v = 0; v < WHOLE_STEP; v++) {
      const float a = x[i + v];
      low[v] = a < low[v] ? a : low[v];
      high[v] = a > high[v] ? a : high[v];
      none[v] |= -(a != a);
    }
  for (int v = 0; i < n; i++, v++) {
    low[v] = x[i] < low[v] ? x[i] : low[v];
    high[v] = x[i] > high[v] ? x[i] : high[v];
    none[v] |= -(x[i] != x[i]);
  }
  int32_t any = *least != *least || *most != *most;
  for (int v = 0; v < WHOLE_STEP; v++) {
    *least = low[v] < *least ? low[v] : *least;
    *most = high[v] > *most ? high[v] : *most;
    any |= none[v];
  }
  if (any != 0) *least = *most = NAN;
}

/* ---- 64 bits -------------------------------------------------------------------------------------- */

/* The low bits. */
#define I64_STORE(name, type)                                                     \
  static void name(void *restrict dst, const int64_t *restrict src, int64_t n) {  \
    type *d = dst;                                                                \
    int64_t i = 0;                                                                \
    for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)                                  \
      for (int v = 0; v < WHOLE_STEP; v++) d[i + v] = (type)(uint64_t)src[i + v]; \
    for (; i < n; i++) d[i] = (type)(uint64_t)src[i];                             \
  }
I64_STORE(bytes_of_i64, uint8_t)
I64_STORE(u32_of_i64, uint32_t)

/* Modulo 2^64; out may be an operand. */
#define I64_STEP(name, value)                                                                          \
  static void name(int64_t *out, const int64_t *a, const int64_t *b, int64_t n) {                      \
    uint64_t *to = (uint64_t *)out;                                                                    \
    const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;                                 \
    uint64_t one[WHOLE_STEP];                                                                          \
    int64_t i = 0;                                                                                     \
    for (; i + WHOLE_STEP <= n; i += WHOLE_STEP, x += WHOLE_STEP, y += WHOLE_STEP, to += WHOLE_STEP) { \
      for (int v = 0; v < WHOLE_STEP; v++) one[v] = value;                                             \
      memcpy(to, one, sizeof one);                                                                     \
    }                                                                                                  \
    for (int v = 0; i < n; i++, v++) to[v] = value;                                                    \
  }
I64_STEP(i64_add, x[v] + y[v])
I64_STEP(i64_sub, x[v] - y[v])
I64_STEP(i64_mul, x[v] * y[v])

/* ---- f64 ------------------------------------------------------------------------------------------ */

static void f64_of_i32(double *dst, const int32_t *src, int64_t n) {
  int64_t i = 0;
  for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)
    for (int v = 0; v < WHOLE_STEP; v++) dst[i + v] = (double)src[i + v];
  for (; i < n; i++) dst[i] = (double)src[i];
}

static void f64_of_f32(double *dst, const float *src, int64_t n) {
  int64_t i = 0;
  for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)
    for (int v = 0; v < WHOLE_STEP; v++) dst[i + v] = (double)src[i + v];
  for (; i < n; i++) dst[i] = (double)src[i];
}

static void f32_of_f64(float *dst, const double *src, int64_t n) {
  int64_t i = 0;
  for (; i + WHOLE_STEP <= n; i += WHOLE_STEP)
    for (int v = 0; v < WHOLE_STEP; v++) dst[i + v] = (float)src[i + v];
  for (; i < n; i++) dst[i] = (float)src[i];
}

#define F64_STEP(name, value)                                                                          \
  static void name(double *out, const double *a, const double *b, int64_t n) {                         \
    const double *x = a, *y = b;                                                                       \
    double one[WHOLE_STEP], *to = out;                                                                 \
    int64_t i = 0;                                                                                     \
    for (; i + WHOLE_STEP <= n; i += WHOLE_STEP, x += WHOLE_STEP, y += WHOLE_STEP, to += WHOLE_STEP) { \
      for (int v = 0; v < WHOLE_STEP; v++) one[v] = value;                                             \
      memcpy(to, one, sizeof one);                                                                     \
    }                                                                                                  \
    for (int v = 0; i < n; i++, v++) to[v] = value;                                                    \
  }
F64_STEP(f64_add, x[v] + y[v])
F64_STEP(f64_sub, x[v] - y[v])
F64_STEP(f64_mul, x[v] * y[v])

#endif
