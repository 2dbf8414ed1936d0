/* SPDX-License-Identifier: MIT
 *
 * epilogue.h - the steps after the sums of matmul and matmul24: bias, activation, residual, rounding to Y. */
#ifndef BS_PLUGINS_CPU_OPS_EPILOGUE_H
#define BS_PLUGINS_CPU_OPS_EPILOGUE_H

#include "../cpu.h"

typedef struct cpu_epilogue {
  const cpu_kernels *kernels;
  const cpu_matmul *shape;
  const bs_tensor *bias, *residual; /* NULL: absent */
  const bs_tensor *y;
} cpu_epilogue;

/* Rows of sums c [tokens][ld] to Y, rows `token`.., columns n0 .. n0+n. buffer: 2 ld floats. i32 sums where Y
 * is i32. */
void cpu_finish(const cpu_epilogue *e, int64_t token, int64_t tokens, int64_t n0, int64_t n, float *c,
                int64_t ld, float *buffer);

#endif
