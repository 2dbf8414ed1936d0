/* SPDX-License-Identifier: MIT
 *
 * quant_groups.h - products of X in bytes with the forms that files have: groups of 16 or 32 columns, scales
 * as f16. What such a form has is a constant of its kernel; quant_dot.h takes all others. Same order, same
 * bits. */
#ifndef BS_PLUGINS_CPU_ISA_QUANT_GROUPS_H
#define BS_PLUGINS_CPU_ISA_QUANT_GROUPS_H

#include "quant_dot.h"

#if QI > 4

enum { Q_PLAIN = 0, Q_ZEROS = BS_QUANT_ZEROS, Q_LOWS = BS_QUANT_LOWS, Q_STEPS = BS_QUANT_STEPS };
#if QI == 16
#define Q_MOST 6 /* tokens of a tile; of more than 3 with two panels: sums and results have 24 registers */
#define Q_BESIDE(T) ((T) > 3 ? 2 : 4)
#else
#define Q_MOST 3
#define Q_BESIDE(T) ((T) > 1 ? 1 : 2)
#endif
#define Q_GROUP_SUMS 12

/* A place in a tile: panels at a block, and X from its first column, piece and link on. */
typedef struct q_place {
  const uint8_t *base[4];
  const int8_t *x;
  const int32_t *x_sums;
  const float *x_scales;
} q_place;

INLINE qf q_half(const uint8_t *arrays, int64_t index) {
  return qf_half(arrays + index * 2);
}

/* Sets the first values of a piece's sums. */
INLINE void q_begin(const int flags, const int T, const int N, const cpu_quant_tile *d, const q_place *at,
                    int64_t g, qi zero, qi *sums) {
  UNROLL for (int t = 0; t < T; t++) {
    qi from = qi_set1(0);
    if ((flags & (Q_ZEROS | Q_LOWS)) == 0)
      from = qi_sub(from, qi_mul(zero, qi_set1(at->x_sums[t * d->sums_ld + g])));
    UNROLL for (int i = 0; i < N; i++) sums[t * N + i] = from;
  }
}

INLINE void q_less_zeros(const int T, const int N, const cpu_quant_tile *d, const q_place *at, int64_t g,
                         qi *sums) {
  UNROLL for (int i = 0; i < N; i++) {
    const qi zeros = qi_u8(at->base[i / Q_VECS] + d->form->at_zeros + g * CPU_PANEL + i % Q_VECS * QI);
    UNROLL for (int t = 0; t < T; t++) sums[t * N + i] =
        qi_sub(sums[t * N + i], qi_mul(zeros, qi_set1(at->x_sums[t * d->sums_ld + g])));
  }
}

/* A step in f32: acc = fma(scale sx, sum, acc), then with lows. */
INLINE void q_step(const int flags, const int T, const int N, const cpu_quant_tile *d, const q_place *at,
                   int64_t s, const float *x_scales, const qi *sums, const qi *lows, qf *acc) {
  UNROLL for (int i = 0; i < N; i++) {
    const uint8_t *arrays = at->base[i / Q_VECS];
    const qf scale = q_half(arrays, s * CPU_PANEL + i % Q_VECS * QI);
    UNROLL for (int t = 0; t < T; t++) {
      const qf by = qf_mul(scale, qf_set1(x_scales[t * d->scales_ld]));
      acc[t * N + i] = qf_fma(by, qi_float(sums[t * N + i]), acc[t * N + i]);
    }
    if ((flags & Q_LOWS) == 0) continue;
    const qf low = q_half(arrays + d->form->at_lows, s * CPU_PANEL + i % Q_VECS * QI);
    UNROLL for (int t = 0; t < T; t++) {
      const qf by = qf_mul(low, qf_set1(x_scales[t * d->scales_ld]));
      acc[t * N + i] = qf_less(by, qi_float(lows[t * N + i]), acc[t * N + i]);
    }
  }
}

/* total += step sum, lows += low step x_sum. */
INLINE void q_add_steps(const int flags, const int T, const int N, const cpu_quant_tile *d, const q_place *at,
                        int64_t g, const qi *sums, qi *total, qi *lows) {
  UNROLL for (int i = 0; i < N; i++) {
    const uint8_t *arrays = at->base[i / Q_VECS] + g * CPU_PANEL + i % Q_VECS * QI;
    const qi step = qi_s8(arrays + d->form->at_steps);
    UNROLL for (int t = 0; t < T; t++) total[t * N + i] =
        qi_add(total[t * N + i], qi_mul(sums[t * N + i], step));
    if ((flags & Q_LOWS) == 0) continue;
    const qi low = qi_u8(arrays + d->form->at_low_steps);
    UNROLL for (int t = 0; t < T; t++) lows[t * N + i] =
        qi_add(lows[t * N + i], qi_mul16(low, at->x_sums[t * d->sums_ld + g]));
  }
}

/* Piece g of a block: `units` of 16 columns, of pieces of `whole` units. */
INLINE void q_piece(const int bits, const int flags, const int T, const int P, const cpu_quant_tile *d,
                    const q_place *at, int64_t g, int64_t whole, int64_t units, qi zero, qi *total, qi *lows,
                    qf *acc) {
  const int N = P * Q_VECS;
  const int64_t k = g * whole * CPU_QUANT_UNIT;
  const uint8_t *codes[4];
  qi sums[Q_GROUP_SUMS];
  UNROLL for (int p = 0; p < P; p++) codes[p] = at->base[p] + d->form->at_codes + k * 2 * bits;
  q_begin(flags, T, N, d, at, g, zero, sums);
  q_units(bits, T, P, codes, at->x + k, d->x_ld, units, d->ahead, sums);
  if ((flags & Q_ZEROS) != 0) q_less_zeros(T, N, d, at, g, sums);
  if ((flags & Q_STEPS) != 0) {
    q_add_steps(flags, T, N, d, at, g, sums, total, lows);
    return;
  }
  qi alike[Q_GROUP_SUMS];
  if ((flags & Q_LOWS) != 0) {
    UNROLL for (int i = 0; i < T * N; i++) alike[i] = qi_set1(at->x_sums[i / N * d->sums_ld + g]);
  }
  q_step(flags, T, N, d, at, g, at->x_scales + g, sums, (flags & Q_LOWS) != 0 ? alike : sums, acc);
}

/* units: of a piece; 0: any number. */
INLINE void q_groups_tile(const int bits, const int flags, const int units, const int T, const int P,
                          const cpu_quant_tile *d, int64_t t0, int64_t p0, int64_t apart) {
  const cpu_quant_form *form = d->form;
  const int N = P * Q_VECS;
  const int64_t whole = units > 0 ? units : d->piece / CPU_QUANT_UNIT;
  const qi zero = qi_set1(form->zero);
  q_place at = {.x = d->x + t0 * d->x_ld,
                .x_sums = d->sums + t0 * d->sums_ld,
                .x_scales = d->scales + t0 * d->scales_ld};
  qf acc[Q_GROUP_SUMS];
  UNROLL for (int p = 0; p < P; p++) at.base[p] = d->w + q_panel(d->panels, p0 + p * apart) * form->panel;
  UNROLL for (int i = 0; i < T * N; i++) acc[i] = qf_set1(0.0f);
  for (int64_t first = 0; first < form->cols; first += form->columns) {
    const int64_t left = form->cols - first, end = left < form->columns ? left : form->columns;
    const int64_t all = (end + CPU_QUANT_UNIT - 1) / CPU_QUANT_UNIT, pieces = all / whole;
    qi total[Q_GROUP_SUMS], lows[Q_GROUP_SUMS];
    UNROLL for (int i = 0; i < T * N; i++) total[i] = lows[i] = qi_set1(0);
    int64_t g = 0;
    if (T == 1) q_touch(P, at.base, form->at_codes);
    for (; g < pieces; g++) q_piece(bits, flags, T, P, d, &at, g, whole, whole, zero, total, lows, acc);
    if (g * whole < all) {
      q_piece(bits, flags, T, P, d, &at, g, whole, all - g * whole, zero, total, lows, acc);
      g++;
    }
    if ((flags & Q_STEPS) != 0) q_step(flags, T, N, d, &at, 0, at.x_scales, total, lows, acc);
    at.x += form->columns;
    at.x_sums += g;
    at.x_scales += (flags & Q_STEPS) != 0 ? 1 : g;
    UNROLL for (int p = 0; p < P; p++) at.base[p] += form->block;
  }
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int i = 0; i < N; i++) qf_store(
        d->c + (t0 + t) * d->ldc + q_panel(d->panels, p0 + i / Q_VECS * apart) * CPU_PANEL + i % Q_VECS * QI,
        acc[t * N + i]);
  }
}

#define Q_GROUPS_CASE(T)                                                 \
  case T:                                                                \
    q_groups_tile(bits, flags, units, T, Q_BESIDE(T), d, t0, p0, apart); \
    break;

INLINE void q_groups_tokens(const int bits, const int flags, const int units, int64_t tokens,
                            const cpu_quant_tile *d, int64_t t0, int64_t p0, int64_t apart) {
  switch (tokens) {
    Q_GROUPS_CASE(1)
    Q_GROUPS_CASE(2)
#if Q_MOST > 3
    Q_GROUPS_CASE(3)
#endif
    default:
      q_groups_tile(bits, flags, units, Q_MOST, Q_BESIDE(Q_MOST), d, t0, p0, apart);
  }
}

/* How many of the tokens that are left the next tile takes. */
INLINE int64_t q_groups_next(int64_t left) {
  return left >= Q_MOST ? Q_MOST : left < 3 ? left : 3;
}

/* A few panels with all tokens; one token with a panel of each quarter, then with what is left. */
INLINE void q_groups_all(const int bits, const int flags, const int units, const cpu_quant_tile *d) {
  const int64_t one = d->tokens == 1, wide = Q_BESIDE(1), quarter = d->panels / wide;
  for (int64_t i = 0; i < (d->panels + wide - 1) / wide; i++) {
    const int64_t first = one && i < quarter ? i : i * wide, apart = one && i < quarter ? quarter : 1;
    const int64_t end = one ? first + 1 : first + wide < d->panels ? first + wide : d->panels;
    for (int64_t t0 = 0, tokens; t0 < d->tokens; t0 += tokens) {
      tokens = q_groups_next(d->tokens - t0);
      for (int64_t p = first; p < end; p += Q_BESIDE(tokens))
        q_groups_tokens(bits, flags, units, tokens, d, t0, p, apart);
    }
  }
}

#define Q_KIND(name, bits, flags, units)                 \
  static void q_groups_##name(const cpu_quant_tile *d) { \
    q_groups_all(bits, flags, units, d);                 \
  }
Q_KIND(8, 8, Q_PLAIN, 2)
Q_KIND(8any, 8, Q_PLAIN, 0)
Q_KIND(4, 4, Q_PLAIN, 2)
Q_KIND(4any, 4, Q_PLAIN, 0)
Q_KIND(4z, 4, Q_ZEROS, 0)
Q_KIND(4l, 4, Q_LOWS, 2)
Q_KIND(4ls, 4, Q_LOWS | Q_STEPS, 2)
Q_KIND(6s, 6, Q_STEPS, 1)
Q_KIND(6ls, 6, Q_LOWS | Q_STEPS, 2)

/* units 0: any number. */
static const struct q_kind {
  int bits, flags, units;
  void (*run)(const cpu_quant_tile *d);
} q_kinds[] = {{8, Q_PLAIN, 2, q_groups_8},
               {8, Q_PLAIN, 0, q_groups_8any},
               {4, Q_PLAIN, 2, q_groups_4},
               {4, Q_PLAIN, 0, q_groups_4any},
               {4, Q_ZEROS, 0, q_groups_4z},
               {4, Q_LOWS, 2, q_groups_4l},
               {4, Q_LOWS | Q_STEPS, 2, q_groups_4ls},
               {6, Q_STEPS, 1, q_groups_6s},
               {6, Q_LOWS | Q_STEPS, 2, q_groups_6ls}};

/* 0: the form has no kernel here. */
static int q_groups(const cpu_quant_tile *d) {
  const cpu_quant_form *f = d->form;
  const int flags = (f->zeros ? Q_ZEROS : 0) | (f->lows ? Q_LOWS : 0) | (f->steps ? Q_STEPS : 0);
  const int64_t link = f->steps ? f->columns : f->group, units = d->piece / CPU_QUANT_UNIT;
  if (f->row || !f->half || d->piece != f->group || (f->lows && f->zero != 0)) return 0;
  if (f->steps ? f->span < link || d->link < link : d->link != link) return 0;
  for (size_t i = 0; i < sizeof q_kinds / sizeof q_kinds[0]; i++) {
    const struct q_kind *kind = &q_kinds[i];
    if (kind->bits != f->bits || kind->flags != flags || (kind->units != 0 && kind->units != units)) continue;
    kind->run(d);
    return 1;
  }
  return 0;
}

#else

static int q_groups(const cpu_quant_tile *d) {
  (void)d;
  return 0;
}

#endif
#endif
