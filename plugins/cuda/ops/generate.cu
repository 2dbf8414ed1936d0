/* SPDX-License-Identifier: MIT */
#include "generate_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS generate(const __grid_constant__ generate_args args) {
  generate_thread(&args, cuda_item());
}
