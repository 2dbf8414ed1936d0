/* SPDX-License-Identifier: MIT
 * activate_dx_body.h - dZ = dY act'(Z), the product in f64 and rounded once to dZ's dtype. The slope is f64's
 * where one of the three is f64, else f32's. */
#ifndef BS_PLUGIN_CUDA_ACTIVATE_DX_BODY_H
#define BS_PLUGIN_CUDA_ACTIVATE_DX_BODY_H
#include "activations.h"
#include "walk.h"

enum { CUDA_SLOPE_WIDTH = 4 }; /* of a piece at most: values are doubles on their way */

typedef struct activate_dx_args {
  cuda_walk walk;
  cuda_view dy, z, dz;
  uint32_t activation;
  uint32_t by; /* CUDA_BY_F32, CUDA_BY_F64 */
} activate_dx_args;

CUDA_FN cuda_raw activate_dx_raw(const activate_dx_args *a, const cuda_raw *dy, const cuda_raw *z,
                                 const int count) {
  double v[CUDA_SLOPE_WIDTH];
  cuda_widen_f64(a->dy.dtype, dy, v, count);
  if (a->by == CUDA_BY_F64 && count <= 2) {
    double at[2];
    cuda_widen_f64(a->z.dtype, z, at, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) v[i] *= cuda_slope(a->activation, at[i]);
  } else {
    float at[CUDA_SLOPE_WIDTH];
    cuda_widen_f32(a->z.dtype, z, at, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) v[i] *= cuda_slope_f32(a->activation, at[i]);
  }
  return cuda_narrow_f64(a->dz.dtype, v, count);
}

/* A thread reads only what it writes: dz may be dy or z. */
CUDA_FN void activate_dx_some(const activate_dx_args *a, int64_t item, const int count) {
  cuda_place at[CUDA_WALK_DEEP];
  cuda_raw dy[CUDA_WALK_DEEP], z[CUDA_WALK_DEEP];
  CUDA_UNROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    at[i] = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at[i].live) {
      dy[i] = cuda_view_get(&a->dy, &at[i], count);
      z[i] = cuda_view_get(&a->z, &at[i], count);
    }
  }
  CUDA_UNROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    if (!at[i].live) continue;
    const cuda_raw dz = activate_dx_raw(a, &dy[i], &z[i], count);
    cuda_view_put(&a->dz, &at[i], &dz, count);
  }
}

CUDA_FN void activate_dx_thread(const activate_dx_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole) {
    activate_dx_some(a, start.item, 1);
  } else if (a->walk.width == 2) {
    activate_dx_some(a, start.item, 2);
  } else {
    activate_dx_some(a, start.item, 4);
  }
}
#endif
