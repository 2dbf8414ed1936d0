/* SPDX-License-Identifier: MIT
 * finish_product_body.h - out = act(sums + bias) + residual of the f32 sums of a product, each step rounded
 * to f32 in this order, rounded to out's dtype. */
#ifndef BS_PLUGIN_CUDA_FINISH_PRODUCT_BODY_H
#define BS_PLUGIN_CUDA_FINISH_PRODUCT_BODY_H
#include "activations.h"
#include "walk.h"

typedef struct finish_product_args {
  cuda_walk walk;
  cuda_view sums, bias, residual, out; /* sums: f32; bias and residual may be absent */
  uint32_t activation;
  uint32_t reserved;
} finish_product_args;

CUDA_FN void finish_product_one(const finish_product_args *a, const cuda_place *at, const int count) {
  float v[4], other[4];
  const cuda_raw sums = cuda_view_get(&a->sums, at, count);
  CUDA_UNROLL
  for (int i = 0; i < count; i++) v[i] = cuda_f32_bits(sums.word[i]);
  if (a->bias.data != 0) {
    const cuda_raw bias = cuda_get(cuda_element(&a->bias, 0, at->col), a->bias.size, count);
    cuda_widen_f32(a->bias.dtype, &bias, other, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) v[i] += other[i];
  }
  CUDA_UNROLL
  for (int i = 0; i < count; i++) v[i] = cuda_activation_f32(a->activation, v[i]);
  if (a->residual.data != 0) {
    const cuda_raw residual = cuda_view_get(&a->residual, at, count);
    cuda_widen_f32(a->residual.dtype, &residual, other, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) v[i] += other[i];
  }
  const cuda_raw out = cuda_narrow_f32(a->out.dtype, v, count);
  cuda_view_put(&a->out, at, &out, count);
}

/* A thread reads only what it writes: residual may be out. */
CUDA_FN void finish_product_some(const finish_product_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at.live) finish_product_one(a, &at, count);
  }
}

CUDA_FN void finish_product_thread(const finish_product_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole)
    finish_product_some(a, start.item, 1);
  else if (a->walk.width == 2)
    finish_product_some(a, start.item, 2);
  else
    finish_product_some(a, start.item, 4);
}
#endif
