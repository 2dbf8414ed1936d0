/* SPDX-License-Identifier: MIT
 * choose.h - chooses the algorithm of cuBLASLt for a product: the first one of its heuristics, or, with
 * tuning, the fastest of those, timed once and kept. */
#ifndef BS_PLUGIN_CUDA_CUBLASLT_CHOOSE_H
#define BS_PLUGIN_CUDA_CUBLASLT_CHOOSE_H
#include "../ops/ops.h"
#include "call.h"

typedef struct cuda_lt_algo {
  cublasLtMatmulAlgo_t algo;
  uint64_t workspace; /* bytes that it needs */
  int32_t id;         /* CUBLASLT_ALGO_CONFIG_ID */
  uint32_t place;     /* among the heuristics': 0 is the first */
} cuda_lt_algo;

/* A choice, known by the shape and the kind of device. */
struct cuda_lt_choice {
  cuda_lt_shape shape;
  int32_t capability, multiprocessors;
  cuda_lt_algo algo;
};

/* Finds the algorithm for a product. `weight` is NULL, or the data of A, which is read in place.
 * BS_UNSUPPORTED: the heuristics have none. Any rank may call it; others wait while one is timing, so that
 * ranks of one process on equal devices get the same. */
int32_t cuda_lt_choose(const bs_exec *exec, cublasLtHandle_t handle, const cuda_lt_shape *shape,
                       const void *weight, cuda_lt_algo *out_algo, bs_error *err);
#endif
