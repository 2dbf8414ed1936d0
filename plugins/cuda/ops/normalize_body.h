/* SPDX-License-Identifier: MIT
 * normalize_body.h - layer and rms normalisation, softmax and log_softmax of rows x + add; include it after
 * normalize_f32.h or normalize_f64.h. A team of threads, a warp or a block, passes over a row for each of its
 * statistics and once more to write. Element i is thread i / NORMALIZE_PIECE's, modulo the team: the length
 * alone says in which order a row is summed.
 * A thread reads what it writes before it does: y and sum may be x or add. */
#ifndef BS_PLUGIN_CUDA_NORMALIZE_BODY_H
#define BS_PLUGIN_CUDA_NORMALIZE_BODY_H
#include "normalize.h"
#include "warp.h"

/* What is known of a row: y = (by row - shift - delta) scale, of log_softmax row - shift - scale. Layer
 * normalisation has the mean in two parts, so that what is left of near numbers is exact. The shift is 0 in
 * the first pass, and the mean that this found in a second one, which most rows do not need. */
typedef struct normalize_known {
  normalize_number by, shift, delta, scale;
  int32_t stage;
} normalize_known;

/* What a pass sums: two numbers a thread, then of its team. The largest value is in the first. */
typedef struct normalize_found {
  normalize_number first, second;
} normalize_found;

typedef struct normalize_row {
  char *at[NORMALIZE_ARGS]; /* NULL: absent */
} normalize_row;

CUDA_FN int normalize_is_power(const normalize_args *a) {
  return a->kind >= BS_NORMALIZE_SOFTMAX;
}

CUDA_FN normalize_row normalize_row_at(const normalize_args *a, int64_t row) {
  int64_t at[CUDA_SPACE_DIMS];
  normalize_row r;
  cuda_space_at(&a->space, row * a->n, at);
  at[NORMALIZE_STEP] = 0;
  CUDA_UNROLL
  for (int i = 0; i < NORMALIZE_ARGS; i++) {
    r.at[i] = 0;
    if (a->args[i].data != 0) r.at[i] = cuda_spread_element(&a->args[i], cuda_spread_offset(&a->args[i], at));
  }
  return r;
}

CUDA_FN normalize_known normalize_begin(const normalize_args *a) {
  const normalize_known k = {1, 0, 0, 0, normalize_is_power(a) ? NORMALIZE_MOST : NORMALIZE_SUMS};
  return k;
}

/* ---- elements ------------------------------------------------------------------------------------ */

CUDA_FN char *normalize_element(const normalize_args *a, const normalize_row *r, const int arg, int64_t c) {
  return r->at[arg] + c * a->args[arg].strides[NORMALIZE_STEP] * (int64_t)a->args[arg].size;
}
CUDA_FN int normalize_is_piece(const normalize_args *a, const int arg, int64_t c) {
  return (a->pieces >> arg & 1u) != 0 && c + NORMALIZE_PIECE <= a->n;
}

/* A piece from column c on; zeros beyond the row. */
CUDA_FN void normalize_get(const normalize_args *a, const normalize_row *r, const int arg, int64_t c,
                           normalize_number *v) {
  cuda_raw raw = {{0, 0, 0, 0}};
  const uint32_t size = a->args[arg].size;
  if (normalize_is_piece(a, arg, c)) {
    raw = cuda_get(normalize_element(a, r, arg, c), size, NORMALIZE_PIECE);
  } else {
    CUDA_UNROLL
    for (int i = 0; i < NORMALIZE_PIECE; i++) {
      if (c + i >= a->n) continue;
      const cuda_raw one = cuda_get(normalize_element(a, r, arg, c + i), size, 1);
      if (size == 1) cuda_set8(&raw, i, one.word[0]);
      if (size == 2) cuda_set16(&raw, i, one.word[0]);
      if (size == 4) raw.word[i] = one.word[0];
      if (size == 8) cuda_set64(&raw, i, cuda_raw64(&one, 0));
    }
  }
  normalize_widen(a->args[arg].dtype, &raw, v, NORMALIZE_PIECE);
}

CUDA_FN void normalize_put(const normalize_args *a, const normalize_row *r, const int arg, int64_t c,
                           const normalize_number *v) {
  const uint32_t size = a->args[arg].size;
  const cuda_raw raw = normalize_narrow(a->args[arg].dtype, v, NORMALIZE_PIECE);
  if (normalize_is_piece(a, arg, c)) {
    cuda_put(normalize_element(a, r, arg, c), &raw, size, NORMALIZE_PIECE);
    return;
  }
  CUDA_UNROLL
  for (int i = 0; i < NORMALIZE_PIECE; i++) {
    cuda_raw one = {{0, 0, 0, 0}};
    if (c + i >= a->n) continue;
    if (size == 1) one.word[0] = cuda_raw8(&raw, i);
    if (size == 2) one.word[0] = cuda_raw16(&raw, i);
    if (size == 4) one.word[0] = raw.word[i];
    if (size == 8) cuda_set64(&one, 0, cuda_raw64(&raw, i));
    cuda_put(normalize_element(a, r, arg, c + i), &one, size, 1);
  }
}

/* A piece of x + add. */
CUDA_FN void normalize_values(const normalize_args *a, const normalize_row *r, int64_t c,
                              normalize_number *v) {
  normalize_number add[NORMALIZE_PIECE];
  normalize_get(a, r, NORMALIZE_X, c, v);
  if (r->at[NORMALIZE_ADD] == 0) return;
  normalize_get(a, r, NORMALIZE_ADD, c, add);
  CUDA_UNROLL
  for (int i = 0; i < NORMALIZE_PIECE; i++) v[i] += add[i];
}

/* ---- statistics ---------------------------------------------------------------------------------- */

CUDA_FN normalize_found normalize_none(int32_t stage) {
  normalize_found f = {0, 0};
  if (stage == NORMALIZE_MOST) f.first = -INFINITY;
  return f;
}
CUDA_FN normalize_found normalize_join(int32_t stage, const normalize_found *f, const normalize_found *g) {
  normalize_found both = {f->first + g->first, f->second + g->second};
  if (stage == NORMALIZE_MOST) both.first = normalize_max(f->first, g->first);
  return both;
}

/* Adds one value. NaN may be lost in the largest one: it is found again in the sum. */
CUDA_FN void normalize_take(const normalize_args *a, const normalize_known *k, normalize_number v,
                            normalize_found *f) {
  const normalize_number of = v - k->shift;
  if (k->stage == NORMALIZE_MOST) {
    f->first = normalize_max(f->first, v);
  } else if (normalize_is_power(a)) {
    f->first += normalize_exp(of);
  } else {
    f->first = normalize_fma(of, of, f->first);
    f->second += of;
  }
}

/* A thread's part of a pass: columns from `first` on, NORMALIZE_PIECE at a time. */
CUDA_FN normalize_found normalize_measure(const normalize_args *a, const normalize_row *r,
                                          const normalize_known *k, int64_t first, int64_t step) {
  normalize_found f[NORMALIZE_PIECE];
  CUDA_UNROLL
  for (int i = 0; i < NORMALIZE_PIECE; i++) f[i] = normalize_none(k->stage);
  CUDA_ROLL
  for (int64_t c = first; c < a->n; c += step) {
    normalize_number v[NORMALIZE_PIECE];
    normalize_values(a, r, c, v);
    CUDA_UNROLL
    for (int i = 0; i < NORMALIZE_PIECE; i++)
      if (c + i < a->n) normalize_take(a, k, v[i] * k->by, &f[i]);
  }
  CUDA_UNROLL
  for (int apart = 1; apart < NORMALIZE_PIECE; apart *= 2) {
    CUDA_UNROLL
    for (int i = 0; i + apart < NORMALIZE_PIECE; i += 2 * apart)
      f[i] = normalize_join(k->stage, &f[i], &f[i + apart]);
  }
  return f[0];
}

/* Is the pass to be repeated? Once about the mean, if that is so far from the shift that the variance loses
 * bits by it; once with a factor, by the mean square. */
CUDA_FN int normalize_again(normalize_known *k, normalize_number variance, normalize_number square) {
  if (k->shift == 0 && k->delta * k->delta > variance) {
    k->shift = k->delta;
    return 1;
  }
#if defined(NORMALIZE_LEAST)
  if (k->by != 1 || (square >= NORMALIZE_LEAST && square < INFINITY)) return 0;
  k->by = square < NORMALIZE_LEAST ? NORMALIZE_RAISE : NORMALIZE_LOWER;
  k->shift *= k->by;
  return 1;
#else
  (void)square;
  return 0;
#endif
}

CUDA_FN void normalize_settle(const normalize_args *a, normalize_known *k, const normalize_found *f) {
  const normalize_number n = (normalize_number)a->n;
  normalize_number eps = (normalize_number)a->eps * k->by * k->by;
  normalize_number variance = f->first / n;
  k->delta = a->kind == BS_NORMALIZE_LAYER ? f->second / n : 0;
  if (variance < INFINITY) variance -= k->delta * k->delta;
  if (variance < 0) variance = 0;
  if (a->eps > 0.0) eps = normalize_max(eps, NORMALIZE_TINY); /* it stays above 0 */
  k->scale = 1 / normalize_root(variance + eps);
  if (!normalize_again(k, variance, variance + eps)) k->stage = NORMALIZE_WRITE;
}

/* What the team found in this pass, and which one is next. */
CUDA_FN void normalize_next(const normalize_args *a, normalize_known *k, const normalize_found *f) {
  if (k->stage == NORMALIZE_MOST) {
    k->shift = f->first;
    k->stage = NORMALIZE_SUMS;
  } else if (normalize_is_power(a)) {
    k->scale = a->kind == BS_NORMALIZE_SOFTMAX ? 1 / f->first : normalize_log(f->first);
    k->stage = NORMALIZE_WRITE;
  } else {
    normalize_settle(a, k, f);
  }
}

/* ---- writing ------------------------------------------------------------------------------------- */

CUDA_FN normalize_number normalize_one(const normalize_args *a, const normalize_known *k,
                                       normalize_number v) {
  const normalize_number of = v - k->shift;
  if (a->kind == BS_NORMALIZE_SOFTMAX) return normalize_exp(of) * k->scale;
  if (a->kind == BS_NORMALIZE_LOG_SOFTMAX) return of - k->scale;
  return (of - k->delta) * k->scale;
}

CUDA_FN void normalize_write(const normalize_args *a, const normalize_row *r, const normalize_known *k,
                             int64_t first, int64_t step) {
  CUDA_ROLL
  for (int64_t c = first; c < a->n; c += step) {
    normalize_number v[NORMALIZE_PIECE], by[NORMALIZE_PIECE];
    normalize_values(a, r, c, v);
    if (r->at[NORMALIZE_SUM] != 0) normalize_put(a, r, NORMALIZE_SUM, c, v);
    CUDA_UNROLL
    for (int i = 0; i < NORMALIZE_PIECE; i++) v[i] = normalize_one(a, k, v[i] * k->by);
    if (r->at[NORMALIZE_GAMMA] != 0) {
      normalize_get(a, r, NORMALIZE_GAMMA, c, by);
      CUDA_UNROLL
      for (int i = 0; i < NORMALIZE_PIECE; i++) v[i] *= by[i];
    }
    if (r->at[NORMALIZE_BETA] != 0) {
      normalize_get(a, r, NORMALIZE_BETA, c, by);
      CUDA_UNROLL
      for (int i = 0; i < NORMALIZE_PIECE; i++) v[i] += by[i];
    }
    normalize_put(a, r, NORMALIZE_Y, c, v);
  }
}
#endif
