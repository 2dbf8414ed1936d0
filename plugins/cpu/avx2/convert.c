/* SPDX-License-Identifier: MIT
 *
 * convert.c - AVX2 rounding and widening of bf16 and f16, and the vector sum of the epilogue. Tails use
 * half.h, which rounds alike. Compiled with -mavx2 -mfma -mf16c, called through kernels.h. */
#include <immintrin.h>

#include "../half.h"
#include "../kernels.h"

static __m128i load8(const uint16_t *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static void store8(uint16_t *p, __m128i v) {
  _mm_storeu_si128((__m128i *)(void *)p, v);
}

void cpu_avx2_load_bf16(float *dst, const void *src, int64_t n) {
  const uint16_t *s = src;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i,
                     _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load8(s + i)), 16)));
  for (; i < n; i++) dst[i] = cpu_bf16_load(s[i]);
}

void cpu_avx2_load_f16(float *dst, const void *src, int64_t n) {
  const uint16_t *s = src;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(load8(s + i)));
  for (; i < n; i++) dst[i] = cpu_f16_load(s[i]);
}

void cpu_avx2_store_bf16(void *dst, const float *src, int64_t n) {
  uint16_t *d = dst;
  const __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1), quiet = _mm256_set1_epi32(0x40);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 f = _mm256_loadu_ps(src + i);
    const __m256i u = _mm256_castps_si256(f), top = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(top, one);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(half, odd)), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    const __m256i r = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, quiet), nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    store8(d + i, _mm256_castsi256_si128(packed));
  }
  for (; i < n; i++) d[i] = cpu_bf16_store(src[i]);
}

void cpu_avx2_store_f16(void *dst, const float *src, int64_t n) {
  uint16_t *d = dst;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    store8(d + i, _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (; i < n; i++) d[i] = cpu_f16_store(src[i]);
}

void cpu_avx2_add(float *dst, const float *a, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_add_ps(_mm256_loadu_ps(dst + i), _mm256_loadu_ps(a + i)));
  for (; i < n; i++) dst[i] += a[i];
}
