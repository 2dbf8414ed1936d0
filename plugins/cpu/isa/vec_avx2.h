/* SPDX-License-Identifier: MIT
 *
 * vec_avx2.h - a vector of eight floats on AVX2 with FMA and F16C. */
#ifndef BS_PLUGINS_CPU_ISA_VEC_H
#define BS_PLUGINS_CPU_ISA_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define VEC 8
#define TILE_TOKENS 6
#define TILE_SUMS 12  /* of 16 registers: two weights, a token and one to spare are left */
#define TILE_HALVES 1 /* uses 16-bit panels directly */
#define INLINE static inline __attribute__((always_inline))

typedef __m256 vec;
typedef __m256d dbl; /* half as many doubles */

INLINE vec vec_load(const float *p) {
  return _mm256_loadu_ps(p);
}

INLINE void vec_store(float *p, vec v) {
  _mm256_storeu_ps(p, v);
}

INLINE vec vec_set1(float f) {
  return _mm256_set1_ps(f);
}

INLINE vec vec_add(vec a, vec b) {
  return _mm256_add_ps(a, b);
}

INLINE vec vec_max(vec a, vec b) {
  return _mm256_max_ps(a, b);
}

INLINE vec vec_sqrt(vec a) {
  return _mm256_sqrt_ps(a);
}

INLINE vec vec_fma(vec a, vec b, vec c) {
  return _mm256_fmadd_ps(a, b, c);
}

/* The sum of 16 lanes, of vectors one after the other: lanes 8 apart first, then 4, 2 and 1. */
INLINE float vec_sum16(const vec *v) {
  const __m256 h = _mm256_add_ps(v[0], v[1]);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

INLINE __m128i vec_load_16(const uint16_t *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE vec vec_load_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vec_load_16(p)), 16));
}

INLINE vec vec_load_f16(const uint16_t *p) {
  return _mm256_cvtph_ps(vec_load_16(p));
}

INLINE __m256i vec_load_pairs(const uint16_t *p) {
  return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE vec vec_load_first(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(vec_load_pairs(p), 16));
}

INLINE vec vec_load_second(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_and_si256(vec_load_pairs(p), _mm256_set1_epi32((int)0xffff0000u)));
}

INLINE void vec_store_bf16(uint16_t *p, vec v) {
  const __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1), quiet = _mm256_set1_epi32(0x40);
  const __m256i u = _mm256_castps_si256(v), top = _mm256_srli_epi32(u, 16);
  const __m256i odd = _mm256_and_si256(top, one);
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(half, odd)), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i r = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, quiet), nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(packed));
}

INLINE void vec_store_f16(uint16_t *p, vec v) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE dbl dbl_first(vec v) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
}

INLINE dbl dbl_second(vec v) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}

INLINE vec vec_narrow(dbl first, dbl second) {
  return _mm256_set_m128(_mm256_cvtpd_ps(second), _mm256_cvtpd_ps(first));
}

INLINE dbl dbl_set1(double d) {
  return _mm256_set1_pd(d);
}

INLINE dbl dbl_add(dbl a, dbl b) {
  return _mm256_add_pd(a, b);
}

INLINE dbl dbl_sub(dbl a, dbl b) {
  return _mm256_sub_pd(a, b);
}

INLINE dbl dbl_mul(dbl a, dbl b) {
  return _mm256_mul_pd(a, b);
}

INLINE dbl dbl_div(dbl a, dbl b) {
  return _mm256_div_pd(a, b);
}

INLINE dbl dbl_max(dbl a, dbl b) {
  return _mm256_max_pd(a, b);
}

INLINE dbl dbl_min(dbl a, dbl b) {
  return _mm256_min_pd(a, b);
}

INLINE dbl dbl_fma(dbl a, dbl b, dbl c) {
  return _mm256_fmadd_pd(a, b, c);
}

INLINE dbl dbl_negabs(dbl a) {
  return _mm256_or_pd(a, _mm256_set1_pd(-0.0));
}

INLINE dbl dbl_pow2(dbl t) {
  const __m256i n = _mm256_slli_epi64(_mm256_castpd_si256(t), 52);
  return _mm256_castsi256_pd(_mm256_add_epi64(n, _mm256_set1_epi64x(0x3ff0000000000000)));
}

/* ---- 2:4 weights: words of codes, a lane each -------------------------------------------------- */

typedef __m256i words;
#define NARROW_TOKENS 4
#define WIDE_SUMS 12 /* of 16 registers */
#define SUMS_VALUES 8

INLINE words words_load(const uint32_t *p) {
  return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE void words_store(uint32_t *p, words w) {
  _mm256_storeu_si256((__m256i *)(void *)p, w);
}

INLINE words words_set1(uint32_t u) {
  return _mm256_set1_epi32((int)u);
}

INLINE words words_and(words a, words b) {
  return _mm256_and_si256(a, b);
}

INLINE words words_xor(words a, words b) {
  return _mm256_xor_si256(a, b);
}

INLINE words words_add(words a, words b) {
  return _mm256_add_epi32(a, b);
}

INLINE words words_sub(words a, words b) {
  return _mm256_sub_epi32(a, b);
}

#define words_right(a, n) _mm256_srli_epi32(a, n)
#define words_left(a, n) _mm256_slli_epi32(a, n)
#define words_shift(a, n) _mm256_sll_epi32(a, _mm_cvtsi32_si128(n)) /* left; n in a register */

/* The four floats at p, over and over. */
INLINE vec vec_four(const float *p) {
  return _mm256_broadcast_ps((const __m128 *)(const void *)p);
}

/* Everywhere number n of each four; n is known when this is compiled. */
INLINE vec vec_nth(vec four, int n) {
  if (n == 0) return _mm256_permute_ps(four, 0x00);
  if (n == 1) return _mm256_permute_ps(four, 0x55);
  if (n == 2) return _mm256_permute_ps(four, 0xaa);
  return _mm256_permute_ps(four, 0xff);
}

/* Selects in each lane one of four floats by the low two bits of its word. */
INLINE vec vec_pick(vec four, words which) {
  return _mm256_permutevar_ps(four, which);
}

/* In each lane: yes if the word's highest bit is set, else no. */
INLINE vec vec_choose(vec no, vec yes, words sign) {
  return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(sign));
}

/* Byte j of 32 words. */
INLINE __m256i words_bytes(const words *w, int j) {
  const __m256i low = _mm256_set1_epi32(255), order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
  const __m128i shift = _mm_cvtsi32_si128(8 * j);
  const __m256i a = _mm256_and_si256(_mm256_srl_epi32(w[0], shift), low);
  const __m256i b = _mm256_and_si256(_mm256_srl_epi32(w[1], shift), low);
  const __m256i c = _mm256_and_si256(_mm256_srl_epi32(w[2], shift), low);
  const __m256i d = _mm256_and_si256(_mm256_srl_epi32(w[3], shift), low);
  const __m256i mixed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
  return _mm256_permutevar8x32_epi32(mixed, order);
}

/* 64 words of 32 bits, row by row, to 32 of 64 bits: bit r of word c is bit c of row r. */
INLINE void words_turn(uint64_t *bits, const words *rows) {
  for (int j = 0; j < 4; j++) {
    __m256i low = words_bytes(rows, j), high = words_bytes(rows + 4, j);
    for (int i = 7; i >= 0; i--) {
      const uint32_t first = (uint32_t)_mm256_movemask_epi8(low),
                     second = (uint32_t)_mm256_movemask_epi8(high);
      bits[8 * j + i] = (uint64_t)second << 32 | first;
      low = _mm256_add_epi8(low, low);
      high = _mm256_add_epi8(high, high);
    }
  }
}

/* The sixteen columns that a word of codes names from `first` on, times CPU_WIDE_ROW. */
INLINE void places_of(uint16_t *at, uint32_t code, uint32_t first) {
  const __m256i low = _mm256_set_epi32(22, 20, 18, 16, 6, 4, 2, 0),
                high = _mm256_set_epi32(30, 28, 26, 24, 14, 12, 10, 8);
  const __m256i rows = _mm256_set_epi16(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
  const __m256i word = _mm256_set1_epi32((int)code), two = _mm256_set1_epi32(3);
  const __m256i a = _mm256_and_si256(_mm256_srlv_epi32(word, low), two);
  const __m256i b = _mm256_and_si256(_mm256_srlv_epi32(word, high), two);
  const __m256i base = _mm256_add_epi16(rows, _mm256_set1_epi16((short)first));
  const __m256i column = _mm256_add_epi16(_mm256_packus_epi32(a, b), base);
  _mm256_storeu_si256((__m256i *)(void *)at, _mm256_slli_epi16(column, 8));
}

INLINE vec vec_load_i8(const int8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* Whole numbers as i32. */
INLINE words vec_to_words(vec v) {
  return _mm256_cvtps_epi32(v);
}

/* Eight sums of 32 bits. */
#define IVEC 8
#define PAIRS_TOKENS 6
typedef __m256i ivec;

INLINE ivec ivec_zero(void) {
  return _mm256_setzero_si256();
}

INLINE ivec ivec_load(const int32_t *p) {
  return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE void ivec_store(int32_t *p, ivec v) {
  _mm256_storeu_si256((__m256i *)(void *)p, v);
}

INLINE ivec ivec_add(ivec a, ivec b) {
  return _mm256_add_epi32(a, b);
}

/* Bytes, with a sign or without; and pairs of their low 16 bits. */
INLINE ivec ivec_bytes(const int sign, const uint8_t *p) {
  const __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)p);
  return sign ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v);
}

INLINE ivec ivec_pair(ivec low, ivec high) {
  return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}

/* ivec_set_pair puts one pair of 16-bit numbers into each lane. ivec_add_products adds to each lane of `sums`
 * both products of its pairs. */
INLINE ivec ivec_set_pair(int32_t pair) {
  return _mm256_set1_epi32(pair);
}

INLINE ivec ivec_add_products(ivec sums, ivec a, ivec b) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
}

#endif
