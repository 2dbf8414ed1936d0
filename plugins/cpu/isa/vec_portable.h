/* SPDX-License-Identifier: MIT
 *
 * vec_portable.h - a vector of four floats for any processor: the compiler maps it to the available
 * instructions. One of three definitions of `vec` for the sources of this folder. */
#ifndef BS_PLUGINS_CPU_ISA_VEC_H
#define BS_PLUGINS_CPU_ISA_VEC_H

#include <math.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "../half.h"

#define VEC 4         /* floats of a vector */
#define TILE_TOKENS 2 /* tokens of the widest tile */
#define TILE_SUMS 8   /* vectors of sums that stay in registers */
#define TILE_HALVES 0 /* 16-bit panels are widened first */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(16)));
typedef uint32_t vec_bits __attribute__((vector_size(16)));
typedef double dbl __attribute__((vector_size(16))); /* half as many doubles */
typedef uint64_t dbl_bits __attribute__((vector_size(16)));

INLINE vec vec_load(const float *p) {
  vec v;
  memcpy(&v, p, sizeof v);
  return v;
}

INLINE void vec_store(float *p, vec v) {
  memcpy(p, &v, sizeof v);
}

INLINE vec vec_set1(float f) {
  return (vec){f, f, f, f};
}

INLINE vec vec_add(vec a, vec b) {
  return a + b;
}

/* a if it is greater, else b: also if one is NaN or both are zeros. */
INLINE vec vec_max(vec a, vec b) {
  const vec_bits first = (vec_bits)(a > b);
  return (vec)(((vec_bits)a & first) | ((vec_bits)b & ~first));
}

INLINE vec vec_sqrt(vec a) {
  for (int i = 0; i < VEC; i++) a[i] = sqrtf(a[i]);
  return a;
}

#if defined(__SSE2__) && !defined(FP_FAST_FMAF)
/* a b + c as doubles, rounded to odd: the product is exact, and a sum that is not exact and whose last bit is
 * 0 gives way to its neighbour on the side of the exact one. Rounding that to float rounds the exact sum. */
INLINE dbl dbl_odd(dbl a, dbl b, dbl c) {
  const dbl product = a * b, sum = product + c, part = sum - product;
  const dbl rest = (product - (sum - part)) + (c - part);
  const dbl_bits above = (dbl_bits)(rest > 0), below = (dbl_bits)(rest < 0);
  const dbl_bits even = ((dbl_bits)sum & 1) - 1, larger = above ^ (dbl_bits)(sum < 0);
  const dbl_bits step = (larger & 2) - 1; /* 1 where the magnitude grows, else -1 */
  return (dbl)((dbl_bits)sum + (step & (above | below) & even));
}

/* a b + c, rounded once. Conversions lane by lane are wrong by gcc 12, and calls of fmaf take twice as long.
 */
INLINE vec vec_fma(vec a, vec b, vec c) {
  const vec x = _mm_movehl_ps(a, a), y = _mm_movehl_ps(b, b), z = _mm_movehl_ps(c, c);
  const dbl low = dbl_odd(_mm_cvtps_pd(a), _mm_cvtps_pd(b), _mm_cvtps_pd(c));
  const dbl high = dbl_odd(_mm_cvtps_pd(x), _mm_cvtps_pd(y), _mm_cvtps_pd(z));
  return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
#else
INLINE vec vec_fma(vec a, vec b, vec c) {
  for (int i = 0; i < VEC; i++) c[i] = fmaf(a[i], b[i], c[i]);
  return c;
}
#endif

/* The sum of 16 lanes, of vectors one after the other: lanes 8 apart first, then 4, 2 and 1. */
INLINE float vec_sum16(const vec *v) {
  const vec four = (v[0] + v[2]) + (v[1] + v[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

INLINE vec vec_load_bf16(const uint16_t *p) {
  return (vec){cpu_bf16_load(p[0]), cpu_bf16_load(p[1]), cpu_bf16_load(p[2]), cpu_bf16_load(p[3])};
}

INLINE vec vec_load_f16(const uint16_t *p) {
  return (vec){cpu_f16_load(p[0]), cpu_f16_load(p[1]), cpu_f16_load(p[2]), cpu_f16_load(p[3])};
}

/* The first and the second numbers of four pairs. */
INLINE vec vec_load_first(const uint16_t *p) {
  return (vec){cpu_bf16_load(p[0]), cpu_bf16_load(p[2]), cpu_bf16_load(p[4]), cpu_bf16_load(p[6])};
}

INLINE vec vec_load_second(const uint16_t *p) {
  return vec_load_first(p + 1);
}

INLINE void vec_store_bf16(uint16_t *p, vec v) {
  for (int i = 0; i < VEC; i++) p[i] = cpu_bf16_store(v[i]);
}

INLINE void vec_store_f16(uint16_t *p, vec v) {
  for (int i = 0; i < VEC; i++) p[i] = cpu_f16_store(v[i]);
}

INLINE dbl dbl_first(vec v) {
  return (dbl){v[0], v[1]};
}

INLINE dbl dbl_second(vec v) {
  return (dbl){v[2], v[3]};
}

INLINE vec vec_narrow(dbl first, dbl second) {
  return (vec){(float)first[0], (float)first[1], (float)second[0], (float)second[1]};
}

INLINE dbl dbl_set1(double d) {
  return (dbl){d, d};
}

INLINE dbl dbl_add(dbl a, dbl b) {
  return a + b;
}

INLINE dbl dbl_sub(dbl a, dbl b) {
  return a - b;
}

INLINE dbl dbl_mul(dbl a, dbl b) {
  return a * b;
}

INLINE dbl dbl_div(dbl a, dbl b) {
  return a / b;
}

INLINE dbl dbl_pick(dbl_bits mask, dbl a, dbl b) {
  return (dbl)(((dbl_bits)a & mask) | ((dbl_bits)b & ~mask));
}

/* The larger value, as vec_max; and the smaller one. */
INLINE dbl dbl_max(dbl a, dbl b) {
  return dbl_pick((dbl_bits)(a > b), a, b);
}

INLINE dbl dbl_min(dbl a, dbl b) {
  return dbl_pick((dbl_bits)(a < b), a, b);
}

INLINE dbl dbl_fma(dbl a, dbl b, dbl c) {
  return (dbl){fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1])};
}

/* -|a| */
INLINE dbl dbl_negabs(dbl a) {
  return (dbl)((dbl_bits)a | 0x8000000000000000u);
}

/* 2^n of the integer n in the low bits of t, -1023 .. 1024; the first is 0, the last infinity. */
INLINE dbl dbl_pow2(dbl t) {
  return (dbl)(((dbl_bits)t << 52) + 0x3ff0000000000000u);
}

/* ---- 2:4 weights: words of codes, a lane each -------------------------------------------------- */

typedef vec_bits words;
#define NARROW_TOKENS 2
#define WIDE_SUMS 8
#define SUMS_VALUES 4

INLINE words words_load(const uint32_t *p) {
  words w;
  memcpy(&w, p, sizeof w);
  return w;
}

INLINE void words_store(uint32_t *p, words w) {
  memcpy(p, &w, sizeof w);
}

INLINE words words_set1(uint32_t u) {
  return (words){u, u, u, u};
}

INLINE words words_and(words a, words b) {
  return a & b;
}

INLINE words words_xor(words a, words b) {
  return a ^ b;
}

INLINE words words_add(words a, words b) {
  return a + b;
}

INLINE words words_sub(words a, words b) {
  return a - b;
}

#define words_right(a, n) ((a) >> (n))
#define words_left(a, n) ((a) << (n))
#define words_shift(a, n) ((a) << (uint32_t)(n)) /* left; n in a register */

/* The four floats at p, over and over. */
INLINE vec vec_four(const float *p) {
  return vec_load(p);
}

/* Everywhere number n of the four. */
INLINE vec vec_nth(vec four, int n) {
  return vec_set1(four[n]);
}

/* Selects in each lane one of four floats by the low two bits of its word. */
INLINE vec vec_pick(vec four, words which) {
  return (vec){four[which[0] & 3u], four[which[1] & 3u], four[which[2] & 3u], four[which[3] & 3u]};
}

/* In each lane: yes if the word's highest bit is set, else no. */
INLINE vec vec_choose(vec no, vec yes, words sign) {
  for (int i = 0; i < VEC; i++)
    if (sign[i] >> 31) no[i] = yes[i];
  return no;
}

/* 64 words of 32 bits, row by row, to 32 of 64 bits: bit r of word c is bit c of row r. */
INLINE void words_turn(uint64_t *bits, const words *rows) {
  for (int k = 0; k < 32; k++) {
    bits[k] = 0;
    for (int i = 0; i < 64; i++) bits[k] |= (uint64_t)(rows[i / VEC][i % VEC] >> k & 1u) << i;
  }
}

/* The sixteen columns that a word of codes names from `first` on, times CPU_WIDE_ROW. */
INLINE void places_of(uint16_t *at, uint32_t code, uint32_t first) {
  for (uint32_t i = 0; i < 16; i++) at[i] = (uint16_t)((first + i / 2 * 4 + (code >> 2 * i & 3u)) << 8);
}

INLINE vec vec_load_i8(const int8_t *p) {
  return (vec){(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
}

/* Whole numbers as i32. */
INLINE words vec_to_words(vec v) {
  return (words){(uint32_t)(int32_t)v[0], (uint32_t)(int32_t)v[1], (uint32_t)(int32_t)v[2],
                 (uint32_t)(int32_t)v[3]};
}

/* Four sums of 32 bits. */
#define IVEC 4
#define PAIRS_TOKENS 2
typedef int32_t ivec __attribute__((vector_size(16)));

INLINE ivec ivec_zero(void) {
  return (ivec){0, 0, 0, 0};
}

INLINE ivec ivec_load(const int32_t *p) {
  ivec v;
  memcpy(&v, p, sizeof v);
  return v;
}

INLINE void ivec_store(int32_t *p, ivec v) {
  memcpy(p, &v, sizeof v);
}

INLINE ivec ivec_add(ivec a, ivec b) {
  return (ivec)((vec_bits)a + (vec_bits)b);
}

/* ivec_set_pair puts one pair of 16-bit numbers into each lane. ivec_add_products adds to each lane of `sums`
 * both products of its pairs. */
INLINE ivec ivec_set_pair(int32_t pair) {
  return (ivec){pair, pair, pair, pair};
}

INLINE ivec ivec_add_products(ivec sums, ivec a, ivec b) {
  const ivec low_a = (ivec)((vec_bits)a << 16) >> 16, low_b = (ivec)((vec_bits)b << 16) >> 16;
  const vec_bits low = (vec_bits)low_a * (vec_bits)low_b, high = (vec_bits)(a >> 16) * (vec_bits)(b >> 16);
  return (ivec)((vec_bits)sums + low + high); /* wraps around */
}

#endif
