/* SPDX-License-Identifier: MIT
 *
 * reading.c - see reading.h. */
#include "lab/measure/reading.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Four runs side by side, a cache line of each in turn: `quarter` bytes each, a multiple of 64. Written out,
 * so that every sum stays in a register at any level of optimisation. */
static uint64_t portable4(const char *data, size_t quarter) {
  uint64_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  for (size_t run = 0; run < 4; ++run) {
    const char *at = data + run * quarter;
    for (size_t i = 0; i < quarter; i += 64) {
      uint64_t words[8];
      memcpy(words, at + i, sizeof words);
      s0 += words[0] + words[4], s1 += words[1] + words[5];
      s2 += words[2] + words[6], s3 += words[3] + words[7];
    }
  }
  return s0 + s1 + s2 + s3;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t avx2_4(const char *data, size_t quarter) {
  const char *p = data, *q = data + quarter, *r = q + quarter, *s = r + quarter;
  __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
  for (size_t i = 0; i < quarter; i += 64) {
    a0 = _mm256_add_epi64(a0, _mm256_loadu_si256((const void *)(p + i)));
    a1 = _mm256_add_epi64(a1, _mm256_loadu_si256((const void *)(p + i + 32)));
    a2 = _mm256_add_epi64(a2, _mm256_loadu_si256((const void *)(q + i)));
    a3 = _mm256_add_epi64(a3, _mm256_loadu_si256((const void *)(q + i + 32)));
    a4 = _mm256_add_epi64(a4, _mm256_loadu_si256((const void *)(r + i)));
    a5 = _mm256_add_epi64(a5, _mm256_loadu_si256((const void *)(r + i + 32)));
    a6 = _mm256_add_epi64(a6, _mm256_loadu_si256((const void *)(s + i)));
    a7 = _mm256_add_epi64(a7, _mm256_loadu_si256((const void *)(s + i + 32)));
  }
  a0 = _mm256_add_epi64(_mm256_add_epi64(a0, a1), _mm256_add_epi64(a2, a3));
  a4 = _mm256_add_epi64(_mm256_add_epi64(a4, a5), _mm256_add_epi64(a6, a7));
  a0 = _mm256_add_epi64(a0, a4);
  return (uint64_t)_mm256_extract_epi64(a0, 0) + (uint64_t)_mm256_extract_epi64(a0, 2);
}

__attribute__((target("avx512f"))) static uint64_t avx512_4(const char *data, size_t quarter) {
  const char *p = data, *q = data + quarter, *r = q + quarter, *s = r + quarter;
  __m512i a0 = _mm512_setzero_si512(), a1 = a0, a2 = a0, a3 = a0;
  for (size_t i = 0; i < quarter; i += 64) {
    a0 = _mm512_add_epi64(a0, _mm512_loadu_si512(p + i));
    a1 = _mm512_add_epi64(a1, _mm512_loadu_si512(q + i));
    a2 = _mm512_add_epi64(a2, _mm512_loadu_si512(r + i));
    a3 = _mm512_add_epi64(a3, _mm512_loadu_si512(s + i));
  }
  return (uint64_t)_mm512_reduce_or_epi64(
      _mm512_add_epi64(_mm512_add_epi64(a0, a1), _mm512_add_epi64(a2, a3)));
}
#endif

static inline __attribute__((always_inline)) uint64_t in_blocks(uint64_t (*read4)(const char *, size_t),
                                                                const char *data, size_t bytes, size_t step) {
  uint64_t sum = 0;
  if (step == 0) return read4(data, bytes / 4);
  size_t at = 0;
  for (; at + step <= bytes; at += step) sum += read4(data + at, step / 4);
  return at < bytes ? sum + read4(data + at, (bytes - at) / 4) : sum;
}

static uint64_t portable(const char *data, size_t bytes, size_t step) {
  return in_blocks(portable4, data, bytes, step);
}

#if defined(__x86_64__)
static uint64_t avx2(const char *data, size_t bytes, size_t step) {
  return in_blocks(avx2_4, data, bytes, step);
}

static uint64_t avx512(const char *data, size_t bytes, size_t step) {
  return in_blocks(avx512_4, data, bytes, step);
}
#endif

const bs_reader *bs_reader_at(uint32_t index, int avx2_only) {
  static const bs_reader readers[BS_READERS] = {
    {"portable", portable},
#if defined(__x86_64__)
    {"avx2", avx2},
    {"avx512", avx512},
#endif
  };
#if defined(__x86_64__)
  if (index == 1 && !__builtin_cpu_supports("avx2")) return NULL;
  if (index == 2 && (avx2_only || !__builtin_cpu_supports("avx512f"))) return NULL;
#else
  (void)avx2_only;
#endif
  return index < BS_READERS && readers[index].run != NULL ? &readers[index] : NULL;
}
