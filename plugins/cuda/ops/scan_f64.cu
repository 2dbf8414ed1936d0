/* SPDX-License-Identifier: MIT */
#include "reduce_f64.h"
/**/
#include "scan_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS scan_f64(const __grid_constant__ scan_args args) {
  __shared__ scan_shared shared;
  scan_block(&args, &shared);
}
