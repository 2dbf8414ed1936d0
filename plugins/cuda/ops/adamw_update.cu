/* SPDX-License-Identifier: MIT */
#include "adamw_update_body.h"

CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK, 2)
    adamw_update(const __grid_constant__ adamw_update_args args) {
  adamw_update_thread(&args, cuda_item());
}
