/* SPDX-License-Identifier: MIT
 * columns.h - shared parts of gather_columns.c and scatter_columns.c. */
#ifndef BS_PLUGIN_CUDA_COLUMNS_H
#define BS_PLUGIN_CUDA_COLUMNS_H
#include "ops.h"

/* full_arg: which of the two arguments holds all columns. */
int32_t cuda_columns_supports(const bs_op_query *query, uint32_t full_arg, bs_op_answer *out_answer);
int32_t cuda_columns_prepare(const bs_op_impl *impl, void *state, const bs_exec *exec,
                             const bs_op_query *query, void **out_plan, bs_error *err);
/* kernel: CUDA_GATHER_COLUMNS or CUDA_SCATTER_COLUMNS. */
int32_t cuda_columns_run(void *plan, const bs_tensor *full, const bs_tensor *kept, uint32_t kernel,
                         bs_stream *stream, bs_error *err);
void cuda_columns_plan_free(void *plan);
#endif
