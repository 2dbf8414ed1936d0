/* SPDX-License-Identifier: MIT
 *
 * quant_sums.h - the sums of the bytes of X by piece (kernels.h), by the instruction that multiplies bytes.
 */
#ifndef BS_PLUGINS_CPU_ISA_QUANT_SUMS_H
#define BS_PLUGINS_CPU_ISA_QUANT_SUMS_H

#include "quant_vec.h"

#if QI > 4

/* A piece is a part of a vector, or whole vectors, or it ends where X does: zeros follow that. */
static void q_sums(const int8_t *x, int64_t columns, int64_t piece, int32_t *out) {
  enum { BYTES = 4 * QI };
  const qi ones = qi_set1(0x01010101);
  if (piece >= columns) piece = columns > BYTES ? columns : BYTES;
  const int64_t each = piece < BYTES ? piece : BYTES, step = piece < BYTES ? BYTES : piece;
  for (int64_t first = 0; first < columns; first += step) {
    const int64_t end = columns - first < step ? columns : first + step;
    int32_t lanes[QI];
    qi sums = qi_set1(0);
    for (int64_t k = first; k < end; k += BYTES) sums = qi_dot(4, sums, ones, qi_load(x + k));
    qi_store(lanes, sums);
    for (int64_t k = first; k < end && k < first + BYTES; k += each) {
      int32_t sum = 0;
      for (int64_t i = (k - first) / 4; i < (k - first + each) / 4; i++) sum += lanes[i];
      *out++ = sum;
    }
  }
}

#else

static void q_sums(const int8_t *x, int64_t columns, int64_t piece, int32_t *out) {
  for (int64_t first = 0; first < columns; first += piece) {
    const int64_t end = columns - first < piece ? columns : first + piece;
    int32_t sum = 0;
    for (int64_t k = first; k < end; k++) sum += x[k];
    *out++ = sum;
  }
}

#endif
#endif
