/* SPDX-License-Identifier: MIT
 * scatter_columns.c - out[b, columns[i]] = in[b,i]; the other columns of out stay as they are, any dtype, any
 * strides; bits are copied. What both directions share is in columns.c. */
#include "columns.h"

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  return cuda_columns_supports(query, 1, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return cuda_columns_prepare(&cuda_scatter_columns, state, exec, query, out_plan, err);
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  return cuda_columns_run(plan, args[1], args[0], CUDA_SCATTER_COLUMNS, stream, err);
}

const bs_op_impl cuda_scatter_columns = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "scatter_columns",
    .backend = "cuda",
    .name = "kernels",
    .summary = "copies the partition's columns",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_columns_plan_free,
    .echo = cuda_echo_op,
};
