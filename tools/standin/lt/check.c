/* SPDX-License-Identifier: MIT
 * check.c - what cublasLtMatmul's documentation allows, of what the plugin uses. */
#include "lt.h"

uint32_t lt_bytes(uint64_t type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return 1;
    default:
      lt_die("type %llu is none that products have", (unsigned long long)type);
  }
}

uint64_t lt_span(const lt_layout *l) {
  return ((l->cols - 1) * (uint64_t)l->ld + l->rows) * lt_bytes(l->type);
}

/* compute, scale, A, B, D, bias: the tables of cublasLtMatmul. */
static const int32_t table[][6] = {
    {CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_8I, CUDA_R_8I, CUDA_R_32I, -1},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_32F, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_16F, CUDA_R_16F},
};

static int typed(const lt_desc *desc, const lt_layout *a, const lt_layout *b, const lt_layout *d) {
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    const int32_t *t = table[i];
    if (t[0] != desc->compute || t[1] != desc->scale || t[2] != (int32_t)a->type ||
        t[3] != (int32_t)b->type || t[4] != (int32_t)d->type)
      continue;
    if (t[5] < 0) return desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    const int32_t bias = desc->bias_type >= 0 ? desc->bias_type : (int32_t)d->type;
    return (desc->epilogue & CUBLASLT_EPILOGUE_BIAS) == 0 || bias == t[5];
  }
  return 0;
}

static int sized(const lt_desc *desc, const lt_layout *a, const lt_layout *b, const lt_layout *c,
                 const lt_layout *d) {
  const lt_layout *all[4] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    if (all[i]->magic != LT_LAYOUT || all[i]->rows == 0 || all[i]->cols == 0 || all[i]->rows > INT32_MAX ||
        all[i]->cols > INT32_MAX || all[i]->ld < (int64_t)all[i]->rows)
      return 0;
  const uint64_t m = desc->turn_a ? a->cols : a->rows, k = desc->turn_a ? a->rows : a->cols;
  const uint64_t n = desc->turn_b ? b->rows : b->cols, kb = desc->turn_b ? b->cols : b->rows;
  return k == kb && d->rows == m && d->cols == n && c->rows == m && c->cols == n && c->type == d->type;
}

cublasStatus_t lt_legal(const lt_desc *desc, const lt_layout *a, const lt_layout *b, const lt_layout *c,
                        const lt_layout *d) {
  if (desc->magic != LT_DESC || !sized(desc, a, b, c, d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!typed(desc, a, b, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((desc->epilogue &
       ~(uint32_t)(CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS)) != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (lt_bytes(a->type) > 1) return CUBLAS_STATUS_SUCCESS;
  /* Kernels of bytes: "TN" only; int8 in fours, fp8 in sixteen bytes. */
  const uint64_t unit = a->type == CUDA_R_8I ? 4 : 16, line = unit == 4 ? 4 : 16 / lt_bytes(d->type);
  const uint64_t dims = d->rows | a->rows | (uint64_t)a->ld | (uint64_t)b->ld;
  if (!desc->turn_a || desc->turn_b || dims % unit != 0 || (uint64_t)d->ld % line != 0 ||
      (uint64_t)c->ld % line != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t lt_signature(const lt_desc *desc, const lt_layout *a, const lt_layout *b, const lt_layout *d) {
  const uint64_t parts[] = {(uint64_t)desc->compute,
                            (uint64_t)desc->scale,
                            (uint64_t)desc->turn_a,
                            (uint64_t)desc->turn_b,
                            desc->epilogue,
                            a->type,
                            b->type,
                            d->type,
                            (uint64_t)desc->mode};
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) h = (h ^ parts[i]) * 1099511628211u;
  return h;
}
