/* SPDX-License-Identifier: MIT */
#include "activate_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS activate(const __grid_constant__ activate_args args) {
  activate_thread(&args, cuda_item());
}
