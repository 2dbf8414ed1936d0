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

static uint32_t narrow_row(int16_t *out, const void *row, uint32_t dtype, int64_t n) {
  switch (dtype) {
    case BS_I8:
      return narrow_row_of(BS_I8, out, row, n);
    case BS_U8:
      return narrow_row_of(BS_U8, out, row, n);
    case BS_I32:
      return narrow_row_of(BS_I32, out, row, n);
    default:
      return narrow_row_of(BS_I64, out, row, n);
  }
}

static uint32_t pair_rows(void *panels, int64_t step, const void *first, const void *second, uint32_t dtype,
                          int64_t n) {
  switch (dtype) {
    case BS_I8:
      return pair_rows_of(BS_I8, panels, step, first, second, n);
    case BS_U8:
      return pair_rows_of(BS_U8, panels, step, first, second, n);
    case BS_I32:
      return pair_rows_of(BS_I32, panels, step, first, second, n);
    default:
      return pair_rows_of(BS_I64, panels, step, first, second, n);
  }
}

#endif
