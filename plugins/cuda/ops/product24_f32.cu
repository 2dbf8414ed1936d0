/* SPDX-License-Identifier: MIT
 * product24_f32.cu - the products of 2:4 weights in f32 (product24_body.h). */
#include "product_f32.h"
/**/
#include "product_body.h"
/**/
#include "product24_body.h"

CUDA_KERNEL void __launch_bounds__(PRODUCT_THREADS, 2)
    product24_f32(const __grid_constant__ product24_args args) {
  product24_block(&args);
}
