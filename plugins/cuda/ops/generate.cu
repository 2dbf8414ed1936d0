/* SPDX-License-Identifier: MIT */
#include "generate_body.h"

CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK) generate(const __grid_constant__ generate_args args) {
  generate_thread(&args, cuda_item());
}
