/* SPDX-License-Identifier: MIT */
#include "quantize_groups_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS quantize_groups(const __grid_constant__ quantize_groups_args args) {
  __shared__ quantize_groups_shared shared;
  const cuda_at at = cuda_here();
  quantize_groups_begin(&args, &shared, &at);
  __syncthreads();
  quantize_groups_measure(&args, &shared, &at);
  __syncthreads();
  quantize_groups_finish(&args, &shared, &at);
}
