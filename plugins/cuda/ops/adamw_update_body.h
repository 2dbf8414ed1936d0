/* SPDX-License-Identifier: MIT
 * adamw_update_body.h - one step of AdamW: M = (1 - a1) M + a1 dW, V = (1 - a2) V + a2 dW^2,
 * W -= lr (c1 M / (sqrt(c2 V) + eps) + decay W), M and V as stored. In f64, each value rounded once to its
 * dtype; every matrix is read and written once. */
#ifndef BS_PLUGIN_CUDA_ADAMW_UPDATE_BODY_H
#define BS_PLUGIN_CUDA_ADAMW_UPDATE_BODY_H
#include "update_body.h"

typedef struct adamw_update_args {
  cuda_walk walk;
  cuda_view w, dw, m, v; /* m, v: f32 */
  const float *hyper;    /* lr, a1, a2, eps, decay, c1, c2 */
  cuda_beyond beyond;
} adamw_update_args;

CUDA_FN void adamw_update_one(const adamw_update_args *a, const cuda_place *at, const int count) {
  const double lr = (double)a->hyper[0], a1 = (double)a->hyper[1], a2 = (double)a->hyper[2];
  const double eps = (double)a->hyper[3], decay = (double)a->hyper[4];
  const double c1 = (double)a->hyper[5], c2 = (double)a->hyper[6];
  const cuda_raw raw_w = cuda_view_get(&a->w, at, count), raw_dw = cuda_view_get(&a->dw, at, count);
  cuda_raw raw_m = cuda_view_get(&a->m, at, count), raw_v = cuda_view_get(&a->v, at, count);
  double w[4], dw[4];
  cuda_widen_f64(a->w.dtype, &raw_w, w, count);
  cuda_widen_f64(a->dw.dtype, &raw_dw, dw, count);
  CUDA_UNROLL
  for (int i = 0; i < count; i++) {
    const double g = dw[i];
    const float m = (float)((1.0 - a1) * (double)cuda_f32_bits(raw_m.word[i]) + a1 * g);
    const float v = (float)((1.0 - a2) * (double)cuda_f32_bits(raw_v.word[i]) + a2 * g * g);
    raw_m.word[i] = cuda_bits_f32(m);
    raw_v.word[i] = cuda_bits_f32(v);
    w[i] -= lr * (c1 * (double)m / (sqrt(c2 * (double)v) + eps) + decay * w[i]);
  }
  cuda_view_put(&a->m, at, &raw_m, count);
  cuda_view_put(&a->v, at, &raw_v, count);
  cuda_clear_beyond(&a->beyond, at, w, count);
  const cuda_raw out = cuda_narrow_f64(a->w.dtype, w, count);
  cuda_view_put(&a->w, at, &out, count);
}

CUDA_FN void adamw_update_some(const adamw_update_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at.live) adamw_update_one(a, &at, count);
  }
}

CUDA_FN void adamw_update_thread(const adamw_update_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole)
    adamw_update_some(a, start.item, 1);
  else if (a->walk.width == 2)
    adamw_update_some(a, start.item, 2);
  else
    adamw_update_some(a, start.item, 4);
}
#endif
