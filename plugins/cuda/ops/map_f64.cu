/* SPDX-License-Identifier: MIT */
#include "map_f64.h"
/**/
#include "map_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS map_f64(const __grid_constant__ map_args args) {
  extern __shared__ __align__(16) char map_shared[];
  const cuda_at at = cuda_here();
  map_thread(&args, map_shared, &at);
}
