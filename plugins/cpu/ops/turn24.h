/* SPDX-License-Identifier: MIT
 *
 * turn24.h - X and dY as the kernels of 2:4 weights want them: rows of f32, or blocks of 64 columns with 64
 * tokens side by side. Shared by matmul24.c and the ops of its backward pass. */
#ifndef BS_PLUGINS_CPU_OPS_TURN24_H
#define BS_PLUGINS_CPU_OPS_TURN24_H

#include "../cpu.h"

/* Rows of a matrix whose elements are adjacent. */
typedef struct cpu_rows24 {
  const cpu_kernels *kernels;
  const void *data;
  int64_t ld;
  uint32_t type; /* f32, bf16, f16, i8 */
  int64_t begin; /* first column */
  int64_t columns;
} cpu_rows24;

cpu_rows24 cpu_rows24_of(const cpu_kernels *kernels, const bs_tensor *tensor, int64_t begin, int64_t columns);
/* Columns first .. first+count of a row as f32, zeros where there are none. */
void cpu_rows24_load(const cpu_rows24 *rows, int64_t row, int64_t first, int64_t count, float *to);
/* Like cpu_rows24_load, for 16-bit elements and without conversion. */
void cpu_rows24_copy(const cpu_rows24 *rows, int64_t row, int64_t first, int64_t count, uint16_t *to);
/* to[c * 64 + t], c < 64, t < tokens rounded up to 16: zeros where there are none. lines: CPU_LINES24 floats.
 */
#define CPU_LINES24 (16 * (CPU_WIDE_COLUMNS + 8))
void cpu_rows24_turn(const cpu_rows24 *rows, int64_t row, int64_t tokens, int64_t first, float *lines,
                     float *to);

#endif
