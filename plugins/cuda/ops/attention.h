/* SPDX-License-Identifier: MIT
 * attention.h - the common host part of the implementations of attention: reading a query, and the arguments
 * of kernels. */
#ifndef BS_PLUGIN_CUDA_ATTENTION_H
#define BS_PLUGIN_CUDA_ATTENTION_H
#include "attention_row.h"
#include "ops.h"

enum {
  CUDA_ATTEND_Q,
  CUDA_ATTEND_K,
  CUDA_ATTEND_V,
  CUDA_ATTEND_MASK,
  CUDA_ATTEND_LENGTHS,
  CUDA_ATTEND_DESCALE,
  CUDA_ATTEND_Y,
  CUDA_ATTEND_LSE,
  CUDA_ATTEND_ARGS
};

/* The parameters of a query other than its tensors. */
typedef struct cuda_attend {
  double scale, softcap;
  int64_t causal, left, right, nan_gives_0;
} cuda_attend;

/* 0 and a NO: the kernel `attention_rows` does not accept it, and so does no other. */
int cuda_attend_legal(const bs_op_query *query, bs_op_answer *out_answer);
cuda_attend cuda_attend_of(const bs_op_query *query);
/* The element's stride of a descriptor whose strides may be left out. */
int64_t cuda_attend_stride(const bs_tensor_desc *desc, uint32_t dim);
/* Fills the arguments from a run's tensors; a kernel's own parameters stay 0. */
void cuda_attend_args(const cuda_attend *of, bs_tensor *const *tensors, attention_args *out_args);
/* Runs the kernel attention_rows. */
int32_t cuda_attend_rows(const cuda_device *device, attention_args *args, CUstream stream, bs_error *err);
#endif
