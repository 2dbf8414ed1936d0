/* SPDX-License-Identifier: MIT */
#include "put_set_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS put_set(const __grid_constant__ put_args args) {
  put_set_thread(&args, cuda_item());
}
