/* SPDX-License-Identifier: MIT
 *
 * f8.h - fp8 to f32 and back by bit operations, and dot products of widened values. One source for every
 * instruction set, with loops of whole vectors that compilers vectorize. The formats: OCP 8-bit Floating
 * Point Specification 1.0; conversions are those of core/base/dtype.c. */
#ifndef BS_PLUGINS_CPU_ISA_F8_H
#define BS_PLUGINS_CPU_ISA_F8_H

#include <string.h>

#include "../kernels.h"

#define F8_STEP 32 /* values of a whole iteration */

static inline float f8_float(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}
static inline uint32_t f8_bits(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

/* ---- to f32 ------------------------------------------------------------------------------------- */

/* Moves exponent and mantissa to their places in f32, and corrects the bias by a product: exact, also for
 * subnormals. */
static inline float widen_e4m3(uint8_t v) {
  const uint32_t low = v & 0x7fu;
  const uint32_t bits = f8_bits(f8_float(low << 20) * 0x1p120f);
  return f8_float((low == 0x7fu ? 0x7fc00000u : bits) | (uint32_t)(v & 0x80u) << 24);
}
static inline float widen_e5m2(uint8_t v) {
  const uint32_t low = v & 0x7fu;
  const uint32_t bits = f8_bits(f8_float(low << 21) * 0x1p112f);
  const uint32_t quiet = low > 0x7cu ? 0x400000u : 0u;
  return f8_float((low >= 0x7cu ? 0x7f800000u | low << 21 | quiet : bits) | (uint32_t)(v & 0x80u) << 24);
}

static void widen_f8e4m3(float *dst, const uint8_t *q, int64_t n) {
  int64_t i = 0;
  for (; i + F8_STEP <= n; i += F8_STEP)
    for (int v = 0; v < F8_STEP; v++) dst[i + v] = widen_e4m3(q[i + v]);
  for (; i < n; i++) dst[i] = widen_e4m3(q[i]);
}
static void widen_f8e5m2(float *dst, const uint8_t *q, int64_t n) {
  int64_t i = 0;
  for (; i + F8_STEP <= n; i += F8_STEP)
    for (int v = 0; v < F8_STEP; v++) dst[i + v] = widen_e5m2(q[i + v]);
  for (; i < n; i++) dst[i] = widen_e5m2(q[i]);
}

/* ---- from f32 by a scale ------------------------------------------------------------------------ */

/* Rounds `low` mantissa bits of f32 away, to the nearest, ties to even. Below the smallest normal number it
 * adds a number whose last place is the smallest subnormal one, which rounds. */
static inline uint8_t narrow_bits(float v, float most, uint32_t low, uint32_t rebias, float normal,
                                  float magic) {
  v = v > most ? most : v < -most ? -most : v;
  const uint32_t sign = f8_bits(v) >> 24 & 0x80u, bits = f8_bits(v) & 0x7fffffffu;
  const uint32_t rounded = bits + (1u << (low - 1)) - 1u + (bits >> low & 1u);
  const uint32_t small = f8_bits(f8_float(bits) + magic) - f8_bits(magic);
  return (uint8_t)(sign | (f8_float(bits) < normal ? small : (rounded >> low) - rebias));
}

static inline uint8_t narrow_e4m3(float v) {
  return narrow_bits(v, 448.0f, 20, (127 - 7) << 3, 0x1p-6f, 0x1p14f);
}
static inline uint8_t narrow_e5m2(float v) {
  return narrow_bits(v, 57344.0f, 21, (127 - 15) << 2, 0x1p-14f, 0x1p7f);
}

static void narrow_f8e4m3(void *out, const float *x, float scale, int64_t n) {
  uint8_t *q = out;
  int64_t i = 0;
  for (; i + F8_STEP <= n; i += F8_STEP)
    for (int v = 0; v < F8_STEP; v++) q[i + v] = narrow_e4m3(x[i + v] / scale);
  for (; i < n; i++) q[i] = narrow_e4m3(x[i] / scale);
}
static void narrow_f8e5m2(void *out, const float *x, float scale, int64_t n) {
  uint8_t *q = out;
  int64_t i = 0;
  for (; i + F8_STEP <= n; i += F8_STEP)
    for (int v = 0; v < F8_STEP; v++) q[i + v] = narrow_e5m2(x[i + v] / scale);
  for (; i < n; i++) q[i] = narrow_e5m2(x[i] / scale);
}

/* ---- without a scale ----
 * Beyond the largest value e4m3 saturates and e5m2 goes to infinity; NaN stays NaN. */

static void load_f8e4m3(float *dst, const void *src, int64_t n) {
  widen_f8e4m3(dst, src, n);
}
static void load_f8e5m2(float *dst, const void *src, int64_t n) {
  widen_f8e5m2(dst, src, n);
}

/* Halfway between the largest value and the next one that there would be. */
#define E5M2_INFINITE 61440.0f

static inline uint8_t round_e4m3(float v) {
  const uint8_t nan = (uint8_t)((f8_bits(v) >> 24 & 0x80u) | 0x7fu);
  return v != v ? nan : narrow_e4m3(v);
}
static inline uint8_t round_e5m2(float v) {
  const uint8_t sign = (uint8_t)(f8_bits(v) >> 24 & 0x80u);
  const int infinite = v >= E5M2_INFINITE || v <= -E5M2_INFINITE;
  return v != v ? (uint8_t)(sign | 0x7eu) : infinite ? (uint8_t)(sign | 0x7cu) : narrow_e5m2(v);
}

static void store_f8e4m3(void *dst, const float *src, int64_t n) {
  uint8_t *q = dst;
  int64_t i = 0;
  for (; i + F8_STEP <= n; i += F8_STEP)
    for (int v = 0; v < F8_STEP; v++) q[i + v] = round_e4m3(src[i + v]);
  for (; i < n; i++) q[i] = round_e4m3(src[i]);
}
static void store_f8e5m2(void *dst, const float *src, int64_t n) {
  uint8_t *q = dst;
  int64_t i = 0;
  for (; i + F8_STEP <= n; i += F8_STEP)
    for (int v = 0; v < F8_STEP; v++) q[i + v] = round_e5m2(src[i + v]);
  for (; i < n; i++) q[i] = round_e5m2(src[i]);
}

/* ---- products ----------------------------------------------------------------------------------- */

/* Sixteen chains of sums a row for all vector widths: the same bits on avx2 and avx512. */
enum { F8_LANES = CPU_F8_STEP, F8_VECS = F8_LANES / VEC, F8_AT_ONCE = VEC == 16 ? CPU_F8_ROWS : 4 };

INLINE void dot_some(float *sums, const float *x, const float *w, int64_t ld, int64_t n) {
  vec lane[F8_AT_ONCE][F8_VECS];
  for (int r = 0; r < F8_AT_ONCE; r++)
    for (int v = 0; v < F8_VECS; v++) lane[r][v] = vec_set1(0.0f);
  for (int64_t k = 0; k < n; k += F8_LANES)
    for (int v = 0; v < F8_VECS; v++) {
      const vec of = vec_load(x + k + v * VEC);
      for (int r = 0; r < F8_AT_ONCE; r++)
        lane[r][v] = vec_fma(of, vec_load(w + r * ld + k + v * VEC), lane[r][v]);
    }
  for (int r = 0; r < F8_AT_ONCE; r++) sums[r] += vec_sum16(lane[r]);
}

static void dot_rows(float *sums, const float *x, const float *w, int64_t ld, int64_t n) {
  for (int r = 0; r < CPU_F8_ROWS; r += F8_AT_ONCE) dot_some(sums + r, x, w + r * ld, ld, n);
}
#endif
