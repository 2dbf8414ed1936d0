/* SPDX-License-Identifier: MIT
 * scatter_columns.c - out[b, columns[i]] = in[b,i]; the other columns of out stay as they are.
 * Any dtype, any strides; bits are copied. The loop is in columns.c. */
#include "../ref.h"

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  return ref_columns_supports(query, 1, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return ref_columns_prepare(&ref_scatter_columns, state, exec, query, out_plan, err);
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  return ref_columns_run(plan, args[1], args[0], 1, err);
}

const bs_src_loc ref_scatter_columns_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_scatter_columns = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "scatter_columns",
    .backend = "ref",
    .name = "portable",
    .summary = "copies the partition's columns",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_columns_plan_free,
};
