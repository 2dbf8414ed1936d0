/* SPDX-License-Identifier: MIT
 * convert_body.h - out = in rounded to out's dtype; of equal dtypes the bits are copied. */
#ifndef BS_PLUGIN_CUDA_CONVERT_BODY_H
#define BS_PLUGIN_CUDA_CONVERT_BODY_H
#include "walk.h"

typedef struct convert_args {
  cuda_walk walk;
  cuda_view in, out;
  uint32_t by; /* the type of a value between its two roundings */
  uint32_t reserved;
} convert_args;

CUDA_FN cuda_raw convert_raw(uint32_t by, uint32_t from, uint32_t to, const cuda_raw *in, const int count) {
  if (by == CUDA_BY_F32) {
    float v[CUDA_WALK_WIDTH];
    cuda_widen_f32(from, in, v, count);
    return cuda_narrow_f32(to, v, count);
  }
  if (by == CUDA_BY_I64 && count <= 4) {
    int64_t v[4];
    cuda_widen_i64(from, in, v, count);
    return cuda_narrow_i64(to, v, count);
  }
  if (by == CUDA_BY_F64 && count <= 2) {
    double v[2];
    cuda_widen_f64(from, in, v, count);
    return cuda_narrow_f64(to, v, count);
  }
  return *in;
}

CUDA_FN void convert_some(const convert_args *a, int64_t item, const int count) {
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
    const cuda_raw out = convert_raw(a->by, a->in.dtype, a->out.dtype, &in[i], count);
    cuda_view_put(&a->out, &at[i], &out, count);
  }
}

CUDA_FN void convert_thread(const convert_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole) {
    convert_some(a, start.item, 1);
  } else if (a->walk.width == 2) {
    convert_some(a, start.item, 2);
  } else if (a->walk.width == 4) {
    convert_some(a, start.item, 4);
  } else {
    convert_some(a, start.item, 8);
  }
}
#endif
