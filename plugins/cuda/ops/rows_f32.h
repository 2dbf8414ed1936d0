/* SPDX-License-Identifier: MIT
 * rows_f32.h - the arithmetic of rows_body.h for f32, f16 and bf16: X and W of one dtype, sums in f32.
 * rows_i32.h has the same names for bytes. */
#ifndef BS_PLUGIN_CUDA_ROWS_NUMBER
#define BS_PLUGIN_CUDA_ROWS_NUMBER
#include "product_f32.h"
/**/
#include "product_body.h"
#include "rows.h"

typedef float rows_number;
enum { ROWS_WIDE = 8 }; /* the most elements of a piece */

/* A piece in the type in which it is multiplied. */
typedef struct rows_piece {
  float v[ROWS_WIDE];
} rows_piece;

/* Exact; a NaN stays a NaN, without its payload. */
CUDA_FN float rows_of_f16(uint32_t code) {
#if defined(__CUDACC__)
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((unsigned short)code));
  return v;
#else
  return cuda_f32_of_f16(code);
#endif
}

/* `dtype` is a constant wherever these are called. */
CUDA_FN int rows_count(const uint32_t dtype) {
  return dtype == BS_F32 ? 4 : 8;
}
CUDA_FN rows_piece rows_widen(const uint32_t dtype, const cuda_raw *raw) {
  rows_piece p;
  CUDA_UNROLL
  for (int i = 0; i < 4; i++) {
    const uint32_t word = raw->word[i];
    if (dtype == BS_F32) {
      p.v[i] = cuda_f32_bits(word);
    } else if (dtype == BS_BF16) {
      p.v[2 * i] = cuda_f32_bits(word << 16);
      p.v[2 * i + 1] = cuda_f32_bits(word & 0xffff0000u);
    } else {
      p.v[2 * i] = rows_of_f16(word & 0xffffu);
      p.v[2 * i + 1] = rows_of_f16(word >> 16);
    }
  }
  return p;
}
CUDA_FN float rows_dot(const uint32_t dtype, const rows_piece *x, const rows_piece *w, float sum) {
  CUDA_UNROLL
  for (int i = 0; i < rows_count(dtype); i++) sum = cuda_fma_f32(x->v[i], w->v[i], sum);
  return sum;
}
CUDA_FN float rows_load(const cuda_view *v, int64_t r, int64_t k) {
  return product_at(v, r, k);
}
CUDA_FN float rows_step(float sum, float x, float w) {
  return cuda_fma_f32(x, w, sum);
}
CUDA_FN float rows_plus(float a, float b) {
  return a + b;
}
CUDA_FN product_number rows_sum(float sum) {
  return sum;
}
#endif
