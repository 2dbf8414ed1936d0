/* SPDX-License-Identifier: MIT
 * product_f32.h - the number type of products in f32, for product_body.h and product24_body.h. product_f64.h
 * and product_i64.h have the same names. Operands have at most 32 bits. */
#ifndef BS_PLUGIN_CUDA_PRODUCT_NUMBER
#define BS_PLUGIN_CUDA_PRODUCT_NUMBER
#include "activations.h"
#include "numbers.h"
#include "product.h"

typedef float product_number;
typedef uint32_t product_bits; /* the bits of an operand in memory */

enum { PRODUCT_WIDEST = 4 }; /* bytes of an operand */

CUDA_FN product_number product_widen(uint32_t dtype, product_bits bits) {
  return cuda_f32_of_bits(dtype, bits);
}
/* Four of one dtype. */
CUDA_FN void product_widen4(uint32_t dtype, const product_bits *bits, product_number *v) {
  switch (dtype) {
    case BS_F32:
      CUDA_UNROLL
      for (int q = 0; q < PRODUCT_EACH; q++) v[q] = cuda_f32_bits(bits[q]);
      break;
    case BS_F16:
      CUDA_UNROLL
      for (int q = 0; q < PRODUCT_EACH; q++) v[q] = cuda_f32_of_f16(bits[q]);
      break;
    case BS_BF16:
      CUDA_UNROLL
      for (int q = 0; q < PRODUCT_EACH; q++) v[q] = cuda_f32_of_bf16(bits[q]);
      break;
    case BS_F8E4M3:
      CUDA_UNROLL
      for (int q = 0; q < PRODUCT_EACH; q++) v[q] = cuda_f32_of_f8e4m3(bits[q]);
      break;
    default: /* BS_F8E5M2 */
      CUDA_UNROLL
      for (int q = 0; q < PRODUCT_EACH; q++) v[q] = cuda_f32_of_f8e5m2(bits[q]);
      break;
  }
}
CUDA_FN product_number product_step(product_number sum, product_number a, product_number b) {
  return cuda_fma_f32(a, b, sum);
}
CUDA_FN product_number product_times(product_number sum, double scale) {
  return (float)scale * sum;
}
CUDA_FN product_number product_plus(product_number a, product_number b) {
  return a + b;
}
CUDA_FN product_number product_act(uint32_t activation, product_number v) {
  return activation == BS_ACT_NONE ? v : cuda_activation_f32(activation, v);
}
CUDA_FN double product_scaled(float alpha, product_number sum) {
  return (double)(alpha * sum);
}
CUDA_FN uint64_t product_narrow(uint32_t dtype, product_number v) {
  return cuda_bits_of_f32(dtype, v);
}
#endif
