/* SPDX-License-Identifier: MIT
 * product_i64.h - the number type of products of integers, modulo 2^64; see product_f32.h. */
#ifndef BS_PLUGIN_CUDA_PRODUCT_NUMBER
#define BS_PLUGIN_CUDA_PRODUCT_NUMBER
#include "numbers.h"
#include "product.h"

typedef uint64_t product_number;
typedef uint64_t product_bits;

enum { PRODUCT_WIDEST = 8 };

CUDA_FN product_number product_widen(uint32_t dtype, product_bits bits) {
  return (uint64_t)cuda_i64_of_bits(dtype, bits);
}
CUDA_FN void product_widen4(uint32_t dtype, const product_bits *bits, product_number *v) {
  CUDA_UNROLL
  for (int q = 0; q < PRODUCT_EACH; q++) v[q] = product_widen(dtype, bits[q]);
}
CUDA_FN product_number product_step(product_number sum, product_number a, product_number b) {
  return sum + a * b;
}
CUDA_FN product_number product_times(product_number sum, double scale) { /* of integers the scale is 1 */
  (void)scale;
  return sum;
}
CUDA_FN product_number product_plus(product_number a, product_number b) {
  return a + b;
}
CUDA_FN product_number product_act(uint32_t activation, product_number v) {
  return activation == BS_ACT_RELU && v >> 63 != 0 ? 0 : v;
}
CUDA_FN double product_scaled(float alpha, product_number sum) { /* integer weights are not updated */
  return (double)alpha * (double)(int64_t)sum;
}
/* An i32 output keeps the low 32 bits, as sums in 32 bits would; i64 all. */
CUDA_FN uint64_t product_narrow(uint32_t dtype, product_number v) {
  return dtype == BS_I32 ? v & 0xffffffffu : v;
}
#endif
