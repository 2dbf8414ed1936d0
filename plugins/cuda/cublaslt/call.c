/* SPDX-License-Identifier: MIT
 * call.c - see call.h. */
#include "call.h"

uint32_t cuda_lt_bytes(uint32_t type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 1;
  }
}

uint32_t cuda_lt_align(uint64_t x, uint64_t y) {
  uint32_t align = 16;
  while (align > 1 && ((x | y) & (align - 1)) != 0) align /= 2;
  return align;
}

static cublasStatus_t layout(const cuda_lt *lt, cublasLtMatrixLayoutOpaque_t *out, uint32_t type,
                             int64_t rows, int64_t cols, int64_t ld) {
  return lt->call.layout_init(out, sizeof *out, (cudaDataType)type, (uint64_t)rows, (uint64_t)cols, ld);
}

static cublasStatus_t describe_product(const cuda_lt *lt, const cuda_lt_shape *s, const void *bias,
                                       cublasLtMatmulDesc_t desc) {
  const cuda_lt_functions *call = &lt->call;
  const int32_t turn_a = s->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                turn_b = s->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t mode = CUBLASLT_POINTER_MODE_DEVICE, bias_type = (int32_t)s->bias;
  cublasStatus_t rc =
      call->desc_init(desc, sizeof *desc, (cublasComputeType_t)s->compute, (cudaDataType)s->scale);
  if (rc == CUBLAS_STATUS_SUCCESS && s->turn_a)
    rc = call->desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a);
  if (rc == CUBLAS_STATUS_SUCCESS && s->turn_b)
    rc = call->desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b);
  if (rc == CUBLAS_STATUS_SUCCESS && s->scalars)
    rc = call->desc_set(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode);
  if (rc == CUBLAS_STATUS_SUCCESS && s->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    rc = call->desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue, sizeof s->epilogue);
  if (rc != CUBLAS_STATUS_SUCCESS || (s->epilogue & CUBLASLT_EPILOGUE_BIAS) == 0) return rc;
  rc = call->desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  return call->desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

cublasStatus_t cuda_lt_describe(const cuda_lt *lt, const cuda_lt_shape *s, const void *bias,
                                cuda_lt_descs *out) {
  cublasStatus_t rc = describe_product(lt, s, bias, &out->desc);
  if (rc == CUBLAS_STATUS_SUCCESS)
    rc = layout(lt, &out->a, s->a, s->turn_a ? s->k : s->m, s->turn_a ? s->m : s->k, s->lda);
  if (rc == CUBLAS_STATUS_SUCCESS)
    rc = layout(lt, &out->b, s->b, s->turn_b ? s->n : s->k, s->turn_b ? s->k : s->n, s->ldb);
  if (rc == CUBLAS_STATUS_SUCCESS) rc = layout(lt, &out->c, s->d, s->m, s->n, s->ldc);
  if (rc == CUBLAS_STATUS_SUCCESS) rc = layout(lt, &out->d, s->d, s->m, s->n, s->ldd);
  return rc;
}

cublasStatus_t cuda_lt_multiply(const cuda_lt *lt, cublasLtHandle_t handle, const cuda_lt_shape *s,
                                const cublasLtMatmulAlgo_t *algo, const cuda_lt_operands *o,
                                CUstream stream) {
  static const float f32[2] = {0.0f, 1.0f};
  static const double f64[2] = {0.0, 1.0};
  static const int32_t i32[2] = {0, 1};
  const uint32_t adds = s->adds != 0;
  const void *alpha = &f32[1], *beta = &f32[adds];
  cuda_lt_descs descs;
  const cublasStatus_t rc = cuda_lt_describe(lt, s, o->bias, &descs);
  if (rc != CUBLAS_STATUS_SUCCESS) return rc;
  if (s->scale == CUDA_R_64F) {
    alpha = &f64[1];
    beta = &f64[adds];
  }
  if (s->scale == CUDA_R_32I) {
    alpha = &i32[1];
    beta = &i32[adds];
  }
  if (s->scalars) {
    alpha = o->alpha;
    beta = o->beta;
  }
  return lt->call.matmul(handle, &descs.desc, alpha, o->a, &descs.a, o->b, &descs.b, beta,
                         s->adds ? o->c : o->d, &descs.c, o->d, &descs.d, algo, o->workspace,
                         o->workspace_bytes, stream);
}
