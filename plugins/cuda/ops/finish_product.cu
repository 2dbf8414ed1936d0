/* SPDX-License-Identifier: MIT */
#include "finish_product_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS finish_product(const __grid_constant__ finish_product_args args) {
  finish_product_thread(&args, cuda_item());
}
