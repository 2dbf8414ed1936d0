/* SPDX-License-Identifier: MIT */
#include "dequantize_sum_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS dequantize_sum(const __grid_constant__ dequantize_sum_args args) {
  dequantize_sum_thread(&args, cuda_item());
}
