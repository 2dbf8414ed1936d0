/* SPDX-License-Identifier: MIT
 * rng_paths.h - the kernels of bs_rng_*, one table for the baseline CPU and one for AVX2 with FMA.
 * Private to core/base; exported so that tests/base can compare the two bit by bit. */
#ifndef BS_CORE_BASE_RNG_PATHS_H
#define BS_CORE_BASE_RNG_PATHS_H
#include <stdint.h>

#include "blockshock/blockshock.h"

/* Each writes 4 * lanes elements from element 4 * block on; 1 <= lanes <= 64. */
typedef struct bs_rng_kernels {
  void (*bits)(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, uint32_t *out);
  void (*uniform)(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, float *out);
  void (*normal)(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes, float *out);
} bs_rng_kernels;

BS_API const bs_rng_kernels *bs_rng_portable(void);
/* NULL where the CPU (or the build) has no AVX2 and FMA. */
BS_API const bs_rng_kernels *bs_rng_avx2(void);
#endif
