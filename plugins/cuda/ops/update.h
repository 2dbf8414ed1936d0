/* SPDX-License-Identifier: MIT
 * update.h - shared parts of sgd_update.c and adamw_update.c: a step changes the packed weight of matmul or
 * of matmul24 in place. */
#ifndef BS_PLUGIN_CUDA_UPDATE_H
#define BS_PLUGIN_CUDA_UPDATE_H
#include "products.h"
#include "update_body.h"

typedef struct cuda_update_plan {
  cuda_plan plan;
  const cuda_packed *weight;
} cuda_update_plan;

/* 0, and a NO, unless args 1 .. states (which may be absent if `optional` has their bit) are f32 matrices of
 * dW's shape, dW is f32 or f64 and the weight a float. */
int cuda_update_fits(const bs_op_query *query, uint32_t states, int optional, bs_op_answer *out_answer);
int32_t cuda_update_prepare(const bs_op_impl *impl, void *state, const bs_exec *exec,
                            const bs_op_query *query, void *packed, void **out_plan, bs_error *err);
/* Lays the walk over views[0 .. count), of which views[count - 1] becomes the weight. */
void cuda_update_lay(const cuda_update_plan *plan, cuda_view *views, uint32_t count, cuda_walk *out_walk,
                     cuda_beyond *out_beyond);
#endif
