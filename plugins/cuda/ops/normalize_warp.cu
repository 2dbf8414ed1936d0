/* SPDX-License-Identifier: MIT */
#include "normalize_warp_body.h"

/* With four blocks a multiprocessor, code for sm_100 and sm_120 spills. */
CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK, 3)
    normalize_warp(const __grid_constant__ normalize_args args) {
  const cuda_at at = cuda_here();
  normalize_warp_row(&args, &at);
}
