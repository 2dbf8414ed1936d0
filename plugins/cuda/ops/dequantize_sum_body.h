/* SPDX-License-Identifier: MIT
 * dequantize_sum_body.h - out = sum over terms, in their order, of q scale in f32, rounded to out's dtype; a
 * scale belongs to a group of neighbouring columns of a term. */
#ifndef BS_PLUGIN_CUDA_DEQUANTIZE_SUM_BODY_H
#define BS_PLUGIN_CUDA_DEQUANTIZE_SUM_BODY_H
#include "walk.h"

typedef struct dequantize_sum_args {
  cuda_walk walk;           /* over out; no piece is in two groups */
  cuda_view q, scales, out; /* q: the first term's columns */
  cuda_divisor group;
  int64_t groups, terms; /* groups of a term */
  int64_t cols;          /* of a term */
} dequantize_sum_args;

CUDA_FN void dequantize_sum_one(const dequantize_sum_args *a, const cuda_place *at, const int count) {
  const int64_t group = cuda_divide(&a->group, at->col);
  float sum[CUDA_WALK_WIDTH] = {0.0f};
  for (int64_t t = 0; t < a->terms; t++) {
    cuda_place from = *at;
    from.col += t * a->cols;
    const cuda_raw q = cuda_view_get(&a->q, &from, count);
    const float scale =
        *(const float *)(const void *)cuda_element(&a->scales, at->row, t * a->groups + group);
    float v[CUDA_WALK_WIDTH];
    if (a->q.dtype == BS_I8) {
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = (float)(int32_t)(int8_t)cuda_raw8(&q, i);
    } else {
      cuda_widen_f32(a->q.dtype, &q, v, count);
    }
    CUDA_UNROLL
    for (int i = 0; i < count; i++) {
      const float term = v[i] * scale;
      sum[i] = t == 0 ? term : sum[i] + term;
    }
  }
  const cuda_raw out = cuda_narrow_f32(a->out.dtype, sum, count);
  cuda_view_put(&a->out, at, &out, count);
}

CUDA_FN void dequantize_sum_some(const dequantize_sum_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at.live) dequantize_sum_one(a, &at, count);
  }
}

CUDA_FN void dequantize_sum_thread(const dequantize_sum_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole)
    dequantize_sum_some(a, start.item, 1);
  else if (a->walk.width == 2)
    dequantize_sum_some(a, start.item, 2);
  else if (a->walk.width == 4)
    dequantize_sum_some(a, start.item, 4);
  else
    dequantize_sum_some(a, start.item, 8);
}
#endif
