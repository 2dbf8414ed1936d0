/* SPDX-License-Identifier: MIT
 * gather_columns.c - out[b,i] = X[b, columns[i]], any dtype, any strides; bits are
 * copied. What both directions share is in columns.c. */
#include "columns.h"

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  return cuda_columns_supports(query, 0, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return cuda_columns_prepare(&cuda_gather_columns, state, exec, query, out_plan, err);
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  return cuda_columns_run(plan, args[0], args[1], CUDA_GATHER_COLUMNS, stream, err);
}

const bs_op_impl cuda_gather_columns = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "gather_columns",
    .backend = "cuda",
    .name = "kernels",
    .summary = "copies the partition's columns",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_columns_plan_free,
    .echo = cuda_echo_op,
};
