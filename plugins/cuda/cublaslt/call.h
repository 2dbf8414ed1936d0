/* SPDX-License-Identifier: MIT
 * call.h - the description of one product for cuBLASLt, and the call. Its matrices are column-major: a
 * row-major matrix here is its transpose there, so that Y = X W^T becomes Y^T = W X^T without moving data. */
#ifndef BS_PLUGIN_CUDA_CUBLASLT_CALL_H
#define BS_PLUGIN_CUDA_CUBLASLT_CALL_H
#include "library.h"

/* D[m,n] = op(A)[m,k] op(B)[k,n] (+ C), column-major. Also a key of choices: zero-filled, compared by its
 * bytes. */
typedef struct cuda_lt_shape {
  int64_t m, n, k;
  int64_t lda, ldb, ldc, ldd; /* elements from a stored column to the next */
  uint32_t a, b, d, bias;     /* cudaDataType; C is of D's */
  uint32_t compute, scale;
  uint32_t turn_a, turn_b; /* 1: stored [k,m], [n,k] */
  uint32_t epilogue;
  uint32_t adds;                               /* 1: C counts */
  uint32_t scalars;                            /* 1: alpha and beta are in device memory */
  uint32_t align_a, align_b, align_c, align_d; /* bytes that pointers are multiples of, at least */
  uint32_t fixed;                              /* 1: the choice hangs on no clock */
  uint64_t workspace;                          /* bytes, at most */
} cuda_lt_shape;

typedef struct cuda_lt_operands {
  const void *a, *b, *c;
  void *d;
  const void *bias;
  const void *alpha, *beta; /* with scalars; else not looked at */
  void *workspace;
  uint64_t workspace_bytes;
} cuda_lt_operands;

typedef struct cuda_lt_descs {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
} cuda_lt_descs;

uint32_t cuda_lt_bytes(uint32_t type); /* of an element of a cudaDataType */
/* The largest power of two up to 16 that divides both. */
uint32_t cuda_lt_align(uint64_t x, uint64_t y);
/* Descriptors on the caller's stack. bias: the pointer, or one as aligned as it will be. */
cublasStatus_t cuda_lt_describe(const cuda_lt *lt, const cuda_lt_shape *shape, const void *bias,
                                cuda_lt_descs *out_descs);
/* Queues the product: allocates no memory and takes no lock of this plugin. */
cublasStatus_t cuda_lt_multiply(const cuda_lt *lt, cublasLtHandle_t handle, const cuda_lt_shape *shape,
                                const cublasLtMatmulAlgo_t *algo, const cuda_lt_operands *operands,
                                CUstream stream);
#endif
