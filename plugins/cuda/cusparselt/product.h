/* SPDX-License-Identifier: MIT
 * product.h - matmul24 by cuSPARSELt: the products that it serves, and the description of one product. Its
 * D[m,n] = A[m,k] B[n,k]^T is Y^T: A is the weight, B is X, both row-major, and D is column-major, which is Y
 * in row-major order. */
#ifndef BS_PLUGIN_CUDA_CUSPARSELT_PRODUCT_H
#define BS_PLUGIN_CUDA_CUSPARSELT_PRODUCT_H
#include "../ops/ops.h"
#include "library.h"

#define CUDA_SPLT "cusparselt"
#define CUDA_SPLT_ALIGN 16u /* bytes that every matrix and every row begins on */

/* Also a key of choices: zero-filled, compared by its bytes. */
typedef struct cuda_splt_shape {
  int64_t m, n, k;
  int64_t ldb, ldc, ldd; /* elements from a row of X, of the residual, of Y to the next; the weight's: k */
  int32_t in, out;       /* enum cuda_splt_type: A and B; C and D */
  int32_t compute;
  uint32_t adds; /* 1: C counts */
  uint32_t relu;
  uint32_t fixed;     /* 1: the choice hangs on no clock */
  uint64_t workspace; /* bytes, at most; 0: any */
} cuda_splt_shape;

/* legal.c. Whether cuSPARSELt is there and has the weight's type on this device: 0 and a NO with the reason.
 */
int cuda_splt_weight_legal(cuda_state *state, const bs_op_query *query, bs_op_answer *out_answer);
/* Whether it compresses a weight of such sizes, and as which type. */
int cuda_splt_compresses(uint32_t dtype, int64_t rows, int64_t cols, int32_t *out_type);
/* The product of a query whose weight is legal, and the bytes from X's data to its first valid column. 0 and
 * a NO with the reason if cuSPARSELt does not serve it. */
int cuda_splt_product_legal(const bs_op_query *query, cuda_splt_shape *out_shape, uint64_t *out_offset,
                            bs_op_answer *out_answer);

/* The descriptors of a product and its plan, each at its place for as long as the last one lives. */
typedef struct cuda_splt_product {
  const cuda_splt *splt;
  const cuda_splt_opaque *handle;
  cuda_splt_opaque a, b, c, matmul, algorithm, plan; /* c is D's too */
  uint32_t made;                                     /* a bit each */
  uint32_t reserved;
} cuda_splt_product;

/* call.c */
int32_t cuda_splt_describe_weight(const cuda_splt *splt, const cuda_splt_opaque *handle, int64_t rows,
                                  int64_t cols, int32_t type, cuda_splt_opaque *out_matrix, bs_error *err);
/* Makes everything except the plan. On failure nothing stays; else call cuda_splt_product_end. */
int32_t cuda_splt_product_begin(const cuda_splt *splt, const cuda_splt_opaque *handle,
                                const cuda_splt_shape *shape, cuda_splt_product *out_product, bs_error *err);
/* The plan by algorithm `id`. Once more: the one before ends. */
int32_t cuda_splt_product_plan(cuda_splt_product *product, int32_t id, uint64_t *out_workspace,
                               bs_error *err);
void cuda_splt_product_end(cuda_splt_product *product);

typedef struct cuda_splt_operands {
  const void *weight; /* compressed */
  const void *x, *residual;
  void *y, *workspace;
} cuda_splt_operands;
/* Queues the product; returns a status. Allocates no memory and takes no lock of this plugin. */
int cuda_splt_multiply(const cuda_splt_product *product, const cuda_splt_shape *shape,
                       const cuda_splt_operands *operands, CUstream stream);

/* weight.c: matmul24's own packed weight, whose bytes are read and updated, and which is used where
 * cuSPARSELt does not serve; and its copy compressed by cuSPARSELt. */
typedef struct cuda_splt_weight {
  cuda_state *state;
  const bs_exec *exec;
  cuda_packed24 *own;
  void *compressed; /* NULL: of a size that it does not compress */
  uint64_t bytes;   /* of compressed */
  int32_t type;     /* enum cuda_splt_type */
  uint32_t zeros;   /* 1: has kept zeros that must keep their places: use the plugin's own tiles */
} cuda_splt_weight;
int32_t cuda_splt_pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                       void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t cuda_splt_packed_update(void *packed, const bs_tensor *delta, bs_error *err);
int32_t cuda_splt_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void cuda_splt_packed_free(void *packed);

/* zeros.c: rows of it lie without a gap, as those of a weight that is compressed do. */
int32_t cuda_splt_find_zero(const cuda_packed *own, int *out_found, bs_error *err);

extern const bs_op_impl cuda_splt_matmul24;
#endif
