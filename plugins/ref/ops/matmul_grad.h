/* SPDX-License-Identifier: MIT
 * matmul_grad.h - shared parts of matmul_dx.c, matmul_dw.c and matmul_update.c: all three are sums of
 * left[i,r] * right[r,j] over r, in ascending order of r. matmul_grad.c has the plan and the arithmetic; each
 * op defines left, right and the use of the sums. */
#ifndef BS_PLUGIN_REF_MATMUL_GRAD_H
#define BS_PLUGIN_REF_MATMUL_GRAD_H
#include "matmul.h"

/* A tile is ROWS by COLS sums, DEPTH of r at a time. */
enum { REF_GRAD_ROWS = 32, REF_GRAD_COLS = 128, REF_GRAD_DEPTH = 64 };
/* One member's workspace: left, one row of right, the sums; 8 bytes an element at most. */
#define REF_GRAD_BYTES \
  ((uint64_t)8 * (REF_GRAD_ROWS * REF_GRAD_DEPTH + REF_GRAD_COLS + REF_GRAD_ROWS * REF_GRAD_COLS))

typedef struct ref_grad_plan {
  const bs_host *host;
  const bs_exec *exec;
  ref_packed *weight; /* NULL: none */
  unsigned char *workspace;
  uint32_t members;
  uint32_t compute; /* BS_F32, BS_F64 or BS_I64 */
  uint32_t full;    /* 1: X or dX has all columns, `columns` are the packed ones */
  ref_columns columns;
} ref_grad_plan;

/* One run. left[i,r] is row i of `left`, or row r when `turned`. */
typedef struct ref_grad_job {
  const ref_grad_plan *plan;
  ref_view left, right, out;
  uint32_t turned;
  uint32_t pick; /* right's columns are picked by plan->columns */
  int64_t rows, cols, depth;
  /* n sums of the compute dtype are row i, columns j.. of the result. */
  int32_t (*finish)(const struct ref_grad_job *job, int64_t i, int64_t j, int64_t n, unsigned char *sums);
  double alpha;
  int32_t failed;
} ref_grad_job;

/* Answers NO, or NATIVE by the dtype of the sums: by default f64 if one of the three is f64. */
int32_t ref_grad_answer(const bs_op_query *query, uint32_t a, uint32_t b, uint32_t c,
                        bs_op_answer *out_answer);
uint32_t ref_grad_compute(const bs_op_query *query, uint32_t a, uint32_t b, uint32_t c);
/* 1 when the matrices of the query fit: X or dX (arg x), dY (arg dy). */
int ref_grad_shapes(const bs_op_query *query, uint32_t x, uint32_t dy);
/* A plan of a query that `impl` serves; K: columns of X or dX. The weight, if any, must be [N,K_r]. */
int32_t ref_grad_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                         const bs_op_query *query, uint32_t compute, uint32_t x, uint32_t dy,
                         ref_packed *weight, ref_grad_plan **out_plan, bs_error *err);
void ref_grad_plan_free(void *plan);
int32_t ref_grad_run(ref_grad_job *job, bs_error *err);
/* n sums, REF_GRAD_COLS at most, to row i, columns j.. of out, rounded; i32 keeps the low 32 bits. */
int32_t ref_store_sums(const bs_host *host, const ref_view *out, int64_t i, int64_t j, int64_t n,
                       uint32_t compute, const unsigned char *sums);
/* ref_store_sums to job->out. */
int32_t ref_grad_store(const ref_grad_job *job, int64_t i, int64_t j, int64_t n, unsigned char *sums);
/* alpha times sum c, rounded to the dtype of the sums. */
static inline double ref_grad_delta(uint32_t compute, double alpha, const unsigned char *sums, int64_t c) {
  if (compute != BS_F32) return alpha * ((const double *)(const void *)sums)[c];
  const float delta = (float)alpha * ((const float *)(const void *)sums)[c];
  return (double)delta;
}
#endif
