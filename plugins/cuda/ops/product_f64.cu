/* SPDX-License-Identifier: MIT
 * product_f64.cu - C[i,j] = sum over r of A[i,r] B[j,r] in f64 (product_body.h). */
#include "product_f64.h"
/**/
#include "product_body.h"

CUDA_KERNEL void __launch_bounds__(PRODUCT_THREADS, 2)
    product_f64(const __grid_constant__ product_args args) {
  product_block(&args);
}
