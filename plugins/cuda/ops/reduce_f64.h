/* SPDX-License-Identifier: MIT
 * reduce_f64.h - the number type of reduce for floats, for reduce_body.h: double, in which squares and sums
 * of f32 neither round much nor overflow. reduce_i64.h has the same names. */
#ifndef BS_PLUGIN_CUDA_REDUCE_NUMBER
#define BS_PLUGIN_CUDA_REDUCE_NUMBER
#include "reduce.h"

typedef double reduce_number;

CUDA_FN void reduce_widen(uint32_t dtype, const cuda_raw *raw, reduce_number *v, const int count) {
  cuda_widen_f64(dtype, raw, v, count);
}
CUDA_FN cuda_raw reduce_narrow(const reduce_args *a, reduce_number v) {
  v *= a->factor;
  return cuda_narrow_f64(a->out.dtype, &v, 1);
}
CUDA_FN reduce_number reduce_nothing(const reduce_args *a) {
  return a->begin_float;
}
CUDA_FN int reduce_is_nan(reduce_number v) {
  return v != v;
}
CUDA_FN reduce_number reduce_plus(reduce_number a, reduce_number b) {
  return a + b;
}
CUDA_FN reduce_number reduce_times(reduce_number a, reduce_number b) {
  return a * b;
}
#endif
