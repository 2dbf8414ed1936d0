/* SPDX-License-Identifier: MIT */
#include "tree_sum_body.h"

CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK, 2) tree_sum(const __grid_constant__ tree_sum_args args) {
  tree_sum_thread(&args, cuda_item());
}
