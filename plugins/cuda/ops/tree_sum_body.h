/* SPDX-License-Identifier: MIT
 * tree_sum_body.h - out = act(((p0 + p1) + (p2 + p3)) + ..) of up to eight adjacent blocks of columns, each
 * sum rounded to f32 (f64 if either side is f64), integers modulo 2^64. */
#ifndef BS_PLUGIN_CUDA_TREE_SUM_BODY_H
#define BS_PLUGIN_CUDA_TREE_SUM_BODY_H
#include "activations.h"
#include "walk.h"

enum { CUDA_TREE_BLOCKS = 8, CUDA_TREE_WIDTH = 4 };

typedef struct tree_sum_args {
  cuda_walk walk; /* over out */
  cuda_view in, out;
  int64_t begin[CUDA_TREE_BLOCKS]; /* the first column of the block at place i */
  int32_t blocks;                  /* 1, 2, 4, 8 */
  uint32_t activation;
  uint32_t by; /* CUDA_BY_F32, CUDA_BY_F64, CUDA_BY_I64 */
  uint32_t reserved;
} tree_sum_args;

CUDA_FN void tree_sum_load(const tree_sum_args *a, const cuda_place *at, cuda_raw *raw, const int count) {
  CUDA_UNROLL
  for (int b = 0; b < CUDA_TREE_BLOCKS; b++) {
    cuda_place from = *at;
    from.col += a->begin[b];
    if (b < a->blocks) raw[b] = cuda_view_get(&a->in, &from, count);
  }
}

CUDA_FN cuda_raw tree_sum_f32(const tree_sum_args *a, const cuda_raw *raw, const int count) {
  float p[CUDA_TREE_BLOCKS][CUDA_TREE_WIDTH];
  CUDA_UNROLL
  for (int b = 0; b < CUDA_TREE_BLOCKS; b++)
    if (b < a->blocks) cuda_widen_f32(a->in.dtype, &raw[b], p[b], count);
  CUDA_UNROLL
  for (int apart = 1; apart < CUDA_TREE_BLOCKS; apart *= 2) {
    CUDA_UNROLL
    for (int b = 0; b < CUDA_TREE_BLOCKS; b += 2 * apart) {
      CUDA_UNROLL
      for (int i = 0; i < count; i++)
        if (b + apart < a->blocks) p[b][i] += p[b + apart][i];
    }
  }
  CUDA_UNROLL
  for (int i = 0; i < count; i++) p[0][i] = cuda_activation_f32(a->activation, p[0][i]);
  return cuda_narrow_f32(a->out.dtype, p[0], count);
}

CUDA_FN cuda_raw tree_sum_f64(const tree_sum_args *a, const cuda_raw *raw, const int count) {
  double p[CUDA_TREE_BLOCKS][2];
  CUDA_UNROLL
  for (int b = 0; b < CUDA_TREE_BLOCKS; b++)
    if (b < a->blocks) cuda_widen_f64(a->in.dtype, &raw[b], p[b], count);
  CUDA_UNROLL
  for (int apart = 1; apart < CUDA_TREE_BLOCKS; apart *= 2) {
    CUDA_UNROLL
    for (int b = 0; b < CUDA_TREE_BLOCKS; b += 2 * apart) {
      CUDA_UNROLL
      for (int i = 0; i < count; i++)
        if (b + apart < a->blocks) p[b][i] += p[b + apart][i];
    }
  }
  CUDA_UNROLL
  for (int i = 0; i < count; i++) p[0][i] = cuda_activation(a->activation, p[0][i]);
  return cuda_narrow_f64(a->out.dtype, p[0], count);
}

/* Adds in any order; an i32 output keeps the low 32 bits, as sums in 32 bits would. */
CUDA_FN cuda_raw tree_sum_i64(const tree_sum_args *a, const cuda_raw *raw, const int count) {
  uint64_t sum[2] = {0, 0};
  int64_t v[2];
  cuda_raw out = {{0, 0, 0, 0}};
  CUDA_UNROLL
  for (int b = 0; b < CUDA_TREE_BLOCKS; b++) {
    if (b >= a->blocks) continue;
    cuda_widen_i64(a->in.dtype, &raw[b], v, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) sum[i] += (uint64_t)v[i];
  }
  CUDA_UNROLL
  for (int i = 0; i < count; i++) {
    if (a->activation == BS_ACT_RELU && (int64_t)sum[i] < 0) sum[i] = 0;
    if (a->out.dtype == BS_I32)
      out.word[i] = (uint32_t)sum[i];
    else
      cuda_set64(&out, i, sum[i]);
  }
  return out;
}

CUDA_FN void tree_sum_some(const tree_sum_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    cuda_raw raw[CUDA_TREE_BLOCKS], out;
    if (!at.live) return;
    tree_sum_load(a, &at, raw, count);
    if (a->by == CUDA_BY_F64 && count <= 2)
      out = tree_sum_f64(a, raw, count);
    else if (a->by == CUDA_BY_I64 && count <= 2)
      out = tree_sum_i64(a, raw, count);
    else
      out = tree_sum_f32(a, raw, count);
    cuda_view_put(&a->out, &at, &out, count);
  }
}

CUDA_FN void tree_sum_thread(const tree_sum_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole)
    tree_sum_some(a, start.item, 1);
  else if (a->walk.width == 2)
    tree_sum_some(a, start.item, 2);
  else
    tree_sum_some(a, start.item, 4);
}
#endif
