/* SPDX-License-Identifier: MIT
 * scan.h - the arguments of the kernels of running sums, and the host part that they share with reduce. */
#ifndef BS_PLUGIN_CUDA_SCAN_H
#define BS_PLUGIN_CUDA_SCAN_H
#include "reduce.h"

/* lines: an element of its outer space is a line, the inner space is the places along it. */
typedef struct scan_args {
  reduce_args lines;
  int64_t out_step; /* between neighbours of a line of out, in elements */
  uint32_t without; /* 1: without the element itself */
  uint32_t back;    /* 1: from the end */
} scan_args;

#if !defined(__CUDACC__)
#include "ops.h"

/* Lays spaces over in and out, where `to` are the dims of the outer space, and chooses teams. */
void cuda_reduce_lay(const bs_tensor *in, const bs_tensor *out, const int64_t *to, reduce_args *args);
/* Launches a kernel whose arguments are `all`, of which `args` are a part. */
int32_t cuda_reduce_launch(const cuda_device *device, uint32_t kernel, const reduce_args *args,
                           const void *all, CUstream stream, bs_error *err);
#endif
#endif
