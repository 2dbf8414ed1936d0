/* SPDX-License-Identifier: MIT
 *
 * avx512_bf16.c - the bf16 dot product of AVX-512, for its table: two columns a step and lane, twice the
 * arithmetic of fp32. The instruction adds the products of a pair one after the other into the fp32 sum,
 * the upper half's first, each rounded, and takes subnormal inputs and results for zero (Intel's manual,
 * VDPBF16PS). So pairs of W and X lie with the second column first: the sum then runs upwards in k. */
#include "vec_avx512.h"

#include <string.h>

#define ATTEND_ROW_ALONE
#include "attention.h"
#include "tile_pieces.h"
#include "transpose.h"

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

void cpu_avx512_bf16_widen(float *dst, const void *panel, int64_t k) {
  const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000u);
  const char *from = panel;
  for (int64_t i = 0; i < k; i += 2, from += 4 * CPU_PANEL, dst += 2 * CPU_PANEL) {
    const __m512i pairs = _mm512_loadu_si512(from);
    _mm512_storeu_si512(dst, _mm512_and_si512(pairs, high));
    _mm512_storeu_si512(dst + CPU_PANEL, _mm512_slli_epi32(pairs, 16));
  }
}

void cpu_avx512_bf16_swap(uint16_t *to, const uint16_t *from, int64_t n, cpu_bf16_range *io) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), one = _mm512_set1_epi16(1);
  __m512i least = _mm512_loadu_si512(io->least), most = _mm512_loadu_si512(io->most);
  for (int64_t i = 0; i < n; i += 32) {
    const int64_t left = n - i;
    const __mmask32 some = left >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1;
    const __mmask32 pairs = left >= 31 ? ~(__mmask32)0 : ((__mmask32)1 << (left + left % 2)) - 1;
    const __m512i values = _mm512_maskz_loadu_epi16(some, from + i);
    const __m512i size = _mm512_and_si512(values, magnitude);
    least = _mm512_min_epu16(least, _mm512_sub_epi16(size, one)); /* of zero 0xffff */
    most = _mm512_max_epu16(most, size);
    if (to != NULL) _mm512_mask_storeu_epi16(to + i, pairs, _mm512_rol_epi32(values, 16));
  }
  _mm512_storeu_si512(io->least, least);
  _mm512_storeu_si512(io->most, most);
}

/* ---- 2:4 weights ---------------------------------------------------------------------------- */

/* Bytes of values that are asked for before their turn (sparse.h). */
#define AHEAD(tokens) ((tokens) == 1 ? 2048 : 6144)

/* X is the same for all panels: else compilers spread it before their loop, into memory. */
#define KEEP_IN_PLACE() __asm__ volatile("" : : : "memory")

/* Per code of a group: the bytes of its columns among four bf16, the second column's first, for the
 * instruction takes the upper half of a pair first: the chain stays upwards in k. */
#define PAIR(c0, c1) ((2 * (c1)) | (2 * (c1) + 1) << 8 | (2 * (c0)) << 16 | (2 * (c0) + 1) << 24)
static const int32_t pairs_of[2][16] = {
    {PAIR(0, 0), PAIR(1, 0), PAIR(2, 0), PAIR(3, 0), PAIR(0, 1), PAIR(1, 1), PAIR(2, 1), PAIR(3, 1),
     PAIR(0, 2), PAIR(1, 2), PAIR(2, 2), PAIR(3, 2), PAIR(0, 3), PAIR(1, 3), PAIR(2, 3), PAIR(3, 3)},
    {0, 0, 0, 0, PAIR(2, 3), 0, 0, 0, PAIR(1, 3), PAIR(0, 3), 0, 0, PAIR(1, 2), PAIR(0, 2), PAIR(0, 1), 0}};

/* One unit of a panel: sums += pairs of X * pairs of W. In addition to its tokens a group costs a table of
 * positions, a shift, and the interleaving of its two lines of values. */
INLINE void dot24_unit(const int tokens, const uint16_t *x, const char *w, __m512i codes, const __m512i table,
                       vec *sums) {
  const __m512i beside = _mm512_set_epi16(15, 31, 14, 30, 13, 29, 12, 28, 11, 27, 10, 26, 9, 25, 8, 24, 7, 23,
                                          6, 22, 5, 21, 4, 20, 3, 19, 2, 18, 1, 17, 0, 16);
  UNROLL for (int g = 0; g < CPU_UNIT_VALUES / 2; g++, x += 4, w += 4 * CPU_PANEL) {
    KEEP_IN_PLACE();
    __builtin_prefetch(w + AHEAD(tokens), 0, 2);
    const __m512i values = _mm512_permutexvar_epi16(beside, _mm512_loadu_si512(w));
    const __m512i bytes = _mm512_permutexvar_epi32(codes, table); /* by the lowest four bits */
    codes = _mm512_srli_epi32(codes, 4);
    UNROLL for (int b = 0; b < tokens; b++) {
      int64_t four;
      memcpy(&four, x + b * CPU_WIDE_COLUMNS, sizeof four);
      const __m512i both = _mm512_shuffle_epi8(_mm512_set1_epi64(four), bytes);
      sums[b] = _mm512_dpbf16_ps(sums[b], (__m512bh)both, (__m512bh)values);
    }
  }
}

INLINE void dot24_tokens(const int tokens, const cpu_narrow24 *t) {
  const char *w = t->w;
  const uint32_t *codes = t->codes;
  const __m512i table = _mm512_loadu_si512(pairs_of[t->other != 0]);
  for (int32_t panel = 0; panel < t->panels; panel++) {
    float *c = t->c + panel * CPU_PANEL;
    vec sums[CPU_DOT24_TOKENS];
    UNROLL for (int b = 0; b < tokens; b++) sums[b] = vec_set1(0.0f);
    for (int32_t unit = 0; unit < t->units; unit++, w += 2 * CPU_UNIT_VALUES * CPU_PANEL, codes += CPU_PANEL)
      dot24_unit(tokens, (const uint16_t *)t->x + unit * CPU_UNIT_COLUMNS, w, _mm512_loadu_si512(codes),
                 table, sums);
    UNROLL for (int b = 0; b < tokens; b++)
        vec_store(c + b * t->ldc, t->add ? vec_add(vec_load(c + b * t->ldc), sums[b]) : sums[b]);
  }
}

void cpu_avx512_bf16_dot24(const cpu_narrow24 *t) {
  switch (t->tokens) {
    case 1:
      dot24_tokens(1, t);
      return;
    case 2:
      dot24_tokens(2, t);
      return;
    case 3:
      dot24_tokens(3, t);
      return;
    case 4:
      dot24_tokens(4, t);
      return;
    case 5:
      dot24_tokens(5, t);
      return;
    case 6:
      dot24_tokens(6, t);
      return;
    case 7:
      dot24_tokens(7, t);
      return;
    case 8:
      dot24_tokens(8, t);
      return;
    case 9:
      dot24_tokens(9, t);
      return;
    case 10:
      dot24_tokens(10, t);
      return;
    case 11:
      dot24_tokens(11, t);
      return;
    case 12:
      dot24_tokens(12, t);
      return;
    case 13:
      dot24_tokens(13, t);
      return;
    case 14:
      dot24_tokens(14, t);
      return;
    case 15:
      dot24_tokens(15, t);
      return;
    default:
      dot24_tokens(CPU_DOT24_TOKENS, t);
      return;
  }
}

/* ---- attention ------------------------------------------------------------------------------ */

INLINE void put_bf16(void *p, int64_t at, vec power) {
  _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)p + at), (__m256i)_mm512_cvtneps_pbh(power));
}

float cpu_avx512_bf16_attend(const float *s, void *p, int64_t n, float by, float *most, float *totals) {
  return attend_row(0, put_bf16, s, p, n, by, most, totals);
}
float cpu_avx512_bf16_attend_fast(const float *s, void *p, int64_t n, float by, float *most, float *totals) {
  return attend_row(1, put_bf16, s, p, n, by, most, totals);
}

/* Pairs are turned as words: sixteen whole rows where they lie, else from a copy. */
void cpu_avx512_bf16_turn(void *panel, const void *rows, int64_t row_bytes, int64_t count, int64_t depth) {
  const int whole = count == 16 && (((uintptr_t)rows | (uintptr_t)row_bytes) & 3u) == 0;
  for (int64_t d = 0; d < depth; d += 32) {
    if (whole && d + 32 <= depth) {
      transpose((float *)panel + d / 2 * 16, 16, (const float *)rows + d / 2, row_bytes / 4);
      continue;
    }
    float lines[16 * 16], turned[16 * 16];
    const int64_t left = depth - d, pairs = left < 32 ? (left + 1) / 2 : 16;
    const __mmask32 some = left >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1;
    for (int64_t i = 0; i < 16; i++) {
      const char *row = (const char *)rows + i * row_bytes + 2 * d;
      _mm512_storeu_si512(lines + i * 16,
                          i < count ? _mm512_maskz_loadu_epi16(some, row) : _mm512_setzero_si512());
    }
    float *to = (float *)panel + d / 2 * 16;
    transpose(pairs == 16 ? to : turned, 16, lines, 16);
    if (pairs < 16) memcpy(to, turned, (size_t)pairs * 16 * sizeof *to);
  }
}

void cpu_avx512_bf16_zip(void *panels, int64_t step, const void *first, const void *second, int64_t columns) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
                                       38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high_half = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  int64_t n = 0;
  for (; n + 32 <= columns && second != NULL; n += 32) {
    const __m512i a = _mm512_loadu_si512((const uint16_t *)first + n);
    const __m512i b = _mm512_loadu_si512((const uint16_t *)second + n);
    _mm512_storeu_si512((char *)panels + n / 16 * step, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512((char *)panels + (n / 16 + 1) * step, _mm512_permutex2var_epi16(a, high_half, b));
  }
  for (; n < columns; n += 16) {
    const int64_t left = columns - n;
    const __mmask16 some = left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1u);
    const __m256i a = _mm256_maskz_loadu_epi16(some, (const uint16_t *)first + n);
    const __m256i b = second == NULL ? _mm256_setzero_si256()
                                     : _mm256_maskz_loadu_epi16(some, (const uint16_t *)second + n);
    const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16);
    _mm512_storeu_si512((char *)panels + n / 16 * step, _mm512_or_si512(_mm512_cvtepu16_epi32(a), high));
  }
}
