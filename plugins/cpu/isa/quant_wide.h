/* SPDX-License-Identifier: MIT
 *
 * quant_wide.h - products of many tokens of X as it is with panels of quantised weights. A block of a panel
 * is widened once: its codes become f32 of code - zero, and its scales and steps f32 too. Then all tokens
 * multiply it. The order of the sums and the bits are those of quant_dot.h. */
#ifndef BS_PLUGINS_CPU_ISA_QUANT_WIDE_H
#define BS_PLUGINS_CPU_ISA_QUANT_WIDE_H

#include "quant_groups.h"
#include "quant_sums.h"

#if QI == 16
#define Q_WIDE                                                                                 \
  12 /* tokens of a tile: their sums, those of the groups, and a column of W have 25 registers \
      */
#elif QI == 8
#define Q_WIDE 6
#else
#define Q_WIDE 2
#endif

enum { Q_MOST_GROUPS = CPU_QUANT_BLOCK / 16, Q_FLOATS = CPU_QUANT_BLOCK * CPU_PANEL };

/* A block of a panel, in cpu_quant_tile's room. */
typedef struct q_wide {
  float w[Q_FLOATS];                                                        /* [columns][16] */
  float scales[Q_MOST_GROUPS * CPU_PANEL], lows[Q_MOST_GROUPS * CPU_PANEL]; /* by span */
  float steps[Q_MOST_GROUPS * CPU_PANEL], low_steps[Q_MOST_GROUPS * CPU_PANEL];
} q_wide;
_Static_assert(sizeof(q_wide) == CPU_QUANT_ROOM * sizeof(float), "room for a block");

/* Which block: its columns, and where its arrays and codes lie. */
typedef struct q_part {
  const uint8_t *arrays, *codes;
  const float *x, *x_sums; /* of its first column and group */
  int64_t columns;
  int first, last; /* of the columns */
} q_part;

/* The whole number below 2^23 and its sum with 2^23 have the same low bits. */
#define Q_SHIFT 0x4b000000
#define Q_SHIFT_F 8388608.0f

INLINE void q_widen_unit(const int bits, const uint8_t *codes, const qf *zeros, float *to) {
  UNROLL for (int v = 0; v < Q_VECS; v++) {
    qi quads[4];
    q_quads(bits, codes, v, quads);
    UNROLL for (int i = 0; i < CPU_QUANT_UNIT; i++) {
      const qi quad = quads[i / 4], all = i % 4 == 0 ? quad : qi_right(quad, 8 * (i % 4));
      const qi code = i % 4 == 3 ? all : qi_and(all, qi_set1(255));
      qf_store(to + i * CPU_PANEL + v * QI, qf_sub(qf_bits(qi_or(code, qi_set1(Q_SHIFT))), zeros[v]));
    }
  }
}

INLINE void q_widen_codes(const int bits, const cpu_quant_form *form, const q_part *part, float *to) {
  const int64_t group = form->group < part->columns ? form->group : part->columns;
  for (int64_t k = 0; k < part->columns; k += group) {
    const int64_t left = part->columns - k, n = group < left ? group : left;
    const uint8_t *at = part->arrays + form->at_zeros + k / group * CPU_PANEL;
    qf zeros[Q_VECS];
    UNROLL for (int v = 0; v < Q_VECS; v++) {
      const qf own = form->zeros ? qi_float(qi_u8(at + v * QI)) : qf_set1((float)form->zero);
      zeros[v] = qf_fma(own, qf_set1(1.0f), qf_set1(Q_SHIFT_F));
    }
    for (int64_t i = k; i < k + n; i += CPU_QUANT_UNIT)
      q_widen_unit(bits, part->codes + i * 2 * bits, zeros, to + i * CPU_PANEL);
  }
}

static void q_widen_arrays(const cpu_quant_form *form, const q_part *part, q_wide *to) {
  const int64_t group = form->group < part->columns ? form->group : part->columns;
  const int64_t span = form->span < part->columns ? form->span : part->columns;
  for (int64_t k = 0; k < part->columns; k += span)
    for (int v = 0; v < Q_VECS; v++) {
      const int64_t at = k / span * CPU_PANEL + v * QI;
      qf_store(to->scales + at, q_scales(form, part->arrays, at));
      if (form->lows) qf_store(to->lows + at, q_scales(form, part->arrays + form->at_lows, at));
    }
  for (int64_t k = 0; form->steps && k < part->columns; k += group)
    for (int v = 0; v < Q_VECS; v++) {
      const int64_t at = k / group * CPU_PANEL + v * QI;
      qf_store(to->steps + at, qi_float(qi_s8(part->arrays + form->at_steps + at)));
      if (form->lows) qf_store(to->low_steps + at, qi_float(qi_u8(part->arrays + form->at_low_steps + at)));
    }
}

static void q_widen(const cpu_quant_form *form, const q_part *part, q_wide *to) {
  if (form->bits == 4)
    q_widen_codes(4, form, part, to->w);
  else if (form->bits == 6)
    q_widen_codes(6, form, part, to->w);
  else
    q_widen_codes(8, form, part, to->w);
  q_widen_arrays(form, part, to);
}

/* sums = fma(w, x, sums) over n columns. */
INLINE void q_wide_columns(const int T, const float *w, const float *x, int64_t n, qf *sums) {
  _Pragma("GCC unroll 4") for (int64_t k = 0; k < n; k++) {
    qf column[Q_VECS];
    UNROLL for (int v = 0; v < Q_VECS; v++) column[v] = qf_load(w + k * CPU_PANEL + v * QI);
    UNROLL for (int t = 0; t < T; t++) {
      const qf one = qf_set1(x[t * CPU_X_LD + k]);
      UNROLL for (int v = 0; v < Q_VECS; v++) sums[t * Q_VECS + v] =
          qf_fma(column[v], one, sums[t * Q_VECS + v]);
    }
  }
}

/* The end of a row form: sums of whole rows in C, by their scale. */
INLINE void q_wide_row(const int T, const cpu_quant_tile *d, const q_part *part, const q_wide *w, float *c) {
  UNROLL for (int i = 0; i < T * Q_VECS; i++) {
    const int64_t at = i / Q_VECS * d->ldc + i % Q_VECS * QI;
    qf acc = qf_fma(qf_load(w->scales + i % Q_VECS * QI), qf_load(c + at), qf_set1(0.0f));
    if (d->form->lows)
      acc = qf_less(qf_load(w->lows + i % Q_VECS * QI), qf_set1(part->x_sums[i / Q_VECS * d->float_sums_ld]),
                    acc);
    qf_store(c + at, acc);
  }
}

/* A row form: one chain over all blocks, which waits in C. */
INLINE void q_wide_rows(const int T, const cpu_quant_tile *d, const q_part *part, const q_wide *w, int64_t t0,
                        float *c) {
  qf sums[Q_WIDE * Q_VECS];
  UNROLL for (int i = 0; i < T * Q_VECS; i++) sums[i] =
      part->first ? qf_set1(0.0f) : qf_load(c + i / Q_VECS * d->ldc + i % Q_VECS * QI);
  q_wide_columns(T, w->w, part->x + t0 * CPU_X_LD, part->columns, sums);
  UNROLL for (int i = 0; i < T * Q_VECS; i++) qf_store(c + i / Q_VECS * d->ldc + i % Q_VECS * QI, sums[i]);
  if (part->last) q_wide_row(T, d, part, w, c);
}

/* acc = fma(scale, total, acc) of all tokens. */
INLINE void q_wide_scale(const int T, const float *scale, const qf *totals, qf *acc) {
  UNROLL for (int i = 0; i < T * Q_VECS; i++) acc[i] =
      qf_fma(qf_load(scale + i % Q_VECS * QI), totals[i], acc[i]);
}

INLINE void q_wide_load(const int T, int first, const float *c, int64_t ldc, qf *acc) {
  UNROLL for (int i = 0; i < T * Q_VECS; i++) acc[i] =
      first ? qf_set1(0.0f) : qf_load(c + i / Q_VECS * ldc + i % Q_VECS * QI);
}

INLINE void q_wide_store(const int T, float *c, int64_t ldc, const qf *acc) {
  UNROLL for (int i = 0; i < T * Q_VECS; i++) qf_store(c + i / Q_VECS * ldc + i % Q_VECS * QI, acc[i]);
}

/* A step in f32 for each group. With 16 registers the sums of the groups wait in C. */
INLINE void q_wide_groups(const int T, const cpu_quant_tile *d, const q_part *part, const q_wide *w,
                          int64_t t0, float *c) {
  const int64_t group = d->form->group;
  const float *x = part->x + t0 * CPU_X_LD, *x_sums = part->x_sums;
  qf acc[Q_WIDE * Q_VECS];
  if (QI == 16) q_wide_load(T, part->first, c, d->ldc, acc);
  for (int64_t k = 0, g = 0; k < part->columns; k += group, g++) {
    const int64_t left = part->columns - k, n = group < left ? group : left;
    qf sums[Q_WIDE * Q_VECS];
    UNROLL for (int i = 0; i < T * Q_VECS; i++) sums[i] = qf_set1(0.0f);
    q_wide_columns(T, w->w + k * CPU_PANEL, x + k, n, sums);
    if (QI != 16) q_wide_load(T, part->first && k == 0, c, d->ldc, acc);
    q_wide_scale(T, w->scales + g * CPU_PANEL, sums, acc);
    if (d->form->lows) {
      UNROLL for (int i = 0; i < T * Q_VECS; i++) acc[i] =
          qf_less(qf_load(w->lows + g * CPU_PANEL + i % Q_VECS * QI),
                  qf_set1(x_sums[i / Q_VECS * d->float_sums_ld + g]), acc[i]);
    }
    if (QI != 16) q_wide_store(T, c, d->ldc, acc);
  }
  if (QI == 16) q_wide_store(T, c, d->ldc, acc);
}

/* acc -= the low of a span, times the sums of X of its groups by their low steps. */
INLINE void q_wide_lows(const int T, const cpu_quant_tile *d, const float *x_sums, const float *low_steps,
                        int64_t groups, const float *low, qf *acc) {
  UNROLL for (int i = 0; i < T * Q_VECS; i++) {
    qf all = qf_set1(0.0f);
    for (int64_t g = 0; g < groups; g++)
      all = qf_fma(qf_load(low_steps + g * CPU_PANEL + i % Q_VECS * QI),
                   qf_set1(x_sums[i / Q_VECS * d->float_sums_ld + g]), all);
    acc[i] = qf_less(qf_load(low + i % Q_VECS * QI), all, acc[i]);
  }
}

/* Steps: u = fma(step, sum of the group, u), and a step in f32 for each span. */
INLINE void q_wide_steps(const int T, const cpu_quant_tile *d, const q_part *part, const q_wide *w,
                         int64_t t0, float *c) {
  const int64_t group = d->form->group, span = d->form->span;
  const float *x = part->x + t0 * CPU_X_LD;
  for (int64_t from = 0, g = 0; from < part->columns; from += span) {
    const int64_t end = part->columns - from < span ? part->columns : from + span, g0 = g;
    const int64_t at = from / span * CPU_PANEL;
    qf totals[Q_WIDE * Q_VECS], acc[Q_WIDE * Q_VECS];
    UNROLL for (int i = 0; i < T * Q_VECS; i++) totals[i] = qf_set1(0.0f);
    for (int64_t k = from; k < end; k += group, g++) {
      const int64_t n = end - k < group ? end - k : group;
      qf sums[Q_WIDE * Q_VECS];
      UNROLL for (int i = 0; i < T * Q_VECS; i++) sums[i] = qf_set1(0.0f);
      q_wide_columns(T, w->w + k * CPU_PANEL, x + k, n, sums);
      UNROLL for (int i = 0; i < T * Q_VECS; i++) totals[i] =
          qf_fma(qf_load(w->steps + g * CPU_PANEL + i % Q_VECS * QI), sums[i], totals[i]);
    }
    q_wide_load(T, part->first && from == 0, c, d->ldc, acc);
    q_wide_scale(T, w->scales + at, totals, acc);
    if (d->form->lows)
      q_wide_lows(T, d, part->x_sums + g0, w->low_steps + g0 * CPU_PANEL, g - g0, w->lows + at, acc);
    q_wide_store(T, c, d->ldc, acc);
  }
}

INLINE void q_wide_tile(const int T, const cpu_quant_tile *d, const q_part *part, const q_wide *w, int64_t t0,
                        float *c) {
  q_part own = *part;
  own.x_sums += t0 * d->float_sums_ld;
  if (d->form->row)
    q_wide_rows(T, d, &own, w, t0, c);
  else if (d->form->steps)
    q_wide_steps(T, d, &own, w, t0, c);
  else
    q_wide_groups(T, d, &own, w, t0, c);
}

#define Q_WIDE_CASE(T)                 \
  case T:                              \
    q_wide_tile(T, d, part, w, t0, c); \
    return;

/* More than Q_FEW tokens are parts of three or more; in portable C of one or two. */
static void q_wide_tokens(int64_t tokens, const cpu_quant_tile *d, const q_part *part, const q_wide *w,
                          int64_t t0, float *c) {
  switch (tokens) {
#if QI == 4
    Q_WIDE_CASE(1)
#else
    Q_WIDE_CASE(3)
    Q_WIDE_CASE(4)
    Q_WIDE_CASE(5)
#endif
#if QI == 16
    Q_WIDE_CASE(6)
    Q_WIDE_CASE(7)
    Q_WIDE_CASE(8)
    Q_WIDE_CASE(9)
    Q_WIDE_CASE(10)
    Q_WIDE_CASE(11)
#endif
    default:
      q_wide_tile(Q_WIDE, d, part, w, t0, c);
  }
}

/* All tokens with a block of a panel: parts of them that differ by at most one. Each asks for its share of
 * the next block's codes. */
static void q_wide_block(const cpu_quant_tile *d, const q_part *part, const uint8_t *next, int64_t next_bytes,
                         float *c) {
  q_wide *w = (q_wide *)(void *)d->room;
  const int64_t parts = (d->tokens + Q_WIDE - 1) / Q_WIDE, each = d->tokens / parts, more = d->tokens % parts,
                lines = ((next_bytes + 63) / 64 + parts - 1) / parts;
  q_widen(d->form, part, w);
  for (int64_t i = 0, t0 = 0; i < parts; i++) {
    const int64_t tokens = each + (i < more);
    for (int64_t n = i * lines; n < (i + 1) * lines; n++) __builtin_prefetch(next + 64 * n, 0, 2);
    q_wide_tokens(tokens, d, part, w, t0, c + t0 * d->ldc);
    t0 += tokens;
  }
}

/* Blocks of columns, each with all panels: its X stays in L2. */
static void q_wide_floats(const cpu_quant_tile *d) {
  const cpu_quant_form *form = d->form;
  const int64_t unit = CPU_QUANT_BLOCK * 2 * form->bits, step = form->row ? unit : form->block;
  for (int64_t first = 0, b = 0; first < form->cols; first += CPU_QUANT_BLOCK, b++) {
    const int64_t left = form->cols - first, columns = left < CPU_QUANT_BLOCK ? left : CPU_QUANT_BLOCK;
    const uint8_t *block = d->w + (form->row ? 0 : b * form->block);
    q_part part = {.x = d->floats + b * d->floats_block,
                   .x_sums = d->float_sums + (form->row ? 0 : first / form->group),
                   .columns = columns,
                   .first = first == 0,
                   .last = first + columns == form->cols};
    for (int64_t p = 0; p < d->panels; p++) {
      const uint8_t *panel = block + p * form->panel;
      part.arrays = panel;
      part.codes = panel + form->at_codes + (form->row ? b * unit : 0);
      const uint8_t *next = p + 1 < d->panels ? part.codes + form->panel : block + form->at_codes + step;
      q_wide_block(d, &part, next, columns * 2 * form->bits, d->c + p * CPU_PANEL);
    }
  }
}

static void q_some_bytes(const cpu_quant_tile *d) {
  if (!q_groups(d)) q_bytes(d);
}

/* clang-format off */
#define Q_TABLE(set, products) \
  {.name = set, .few = Q_FEW, .sums = q_sums, .bytes = q_some_bytes, .floats = q_floats, .wide = q_wide_floats, \
   .whole = products, .finish = q_finish}
/* clang-format on */

#endif
