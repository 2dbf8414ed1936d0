/* SPDX-License-Identifier: MIT
 * indexed.h - the common host part of take and put: what a query asks, and the walk over its tensors. */
#ifndef BS_PLUGIN_CUDA_INDEXED_H
#define BS_PLUGIN_CUDA_INDEXED_H
#include "indexed_body.h"
#include "ops.h"

/* The attrs of a query, which op.h defines. */
typedef struct cuda_indexed {
  const char *op;
  int64_t kind; /* enum bs_index */
  uint32_t axis, batch;
  uint32_t put; /* 1: of put, whose index of rows may have a row for each first coordinate */
} cuda_indexed;

cuda_indexed cuda_indexed_of(const bs_op_query *query, int put);
/* 0, with out_answer NO: arguments that no kernel of take or put reads. The last argument is the output. */
int cuda_indexed_legal(const bs_op_query *query, int put, bs_op_answer *out_answer);
/* The dims of positions along which an index may name a place again: the axis, or all dims of tuples. */
uint32_t cuda_indexed_run(const cuda_indexed *how, const bs_tensor *index, uint32_t *out_first);
/* Lays the tensors over the dims of the small one, and one more spread over these dims if `extra` is given. A
 * NULL index: both have one shape, and `how` is not read. */
void cuda_indexed_lay(const cuda_indexed *how, const bs_tensor *large, const bs_tensor *index,
                      const bs_tensor *small, cuda_spread *extra, indexed_args *out_args);
/* Makes units of several neighbouring elements where every tensor allows it. */
void cuda_indexed_widen(indexed_args *args);
/* BS_INVALID_ARGUMENT if positions name places of a dimension of size 0. */
int32_t cuda_indexed_check(const cuda_indexed *how, const indexed_args *args, bs_error *err);
/* to = from, of one shape and dtype with any strides, by the kernel of take. */
int32_t cuda_indexed_copy_all(const cuda_device *device, const bs_tensor *from, const bs_tensor *to,
                              CUstream stream, bs_error *err);
#endif
