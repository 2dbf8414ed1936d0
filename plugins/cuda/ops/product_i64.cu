/* SPDX-License-Identifier: MIT
 * product_i64.cu - C[i,j] = sum over r of A[i,r] B[j,r] in i64 (product_body.h). */
#include "product_i64.h"
/**/
#include "product_body.h"

CUDA_KERNEL void __launch_bounds__(PRODUCT_THREADS, 2)
    product_i64(const __grid_constant__ product_args args) {
  product_block(&args);
}
