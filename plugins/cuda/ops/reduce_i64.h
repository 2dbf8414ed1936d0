/* SPDX-License-Identifier: MIT
 * reduce_i64.h - the number type of reduce for integers and bool, modulo 2^64; see reduce_f64.h. A narrower
 * result keeps the low bits. */
#ifndef BS_PLUGIN_CUDA_REDUCE_NUMBER
#define BS_PLUGIN_CUDA_REDUCE_NUMBER
#include "reduce.h"

typedef int64_t reduce_number;

CUDA_FN void reduce_widen(uint32_t dtype, const cuda_raw *raw, reduce_number *v, const int count) {
  cuda_widen_i64(dtype, raw, v, count);
}
CUDA_FN cuda_raw reduce_narrow(const reduce_args *a, reduce_number v) {
  cuda_raw raw = {{0, 0, 0, 0}};
  (void)a;
  cuda_set64(&raw, 0, (uint64_t)v);
  return raw;
}
CUDA_FN reduce_number reduce_nothing(const reduce_args *a) {
  return a->begin_whole;
}
CUDA_FN int reduce_is_nan(reduce_number v) {
  (void)v;
  return 0;
}
CUDA_FN reduce_number reduce_plus(reduce_number a, reduce_number b) {
  return (reduce_number)((uint64_t)a + (uint64_t)b);
}
CUDA_FN reduce_number reduce_times(reduce_number a, reduce_number b) {
  return (reduce_number)((uint64_t)a * (uint64_t)b);
}
#endif
