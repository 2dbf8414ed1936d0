/* SPDX-License-Identifier: MIT
 *
 * portable.c - the kernel table for any processor: plain C and four-wide vectors that the compiler maps to
 * what there is. The meaning of the AVX2 table's functions. */
#include <string.h>

#include "half.h"
#include "kernels.h"

typedef float vec4 __attribute__((vector_size(16)));

static inline vec4 load4(const float *p) {
  vec4 v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline void store4(float *p, vec4 v) {
  memcpy(p, &v, sizeof v);
}

static inline vec4 same4(float f) {
  return (vec4){f, f, f, f};
}

static inline void finish4(float *c, vec4 v, int32_t add) {
  store4(c, add ? load4(c) + v : v);
}

static void one_token(const cpu_tile *t) {
  const float *x = t->x, *w = t->w;
  vec4 a = same4(0), b = a, c = a, d = a;
  for (int64_t k = 0; k < t->k; k++, w += CPU_PANEL) {
    const vec4 v = same4(x[k]);
    a += v * load4(w);
    b += v * load4(w + 4);
    c += v * load4(w + 8);
    d += v * load4(w + 12);
  }
  finish4(t->c, a, t->add);
  finish4(t->c + 4, b, t->add);
  finish4(t->c + 8, c, t->add);
  finish4(t->c + 12, d, t->add);
}

static void two_tokens(const cpu_tile *t) {
  const float *x = t->x, *y = t->x + CPU_X_LD, *w = t->w;
  vec4 a = same4(0), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  for (int64_t k = 0; k < t->k; k++, w += CPU_PANEL) {
    const vec4 p = load4(w), q = load4(w + 4), r = load4(w + 8), s = load4(w + 12);
    const vec4 v = same4(x[k]), u = same4(y[k]);
    a += v * p;
    b += v * q;
    c += v * r;
    d += v * s;
    e += u * p;
    f += u * q;
    g += u * r;
    h += u * s;
  }
  float *second = t->c + t->ldc;
  finish4(t->c, a, t->add);
  finish4(t->c + 4, b, t->add);
  finish4(t->c + 8, c, t->add);
  finish4(t->c + 12, d, t->add);
  finish4(second, e, t->add);
  finish4(second + 4, f, t->add);
  finish4(second + 8, g, t->add);
  finish4(second + 12, h, t->add);
}

static void tile_f32(const cpu_tile *t) {
  if (t->tokens == 1)
    one_token(t);
  else
    two_tokens(t);
}

static void load_f32(float *dst, const void *src, int64_t n) {
  memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void store_f32(void *dst, const float *src, int64_t n) {
  memcpy(dst, src, (size_t)n * sizeof *src);
}

static void load_bf16(float *dst, const void *src, int64_t n) {
  const uint16_t *s = src;
  for (int64_t i = 0; i < n; i++) dst[i] = cpu_bf16_load(s[i]);
}

static void load_f16(float *dst, const void *src, int64_t n) {
  const uint16_t *s = src;
  for (int64_t i = 0; i < n; i++) dst[i] = cpu_f16_load(s[i]);
}

static void store_bf16(void *dst, const float *src, int64_t n) {
  uint16_t *d = dst;
  for (int64_t i = 0; i < n; i++) d[i] = cpu_bf16_store(src[i]);
}

static void store_f16(void *dst, const float *src, int64_t n) {
  uint16_t *d = dst;
  for (int64_t i = 0; i < n; i++) d[i] = cpu_f16_store(src[i]);
}

static void add(float *dst, const float *a, int64_t n) {
  for (int64_t i = 0; i < n; i++) dst[i] += a[i];
}

const cpu_kernels cpu_kernels_portable = {
    .name = "portable",
    .tokens = 2,
    .panels = {0, 1, 1},
    .tile = {tile_f32, NULL, NULL},
    .load = {load_f32, load_bf16, load_f16},
    .store = {store_f32, store_bf16, store_f16},
    .add = add,
};

#ifdef BS_CPU_AVX2
const cpu_kernels cpu_kernels_avx2 = {
    .name = "avx2",
    .tokens = 6,
    .panels = {0, 4, 2, 1, 1, 1, 1},
    .tile = {cpu_avx2_tile_f32, cpu_avx2_tile_bf16, cpu_avx2_tile_f16},
    .load = {load_f32, cpu_avx2_load_bf16, cpu_avx2_load_f16},
    .store = {store_f32, cpu_avx2_store_bf16, cpu_avx2_store_f16},
    .add = cpu_avx2_add,
    .gather = cpu_avx2_gather,
    .scatter = cpu_avx2_scatter,
};
#endif
