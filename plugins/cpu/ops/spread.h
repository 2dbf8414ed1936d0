/* SPDX-License-Identifier: MIT
 *
 * spread.h - several views over one space of elements, as few dimensions as they allow, and loading and
 * storing runs of them in a type of computation. Used by map_run.c and normalize.c. */
#ifndef BS_PLUGINS_CPU_OPS_SPREAD_H
#define BS_PLUGINS_CPU_OPS_SPREAD_H

#include "../cpu.h"

#define CPU_SPREAD_ARGS BS_MAX_OP_ARGS

/* A view: the address of the space's element at zero, its dtype, and for each dimension of the space its
 * stride in elements, 0 if it broadcasts. */
typedef struct cpu_view_of_space {
  uint8_t *data; /* NULL: absent */
  uint32_t dtype, size;
  int64_t strides[BS_MAX_DIMS];
} cpu_view_of_space;

/* The last dimension is the line. */
typedef struct cpu_spread {
  uint32_t rank; /* at least 1 */
  uint32_t nargs;
  int64_t dims[BS_MAX_DIMS];
  int64_t lines; /* product of all dimensions but the last */
  cpu_view_of_space args[CPU_SPREAD_ARGS];
} cpu_spread;

/* Spreads args over the space of `like`; an arg of a smaller rank has its last dimensions. keep: this many of
 * the last dimensions are unchanged, the others are merged if all views allow. The outer ones are in the
 * order of the strides of `like`. */
void cpu_spread_make(cpu_spread *out, bs_tensor *const *args, uint32_t nargs, const bs_tensor *like,
                     uint32_t keep);
/* The address of line `line` of arg i. */
uint8_t *cpu_spread_line(const cpu_spread *spread, uint32_t i, int64_t line);

/* Loads n elements of `dtype`, `stride` apart, as `compute` (f32, f64, i64), and stores them as expr.h
 * converts them. buffer: n times 8 bytes. Returns the result of the host's conversion, BS_OK if it was not
 * needed. */
int32_t cpu_run_load(const cpu_state *state, uint32_t compute, void *out, uint32_t dtype, const void *in,
                     int64_t stride, int64_t n, void *buffer);
int32_t cpu_run_store(const cpu_state *state, uint32_t dtype, void *out, int64_t stride, uint32_t compute,
                      const void *in, int64_t n, void *buffer);

#endif
