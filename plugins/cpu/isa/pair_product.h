/* SPDX-License-Identifier: MIT
 *
 * pair_product.h - the product of a few tokens with a panel of 16 outputs of int16, from one source for every
 * instruction set. Columns come in pairs: one instruction computes both products and their sum, modulo 2^32,
 * and one addition adds it to the sums; with VNNI the same instruction does. The bits depend neither on the
 * tile nor on the instruction set. */
#ifndef BS_PLUGINS_CPU_ISA_PAIR_PRODUCT_H
#define BS_PLUGINS_CPU_ISA_PAIR_PRODUCT_H

#include <string.h>

#include "tile_pieces.h"

#define PAIRS_VECS (CPU_PANEL / IVEC)

INLINE void pairs_product(const int tokens, const cpu_pairs *t) {
  ivec sums[PAIRS_TOKENS * PAIRS_VECS], w[PAIRS_VECS];
  UNROLL for (int i = 0; i < tokens * PAIRS_VECS; i++) sums[i] = ivec_zero();
  for (int64_t k = 0; k < t->pairs; k++) {
    const int64_t at = k * 2 * CPU_PANEL;
    UNROLL for (int v = 0; v < PAIRS_VECS; v++) w[v] =
        ivec_load((const int32_t *)(const void *)t->w + at / 2 + v * IVEC);
    UNROLL for (int i = 0; i < tokens; i++) {
      int32_t pair;
      memcpy(&pair, t->x + i * t->x_ld + 2 * k, sizeof pair);
      const ivec x = ivec_set_pair(pair);
      UNROLL for (int v = 0; v < PAIRS_VECS; v++) sums[i * PAIRS_VECS + v] =
          ivec_add_products(sums[i * PAIRS_VECS + v], x, w[v]);
    }
  }
  UNROLL for (int i = 0; i < tokens; i++) {
    UNROLL for (int v = 0; v < PAIRS_VECS; v++) {
      int32_t *c = t->c + i * t->ldc + v * IVEC;
      ivec_store(c, t->add ? ivec_add(ivec_load(c), sums[i * PAIRS_VECS + v]) : sums[i * PAIRS_VECS + v]);
    }
  }
}

static void pairs(const cpu_pairs *t) {
  switch (t->tokens) {
    case 1:
      pairs_product(1, t);
      return;
#if PAIRS_TOKENS > 2
    case 2:
      pairs_product(2, t);
      return;
    case 3:
      pairs_product(3, t);
      return;
    case 4:
      pairs_product(4, t);
      return;
    case 5:
      pairs_product(5, t);
      return;
#endif
#if PAIRS_TOKENS > 6
    case 6:
      pairs_product(6, t);
      return;
    case 7:
      pairs_product(7, t);
      return;
    case 8:
      pairs_product(8, t);
      return;
    case 9:
      pairs_product(9, t);
      return;
    case 10:
      pairs_product(10, t);
      return;
    case 11:
      pairs_product(11, t);
      return;
#endif
    default:
      pairs_product(PAIRS_TOKENS, t);
      return;
  }
}

#endif
