/* SPDX-License-Identifier: MIT
 * gradient.h - dY^T X by cuBLASLt, for matmul_dw and matmul_update: in column-major order it is X^T [K,B], in
 * place, times the transposed dY^T [N,B]. */
#ifndef BS_PLUGIN_CUDA_CUBLASLT_GRADIENT_H
#define BS_PLUGIN_CUDA_CUBLASLT_GRADIENT_H
#include "product.h"

/* Fills all of the ask except D, which has `dtype`. 0 and a NO: not served. */
int cuda_lt_gradient(cuda_state *state, const bs_op_query *query, uint32_t dtype, cuda_lt_ask *out_ask,
                     bs_op_answer *out_answer);
/* The run's shape and operands but D; X's listed columns are gathered. */
int32_t cuda_lt_gradient_begin(const cuda_lt_plan *plan, bs_tensor *const *args, bs_stream *stream,
                               cuda_lt_shape *out_shape, cuda_lt_operands *out_operands, bs_error *err);
#endif
