/* SPDX-License-Identifier: MIT */
#include "activate_dx_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS activate_dx(const __grid_constant__ activate_dx_args args) {
  activate_dx_thread(&args, cuda_item());
}
