/* SPDX-License-Identifier: MIT */
#include "scatter_columns_body.h"

CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK) scatter_columns(const __grid_constant__ scatter_columns_args args) {
  scatter_columns_thread(&args, cuda_item());
}
