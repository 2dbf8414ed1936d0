/* SPDX-License-Identifier: MIT */
#define ATTENTION_WIDTH 128
#define ATTENTION_BF16 1
#include "attention_kernel.h"

CUDA_KERNEL void __launch_bounds__(ATTENTION_THREADS, 1)
    attention_bf16_128(const __grid_constant__ attention_args args) {
  attention_run(&args);
}
