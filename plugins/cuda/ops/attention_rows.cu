/* SPDX-License-Identifier: MIT */
#include "attention_row.h"

/* Without a number of blocks ptxas aims at more and spills. */
CUDA_KERNEL void __launch_bounds__(ATTENTION_ROWS_THREADS, 4)
    attention_rows(const __grid_constant__ attention_args args) {
  const cuda_at at = cuda_here();
  attention_row_here(&args, &at);
}
