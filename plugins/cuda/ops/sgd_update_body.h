/* SPDX-License-Identifier: MIT
 * sgd_update_body.h - one step of stochastic gradient descent: g = dW + decay W; with V: V = momentum V + g,
 * g = V as stored; W -= lr g. In f64, each value rounded once to its dtype; every matrix is read and written
 * once. */
#ifndef BS_PLUGIN_CUDA_SGD_UPDATE_BODY_H
#define BS_PLUGIN_CUDA_SGD_UPDATE_BODY_H
#include "update_body.h"

typedef struct sgd_update_args {
  cuda_walk walk;
  cuda_view w, dw, v; /* v may be absent; f32 */
  const float *hyper; /* lr, momentum, decay */
  cuda_beyond beyond;
} sgd_update_args;

CUDA_FN void sgd_update_one(const sgd_update_args *a, const cuda_place *at, const int count) {
  const double lr = (double)a->hyper[0], momentum = (double)a->hyper[1], decay = (double)a->hyper[2];
  const cuda_raw raw_w = cuda_view_get(&a->w, at, count), raw_dw = cuda_view_get(&a->dw, at, count);
  cuda_raw raw_v = {{0, 0, 0, 0}};
  double w[4], dw[4];
  if (a->v.data != 0) raw_v = cuda_view_get(&a->v, at, count);
  cuda_widen_f64(a->w.dtype, &raw_w, w, count);
  cuda_widen_f64(a->dw.dtype, &raw_dw, dw, count);
  CUDA_UNROLL
  for (int i = 0; i < count; i++) {
    double g = dw[i] + decay * w[i];
    if (a->v.data != 0) {
      const float v = (float)(momentum * (double)cuda_f32_bits(raw_v.word[i]) + g);
      raw_v.word[i] = cuda_bits_f32(v);
      g = (double)v;
    }
    w[i] -= lr * g;
  }
  if (a->v.data != 0) cuda_view_put(&a->v, at, &raw_v, count);
  cuda_clear_beyond(&a->beyond, at, w, count);
  const cuda_raw out = cuda_narrow_f64(a->w.dtype, w, count);
  cuda_view_put(&a->w, at, &out, count);
}

CUDA_FN void sgd_update_some(const sgd_update_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at.live) sgd_update_one(a, &at, count);
  }
}

CUDA_FN void sgd_update_thread(const sgd_update_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole)
    sgd_update_some(a, start.item, 1);
  else if (a->walk.width == 2)
    sgd_update_some(a, start.item, 2);
  else
    sgd_update_some(a, start.item, 4);
}
#endif
