/* SPDX-License-Identifier: MIT */
#include "dequantize_product_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS dequantize_product(const __grid_constant__ dequantize_product_args args) {
  dequantize_product_thread(&args, cuda_item());
}
