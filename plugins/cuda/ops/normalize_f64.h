/* SPDX-License-Identifier: MIT
 * normalize_f64.h - the number type of normalize in f64; see normalize_f32.h. No row is measured twice: ref's
 * squares are not larger. */
#ifndef BS_PLUGIN_CUDA_NORMALIZE_NUMBER
#define BS_PLUGIN_CUDA_NORMALIZE_NUMBER
#include "normalize.h"

typedef double normalize_number;

enum { NORMALIZE_PIECE = 2 }; /* adjacent elements of a thread */

#define NORMALIZE_TINY 0x1p-1022

CUDA_FN void normalize_widen(uint32_t dtype, const cuda_raw *raw, normalize_number *v, const int count) {
  cuda_widen_f64(dtype, raw, v, count);
}
CUDA_FN cuda_raw normalize_narrow(uint32_t dtype, const normalize_number *v, const int count) {
  return cuda_narrow_f64(dtype, v, count);
}
CUDA_FN normalize_number normalize_fma(normalize_number a, normalize_number b, normalize_number c) {
  return cuda_fma_f64(a, b, c);
}
CUDA_FN normalize_number normalize_max(normalize_number a, normalize_number b) {
  return fmax(a, b);
}
CUDA_FN normalize_number normalize_exp(normalize_number v) {
  return exp(v);
}
CUDA_FN normalize_number normalize_log(normalize_number v) {
  return log(v);
}
CUDA_FN normalize_number normalize_root(normalize_number v) {
  return sqrt(v);
}
#endif
