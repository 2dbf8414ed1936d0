/* SPDX-License-Identifier: MIT
 *
 * turned.h - 2:4 weights by column, for dX = dY W (kernels.h). One source for every instruction set: the
 * including file has chosen `vec` before. For each column a word of 64 bits marks which of 64 outputs keep
 * it; bit arithmetic on all codes makes these words. The product visits the set bits in rising order, and the
 * bit's number gives an output's row of dY and its weight: no lists are needed. */
#ifndef BS_PLUGINS_CPU_ISA_TURNED_H
#define BS_PLUGINS_CPU_ISA_TURNED_H

#include "sparse.h"

/* Turns codes into a bit for each column. A code has the bits a0 a1 of the first place, and b0 b1 of the
 * second. Column 0 is kept if the first is 0, column 3 if the second is 3, the others if either names
 * them. */
INLINE words words_kept(words c) {
  const words ones = words_set1(0x11111111u);
  const words a0 = words_and(c, ones), a1 = words_and(words_right(c, 1), ones);
  const words b0 = words_and(words_right(c, 2), ones), b1 = words_and(words_right(c, 3), ones);
  const words k3 = words_and(b0, b1), k0 = words_xor(ones, words_xor(a0, a1));
  const words k1 = words_xor(words_xor(a0, b0), k3), k2 = words_xor(words_xor(a1, b1), k3);
  const words low = words_xor(k0, words_left(k1, 1)), high = words_xor(k2, words_left(k3, 1));
  return words_xor(low, words_left(high, 2));
}

/* One unit split into groups of four columns. */
typedef struct turned {
  const cpu_turned24 *t;
  words codes[CPU_TURNED / VEC];
  uint64_t kept[CPU_UNIT_COLUMNS];          /* bit n: output n keeps it */
  _Alignas(64) float values[4][CPU_TURNED]; /* output n's weight of a column, if it keeps that */
} turned;

static void turned_open(turned *u, const cpu_turned24 *t) {
  words kept[CPU_TURNED / VEC];
  u->t = t;
  for (int i = 0; i < CPU_TURNED / VEC; i++) {
    const int panel = i / LANES_VECS;
    kept[i] = words_set1(0);
    if (panel >= t->panels) continue;
    const words c = words_load(t->codes + panel * t->step * CPU_PANEL + i % LANES_VECS * VEC);
    u->codes[i] = t->other ? words_other(c) : c;
    kept[i] = words_kept(u->codes[i]);
  }
  words_turn(u->kept, kept);
}

/* Columns 0 and 3 of a group are its first and its second value, those between one of them. */
INLINE void turned_values(const int type, turned *u, int g) {
  const cpu_turned24 *t = u->t;
  const int64_t line = CPU_PANEL * value_size(type), bytes = t->step * CPU_UNIT_VALUES * line;
  for (int panel = 0; panel < t->panels; panel++) {
    const char *w = (const char *)t->w + panel * bytes + 2 * g * line;
    UNROLL for (int64_t b = 0; b < 2 * line; b += 64) __builtin_prefetch(w + t->ahead + b, 0, 3);
    UNROLL for (int v = 0; v < LANES_VECS; v++) {
      const int i = panel * LANES_VECS + v;
      const vec first = value_load(type, w + v * VEC * value_size(type));
      const vec second = value_load(type, w + v * VEC * value_size(type) + line);
      const words code = words_shift(u->codes[i], 28 - 4 * g);
      vec_store(u->values[0] + i * VEC, first);
      vec_store(u->values[1] + i * VEC, vec_choose(second, first, code));
      vec_store(u->values[2] + i * VEC, vec_choose(second, first, words_left(code, 2)));
      vec_store(u->values[3] + i * VEC, second);
    }
  }
}

static void turned_group(turned *u, int g) {
  if (g < u->t->panels)
    __builtin_prefetch(u->t->codes + g * u->t->step * CPU_PANEL + u->t->ahead_codes, 0, 3);
  if (u->t->type == 0)
    turned_values(0, u, g);
  else if (u->t->type == 1)
    turned_values(1, u, g);
  else if (u->t->type == 2)
    turned_values(2, u, g);
  else
    turned_values(3, u, g);
}

/* The next output of a column: sums += its weight times its row of dY. */
INLINE void turned_next(const int vecs, const turned *u, const int column, uint64_t *bits, vec *sums) {
  const int n = __builtin_ctzll(*bits);
  const float *x = u->t->x + n * CPU_WIDE_TOKENS;
  const vec one = vec_set1(u->values[column][n]);
  UNROLL for (int v = 0; v < vecs; v++) sums[v] = vec_fma(one, vec_load(x + v * VEC), sums[v]);
  *bits &= *bits - 1;
}

/* One output of each of `outs` columns, 1, 2 or 4: in no loop, which clang leaves one within another. */
INLINE void turned_step(const int outs, const int vecs, const turned *u, const int first, uint64_t *bits,
                        vec *sums) {
  turned_next(vecs, u, first, bits, sums);
  if (outs > 1) turned_next(vecs, u, first + 1, bits + 1, sums + vecs);
  if (outs > 2) turned_next(vecs, u, first + 2, bits + 2, sums + 2 * vecs);
  if (outs > 3) turned_next(vecs, u, first + 3, bits + 3, sums + 3 * vecs);
}

/* Columns k + first .. of a group, together while all have outputs left, then one by one. */
INLINE void turned_columns(const int outs, const int vecs, const turned *u, const int k, const int first) {
  float *c = u->t->c + (k + first) * CPU_WIDE_TOKENS;
  uint64_t bits[4];
  vec sums[WIDE_SUMS];
  UNROLL for (int o = 0; o < outs; o++) bits[o] = u->kept[k + first + o];
  UNROLL for (int s = 0; s < outs * vecs; s++) sums[s] = vec_set1(0.0f);
  for (;;) {
    int all = 1;
    UNROLL for (int o = 0; o < outs; o++) all &= bits[o] != 0;
    if (!all) break;
    turned_step(outs, vecs, u, first, bits, sums);
  }
  UNROLL for (int o = 0; o < outs; o++) while (bits[o] != 0)
      turned_step(1, vecs, u, first + o, bits + o, sums + o * vecs);
  UNROLL for (int o = 0; o < outs; o++) UNROLL for (int v = 0; v < vecs; v++)
      sum_put(c + o * CPU_WIDE_TOKENS + v * VEC, sums[o * vecs + v], u->t->add, u->t->type == 3);
}

/* ---- a unit as a dense matrix --------------------------------------------------------------- */

/* VEC outputs of a unit, column by column, zeros for dropped weights. */
INLINE void spread_lanes(const int type, const char *w, words codes, float *to) {
  const int64_t line = CPU_PANEL * value_size(type);
  const words kept = words_kept(codes);
  const vec zero = vec_set1(0.0f);
  UNROLL for (int g = 0; g < CPU_UNIT_COLUMNS / 4; g++, w += 2 * line, to += 4 * CPU_PANEL) {
    const vec first = value_load(type, w), second = value_load(type, w + line);
    const vec one = vec_choose(second, first, words_left(codes, 28 - 4 * g));
    const vec two = vec_choose(second, first, words_left(codes, 30 - 4 * g));
    vec_store(to, vec_choose(zero, first, words_left(kept, 31 - 4 * g)));
    vec_store(to + CPU_PANEL, vec_choose(zero, one, words_left(kept, 30 - 4 * g)));
    vec_store(to + 2 * CPU_PANEL, vec_choose(zero, two, words_left(kept, 29 - 4 * g)));
    vec_store(to + 3 * CPU_PANEL, vec_choose(zero, second, words_left(kept, 28 - 4 * g)));
  }
}

INLINE void spread_unit(const int type, const cpu_spread24 *t) {
  _Alignas(64) float columns[CPU_UNIT_COLUMNS * CPU_PANEL];
  for (int v = 0; v < LANES_VECS; v++) {
    const words c = words_load(t->codes + v * VEC);
    spread_lanes(type, (const char *)t->w + v * VEC * value_size(type), t->other ? words_other(c) : c,
                 columns + v * VEC);
  }
  for (int half = 0; half < 2; half++)
    transpose(t->to + half * t->to_step, CPU_PANEL, columns + half * CPU_PANEL * CPU_PANEL, CPU_PANEL);
}

static void spread24(const cpu_spread24 *t) {
  if (t->type == 0)
    spread_unit(0, t);
  else if (t->type == 1)
    spread_unit(1, t);
  else if (t->type == 2)
    spread_unit(2, t);
  else
    spread_unit(3, t);
  for (int b = 0; b < CPU_UNIT_VALUES * CPU_PANEL * value_size(t->type); b += 64)
    __builtin_prefetch((const char *)t->w + t->ahead + b, 0, 3);
  __builtin_prefetch(t->codes + t->ahead_codes, 0, 3);
}

/* ---- tokens in the lanes -------------------------------------------------------------------- */

INLINE void turned_unit(const int outs, const int vecs, const cpu_turned24 *t) {
  turned u;
  turned_open(&u, t);
  for (int g = 0; g < CPU_UNIT_COLUMNS / 4; g++) {
    turned_group(&u, g);
    UNROLL for (int first = 0; first < 4; first += outs) turned_columns(outs, vecs, &u, 4 * g, first);
  }
}

static void turned24(const cpu_turned24 *t) {
#if VEC == 16
  switch ((t->tokens + 15) / 16) {
    case 1:
      turned_unit(4, 1, t);
      return;
    case 2:
      turned_unit(4, 2, t);
      return;
    case 3:
      turned_unit(2, 3, t);
      return;
    default:
      turned_unit(2, 4, t);
      return;
  }
#elif VEC == 8
  if (t->tokens <= 8)
    turned_unit(4, 1, t);
  else if (t->tokens <= 16)
    turned_unit(4, 2, t);
  else if (t->tokens <= 32)
    turned_unit(2, 4, t);
  else if (t->tokens <= 48)
    turned_unit(1, 6, t);
  else
    turned_unit(1, 8, t);
#else
  for (int64_t token = 0; token < t->tokens; token += 16) {
    cpu_turned24 part = *t;
    part.x += token;
    part.c += token;
    turned_unit(1, 4, &part);
  }
#endif
}

#endif
