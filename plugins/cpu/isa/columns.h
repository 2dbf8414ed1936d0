/* SPDX-License-Identifier: MIT
 *
 * columns.h - AVX2 gather of columns whose pattern repeats within a vector: one permutation a group of
 * columns, with tables from ops/columns.c. Whole-vector stores also write beyond the kept values, and the
 * next group overwrites that; the last groups are done singly, so that nothing past the end is read or
 * written. Scatter writes only kept columns: other ranks may write the columns between them. */
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

/* Uses plain stores, with size and kept as constants: masked ones of AVX2 are slower on AMD's processors. */
static inline void scatter_groups(const cpu_pick *pick, size_t size, uint32_t kept, uint8_t *dst,
                                  const uint8_t *src, int64_t groups) {
  size_t at[16];
  for (uint32_t j = 0; j < kept; j++) at[j] = pick->index[j] * size;
  for (int64_t g = 0; g < groups; g++, dst += (size_t)pick->group * size)
    for (uint32_t j = 0; j < kept; j++, src += size) memcpy(dst + at[j], src, size);
}

static void scatter_plain(const cpu_pick *pick, uint32_t size, uint8_t *dst, const uint8_t *src,
                          int64_t groups) {
  const uint32_t kept = pick->kept;
  if (size == 4 && kept == 4)
    scatter_groups(pick, 4, 4, dst, src, groups);
  else if (size == 2 && kept == 4)
    scatter_groups(pick, 2, 4, dst, src, groups);
  else if (size == 8 && kept == 2)
    scatter_groups(pick, 8, 2, dst, src, groups);
  else if (size == 8)
    scatter_groups(pick, 8, kept, dst, src, groups);
  else if (size == 4)
    scatter_groups(pick, 4, kept, dst, src, groups);
  else if (size == 2)
    scatter_groups(pick, 2, kept, dst, src, groups);
  else
    scatter_groups(pick, 1, kept, dst, src, groups);
}

/* Gathers groups of 32 bytes as eight 32-bit lanes, of which `lanes` are kept. */
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

#ifdef __AVX512VL__
static int64_t scatter_lanes(const cpu_pick *pick, int64_t lanes, uint8_t *dst, const uint8_t *src,
                             int64_t groups) {
  const __m256i expand = table(pick->expand);
  const __mmask8 mask = _mm256_movepi32_mask(table(pick->mask));
  int64_t g = 0;
  for (; (groups - g) * lanes >= 8; g++)
    _mm256_mask_storeu_epi32(dst + 32 * g, mask,
                             _mm256_permutevar8x32_epi32(table(src + 4 * lanes * g), expand));
  return g;
}
#else
static int64_t scatter_lanes(const cpu_pick *pick, int64_t lanes, uint8_t *dst, const uint8_t *src,
                             int64_t groups) {
  (void)pick, (void)lanes, (void)dst, (void)src, (void)groups;
  return 0;
}
#endif

static void columns_scatter(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups) {
  const uint32_t bytes = pick->kept * size;
  const int64_t done = size >= 4 ? scatter_lanes(pick, bytes / 4, dst, src, groups) : 0;
  scatter_plain(pick, size, (uint8_t *)dst + done * (int64_t)pick->group * size,
                (const uint8_t *)src + done * bytes, groups - done);
}

#endif
