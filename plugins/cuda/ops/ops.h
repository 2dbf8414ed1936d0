/* SPDX-License-Identifier: MIT
 * ops.h - the common host part of the ops (ops/NAME.c): answers, views, columns on the device, plans. */
#ifndef BS_PLUGIN_CUDA_OPS_H
#define BS_PLUGIN_CUDA_OPS_H
#include "../cuda.h"
#include "kernel.h"

/* Answers: fill out_answer and return BS_OK, so that supports can return them. */
int32_t cuda_answer_no(bs_op_answer *out_answer, uint32_t reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int32_t cuda_answer(bs_op_answer *out_answer, uint32_t level, uint32_t score, uint32_t tolerance,
                    uint64_t workspace, const char *algo, const char *text);
/* prepare and pack refuse the queries to which supports answers NO. */
int32_t cuda_require(const bs_op_impl *impl, void *state, const bs_op_query *query, bs_error *err);
/* 1 when arg i of the query is a descriptor of `rank` dimensions with a known dtype and legal sizes. */
int cuda_arg_ok(const bs_op_query *query, uint32_t i, uint32_t rank);
int cuda_is_float(uint32_t dtype);
int cuda_is_integer(uint32_t dtype);

/* The view that a kernel is given; a NULL tensor gives an absent one. */
cuda_view cuda_view_of(const bs_tensor *tensor);
/* The partition's columns in device memory (of exec); NULL partition: all of total. */
int32_t cuda_columns_make(const bs_exec *exec, const bs_host *host, const bs_partition *partition,
                          int64_t total, cuda_columns *out_columns, bs_error *err);
void cuda_columns_free(const bs_exec *exec, cuda_columns *columns);

/* A plan that only needs its device; most ops' plans begin with it. */
typedef struct cuda_plan {
  cuda_state *state;
  const bs_host *host;
  const bs_exec *exec;
  cuda_device *device; /* exec->device */
  const char *op;
} cuda_plan;
/* Require the query, then a zero-filled plan of `bytes` (>= sizeof(cuda_plan)). */
int32_t cuda_plan_new(const bs_op_impl *impl, void *state, const bs_exec *exec, const bs_op_query *query,
                      uint64_t bytes, void **out_plan, bs_error *err);
void cuda_plan_free(void *plan);
/* Adds to an echo (bs_echo_begin) the registers and memory of a loaded kernel, with `dynamic` bytes of shared
 * memory a launch, and a hash of its code. */
void cuda_echo_kernel(const cuda_device *device, uint32_t kernel, uint32_t dynamic, bs_op_echo *echo);
/* bs_op_impl.echo of plans that begin with a cuda_plan and launch the one kernel that has the op's name. */
int32_t cuda_echo_op(const void *plan, bs_op_echo *out_echo);

/* The two kept of each four columns (ops/matmul24_pack.c): a byte a group, first place + 4 x second place,
 * row after row. With a byte, not half of one, any thread finds its group without a shift; next to two values
 * of 16 bits it is a fifth of the bytes read. The column of value j of a row: j / 2 * 4 + (code >> j % 2 * 2
 * & 3); values at `cols` or above do not exist. */
typedef struct cuda_places {
  const bs_exec *exec;
  unsigned char *codes; /* device memory, [rows, groups] */
  int64_t rows, cols, groups;
} cuda_places;
int32_t cuda_places_make(const bs_exec *exec, const bs_host *host, const bs_kept *kept,
                         cuda_places *out_places, bs_error *err);
void cuda_places_free(cuda_places *places);
/* Puts values back at their places, zeros elsewhere (ops/expand24.c). */
int32_t cuda_expand24_views(const cuda_device *device, const cuda_view *values, const cuda_places *places,
                            const cuda_view *out, CUstream stream, bs_error *err);
/* Returns 0 and answers NO if positions that fit a weight [rows,cols] are missing, or the partition is not a
 * run of groups. */
int cuda_kept_ok(const bs_op_query *query, int64_t rows, int64_t cols, bs_op_answer *out_answer);

/* The packed weight of matmul (ops/matmul_pack.c): row-major [rows, cols] of dtype, with `line` elements from
 * row to row, so that rows begin on 16 bytes. Elements after a row's cols are zero. A cuda_packed24 of
 * matmul24 begins with one too: an op that changes any weight finds it at the same place. */
typedef struct cuda_packed {
  cuda_state *state;
  const bs_exec *exec;
  void *data; /* device memory; NULL when the weight is empty */
  int64_t rows, cols, line;
  uint32_t dtype, size;
  const cuda_places *places; /* of 2:4 values, cols = 2 groups; NULL: all columns */
} cuda_packed;

/* The packed weight of matmul24: the kept values of a row, ascending, zeros beyond the last column. */
typedef struct cuda_packed24 {
  cuda_packed values;
  cuda_places places;
} cuda_packed24;

/* matmul's functions, which serve every implementation of matmul with this packed form. `impl` refuses the
 * queries to which its supports answers NO. */
int32_t cuda_packed_make(const bs_op_impl *impl, void *state, const bs_exec *exec, const bs_op_query *query,
                         const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cuda_packed_update(void *packed, const bs_tensor *delta, bs_error *err); /* of a cuda_packed24 too */
int32_t cuda_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cuda_packed_free(void *packed);
/* The weight as a kernel is given it. */
cuda_view cuda_packed_view(const cuda_packed *packed);
/* Device memory of rows that begin on 16 bytes; BS_NO_MEMORY, BS_OVERFLOW. */
int32_t cuda_packed_alloc(cuda_packed *packed, uint64_t *out_bytes, bs_error *err);

/* scaled_matmul.c: the queries that both implementations accept. */
int32_t cuda_scaled_supports(void *state, const bs_op_query *query, bs_op_answer *out_answer);

extern const bs_op_impl cuda_activate, cuda_activate_dx, cuda_adamw_update, cuda_attention,
    cuda_attention_rows, cuda_contract, cuda_convert, cuda_dequantize_product, cuda_dequantize_sum,
    cuda_expand24, cuda_gather_columns, cuda_loss_gradient, cuda_matmul, cuda_matmul_dx, cuda_matmul_dw,
    cuda_matmul_update, cuda_matmul24, cuda_matmul24_dx, cuda_matmul24_dw, cuda_matmul24_update,
    cuda_quantize_groups, cuda_rows, cuda_scaled_matmul, cuda_scatter_columns, cuda_sgd_update, cuda_tree_sum,
    cuda_take, cuda_put_op, cuda_topk, cuda_normalize, cuda_reduce_op, cuda_scan, cuda_map;
#endif
