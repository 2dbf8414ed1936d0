/* SPDX-License-Identifier: MIT
 * rows.h - the arguments of kernels for products of few tokens, on host and device: Y = X W^T where the time
 * is that of reading W. A warp reads 16 bytes a lane of four rows of W and multiplies them with every token;
 * `splits` warps share four rows. Lane, warp and piece determine which columns a thread sums, in rising
 * order; the threads' sums are added in one order. So bits depend only on the shape of W, not on the device
 * or the call. */
#ifndef BS_PLUGIN_CUDA_ROWS_H
#define BS_PLUGIN_CUDA_ROWS_H
#include "product.h"

enum {
  ROWS_THREADS = 256,
  ROWS_WARPS = ROWS_THREADS / 32,
  ROWS_EACH = 4,   /* rows of W of a warp */
  ROWS_FEW = 4,    /* tokens of rows_f32_4, rows_i32_4 */
  ROWS_TOKENS = 16 /* of rows_f32_16, rows_i32_16: the most */
};

/* p.a: X, whose rows lie along K; p.b: the packed W. p.a.wide: rows of X begin on 16 bytes. */
typedef struct rows_args {
  product_args p;
  int64_t pieces;  /* of 16 bytes in a row of W */
  uint32_t splits; /* 1, 2, 4, 8 */
  uint32_t reserved;
} rows_args;
#endif
