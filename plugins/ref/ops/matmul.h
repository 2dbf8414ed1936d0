/* SPDX-License-Identifier: MIT
 * matmul.h - the records shared by matmul.c (checks, plan, run), matmul_pack.c (the weight) and
 * matmul_tile.c (the arithmetic). */
#ifndef BS_PLUGIN_REF_MATMUL_H
#define BS_PLUGIN_REF_MATMUL_H
#include "../ref.h"

/* A tile is TOKENS rows of X by OUTPUTS rows of W, summed over blocks of DEPTH columns. */
enum { REF_TOKENS = 64, REF_OUTPUTS = 64, REF_DEPTH = 64 };
/* One member's workspace: the X block, the transposed W block and the sums, 8 bytes an element at most. */
#define REF_TILE_BYTES \
  ((uint64_t)8 * (REF_TOKENS * REF_DEPTH + REF_DEPTH * REF_OUTPUTS + REF_TOKENS * REF_OUTPUTS))

struct ref_positions;

/* The packed weight: row-major [rows, cols] in the weight dtype; cols are the partition's. Of matmul24's too:
 * an op that changes any weight (step.h) finds it at the same place. */
typedef struct ref_packed {
  const bs_host *host;
  const bs_exec *exec;
  unsigned char *data;
  uint32_t dtype;
  uint32_t size;
  int64_t rows, cols;
  const struct ref_positions *at; /* of 2:4 values; NULL: all columns */
} ref_packed;

struct ref_matmul_job;
/* One tile: tokens [t0, t0+tokens) by outputs [n0, n0+outputs), all columns, epilogue and store. */
typedef int32_t (*ref_tile_fn)(const struct ref_matmul_job *job, unsigned char *workspace, int64_t t0,
                               int64_t tokens, int64_t n0, int64_t outputs);

typedef struct ref_matmul_plan {
  const bs_host *host;
  const bs_exec *exec;
  const ref_packed *weight;
  ref_tile_fn tile;
  unsigned char *workspace; /* members * REF_TILE_BYTES */
  uint32_t members;         /* of the team that work: as many as the workspace limit allows */
  uint32_t compute;         /* BS_F32, BS_F64 or BS_I64: the dtype of products, sums and epilogue */
  uint32_t activation;
  uint32_t gathers; /* 1: X is full, `columns` picks from it */
  ref_columns columns;
} ref_matmul_plan;

/* One run's views; bias and residual have data NULL when absent. */
typedef struct ref_matmul_job {
  const ref_matmul_plan *plan;
  ref_view x, bias, residual, y;
  int32_t failed;
} ref_matmul_job;

int32_t ref_matmul_pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                        void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t ref_matmul_packed_update(void *packed, const bs_tensor *delta, bs_error *err);
int32_t ref_matmul_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void ref_matmul_packed_free(void *packed);
/* BS_INVALID_ARGUMENT unless it is [n,k] of the query's dtype; cols: its columns, of 2:4 weights dense ones.
 */
int32_t ref_weight_check(const bs_op_query *query, const ref_packed *w, int64_t cols, int64_t n, int64_t k,
                         bs_error *err);
int32_t ref_matmul_supports(void *state, const bs_op_query *query, bs_op_answer *out_answer);
/* A plan whose tiles are made by `tile` from a weight with rows of `length`. */
int32_t ref_matmul_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                           const bs_op_query *query, const ref_packed *weight, int64_t length,
                           ref_tile_fn tile, void **out_plan, bs_error *err);
int32_t ref_matmul_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err);
void ref_matmul_plan_free(void *plan);
int32_t ref_matmul_tile(const ref_matmul_job *job, unsigned char *workspace, int64_t t0, int64_t tokens,
                        int64_t n0, int64_t outputs);
/* Bias, activation and residual of n sums of the compute dtype: row t, columns n0.. of Y. bias: of these. */
int32_t ref_matmul_finish(const ref_matmul_job *job, unsigned char *sums, const unsigned char *bias,
                          int64_t t, int64_t n0, int64_t n);
#endif
