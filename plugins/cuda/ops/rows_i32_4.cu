/* SPDX-License-Identifier: MIT
 * rows_i32_4.cu - products of at most 4 tokens (rows_body.h). */
#include "rows_i32.h"
/**/
#define ROWS_BYTES 1
#define ROWS_MOST 4
#include "rows_body.h"

CUDA_KERNEL void __launch_bounds__(ROWS_THREADS, 2) rows_i32_4(const __grid_constant__ rows_args args) {
  rows_block(&args);
}
