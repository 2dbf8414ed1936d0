/* SPDX-License-Identifier: MIT */
#include "convert_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS convert(const __grid_constant__ convert_args args) {
  convert_thread(&args, cuda_item());
}
