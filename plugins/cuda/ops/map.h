/* SPDX-License-Identifier: MIT
 * map.h - what map.c gives its kernels: a program of blockshock/expr.h whose values have places. */
#ifndef BS_PLUGIN_CUDA_MAP_H
#define BS_PLUGIN_CUDA_MAP_H
#include "blockshock/expr.h"
#include "space.h"

enum {
  MAP_THREADS = 256, /* of a block, at most */
  MAP_BYTES = 16,    /* of a slot, for each thread: four f32, two f64 or two i64 */
  MAP_INPUTS = BS_EXPR_MAX_IN + BS_MAX_DIMS,
  MAP_SLOTS = MAP_INPUTS + BS_EXPR_MAX_STEPS, /* at most; those of 32 threads fit in MAP_SHARED */
  MAP_CONSTANT = 128,                         /* places from this on are constants */
  MAP_SHARED = 48 * 1024
};

/* out = op of a, b, c, which are places. A place is a slot of shared memory, or a constant. */
typedef struct map_step {
  uint8_t op, a, b, c;
  uint8_t out;
  uint8_t reserved;
  uint16_t dtype; /* of BS_EXPR_TO */
} map_step;

/* An input of size 0 is an index: its elements are their offsets. The places of the inputs are 0, 1, and so
 * on. If `dense`, the space counts pieces of neighbours along the last dim, as many as a thread takes. */
typedef struct map_args {
  cuda_space space;
  cuda_spread in[MAP_INPUTS], out[BS_EXPR_MAX_OUT];
  uint64_t consts[BS_EXPR_MAX_CONST];
  map_step steps[BS_EXPR_MAX_STEPS];
  uint8_t outs[BS_EXPR_MAX_OUT];
  uint32_t n_in, n_steps, n_out;
  uint32_t dense;
} map_args;

/* A case of a switch over steps: `out` is a map_values, and i counts its elements. */
#define MAP_CASE(op, expression)                                \
  case op:                                                      \
    CUDA_UNROLL                                                 \
    for (int i = 0; i < MAP_EACH; i++) out.v[i] = (expression); \
    break
#endif
