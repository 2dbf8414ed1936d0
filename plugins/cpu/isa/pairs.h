/* SPDX-License-Identifier: MIT
 *
 * pairs.h - integers of 8 to 64 bits as the int16 that `pairs` multiplies: rows of X, and panels of W. Plain
 * loops over 16 columns, which compilers make vectors of. */
#ifndef BS_PLUGINS_CPU_ISA_PAIRS_H
#define BS_PLUGINS_CPU_ISA_PAIRS_H

#include <stdint.h>
#include <string.h>

#include "../kernels.h"
#include "blockshock/tensor.h"

/* 16 integers as 32 bits, and the bits that any of them has; all ones where 32 bits do not hold one. */
INLINE uint32_t sixteen(uint32_t dtype, const void *from, int32_t *restrict out) {
  uint32_t bits = 0;
  if (dtype == BS_I8) {
    const uint8_t *restrict p = from;
    for (int j = 0; j < 16; j++) out[j] = (int32_t)(p[j] ^ 128u) - 128; /* the sign */
  } else if (dtype == BS_U8) {
    const uint8_t *restrict p = from;
    for (int j = 0; j < 16; j++) out[j] = p[j];
  } else if (dtype == BS_I32) {
    memcpy(out, from, 16 * sizeof *out);
  } else {
    const int64_t *restrict p = from;
    uint64_t wide = 0;
    for (int j = 0; j < 16; j++) wide |= (uint64_t)(p[j] ^ p[j] >> 63);
    for (int j = 0; j < 16; j++) out[j] = (int32_t)p[j];
    if (wide >> 31 != 0) return UINT32_MAX;
  }
  for (int j = 0; j < 16; j++) bits |= (uint32_t)(out[j] ^ out[j] >> 31);
  return bits;
}

/* Does the same for n < 16 integers; the others are 0. */
INLINE uint32_t fewer(uint32_t dtype, const void *from, int64_t n, int32_t *restrict out) {
  int64_t room[16] = {0};
  memcpy(room, from, (size_t)n * BS_DTYPE_BYTES(dtype));
  return sixteen(dtype, room, out);
}

INLINE uint32_t up_to_sixteen(uint32_t dtype, const void *from, int64_t at, int64_t n,
                              int32_t *restrict out) {
  const void *here = (const uint8_t *)from + at * (int64_t)BS_DTYPE_BYTES(dtype);
  return n - at >= 16 ? sixteen(dtype, here, out) : fewer(dtype, here, n - at, out);
}

INLINE uint32_t narrow_row_of(const uint32_t dtype, int16_t *out, const void *row, int64_t n) {
  uint32_t bits = 0;
  int32_t v[16];
  int64_t at = 0;
  for (; at + 16 <= n; at += 16) {
    bits |= sixteen(dtype, (const uint8_t *)row + at * (int64_t)BS_DTYPE_BYTES(dtype), v);
    int16_t *restrict to = out + at;
    for (int j = 0; j < 16; j++) to[j] = (int16_t)v[j];
  }
  if (at == n) return bits;
  bits |= up_to_sixteen(dtype, row, at, n, v);
  for (int64_t j = 0; j < n - at; j++) out[at + j] = (int16_t)v[j];
  return bits;
}

INLINE uint32_t pair_rows_of(const uint32_t dtype, void *panels, int64_t step, const void *first,
                             const void *second, int64_t n) {
  uint32_t bits = 0;
  for (int64_t at = 0; at < n; at += 16) {
    int32_t a[16], b[16] = {0};
    uint32_t *restrict to = (uint32_t *)(void *)((uint8_t *)panels + at / 16 * step);
    bits |= up_to_sixteen(dtype, first, at, n, a);
    if (second != NULL) bits |= up_to_sixteen(dtype, second, at, n, b);
    for (int j = 0; j < 16; j++) to[j] = ((uint32_t)a[j] & 0xffffu) | (uint32_t)b[j] << 16;
  }
  return bits;
}

/* Bytes have no need of a look at their values. The copies tell compilers that nothing overlaps. */
INLINE uint32_t narrow_bytes(const int sign, int16_t *out, const void *row, int64_t n) {
  const uint8_t *p = row;
  int64_t at = 0;
  for (; at + 64 <= n; at += 64) {
    int16_t to[64];
    for (int j = 0; j < 64; j++) to[j] = (int16_t)(sign ? (int8_t)p[at + j] : (int16_t)p[at + j]);
    memcpy(out + at, to, sizeof to);
  }
  for (; at < n; at++) out[at] = (int16_t)(sign ? (int8_t)p[at] : (int16_t)p[at]);
  return sign ? 127u : 255u;
}

INLINE uint32_t narrow_words(int16_t *out, const int32_t *p, int64_t n) {
  uint32_t bits[32] = {0};
  int64_t at = 0;
  for (; at + 32 <= n; at += 32) {
    int16_t to[32];
    for (int j = 0; j < 32; j++) to[j] = (int16_t)p[at + j];
    for (int j = 0; j < 32; j++) bits[j] |= (uint32_t)(p[at + j] ^ p[at + j] >> 31);
    memcpy(out + at, to, sizeof to);
  }
  for (; at < n; at++) {
    out[at] = (int16_t)p[at];
    bits[0] |= (uint32_t)(p[at] ^ p[at] >> 31);
  }
  for (int j = 1; j < 32; j++) bits[0] |= bits[j];
  return bits[0];
}

INLINE uint32_t pair_bytes(const int sign, void *panels, int64_t step, const uint8_t *first,
                           const uint8_t *second, int64_t n) {
  int64_t at = 0;
  for (; second != NULL && at + 16 <= n; at += 16) {
    uint8_t *panel = (uint8_t *)panels + at / 16 * step;
#if IVEC > 4
    for (int j = 0; j < 16; j += IVEC)
      ivec_store((int32_t *)(void *)panel + j,
                 ivec_pair(ivec_bytes(sign, first + at + j), ivec_bytes(sign, second + at + j)));
#else
    uint32_t to[16];
    for (int j = 0; j < 16; j++) {
      const uint32_t a = sign ? (uint32_t)(int32_t)(int8_t)first[at + j] & 0xffffu : first[at + j];
      to[j] = a | (sign ? (uint32_t)(int32_t)(int8_t)second[at + j] : (uint32_t)second[at + j]) << 16;
    }
    memcpy(panel, to, sizeof to);
#endif
  }
  if (at < n)
    (void)pair_rows_of(sign ? BS_I8 : BS_U8, (uint8_t *)panels + at / 16 * step, step, first + at,
                       second != NULL ? second + at : NULL, n - at);
  return sign ? 127u : 255u;
}

static uint32_t narrow_row(int16_t *out, const void *row, uint32_t dtype, int64_t n) {
  switch (dtype) {
    case BS_I8:
      return narrow_bytes(1, out, row, n);
    case BS_U8:
      return narrow_bytes(0, out, row, n);
    case BS_I32:
      return narrow_words(out, row, n);
    default:
      return narrow_row_of(BS_I64, out, row, n);
  }
}

static uint32_t pair_rows(void *panels, int64_t step, const void *first, const void *second, uint32_t dtype,
                          int64_t n) {
  switch (dtype) {
    case BS_I8:
      return pair_bytes(1, panels, step, first, second, n);
    case BS_U8:
      return pair_bytes(0, panels, step, first, second, n);
    case BS_I32:
      return pair_rows_of(BS_I32, panels, step, first, second, n);
    default:
      return pair_rows_of(BS_I64, panels, step, first, second, n);
  }
}

#endif
