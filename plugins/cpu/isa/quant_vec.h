/* SPDX-License-Identifier: MIT
 *
 * quant_vec.h - the vectors of quant_dot.h: qi, whole numbers of 32 bits (or four codes of 8 bits each), and
 * qf, as many floats. qf_fma rounds once on every instruction set. */
#ifndef BS_PLUGINS_CPU_ISA_QUANT_VEC_H
#define BS_PLUGINS_CPU_ISA_QUANT_VEC_H

#include "tile_pieces.h"

#if VEC == 16

#define QI 16 /* lanes */
typedef __m512i qi;
typedef __m512 qf;

INLINE qi qi_set1(int32_t v) {
  return _mm512_set1_epi32(v);
}
INLINE qi qi_load(const void *p) {
  return _mm512_loadu_si512(p);
}
INLINE void qi_store(void *p, qi v) {
  _mm512_storeu_si512(p, v);
}
INLINE qi qi_add(qi a, qi b) {
  return _mm512_add_epi32(a, b);
}
INLINE qi qi_sub(qi a, qi b) {
  return _mm512_sub_epi32(a, b);
}
INLINE qi qi_mul(qi a, qi b) {
  return _mm512_mullo_epi32(a, b);
}
/* Products of numbers of 16 bits with a sign. */
INLINE qi qi_mul16(qi a, int32_t b) {
  return _mm512_madd_epi16(a, _mm512_set1_epi32(b & 0xffff));
}
INLINE qi qi_and(qi a, qi b) {
  return _mm512_and_si512(a, b);
}
INLINE qi qi_or(qi a, qi b) {
  return _mm512_or_si512(a, b);
}
#define qi_right(v, n) _mm512_srli_epi32(v, n)
#define qi_left(v, n) _mm512_slli_epi32(v, n)
INLINE qi qi_u8(const void *p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
INLINE qi qi_s8(const void *p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}
INLINE qf qi_float(qi v) {
  return _mm512_cvtepi32_ps(v);
}
INLINE qf qf_bits(qi v) {
  return _mm512_castsi512_ps(v);
}
/* sums += the products of four codes without a sign with four bytes of x. */
#ifdef __AVX512VNNI__
INLINE qi qi_dot(const int bits, qi sums, qi w, qi x) {
  (void)bits;
  return _mm512_dpbusd_epi32(sums, w, x);
}
#else
/* Two products of codes of 6 bits fit 16 bits, 63 * 128 * 2; codes of 8 bits become 16 bits, the even and
 * the odd columns. */
INLINE qi qi_even16(qi x) {
  return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8);
}
INLINE qi qi_odd16(qi x) {
  return _mm512_srai_epi16(x, 8);
}
#define qi_right16(v, n) _mm512_srli_epi16(v, n)
/* sums += the sums of both products of pairs of 16 bits. */
INLINE qi qi_add_pairs(qi sums, qi a, qi b) {
  return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
}
INLINE qi qi_dot(const int bits, qi sums, qi w, qi x) {
  if (bits < 8) return qi_add_pairs(sums, _mm512_maddubs_epi16(w, x), _mm512_set1_epi16(1));
  sums = qi_add_pairs(sums, qi_and(w, _mm512_set1_epi16(255)), qi_even16(x));
  return qi_add_pairs(sums, qi_right16(w, 8), qi_odd16(x));
}
#endif
INLINE qf qf_set1(float v) {
  return _mm512_set1_ps(v);
}
INLINE qf qf_load(const float *p) {
  return _mm512_loadu_ps(p);
}
INLINE qf qf_half(const void *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
INLINE void qf_store(float *p, qf v) {
  _mm512_storeu_ps(p, v);
}
INLINE qf qf_mul(qf a, qf b) {
  return _mm512_mul_ps(a, b);
}
INLINE qf qf_sub(qf a, qf b) {
  return _mm512_sub_ps(a, b);
}
INLINE qf qf_fma(qf a, qf b, qf c) {
  return _mm512_fmadd_ps(a, b, c);
}
/* c - a b */
INLINE qf qf_less(qf a, qf b, qf c) {
  return _mm512_fnmadd_ps(a, b, c);
}

#elif VEC == 8

#define QI 8
typedef __m256i qi;
typedef __m256 qf;

INLINE qi qi_set1(int32_t v) {
  return _mm256_set1_epi32(v);
}
INLINE qi qi_load(const void *p) {
  return _mm256_loadu_si256(p);
}
INLINE void qi_store(void *p, qi v) {
  _mm256_storeu_si256(p, v);
}
INLINE qi qi_add(qi a, qi b) {
  return _mm256_add_epi32(a, b);
}
INLINE qi qi_sub(qi a, qi b) {
  return _mm256_sub_epi32(a, b);
}
INLINE qi qi_mul(qi a, qi b) {
  return _mm256_mullo_epi32(a, b);
}
INLINE qi qi_mul16(qi a, int32_t b) {
  return _mm256_madd_epi16(a, _mm256_set1_epi32(b & 0xffff));
}
INLINE qi qi_and(qi a, qi b) {
  return _mm256_and_si256(a, b);
}
INLINE qi qi_or(qi a, qi b) {
  return _mm256_or_si256(a, b);
}
#define qi_right(v, n) _mm256_srli_epi32(v, n)
#define qi_left(v, n) _mm256_slli_epi32(v, n)
INLINE qi qi_u8(const void *p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
}
INLINE qi qi_s8(const void *p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}
INLINE qf qi_float(qi v) {
  return _mm256_cvtepi32_ps(v);
}
INLINE qf qf_bits(qi v) {
  return _mm256_castsi256_ps(v);
}
/* Two products of codes of 6 bits fit 16 bits, 63 * 128 * 2; codes of 8 bits become 16 bits, the even and
 * the odd columns. */
INLINE qi qi_even16(qi x) {
  return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
}
INLINE qi qi_odd16(qi x) {
  return _mm256_srai_epi16(x, 8);
}
#define qi_right16(v, n) _mm256_srli_epi16(v, n)
/* sums += the sums of both products of pairs of 16 bits. */
INLINE qi qi_add_pairs(qi sums, qi a, qi b) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
}
INLINE qi qi_dot(const int bits, qi sums, qi w, qi x) {
  if (bits < 8) return qi_add_pairs(sums, _mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
  sums = qi_add_pairs(sums, qi_and(w, _mm256_set1_epi16(255)), qi_even16(x));
  return qi_add_pairs(sums, qi_right16(w, 8), qi_odd16(x));
}
INLINE qf qf_set1(float v) {
  return _mm256_set1_ps(v);
}
INLINE qf qf_load(const float *p) {
  return _mm256_loadu_ps(p);
}
INLINE qf qf_half(const void *p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
INLINE void qf_store(float *p, qf v) {
  _mm256_storeu_ps(p, v);
}
INLINE qf qf_mul(qf a, qf b) {
  return _mm256_mul_ps(a, b);
}
INLINE qf qf_sub(qf a, qf b) {
  return _mm256_sub_ps(a, b);
}
INLINE qf qf_fma(qf a, qf b, qf c) {
  return _mm256_fmadd_ps(a, b, c);
}
INLINE qf qf_less(qf a, qf b, qf c) {
  return _mm256_fnmadd_ps(a, b, c);
}

#else

#define QI 4
typedef uint32_t qi __attribute__((vector_size(16)));
typedef float qf __attribute__((vector_size(16)));

INLINE qi qi_set1(int32_t v) {
  const uint32_t u = (uint32_t)v;
  return (qi){u, u, u, u};
}
INLINE qi qi_load(const void *p) {
  qi v;
  memcpy(&v, p, sizeof v);
  return v;
}
INLINE void qi_store(void *p, qi v) {
  memcpy(p, &v, sizeof v);
}
INLINE qi qi_add(qi a, qi b) {
  return a + b;
}
INLINE qi qi_sub(qi a, qi b) {
  return a - b;
}
INLINE qi qi_mul(qi a, qi b) {
  return a * b;
}
INLINE qi qi_mul16(qi a, int32_t b) {
  return a * qi_set1(b);
}
INLINE qi qi_and(qi a, qi b) {
  return a & b;
}
INLINE qi qi_or(qi a, qi b) {
  return a | b;
}
#define qi_right(v, n) ((v) >> (n))
#define qi_left(v, n) ((v) << (n))
INLINE qi qi_u8(const void *p) {
  const uint8_t *b = p;
  return (qi){b[0], b[1], b[2], b[3]};
}
INLINE qi qi_s8(const void *p) {
  const int8_t *b = p;
  return (qi){(uint32_t)b[0], (uint32_t)b[1], (uint32_t)b[2], (uint32_t)b[3]};
}
INLINE qf qi_float(qi v) {
  qf f;
  for (int i = 0; i < QI; i++) f[i] = (float)(int32_t)v[i];
  return f;
}
INLINE qf qf_bits(qi v) {
  return (qf)v;
}
INLINE qi qi_dot(const int bits, qi sums, qi w, qi x) {
  (void)bits;
  int8_t b[4];
  const uint32_t quad = x[0];
  memcpy(b, &quad, sizeof b);
  for (int i = 0; i < 4; i++) sums += (w >> (8 * i) & 255u) * qi_set1(b[i]);
  return sums;
}
INLINE qf qf_set1(float v) {
  return (qf){v, v, v, v};
}
INLINE qf qf_load(const float *p) {
  qf v;
  memcpy(&v, p, sizeof v);
  return v;
}
INLINE qf qf_half(const void *p) {
  uint16_t h[QI];
  memcpy(h, p, sizeof h);
  return (qf){cpu_f16_load(h[0]), cpu_f16_load(h[1]), cpu_f16_load(h[2]), cpu_f16_load(h[3])};
}
INLINE void qf_store(float *p, qf v) {
  memcpy(p, &v, sizeof v);
}
INLINE qf qf_mul(qf a, qf b) {
  return a * b;
}
INLINE qf qf_sub(qf a, qf b) {
  return a - b;
}
INLINE qf qf_fma(qf a, qf b, qf c) {
  for (int i = 0; i < QI; i++) c[i] = fmaf(a[i], b[i], c[i]);
  return c;
}
INLINE qf qf_less(qf a, qf b, qf c) {
  for (int i = 0; i < QI; i++) c[i] = fmaf(-a[i], b[i], c[i]);
  return c;
}

#endif
#endif
