/* SPDX-License-Identifier: MIT
 * rng.h - Philox4x32-10 (Salmon et al., SC11; Random123's constants): element i of (seed, stream) is a pure
 * function of (seed, stream, i): key = seed's two halves, counter = (i/4 low, i/4 high, stream, 0), word i
 * mod 4. uniform: (word >> 8) * 2^-24 in [0,1). normal: Box-Muller on word pairs (0,1), (2,3) with our own
 * polynomials and explicit fma (rng.c, docs/numbers.md): same bits everywhere. Thread-safe, no state. */
#ifndef BS_CORE_BASE_RNG_H
#define BS_CORE_BASE_RNG_H
#include <stdint.h>

#include "blockshock/blockshock.h"
BS_API void bs_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
BS_API void bs_rng_bits(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, uint32_t *out);
BS_API void bs_rng_uniform(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float *out);
BS_API void bs_rng_normal(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float *out);
#endif
