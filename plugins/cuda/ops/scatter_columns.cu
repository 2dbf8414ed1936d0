/* SPDX-License-Identifier: MIT */
#include "scatter_columns_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS scatter_columns(const __grid_constant__ scatter_columns_args args) {
  scatter_columns_thread(&args, cuda_item());
}
