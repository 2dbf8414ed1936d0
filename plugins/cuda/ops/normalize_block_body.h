/* SPDX-License-Identifier: MIT
 * normalize_block_body.h - a block a row, for long rows and those of f64; include it after normalize_f32.h or
 * normalize_f64.h. A pass is cut at its barriers: the threads put what they found, half of them add what the
 * other half has, and so on, then each takes the result. */
#ifndef BS_PLUGIN_CUDA_NORMALIZE_BLOCK_BODY_H
#define BS_PLUGIN_CUDA_NORMALIZE_BLOCK_BODY_H
#include "normalize_body.h"

typedef struct normalize_shared {
  normalize_found found[CUDA_BLOCK];
} normalize_shared;

typedef struct normalize_local {
  normalize_row row;
  normalize_known known;
} normalize_local;

CUDA_FN void normalize_block_begin(const normalize_args *a, normalize_local *l, const cuda_at *at) {
  l->row = normalize_row_at(a, at->block_x);
  l->known = normalize_begin(a);
}

CUDA_FN void normalize_block_measure(const normalize_args *a, normalize_shared *s, const normalize_local *l,
                                     const cuda_at *at) {
  s->found[at->thread] = normalize_measure(a, &l->row, &l->known, (int64_t)at->thread * NORMALIZE_PIECE,
                                           CUDA_BLOCK * NORMALIZE_PIECE);
}

CUDA_FN void normalize_block_fold(normalize_shared *s, const normalize_local *l, const cuda_at *at,
                                  uint32_t half) {
  if (at->thread < half)
    s->found[at->thread] =
        normalize_join(l->known.stage, &s->found[at->thread], &s->found[at->thread + half]);
}

/* Before the next pass puts anything, all must have come here. */
CUDA_FN void normalize_block_next(const normalize_args *a, const normalize_shared *s, normalize_local *l) {
  const normalize_found all = s->found[0];
  normalize_next(a, &l->known, &all);
}

CUDA_FN void normalize_block_write(const normalize_args *a, const normalize_local *l, const cuda_at *at) {
  normalize_write(a, &l->row, &l->known, (int64_t)at->thread * NORMALIZE_PIECE, CUDA_BLOCK * NORMALIZE_PIECE);
}

/* The kernel of a block; the twin has the same loops, a step for every thread. */
#if defined(__CUDACC__)
CUDA_FN void normalize_block(const normalize_args *a, normalize_shared *s) {
  const cuda_at at = cuda_here();
  normalize_local l;
  normalize_block_begin(a, &l, &at);
  CUDA_ROLL
  while (l.known.stage != NORMALIZE_WRITE) {
    normalize_block_measure(a, s, &l, &at);
    CUDA_ROLL
    for (uint32_t half = CUDA_BLOCK / 2; half > 0; half /= 2) {
      __syncthreads();
      normalize_block_fold(s, &l, &at, half);
    }
    __syncthreads();
    normalize_block_next(a, s, &l);
    __syncthreads();
  }
  normalize_block_write(a, &l, &at);
}
#endif
#endif
