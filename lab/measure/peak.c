/* SPDX-License-Identifier: MIT
 * peak.c - multiply-add loops, one an instruction set, chosen at run time. Twelve independent chains keep two
 * units of four to five cycles' latency busy. */
#include "lab/measure/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "blockshock/tensor.h"

#define CHAINS 12

static float portable(uint64_t iterations) {
  float a[CHAINS][8];
  for (int c = 0; c < CHAINS; ++c) {
    for (int j = 0; j < 8; ++j) a[c][j] = (float)c;
  }
  for (uint64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < CHAINS; ++c) {
      for (int j = 0; j < 8; ++j) a[c][j] = a[c][j] * 0.999f + 0.001f;
    }
  }
  float sum = 0.0f;
  for (int c = 0; c < CHAINS; ++c) sum += a[c][c % 8];
  return sum;
}

#if defined(__x86_64__)
/* Equal chains must not be folded into one: the compiler is told that each has changed. */
#define KEEP6(r, a, b, c, d, e, f) \
  __asm__ volatile("" : "+" r(a), "+" r(b), "+" r(c), "+" r(d), "+" r(e), "+" r(f))

__attribute__((target("avx2,fma"))) static float avx2(uint64_t iterations) {
  const __m256 m = _mm256_set1_ps(0.999f);
  const __m256 d = _mm256_set1_ps(0.001f);
  __m256 a0 = d, a1 = d, a2 = d, a3 = d, a4 = d, a5 = d, a6 = d, a7 = d, a8 = d, a9 = d, a10 = d, a11 = d;
  for (uint64_t i = 0; i < iterations; ++i) {
    a0 = _mm256_fmadd_ps(a0, m, d);
    a1 = _mm256_fmadd_ps(a1, m, d);
    a2 = _mm256_fmadd_ps(a2, m, d);
    a3 = _mm256_fmadd_ps(a3, m, d);
    a4 = _mm256_fmadd_ps(a4, m, d);
    a5 = _mm256_fmadd_ps(a5, m, d);
    a6 = _mm256_fmadd_ps(a6, m, d);
    a7 = _mm256_fmadd_ps(a7, m, d);
    a8 = _mm256_fmadd_ps(a8, m, d);
    a9 = _mm256_fmadd_ps(a9, m, d);
    a10 = _mm256_fmadd_ps(a10, m, d);
    a11 = _mm256_fmadd_ps(a11, m, d);
    KEEP6("x", a0, a1, a2, a3, a4, a5);
    KEEP6("x", a6, a7, a8, a9, a10, a11);
  }
  __m256 sum = a0;
  sum = _mm256_add_ps(sum, a1);
  sum = _mm256_add_ps(sum, a2);
  sum = _mm256_add_ps(sum, a3);
  sum = _mm256_add_ps(sum, a4);
  sum = _mm256_add_ps(sum, a5);
  sum = _mm256_add_ps(sum, a6);
  sum = _mm256_add_ps(sum, a7);
  sum = _mm256_add_ps(sum, a8);
  sum = _mm256_add_ps(sum, a9);
  sum = _mm256_add_ps(sum, a10);
  sum = _mm256_add_ps(sum, a11);
  return _mm256_cvtss_f32(sum);
}

__attribute__((target("avx512f"))) static float avx512(uint64_t iterations) {
  const __m512 m = _mm512_set1_ps(0.999f);
  const __m512 d = _mm512_set1_ps(0.001f);
  __m512 a0 = d, a1 = d, a2 = d, a3 = d, a4 = d, a5 = d, a6 = d, a7 = d, a8 = d, a9 = d, a10 = d, a11 = d;
  for (uint64_t i = 0; i < iterations; ++i) {
    a0 = _mm512_fmadd_ps(a0, m, d);
    a1 = _mm512_fmadd_ps(a1, m, d);
    a2 = _mm512_fmadd_ps(a2, m, d);
    a3 = _mm512_fmadd_ps(a3, m, d);
    a4 = _mm512_fmadd_ps(a4, m, d);
    a5 = _mm512_fmadd_ps(a5, m, d);
    a6 = _mm512_fmadd_ps(a6, m, d);
    a7 = _mm512_fmadd_ps(a7, m, d);
    a8 = _mm512_fmadd_ps(a8, m, d);
    a9 = _mm512_fmadd_ps(a9, m, d);
    a10 = _mm512_fmadd_ps(a10, m, d);
    a11 = _mm512_fmadd_ps(a11, m, d);
    KEEP6("v", a0, a1, a2, a3, a4, a5);
    KEEP6("v", a6, a7, a8, a9, a10, a11);
  }
  __m512 sum = a0;
  sum = _mm512_add_ps(sum, a1);
  sum = _mm512_add_ps(sum, a2);
  sum = _mm512_add_ps(sum, a3);
  sum = _mm512_add_ps(sum, a4);
  sum = _mm512_add_ps(sum, a5);
  sum = _mm512_add_ps(sum, a6);
  sum = _mm512_add_ps(sum, a7);
  sum = _mm512_add_ps(sum, a8);
  sum = _mm512_add_ps(sum, a9);
  sum = _mm512_add_ps(sum, a10);
  sum = _mm512_add_ps(sum, a11);
  return _mm512_cvtss_f32(sum);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static float avx512_bf16(
    uint64_t iterations) {
  const __m512 d = _mm512_set1_ps(0.001f);
  const __m512bh m = _mm512_cvtne2ps_pbh(d, d);
  __m512 a0 = d, a1 = d, a2 = d, a3 = d, a4 = d, a5 = d, a6 = d, a7 = d, a8 = d, a9 = d, a10 = d, a11 = d;
  for (uint64_t i = 0; i < iterations; ++i) {
    a0 = _mm512_dpbf16_ps(a0, m, m);
    a1 = _mm512_dpbf16_ps(a1, m, m);
    a2 = _mm512_dpbf16_ps(a2, m, m);
    a3 = _mm512_dpbf16_ps(a3, m, m);
    a4 = _mm512_dpbf16_ps(a4, m, m);
    a5 = _mm512_dpbf16_ps(a5, m, m);
    a6 = _mm512_dpbf16_ps(a6, m, m);
    a7 = _mm512_dpbf16_ps(a7, m, m);
    a8 = _mm512_dpbf16_ps(a8, m, m);
    a9 = _mm512_dpbf16_ps(a9, m, m);
    a10 = _mm512_dpbf16_ps(a10, m, m);
    a11 = _mm512_dpbf16_ps(a11, m, m);
    KEEP6("v", a0, a1, a2, a3, a4, a5);
    KEEP6("v", a6, a7, a8, a9, a10, a11);
  }
  __m512 sum = a0;
  sum = _mm512_add_ps(sum, a1);
  sum = _mm512_add_ps(sum, a2);
  sum = _mm512_add_ps(sum, a3);
  sum = _mm512_add_ps(sum, a4);
  sum = _mm512_add_ps(sum, a5);
  sum = _mm512_add_ps(sum, a6);
  sum = _mm512_add_ps(sum, a7);
  sum = _mm512_add_ps(sum, a8);
  sum = _mm512_add_ps(sum, a9);
  sum = _mm512_add_ps(sum, a10);
  sum = _mm512_add_ps(sum, a11);
  return _mm512_cvtss_f32(sum);
}

#endif

uint32_t bs_peak_loops(uint32_t dtype, bs_peak *out, uint32_t max) {
  uint32_t n = 0;
#if defined(__x86_64__)
  if (n < max && dtype == BS_BF16 && __builtin_cpu_supports("avx512bf16")) {
    out[n++] = (bs_peak){"avx512_bf16", CHAINS * 16 * 4, avx512_bf16};
  }
  if (n < max && __builtin_cpu_supports("avx512f")) out[n++] = (bs_peak){"avx512", CHAINS * 16 * 2, avx512};
  if (n < max && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    out[n++] = (bs_peak){"avx2", CHAINS * 8 * 2, avx2};
  }
#endif
  (void)dtype;
  if (n == 0 && max > 0) out[n++] = (bs_peak){"portable", CHAINS * 8 * 2, portable};
  return n;
}
