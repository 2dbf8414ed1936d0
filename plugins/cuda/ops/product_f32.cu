/* SPDX-License-Identifier: MIT
 * product_f32.cu - C[i,j] = sum over r of A[i,r] B[j,r] in f32 (product_body.h). */
#include "product_f32.h"
/**/
#include "product_body.h"

CUDA_KERNEL void __launch_bounds__(PRODUCT_THREADS, 2)
    product_f32(const __grid_constant__ product_args args) {
  product_block(&args);
}
