/* SPDX-License-Identifier: MIT
 *
 * tile_pieces.h - shared parts of the tiles of tile.h and of avx512_bf16.c. */
#ifndef BS_PLUGINS_CPU_ISA_TILE_PIECES_H
#define BS_PLUGINS_CPU_ISA_TILE_PIECES_H

#include "../cpu.h"

#define PANEL_VECS (CPU_PANEL / VEC)
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* Makes the compiler load a value again that is in a register. */
#define FORGET_LOADS() __asm__ __volatile__("" ::: "memory")

/* Whether a tile of so many panels has enough registers: kernels->panels is never larger. */
#define TILE_FITS(tokens, panels) ((tokens) * (panels)*PANEL_VECS <= TILE_SUMS)

/* Prefetches the next weights, during columns k .. k+3. */
INLINE void tile_ahead(const cpu_tile *t, int64_t k) {
  if (t->ahead_lines == 0) return;
  const char *line = (const char *)t->ahead + k * 16 * t->ahead_lines;
  for (int32_t i = 0; i < t->ahead_lines; i++) __builtin_prefetch(line + (int64_t)64 * i, 0, 2);
}

/* The sums of a tile of tokens x `wide` vectors to C. */
INLINE void tile_finish(const int tokens, const int wide, const cpu_tile *t, const vec *sums) {
  UNROLL for (int i = 0; i < tokens; i++) {
    float *c = t->c + i * t->ldc;
    UNROLL for (int v = 0; v < wide; v++) {
      vec sum = sums[i * wide + v];
      if (t->add) sum = vec_add(vec_load(c + v * VEC), sum);
      vec_store(c + v * VEC, sum);
    }
  }
}

#endif
