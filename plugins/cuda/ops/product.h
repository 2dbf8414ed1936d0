/* SPDX-License-Identifier: MIT
 * product.h - the arguments of kernels for products, on host and device: C[i,j] = the sum over r of A[i,r]
 * B[j,r], r ascending, one accumulator an output. So an output's bits depend only on its row of A, its row of
 * B and their length. matmul, its derivatives and those over 2:4 weights use this. */
#ifndef BS_PLUGIN_CUDA_PRODUCT_H
#define BS_PLUGIN_CUDA_PRODUCT_H
#include "kernel.h"

#if defined(__CUDACC__)
#define PRODUCT_ROLLED _Pragma("unroll 1")
#define PRODUCT_BY4 _Pragma("unroll 4") /* all 16 together take more registers than two blocks have */
#else
#define PRODUCT_ROLLED
#define PRODUCT_BY4
#endif

/* A block makes a tile of 64 x 64 sums, 16 of r at a time; a thread 4 x 4 of them. */
enum { PRODUCT_TILE = 64, PRODUCT_DEPTH = 16, PRODUCT_THREADS = 256, PRODUCT_EACH = 4 };

/* The operand whose columns the list of a partition selects. C's: column columns[j] of C gets sum j. */
enum product_picks {
  PRODUCT_PICKS_NONE = 0,
  PRODUCT_PICKS_A_DEPTH = 1,
  PRODUCT_PICKS_B_ROWS = 2,
  PRODUCT_PICKS_C_COLS = 3
};

/* A or B: rows are the outputs' index, columns are r. If columns are picked the view has all. */
typedef struct product_side {
  cuda_view at;
  uint32_t along; /* 1: a thread loads four neighbours in r, 0: of four rows */
  uint32_t wide;  /* 1: one aligned load reads them if all four exist */
} product_side;

typedef struct product_args {
  product_side a, b;
  cuda_view c, bias, residual;
  const uint32_t *list; /* NULL with PRODUCT_PICKS_NONE */
  const float *alpha;   /* with adds: times this, NULL: times 1 */
  int64_t rows, cols, depth;
  uint32_t picks; /* enum product_picks */
  uint32_t activation;
  uint32_t adds;   /* 1: C += alpha sums (+ residual), in f64, rounded once; no bias and no activation */
  uint32_t scaled; /* 1, without adds: sums times `scale` */
  double scale;
} product_args;

/* The role of a 2:4 weight in the product. */
enum product24_form {
  PRODUCT24_ROWS = 0, /* B is the weight: j its rows, r its columns */
  PRODUCT24_COLS = 1, /* B is the weight: r its rows, j its columns */
  PRODUCT24_OUT = 2   /* C is the weight's values, sums count its columns; others than the kept are dropped */
};

/* p.b.at or p.c is the view of the values, two a group. */
typedef struct product24_args {
  product_args p;
  const unsigned char *codes; /* [rows of the weight, groups]: first place + 4 x second */
  int64_t groups;
  int64_t columns; /* of the weight; the last group may reach beyond */
  uint32_t form;
  uint32_t reserved;
} product24_args;
#endif
