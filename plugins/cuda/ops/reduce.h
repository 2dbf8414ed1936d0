/* SPDX-License-Identifier: MIT
 * reduce.h - the arguments of reduce's kernels. reduce_body.h has the arithmetic. */
#ifndef BS_PLUGIN_CUDA_REDUCE_H
#define BS_PLUGIN_CUDA_REDUCE_H
#include "space.h"

enum {
  REDUCE_PIECE = 4,                 /* elements of a thread that follow one another in the inner space */
  REDUCE_LAST = CUDA_SPACE_DIMS - 1 /* the place of the last dim */
};

/* outer: the elements of out. inner: what is folded to one of them. */
typedef struct reduce_args {
  cuda_spread in, out; /* over the outer space */
  cuda_spread inside;  /* in over the inner space */
  cuda_space outer, inner;
  double begin_float, factor; /* the fold of nothing; of sums */
  int64_t begin_whole;
  uint32_t fold;    /* enum bs_fold */
  uint32_t last;    /* 1: of equal places the last one */
  uint32_t team;    /* threads of an element of out, 2^n */
  uint32_t columns; /* elements of out of a block: CUDA_BLOCK / team */
  uint32_t beside;  /* 1: neighbours are of one team; 0: of neighbours in out */
  uint32_t line;    /* 1: the inner space has one dim */
  uint32_t pieces;  /* 1: a piece can be read at once */
  uint32_t reserved;
} reduce_args;
#endif
