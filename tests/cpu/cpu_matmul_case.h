/* SPDX-License-Identifier: MIT
 *
 * cpu_matmul_case.h - one matmul on generated data through one implementation, judged against sums of
 * doubles that share nothing with the plugin. */
#ifndef BS_TESTS_CPU_MATMUL_CASE_H
#define BS_TESTS_CPU_MATMUL_CASE_H

#include "cpu_fixture.h"

enum { MC_ALL = 0, MC_RUN = 1, MC_PATTERN = 2, MC_LIST = 3 };

typedef struct mc {
  uint32_t dtype, y_type;  /* X and W; Y */
  uint32_t bias, residual; /* dtypes, 0: absent */
  int64_t B, N, K;         /* K: all columns */
  int64_t rows;            /* tokens of the call; 0: B */
  uint32_t columns;        /* MC_...: which columns are packed */
  uint32_t period, bits;   /* of MC_PATTERN */
  uint32_t x_full, activation;
  uint32_t padded;    /* 1: rows of X, Y and residual have padding */
  uint32_t in_place;  /* 1: the residual is Y itself */
  uint32_t integers;  /* 1: small integers, the answer is exact */
  uint64_t workspace; /* the query's limit; 0: none */
  uint64_t seed;
  const char *knobs; /* of the query; NULL: none */
} mc;

typedef struct mc_data {
  mc shape;
  cx_matrix x, w, bias, residual, y;
  bs_partition partition;
  const bs_partition *part; /* NULL: all columns */
  int64_t kept;
  double *exact, *slack; /* [rows][N]: the answer and the bound of its error */
} mc_data;

/* Tensors, data and the f64 answer. */
void mc_make(mc_data *d, const mc *shape);
void mc_free(mc_data *d);
const char *mc_text(const mc *shape); /* static buffer */

/* The query over d's tensors; args and q live in the caller. */
void mc_query(const mc_data *d, const bs_tensor_desc *args[4], bs_op_query *out_query);
/* What `name` answers to the case. */
void mc_ask(const cx *c, const char *name, const mc_data *d, bs_op_answer *out_answer);
/* A plan for several calls: shape.rows may change from one to the next. mc_end frees what there is, also
 * after a failed mc_prepare. */
typedef struct mc_plan {
  const bs_op_impl *impl;
  void *packed, *plan;
} mc_plan;
int32_t mc_prepare(const cx *c, const char *name, mc_data *d, mc_plan *out_plan, bs_error *err);
int32_t mc_call(const mc_plan *p, mc_data *d, bs_error *err);
void mc_end(mc_plan *p);
/* Pack, prepare, run, free: Y is filled. Returns the first failing status. */
int32_t mc_try(const cx *c, const char *name, mc_data *d, bs_error *err);
/* As mc_try, which must succeed; then judges Y: within the bound, guard bytes whole. */
void mc_run(const cx *c, const char *name, mc_data *d);
/* Judge Y as it is. */
void mc_judge(const mc_data *d, const char *who);
void mc_clear_y(mc_data *d);

#endif
