/* SPDX-License-Identifier: MIT
 * product.c - a product by plain loops: each output is one sum, ascending, in the compute type. */
#include <string.h>

#include "lt.h"
#include "plugins/cuda/ops/numbers.h"

static uint32_t dtype_of(uint64_t type) {
  switch (type) {
    case CUDA_R_64F:
      return BS_F64;
    case CUDA_R_32F:
      return BS_F32;
    case CUDA_R_32I:
      return BS_I32;
    case CUDA_R_16F:
      return BS_F16;
    case CUDA_R_16BF:
      return BS_BF16;
    case CUDA_R_8I:
      return BS_I8;
    case CUDA_R_8F_E4M3:
      return BS_F8E4M3;
    default:
      return BS_F8E5M2;
  }
}

static uint64_t bits_at(const void *base, uint64_t type, uint64_t at) {
  uint64_t bits = 0;
  memcpy(&bits, (const char *)base + at * lt_bytes(type), lt_bytes(type));
  return bits;
}

static double number(const void *base, uint64_t type, uint64_t at) {
  const uint64_t bits = bits_at(base, type, at);
  if (type == CUDA_R_32I || type == CUDA_R_8I) return (double)cuda_i64_of_bits(dtype_of(type), bits);
  return type == CUDA_R_64F ? cuda_f64_of_bits(BS_F64, bits) : (double)cuda_f32_of_bits(dtype_of(type), bits);
}

static double sum(const lt_product *p, uint64_t i, uint64_t j) {
  const uint64_t k = p->desc.turn_a ? p->a.rows : p->a.cols;
  const uint64_t lda = (uint64_t)p->a.ld, ldb = (uint64_t)p->b.ld;
  double wide = 0.0;
  float narrow = 0.0f;
  int64_t whole = 0;
  for (uint64_t l = 0; l < k; l++) {
    const double a = number(p->pa, p->a.type, p->desc.turn_a ? l + i * lda : i + l * lda);
    const double b = number(p->pb, p->b.type, p->desc.turn_b ? j + l * ldb : l + j * ldb);
    if (p->desc.compute == CUBLAS_COMPUTE_64F)
      wide += a * b;
    else if (p->desc.compute == CUBLAS_COMPUTE_32I)
      whole += (int64_t)a * (int64_t)b;
    else
      narrow += (float)a * (float)b;
  }
  if (p->desc.compute == CUBLAS_COMPUTE_32I) return (double)(int32_t)(uint32_t)whole;
  return p->desc.compute == CUBLAS_COMPUTE_64F ? wide : (double)narrow;
}

/* Each step rounded to the scale type. */
static double step(const lt_product *p, double v) {
  return p->desc.scale == CUDA_R_32F ? (double)(float)v : v;
}

static void store(const lt_product *p, uint64_t at, double v) {
  const uint32_t dtype = dtype_of(p->d.type);
  const uint64_t bits = dtype == BS_I32   ? (uint64_t)(uint32_t)(int32_t)v
                        : dtype == BS_F64 ? cuda_bits_of_f64(dtype, v)
                                          : cuda_bits_of_f32(dtype, (float)v);
  memcpy((char *)p->pd + at * lt_bytes(p->d.type), &bits, lt_bytes(p->d.type));
}

void lt_compute(lt_product *p) {
  const double alpha = p->alpha != NULL ? number(p->alpha, (uint64_t)p->desc.scale, 0) : p->scalars[0];
  const double beta = p->beta != NULL ? number(p->beta, (uint64_t)p->desc.scale, 0) : p->scalars[1];
  const uint64_t bias = (uint64_t)(p->desc.bias_type >= 0 ? p->desc.bias_type : (int32_t)p->d.type);
  for (uint64_t j = 0; j < p->d.cols; j++)
    for (uint64_t i = 0; i < p->d.rows; i++) {
      double v = step(p, alpha * sum(p, i, j));
      if (beta != 0.0) v = step(p, v + step(p, beta * number(p->pc, p->c.type, i + j * (uint64_t)p->c.ld)));
      if (p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS) v = step(p, v + number(p->desc.bias, bias, i));
      if (p->desc.epilogue & CUBLASLT_EPILOGUE_RELU) v = v > 0.0 || v != v ? v : 0.0;
      store(p, i + j * (uint64_t)p->d.ld, v);
    }
}
