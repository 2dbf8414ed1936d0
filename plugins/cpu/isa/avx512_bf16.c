/* SPDX-License-Identifier: MIT
 *
 * avx512_bf16.c - the bf16 dot product of AVX-512, for its table: two columns a step and lane, twice the
 * arithmetic of fp32. The instruction adds the products of a pair one after the other into the fp32 sum,
 * each rounded, and takes subnormal inputs and results for zero (Intel's manual, VDPBF16PS). */
#include "vec_avx512.h"

#include <string.h>

#include "tile_pieces.h"

INLINE void dot_step(const int tokens, const int panels, const cpu_tile *t, int64_t pair, vec *sums) {
  const uint16_t *x = (const uint16_t *)t->x + 2 * pair;
  __m512i w[TILE_SUMS];
  UNROLL for (int p = 0; p < panels; p++) w[p] =
      _mm512_loadu_si512((const char *)t->w + p * t->w_step + pair * 4 * CPU_PANEL);
  UNROLL for (int i = 0; i < tokens; i++) {
    int32_t both;
    memcpy(&both, x + i * CPU_X_LD, sizeof both);
    const __m512i one = _mm512_set1_epi32(both);
    UNROLL for (int p = 0; p < panels; p++) sums[i * panels + p] =
        _mm512_dpbf16_ps(sums[i * panels + p], (__m512bh)one, (__m512bh)w[p]);
  }
}

INLINE void dot_product(const int tokens, const int panels, const cpu_tile *t) {
  const int64_t pairs = (t->k + 1) / 2;
  vec sums[TILE_SUMS];
  int64_t i = 0;
  UNROLL for (int s = 0; s < tokens * panels; s++) sums[s] = vec_set1(0.0f);
  for (; i + 2 <= pairs; i += 2) {
    tile_ahead(t, 2 * i);
    dot_step(tokens, panels, t, i, sums);
    dot_step(tokens, panels, t, i + 1, sums);
  }
  if (i < pairs) dot_step(tokens, panels, t, i, sums);
  tile_finish(tokens, panels, t, sums);
}

INLINE void dot_tokens(const int tokens, const cpu_tile *t) {
  if (TILE_FITS(tokens, 4) && t->panels == 4)
    dot_product(tokens, 4, t);
  else if (TILE_FITS(tokens, 2) && t->panels == 2)
    dot_product(tokens, 2, t);
  else
    dot_product(tokens, 1, t);
}

void cpu_avx512_bf16_dot(const cpu_tile *t) {
  switch (t->tokens) {
    case 1:
      dot_tokens(1, t);
      return;
    case 2:
      dot_tokens(2, t);
      return;
    case 3:
      dot_tokens(3, t);
      return;
    case 4:
      dot_tokens(4, t);
      return;
    case 5:
      dot_tokens(5, t);
      return;
    case 6:
      dot_tokens(6, t);
      return;
    case 7:
      dot_tokens(7, t);
      return;
    case 8:
      dot_tokens(8, t);
      return;
    case 9:
      dot_tokens(9, t);
      return;
    case 10:
      dot_tokens(10, t);
      return;
    case 11:
      dot_tokens(11, t);
      return;
    default:
      dot_tokens(TILE_TOKENS, t);
      return;
  }
}
