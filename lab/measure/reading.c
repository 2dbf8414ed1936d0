/* SPDX-License-Identifier: MIT
 * reading.c - see peak.h. */
#include "lab/measure/peak.h"

#include <string.h>

#define TARGET(set) __attribute__((target(set)))
/* Reads four streams of `quarter` bytes alternately, a cache line of each; in blocks of `step` bytes, or all
 * in one. Each part of the four lines has a separate sum, which stays in a register. */
#define READER(NAME, FOR, BYTES)                                                 \
  FOR static uint64_t NAME(const char *data, size_t bytes, size_t step) {        \
    typedef uint64_t vector __attribute__((vector_size(BYTES)));                 \
    enum { PARTS = 64 / BYTES };                                                 \
    vector sum[4 * PARTS], value;                                                \
    uint64_t all = 0;                                                            \
    memset(sum, 0, sizeof sum);                                                  \
    for (size_t at = 0; at < bytes; at += step) {                                \
      if (step == 0 || step > bytes - at) step = bytes - at;                     \
      const size_t quarter = step / 4;                                           \
      for (size_t i = 0; i < quarter; i += 64) {                                 \
        const char *line = data + at + i;                                        \
        _Pragma("GCC unroll 16") for (size_t k = 0; k < 4 * PARTS; ++k) {        \
          memcpy(&value, line + k / PARTS * quarter + k % PARTS * BYTES, BYTES); \
          sum[k] += value;                                                       \
        }                                                                        \
      }                                                                          \
    }                                                                            \
    for (size_t k = 1; k < 4 * PARTS; ++k) sum[0] += sum[k];                     \
    for (size_t k = 0; k < BYTES / sizeof all; ++k) all += sum[0][k];            \
    return all;                                                                  \
  }

READER(portable, , 16)
#if defined(__x86_64__)
READER(avx2, TARGET("avx2"), 32)
READER(avx512, TARGET("avx512f"), 64)
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
