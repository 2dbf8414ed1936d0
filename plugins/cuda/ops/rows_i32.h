/* SPDX-License-Identifier: MIT
 * rows_i32.h - the arithmetic of rows_body.h for bytes with sign: sums in 32 bits, which hold up to 131,071
 * products. See rows_f32.h. */
#ifndef BS_PLUGIN_CUDA_ROWS_NUMBER
#define BS_PLUGIN_CUDA_ROWS_NUMBER
#include "product_i64.h"
/**/
#include "product_body.h"
#include "rows.h"

typedef uint32_t rows_number;
typedef cuda_raw rows_piece;

CUDA_FN int rows_count(const uint32_t dtype) {
  (void)dtype;
  return 16;
}
CUDA_FN rows_piece rows_widen(const uint32_t dtype, const cuda_raw *raw) {
  (void)dtype;
  return *raw;
}
/* Four products of bytes. */
CUDA_FN uint32_t rows_dot4(uint32_t x, uint32_t w, uint32_t sum) {
#if defined(__CUDACC__)
  return (uint32_t)__dp4a((int)x, (int)w, (int)sum);
#else
  for (int i = 0; i < 4; i++)
    sum += (uint32_t)((int32_t)((x >> 8 * i & 0xffu) ^ 0x80u) - 0x80) *
           (uint32_t)((int32_t)((w >> 8 * i & 0xffu) ^ 0x80u) - 0x80);
  return sum;
#endif
}
CUDA_FN uint32_t rows_dot(const uint32_t dtype, const rows_piece *x, const rows_piece *w, uint32_t sum) {
  (void)dtype;
  CUDA_UNROLL
  for (int i = 0; i < 4; i++) sum = rows_dot4(x->word[i], w->word[i], sum);
  return sum;
}
CUDA_FN uint32_t rows_load(const cuda_view *v, int64_t r, int64_t k) {
  return (uint32_t)product_at(v, r, k);
}
CUDA_FN uint32_t rows_step(uint32_t sum, uint32_t x, uint32_t w) {
  return sum + x * w;
}
CUDA_FN uint32_t rows_plus(uint32_t a, uint32_t b) {
  return a + b;
}
CUDA_FN product_number rows_sum(uint32_t sum) {
  return (product_number)(int64_t)(int32_t)sum;
}
#endif
