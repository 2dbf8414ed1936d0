/* SPDX-License-Identifier: MIT
 * api.h - the used part of NVIDIA's cuSPARSELt (0.7 to 0.10), declared here because no toolkit has its
 * header. tests/cuda/cusparselt_header.h compares it with that header if there is one. */
#ifndef BS_PLUGIN_CUDA_CUSPARSELT_API_H
#define BS_PLUGIN_CUDA_CUSPARSELT_API_H
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* 512 bytes on 16 since 0.8, 1024 before. */
#define CUDA_SPLT_OPAQUE 1024
typedef struct cuda_splt_opaque {
  _Alignas(16) unsigned char data[CUDA_SPLT_OPAQUE];
} cuda_splt_opaque;

enum cuda_splt_status {
  SPLT_SUCCESS = 0,
  SPLT_NOT_INITIALIZED = 1,
  SPLT_ALLOC_FAILED = 2,
  SPLT_INVALID_VALUE = 3,
  SPLT_ARCH_MISMATCH = 4,
  SPLT_MAPPING_ERROR = 5,
  SPLT_EXECUTION_FAILED = 6,
  SPLT_INTERNAL_ERROR = 7,
  SPLT_MATRIX_TYPE_NOT_SUPPORTED = 8,
  SPLT_ZERO_PIVOT = 9,
  SPLT_NOT_SUPPORTED = 10,
  SPLT_INSUFFICIENT_RESOURCES = 11
};
enum cuda_splt_property { SPLT_MAJOR = 0, SPLT_MINOR = 1, SPLT_PATCH = 2 };
enum cuda_splt_type { /* cudaDataType */
                      SPLT_R_32F = 0,
                      SPLT_R_16F = 2,
                      SPLT_R_8I = 3,
                      SPLT_R_32I = 10,
                      SPLT_R_16BF = 14,
                      SPLT_R_8F_E4M3 = 28,
                      SPLT_R_8F_E5M2 = 29
};
enum cuda_splt_order { SPLT_ORDER_COL = 1, SPLT_ORDER_ROW = 2 };
enum cuda_splt_op { SPLT_OP_N = 0, SPLT_OP_T = 1 };
enum cuda_splt_sparsity { SPLT_HALF = 0 };
enum cuda_splt_compute { SPLT_COMPUTE_32I = 0, SPLT_COMPUTE_16F = 1, SPLT_COMPUTE_32F = 2 };
enum cuda_splt_matmul { SPLT_MATMUL_RELU = 0 };
enum cuda_splt_algorithm { SPLT_ALGORITHM_DEFAULT = 0 };
enum cuda_splt_config { SPLT_CONFIG_ID = 0, SPLT_CONFIG_MAX_ID = 1, SPLT_SPLIT_K = 3 };

/* Handles, descriptors, selections and plans are opaque blocks of the caller, which must not move: each holds
 * addresses of those from which it was made. Enums are passed as int. */
typedef struct cuda_splt_functions {
  int (*init)(cuda_splt_opaque *handle);
  int (*destroy)(const cuda_splt_opaque *handle);
  int (*property)(int property, int *out_value);
  const char *(*error_name)(int status);
  const char *(*error_string)(int status);
  int (*dense_init)(const cuda_splt_opaque *handle, cuda_splt_opaque *matrix, int64_t rows, int64_t cols,
                    int64_t ld, uint32_t alignment, int type, int order);
  int (*structured_init)(const cuda_splt_opaque *handle, cuda_splt_opaque *matrix, int64_t rows, int64_t cols,
                         int64_t ld, uint32_t alignment, int type, int order, int sparsity);
  int (*matrix_destroy)(const cuda_splt_opaque *matrix);
  int (*matmul_init)(const cuda_splt_opaque *handle, cuda_splt_opaque *matmul, int op_a, int op_b,
                     const cuda_splt_opaque *a, const cuda_splt_opaque *b, const cuda_splt_opaque *c,
                     const cuda_splt_opaque *d, int compute);
  int (*matmul_set)(const cuda_splt_opaque *handle, cuda_splt_opaque *matmul, int attribute,
                    const void *value, size_t bytes);
  int (*algorithm_init)(const cuda_splt_opaque *handle, cuda_splt_opaque *algorithm,
                        const cuda_splt_opaque *matmul, int which);
  int (*algorithm_destroy)(const cuda_splt_opaque *algorithm);
  int (*algorithm_set)(const cuda_splt_opaque *handle, cuda_splt_opaque *algorithm, int attribute,
                       const void *value, size_t bytes);
  int (*algorithm_get)(const cuda_splt_opaque *handle, const cuda_splt_opaque *algorithm, int attribute,
                       void *out_value, size_t bytes);
  int (*plan_init)(const cuda_splt_opaque *handle, cuda_splt_opaque *plan, const cuda_splt_opaque *matmul,
                   const cuda_splt_opaque *algorithm);
  int (*plan_destroy)(const cuda_splt_opaque *plan);
  int (*workspace)(const cuda_splt_opaque *handle, const cuda_splt_opaque *plan, size_t *out_bytes);
  int (*matmul)(const cuda_splt_opaque *handle, const cuda_splt_opaque *plan, const void *alpha,
                const void *a, const void *b, const void *beta, const void *c, void *d, void *workspace,
                CUstream *streams, int32_t n_streams);
  int (*compressed_size)(const cuda_splt_opaque *handle, const cuda_splt_opaque *matrix, size_t *out_bytes,
                         size_t *out_buffer_bytes);
  int (*compress)(const cuda_splt_opaque *handle, const cuda_splt_opaque *matrix, int is_a, int op,
                  const void *dense, void *compressed, void *buffer, CUstream stream);
} cuda_splt_functions;
#endif
