/* SPDX-License-Identifier: MIT
 *
 * quant_dot.h - products of tokens with panels of quantised weights (kernels.h), from one source for every
 * instruction set. Sums of whole numbers are exact, and the steps in f32 are fused multiply-adds in the order
 * of docs/ops.md: the bits depend neither on the tile nor on the instruction set. Of X as it is the last
 * columns are taken one by one: a product with zero may change the sign of a sum that is zero. */
#ifndef BS_PLUGINS_CPU_ISA_QUANT_DOT_H
#define BS_PLUGINS_CPU_ISA_QUANT_DOT_H

#include "quant_vec.h"

#define Q_VECS (CPU_PANEL / QI)
#define Q_AHEAD 4096 /* bytes that codes are asked for ahead */
#define Q_UNIT_BYTES(bits) (32 * (bits))
#if QI == 16
#define Q_PANELS 4
#define Q_TOKENS 6
#elif QI == 8
#define Q_PANELS 2
#define Q_TOKENS 4
#else
#define Q_PANELS 1
#define Q_TOKENS 2
#endif

/* The four quads of a unit, of part v of a panel. */
INLINE void q_quads(const int bits, const uint8_t *unit, int v, qi quads[4]) {
  const uint8_t *at = unit + v * QI * 4;
  if (bits == 8) {
    UNROLL for (int i = 0; i < 4; i++) quads[i] = qi_load(at + 64 * i);
    return;
  }
  const qi a = qi_load(at), b = qi_load(at + 64), low = qi_set1(0x0f0f0f0f);
  quads[0] = qi_and(a, low);
  quads[1] = qi_and(qi_right(a, 4), low);
  quads[2] = qi_and(b, low);
  quads[3] = qi_and(qi_right(b, 4), low);
  if (bits == 4) return;
  const qi more = qi_load(at + 128), two = qi_set1(0x30303030);
  quads[0] = qi_or(quads[0], qi_and(qi_left(more, 4), two));
  quads[1] = qi_or(quads[1], qi_and(qi_left(more, 2), two));
  quads[2] = qi_or(quads[2], qi_and(more, two));
  quads[3] = qi_or(quads[3], qi_and(qi_right(more, 2), two));
}

INLINE qi q_four(const int8_t *x) {
  int32_t v;
  memcpy(&v, x, sizeof v);
  return qi_set1(v);
}

/* sums[t][p][v] += the products of `units` units. ahead: codes are asked for ahead. */
INLINE void q_units(const int bits, const int T, const int P, const uint8_t *const *codes, const int8_t *x,
                    int64_t x_ld, int64_t units, int ahead, qi *sums) {
  for (int64_t u = 0; u < units; u++) {
    const int64_t at = u * Q_UNIT_BYTES(bits);
    qi quads[Q_PANELS * Q_VECS][4];
    UNROLL for (int p = 0; p < P; p++) {
      UNROLL for (int v = 0; v < Q_VECS; v++) q_quads(bits, codes[p] + at, v, quads[p * Q_VECS + v]);
      if (T == 1 && ahead) {
        UNROLL for (int i = 0; i < bits / 2; i++) __builtin_prefetch(codes[p] + at + Q_AHEAD + 64 * i, 0, 3);
      }
    }
    UNROLL for (int q = 0; q < 4; q++) {
      UNROLL for (int t = 0; t < T; t++) {
        const qi four = q_four(x + t * x_ld + u * CPU_QUANT_UNIT + 4 * q);
        UNROLL for (int i = 0; i < P * Q_VECS; i++) sums[t * P * Q_VECS + i] =
            qi_dot(bits, sums[t * P * Q_VECS + i], quads[i][q], four);
      }
    }
  }
}

/* The number of a panel, or of the last one. */
INLINE int64_t q_panel(int64_t panels, int64_t p) {
  return p < panels ? p : panels - 1;
}

/* The panels of a tile: p0, p0 + apart, .. For one token a tile takes a panel of each quarter. Every stream
 * of codes is then long, as the processors' prefetchers need it. */
typedef struct q_walk {
  int64_t p0, apart, panels; /* that a tile takes */
} q_walk;

INLINE int64_t q_walk_tiles(int64_t tokens, int64_t wide, int64_t panels) {
  return tokens > 1 ? (panels + wide - 1) / wide : panels / wide + panels % wide;
}

/* Tile number i of q_walk_tiles. Of one token each panel that is left is a separate tile. */
INLINE q_walk q_walk_at(int64_t tokens, int64_t wide, int64_t panels, int64_t i) {
  const int64_t quarter = panels / wide;
  if (tokens > 1) return (q_walk){i * wide, 1, wide};
  if (i < quarter) return (q_walk){i, quarter, wide};
  return (q_walk){quarter * wide + i - quarter, 1, 1};
}

/* The first lines of a block, in order, before its codes: a prefetcher loses a stream that skips lines. */
INLINE void q_touch(const int P, const uint8_t *const *base, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    UNROLL for (int p = 0; p < P; p++)(void) * (const volatile uint8_t *)(base[p] + i);
  }
}

INLINE qf q_scales(const cpu_quant_form *form, const uint8_t *at, int64_t index) {
  if (form->half) return qf_half(at + index * 2);
  return qf_load((const float *)(const void *)at + index);
}

/* ---- X in bytes --------------------------------------------------------------------------------- */

INLINE void q_bytes_tile(const int bits, const int steps, const int T, const int P, const cpu_quant_tile *d,
                         int64_t t0, int64_t p0, int64_t apart) {
  const cpu_quant_form *form = d->form;
  const int32_t zero = form->zero;
  const int8_t *x = d->x + t0 * d->x_ld;
  const int32_t *x_sums = d->sums + t0 * d->sums_ld;
  const float *x_scales = d->scales + t0 * d->scales_ld;
  qf acc[Q_TOKENS * Q_PANELS * Q_VECS];
  UNROLL for (int i = 0; i < T * P * Q_VECS; i++) acc[i] = qf_set1(0.0f);
  for (int64_t first = 0, block = 0; first < form->cols; first += form->columns, block++) {
    const uint8_t *base[Q_PANELS];
    UNROLL for (int p = 0; p < P; p++) base[p] =
        d->w + q_panel(d->panels, p0 + p * apart) * form->panel + block * form->block;
    if (T == 1 && !form->row) q_touch(P, base, form->at_codes);
    const int64_t left = form->cols - first, end = left < form->columns ? left : form->columns;
    for (int64_t k = 0; k < end; x_scales++) { /* links */
      const int64_t link = k, stop = end - k < d->link ? end : k + d->link;
      qi total[Q_TOKENS * Q_PANELS * Q_VECS], lows[Q_TOKENS * Q_PANELS * Q_VECS];
      UNROLL for (int i = 0; i < T * P * Q_VECS; i++) total[i] = lows[i] = qi_set1(0);
      for (; k < stop; k += d->piece, x_sums++) {
        const int64_t columns = end - k < d->piece ? end - k : d->piece;
        const uint8_t *codes[Q_PANELS];
        qi sums[Q_TOKENS * Q_PANELS * Q_VECS];
        UNROLL for (int p = 0; p < P; p++) codes[p] = base[p] + form->at_codes + k * 2 * bits;
        UNROLL for (int t = 0; t < T; t++) {
          const int32_t x_sum = x_sums[t * d->sums_ld];
          const qi from = qi_set1(form->zeros ? 0 : (int32_t)(0u - (uint32_t)zero * (uint32_t)x_sum));
          UNROLL for (int i = 0; i < P * Q_VECS; i++) sums[t * P * Q_VECS + i] = from;
        }
        q_units(bits, T, P, codes, x + k, d->x_ld, (columns + CPU_QUANT_UNIT - 1) / CPU_QUANT_UNIT, d->ahead,
                sums);
        const int64_t g = k / form->group * CPU_PANEL;
        if (form->zeros) {
          UNROLL for (int i = 0; i < P * Q_VECS; i++) {
            const qi zeros = qi_u8(base[i / Q_VECS] + form->at_zeros + g + i % Q_VECS * QI);
            UNROLL for (int t = 0; t < T; t++) {
              qi *sum = &sums[t * P * Q_VECS + i];
              *sum = qi_sub(*sum, qi_mul(zeros, qi_set1(x_sums[t * d->sums_ld])));
            }
          }
        }
        if (!steps) {
          UNROLL for (int i = 0; i < T * P * Q_VECS; i++) total[i] = sums[i];
          continue;
        }
        UNROLL for (int i = 0; i < P * Q_VECS; i++) {
          const uint8_t *at = base[i / Q_VECS] + g + i % Q_VECS * QI;
          const qi step = qi_s8(at + form->at_steps);
          UNROLL for (int t = 0; t < T; t++) {
            const int n = t * P * Q_VECS + i;
            total[n] = qi_add(total[n], qi_mul(sums[n], step));
          }
          if (!form->lows) continue;
          const qi low = qi_u8(at + form->at_low_steps);
          UNROLL for (int t = 0; t < T; t++) {
            const int n = t * P * Q_VECS + i;
            lows[n] = qi_add(lows[n], qi_mul16(low, x_sums[t * d->sums_ld]));
          }
        }
      }
      const int64_t s = form->row ? 0 : link / form->span * CPU_PANEL;
      UNROLL for (int i = 0; i < P * Q_VECS; i++) {
        const uint8_t *at = base[i / Q_VECS];
        const qf scale = q_scales(form, at, s + i % Q_VECS * QI);
        UNROLL for (int t = 0; t < T; t++) {
          const int n = t * P * Q_VECS + i;
          const qf by = qf_mul(scale, qf_set1(x_scales[t * d->scales_ld]));
          acc[n] = qf_fma(by, qi_float(total[n]), acc[n]);
        }
        if (!form->lows) continue;
        const qf low = q_scales(form, at + form->at_lows, s + i % Q_VECS * QI);
        UNROLL for (int t = 0; t < T; t++) {
          const int n = t * P * Q_VECS + i;
          const qf by = qf_mul(low, qf_set1(x_scales[t * d->scales_ld]));
          acc[n] = qf_less(by, qi_float(steps ? lows[n] : qi_set1(x_sums[t * d->sums_ld - 1])), acc[n]);
        }
      }
    }
    x += form->columns;
  }
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int i = 0; i < P * Q_VECS; i++) qf_store(
        d->c + (t0 + t) * d->ldc + q_panel(d->panels, p0 + i / Q_VECS * apart) * CPU_PANEL + i % Q_VECS * QI,
        acc[t * P * Q_VECS + i]);
  }
}

/* ---- X as it is --------------------------------------------------------------------------------- */

/* One column of a quad: t = fma(code - zero, x, t). */
INLINE void q_column(const int T, const int N, const qi *quads, const qf *zeros, int byte, const float *x,
                     int64_t x_ld, qf *sums) {
  UNROLL for (int i = 0; i < N; i++) {
    const qi code = qi_and(qi_right(quads[i], 8 * byte), qi_set1(255));
    const qf w = qf_sub(qi_float(code), zeros[i]);
    UNROLL for (int t = 0; t < T; t++) sums[t * N + i] = qf_fma(w, qf_set1(x[t * x_ld]), sums[t * N + i]);
  }
}

INLINE void q_float_columns(const int bits, const int T, const int P, const uint8_t *const *codes,
                            const qf *zeros, const float *x, int64_t x_ld, int64_t columns, int ahead,
                            qf *sums) {
  for (int64_t k = 0; k < columns; k += CPU_QUANT_UNIT) {
    qi quads[4][Q_PANELS * Q_VECS];
    UNROLL for (int p = 0; p < P; p++) {
      UNROLL for (int v = 0; v < Q_VECS; v++) {
        qi four[4];
        q_quads(bits, codes[p] + k * 2 * bits, v, four);
        UNROLL for (int q = 0; q < 4; q++) quads[q][p * Q_VECS + v] = four[q];
      }
      if (T == 1 && ahead) {
        UNROLL for (int i = 0; i < bits / 2; i++)
            __builtin_prefetch(codes[p] + k * 2 * bits + Q_AHEAD + 64 * i, 0, 3);
      }
    }
    if (columns - k < CPU_QUANT_UNIT) {
      for (int64_t i = 0; i < columns - k; i++) {
        qi quad[Q_PANELS * Q_VECS];
        UNROLL for (int n = 0; n < P * Q_VECS; n++) quad[n] = quads[i / 4][n];
        UNROLL for (int byte = 0; byte < 4; byte++) {
          if (byte == i % 4) q_column(T, P * Q_VECS, quad, zeros, byte, x + k + i, x_ld, sums);
        }
      }
      return;
    }
    UNROLL for (int i = 0; i < CPU_QUANT_UNIT; i++)
        q_column(T, P * Q_VECS, quads[i / 4], zeros, i % 4, x + k + i, x_ld, sums);
  }
}

INLINE void q_floats_tile(const int bits, const int T, const int P, const cpu_quant_tile *d, int64_t t0,
                          int64_t p0, int64_t apart) {
  const cpu_quant_form *form = d->form;
  const float *x = d->floats + t0 * d->floats_ld, *x_sums = d->float_sums + t0 * d->float_sums_ld;
  qf acc[Q_TOKENS * Q_PANELS * Q_VECS];
  UNROLL for (int i = 0; i < T * P * Q_VECS; i++) acc[i] = qf_set1(0.0f);
  for (int64_t first = 0, block = 0; first < form->cols; first += form->columns, block++) {
    const uint8_t *base[Q_PANELS];
    UNROLL for (int p = 0; p < P; p++) base[p] =
        d->w + q_panel(d->panels, p0 + p * apart) * form->panel + block * form->block;
    if (T == 1 && !form->row) q_touch(P, base, form->at_codes);
    const int64_t left = form->cols - first, end = left < form->columns ? left : form->columns;
    for (int64_t k = 0; k < end;) { /* spans */
      const int64_t span = k, stop = end - k < form->span ? end : k + form->span;
      qf total[Q_TOKENS * Q_PANELS * Q_VECS], lows[Q_TOKENS * Q_PANELS * Q_VECS];
      UNROLL for (int i = 0; i < T * P * Q_VECS; i++) total[i] = lows[i] = qf_set1(0.0f);
      for (; k < stop; k += form->group, x_sums++) {
        const int64_t columns = end - k < form->group ? end - k : form->group,
                      g = k / form->group * CPU_PANEL;
        const uint8_t *codes[Q_PANELS];
        qf sums[Q_TOKENS * Q_PANELS * Q_VECS], zeros[Q_PANELS * Q_VECS];
        UNROLL for (int p = 0; p < P; p++) codes[p] = base[p] + form->at_codes + k * 2 * bits;
        UNROLL for (int i = 0; i < P * Q_VECS; i++) zeros[i] =
            form->zeros ? qi_float(qi_u8(base[i / Q_VECS] + form->at_zeros + g + i % Q_VECS * QI))
                        : qf_set1((float)form->zero);
        UNROLL for (int i = 0; i < T * P * Q_VECS; i++) sums[i] = qf_set1(0.0f);
        q_float_columns(bits, T, P, codes, zeros, x + k, d->floats_ld, columns, d->ahead, sums);
        if (!form->steps) {
          UNROLL for (int i = 0; i < T * P * Q_VECS; i++) {
            total[i] = sums[i];
            if (form->lows) lows[i] = qf_set1(x_sums[i / (P * Q_VECS) * d->float_sums_ld]);
          }
          continue;
        }
        UNROLL for (int i = 0; i < P * Q_VECS; i++) {
          const uint8_t *at = base[i / Q_VECS] + g + i % Q_VECS * QI;
          const qf step = qi_float(qi_s8(at + form->at_steps));
          UNROLL for (int t = 0; t < T; t++) {
            const int n = t * P * Q_VECS + i;
            total[n] = qf_fma(step, sums[n], total[n]);
          }
          if (!form->lows) continue;
          const qf low = qi_float(qi_u8(at + form->at_low_steps));
          UNROLL for (int t = 0; t < T; t++) {
            const int n = t * P * Q_VECS + i;
            lows[n] = qf_fma(low, qf_set1(x_sums[t * d->float_sums_ld]), lows[n]);
          }
        }
      }
      const int64_t s = span / form->span * CPU_PANEL;
      UNROLL for (int i = 0; i < P * Q_VECS; i++) {
        const uint8_t *at = base[i / Q_VECS];
        const qf scale = q_scales(form, at, s + i % Q_VECS * QI);
        UNROLL for (int t = 0; t < T; t++) {
          const int n = t * P * Q_VECS + i;
          acc[n] = qf_fma(scale, total[n], acc[n]);
        }
        if (!form->lows) continue;
        const qf low = q_scales(form, at + form->at_lows, s + i % Q_VECS * QI);
        UNROLL for (int t = 0; t < T; t++) {
          const int n = t * P * Q_VECS + i;
          acc[n] = qf_less(low, lows[n], acc[n]);
        }
      }
    }
    x += form->columns;
  }
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int i = 0; i < P * Q_VECS; i++) qf_store(
        d->c + (t0 + t) * d->ldc + q_panel(d->panels, p0 + i / Q_VECS * apart) * CPU_PANEL + i % Q_VECS * QI,
        acc[t * P * Q_VECS + i]);
  }
}

/* ---- row forms, a link of all columns ----------------------------------------------------------- */

INLINE void q_whole_tile(const int bits, const int T, const int P, const cpu_quant_whole *d, int64_t t0,
                         int64_t p0, int64_t apart) {
  const uint8_t *codes[Q_PANELS];
  qi sums[Q_TOKENS * Q_PANELS * Q_VECS];
  UNROLL for (int p = 0; p < P; p++) codes[p] = d->w + q_panel(d->panels, p0 + p * apart) * d->w_step;
  UNROLL for (int i = 0; i < T * P * Q_VECS; i++) sums[i] = qi_set1(0);
  q_units(bits, T, P, codes, d->x + t0 * d->x_ld, d->x_ld, d->columns / CPU_QUANT_UNIT, d->ahead, sums);
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int i = 0; i < P * Q_VECS; i++) qi_store(
        d->c + (t0 + t) * d->ldc + q_panel(d->panels, p0 + i / Q_VECS * apart) * CPU_PANEL + i % Q_VECS * QI,
        sums[t * P * Q_VECS + i]);
  }
}

static void q_finish(const cpu_quant_form *form, const uint8_t *panel, const int32_t *sums, int32_t x_sum,
                     float x_scale, float *c) {
  for (int v = 0; v < Q_VECS; v++) {
    const qi zeros = form->zeros ? qi_u8(panel + form->at_zeros + v * QI) : qi_set1(form->zero);
    const qi sum = qi_sub(qi_load(sums + v * QI), qi_mul(zeros, qi_set1(x_sum)));
    const qf by = qf_mul(q_scales(form, panel, v * QI), qf_set1(x_scale));
    qf acc = qf_fma(by, qi_float(sum), qf_set1(0.0f));
    if (form->lows) {
      const qf low = qf_mul(q_scales(form, panel + form->at_lows, v * QI), qf_set1(x_scale));
      acc = qf_less(low, qi_float(qi_set1(x_sum)), acc);
    }
    qf_store(c + v * QI, acc);
  }
}

/* ---- tiles -------------------------------------------------------------------------------------- */

/* One or Q_PANELS panels, and Q_TOKENS tokens or fewer. */
/* Tiles: CALL is a macro of the constants tokens and panels. Where fewer panels are left the last one is
 * taken several times. */
#if QI == 16
#define Q_FEW 4 /* tokens of a tile but of row forms; more of X as it is are for quant_wide.h */
#define Q_PAIR_TILE(CALL) \
  if (tokens == 2)        \
    CALL(2, 4);           \
  else if (panels == 4)   \
    CALL(1, 4);           \
  else                    \
    CALL(1, 1)
#define Q_FEW_TILE(CALL) \
  if (tokens == 4)       \
    CALL(4, 4);          \
  else                   \
    Q_PAIR_TILE(CALL)
#define Q_TILE(CALL) \
  if (tokens == 6)   \
    CALL(6, 4);      \
  else               \
    Q_FEW_TILE(CALL)
#elif QI == 8
#define Q_FEW 2
#define Q_PAIR_TILE Q_FEW_TILE
#define Q_FEW_TILE(CALL) \
  if (tokens == 2)       \
    CALL(2, 1);          \
  else if (panels == 2)  \
    CALL(1, 2);          \
  else                   \
    CALL(1, 1)
#define Q_TILE(CALL) \
  if (tokens == 4)   \
    CALL(4, 1);      \
  else               \
    Q_FEW_TILE(CALL)
#else
#define Q_FEW 2
#define Q_PAIR_TILE Q_FEW_TILE
#define Q_FEW_TILE(CALL) \
  if (tokens == 2)       \
    CALL(2, 1);          \
  else                   \
    CALL(1, 1)
#define Q_TILE(CALL) Q_FEW_TILE(CALL)
#endif

#define Q_WIDE_P (QI == 16 ? Q_PANELS : 1) /* panels of a tile of two tokens and more */

static int64_t q_tokens(int64_t left) {
  return left >= Q_TOKENS ? Q_TOKENS : Q_TOKENS > 4 && left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

#define Q_WALK(TILE, MOST, CALL)                                            \
  const int64_t wide = d->tokens > 1 ? Q_WIDE_P : Q_PANELS;                 \
  const int64_t tiles = q_walk_tiles(d->tokens, wide, d->panels);           \
  for (int64_t i = 0; i < tiles; i++) {                                     \
    const q_walk at = q_walk_at(d->tokens, wide, d->panels, i);             \
    const int64_t p0 = at.p0, apart = at.apart, panels = at.panels;         \
    (void)panels;                                                           \
    for (int64_t t0 = 0, tokens; t0 < d->tokens; t0 += tokens) {            \
      tokens = q_tokens(d->tokens - t0 < (MOST) ? d->tokens - t0 : (MOST)); \
      TILE(CALL);                                                           \
    }                                                                       \
  }

#define Q_FAMILY(bits)                                        \
  static void q_bytes_##bits(const cpu_quant_tile *d) {       \
    Q_WALK(Q_PAIR_TILE, 2, Q_BYTES_##bits)                    \
  }                                                           \
  static void q_bytes_steps_##bits(const cpu_quant_tile *d) { \
    Q_WALK(Q_PAIR_TILE, 2, Q_BYTES_STEPS_##bits)              \
  }                                                           \
  static void q_floats_##bits(const cpu_quant_tile *d) {      \
    Q_WALK(Q_FEW_TILE, Q_FEW, Q_FLOATS_##bits)                \
  }                                                           \
  static void q_whole_##bits(const cpu_quant_whole *d) {      \
    Q_WALK(Q_TILE, Q_TOKENS, Q_WHOLE_##bits)                  \
  }
#define Q_BYTES_4(T, P) q_bytes_tile(4, 0, T, P, d, t0, p0, apart)
#define Q_BYTES_6(T, P) q_bytes_tile(6, 0, T, P, d, t0, p0, apart)
#define Q_BYTES_8(T, P) q_bytes_tile(8, 0, T, P, d, t0, p0, apart)
#define Q_BYTES_STEPS_4(T, P) q_bytes_tile(4, 1, T, P, d, t0, p0, apart)
#define Q_BYTES_STEPS_6(T, P) q_bytes_tile(6, 1, T, P, d, t0, p0, apart)
#define Q_BYTES_STEPS_8(T, P) q_bytes_tile(8, 1, T, P, d, t0, p0, apart)
#define Q_FLOATS_4(T, P) q_floats_tile(4, T, P, d, t0, p0, apart)
#define Q_FLOATS_6(T, P) q_floats_tile(6, T, P, d, t0, p0, apart)
#define Q_FLOATS_8(T, P) q_floats_tile(8, T, P, d, t0, p0, apart)
#define Q_WHOLE_4(T, P) q_whole_tile(4, T, P, d, t0, p0, apart)
#define Q_WHOLE_6(T, P) q_whole_tile(6, T, P, d, t0, p0, apart)
#define Q_WHOLE_8(T, P) q_whole_tile(8, T, P, d, t0, p0, apart)
Q_FAMILY(4)
Q_FAMILY(6)
Q_FAMILY(8)

static void q_bytes(const cpu_quant_tile *d) {
  static void (*const by[2][3])(const cpu_quant_tile *) = {
      {q_bytes_4, q_bytes_6, q_bytes_8}, {q_bytes_steps_4, q_bytes_steps_6, q_bytes_steps_8}};
  by[d->form->steps][d->form->bits / 2 - 2](d);
}

static void q_floats(const cpu_quant_tile *d) {
  static void (*const by[3])(const cpu_quant_tile *) = {q_floats_4, q_floats_6, q_floats_8};
  by[d->form->bits / 2 - 2](d);
}

static void q_whole(const cpu_quant_whole *d) {
  static void (*const by[3])(const cpu_quant_whole *) = {q_whole_4, q_whole_6, q_whole_8};
  by[d->bits / 2 - 2](d);
}

#endif
