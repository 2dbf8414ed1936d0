/* SPDX-License-Identifier: MIT
 * map_f64.h - the steps of f64 programs, with functions of the C library and of nvcc's. gelu, which would
 * lose digits far below zero, is not here. */
#ifndef BS_PLUGIN_CUDA_MAP_F64_H
#define BS_PLUGIN_CUDA_MAP_F64_H
#include "map.h"

typedef double map_number;
enum { MAP_EACH = 2 };

/* One value of each of a thread's elements. */
typedef struct map_values {
  map_number v[MAP_EACH];
} map_values;

#include "map_float.h"

CUDA_FN double map_of_bits(uint64_t bits) {
  return cuda_f64_bits(bits);
}
CUDA_FN double map_of_raw(const cuda_raw *raw, const int i) {
  return cuda_f64_bits(cuda_raw64(raw, i));
}
CUDA_FN cuda_raw map_to_raw(const double *v, const int count) {
  cuda_raw raw = {{0, 0, 0, 0}};
  CUDA_UNROLL
  for (int i = 0; i < count; i++) cuda_set64(&raw, i, cuda_bits_f64(v[i]));
  return raw;
}
CUDA_FN double map_of_index(int64_t index) {
  return (double)index;
}
CUDA_FN void map_widen(uint32_t dtype, const cuda_raw *raw, double *v, const int count) {
  cuda_widen_f64(dtype, raw, v, count);
}
/* As an output: integers get what is before the point. */
CUDA_FN cuda_raw map_narrow(uint32_t dtype, const double *v, const int count) {
  const int whole = dtype == BS_I64 || dtype == BS_I32 || dtype == BS_I8 || dtype == BS_U8;
  double of[2];
  CUDA_UNROLL
  for (int i = 0; i < count; i++) of[i] = whole ? trunc(v[i]) : v[i];
  return cuda_narrow_f64(dtype, of, count);
}

CUDA_FN double map_abs(double x) {
  return fabs(x);
}
CUDA_FN double map_fma(double x, double y, double z) {
  return fma(x, y, z);
}
CUDA_FN double map_sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
CUDA_FN double map_softplus(double x) {
  return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
}

CUDA_FN void map_function(uint32_t op, map_values *io) {
  map_values out = *io;
  switch (op) {
    MAP_CASE(BS_EXPR_FLOOR, floor(out.v[i]));
    MAP_CASE(BS_EXPR_CEIL, ceil(out.v[i]));
    MAP_CASE(BS_EXPR_ROUND, rint(out.v[i]));
    MAP_CASE(BS_EXPR_SQRT, sqrt(out.v[i]));
    MAP_CASE(BS_EXPR_RSQRT, 1.0 / sqrt(out.v[i]));
    MAP_CASE(BS_EXPR_RECIP, 1.0 / out.v[i]);
    MAP_CASE(BS_EXPR_EXP, exp(out.v[i]));
    MAP_CASE(BS_EXPR_LOG, log(out.v[i]));
    MAP_CASE(BS_EXPR_TANH, tanh(out.v[i]));
    MAP_CASE(BS_EXPR_ERF, erf(out.v[i]));
    MAP_CASE(BS_EXPR_SIGMOID, map_sigmoid(out.v[i]));
    MAP_CASE(BS_EXPR_SOFTPLUS, map_softplus(out.v[i]));
    MAP_CASE(BS_EXPR_SILU, out.v[i] * map_sigmoid(out.v[i]));
    MAP_CASE(BS_EXPR_ISNAN, out.v[i] != out.v[i]);
    MAP_CASE(BS_EXPR_ISINF, fabs(out.v[i]) == INFINITY);
    default: /* BS_EXPR_MOV */
      break;
  }
  *io = out;
}

CUDA_FN void map_function_of_two(uint32_t op, map_values *io, const map_values *y) {
  map_values out = *io;
  switch (op) {
    MAP_CASE(BS_EXPR_DIV, out.v[i] / y->v[i]);
    MAP_CASE(BS_EXPR_FMOD, fmod(out.v[i], y->v[i]));
    default: /* BS_EXPR_POW */
      CUDA_UNROLL
      for (int i = 0; i < MAP_EACH; i++) out.v[i] = pow(out.v[i], y->v[i]);
      break;
  }
  *io = out;
}
#endif
