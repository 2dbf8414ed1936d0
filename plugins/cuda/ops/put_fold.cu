/* SPDX-License-Identifier: MIT */
#include "put_fold_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS put_fold(const __grid_constant__ put_args args) {
  put_fold_thread(&args, cuda_item());
}
