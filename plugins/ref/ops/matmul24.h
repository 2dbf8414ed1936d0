/* SPDX-License-Identifier: MIT
 * matmul24.h - shared parts of the ops over 2:4 weights: the positions (matmul24_pack.c) and the products of
 * the backward pass (matmul24_grad.c). A packed row has two values for each group of four columns; a group's
 * code is first place + 4 x second place, two codes a byte. */
#ifndef BS_PLUGIN_REF_MATMUL24_H
#define BS_PLUGIN_REF_MATMUL24_H
#include "matmul.h"
#include "matmul_grad.h"

typedef struct ref_positions {
  const bs_host *host;
  int64_t rows, cols, groups;
  int64_t stride; /* bytes of a row of codes */
  unsigned char *codes;
} ref_positions;

/* The team reads them from kept. BS_INVALID_ARGUMENT: a group does not keep two. */
int32_t ref_positions_make(const bs_host *host, const bs_exec *exec, const bs_kept *kept,
                           ref_positions *out_positions, bs_error *err);
void ref_positions_free(ref_positions *positions);
/* The column of value j of a row; from `cols` on: no column, the value is zero. */
static inline int64_t ref_position(const ref_positions *p, int64_t row, int64_t j) {
  const unsigned code = p->codes[row * p->stride + j / 4] >> (j & 2 ? 4 : 0);
  return j / 2 * 4 + (code >> (j & 1 ? 2 : 0) & 3u);
}

/* The packed weight: values as matmul's, a row of them 2 * groups long. */
typedef struct ref_packed24 {
  ref_packed values;
  ref_positions at;
} ref_packed24;

int32_t ref_matmul24_pack(void *state, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t ref_matmul24_packed_update(void *packed, const bs_tensor *delta, bs_error *err);
void ref_matmul24_packed_free(void *packed);
/* Sets the places of each row beyond its last column to zero again. */
void ref_packed24_clear(const ref_packed *values);

/* BS_REASON_SPARSITY if positions that fit a weight [rows,cols] are missing, or the partition is not a
 * run. */
int ref_kept_ok(const bs_op_query *query, int64_t rows, int64_t cols, bs_op_answer *out_answer);

/* ---- matmul24_grad.c ------------------------------------------------------------------------ */

enum { REF_24 = 64 }; /* tokens, outputs and columns of a tile */
#define REF_24_BYTES ((uint64_t)8 * (3 * REF_24 * REF_24 + REF_24))

typedef struct ref_grad24_job ref_grad24_job;
typedef int32_t (*ref_grad24_tile)(const ref_grad24_job *job, unsigned char *workspace, int64_t i, int64_t n,
                                   int64_t k, int64_t cols);

typedef struct ref_grad24_plan {
  const bs_host *host;
  const bs_exec *exec;
  ref_packed24 *weight;    /* NULL: matmul24_dw */
  const ref_positions *at; /* the weight's, or own */
  ref_positions own;
  unsigned char *workspace;
  uint32_t members;
  uint32_t compute; /* BS_F32, BS_F64 or BS_I64 */
  int64_t begin;    /* of the columns in X or dX */
} ref_grad24_plan;

struct ref_grad24_job {
  const ref_grad24_plan *plan;
  ref_view dy, x, out; /* x: X or dX; out: dW or the packed values */
  int64_t rows;        /* rows of the tiles: tokens for dX, outputs for dW */
  ref_grad24_tile tile;
  /* n sums of the compute dtype are row i, values j.. of dW. */
  int32_t (*finish)(const ref_grad24_job *job, int64_t i, int64_t j, int64_t n, unsigned char *sums);
  double alpha;
  int32_t failed;
};

/* Answers for X or dX (arg x), dY (arg dy) and three dtypes, as ref_grad_answer. */
int32_t ref_grad24_answer(const bs_op_query *query, uint32_t x, uint32_t dy, uint32_t a, uint32_t b,
                          uint32_t c, bs_op_answer *out_answer);
int32_t ref_grad24_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                           const bs_op_query *query, uint32_t compute, ref_packed24 *weight, void **out_plan,
                           bs_error *err);
void ref_grad24_plan_free(void *plan);
int32_t ref_grad24_run(ref_grad24_job *job, bs_error *err);
int32_t ref_grad24_dx_tile(const ref_grad24_job *job, unsigned char *workspace, int64_t t0, int64_t tokens,
                           int64_t k0, int64_t cols);
int32_t ref_grad24_dw_tile(const ref_grad24_job *job, unsigned char *workspace, int64_t n0, int64_t rows,
                           int64_t k0, int64_t cols);
/* to[c][r] (REF_24 a row) = rows r0.. by columns c0.. of v in the compute dtype. line: REF_24 elements. */
int32_t ref_turn24(const bs_host *host, const ref_view *v, int64_t r0, int64_t rows, int64_t c0, int64_t cols,
                   uint32_t compute, unsigned char *line, unsigned char *to);
/* sum[t] += value * v[t], product and sum rounded. */
void ref_axpy24(uint32_t compute, unsigned char *sum, const unsigned char *v, const unsigned char *value,
                int64_t n);
/* Values first.. of row r as the compute dtype. */
int32_t ref_values24(const ref_packed24 *w, int64_t r, int64_t first, int64_t count, uint32_t compute,
                     unsigned char *out);
#endif
