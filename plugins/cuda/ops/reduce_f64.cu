/* SPDX-License-Identifier: MIT */
#include "reduce_f64.h"
/**/
#include "reduce_body.h"

/* With four blocks a multiprocessor, code for sm_100 and sm_120 spills. */
CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK, 3) reduce_f64(const __grid_constant__ reduce_args args) {
  __shared__ reduce_shared shared;
  reduce_block(&args, &shared);
}
