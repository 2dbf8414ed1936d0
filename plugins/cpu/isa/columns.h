/* SPDX-License-Identifier: MIT
 *
 * columns.h - AVX2 picking of columns whose pattern repeats within a vector: one permutation a group of
 * columns, the tables made by ops/columns.c. Stores of a whole vector run ahead of what is kept and are
 * overwritten by the next group; the last groups are done singly, so that nothing past the end is read or
 * written. Scatter stores through a mask: other ranks may be writing the columns between. */
#ifndef BS_PLUGINS_CPU_ISA_COLUMNS_H
#define BS_PLUGINS_CPU_ISA_COLUMNS_H

#include <immintrin.h>
#include <string.h>

#include "../kernels.h"

static __m256i table(const uint8_t *bytes) {
  return _mm256_loadu_si256((const __m256i *)(const void *)bytes);
}

/* The last groups, one element after the other. */
static void gather_rest(const cpu_pick *pick, uint32_t size, uint8_t *dst, const uint8_t *src,
                        int64_t groups) {
  for (int64_t g = 0; g < groups; g++, src += (size_t)pick->group * size)
    for (uint32_t j = 0; j < pick->kept; j++, dst += size)
      memcpy(dst, src + (size_t)pick->index[j] * size, size);
}

static void scatter_rest(const cpu_pick *pick, uint32_t size, uint8_t *dst, const uint8_t *src,
                         int64_t groups) {
  for (int64_t g = 0; g < groups; g++, dst += (size_t)pick->group * size)
    for (uint32_t j = 0; j < pick->kept; j++, src += size)
      memcpy(dst + (size_t)pick->index[j] * size, src, size);
}

/* Groups of 32 bytes seen as eight 32-bit lanes, `lanes` of them kept. */
static int64_t gather_lanes(const cpu_pick *pick, uint32_t lanes, uint8_t *dst, const uint8_t *src,
                            int64_t groups) {
  const __m256i shuffle = table(pick->shuffle);
  int64_t g = 0;
  if (lanes == 4) {
    for (; g + 2 <= groups; g += 2) {
      const __m256i a = _mm256_permutevar8x32_epi32(table(src + 32 * g), shuffle);
      const __m256i b = _mm256_permutevar8x32_epi32(table(src + 32 * g + 32), shuffle);
      _mm256_storeu_si256((__m256i *)(void *)(dst + 16 * g),
                          _mm256_inserti128_si256(a, _mm256_castsi256_si128(b), 1));
    }
    return g;
  }
  for (; (groups - g) * lanes >= 8; g++)
    _mm256_storeu_si256((__m256i *)(void *)(dst + 4 * lanes * g),
                        _mm256_permutevar8x32_epi32(table(src + 32 * g), shuffle));
  return g;
}

/* Groups of 16 bytes, `bytes` of them kept. */
static int64_t gather_bytes(const cpu_pick *pick, uint32_t bytes, uint8_t *dst, const uint8_t *src,
                            int64_t groups) {
  const __m128i shuffle = _mm_loadu_si128((const __m128i *)(const void *)pick->shuffle);
  int64_t g = 0;
  if (bytes == 8) {
    const __m256i both = _mm256_broadcastsi128_si256(shuffle);
    for (; g + 2 <= groups; g += 2) {
      const __m256i v = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(table(src + 16 * g), both), 0x08);
      _mm_storeu_si128((__m128i *)(void *)(dst + 8 * g), _mm256_castsi256_si128(v));
    }
    return g;
  }
  for (; (groups - g) * bytes >= 16; g++) {
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(src + 16 * g));
    _mm_storeu_si128((__m128i *)(void *)(dst + bytes * g), _mm_shuffle_epi8(v, shuffle));
  }
  return g;
}

static void columns_gather(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups) {
  const uint32_t bytes = pick->kept * size;
  const int64_t done = size >= 4 ? gather_lanes(pick, bytes / 4, dst, src, groups)
                                 : gather_bytes(pick, bytes, dst, src, groups);
  gather_rest(pick, size, (uint8_t *)dst + done * bytes,
              (const uint8_t *)src + done * (int64_t)pick->group * size, groups - done);
}

static void columns_scatter(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups) {
  const int64_t lanes = (int64_t)pick->kept * size / 4;
  uint8_t *d = dst;
  const uint8_t *s = src;
  int64_t g = 0;
  if (size >= 4) {
    const __m256i expand = table(pick->expand), mask = table(pick->mask);
    for (; (groups - g) * lanes >= 8; g++)
      _mm256_maskstore_epi32((int *)(void *)(d + 32 * g), mask,
                             _mm256_permutevar8x32_epi32(table(s + 4 * lanes * g), expand));
  }
  scatter_rest(pick, size, d + g * (int64_t)pick->group * size, s + g * (int64_t)pick->kept * size,
               groups - g);
}

#endif
