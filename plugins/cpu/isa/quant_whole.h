/* SPDX-License-Identifier: MIT
 *
 * quant_whole.h - the sums of codes of 8 bits by bytes of X over all columns, for instruction sets that
 * multiply pairs of 16 bits. X of a tile is split once for all panels into the even and the odd columns of
 * each quad, 16 bits each; codes are split by a mask and a shift. */
#ifndef BS_PLUGINS_CPU_ISA_QUANT_WHOLE_H
#define BS_PLUGINS_CPU_ISA_QUANT_WHOLE_H

#include "quant_dot.h"

#define QW_TOKENS 6
#define QW_COLUMNS 1024 /* of a block: X of a tile is 12 KiB */
#define QW_QUADS (QW_COLUMNS / 4)

typedef struct qw_block {
  const cpu_quant_whole *d;
  int64_t first, quads; /* columns of the block */
  int64_t token, panel;
  int32_t even[QW_TOKENS][QW_QUADS], odd[QW_TOKENS][QW_QUADS];
} qw_block;

INLINE void qw_split(qw_block *b, int tokens) {
  for (int t = 0; t < tokens; t++) {
    const int8_t *x = b->d->x + (b->token + t) * b->d->x_ld + b->first;
    int64_t q = 0;
    for (; q + QI <= b->quads; q += QI) {
      const qi four = qi_load(x + 4 * q);
      qi_store(b->even[t] + q, qi_even16(four));
      qi_store(b->odd[t] + q, qi_odd16(four));
    }
    for (; q < b->quads; q++) {
      const int8_t *at = x + 4 * q;
      b->even[t][q] = (int32_t)((uint32_t)at[0] & 0xffffu) | (int32_t)((uint32_t)at[2] << 16);
      b->odd[t][q] = (int32_t)((uint32_t)at[1] & 0xffffu) | (int32_t)((uint32_t)at[3] << 16);
    }
  }
}

INLINE void qw_tile(const int T, const int P, const qw_block *b) {
  const cpu_quant_whole *d = b->d;
  const uint8_t *codes[2];
  int32_t *c = d->c + b->token * d->ldc + b->panel * CPU_PANEL;
  qi sums[QW_TOKENS * 2 * Q_VECS];
  UNROLL for (int p = 0; p < P; p++) codes[p] = d->w + (b->panel + p) * d->w_step + b->first * CPU_PANEL;
  UNROLL for (int i = 0; i < T * P * Q_VECS; i++) sums[i] =
      b->first > 0 ? qi_load(c + i / (P * Q_VECS) * d->ldc + i % (P * Q_VECS) * QI) : qi_set1(0);
  for (int64_t q = 0; q < b->quads; q++) {
    UNROLL for (int i = 0; i < P * Q_VECS; i++) {
      const qi w = qi_load(codes[i / Q_VECS] + q * 64 + i % Q_VECS * QI * 4);
      const qi even = qi_and(w, qi_set1(0x00ff00ff)), odd = qi_right16(w, 8);
      UNROLL for (int t = 0; t < T; t++) {
        qi *sum = &sums[t * P * Q_VECS + i];
        *sum = qi_add_pairs(*sum, even, qi_set1(b->even[t][q]));
        *sum = qi_add_pairs(*sum, odd, qi_set1(b->odd[t][q]));
      }
    }
  }
  UNROLL for (int i = 0; i < T * P * Q_VECS; i++)
      qi_store(c + i / (P * Q_VECS) * d->ldc + i % (P * Q_VECS) * QI, sums[i]);
}

INLINE void qw_tokens(qw_block *b, int tokens) {
  const int64_t panels = b->d->panels;
  qw_split(b, tokens);
  for (b->panel = 0; b->panel < panels; b->panel++) {
    if (tokens == 6)
      qw_tile(6, 1, b);
    else if (tokens == 5)
      qw_tile(5, 1, b);
    else if (tokens == 4)
      qw_tile(4, 1, b);
    else if (tokens == 3)
      qw_tile(3, 1, b);
    else
      qw_tile(2, 1, b);
  }
}

/* Groups of tokens differ by at most one, so that none has a small tile. One token is read faster by long
 * streams of codes. */
static void qw_whole(const cpu_quant_whole *d) {
  const int64_t groups = (d->tokens + QW_TOKENS - 1) / QW_TOKENS;
  qw_block b;
  b.d = d;
  b.token = 0;
  if (d->bits != 8 || d->tokens == 1) {
    q_whole(d);
    return;
  }
  for (int64_t g = 0; g < groups; g++) {
    const int tokens = (int)(d->tokens / groups + (g < d->tokens % groups));
    for (b.first = 0; b.first < d->columns; b.first += QW_COLUMNS) {
      b.quads = (d->columns - b.first < QW_COLUMNS ? d->columns - b.first : QW_COLUMNS) / 4;
      qw_tokens(&b, tokens);
    }
    b.token += tokens;
  }
}

#endif
