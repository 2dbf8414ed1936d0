/* SPDX-License-Identifier: MIT
 * products.h - the common host part of matmul, its derivatives and those over 2:4 weights: their dtypes,
 * their plans, and launching the kernels of products (product.h). Each op's file defines its A, B and C. */
#ifndef BS_PLUGIN_CUDA_PRODUCTS_H
#define BS_PLUGIN_CUDA_PRODUCTS_H
#include "ops.h"
#include "product.h"

/* The name of all these implementations, so that they share packed weights. */
#define CUDA_TILES "tiles"

typedef struct cuda_product_plan {
  cuda_plan plan;
  const cuda_packed *weight; /* NULL: none */
  cuda_places own;           /* of matmul24_dw, which has no weight */
  cuda_columns columns;      /* with full: which of X or dX */
  uint32_t compute;          /* BS_F32, BS_F64 or BS_I64 */
  uint32_t activation;
  uint32_t full;
} cuda_product_plan;

/* The type of the sums of a times b that become c. */
uint32_t cuda_product_compute(const bs_op_query *query, uint32_t a, uint32_t b, uint32_t c);
/* Answers by these dtypes; NO if the three are neither all float nor all integer. */
int32_t cuda_product_answer(const bs_op_query *query, uint32_t a, uint32_t b, uint32_t c,
                            bs_op_answer *out_answer);
int32_t cuda_product_answer_as(uint32_t compute, bs_op_answer *out_answer);
/* 1 when the matrices of a derivative's query fit: X or dX (arg x), dY (arg dy). */
int cuda_product_shapes(const bs_op_query *query, uint32_t x, uint32_t dy);
int64_t cuda_product_columns(const bs_op_query *query, uint32_t x); /* K_r */

/* Makes a plan of a query that impl serves. needs_weight: the packed weight must be [N,K_r] of its dtype,
 * with N the columns of arg dy; otherwise no weight is read. */
int32_t cuda_product_prepare(const bs_op_impl *impl, void *state, const bs_exec *exec,
                             const bs_op_query *query, uint32_t compute, uint32_t x, uint32_t dy,
                             int needs_weight, void *packed, cuda_product_plan **out_plan, bs_error *err);
void cuda_product_plan_free(void *plan);
int32_t cuda_product_echo(const void *plan, bs_op_echo *out_echo);

/* A side for the product: rows are outputs, columns are r. */
product_side cuda_product_side(const cuda_view *view);
cuda_view cuda_turned(const cuda_view *view); /* rows and columns change places */
/* The plan's columns of `view`, X or dX: a run is a part of the view, a list goes to args with `picks`. */
void cuda_product_pick(const cuda_product_plan *plan, uint32_t picks, cuda_view *view, product_args *args);

int32_t cuda_product_launch(const cuda_device *device, uint32_t compute, CUstream stream,
                            const product_args *args, bs_error *err);
int32_t cuda_product24_launch(const cuda_device *device, uint32_t compute, CUstream stream,
                              const product24_args *args, bs_error *err);
/* The fields of args that a 2:4 weight or its gradient gives. */
void cuda_product24_fill(const cuda_places *places, uint32_t form, product24_args *args);
/* W += delta, in f64, each value rounded once; values beyond the last column of a 2:4 weight stay. */
int32_t cuda_product_add(const cuda_packed *packed, const bs_tensor *delta, bs_error *err);

/* matmul's, of matmul24 too. */
int32_t cuda_matmul_supports(void *state, const bs_op_query *query, bs_op_answer *out_answer);
uint32_t cuda_matmul_compute(const bs_op_query *query);
/* Everything but B and the form. */
void cuda_matmul_args(const cuda_product_plan *plan, bs_tensor *const *args, product_args *out_args);
/* A, B, depth and columns of matmul_dw, matmul_update and the same of a 2:4 weight. */
void cuda_matmul_dw_args(const cuda_product_plan *plan, bs_tensor *const *args, product_args *out_args);
#endif
