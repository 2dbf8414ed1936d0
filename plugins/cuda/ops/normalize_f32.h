/* SPDX-License-Identifier: MIT
 * normalize_f32.h - the number type of normalize in f32, for normalize_body.h. normalize_f64.h has the same
 * names. */
#ifndef BS_PLUGIN_CUDA_NORMALIZE_NUMBER
#define BS_PLUGIN_CUDA_NORMALIZE_NUMBER
#include "normalize.h"

typedef float normalize_number;

enum { NORMALIZE_PIECE = 4 }; /* adjacent elements of a thread */

/* Squares of some numbers do not fit f32. Rows whose mean square is outside of these bounds are measured
 * again, multiplied with a factor. */
#define NORMALIZE_LEAST 0x1p-120f
#define NORMALIZE_RAISE 0x1p100f
#define NORMALIZE_LOWER 0x1p-100f
#define NORMALIZE_TINY 0x1p-126f

CUDA_FN void normalize_widen(uint32_t dtype, const cuda_raw *raw, normalize_number *v, const int count) {
  cuda_widen_f32(dtype, raw, v, count);
}
CUDA_FN cuda_raw normalize_narrow(uint32_t dtype, const normalize_number *v, const int count) {
  return cuda_narrow_f32(dtype, v, count);
}
CUDA_FN normalize_number normalize_fma(normalize_number a, normalize_number b, normalize_number c) {
  return cuda_fma_f32(a, b, c);
}
CUDA_FN normalize_number normalize_max(normalize_number a, normalize_number b) {
  return fmaxf(a, b);
}
CUDA_FN normalize_number normalize_exp(normalize_number v) {
  return expf(v);
}
CUDA_FN normalize_number normalize_log(normalize_number v) {
  return logf(v);
}
CUDA_FN normalize_number normalize_root(normalize_number v) {
  return sqrtf(v);
}
#endif
