/* SPDX-License-Identifier: MIT */
#include "attention_merge_body.h"

/* Without a number of blocks ptxas aims at more and spills. */
CUDA_KERNEL void __launch_bounds__(ATTENTION_ROWS_THREADS, 4)
    attention_merge(const __grid_constant__ attention_args args) {
  const cuda_at at = cuda_here();
  attention_merge_here(&args, &at);
}
