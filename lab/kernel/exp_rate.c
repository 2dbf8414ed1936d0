/* SPDX-License-Identifier: MIT
 * exp_rate.c - the highest rate of exponentials of a core: range reduction by a magic number, a polynomial,
 * and the power of two added to the exponent. 16-bit results need degree 2, f32 at least degree 4 (with a
 * table). Further work of a kernel (subtracting the largest score, the sum) is left out, so no kernel is
 * faster. */
#include <stdint.h>
#include <string.h>

#include "core/base/clock.h"
#include "lab/kernel/bound.h"

enum { CHAINS = 6, ITERATIONS = 60000, PASSES = 7 };
#define TARGET(set) __attribute__((target(set)))

/* The vectors x are unknown to the compiler in each iteration (KEEP costs no instruction), and each result is
 * kept. */
#define LOOP(NAME, FOR, VECTOR, INTEGERS, DEGREE, WHERE)         \
  FOR static void NAME(uint64_t iterations) {                    \
    VECTOR memory[CHAINS], x[CHAINS];                            \
    memset(memory, 0x38, sizeof memory);                         \
    __asm__ volatile("" : "+m"(memory));                         \
    for (int c = 0; c < CHAINS; ++c) x[c] = memory[c];           \
    for (uint64_t i = 0; i < iterations; ++i) {                  \
      _Pragma("GCC unroll 6") for (int c = 0; c < CHAINS; ++c) { \
        const VECTOR magic = (VECTOR){0} + 12582912.0f;          \
        __asm__ volatile("" : "+" WHERE(x[c]));                  \
        const VECTOR t = x[c] * 1.44269504f + magic;             \
        const VECTOR f = x[c] * 1.44269504f - (t - magic);       \
        VECTOR p = f * 0.0555041f + 0.2402265f;                  \
        if (DEGREE > 2) p = p * f + 0.6931472f;                  \
        if (DEGREE > 3) p = p * f + 0.9999999f;                  \
        p = p * f + 1.0f;                                        \
        INTEGERS bits;                                           \
        INTEGERS power;                                          \
        memcpy(&bits, &p, sizeof bits);                          \
        memcpy(&power, &t, sizeof power);                        \
        bits += power << 23;                                     \
        __asm__ volatile("" : : WHERE(bits));                    \
      }                                                          \
    }                                                            \
  }

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
#if defined(__x86_64__)
typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
LOOP(portable_2, , f32x4, i32x4, 2, "x")
LOOP(portable_4, , f32x4, i32x4, 4, "x")
LOOP(avx2_2, TARGET("avx2,fma"), f32x8, i32x8, 2, "x")
LOOP(avx2_4, TARGET("avx2,fma"), f32x8, i32x8, 4, "x")
LOOP(avx512_2, TARGET("avx512f"), f32x16, i32x16, 2, "v")
LOOP(avx512_4, TARGET("avx512f"), f32x16, i32x16, 4, "v")
#else
LOOP(portable_2, , f32x4, i32x4, 2, "m")
LOOP(portable_4, , f32x4, i32x4, 4, "m")
#endif

/* Functions by the width of a vector: for 16-bit results, and for f32. */
static const struct {
  int lanes;
  void (*run[2])(uint64_t iterations);
} loops[] = {
    {4, {portable_2, portable_4}},
#if defined(__x86_64__)
    {8, {avx2_2, avx2_4}},
    {16, {avx512_2, avx512_4}},
#endif
};

static size_t usable(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return 3;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 2;
#endif
  return 1;
}

double bs_kernel_exp_rate(uint32_t dtype) {
  const int precise = BS_DTYPE_BYTES(dtype) > 2;
  const size_t n = usable();
  double best = 0.0;
  for (size_t i = 0; i < n; i++)
    for (int pass = 0; pass < PASSES; pass++) {
      const double began = bs_clock_s();
      loops[i].run[precise](ITERATIONS);
      const double rate = (double)ITERATIONS * CHAINS * loops[i].lanes / (bs_clock_s() - began);
      if (rate > best) best = rate;
    }
  return best;
}
