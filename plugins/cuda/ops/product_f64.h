/* SPDX-License-Identifier: MIT
 * product_f64.h - the number type of products in f64; see product_f32.h. */
#ifndef BS_PLUGIN_CUDA_PRODUCT_NUMBER
#define BS_PLUGIN_CUDA_PRODUCT_NUMBER
#include "activations.h"
#include "numbers.h"
#include "product.h"

typedef double product_number;
typedef uint64_t product_bits;

enum { PRODUCT_WIDEST = 8 };

CUDA_FN product_number product_widen(uint32_t dtype, product_bits bits) {
  return cuda_f64_of_bits(dtype, bits);
}
CUDA_FN void product_widen4(uint32_t dtype, const product_bits *bits, product_number *v) {
  CUDA_UNROLL
  for (int q = 0; q < PRODUCT_EACH; q++) v[q] = product_widen(dtype, bits[q]);
}
CUDA_FN product_number product_step(product_number sum, product_number a, product_number b) {
  return cuda_fma_f64(a, b, sum);
}
CUDA_FN product_number product_times(product_number sum, double scale) {
  return scale * sum;
}
CUDA_FN product_number product_plus(product_number a, product_number b) {
  return a + b;
}
CUDA_FN product_number product_act(uint32_t activation, product_number v) {
  return activation == BS_ACT_NONE ? v : cuda_activation(activation, v);
}
CUDA_FN double product_scaled(float alpha, product_number sum) {
  return (double)alpha * sum;
}
CUDA_FN uint64_t product_narrow(uint32_t dtype, product_number v) {
  return cuda_bits_of_f64(dtype, v);
}
#endif
