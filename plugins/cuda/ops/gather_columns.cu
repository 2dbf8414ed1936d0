/* SPDX-License-Identifier: MIT */
#include "gather_columns_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS gather_columns(const __grid_constant__ gather_columns_args args) {
  gather_columns_thread(&args, cuda_item());
}
