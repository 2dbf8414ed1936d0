/* SPDX-License-Identifier: MIT
 * ref.h - shared parts of the ref plugin: its state, views of matrices and the op table's functions. The
 * plugin defines the meaning of every op, portably: clear and right first, fast second. */
#ifndef BS_PLUGIN_REF_H
#define BS_PLUGIN_REF_H
#include "blockshock/plugin.h"

typedef struct ref_state {
  const bs_host *host;
} ref_state;

/* A matrix in memory: element (r, c) of `dtype` at data + (r * row + c * col) * size bytes. */
typedef struct ref_view {
  unsigned char *data;
  uint32_t dtype;
  uint32_t size;
  int64_t rows, cols;
  int64_t row, col;
} ref_view;

/* The partition's columns as a plan keeps them: columns NULL means begin, begin+1, ... */
typedef struct ref_columns {
  int64_t begin, count, total;
  uint32_t *columns;
} ref_columns;

/* The source location of each, for `bsrun plugins inspect`. */
extern const bs_src_loc ref_activate_at, ref_activate_dx_at, ref_adamw_update_at, ref_backend_at,
    ref_convert_at, ref_dequantize_product_at, ref_dequantize_sum_at, ref_expand24_at, ref_gather_columns_at,
    ref_loss_gradient_at, ref_matmul_at, ref_matmul24_at, ref_matmul24_dw_at, ref_matmul24_dx_at,
    ref_matmul24_update_at, ref_matmul_dw_at, ref_matmul_dx_at, ref_matmul_update_at, ref_quantize_groups_at,
    ref_scaled_matmul_at, ref_scatter_columns_at, ref_sgd_update_at, ref_tree_sum_at, ref_attention_at,
    ref_attention_dx_at, ref_contract_at, ref_map_at, ref_normalize_at, ref_put_at, ref_reduce_at,
    ref_take_at, ref_topk_at, ref_matmul_q_at, ref_take_q_at;
extern const bs_backend ref_backend;
extern const bs_op_impl ref_matmul;
extern const bs_op_impl ref_matmul_dx;
extern const bs_op_impl ref_matmul_dw;
extern const bs_op_impl ref_matmul_update;
extern const bs_op_impl ref_matmul24;
extern const bs_op_impl ref_matmul24_dx;
extern const bs_op_impl ref_matmul24_dw;
extern const bs_op_impl ref_matmul24_update;
extern const bs_op_impl ref_expand24;
extern const bs_op_impl ref_gather_columns;
extern const bs_op_impl ref_scatter_columns;
extern const bs_op_impl ref_convert;
extern const bs_op_impl ref_activate;
extern const bs_op_impl ref_activate_dx;
extern const bs_op_impl ref_sgd_update;
extern const bs_op_impl ref_adamw_update;
extern const bs_op_impl ref_quantize_groups;
extern const bs_op_impl ref_dequantize_sum;
extern const bs_op_impl ref_dequantize_product;
extern const bs_op_impl ref_scaled_matmul;
extern const bs_op_impl ref_loss_gradient;
extern const bs_op_impl ref_tree_sum;
extern const bs_op_impl ref_map;
extern const bs_op_impl ref_normalize;
extern const bs_op_impl ref_attention;
extern const bs_op_impl ref_attention_dx;
extern const bs_op_impl ref_contract;
extern const bs_op_impl ref_reduce;
extern const bs_op_impl ref_take;
extern const bs_op_impl ref_put;
extern const bs_op_impl ref_topk;
extern const bs_op_impl ref_matmul_q;
extern const bs_op_impl ref_take_q;

/* ---- ops/common.c --------------------------------------------------------------------------- */

/* Answers: fill out_answer and return BS_OK, so that supports can return them. */
int32_t ref_answer_no(bs_op_answer *out_answer, uint32_t reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int32_t ref_answer_native(bs_op_answer *out_answer, uint32_t tolerance, uint64_t workspace, const char *text);
/* prepare and pack refuse the queries to which supports answers NO. */
int32_t ref_require(const bs_op_impl *impl, void *state, const bs_op_query *query, bs_error *err);
/* 1 when arg i of the query is a descriptor of `rank` dimensions with a known dtype and legal sizes. */
int ref_arg_ok(const bs_op_query *query, uint32_t i, uint32_t rank);
int ref_is_float(uint32_t dtype);
int ref_is_integer(uint32_t dtype);
/* A [1, n] view of a vector, or a matrix's own. */
ref_view ref_view_of(const bs_tensor *tensor);
/* Copy the partition's columns; NULL partition: all of total. BS_NO_MEMORY. */
int32_t ref_columns_copy(const bs_host *host, const bs_partition *partition, int64_t total,
                         ref_columns *out_columns, bs_error *err);
void ref_columns_free(const bs_host *host, ref_columns *columns);
int64_t ref_column(const ref_columns *columns, int64_t i);
/* Member's share [*out_begin, *out_end) of `total` items, sizes differing by at most one. */
void ref_share(int64_t total, uint32_t member, uint32_t width, int64_t *out_begin, int64_t *out_end);
/* Runs body on the team. `failed`: set if a member fails to convert; reported as one error. NULL: members do
 * not fail. */
int32_t ref_team_run(const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t), void *job,
                     const int32_t *failed, bs_error *err);
/* Like ref_team_run, for members with separate errors: job_errors is the job's array of them, valid during
 * this call. The first error is reported. */
int32_t ref_team_errors(const bs_host *host, const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t),
                        void *job, bs_error **job_errors, bs_error *err);
/* 1, or 0 after answering NO if a member needs more bytes than the query allows; and the number of members
 * that may work. */
int ref_workspace_fits(const bs_op_query *query, uint64_t bytes, bs_op_answer *out_answer);
uint32_t ref_workspace_members(const bs_op_query *query, const bs_exec *exec, uint64_t bytes);
/* An op of one input and one output of the same shape. part does columns begin..end of one row; `user` is the
 * op's own. */
typedef struct ref_rows {
  const bs_host *host;
  ref_view in, out;
  int32_t (*part)(const struct ref_rows *rows, int64_t row, int64_t begin, int64_t end);
  const void *user;
  int32_t failed; /* any member's failure; written with relaxed atomics */
} ref_rows;
/* Every row: rows are divided over the team, or columns when there are fewer rows than members. */
int32_t ref_rows_run(ref_rows *rows, const bs_exec *exec, bs_error *err);
/* out[0..count) of out_dtype = row r, columns columns[first..) (NULL: first..) of v, converted. */
int32_t ref_load(const bs_host *host, const ref_view *v, int64_t r, const ref_columns *columns, int64_t first,
                 int64_t count, uint32_t out_dtype, void *out);
/* Row r, columns first.. of v = in[0..count) of in_dtype, converted. Elements between strides stay. */
int32_t ref_store(const bs_host *host, const ref_view *v, int64_t r, int64_t first, int64_t count,
                  uint32_t in_dtype, const void *in);

/* ops/activate.c: an activation of one value; NaN stays. */
double ref_activation(uint32_t activation, double value);
/* The type in which values of `in` and `out` are computed, as in the product's epilogue: BS_I64 for integers,
 * BS_F64 if either is f64, else BS_F32. */
uint32_t ref_compute_of(uint32_t in, uint32_t out);

/* ---- ops/plan.c: plans and runs ----------------------------------------------------------------- */

/* The common plan; a larger one begins with it. */
typedef struct ref_plan {
  const bs_host *host;
  const bs_exec *exec;
  int64_t attrs[8];
  double numbers[4];
  uint32_t activation, nargs;
} ref_plan;
/* Refuses what supports refuses, then makes a plan of `size` bytes, with zeros after its first part. */
int32_t ref_plan_make(const bs_op_impl *impl, ref_state *state, const bs_exec *exec, const bs_op_query *query,
                      size_t size, void **out_plan, bs_error *err);
void ref_plan_free(void *plan);
/* 1 when the arguments are matrices and vectors of these ranks; those with their bit in `optional` may be
 * absent. Else 0, and the answer is NO. */
int ref_args_fit(const bs_op_query *query, uint32_t n, const uint32_t *ranks, uint32_t optional,
                 bs_op_answer *out_answer);

/* A run over such arguments. */
typedef struct ref_job {
  const ref_plan *plan;
  ref_view v[8];  /* data NULL: absent */
  int32_t failed; /* any member's failure; written with relaxed atomics */
} ref_job;
/* `share` does a member's part of the job. If one fails the error has this id and text. */
int32_t ref_job_run(const ref_plan *plan, bs_tensor *const *args, uint32_t nargs,
                    void (*share)(void *job, uint32_t member, uint32_t width), const char *id,
                    const char *text, bs_error *err);
/* A member's part of so many items. */
void ref_job_items(ref_job *job, int64_t items, uint32_t member, uint32_t width,
                   int32_t (*one)(const ref_job *job, int64_t item));

/* ---- ops/space.c: tensors of any rank, the ops of graphs -------------------------------------- */

/* In prepare: scratch of `bytes` a member of the team; in run: member 0's. */
int32_t ref_scratch_reserve(ref_plan *plan, uint64_t bytes, bs_error *err);
void *ref_scratch(const ref_plan *plan);
/* 1: ref knows the dtypes of all present arguments. */
int ref_args_known(const bs_op_query *query);

/* A tensor spread over the dims of its own space, or of a larger one. Then its last dimensions are aligned,
 * and it repeats (stride 0) along dims that it lacks or has as 1. data NULL: no tensor. */
typedef struct ref_spread {
  unsigned char *data;
  uint32_t dtype, size, rank, reserved;
  int64_t dims[BS_MAX_DIMS], strides[BS_MAX_DIMS];
} ref_spread;
/* `tensor` may be NULL. */
ref_spread ref_spread_of(const bs_tensor *tensor, uint32_t rank, const int64_t *dims);
/* Elements of dims[0..rank); of a space without dimensions 1. */
int64_t ref_elements(uint32_t rank, const int64_t *dims);
/* Lines, each along the last dimension: elements of the dims but the last one. */
int64_t ref_lines(uint32_t rank, const int64_t *dims);
/* Coordinates of element `i`, row-major. */
void ref_coordinates(int64_t i, uint32_t rank, const int64_t *dims, int64_t *out_at);
/* The address of the element at these coordinates. */
unsigned char *ref_at(const ref_spread *s, const int64_t *at);
/* Line i as a view of one row. */
ref_view ref_line(const ref_spread *s, int64_t i);
/* A line along dimension `axis` that begins at the coordinates `at`. */
ref_view ref_line_along(const ref_spread *s, uint32_t axis, const int64_t *at);
/* Stores n values of BS_F32, BS_F64 or BS_I64 as expr.h defines for outputs: floats to integers towards zero,
 * an integer's low bits to a narrower one, else as ref_store does. */
int32_t ref_store_value(const bs_host *host, const ref_view *v, int64_t first, int64_t n, uint32_t compute,
                        const void *in);

/* Independent items, divided over the team. part does items begin..end; it may fail with an error, of which
 * one is reported. */
typedef struct ref_items {
  const ref_plan *plan;
  int64_t count;
  int32_t (*part)(const struct ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err);
  void *user;
  int32_t failed; /* any member's failure; atomic, as is the next one */
  uint32_t told;  /* err is taken */
  bs_error *err;
} ref_items;
int32_t ref_items_run(ref_items *items, bs_error *err);
#endif
