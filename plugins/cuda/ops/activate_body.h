/* SPDX-License-Identifier: MIT
 * activate_body.h - out = act(in) rounded to out's dtype, in f64 where either side is f64, in integers of
 * integers, else rounded to f32 first. */
#ifndef BS_PLUGIN_CUDA_ACTIVATE_BODY_H
#define BS_PLUGIN_CUDA_ACTIVATE_BODY_H
#include "activations.h"
#include "walk.h"

typedef struct activate_args {
  cuda_walk walk;
  cuda_view in, out;
  uint32_t activation;
  uint32_t by; /* CUDA_BY_F32, CUDA_BY_F64, CUDA_BY_I64 */
} activate_args;

CUDA_FN cuda_raw activate_raw(const activate_args *a, const cuda_raw *in, const int count) {
  if (a->by == CUDA_BY_F64 && count <= 2) {
    double v[2];
    cuda_widen_f64(a->in.dtype, in, v, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) v[i] = cuda_activation(a->activation, v[i]);
    return cuda_narrow_f64(a->out.dtype, v, count);
  }
  if (a->by == CUDA_BY_I64 && count <= 4) {
    int64_t v[4];
    cuda_widen_i64(a->in.dtype, in, v, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) v[i] = a->activation == BS_ACT_RELU && v[i] < 0 ? 0 : v[i];
    return cuda_narrow_whole(a->out.dtype, v, count);
  }
  float v[CUDA_WALK_WIDTH];
  cuda_widen_f32(a->in.dtype, in, v, count);
  CUDA_UNROLL
  for (int i = 0; i < count; i++) v[i] = cuda_activation_f32(a->activation, v[i]);
  return cuda_narrow_f32(a->out.dtype, v, count);
}

/* A thread reads only what it writes: out may be in itself. */
CUDA_FN void activate_some(const activate_args *a, int64_t item, const int count) {
  cuda_place at[CUDA_WALK_DEEP];
  cuda_raw in[CUDA_WALK_DEEP];
  CUDA_UNROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    at[i] = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at[i].live) in[i] = cuda_view_get(&a->in, &at[i], count);
  }
  CUDA_UNROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    if (!at[i].live) continue;
    const cuda_raw out = activate_raw(a, &in[i], count);
    cuda_view_put(&a->out, &at[i], &out, count);
  }
}

CUDA_FN void activate_thread(const activate_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole) {
    activate_some(a, start.item, 1);
  } else if (a->walk.width == 2) {
    activate_some(a, start.item, 2);
  } else if (a->walk.width == 4) {
    activate_some(a, start.item, 4);
  } else {
    activate_some(a, start.item, 8);
  }
}
#endif
