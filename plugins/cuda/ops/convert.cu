/* SPDX-License-Identifier: MIT */
#include "convert_body.h"

CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK) convert(const __grid_constant__ convert_args args) {
  convert_thread(&args, cuda_item());
}
