/* SPDX-License-Identifier: MIT
 * sha256_ni.c - SHA-256 by the SHA instructions of x86, if the processor has them: four times as fast. */
#include "lab/store/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define WORDS(p) ((const __m128i *)(const void *)(p))

/* The instructions keep the state as (a, b, e, f) and (c, d, g, h), and do two rounds each. */
__attribute__((target("sha,sse4.1"))) static void add_blocks(uint32_t state[8], const uint8_t *data,
                                                             size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128(WORDS(state)), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(WORDS(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(abcd, efgh, 8), cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
  for (; count > 0; --count, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(_mm_loadu_si128(WORDS(data + 16 * i)), big_endian);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m128i now = w[i & 3], next = w[(i + 1) & 3], last = w[(i + 3) & 3];
      const __m128i sum = _mm_add_epi32(now, _mm_loadu_si128(WORDS(bs_sha256_constants + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      const __m128i seventh = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
      w[i & 3] = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, next), seventh), last);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bs_sha256_blocks *bs_sha256_ni(void) {
  static int known; /* read once, as in core/base/convert_avx2.c; 0: not yet, 1: no, 2: yes */
  int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (answer == 0) {
    unsigned a, b = 0, c, d;
    answer = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) != 0 && __builtin_cpu_supports("sse4.1")
                 ? 2
                 : 1;
    __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
  }
  return answer == 2 ? add_blocks : NULL;
}
#else
bs_sha256_blocks *bs_sha256_ni(void) {
  return NULL;
}
#endif
