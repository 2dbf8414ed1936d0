/* SPDX-License-Identifier: MIT
 *
 * transpose.h - rows to columns of 16 x 16 floats, for the products of the backward pass (ops/gradient.h):
 * the file that includes it has chosen `vec` before. */
#ifndef BS_PLUGINS_CPU_ISA_TRANSPOSE_H
#define BS_PLUGINS_CPU_ISA_TRANSPOSE_H

#include "../kernels.h"

#if VEC == 16

/* Four floats of the rows i, i + 4, i + 8, i + 12 side by side: a column of the shuffles below is whole then.
 */
INLINE __m512 four_rows(const float *src, int64_t ld, int i) {
  const __m512 two = _mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(src + i * ld)),
                                        _mm_loadu_ps(src + (i + 4) * ld), 1);
  return _mm512_insertf32x4(_mm512_insertf32x4(two, _mm_loadu_ps(src + (i + 8) * ld), 2),
                            _mm_loadu_ps(src + (i + 12) * ld), 3);
}

static void transpose(float *dst, int64_t dst_ld, const float *src, int64_t src_ld) {
  for (int j = 0; j < 16; j += 4, dst += 4 * dst_ld, src += 4) {
    const __m512 a = four_rows(src, src_ld, 0), b = four_rows(src, src_ld, 1), c = four_rows(src, src_ld, 2),
                 d = four_rows(src, src_ld, 3);
    const __m512 ab = _mm512_unpacklo_ps(a, b), ab_high = _mm512_unpackhi_ps(a, b);
    const __m512 cd = _mm512_unpacklo_ps(c, d), cd_high = _mm512_unpackhi_ps(c, d);
    _mm512_storeu_ps(dst, _mm512_shuffle_ps(ab, cd, 0x44));
    _mm512_storeu_ps(dst + dst_ld, _mm512_shuffle_ps(ab, cd, 0xee));
    _mm512_storeu_ps(dst + 2 * dst_ld, _mm512_shuffle_ps(ab_high, cd_high, 0x44));
    _mm512_storeu_ps(dst + 3 * dst_ld, _mm512_shuffle_ps(ab_high, cd_high, 0xee));
  }
}

#elif VEC == 8

/* Four floats of row i and of row i + 4 side by side: a column of the shuffles below is whole then. */
INLINE __m256 two_rows(const float *src, int64_t ld, int i) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(src + i * ld)),
                              _mm_loadu_ps(src + (i + 4) * ld), 1);
}

/* Columns 0..3 of eight rows to four rows of eight. */
INLINE void turn_strip(float *dst, int64_t dst_ld, const float *src, int64_t src_ld) {
  const __m256 a = two_rows(src, src_ld, 0), b = two_rows(src, src_ld, 1), c = two_rows(src, src_ld, 2),
               d = two_rows(src, src_ld, 3);
  const __m256 ab = _mm256_unpacklo_ps(a, b), ab_high = _mm256_unpackhi_ps(a, b);
  const __m256 cd = _mm256_unpacklo_ps(c, d), cd_high = _mm256_unpackhi_ps(c, d);
  _mm256_storeu_ps(dst, _mm256_shuffle_ps(ab, cd, 0x44));
  _mm256_storeu_ps(dst + dst_ld, _mm256_shuffle_ps(ab, cd, 0xee));
  _mm256_storeu_ps(dst + 2 * dst_ld, _mm256_shuffle_ps(ab_high, cd_high, 0x44));
  _mm256_storeu_ps(dst + 3 * dst_ld, _mm256_shuffle_ps(ab_high, cd_high, 0xee));
}

static void transpose(float *dst, int64_t dst_ld, const float *src, int64_t src_ld) {
  for (int j = 0; j < 16; j += 4)
    for (int i = 0; i < 16; i += 8) turn_strip(dst + j * dst_ld + i, dst_ld, src + i * src_ld + j, src_ld);
}

#else

static void transpose(float *dst, int64_t dst_ld, const float *src, int64_t src_ld) {
  for (int j = 0; j < 16; j++)
    for (int i = 0; i < 16; i++) dst[j * dst_ld + i] = src[i * src_ld + j];
}

#endif
#endif
