/* SPDX-License-Identifier: MIT
 * reduce_body.h - out = factor times the fold of in, or the place of the largest or smallest value; include
 * it after reduce_f64.h or reduce_i64.h. An element of out has a team of threads, and a block some teams.
 * Element i of what is folded is thread i / REDUCE_PIECE's, modulo the team, in chain i % REDUCE_PIECE.
 * Chains are joined, then halves of the team: the shape alone gives the order. */
#ifndef BS_PLUGIN_CUDA_REDUCE_BODY_H
#define BS_PLUGIN_CUDA_REDUCE_BODY_H
#include "reduce.h"

/* A fold so far. The place is one of `value`; below 0: there is none yet. */
typedef struct reduce_found {
  reduce_number value;
  int64_t place;
} reduce_found;

typedef struct reduce_shared {
  reduce_found found[CUDA_BLOCK]; /* of thread t of the team of column c: t columns + c */
} reduce_shared;

/* The task of a thread. */
typedef struct reduce_part {
  const char *from; /* the first element that is folded */
  char *to;
  uint32_t thread, slot; /* of the team; in shared memory */
  int32_t live;          /* 0: there is no such element of out */
} reduce_part;

CUDA_FN reduce_part reduce_here(const reduce_args *a, const cuda_at *at) {
  int64_t coordinates[CUDA_SPACE_DIMS];
  reduce_part p;
  const uint32_t column = a->beside != 0 ? at->thread / a->team : at->thread & (a->columns - 1u);
  p.thread = a->beside != 0 ? at->thread & (a->team - 1u) : at->thread / a->columns;
  p.slot = p.thread * a->columns + column;
  const int64_t element = (int64_t)at->block_x * a->columns + column;
  p.live = element < a->outer.count;
  cuda_space_at(&a->outer, p.live ? element : 0, coordinates);
  p.from = cuda_spread_element(&a->in, cuda_spread_offset(&a->in, coordinates));
  p.to = cuda_spread_element(&a->out, cuda_spread_offset(&a->out, coordinates));
  return p;
}

/* ---- folding ------------------------------------------------------------------------------------- */

CUDA_FN int reduce_is_place(const reduce_args *a) {
  return a->fold == BS_FOLD_ARGMAX || a->fold == BS_FOLD_ARGMIN;
}

/* NaN is the largest and the smallest value. */
CUDA_FN int reduce_beats(const reduce_args *a, const reduce_found *f, const reduce_found *best) {
  const int nan = reduce_is_nan(f->value), best_nan = reduce_is_nan(best->value);
  if (f->place < 0 || best->place < 0) return best->place < 0;
  if ((nan && best_nan) || f->value == best->value)
    return a->last != 0 ? f->place > best->place : f->place < best->place;
  if (nan || best_nan) return nan;
  return a->fold == BS_FOLD_ARGMIN ? f->value < best->value : f->value > best->value;
}

/* Two folds in one; of sums of squares they are added. */
CUDA_FN void reduce_join(const reduce_args *a, reduce_found *f, const reduce_found *g) {
  switch (a->fold) {
    case BS_FOLD_MAX:
      if (g->value > f->value || reduce_is_nan(g->value)) f->value = g->value;
      break;
    case BS_FOLD_MIN:
      if (g->value < f->value || reduce_is_nan(g->value)) f->value = g->value;
      break;
    case BS_FOLD_PROD:
      f->value = reduce_times(f->value, g->value);
      break;
    case BS_FOLD_ARGMAX:
    case BS_FOLD_ARGMIN:
      if (reduce_beats(a, g, f)) *f = *g;
      break;
    default:
      f->value = reduce_plus(f->value, g->value);
      break;
  }
}

/* Elements i, i + 1, ... of the inner space, one a chain; those from `count` on do not exist. */
CUDA_FN void reduce_take(const reduce_args *a, const reduce_number *v, int64_t i, int64_t count,
                         reduce_found *f) {
  CUDA_UNROLL
  for (int k = 0; k < REDUCE_PIECE; k++) {
    const reduce_found one = {a->fold == BS_FOLD_SUMSQ ? reduce_times(v[k], v[k]) : v[k], i + k};
    if (i + k < count) reduce_join(a, &f[k], &one);
  }
}

/* ---- elements ------------------------------------------------------------------------------------ */

CUDA_FN int64_t reduce_offset(const reduce_args *a, int64_t i) {
  int64_t at[CUDA_SPACE_DIMS];
  if (a->line != 0) return i * a->inside.strides[REDUCE_LAST];
  cuda_space_at(&a->inner, i, at);
  return cuda_spread_offset(&a->inside, at);
}

CUDA_FN void reduce_get(const reduce_args *a, const reduce_part *p, int64_t i, reduce_number *v) {
  const uint32_t size = a->in.size;
  if (a->pieces != 0 && i + REDUCE_PIECE <= a->inner.count) {
    const char *from = p->from + i * (int64_t)size;
    const cuda_raw raw = cuda_get(from, size, size == 8 ? 2 : REDUCE_PIECE);
    if (size < 8) {
      reduce_widen(a->in.dtype, &raw, v, REDUCE_PIECE);
      return;
    }
    const cuda_raw next = cuda_get(from + 16, size, 2);
    reduce_widen(a->in.dtype, &raw, v, 2);
    reduce_widen(a->in.dtype, &next, v + 2, 2);
    return;
  }
  cuda_raw raw[REDUCE_PIECE];
  CUDA_UNROLL
  for (int k = 0; k < REDUCE_PIECE; k++) {
    const cuda_raw none = {{0, 0, 0, 0}};
    raw[k] = none;
    if (i + k < a->inner.count) raw[k] = cuda_get(p->from + reduce_offset(a, i + k) * (int64_t)size, size, 1);
  }
  CUDA_UNROLL
  for (int k = 0; k < REDUCE_PIECE; k++) reduce_widen(a->in.dtype, &raw[k], &v[k], 1);
}

/* ---- steps --------------------------------------------------------------------------------------- */

CUDA_FN void reduce_measure(const reduce_args *a, reduce_shared *s, const cuda_at *at) {
  const reduce_part p = reduce_here(a, at);
  const int64_t count = p.live ? a->inner.count : 0, step = (int64_t)a->team * REDUCE_PIECE;
  reduce_found f[REDUCE_PIECE];
  CUDA_UNROLL
  for (int k = 0; k < REDUCE_PIECE; k++) {
    f[k].value = reduce_nothing(a);
    f[k].place = -1;
  }
  CUDA_ROLL
  for (int64_t i = (int64_t)p.thread * REDUCE_PIECE; i < count; i += step) {
    reduce_number v[REDUCE_PIECE];
    reduce_get(a, &p, i, v);
    reduce_take(a, v, i, count, f);
  }
  CUDA_UNROLL
  for (int apart = 1; apart < REDUCE_PIECE; apart *= 2) {
    CUDA_UNROLL
    for (int k = 0; k < REDUCE_PIECE; k += 2 * apart) reduce_join(a, &f[k], &f[k + apart]);
  }
  s->found[p.slot] = f[0];
}

CUDA_FN void reduce_fold(const reduce_args *a, reduce_shared *s, const cuda_at *at, uint32_t half) {
  const uint32_t slots = half * a->columns;
  if (at->thread < slots) reduce_join(a, &s->found[at->thread], &s->found[at->thread + slots]);
}

CUDA_FN void reduce_write(const reduce_args *a, const reduce_shared *s, const cuda_at *at) {
  const reduce_part p = reduce_here(a, at);
  if (!p.live || p.thread != 0) return;
  const reduce_found f = s->found[p.slot];
  cuda_raw raw = {{0, 0, 0, 0}};
  if (reduce_is_place(a))
    cuda_set64(&raw, 0, f.place < 0 ? 0 : (uint64_t)f.place);
  else
    raw = reduce_narrow(a, f.value);
  cuda_put(p.to, &raw, a->out.size, 1);
}

#if defined(__CUDACC__)
CUDA_FN void reduce_block(const reduce_args *a, reduce_shared *s) {
  const cuda_at at = cuda_here();
  reduce_measure(a, s, &at);
  CUDA_ROLL
  for (uint32_t half = a->team / 2; half > 0; half /= 2) {
    __syncthreads();
    reduce_fold(a, s, &at, half);
  }
  __syncthreads();
  reduce_write(a, s, &at);
}
#endif
#endif
