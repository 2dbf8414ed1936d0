/* SPDX-License-Identifier: MIT
 *
 * vec_portable.h - a vector of four floats for any processor: the compiler maps it to what there is. One of
 * the three meanings of `vec` that the sources of this folder are written in. */
#ifndef BS_PLUGINS_CPU_ISA_VEC_H
#define BS_PLUGINS_CPU_ISA_VEC_H

#include <string.h>

#include "../half.h"

#define VEC 4         /* floats of a vector */
#define TILE_TOKENS 2 /* tokens of the widest tile */
#define TILE_SUMS 8   /* vectors of sums that stay in registers */
#define TILE_HALVES 0 /* 16-bit panels are widened first */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(16)));

INLINE vec vec_load(const float *p) {
  vec v;
  memcpy(&v, p, sizeof v);
  return v;
}

INLINE void vec_store(float *p, vec v) {
  memcpy(p, &v, sizeof v);
}

INLINE vec vec_set1(float f) {
  return (vec){f, f, f, f};
}

INLINE vec vec_add(vec a, vec b) {
  return a + b;
}

/* a b + c, rounded twice here, once on the others. */
INLINE vec vec_fma(vec a, vec b, vec c) {
  return a * b + c;
}

INLINE vec vec_load_bf16(const uint16_t *p) {
  return (vec){cpu_bf16_load(p[0]), cpu_bf16_load(p[1]), cpu_bf16_load(p[2]), cpu_bf16_load(p[3])};
}

INLINE vec vec_load_f16(const uint16_t *p) {
  return (vec){cpu_f16_load(p[0]), cpu_f16_load(p[1]), cpu_f16_load(p[2]), cpu_f16_load(p[3])};
}

/* The first and the second numbers of four pairs. */
INLINE vec vec_load_first(const uint16_t *p) {
  return (vec){cpu_bf16_load(p[0]), cpu_bf16_load(p[2]), cpu_bf16_load(p[4]), cpu_bf16_load(p[6])};
}

INLINE vec vec_load_second(const uint16_t *p) {
  return vec_load_first(p + 1);
}

INLINE void vec_store_bf16(uint16_t *p, vec v) {
  for (int i = 0; i < VEC; i++) p[i] = cpu_bf16_store(v[i]);
}

INLINE void vec_store_f16(uint16_t *p, vec v) {
  for (int i = 0; i < VEC; i++) p[i] = cpu_f16_store(v[i]);
}

#endif
