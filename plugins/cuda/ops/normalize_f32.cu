/* SPDX-License-Identifier: MIT */
#include "normalize_f32.h"
/**/
#include "normalize_block_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS normalize_f32(const __grid_constant__ normalize_args args) {
  __shared__ normalize_shared shared;
  normalize_block(&args, &shared);
}
