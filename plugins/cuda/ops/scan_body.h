/* SPDX-License-Identifier: MIT
 * scan_body.h - running sums along one dim; include it after reduce_f64.h or reduce_i64.h. A line has a team
 * of threads, and a block some lines, as in reduce_body.h. A round takes REDUCE_PIECE elements a thread: the
 * threads' sums are added up in steps that reach twice as far each. */
#ifndef BS_PLUGIN_CUDA_SCAN_BODY_H
#define BS_PLUGIN_CUDA_SCAN_BODY_H
#include "reduce_body.h"
#include "scan.h"

/* Sums are in the first or in the second half, in turns. */
typedef struct scan_shared {
  reduce_number sums[2][CUDA_BLOCK];
} scan_shared;

typedef struct scan_local {
  reduce_part part;
  reduce_number v[REDUCE_PIECE];
  reduce_number before; /* the sum of earlier rounds */
} scan_local;

CUDA_FN int64_t scan_round(const scan_args *a) {
  return (int64_t)a->lines.team * REDUCE_PIECE;
}

CUDA_FN void scan_begin(const scan_args *a, scan_local *l, const cuda_at *at) {
  l->part = reduce_here(&a->lines, at);
  l->before = 0;
}

/* Elements i, i + 1, ... in the order of the sum; zeros after the line. */
CUDA_FN void scan_get(const scan_args *a, const scan_local *l, int64_t i, reduce_number *v) {
  const int64_t n = l->part.live ? a->lines.inner.count : 0;
  CUDA_UNROLL
  for (int k = 0; k < REDUCE_PIECE; k++) v[k] = 0;
  if (i >= n) return;
  if (a->back == 0) {
    reduce_get(&a->lines, &l->part, i, v);
    return;
  }
  CUDA_UNROLL
  for (int k = 0; k < REDUCE_PIECE; k++) {
    if (i + k >= n) continue;
    const int64_t at = reduce_offset(&a->lines, n - 1 - i - k) * (int64_t)a->lines.in.size;
    const cuda_raw raw = cuda_get(l->part.from + at, a->lines.in.size, 1);
    reduce_widen(a->lines.in.dtype, &raw, &v[k], 1);
  }
}

CUDA_FN void scan_load(const scan_args *a, scan_shared *s, scan_local *l, int64_t first) {
  scan_get(a, l, first + (int64_t)l->part.thread * REDUCE_PIECE, l->v);
  reduce_number sum = l->v[0];
  CUDA_UNROLL
  for (int k = 1; k < REDUCE_PIECE; k++) sum = reduce_plus(sum, l->v[k]);
  s->sums[0][l->part.slot] = sum;
}

CUDA_FN void scan_add(const scan_args *a, scan_shared *s, const scan_local *l, uint32_t from,
                      uint32_t apart) {
  const uint32_t slot = l->part.slot;
  reduce_number sum = s->sums[from][slot];
  if (l->part.thread >= apart) sum = reduce_plus(s->sums[from][slot - apart * a->lines.columns], sum);
  s->sums[from ^ 1u][slot] = sum;
}

CUDA_FN void scan_put(const scan_args *a, const scan_local *l, int64_t i, reduce_number v) {
  const int64_t n = a->lines.inner.count, at = a->back != 0 ? n - 1 - i : i;
  if (!l->part.live || i >= n) return;
  const cuda_raw raw = reduce_narrow(&a->lines, v);
  cuda_put(l->part.to + at * a->out_step * (int64_t)a->lines.out.size, &raw, a->lines.out.size, 1);
}

CUDA_FN void scan_write(const scan_args *a, const scan_shared *s, scan_local *l, int64_t first,
                        uint32_t from) {
  const uint32_t slot = l->part.slot, columns = a->lines.columns;
  const int64_t i = first + (int64_t)l->part.thread * REDUCE_PIECE;
  reduce_number sum = l->before;
  if (l->part.thread > 0) sum = reduce_plus(sum, s->sums[from][slot - columns]);
  CUDA_UNROLL
  for (int k = 0; k < REDUCE_PIECE; k++) {
    const reduce_number with = reduce_plus(sum, l->v[k]);
    scan_put(a, l, i + k, a->without != 0 ? sum : with);
    sum = with;
  }
  const uint32_t end = slot + (a->lines.team - 1u - l->part.thread) * columns; /* of the team's last thread */
  l->before = reduce_plus(l->before, s->sums[from][end]);
}

#if defined(__CUDACC__)
CUDA_FN void scan_block(const scan_args *a, scan_shared *s) {
  const cuda_at at = cuda_here();
  scan_local l;
  scan_begin(a, &l, &at);
  CUDA_ROLL
  for (int64_t first = 0; first < a->lines.inner.count; first += scan_round(a)) {
    uint32_t from = 0;
    scan_load(a, s, &l, first);
    __syncthreads();
    CUDA_ROLL
    for (uint32_t apart = 1; apart < a->lines.team; apart *= 2, from ^= 1u) {
      scan_add(a, s, &l, from, apart);
      __syncthreads();
    }
    scan_write(a, s, &l, first, from);
    __syncthreads();
  }
}
#endif
#endif
