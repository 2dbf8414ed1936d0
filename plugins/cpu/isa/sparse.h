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
/* Bytes of values that are prefetched ahead: the arithmetic of several tokens takes long, while a core that
 * only reads must not prefetch too far. */
#define AHEAD(tokens) ((tokens) == 1 ? 2048 : 6144)

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
INLINE void narrow_unit(const int tokens, const int type, const cpu_narrow24 *t, const float *x,
                        const char *w, const uint32_t *unit_codes, vec *sums) {
  const int64_t line = CPU_PANEL * value_size(type);
  words codes[LANES_VECS];
  UNROLL for (int v = 0; v < LANES_VECS; v++) {
    const words c = words_load(unit_codes + v * VEC);
    codes[v] = t->other ? words_other(c) : c;
  }
  for (int i = 0; i < CPU_UNIT_VALUES; i += 2, x += 4, w += 2 * line) {
    vec first[LANES_VECS], second[LANES_VECS];
    words next[LANES_VECS];
    UNROLL for (int64_t b = 0; b < 2 * line; b += 64) __builtin_prefetch(w + AHEAD(tokens) + b, 0, 2);
    UNROLL for (int v = 0; v < LANES_VECS; v++) {
      first[v] = value_load(type, w + v * VEC * value_size(type));
      second[v] = value_load(type, w + v * VEC * value_size(type) + line);
      next[v] = words_right(codes[v], 2);
    }
    UNROLL for (int b = 0; b < tokens; b++) {
      const vec four = vec_four(x + b * t->x_ld);
      UNROLL for (int v = 0; v < LANES_VECS; v++) {
        vec *sum = &sums[b * LANES_VECS + v];
        *sum = vec_fma(vec_pick(four, codes[v]), first[v], *sum);
        *sum = vec_fma(vec_pick(four, next[v]), second[v], *sum);
      }
    }
    UNROLL for (int v = 0; v < LANES_VECS; v++) codes[v] = words_right(next[v], 2);
  }
}

/* Panel by panel: one stream of weights is read faster than two side by side. */
INLINE void narrow_tokens(const int tokens, const int type, const cpu_narrow24 *t) {
  const int64_t bytes = CPU_UNIT_VALUES * CPU_PANEL * value_size(type);
  const char *w = t->w;
  const uint32_t *codes = t->codes;
  for (int32_t panel = 0; panel < t->panels; panel++) {
    float *c = t->c + panel * CPU_PANEL;
    vec sums[NARROW_TOKENS * LANES_VECS];
    UNROLL for (int s = 0; s < tokens * LANES_VECS; s++) sums[s] = vec_set1(0.0f);
    for (int32_t unit = 0; unit < t->units; unit++, w += bytes, codes += CPU_PANEL)
      narrow_unit(tokens, type, t, (const float *)t->x + unit * CPU_UNIT_COLUMNS, w, codes, sums);
    UNROLL for (int b = 0; b < tokens; b++) UNROLL for (int v = 0; v < LANES_VECS; v++)
        sum_put(c + b * t->ldc + v * VEC, sums[b * LANES_VECS + v], t->add, type == 3);
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

/* The sums of `outs` lanes from `lane` on, `vecs` vectors of tokens, to C. */
INLINE void wide_put(const int outs, const int vecs, const cpu_wide24 *t, float *c, const int add,
                     const int integers, const vec *sums) {
  (void)t;
  UNROLL for (int o = 0; o < outs; o++) UNROLL for (int v = 0; v < vecs; v++)
      sum_put(c + o * CPU_WIDE_TOKENS + v * VEC, sums[o * vecs + v], add, integers);
}

/* Lanes `lane` .. of a tile. Each multiply-add only loads X: one load brings four places. If four lanes work,
 * one load also brings their weights, which are then spread in registers. */
INLINE void wide_lanes(const int outs, const int vecs, const cpu_wide24 *t, const int lane,
                       const int64_t token) {
  vec sums[WIDE_SUMS];
  const char *x = (const char *)(t->x + token);
  const float *w = t->w + lane;
  const uint16_t *at = t->at + lane * t->at_ld;
  const int64_t ld = t->at_ld;
  UNROLL for (int s = 0; s < outs * vecs; s++) sums[s] = vec_set1(0.0f);
  for (int32_t i = 0; i < t->count; i += 4) {
    uint64_t four[8];
    UNROLL for (int o = 0; o < outs; o++) memcpy(&four[o], at + o * ld + i, sizeof four[o]);
    UNROLL for (int j = 0; j < 4; j++, w += CPU_PANEL) UNROLL for (int o = 0; o < outs; o++) {
      const float *from = (const float *)(const void *)(x + (uint16_t)(four[o] >> 16 * j));
      const vec one = outs % 4 == 0 ? vec_nth(vec_four(w + o / 4 * 4), o % 4) : vec_set1(w[o]);
      UNROLL for (int v = 0; v < vecs; v++) sums[o * vecs + v] =
          vec_fma(one, vec_load(from + v * VEC), sums[o * vecs + v]);
    }
  }
  float *c = t->c + lane * CPU_WIDE_TOKENS + token;
  if (t->integers)
    wide_put(outs, vecs, t, c, t->add, 1, sums);
  else if (t->add)
    wide_put(outs, vecs, t, c, 1, 0, sums);
  else
    wide_put(outs, vecs, t, c, 0, 0, sums);
}

/* Computes as many outputs together as are needed to hide the latency of a multiply-add. The next data are
 * prefetched in parts: all together they would delay the loads of this tile. */
INLINE void wide_tile(const int outs, const int vecs, const cpu_wide24 *t) {
  for (int lane = 0; lane < CPU_PANEL; lane += outs) {
    for (int32_t i = lane / outs; i < t->ahead_lines; i += CPU_PANEL / outs)
      __builtin_prefetch((const char *)t->ahead + (int64_t)64 * i, 0, 3);
    wide_lanes(outs, vecs, t, lane, 0);
  }
}

static void wide24(const cpu_wide24 *t) {
#if VEC == 16
  switch ((t->tokens + 15) / 16) {
    case 1:
      wide_tile(8, 1, t);
      return;
    case 2:
      wide_tile(8, 2, t);
      return;
    case 3:
      wide_tile(4, 3, t);
      return;
    default:
      wide_tile(4, 4, t);
      return;
  }
#elif VEC == 8
  switch ((t->tokens + 15) / 16) {
    case 1:
      wide_tile(4, 2, t);
      return;
    case 2:
      wide_tile(2, 4, t);
      return;
    case 3:
      wide_tile(2, 6, t);
      return;
    default:
      wide_tile(1, 8, t);
      return;
  }
#else
  for (int64_t token = 0; token < t->tokens; token += 16)
    for (int lane = 0; lane < CPU_PANEL; lane += 2) wide_lanes(2, 4, t, lane, token);
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

/* ---- a unit split into columns --------------------------------------------------------------- */

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

static void places24(uint16_t *at, int64_t at_ld, const uint32_t *codes, uint32_t first, uint32_t other) {
  _Alignas(64) uint32_t word[CPU_PANEL];
  UNROLL for (int v = 0; v < LANES_VECS; v++) {
    const words c = words_load(codes + v * VEC);
    words_store(word + v * VEC, other ? words_other(c) : c);
  }
  for (int lane = 0; lane < CPU_PANEL; lane++) places_of(at + lane * at_ld, word[lane], first);
}

#endif
