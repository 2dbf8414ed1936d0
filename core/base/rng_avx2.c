/* SPDX-License-Identifier: MIT
 * rng_avx2.c - rng_kernel.h compiled for AVX2 with FMA: the compiler vectorises its lane loops 8 wide
 * and fmaf is one instruction. Chosen at run time; the same bits as rng.c's (tests/base/test_rng.c). */
#include "core/base/rng_kernel.h"
#include "core/base/rng_paths.h"

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))

AVX2 static void avx2_bits(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, uint32_t *out) {
  if (lanes == BS_RNG_LANES) {
    bs_rng_kernel_bits(seed, stream, block, BS_RNG_LANES, out);
  } else {
    bs_rng_kernel_bits(seed, stream, block, lanes, out);
  }
}

AVX2 static void avx2_uniform(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, float *out) {
  if (lanes == BS_RNG_LANES) {
    bs_rng_kernel_uniform(seed, stream, block, BS_RNG_LANES, out);
  } else {
    bs_rng_kernel_uniform(seed, stream, block, lanes, out);
  }
}

AVX2 static void avx2_normal(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, float *out) {
  if (lanes == BS_RNG_LANES) {
    bs_rng_kernel_normal(seed, stream, block, BS_RNG_LANES, out);
  } else {
    bs_rng_kernel_normal(seed, stream, block, lanes, out);
  }
}

const bs_rng_kernels *bs_rng_avx2(void) {
  static const bs_rng_kernels kernels = {avx2_bits, avx2_uniform, avx2_normal};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels : NULL;
}
#else
const bs_rng_kernels *bs_rng_avx2(void) {
  return NULL;
}
#endif
