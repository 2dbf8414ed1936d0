/* SPDX-License-Identifier: MIT
 * product.h - common parts of matmul and its derivatives by cuBLASLt: the products, plans, running. The
 * packed weight is that of this plugin's own tiles (ops/matmul_pack.c). So these tiles serve if a pointer is
 * less aligned than the plan needs, or nothing is to be multiplied. */
#ifndef BS_PLUGIN_CUDA_CUBLASLT_PRODUCT_H
#define BS_PLUGIN_CUDA_CUBLASLT_PRODUCT_H
#include "choose.h"

/* The name of all these implementations, so that they share packed weights. */
#define CUDA_LT "cublaslt"

/* A row-major matrix of a query, in place. */
typedef struct cuda_lt_matrix {
  int64_t rows, cols, line;
  uint32_t dtype;
  uint64_t offset; /* bytes from the tensor's data to the first element that counts */
} cuda_lt_matrix;

/* The request of an op: C(rows of c, cols of c) from two matrices; the op's file fills it. */
typedef struct cuda_lt_ask {
  cuda_lt_shape shape;
  uint64_t offset_b, offset_a; /* of X, or of dX below */
  uint64_t offset_d;
  int64_t gathered;  /* columns of the list of X (dX) that are moved first (last); 0: none */
  uint32_t finished; /* 1: C is f32 sums of the plan's, and finish.c makes the output of them */
} cuda_lt_ask;

typedef struct cuda_lt_plan {
  cuda_plan plan;
  const bs_op_impl *own_impl; /* this plugin's own tiles */
  void *own;
  uint32_t own_only;           /* 1: cuBLASLt does not multiply this */
  const bs_op_impl *move_impl; /* gather_columns or scatter_columns; NULL: nothing is moved */
  void *move;
  bs_tensor moved; /* X's, or dX's, columns side by side */
  const cuda_lt *lt;
  cublasLtHandle_t handle;
  const cuda_packed *weight;
  cuda_lt_ask ask;
  cuda_lt_algo algo;
  void *workspace;
  void *sums; /* of a product that a kernel finishes: [n, ldd] */
  uint32_t activation;
  void *scalars; /* matmul_update: beta, and alpha if it is not f32 */
} cuda_lt_plan;

/* NO and 0 if the library is missing or does not promise what the query requires. */
int cuda_lt_ready(cuda_state *state, const bs_op_query *query, bs_op_answer *out_answer);
/* Reads arg i of the query as a matrix, `picked`: only the partition's columns, with X_FULL. 0 and a NO: it
 * is not row-major. A list of columns is read as gathered, with *out_list 1. */
int cuda_lt_matrix_of(const bs_op_query *query, uint32_t i, int picked, cuda_lt_matrix *out, int *out_list,
                      bs_op_answer *out_answer);
/* The types of A times B into D, by the table of cublasLtMatmul: 0 and a NO if it has no such row. turned:
 * the columns of A are multiplied with those of B ("TN"), which bytes need. */
int cuda_lt_types(const cuda_state *state, uint32_t a, uint32_t b, uint32_t d, int tn, uint32_t accumulate,
                  cuda_lt_shape *shape, bs_op_answer *out_answer);
/* Leading dimensions of bytes. */
int cuda_lt_aligned(const cuda_lt_shape *shape, bs_op_answer *out_answer);
int cuda_lt_sizes(const cuda_lt_shape *shape, bs_op_answer *out_answer);
/* A derivative over a weight that this implementation has packed must exist, or the layer cannot train. If
 * cuBLASLt has no such product, this plugin's own tiles compute it, and the answer says so. NO without the
 * library. */
int32_t cuda_lt_emulated(const cuda_state *state, const bs_op_answer *tiles, bs_op_answer *out_answer);
int32_t cuda_lt_yes(const bs_op_query *query, const cuda_lt_shape *shape, bs_op_answer *out_answer);

/* The workspace that is recommended for the device's generation. */
uint64_t cuda_lt_workspace(const cuda_state *state, const bs_op_query *query);

/* Makes a plan: `own` is prepared too, and refuses a weight that does not fit. moves: arg `moved` of the
 * query is gathered (impl gather_columns) or scattered. ask NULL: only this plugin's own tiles. */
int32_t cuda_lt_prepare(const bs_op_impl *impl, const bs_op_impl *own, const bs_op_impl *move, uint32_t moved,
                        void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                        const cuda_lt_ask *ask, cuda_lt_plan **out_plan, bs_error *err);
void cuda_lt_plan_free(void *plan);
/* 1: the operands have the alignment for which the algorithm was chosen. */
int cuda_lt_fits(const cuda_lt_shape *shape, const cuda_lt_operands *operands);
/* Multiplies with the plan's algorithm; shape: the plan's with the run's B. *out_refused 1: it does not
 * accept this B, and nothing was queued. */
int32_t cuda_lt_run(const cuda_lt_plan *plan, const cuda_lt_shape *shape, cuda_lt_operands *operands,
                    CUstream stream, int *out_refused, bs_error *err);
/* finish.c. 1: it handles the query's bias, activation, residual and output. */
int cuda_lt_finishes(const bs_op_query *query);
uint64_t cuda_lt_sums_bytes(const cuda_lt_shape *shape);
/* 1: the query's limit of workspace has room for the sums, and shape's own becomes the rest; or 0 and a
 * NO. */
int cuda_lt_sums_fit(const bs_op_query *query, cuda_lt_shape *shape, bs_op_answer *out_answer);
int32_t cuda_lt_take_sums(cuda_lt_plan *plan, bs_error *err);
/* The sums of a run over `rows`. */
bs_tensor cuda_lt_sums_of(const cuda_lt_plan *plan, int64_t rows);
/* out = act(sums + bias) + residual, in the order of the stream; args: matmul's. */
int32_t cuda_lt_finish(const cuda_lt_plan *plan, bs_tensor *const *args, bs_stream *stream, bs_error *err);
/* X (dX) as the product takes it at this run: `given` itself or the moved one with its rows. */
bs_tensor cuda_lt_moved(const cuda_lt_plan *plan, const bs_tensor *given);

extern const bs_op_impl cuda_lt_matmul, cuda_lt_matmul_dx, cuda_lt_matmul_dw, cuda_lt_matmul_update,
    cuda_lt_scaled_matmul;
#endif
