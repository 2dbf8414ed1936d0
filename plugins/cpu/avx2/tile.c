/* SPDX-License-Identifier: MIT
 *
 * tile.c - the AVX2 product of up to six tokens with 16 outputs: twelve accumulators, two loads of the
 * weight panel and six broadcasts a step, which keeps both FMA units busy. One or two tokens take four or
 * two panels at once, so that the chains of dependent FMAs are hidden (they read 64 bytes a step then).
 * 16-bit weights are widened in registers here; for many tokens ops/matmul.c widens a panel once
 * instead. Compiled with -mavx2 -mfma -mf16c, called through kernels.h. */
#include <immintrin.h>

#include "../cpu.h"

#define ALWAYS static inline __attribute__((always_inline))

/* Elements at..at+7 of a weight of dtype `type` (a constant wherever this is used). */
ALWAYS __m256 weight(const uint32_t type, const void *w, int64_t at) {
  if (type == BS_F32) return _mm256_loadu_ps((const float *)w + at);
  const __m128i h = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)w + at));
  if (type == BS_F16) return _mm256_cvtph_ps(h);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

ALWAYS void put(float *c, __m256 low, __m256 high, int32_t add) {
  if (add) {
    low = _mm256_add_ps(_mm256_loadu_ps(c), low);
    high = _mm256_add_ps(_mm256_loadu_ps(c + 8), high);
  }
  _mm256_storeu_ps(c, low);
  _mm256_storeu_ps(c + 8, high);
}

typedef struct sums {
  __m256 a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5;
} sums;

/* One step of k for `rows` tokens (a constant): s += x * w. */
ALWAYS void step(const int rows, sums *s, const float *x, __m256 a, __m256 b) {
  __m256 v = _mm256_broadcast_ss(x);
  s->a0 = _mm256_fmadd_ps(v, a, s->a0);
  s->b0 = _mm256_fmadd_ps(v, b, s->b0);
  if (rows < 2) return;
  v = _mm256_broadcast_ss(x + CPU_X_LD);
  s->a1 = _mm256_fmadd_ps(v, a, s->a1);
  s->b1 = _mm256_fmadd_ps(v, b, s->b1);
  if (rows < 3) return;
  v = _mm256_broadcast_ss(x + 2 * CPU_X_LD);
  s->a2 = _mm256_fmadd_ps(v, a, s->a2);
  s->b2 = _mm256_fmadd_ps(v, b, s->b2);
  if (rows < 4) return;
  v = _mm256_broadcast_ss(x + 3 * CPU_X_LD);
  s->a3 = _mm256_fmadd_ps(v, a, s->a3);
  s->b3 = _mm256_fmadd_ps(v, b, s->b3);
  if (rows < 5) return;
  v = _mm256_broadcast_ss(x + 4 * CPU_X_LD);
  s->a4 = _mm256_fmadd_ps(v, a, s->a4);
  s->b4 = _mm256_fmadd_ps(v, b, s->b4);
  if (rows < 6) return;
  v = _mm256_broadcast_ss(x + 5 * CPU_X_LD);
  s->a5 = _mm256_fmadd_ps(v, a, s->a5);
  s->b5 = _mm256_fmadd_ps(v, b, s->b5);
}

ALWAYS void rows_by_panel(const int rows, const uint32_t type, const cpu_tile *t) {
  const __m256 zero = _mm256_setzero_ps();
  sums s = {zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero};
  const float *x = t->x;
  const void *w = t->w;
  const int64_t n = t->k;
  int64_t k = 0;
  for (; k + 2 <= n; k += 2) {
    step(rows, &s, x + k, weight(type, w, k * CPU_PANEL), weight(type, w, k * CPU_PANEL + 8));
    step(rows, &s, x + k + 1, weight(type, w, k * CPU_PANEL + 16), weight(type, w, k * CPU_PANEL + 24));
  }
  if (k < n) step(rows, &s, x + k, weight(type, w, k * CPU_PANEL), weight(type, w, k * CPU_PANEL + 8));
  const int64_t ldc = t->ldc;
  put(t->c, s.a0, s.b0, t->add);
  if (rows > 1) put(t->c + ldc, s.a1, s.b1, t->add);
  if (rows > 2) put(t->c + 2 * ldc, s.a2, s.b2, t->add);
  if (rows > 3) put(t->c + 3 * ldc, s.a3, s.b3, t->add);
  if (rows > 4) put(t->c + 4 * ldc, s.a4, s.b4, t->add);
  if (rows > 5) put(t->c + 5 * ldc, s.a5, s.b5, t->add);
}

/* One token, four panels. */
ALWAYS void one_by_four(const uint32_t type, const cpu_tile *t) {
  __m256 a0 = _mm256_setzero_ps(), b0 = a0, a1 = a0, b1 = a0, a2 = a0, b2 = a0, a3 = a0, b3 = a0;
  const int64_t two = 2 * t->w_step, three = 3 * t->w_step;
  for (int64_t k = 0; k < t->k; k++) {
    const int64_t at = k * CPU_PANEL;
    const __m256 v = _mm256_broadcast_ss(t->x + k);
    a0 = _mm256_fmadd_ps(v, weight(type, t->w, at), a0);
    b0 = _mm256_fmadd_ps(v, weight(type, t->w, at + 8), b0);
    a1 = _mm256_fmadd_ps(v, weight(type, t->w, at + t->w_step), a1);
    b1 = _mm256_fmadd_ps(v, weight(type, t->w, at + t->w_step + 8), b1);
    a2 = _mm256_fmadd_ps(v, weight(type, t->w, at + two), a2);
    b2 = _mm256_fmadd_ps(v, weight(type, t->w, at + two + 8), b2);
    a3 = _mm256_fmadd_ps(v, weight(type, t->w, at + three), a3);
    b3 = _mm256_fmadd_ps(v, weight(type, t->w, at + three + 8), b3);
  }
  put(t->c, a0, b0, t->add);
  put(t->c + CPU_PANEL, a1, b1, t->add);
  put(t->c + 2 * CPU_PANEL, a2, b2, t->add);
  put(t->c + 3 * CPU_PANEL, a3, b3, t->add);
}

ALWAYS void two_by_two(const uint32_t type, const cpu_tile *t) {
  __m256 a0 = _mm256_setzero_ps(), b0 = a0, a1 = a0, b1 = a0, c0 = a0, d0 = a0, c1 = a0, d1 = a0;
  for (int64_t k = 0; k < t->k; k++) {
    const int64_t at = k * CPU_PANEL;
    const __m256 v = _mm256_broadcast_ss(t->x + k), u = _mm256_broadcast_ss(t->x + CPU_X_LD + k);
    const __m256 p = weight(type, t->w, at), q = weight(type, t->w, at + 8);
    const __m256 r = weight(type, t->w, at + t->w_step), s = weight(type, t->w, at + t->w_step + 8);
    a0 = _mm256_fmadd_ps(v, p, a0);
    b0 = _mm256_fmadd_ps(v, q, b0);
    a1 = _mm256_fmadd_ps(v, r, a1);
    b1 = _mm256_fmadd_ps(v, s, b1);
    c0 = _mm256_fmadd_ps(u, p, c0);
    d0 = _mm256_fmadd_ps(u, q, d0);
    c1 = _mm256_fmadd_ps(u, r, c1);
    d1 = _mm256_fmadd_ps(u, s, d1);
  }
  put(t->c, a0, b0, t->add);
  put(t->c + CPU_PANEL, a1, b1, t->add);
  put(t->c + t->ldc, c0, d0, t->add);
  put(t->c + t->ldc + CPU_PANEL, c1, d1, t->add);
}

ALWAYS void tile(const uint32_t type, const cpu_tile *t) {
  switch (t->tokens) {
    case 1:
      if (t->panels == 4)
        one_by_four(type, t);
      else
        rows_by_panel(1, type, t);
      return;
    case 2:
      if (t->panels == 2)
        two_by_two(type, t);
      else
        rows_by_panel(2, type, t);
      return;
    case 3:
      rows_by_panel(3, type, t);
      return;
    case 4:
      rows_by_panel(4, type, t);
      return;
    case 5:
      rows_by_panel(5, type, t);
      return;
    default:
      rows_by_panel(6, type, t);
      return;
  }
}

void cpu_avx2_tile_f32(const cpu_tile *t) {
  tile(BS_F32, t);
}

void cpu_avx2_tile_bf16(const cpu_tile *t) {
  tile(BS_BF16, t);
}

void cpu_avx2_tile_f16(const cpu_tile *t) {
  tile(BS_F16, t);
}
