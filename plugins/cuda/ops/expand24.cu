/* SPDX-License-Identifier: MIT */
#include "expand24_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS expand24(const __grid_constant__ expand24_args args) {
  expand24_thread(&args, cuda_item());
}
