/* SPDX-License-Identifier: MIT
 *
 * convert.h - rounding and widening of bf16 and f16, widening of a panel, the vector sum of the epilogue:
 * once for every instruction set. Tails use half.h, which rounds alike. */
#ifndef BS_PLUGINS_CPU_ISA_CONVERT_H
#define BS_PLUGINS_CPU_ISA_CONVERT_H

#include <string.h>

#include "../half.h"
#include "../kernels.h"

static void load_f32(float *dst, const void *src, int64_t n) {
  memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void store_f32(void *dst, const float *src, int64_t n) {
  memcpy(dst, src, (size_t)n * sizeof *src);
}

static void load_bf16(float *dst, const void *src, int64_t n) {
  const uint16_t *s = src;
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(dst + i, vec_load_bf16(s + i));
  for (; i < n; i++) dst[i] = cpu_bf16_load(s[i]);
}

static void load_f16(float *dst, const void *src, int64_t n) {
  const uint16_t *s = src;
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(dst + i, vec_load_f16(s + i));
  for (; i < n; i++) dst[i] = cpu_f16_load(s[i]);
}

static void store_bf16(void *dst, const float *src, int64_t n) {
  uint16_t *d = dst;
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store_bf16(d + i, vec_load(src + i));
  for (; i < n; i++) d[i] = cpu_bf16_store(src[i]);
}

static void store_f16(void *dst, const float *src, int64_t n) {
  uint16_t *d = dst;
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store_f16(d + i, vec_load(src + i));
  for (; i < n; i++) d[i] = cpu_f16_store(src[i]);
}

/* A panel of pairs of columns to columns. */
static void widen_bf16(float *dst, const void *src, int64_t k) {
  const uint16_t *s = src;
  for (int64_t i = 0; i < k; i += 2, s += 2 * CPU_PANEL, dst += 2 * CPU_PANEL)
    for (int v = 0; v < CPU_PANEL; v += VEC) {
      vec_store(dst + v, vec_load_first(s + 2 * v));
      vec_store(dst + CPU_PANEL + v, vec_load_second(s + 2 * v));
    }
}

static void widen_f16(float *dst, const void *src, int64_t k) {
  load_f16(dst, src, k * CPU_PANEL);
}

static void add(float *dst, const float *a, int64_t n) {
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(dst + i, vec_add(vec_load(dst + i), vec_load(a + i)));
  for (; i < n; i++) dst[i] += a[i];
}

#endif
