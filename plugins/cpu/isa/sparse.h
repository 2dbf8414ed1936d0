/* SPDX-License-Identifier: MIT
 *
 * sparse.h - the products of 2:4 weights (kernels.h), once for every instruction set: the file that includes
 * it has chosen `vec` before. Two forms of one sum, the same bits: few tokens have the outputs in the lanes
 * and pick each output's column of X by a permutation of four, so that values and 2-bit codes are all that is
 * read of the weight; many tokens have themselves in the lanes, X in L1, and each kept weight is broadcast.
 * In both a block of 64 columns is one chain of multiply-adds upwards in k from zero, and blocks are added in
 * order. */
#ifndef BS_PLUGINS_CPU_ISA_SPARSE_H
#define BS_PLUGINS_CPU_ISA_SPARSE_H

#include "tile_pieces.h"

#define LANES_VECS (CPU_PANEL / VEC)
#define BLOCK_UNITS (CPU_WIDE_COLUMNS / CPU_UNIT_COLUMNS)
#define AHEAD \
  6144 /* bytes of values that are asked for before their turn: the arithmetic of a unit is long */

/* cpu_type24 to bytes. */
INLINE int64_t value_size(const int type) {
  return type == 0 ? 4 : type == 3 ? 1 : 2;
}

INLINE vec value_load(const int type, const char *w) {
  if (type == 0) return vec_load((const float *)(const void *)w);
  if (type == 1) return vec_load_bf16((const uint16_t *)(const void *)w);
  if (type == 2) return vec_load_f16((const uint16_t *)(const void *)w);
  return vec_load_i8((const int8_t *)w);
}

/* The codes of the other half: 4 - 14 differ in 1010, 8 - 13 and 9 - 12, whose outer bits differ, in 0101. */
INLINE words words_other(words c) {
  const words differ = words_and(words_xor(words_right(c, 2), c), words_set1(0x22222222u));
  const words one = words_right(differ, 1), all = words_sub(words_left(one, 4), one);
  return words_xor(c, words_xor(all, words_set1(0xaaaaaaaau)));
}

/* A vector of sums to C, as floats or whole numbers. */
INLINE void sum_put(float *c, vec sum, const int add, const int integers) {
  if (!integers) {
    vec_store(c, add ? vec_add(vec_load(c), sum) : sum);
    return;
  }
  uint32_t *to = (uint32_t *)(void *)c;
  const words whole = vec_to_words(sum);
  words_store(to, add ? words_add(words_load(to), whole) : whole);
}

/* ---- outputs in the lanes ------------------------------------------------------------------- */

/* One unit: sums += picked x * w. */
INLINE void narrow_unit(const int tokens, const int panels, const int type, const cpu_narrow24 *t,
                        int64_t unit, vec *sums) {
  const int wide = panels * LANES_VECS;
  const int64_t line = CPU_PANEL * value_size(type);
  const float *x = t->x + unit * CPU_UNIT_COLUMNS;
  const char *w = (const char *)t->w + unit * CPU_UNIT_VALUES * line;
  words codes[WIDE_SUMS];
  UNROLL for (int p = 0; p < panels; p++) UNROLL for (int v = 0; v < LANES_VECS; v++) {
    const words c = words_load(t->codes + p * t->codes_step + unit * CPU_PANEL + v * VEC);
    codes[p * LANES_VECS + v] = t->other ? words_other(c) : c;
  }
  for (int i = 0; i < CPU_UNIT_VALUES; i += 2, x += 4, w += 2 * line) {
    vec first[WIDE_SUMS], second[WIDE_SUMS];
    words next[WIDE_SUMS];
    UNROLL for (int p = 0; p < panels; p++) UNROLL for (int64_t b = 0; b < 2 * line; b += 64)
        __builtin_prefetch(w + p * t->w_step + AHEAD + b, 0, 2);
    UNROLL for (int v = 0; v < wide; v++) {
      const char *at = w + v / LANES_VECS * t->w_step + v % LANES_VECS * VEC * value_size(type);
      first[v] = value_load(type, at);
      second[v] = value_load(type, at + line);
      next[v] = words_right(codes[v], 2);
    }
    UNROLL for (int b = 0; b < tokens; b++) {
      const vec four = vec_four(x + b * t->x_ld);
      UNROLL for (int v = 0; v < wide; v++) {
        vec *sum = &sums[b * wide + v];
        *sum = vec_fma(vec_pick(four, codes[v]), first[v], *sum);
        *sum = vec_fma(vec_pick(four, next[v]), second[v], *sum);
      }
    }
    UNROLL for (int v = 0; v < wide; v++) codes[v] = words_right(next[v], 2);
  }
}

INLINE void narrow_tile(const int tokens, const int panels, const int type, const cpu_narrow24 *t) {
  const int wide = panels * LANES_VECS;
  vec sums[NARROW_TOKENS * 4];
  for (int64_t unit = 0; unit < t->units; unit += BLOCK_UNITS) {
    UNROLL for (int s = 0; s < tokens * wide; s++) sums[s] = vec_set1(0.0f);
    narrow_unit(tokens, panels, type, t, unit, sums);
    if (unit + 1 < t->units) narrow_unit(tokens, panels, type, t, unit + 1, sums);
    UNROLL for (int b = 0; b < tokens; b++) UNROLL for (int v = 0; v < wide; v++)
        sum_put(t->c + b * t->ldc + v * VEC, sums[b * wide + v], unit > 0, type == 3);
  }
}

/* Two panels where there are registers for them: more chains, and two streams of weights. */
INLINE void narrow_tokens(const int tokens, const int type, const cpu_narrow24 *t) {
  if (tokens * LANES_VECS <= NARROW_TOKENS / 2 && t->panels == 2)
    narrow_tile(tokens, 2, type, t);
  else
    for (int32_t p = 0; p < t->panels; p++) {
      cpu_narrow24 one = *t;
      one.w = (const char *)t->w + p * t->w_step;
      one.codes = t->codes + p * t->codes_step;
      one.c = t->c + p * CPU_PANEL;
      narrow_tile(tokens, 1, type, &one);
    }
}

INLINE void narrow_any(const int type, const cpu_narrow24 *t) {
  switch (t->tokens) {
    case 1:
      narrow_tokens(1, type, t);
      return;
#if NARROW_TOKENS > 2
    case 2:
      narrow_tokens(2, type, t);
      return;
    case 3:
      narrow_tokens(3, type, t);
      return;
#endif
#if NARROW_TOKENS > 4
    case 4:
      narrow_tokens(4, type, t);
      return;
    case 5:
      narrow_tokens(5, type, t);
      return;
    case 6:
      narrow_tokens(6, type, t);
      return;
    case 7:
      narrow_tokens(7, type, t);
      return;
#endif
    default:
      narrow_tokens(NARROW_TOKENS, type, t);
      return;
  }
}

static void narrow24(const cpu_narrow24 *t) {
  switch (t->type) {
    case 0:
      narrow_any(0, t);
      return;
    case 1:
      narrow_any(1, t);
      return;
    case 2:
      narrow_any(2, t);
      return;
    default:
      narrow_any(3, t);
      return;
  }
}

/* ---- tokens in the lanes -------------------------------------------------------------------- */

/* Values i of `count`: sums of `outs` lanes from `lane` on, `vecs` vectors of tokens. */
INLINE void wide_part(const int outs, const int vecs, const float *x, const float *w, const uint32_t *at,
                      int32_t count, vec *sums) {
  for (int32_t i = 0; i < count; i++, w += CPU_PANEL, at += CPU_PANEL) UNROLL for (int o = 0; o < outs; o++) {
      const float *from = x + at[o];
      const vec one = vec_set1(w[o]);
      UNROLL for (int v = 0; v < vecs; v++) sums[o * vecs + v] =
          vec_fma(one, vec_load(from + v * VEC), sums[o * vecs + v]);
    }
}

/* Lanes `lane` .. of a tile. */
INLINE void wide_lanes(const int outs, const int vecs, const cpu_wide24 *t, int lane, int64_t token) {
  vec sums[WIDE_SUMS];
  UNROLL for (int s = 0; s < outs * vecs; s++) sums[s] = vec_set1(0.0f);
  wide_part(outs, vecs, t->x + token, t->w[0] + lane, t->at + lane, t->count[0], sums);
  wide_part(outs, vecs, t->x + token, t->w[1] + lane, t->at + t->count[0] * CPU_PANEL + lane, t->count[1],
            sums);
  UNROLL for (int o = 0; o < outs; o++) UNROLL for (int v = 0; v < vecs; v++)
      sum_put(t->c + (lane + o) * CPU_WIDE_TOKENS + token + v * VEC, sums[o * vecs + v], t->add, t->integers);
}

/* So many outputs at once that their chains hide the latency of a multiply-add, and that a row of X which
 * several of them keep is still at hand. */
INLINE void wide_tile(const int outs, const int vecs, const cpu_wide24 *t, int64_t token) {
  int lane = 0;
  for (; lane + outs <= CPU_PANEL; lane += outs) wide_lanes(outs, vecs, t, lane, token);
  if (lane < CPU_PANEL) wide_lanes(CPU_PANEL % outs > 0 ? CPU_PANEL % outs : 1, vecs, t, lane, token);
}

static void wide24(const cpu_wide24 *t) {
#if VEC == 16
  switch ((t->tokens + 15) / 16) {
    case 1:
      wide_tile(8, 1, t, 0);
      return;
    case 2:
      wide_tile(8, 2, t, 0);
      return;
    case 3:
      wide_tile(4, 3, t, 0);
      return;
    default:
      wide_tile(6, 4, t, 0);
      return;
  }
#elif VEC == 8
  for (int64_t token = 0; token < t->tokens; token += 32)
    if (t->tokens - token > 16)
      wide_tile(3, 4, t, token);
    else
      wide_tile(6, 2, t, token);
#else
  for (int64_t token = 0; token < t->tokens; token += 16) wide_tile(2, 4, t, token);
#endif
}

/* ---- sums over tokens ----------------------------------------------------------------------- */

/* Values i0 .. of one vector of lanes: picked x * dy over the tokens. */
INLINE void sums_part(const cpu_sums24 *t, const int i0, const int v) {
  vec sums[SUMS_VALUES];
  _Alignas(64) uint32_t which[SUMS_VALUES * VEC];
  words codes = words_load(t->codes + v * VEC);
  const float *x = t->x + i0 * 2, *dy = t->dy + v * VEC;
  if (t->other) codes = words_other(codes);
  for (int i = 0; i < i0; i++) codes = words_right(codes, 2);
  UNROLL for (int i = 0; i < SUMS_VALUES; i++) {
    words_store(which + i * VEC, codes);
    codes = words_right(codes, 2);
    sums[i] = vec_set1(0.0f);
  }
  for (int64_t b = 0; b < t->tokens; b++, x += t->x_ld, dy += CPU_PANEL) {
    const vec one = vec_load(dy);
    UNROLL for (int i = 0; i < SUMS_VALUES; i++) sums[i] =
        vec_fma(vec_pick(vec_four(x + i / 2 * 4), words_load(which + i * VEC)), one, sums[i]);
  }
  UNROLL for (int i = 0; i < SUMS_VALUES; i++)
      sum_put(t->c + (i0 + i) * CPU_PANEL + v * VEC, sums[i], t->add, 0);
}

static void sums24(const cpu_sums24 *t) {
  for (int i = 0; i < CPU_UNIT_VALUES; i += SUMS_VALUES)
    for (int v = 0; v < LANES_VECS; v++) sums_part(t, i, v);
}

/* ---- a unit taken apart --------------------------------------------------------------------- */

static void values24(float *dst, const void *unit, int32_t type) {
  const char *w = unit;
  for (int i = 0; i < CPU_UNIT_VALUES * CPU_PANEL; i += VEC, dst += VEC, w += VEC * value_size(type)) {
    if (type == 0)
      vec_store(dst, value_load(0, w));
    else if (type == 1)
      vec_store(dst, value_load(1, w));
    else if (type == 2)
      vec_store(dst, value_load(2, w));
    else
      vec_store(dst, value_load(3, w));
  }
}

static void places24(uint32_t *at, const uint32_t *codes, uint32_t first, uint32_t other) {
  UNROLL for (int v = 0; v < LANES_VECS; v++) {
    words c = words_load(codes + v * VEC);
    if (other) c = words_other(c);
    for (uint32_t i = 0; i < CPU_UNIT_VALUES; i++) {
      const words column = words_add(words_and(c, words_set1(3)), words_set1(first + i / 2 * 4));
      words_store(at + i * CPU_PANEL + v * VEC, words_left(column, 6)); /* times CPU_WIDE_TOKENS */
      c = words_right(c, 2);
    }
  }
}

#endif
