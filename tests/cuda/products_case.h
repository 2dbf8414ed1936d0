/* SPDX-License-Identifier: MIT
 * products_case.h - one weight and the matrices around it, for ref and for the cuda plugin: packed by both,
 * multiplied by both forward and backward, compared to the bit. */
#ifndef BS_TESTS_CUDA_PRODUCTS_CASE_H
#define BS_TESTS_CUDA_PRODUCTS_CASE_H
#include "plain.h"

/* How matrices lie. */
enum { PC_DENSE = 0, PC_GAPS, PC_SPREAD, PC_TURNED, PC_WIDE, PC_LAYS };
/* Which columns a weight has of K. */
enum { PC_ALL = 0, PC_RUN, PC_PATTERN, PC_LIST };

enum { PC_BIAS = 2, PC_RESIDUAL = 3 };

typedef struct pc_shape {
  uint32_t x, w, y;    /* X, the weight, Y and the residual; bias has X's */
  uint32_t grad, sums; /* dY; dX and dW */
  int64_t B, N, K;
  int lay, where; /* PL_FIRST, ... */
  int part, full; /* PC_ALL, ...; full: X and dX have all K columns */
  uint32_t activation, accumulate;
  int epilogue;  /* 1: with bias and residual; PC_BIAS, PC_RESIDUAL: one of them */
  uint32_t bias; /* 0: X's */
  int64_t rare;  /* one value in so many is special */
  int of24;
  /* NULL: our own tiles */
  const bs_op_impl *(*impl)(const char *op);
} pc_shape;

typedef struct pc {
  pl *p;
  pc_shape s;
  int64_t kept, values; /* columns of the weight, and of its packed rows */
  bs_partition partition;
  uint32_t *columns;
  unsigned char *groups;
  fx_kept_table table;
  bs_kept positions;
  fx_tensor w;
  pl_tensor x, bias, residual, dy, alpha;
  pl_tensor y[2], dx[2], dw[2], back[2]; /* the plugin's and ref's */
  void *packed[2];
  uint64_t bytes[2];
} pc;

enum { PC_CUDA = 0, PC_REF = 1 };

void pc_open(pc *c, pl *p, const pc_shape *s, uint64_t *seed); /* packed by both */
void pc_close(pc *c);
void pc_forward(pc *c);
void pc_dx(pc *c);
void pc_dw(pc *c);
void pc_update(pc *c); /* of float weights: and packed_update by dw where that is f32 */
void pc_read(pc *c);   /* both weights are the same */
void pc_all(pl *p, const pc_shape *s, uint64_t *seed);
bs_op_query pc_query(const pc *c, const char *op, const bs_tensor_desc *const *args, uint32_t nargs);
const char *pc_text(const pc *c, const char *what);
void pc_lay(pl_tensor *t, uint32_t dtype, int64_t rows, int64_t cols, int lay, int where);
const bs_op_impl *pc_impl(const pc *c, const char *op);
#endif
