/* SPDX-License-Identifier: MIT */
#define ATTENTION_WIDTH 256
#define ATTENTION_BF16 0
#include "attention_kernel.h"

CUDA_KERNEL void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_f16_256(const __grid_constant__ attention_args args) {
  attention_run(&args);
}
