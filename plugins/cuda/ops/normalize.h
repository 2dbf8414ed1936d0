/* SPDX-License-Identifier: MIT
 * normalize.h - the arguments of normalize's kernels, and what they keep of a row. normalize_body.h has the
 * arithmetic. */
#ifndef BS_PLUGIN_CUDA_NORMALIZE_H
#define BS_PLUGIN_CUDA_NORMALIZE_H
#include "space.h"

/* The op's arguments in its order. */
enum {
  NORMALIZE_X = 0,
  NORMALIZE_ADD,
  NORMALIZE_GAMMA,
  NORMALIZE_BETA,
  NORMALIZE_Y,
  NORMALIZE_SUM,
  NORMALIZE_ARGS
};

enum {
  NORMALIZE_SHORT = 1024,              /* a row of at most so many elements is a warp's */
  NORMALIZE_WARPS = CUDA_BLOCK / 32,   /* of a block */
  NORMALIZE_STEP = CUDA_SPACE_DIMS - 1 /* the place of the last dim */
};

/* The passes over a row: the largest value; sums of powers, or of values and squares; the results. */
enum { NORMALIZE_MOST = 0, NORMALIZE_SUMS, NORMALIZE_WRITE };

typedef struct normalize_args {
  cuda_spread args[NORMALIZE_ARGS];
  cuda_space space; /* its last dim is the row */
  int64_t rows, n;
  double eps;
  uint32_t kind;   /* enum bs_normalize */
  uint32_t pieces; /* a bit an argument: pieces of its rows can be read at once */
} normalize_args;
#endif
