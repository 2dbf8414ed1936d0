/* SPDX-License-Identifier: MIT
 *
 * cpu_24_case.h - one product over a 2:4 weight of the cpu plugin on generated data, judged against sums of
 * doubles over the kept weights that share nothing with the plugin. */
#ifndef BS_TESTS_CPU_24_CASE_H
#define BS_TESTS_CPU_24_CASE_H

#include "cpu_fixture.h"

enum { F24_FORWARD = 0, F24_DX = 1, F24_DW = 2, F24_UPDATE = 3, F24_OPS = 4 };

typedef struct f24 {
  uint32_t op;                     /* F24_... */
  uint32_t x_type, w_type, y_type; /* y: Y or dY; X and dX: x */
  int64_t B, N, K;
  int64_t rows;         /* tokens of the call; 0: B */
  int64_t begin, total; /* of the columns in X, which is whole; total 0: X is [B,K] */
  uint32_t half;        /* 1: the complement of the seeded mask */
  uint32_t padded;      /* 1: rows of all matrices have padding */
  uint32_t integers;    /* 1: small integers: the answer is exact */
  uint32_t transposable;
  uint32_t bias, residual, activation; /* F24_FORWARD; bias and residual are dtypes */
  uint64_t seed;
  const char *knobs; /* of the forward product's query; NULL: none */
} f24;

typedef struct f24_data {
  f24 shape;
  cx_matrix x, y, w; /* X or dX; Y or dY; the source */
  cx_matrix dw, alpha, bias, residual, back;
  unsigned char *bits; /* [N][groups] */
  bs_kept kept;
  bs_partition run;
  double *exact, *slack;
} f24_data;

void f24_make(f24_data *d, const f24 *shape);
void f24_free(f24_data *d);
const char *f24_text(const f24 *shape); /* static buffer */
/* The query of an op over d's tensors; args lives in the caller. */
bs_op_query f24_query(const f24_data *d, const char *op, const bs_tensor_desc *args[4]);
void *f24_pack(const cx *c, f24_data *d);
int32_t f24_try_pack(const cx *c, f24_data *d, void **out_packed, uint64_t *out_bytes, bs_error *err);
void f24_packed_free(const cx *c, void *packed);
int32_t f24_try(const cx *c, f24_data *d, void *packed, bs_error *err);
/* Pack, run (which must succeed), read back, free, judge. */
void f24_run(const cx *c, f24_data *d);
void f24_judge(const f24_data *d, const char *who);
/* Bytes of Y, dX, dW or the updated values. */
const void *f24_result(const f24_data *d, size_t *out_bytes);
/* Length of a row of kept values, and the place of column k of row n in it, -1: not kept. */
int64_t f24_length(const f24 *shape);
int64_t f24_place(const f24_data *d, int64_t n, int64_t k);

#endif
