/* SPDX-License-Identifier: MIT
 *
 * tile.h - the product of a few tokens with one or more panels of 16 outputs. One source for every
 * instruction set: the including file has chosen `vec` before. Sums stay in registers, one chain of
 * multiply-adds for each output, in rising order of k for every tile: the bits do not depend on it. Few
 * tokens take several panels together, to have enough chains to hide the latency of a multiply-add. 16-bit
 * weights are widened in registers; for many tokens ops/matmul.c widens a panel once instead.
 *
 * During its work a tile prefetches weights of the next panels (`ahead`): they come from memory, and the
 * hardware prefetcher stops at every page. */
#ifndef BS_PLUGINS_CPU_ISA_TILE_H
#define BS_PLUGINS_CPU_ISA_TILE_H

#include "tile_pieces.h"

/* Outputs VEC v .. of column `k` of a panel's block of dtype `type`; parity of k is `second`. All but w and k
 * are constants wherever this is used. */
INLINE vec tile_weight(const uint32_t type, const void *w, int64_t k, const int second, const int v) {
  if (type == BS_F32) return vec_load((const float *)w + k * CPU_PANEL + v * VEC);
  const uint16_t *h = w;
  if (type == BS_F16) return vec_load_f16(h + k * CPU_PANEL + v * VEC);
  h += (k - second) * CPU_PANEL + (int64_t)2 * VEC * v; /* pairs of columns */
  return second ? vec_load_second(h) : vec_load_first(h);
}

/* One column: sums += x * w. */
INLINE void tile_step(const int tokens, const int panels, const uint32_t type, const cpu_tile *t, int64_t k,
                      const int second, vec *sums) {
  const float *x = (const float *)t->x + k;
  const int wide = panels * PANEL_VECS;
  vec w[TILE_SUMS];
  if (type == BS_BF16) FORGET_LOADS(); /* both columns of a pair together need too many registers */
  UNROLL for (int p = 0; p < panels; p++) {
    const void *panel = (const char *)t->w + p * t->w_step;
    UNROLL for (int v = 0; v < PANEL_VECS; v++) w[p * PANEL_VECS + v] =
        tile_weight(type, panel, k, second, v);
  }
  UNROLL for (int i = 0; i < tokens; i++) {
    const vec one = vec_set1(x[i * CPU_X_LD]);
    UNROLL for (int v = 0; v < wide; v++) sums[i * wide + v] = vec_fma(one, w[v], sums[i * wide + v]);
  }
}

INLINE void tile_product(const int tokens, const int panels, const uint32_t type, const cpu_tile *t) {
  const int wide = panels * PANEL_VECS;
  const int64_t n = t->k;
  vec sums[TILE_SUMS];
  int64_t k = 0;
  UNROLL for (int i = 0; i < tokens * wide; i++) sums[i] = vec_set1(0.0f);
  for (; k + 4 <= n; k += 4) {
    tile_ahead(t, k);
    tile_step(tokens, panels, type, t, k, 0, sums);
    tile_step(tokens, panels, type, t, k + 1, 1, sums);
    tile_step(tokens, panels, type, t, k + 2, 0, sums);
    tile_step(tokens, panels, type, t, k + 3, 1, sums);
  }
  for (; k + 2 <= n; k += 2) {
    tile_step(tokens, panels, type, t, k, 0, sums);
    tile_step(tokens, panels, type, t, k + 1, 1, sums);
  }
  if (k < n) tile_step(tokens, panels, type, t, k, 0, sums);
  tile_finish(tokens, wide, t, sums);
}

INLINE void tile_tokens(const int tokens, const uint32_t type, const cpu_tile *t) {
  if (TILE_FITS(tokens, 4) && t->panels == 4)
    tile_product(tokens, 4, type, t);
  else if (TILE_FITS(tokens, 2) && t->panels == 2)
    tile_product(tokens, 2, type, t);
  else
    tile_product(tokens, 1, type, t);
}

INLINE void tile_any(const uint32_t type, const cpu_tile *t) {
  switch (t->tokens) {
    case 1:
      tile_tokens(1, type, t);
      return;
#if TILE_TOKENS > 2
    case 2:
      tile_tokens(2, type, t);
      return;
    case 3:
      tile_tokens(3, type, t);
      return;
    case 4:
      tile_tokens(4, type, t);
      return;
    case 5:
      tile_tokens(5, type, t);
      return;
#endif
#if TILE_TOKENS > 6
    case 6:
      tile_tokens(6, type, t);
      return;
    case 7:
      tile_tokens(7, type, t);
      return;
    case 8:
      tile_tokens(8, type, t);
      return;
    case 9:
      tile_tokens(9, type, t);
      return;
    case 10:
      tile_tokens(10, type, t);
      return;
    case 11:
      tile_tokens(11, type, t);
      return;
#endif
    default:
      tile_tokens(TILE_TOKENS, type, t);
      return;
  }
}

static void tile_f32(const cpu_tile *t) {
  tile_any(BS_F32, t);
}

#if TILE_HALVES
static void tile_bf16(const cpu_tile *t) {
  tile_any(BS_BF16, t);
}

static void tile_f16(const cpu_tile *t) {
  tile_any(BS_F16, t);
}
#endif

#endif
