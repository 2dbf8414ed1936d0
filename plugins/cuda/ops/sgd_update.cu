/* SPDX-License-Identifier: MIT */
#include "sgd_update_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS sgd_update(const __grid_constant__ sgd_update_args args) {
  sgd_update_thread(&args, cuda_item());
}
