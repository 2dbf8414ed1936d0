/* SPDX-License-Identifier: MIT
 * dequantize_product_body.h - out = act(sums row column + base + bias), each step rounded to f32 in this
 * order, rounded to out's dtype. sums: i32, or f32 of fp8 by cuBLASLt. */
#ifndef BS_PLUGIN_CUDA_DEQUANTIZE_PRODUCT_BODY_H
#define BS_PLUGIN_CUDA_DEQUANTIZE_PRODUCT_BODY_H
#include "activations.h"
#include "walk.h"

typedef struct dequantize_product_args {
  cuda_walk walk;
  cuda_view sums, rows, columns, bias, base, out; /* bias and base may be absent */
  uint32_t activation;
  uint32_t reserved;
} dequantize_product_args;

/* Row 0 of a vector at the place's column. */
CUDA_FN void dequantize_product_get(const cuda_view *v, int64_t row, const cuda_place *at, float *out,
                                    const int count) {
  const cuda_raw raw = cuda_get(cuda_element(v, row, at->col), 4, count);
  CUDA_UNROLL
  for (int i = 0; i < count; i++) out[i] = cuda_f32_bits(raw.word[i]);
}

/* base may be out: a thread reads only what it writes. */
CUDA_FN void dequantize_product_one(const dequantize_product_args *a, const cuda_place *at, const int count) {
  float columns[4], base[4], bias[4], v[4];
  const cuda_raw sums = cuda_view_get(&a->sums, at, count);
  const float scale = *(const float *)(const void *)cuda_element(&a->rows, at->row, 0);
  dequantize_product_get(&a->columns, 0, at, columns, count);
  if (a->base.data != 0) dequantize_product_get(&a->base, at->row, at, base, count);
  if (a->bias.data != 0) dequantize_product_get(&a->bias, 0, at, bias, count);
  CUDA_UNROLL
  for (int i = 0; i < count; i++) {
    const float sum = a->sums.dtype == BS_F32 ? cuda_f32_bits(sums.word[i]) : (float)(int32_t)sums.word[i];
    const float by_row = sum * scale;
    v[i] = by_row * columns[i];
    if (a->base.data != 0) v[i] += base[i];
    if (a->bias.data != 0) v[i] += bias[i];
    v[i] = cuda_activation_f32(a->activation, v[i]);
  }
  const cuda_raw out = cuda_narrow_f32(a->out.dtype, v, count);
  cuda_view_put(&a->out, at, &out, count);
}

CUDA_FN void dequantize_product_some(const dequantize_product_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at.live) dequantize_product_one(a, &at, count);
  }
}

CUDA_FN void dequantize_product_thread(const dequantize_product_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole)
    dequantize_product_some(a, start.item, 1);
  else if (a->walk.width == 2)
    dequantize_product_some(a, start.item, 2);
  else
    dequantize_product_some(a, start.item, 4);
}
#endif
