/* SPDX-License-Identifier: MIT
 * product24_f64.cu - the products of 2:4 weights in f64 (product24_body.h). */
#include "product_f64.h"
/**/
#include "product_body.h"
/**/
#include "product24_body.h"

CUDA_KERNEL void __launch_bounds__(PRODUCT_THREADS, 2)
    product24_f64(const __grid_constant__ product24_args args) {
  product24_block(&args);
}
