/* SPDX-License-Identifier: MIT */
#include "ranks_reduce_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS ranks_reduce(const __grid_constant__ ranks_reduce_args args) {
  ranks_reduce_thread(&args, cuda_item());
}
