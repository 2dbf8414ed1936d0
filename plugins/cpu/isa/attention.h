/* SPDX-License-Identifier: MIT
 *
 * attention.h - the inner loops of attention other than its products: a row of scores becomes powers, a row
 * of sums is scaled, and rows of V are added up for a few queries. One source for every instruction set: the
 * including file has chosen `vec` before, a vector type of the compiler. With ATTEND_ROW_ALONE only the
 * functions that make powers of other formats. */
#ifndef BS_PLUGINS_CPU_ISA_ATTENTION_H
#define BS_PLUGINS_CPU_ISA_ATTENTION_H

#include <math.h>
#include <string.h>

#include "../kernels.h"
#include "tile_pieces.h"

typedef uint32_t vec_words __attribute__((vector_size(4 * VEC)));
enum { ATTEND_LANES = 16, ATTEND_VECS = ATTEND_LANES / VEC };

/* p 2^n where x >= -126 or NaN, else 0; t: n in the last places of its mantissa. */
#if VEC == 16
INLINE vec attend_power(vec p, vec t, vec n, vec x) {
  (void)t;
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, vec_set1(-126.0f), _CMP_NLT_UQ), p, n);
}
#else
INLINE vec attend_power(vec p, vec t, vec n, vec x) {
  (void)n;
  const vec_words power = (vec_words)p + ((vec_words)t << 23);
  const vec_words below = (vec_words)(x < vec_set1(-126.0f));
  const vec_words nan = (vec_words)(((vec_words)x << 1) > 0xff000000u);
  return (vec)((power & ~below & ~nan) | ((vec_words)x & nan));
}
#endif

/* 2^x for x < 127: within 2 ulp, or `fast` within 1.1e-4 of it; 0 below -126; NaN stays. 2^n 2^r with |r| <=
 * 1/2 and a polynomial of least relative error that is 1 at 0. */
INLINE vec attend_exp2(const int fast, vec x) {
  const vec round = vec_set1(0x1.8p23f), t = x + round, n = t - round, r = x - n;
  vec p;
  if (fast) {
    p = vec_fma(vec_set1(0x1.c2a218p-5f), r, vec_set1(0x1.f00c4cp-3f));
    p = vec_fma(p, r, vec_set1(0x1.62f5fap-1f));
  } else {
    p = vec_fma(vec_set1(0x1.5bba14p-10f), r, vec_set1(0x1.3cea88p-7f));
    p = vec_fma(p, r, vec_set1(0x1.c6b752p-5f));
    p = vec_fma(p, r, vec_set1(0x1.ebf9bcp-3f));
    p = vec_fma(p, r, vec_set1(0x1.62e42ap-1f));
  }
  return attend_power(vec_fma(p, r, vec_set1(1.0f)), t, n, x);
}

/* The largest of sixteen lanes, folded by halves; NaN is passed over. */
INLINE float attend_largest(const vec *v) {
#if VEC == 16
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps(v[0], 1));
#elif VEC == 8
  const __m256 half = _mm256_max_ps(v[0], v[1]);
#endif
#if VEC >= 8
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
#else
  float lanes[ATTEND_LANES], most;
  for (int i = 0; i < ATTEND_VECS; i++) vec_store(lanes + (size_t)i * VEC, v[i]);
  most = lanes[0];
  for (int i = 1; i < ATTEND_LANES; i++) most = lanes[i] > most ? lanes[i] : most;
  return most;
#endif
}

/* Is a lane of the sixteen above `limit`? NaN is not. */
INLINE int attend_above(const vec *v, float limit) {
#if VEC == 16
  return _mm512_cmp_ps_mask(v[0], vec_set1(limit), _CMP_GT_OQ) != 0;
#elif VEC == 8
  return _mm256_movemask_ps(_mm256_cmp_ps(vec_max(v[0], v[1]), vec_set1(limit), _CMP_GT_OQ)) != 0;
#else
  float lanes[ATTEND_LANES];
  for (int i = 0; i < ATTEND_VECS; i++) vec_store(lanes + (size_t)i * VEC, v[i]);
  for (int i = 0; i < ATTEND_LANES; i++)
    if (lanes[i] > limit) return 1;
  return 0;
#endif
}

/* Powers may grow to 2^ATTEND_OVER before the sums are scaled. So the branch is almost never taken after the
 * first tile of keys, and the powers of a row do not wait for its largest score. */
#define ATTEND_OVER 8.0f

/* From CPU_ATTEND_FAR on, in powers of 2, the rounding of by * most is not small compared with 1. Then powers
 * are made from the difference of two scores, by (s - most), instead of by s - by most. */
INLINE int attend_is_far(float shift) {
  return shift > CPU_ATTEND_FAR || shift < -CPU_ATTEND_FAR;
}

/* The shift for which no power of the scores `here` is above 1. *most becomes their largest; the sums must be
 * multiplied by *scale. */
INLINE float attend_rise(const int fast, const vec *here, float by, float *most, float *scale) {
  const float before = *most, tile = attend_largest(here), now = tile > before ? tile : before;
  float lanes[VEC];
  *most = now;
  if (now == -INFINITY) return 0.0f; /* no key is seen so far: 2^-inf is 0 for every sum */
  const float fall = attend_is_far(now * by) ? (before - now) * by : before * by - now * by;
  vec_store(lanes, attend_exp2(fast, vec_set1(fall)));
  *scale = lanes[0];
  return -(now * by);
}

/* The powers of n scores; `shift` is -(by most). */
INLINE void attend_powers(const int fast, const int far, void (*const put)(void *, int64_t, vec),
                          const float *s, void *p, int64_t n, float by, float most, float shift, vec *sums) {
  const vec factor = vec_set1(by), down = vec_set1(far ? most : shift);
  for (int64_t i = 0; i < n; i += ATTEND_LANES)
    for (int v = 0; v < ATTEND_VECS; v++) {
      const int64_t at = i + (int64_t)v * VEC;
      const vec here = vec_load(s + at);
      vec x;
      if (far)
        x = (here - down) * factor;
      else
        x = vec_fma(here, factor, down);
      const vec power = attend_exp2(fast, x);
      put(p, at, power);
      sums[v] = sums[v] + power;
    }
}

/* Turns n more scores of a query, a multiple of 16, into powers 2^(by (s - *most)). `put` stores them as
 * operands of the next product. *most is one of the first scores; it becomes the largest so far when that
 * exceeds it by ATTEND_OVER. totals[16] are lanes of the sum of the powers; earlier sums must be multiplied
 * by the result. -INFINITY: not seen. NaN makes the totals NaN. */
INLINE float attend_row(const int fast, void (*const put)(void *, int64_t, vec), const float *s, void *p,
                        int64_t n, float by, float *most, float *totals) {
  vec here[ATTEND_VECS], over[ATTEND_VECS], sums[ATTEND_VECS];
  for (int v = 0; v < ATTEND_VECS; v++) here[v] = vec_set1(-INFINITY);
  for (int64_t i = 0; i < n; i += ATTEND_LANES)
    for (int v = 0; v < ATTEND_VECS; v++) here[v] = vec_max(vec_load(s + i + (int64_t)v * VEC), here[v]);
  /* The first scores: there are no sums to scale, and any score will do. */
  if (*most == -INFINITY) *most = here[0][0];
  float scale = 1.0f, shift = -(*most * by);
  for (int v = 0; v < ATTEND_VECS; v++) {
    sums[v] = vec_load(totals + (size_t)v * VEC);
    over[v] = (here[v] - vec_set1(*most)) * vec_set1(by);
  }
  if (*most == -INFINITY || attend_above(over, ATTEND_OVER)) {
    shift = attend_rise(fast, here, by, most, &scale);
    for (int v = 0; v < ATTEND_VECS; v++) sums[v] = sums[v] * vec_set1(scale);
  }
  if (attend_is_far(shift))
    attend_powers(fast, 1, put, s, p, n, by, *most, shift, sums);
  else
    attend_powers(fast, 0, put, s, p, n, by, *most, shift, sums);
  for (int v = 0; v < ATTEND_VECS; v++) vec_store(totals + (size_t)v * VEC, sums[v]);
  return scale;
}

INLINE void attend_put_f32(void *p, int64_t at, vec power) {
  vec_store((float *)p + at, power);
}

#ifndef ATTEND_ROW_ALONE
#include "transpose.h"

static float attend_exact(const float *s, void *p, int64_t n, float by, float *most, float *totals) {
  return attend_row(0, attend_put_f32, s, p, n, by, most, totals);
}
static float attend_fast(const float *s, void *p, int64_t n, float by, float *most, float *totals) {
  return attend_row(1, attend_put_f32, s, p, n, by, most, totals);
}

/* v *= by, n a multiple of 16. */
static void attend_scale(float *v, float by, int64_t n) {
  for (int64_t i = 0; i < n; i += VEC) vec_store(v + i, vec_load(v + i) * vec_set1(by));
}

/* Copies n floats, a multiple of 16, to panels of 16 columns that are `step` floats apart. */
static void attend_strips(float *panels, int64_t step, const float *row, int64_t n) {
  for (int64_t i = 0; i < n; i += 16, panels += step)
    for (int64_t v = 0; v < 16; v += VEC) vec_store(panels + v, vec_load(row + i + v));
}

/* ---- a few queries, whose keys are read where they lie -------------------------------------------- */

/* A vector of elements of a type, 0 f32, 1 bf16, 2 f16. */
INLINE vec attend_load(const int type, const void *p) {
  return type == 0 ? vec_load(p) : type == 1 ? vec_load_bf16(p) : vec_load_f16(p);
}

/* 16 elements of up to 16 rows, as columns: to[element][row]. Rows beyond the last are the last one. */
INLINE void attend_turn(const int type, float *to, const void *rows, int64_t ld, int64_t keys) {
  const int64_t size = type == 0 ? 4 : 2;
  float copy[ATTEND_LANES * ATTEND_LANES];
  if (type == 0 && keys >= ATTEND_LANES) {
    transpose(to, ATTEND_LANES, rows, ld);
    return;
  }
  for (int64_t r = 0; r < ATTEND_LANES; r++) {
    const uint8_t *at = (const uint8_t *)rows + (r < keys ? r : keys - 1) * ld * size;
    for (int64_t v = 0; v < ATTEND_LANES; v += VEC)
      vec_store(copy + r * ATTEND_LANES + v, attend_load(type, at + v * size));
  }
  transpose(to, ATTEND_LANES, copy, ATTEND_LANES);
}

/* 16 more elements of the scores of `blocks` times 16 keys, which lie turned one behind the other. */
INLINE void attend_more(const int blocks, const int first, float *s, const float *x, const float *turned) {
  vec sum[4 * ATTEND_VECS];
  UNROLL for (int j = 0; j < blocks * ATTEND_VECS; j++) sum[j] =
      first ? vec_set1(0.0f) : vec_load(s + (size_t)j * VEC);
  for (int64_t k = 0; k < ATTEND_LANES; k++) {
    const vec of = vec_set1(x[k]);
    UNROLL for (int j = 0; j < blocks * ATTEND_VECS; j++) {
      const int64_t at = j / ATTEND_VECS * ATTEND_LANES * ATTEND_LANES + j % ATTEND_VECS * VEC;
      sum[j] = vec_fma(of, vec_load(turned + at + k * ATTEND_LANES), sum[j]);
    }
  }
  UNROLL for (int j = 0; j < blocks * ATTEND_VECS; j++) vec_store(s + (size_t)j * VEC, sum[j]);
}

/* Prefetches part `part` of the rows that come next, in the order in which they lie: as many elements as are
 * turned at a time. */
INLINE void attend_ask(const cpu_dots *d, const uint8_t *next, const int64_t size, int64_t part) {
  const int64_t elements = ATTEND_LANES * ATTEND_LANES;
  for (int64_t r = part * elements / d->n; r < (part + 1) * elements / d->n; r++)
    for (int64_t at = 0; at < d->n * size; at += 64) __builtin_prefetch(next + r * d->ld * size + at, 0, 3);
}

/* The scores of `keys` keys, up to 16 for each of the blocks. */
INLINE void attend_some(const int type, const int blocks, const cpu_dots *d, float *s, const uint8_t *rows,
                        int64_t keys) {
  const int64_t size = type == 0 ? 4 : 2;
  _Alignas(64) float turned[4 * ATTEND_LANES * ATTEND_LANES];
  for (int64_t k = 0; k < d->n; k += ATTEND_LANES) {
    for (int64_t j = 0; j < blocks; j++) {
      attend_ask(d, rows + blocks * ATTEND_LANES * d->ld * size, size, k / ATTEND_LANES * blocks + j);
      attend_turn(type, turned + j * ATTEND_LANES * ATTEND_LANES,
                  rows + (j * ATTEND_LANES * d->ld + k) * size, d->ld, keys - j * ATTEND_LANES);
    }
    for (int64_t i = 0; i < d->count; i++)
      attend_more(blocks, k == 0, s + i * CPU_X_LD, d->x + i * CPU_X_LD + k, turned);
  }
}

INLINE void attend_dots(const int type, const cpu_dots *d) {
  const uint8_t *rows = d->rows;
  const int64_t size = type == 0 ? 4 : 2;
  int64_t r = 0;
  for (; r + 3 * ATTEND_LANES < d->keys; r += 4 * ATTEND_LANES)
    attend_some(type, 4, d, d->s + r, rows + r * d->ld * size, d->keys - r);
  for (; r < d->keys; r += ATTEND_LANES)
    attend_some(type, 1, d, d->s + r, rows + r * d->ld * size, d->keys - r);
}

/* sums[i] += sum over `keys` of p[k] * row k's element i, of `blocks` blocks of 16 from `column` on. */
INLINE void attend_columns(const int type, const int blocks, float *sums, const float *p, const void *rows,
                           int64_t ld, int64_t keys, int64_t column) {
  enum { MOST = 4 * ATTEND_VECS };
  const int64_t size = type == 0 ? 4 : 2;
  const uint8_t *at = (const uint8_t *)rows + column * size;
  vec sum[MOST];
  UNROLL for (int j = 0; j < blocks * ATTEND_VECS; j++) sum[j] = vec_set1(0.0f);
  for (int64_t k = 0; k < keys; k++, at += ld * size) {
    const vec of = vec_set1(p[k]);
    UNROLL for (int j = 0; j < blocks * ATTEND_VECS; j++) sum[j] =
        vec_fma(of, attend_load(type, at + (int64_t)j * VEC * size), sum[j]);
  }
  UNROLL for (int j = 0; j < blocks * ATTEND_VECS; j++) {
    float *to = sums + column + (int64_t)j * VEC;
    vec_store(to, vec_load(to) + sum[j]);
  }
}

INLINE void attend_gather(const int type, float *sums, const float *p, const void *rows, int64_t ld,
                          int64_t keys, int64_t n) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) attend_columns(type, 4, sums, p, rows, ld, keys, i);
  for (; i < n; i += 16) attend_columns(type, 1, sums, p, rows, ld, keys, i);
}

#define ATTEND_FEW(name, type)                                                                              \
  static void attend_dots_##name(const cpu_dots *d) {                                                       \
    attend_dots(type, d);                                                                                   \
  }                                                                                                         \
  static void attend_gather_##name(float *sums, const float *p, const void *rows, int64_t ld, int64_t keys, \
                                   int64_t n) {                                                             \
    attend_gather(type, sums, p, rows, ld, keys, n);                                                        \
  }
ATTEND_FEW(f32, 0)
ATTEND_FEW(bf16, 1)
ATTEND_FEW(f16, 2)
#undef ATTEND_FEW

#endif
#endif
