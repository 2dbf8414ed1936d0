/* SPDX-License-Identifier: MIT
 *
 * bytes.h - the product of a few tokens with a panel of 16 outputs of int8 or int16, from one source for
 * every instruction set. Columns come in pairs: int8 weights of a pair are widened to 16 bits in a register,
 * one instruction computes both products and their sum (two products of 128 x 128 fit 32 bits), and one
 * addition adds it to the sums; with VNNI the same instruction does. Integers: the bits depend neither on the
 * tile nor on the instruction set. */
#ifndef BS_PLUGINS_CPU_ISA_BYTES_H
#define BS_PLUGINS_CPU_ISA_BYTES_H

#include <string.h>

#include "tile_pieces.h"

#define BYTES_VECS (CPU_PANEL / IVEC)

INLINE void bytes_product(const int tokens, const int wide, const cpu_bytes *t) {
  ivec sums[BYTES_TOKENS * BYTES_VECS], w[BYTES_VECS];
  UNROLL for (int i = 0; i < tokens * BYTES_VECS; i++) sums[i] = ivec_zero();
  for (int64_t k = 0; k < t->pairs; k++) {
    const int64_t at = k * 2 * CPU_PANEL;
    UNROLL for (int v = 0; v < BYTES_VECS; v++) w[v] =
        wide ? ivec_load((const int32_t *)t->w + at / 2 + v * IVEC)
             : ivec_load_pairs((const int8_t *)t->w + at + v * 2 * IVEC);
    UNROLL for (int i = 0; i < tokens; i++) {
      int32_t pair;
      memcpy(&pair, t->x + i * t->x_ld + 2 * k, sizeof pair);
      const ivec x = ivec_set_pair(pair);
      UNROLL for (int v = 0; v < BYTES_VECS; v++) sums[i * BYTES_VECS + v] =
          ivec_add_products(sums[i * BYTES_VECS + v], x, w[v]);
    }
  }
  UNROLL for (int i = 0; i < tokens; i++) {
    UNROLL for (int v = 0; v < BYTES_VECS; v++) {
      int32_t *c = t->c + i * t->ldc + v * IVEC;
      ivec_store(c, t->add ? ivec_add(ivec_load(c), sums[i * BYTES_VECS + v]) : sums[i * BYTES_VECS + v]);
    }
  }
}

INLINE void bytes_tokens(const int wide, const cpu_bytes *t) {
  switch (t->tokens) {
    case 1:
      bytes_product(1, wide, t);
      return;
#if BYTES_TOKENS > 2
    case 2:
      bytes_product(2, wide, t);
      return;
    case 3:
      bytes_product(3, wide, t);
      return;
    case 4:
      bytes_product(4, wide, t);
      return;
    case 5:
      bytes_product(5, wide, t);
      return;
#endif
#if BYTES_TOKENS > 6
    case 6:
      bytes_product(6, wide, t);
      return;
    case 7:
      bytes_product(7, wide, t);
      return;
    case 8:
      bytes_product(8, wide, t);
      return;
    case 9:
      bytes_product(9, wide, t);
      return;
    case 10:
      bytes_product(10, wide, t);
      return;
    case 11:
      bytes_product(11, wide, t);
      return;
#endif
    default:
      bytes_product(BYTES_TOKENS, wide, t);
      return;
  }
}

static void bytes(const cpu_bytes *t) {
  bytes_tokens(0, t);
}

static void pairs(const cpu_bytes *t) {
  bytes_tokens(1, t);
}

#endif
