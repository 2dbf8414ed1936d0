/* SPDX-License-Identifier: MIT
 *
 * vec_avx512.h - a vector of sixteen floats on AVX-512 F, BW, VL and DQ. */
#ifndef BS_PLUGINS_CPU_ISA_VEC_H
#define BS_PLUGINS_CPU_ISA_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define VEC 16
#define TILE_TOKENS 12
#define TILE_SUMS 24  /* of 32 registers */
#define TILE_HALVES 1 /* uses 16-bit panels directly */
#define INLINE static inline __attribute__((always_inline))

typedef __m512 vec;
typedef __m512d dbl; /* half as many doubles */

INLINE vec vec_load(const float *p) {
  return _mm512_loadu_ps(p);
}

INLINE void vec_store(float *p, vec v) {
  _mm512_storeu_ps(p, v);
}

INLINE vec vec_set1(float f) {
  return _mm512_set1_ps(f);
}

INLINE vec vec_add(vec a, vec b) {
  return _mm512_add_ps(a, b);
}

INLINE vec vec_max(vec a, vec b) {
  return _mm512_max_ps(a, b);
}

INLINE vec vec_sqrt(vec a) {
  return _mm512_sqrt_ps(a);
}

INLINE vec vec_fma(vec a, vec b, vec c) {
  return _mm512_fmadd_ps(a, b, c);
}

/* The sum of 16 lanes, of vectors one after the other: lanes 8 apart first, then 4, 2 and 1. */
INLINE float vec_sum16(const vec *v) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(*v), _mm512_extractf32x8_ps(*v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

INLINE __m256i vec_load_16(const uint16_t *p) {
  return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE vec vec_load_bf16(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(vec_load_16(p)), 16));
}

INLINE vec vec_load_f16(const uint16_t *p) {
  return _mm512_cvtph_ps(vec_load_16(p));
}

INLINE vec vec_load_first(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}

INLINE vec vec_load_second(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)));
}

INLINE void vec_store_bf16(uint16_t *p, vec v) {
  const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1), quiet = _mm512_set1_epi32(0x40);
  const __m512i u = _mm512_castps_si512(v), top = _mm512_srli_epi32(u, 16);
  const __m512i odd = _mm512_and_si512(top, one);
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(half, odd)), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i r = _mm512_mask_or_epi32(rounded, nan, top, quiet);
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(r));
}

INLINE void vec_store_f16(uint16_t *p, vec v) {
  _mm256_storeu_si256((__m256i *)(void *)p,
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE dbl dbl_first(vec v) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(v));
}

INLINE dbl dbl_second(vec v) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}

INLINE vec vec_narrow(dbl first, dbl second) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(first)), _mm512_cvtpd_ps(second), 1);
}

INLINE dbl dbl_set1(double d) {
  return _mm512_set1_pd(d);
}

INLINE dbl dbl_add(dbl a, dbl b) {
  return _mm512_add_pd(a, b);
}

INLINE dbl dbl_sub(dbl a, dbl b) {
  return _mm512_sub_pd(a, b);
}

INLINE dbl dbl_mul(dbl a, dbl b) {
  return _mm512_mul_pd(a, b);
}

INLINE dbl dbl_div(dbl a, dbl b) {
  return _mm512_div_pd(a, b);
}

INLINE dbl dbl_max(dbl a, dbl b) {
  return _mm512_max_pd(a, b);
}

INLINE dbl dbl_min(dbl a, dbl b) {
  return _mm512_min_pd(a, b);
}

INLINE dbl dbl_fma(dbl a, dbl b, dbl c) {
  return _mm512_fmadd_pd(a, b, c);
}

INLINE dbl dbl_negabs(dbl a) {
  return _mm512_or_pd(a, _mm512_set1_pd(-0.0));
}

INLINE dbl dbl_pow2(dbl t) {
  const __m512i n = _mm512_slli_epi64(_mm512_castpd_si512(t), 52);
  return _mm512_castsi512_pd(_mm512_add_epi64(n, _mm512_set1_epi64(0x3ff0000000000000)));
}

/* ---- 2:4 weights: words of codes, a lane each -------------------------------------------------- */

typedef __m512i words;
#define NARROW_TOKENS 8
#define WIDE_SUMS 24 /* of 32 registers */
#define SUMS_VALUES 16

INLINE words words_load(const uint32_t *p) {
  return _mm512_loadu_si512(p);
}

INLINE void words_store(uint32_t *p, words w) {
  _mm512_storeu_si512(p, w);
}

INLINE words words_set1(uint32_t u) {
  return _mm512_set1_epi32((int)u);
}

INLINE words words_and(words a, words b) {
  return _mm512_and_si512(a, b);
}

INLINE words words_xor(words a, words b) {
  return _mm512_xor_si512(a, b);
}

INLINE words words_add(words a, words b) {
  return _mm512_add_epi32(a, b);
}

INLINE words words_sub(words a, words b) {
  return _mm512_sub_epi32(a, b);
}

#define words_right(a, n) _mm512_srli_epi32(a, n)
#define words_left(a, n) _mm512_slli_epi32(a, n)
#define words_shift(a, n) _mm512_sll_epi32(a, _mm_cvtsi32_si128(n)) /* left; n in a register */

/* The four floats at p, over and over. */
INLINE vec vec_four(const float *p) {
  return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
}

/* Everywhere number n of each four; n is known when this is compiled. */
INLINE vec vec_nth(vec four, int n) {
  if (n == 0) return _mm512_permute_ps(four, 0x00);
  if (n == 1) return _mm512_permute_ps(four, 0x55);
  if (n == 2) return _mm512_permute_ps(four, 0xaa);
  return _mm512_permute_ps(four, 0xff);
}

/* Selects in each lane one of four floats by the low two bits of its word. */
INLINE vec vec_pick(vec four, words which) {
  return _mm512_permutevar_ps(four, which);
}

/* In each lane: yes if the word's highest bit is set, else no. */
INLINE vec vec_choose(vec no, vec yes, words sign) {
  return _mm512_mask_mov_ps(no, _mm512_movepi32_mask(sign), yes);
}

/* Byte j of 16 words. */
INLINE __m128i words_byte(words w, int j) {
  return _mm512_cvtepi32_epi8(_mm512_srl_epi32(w, _mm_cvtsi32_si128(8 * j)));
}

/* 64 words of 32 bits, row by row, to 32 of 64 bits: bit r of word c is bit c of row r. */
INLINE void words_turn(uint64_t *bits, const words *rows) {
  for (int j = 0; j < 4; j++) {
    __m512i bytes = _mm512_castsi128_si512(words_byte(rows[0], j));
    bytes = _mm512_inserti32x4(bytes, words_byte(rows[1], j), 1);
    bytes = _mm512_inserti32x4(bytes, words_byte(rows[2], j), 2);
    bytes = _mm512_inserti32x4(bytes, words_byte(rows[3], j), 3);
    for (int i = 7; i >= 0; i--, bytes = _mm512_add_epi8(bytes, bytes))
      bits[8 * j + i] = _cvtmask64_u64(_mm512_movepi8_mask(bytes));
  }
}

/* The sixteen columns that a word of codes names from `first` on, times CPU_WIDE_ROW. */
INLINE void places_of(uint16_t *at, uint32_t code, uint32_t first) {
  const __m512i shift = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i rows = _mm512_set_epi32(28, 28, 24, 24, 20, 20, 16, 16, 12, 12, 8, 8, 4, 4, 0, 0);
  const __m512i two =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_set1_epi32((int)code), shift), _mm512_set1_epi32(3));
  const __m512i column = _mm512_add_epi32(two, _mm512_add_epi32(rows, _mm512_set1_epi32((int)first)));
  _mm256_storeu_si256((__m256i *)(void *)at, _mm512_cvtepi32_epi16(_mm512_slli_epi32(column, 8)));
}

INLINE vec vec_load_i8(const int8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* Whole numbers as i32. */
INLINE words vec_to_words(vec v) {
  return _mm512_cvtps_epi32(v);
}

/* Sixteen sums of 32 bits. */
#define IVEC 16
#define PAIRS_TOKENS 12
typedef __m512i ivec;

INLINE ivec ivec_zero(void) {
  return _mm512_setzero_si512();
}

INLINE ivec ivec_load(const int32_t *p) {
  return _mm512_loadu_si512((const void *)p);
}

INLINE void ivec_store(int32_t *p, ivec v) {
  _mm512_storeu_si512((void *)p, v);
}

INLINE ivec ivec_add(ivec a, ivec b) {
  return _mm512_add_epi32(a, b);
}

/* Bytes, with a sign or without; and pairs of their low 16 bits. */
INLINE ivec ivec_bytes(const int sign, const uint8_t *p) {
  const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
  return sign ? _mm512_cvtepi8_epi32(v) : _mm512_cvtepu8_epi32(v);
}

INLINE ivec ivec_pair(ivec low, ivec high) {
  return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32(high, 16));
}

/* ivec_set_pair puts one pair of 16-bit numbers into each lane. ivec_add_products adds to each lane of `sums`
 * both products of its pairs. */
INLINE ivec ivec_set_pair(int32_t pair) {
  return _mm512_set1_epi32(pair);
}

INLINE ivec ivec_add_products(ivec sums, ivec a, ivec b) {
#ifdef __AVX512VNNI__
  return _mm512_dpwssd_epi32(sums, a, b);
#else
  return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
#endif
}

#endif
