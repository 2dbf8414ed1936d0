/* SPDX-License-Identifier: MIT
 * convert_avx2.c - the f32/f16/bf16 array conversions with AVX2 and F16C, 8 elements a step, the same
 * bits as convert.c's portable loops (tests/base/test_dtype.c compares them). Chosen at run time: the
 * rest of the library is built for the baseline CPU. */
#include "core/base/convert_paths.h"
#include "core/base/dtype_bits.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,f16c")))

AVX2 static void f32_to_f16(const float *src, uint16_t *dst, uint64_t count) {
  uint64_t i = 0;
  for (; count - i >= 8; i += 8) {
    __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
  }
  for (; i < count; i++) dst[i] = bs_f16_of_f32_bits(bs_bits_of_f32(src[i]));
}

AVX2 static void f16_to_f32(const uint16_t *src, float *dst, uint64_t count) {
  uint64_t i = 0;
  for (; count - i >= 8; i += 8) {
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(h));
  }
  for (; i < count; i++) dst[i] = bs_f32_of_bits(bs_f32_bits_of_f16(src[i]));
}

AVX2 static void f32_to_bf16(const float *src, uint16_t *dst, uint64_t count) {
  const __m256i one = _mm256_set1_epi32(1), bias = _mm256_set1_epi32(0x7fff), quiet = _mm256_set1_epi32(0x40);
  uint64_t i = 0;
  for (; count - i >= 8; i += 8) {
    __m256 f = _mm256_loadu_ps(src + i);
    __m256i bits = _mm256_castps_si256(f), upper = _mm256_srli_epi32(bits, 16);
    __m256i even = _mm256_add_epi32(bias, _mm256_and_si256(upper, one));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, even), 16);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    __m256i code = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, quiet), is_nan);
    __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    _mm_storeu_si128((__m128i *)(void *)(dst + i), packed);
  }
  for (; i < count; i++) dst[i] = bs_bf16_of_f32_bits(bs_bits_of_f32(src[i]));
}

AVX2 static void bf16_to_f32(const uint16_t *src, float *dst, uint64_t count) {
  const __m256i quiet = _mm256_set1_epi32(0x400000);
  uint64_t i = 0;
  for (; count - i >= 8; i += 8) {
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
    __m256 f = _mm256_castsi256_ps(bits);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    bits = _mm256_or_si256(bits, _mm256_and_si256(is_nan, quiet));
    _mm256_storeu_si256((__m256i *)(void *)(dst + i), bits);
  }
  for (; i < count; i++) dst[i] = bs_f32_of_bits(bs_f32_bits_of_bf16(src[i]));
}

static int cpu_has_avx2_f16c(void) {
  unsigned eax, ebx, ecx = 0, edx;
  /* cpu_supports("avx2") is 1 only when the system also saves the wide registers. */
  if (!__builtin_cpu_supports("avx2")) return 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

const bs_convert_kernels *bs_convert_avx2(void) {
  static const bs_convert_kernels kernels = {f32_to_f16, f32_to_bf16, f16_to_f32, bf16_to_f32};
  /* Asked once: cpuid costs microseconds in a virtual machine. 0: not yet, 1: no, 2: yes; every thread
   * finds the same answer, so that a race only asks twice. */
  static int known;
  int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer == 0) {
    answer = cpu_has_avx2_f16c() ? 2 : 1;
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer == 2 ? &kernels : NULL;
}
#else
const bs_convert_kernels *bs_convert_avx2(void) {
  return NULL;
}
#endif
