/* SPDX-License-Identifier: MIT
 *
 * turn24.c - see turn24.h. */
#include "turn24.h"

#define LINE (CPU_WIDE_COLUMNS + 8)

cpu_rows24 cpu_rows24_of(const cpu_kernels *kernels, const bs_tensor *tensor, int64_t begin,
                         int64_t columns) {
  const cpu_rows24 r = {kernels, tensor->data, tensor->strides[0], tensor->dtype, begin, columns};
  return r;
}

static const void *place(const cpu_rows24 *r, int64_t row, int64_t column) {
  return (const uint8_t *)r->data + (size_t)(row * r->ld + r->begin + column) * BS_DTYPE_BYTES(r->type);
}

void cpu_rows24_load(const cpu_rows24 *r, int64_t row, int64_t first, int64_t count, float *to) {
  const int64_t left = r->columns - first, n = left < 0 ? 0 : left < count ? left : count;
  if (n > 0 && r->type == BS_I8) {
    const int8_t *from = place(r, row, first);
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
  } else if (n > 0) {
    r->kernels->load[cpu_type_index(r->type)](to, place(r, row, first), n);
  }
  if (n < count) memset(to + n, 0, (size_t)(count - n) * sizeof *to);
}

void cpu_rows24_copy(const cpu_rows24 *r, int64_t row, int64_t first, int64_t count, uint16_t *to) {
  const int64_t left = r->columns - first, n = left < 0 ? 0 : left < count ? left : count;
  if (n > 0) memcpy(to, place(r, row, first), (size_t)n * sizeof *to);
  if (n < count) memset(to + n, 0, (size_t)(count - n) * sizeof *to);
}

void cpu_rows24_turn(const cpu_rows24 *r, int64_t row, int64_t tokens, int64_t first, float *lines,
                     float *to) {
  for (int64_t t = 0; t < tokens; t += 16) {
    const float *from = lines;
    int64_t ld = LINE;
    if (r->type == BS_F32 && tokens - t >= 16 && r->columns - first >= CPU_WIDE_COLUMNS) {
      from = place(r, row + t, first);
      ld = r->ld;
    } else {
      for (int64_t i = 0; i < 16; i++)
        if (t + i < tokens)
          cpu_rows24_load(r, row + t + i, first, CPU_WIDE_COLUMNS, lines + i * LINE);
        else
          memset(lines + i * LINE, 0, CPU_WIDE_COLUMNS * sizeof *lines);
    }
    for (int64_t c = 0; c < CPU_WIDE_COLUMNS; c += 16)
      r->kernels->transpose(to + c * CPU_WIDE_TOKENS + t, CPU_WIDE_TOKENS, from + c, ld);
  }
}
