/* SPDX-License-Identifier: MIT
 * map_i64.h - the steps of i64 programs, modulo 2^64. */
#ifndef BS_PLUGIN_CUDA_MAP_I64_H
#define BS_PLUGIN_CUDA_MAP_I64_H
#include "map.h"

typedef int64_t map_number;
enum { MAP_EACH = 2 };

/* One value of each of a thread's elements. */
typedef struct map_values {
  map_number v[MAP_EACH];
} map_values;

CUDA_FN int64_t map_of_bits(uint64_t bits) {
  return (int64_t)bits;
}
CUDA_FN int64_t map_of_raw(const cuda_raw *raw, const int i) {
  return (int64_t)cuda_raw64(raw, i);
}
CUDA_FN cuda_raw map_to_raw(const int64_t *v, const int count) {
  cuda_raw raw = {{0, 0, 0, 0}};
  CUDA_UNROLL
  for (int i = 0; i < count; i++) cuda_set64(&raw, i, (uint64_t)v[i]);
  return raw;
}
CUDA_FN int64_t map_of_index(int64_t index) {
  return index;
}
CUDA_FN void map_widen(uint32_t dtype, const cuda_raw *raw, int64_t *v, const int count) {
  cuda_widen_i64(dtype, raw, v, count);
}
/* The low bits, as narrower integers have them. */
CUDA_FN int64_t map_low(uint32_t dtype, int64_t v) {
  const uint64_t bits = (uint64_t)v;
  switch (dtype) {
    case BS_I32:
      return (int64_t)((bits & 0xffffffffu) ^ 0x80000000u) - INT64_C(0x80000000);
    case BS_I8:
      return (int64_t)((bits & 0xffu) ^ 0x80u) - 0x80;
    case BS_U8:
      return (int64_t)(bits & 0xffu);
    default:
      return v;
  }
}
CUDA_FN cuda_raw map_narrow(uint32_t dtype, const int64_t *v, const int count) {
  int64_t of[2];
  CUDA_UNROLL
  for (int i = 0; i < count; i++) of[i] = map_low(dtype, v[i]);
  return cuda_narrow_i64(dtype, of, count);
}

CUDA_FN int64_t map_neg(int64_t x) {
  return (int64_t)(0 - (uint64_t)x);
}
CUDA_FN int64_t map_abs(int64_t x) {
  return x < 0 ? map_neg(x) : x;
}
CUDA_FN int64_t map_sign(int64_t x) {
  return (x > 0) - (x < 0);
}
CUDA_FN int64_t map_add(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x + (uint64_t)y);
}
CUDA_FN int64_t map_sub(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x - (uint64_t)y);
}
CUDA_FN int64_t map_mul(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x * (uint64_t)y);
}
CUDA_FN int64_t map_min(int64_t x, int64_t y) {
  return x < y ? x : y;
}
CUDA_FN int64_t map_max(int64_t x, int64_t y) {
  return x > y ? x : y;
}
CUDA_FN int64_t map_and(int64_t x, int64_t y) {
  return x & y;
}
CUDA_FN int64_t map_or(int64_t x, int64_t y) {
  return x | y;
}
CUDA_FN int64_t map_xor(int64_t x, int64_t y) {
  return x ^ y;
}
CUDA_FN int64_t map_fma(int64_t x, int64_t y, int64_t z) {
  return map_add(map_mul(x, y), z);
}

/* Towards zero; 0 where y is 0. By y = -1 modulo 2^64, which C leaves undefined. */
CUDA_FN int64_t map_quotient(int64_t x, int64_t y) {
  return y == 0 ? 0 : y == -1 ? map_neg(x) : x / y;
}
CUDA_FN int64_t map_rest(int64_t x, int64_t y) {
  return map_sub(x, map_mul(map_quotient(x, y), y));
}
/* By squaring. */
CUDA_FN int64_t map_power(int64_t x, int64_t y) {
  uint64_t base = (uint64_t)x, power = 1;
  if (y < 0) return x == 1 ? 1 : x != -1 ? 0 : (y & 1) != 0 ? -1 : 1;
  for (uint64_t left = (uint64_t)y; left > 0; left >>= 1) {
    if ((left & 1u) != 0) power *= base;
    base *= base;
  }
  return (int64_t)power;
}

CUDA_FN void map_function(uint32_t op, map_values *io) { /* BS_EXPR_MOV is all that is left */
  (void)op;
  (void)io;
}

CUDA_FN void map_function_of_two(uint32_t op, map_values *io, const map_values *y) {
  map_values out = *io;
  switch (op) {
    MAP_CASE(BS_EXPR_DIV, map_quotient(out.v[i], y->v[i]));
    MAP_CASE(BS_EXPR_FMOD, y->v[i] == 0 ? 0 : map_rest(out.v[i], y->v[i]));
    default: /* BS_EXPR_POW */
      CUDA_UNROLL
      for (int i = 0; i < MAP_EACH; i++) out.v[i] = map_power(out.v[i], y->v[i]);
      break;
  }
  *io = out;
}
#endif
