/* SPDX-License-Identifier: MIT
 * convert_paths.h - the array conversions that bs_convert uses: one function a pair of dtypes, portable and
 * AVX2. Private to core/base; exported so that tests/base can compare the two paths bit by bit. */
#ifndef BS_CORE_BASE_CONVERT_PATHS_H
#define BS_CORE_BASE_CONVERT_PATHS_H
#include <stdint.h>

#include "blockshock/blockshock.h"

/* The pairs that must be fast. All four are elementwise; src and dst do not overlap. */
typedef struct bs_convert_kernels {
  void (*f32_to_f16)(const float *src, uint16_t *dst, uint64_t count);
  void (*f32_to_bf16)(const float *src, uint16_t *dst, uint64_t count);
  void (*f16_to_f32)(const uint16_t *src, float *dst, uint64_t count);
  void (*bf16_to_f32)(const uint16_t *src, float *dst, uint64_t count);
} bs_convert_kernels;

BS_API const bs_convert_kernels *bs_convert_portable(void);
/* NULL where the CPU (or the build) has no AVX2 and F16C. */
BS_API const bs_convert_kernels *bs_convert_avx2(void);
#endif
