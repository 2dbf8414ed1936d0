/* SPDX-License-Identifier: MIT */
#include "take_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS take(const __grid_constant__ take_args args) {
  take_thread(&args, cuda_item());
}
