/* SPDX-License-Identifier: MIT
 * ranks_reduce_body.h - the sum, maximum or minimum of one matrix of each rank, in rank order, written to one
 * place or to each rank's: the arithmetic of collectives of device memory (blockshock/comm.h). A value is
 * converted to the reduce dtype, a partial sum rounded to it, the result to the dtype of the output: the bits
 * of the threads communicator. An element is read and written by one thread, so that an output may be an
 * input. */
#ifndef BS_PLUGIN_CUDA_RANKS_REDUCE_BODY_H
#define BS_PLUGIN_CUDA_RANKS_REDUCE_BODY_H
#include "blockshock/comm.h"
#include "convert_body.h"

enum { CUDA_RANKS_MAX = 64, CUDA_RANKS_WIDTH = 4 };

/* A rank's matrix; `row` elements from row to row, columns dense. */
typedef struct cuda_rank_rows {
  void *data;
  int64_t row;
} cuda_rank_rows;

typedef struct ranks_reduce_args {
  cuda_walk walk;
  uint32_t n_in, n_out;
  uint32_t dtype_in, reduce_dtype, dtype_out;
  uint32_t op;   /* enum bs_reduce_op */
  uint32_t load; /* CUDA_BY_: between the input's dtype and the reduce dtype */
  uint32_t work; /* CUDA_BY_: the type of the sums */
  cuda_rank_rows in[CUDA_RANKS_MAX], out[CUDA_RANKS_MAX];
} ranks_reduce_args;

CUDA_FN char *ranks_element(const cuda_rank_rows *r, const cuda_place *at, uint32_t dtype) {
  return (char *)r->data + (at->row * r->row + at->col) * (int64_t)BS_DTYPE_BYTES(dtype);
}

/* A rank's values, in the reduce dtype. */
CUDA_FN cuda_raw ranks_get(const ranks_reduce_args *a, uint32_t r, const cuda_place *at, const int count) {
  const cuda_raw raw =
      cuda_get(ranks_element(&a->in[r], at, a->dtype_in), BS_DTYPE_BYTES(a->dtype_in), count);
  return convert_raw(a->load, a->dtype_in, a->reduce_dtype, &raw, count);
}

CUDA_FN void ranks_put(const ranks_reduce_args *a, const cuda_place *at, const cuda_raw *raw,
                       const int count) {
  CUDA_ROLL
  for (uint32_t r = 0; r < a->n_out; r++)
    cuda_put(ranks_element(&a->out[r], at, a->dtype_out), raw, BS_DTYPE_BYTES(a->dtype_out), count);
}

/* NaN stays. */
CUDA_FN float ranks_join_f32(uint32_t op, float a, float b) {
  if (op == BS_REDUCE_SUM) return a + b;
  if (a != a) return a;
  return (op == BS_REDUCE_MAX ? a > b : a < b) ? a : b;
}
CUDA_FN double ranks_join_f64(uint32_t op, double a, double b) {
  if (op == BS_REDUCE_SUM) return a + b;
  if (a != a) return a;
  return (op == BS_REDUCE_MAX ? a > b : a < b) ? a : b;
}
/* Sums wrap. */
CUDA_FN int64_t ranks_join_i64(uint32_t op, uint32_t dtype, int64_t a, int64_t b) {
  if (op != BS_REDUCE_SUM) return (op == BS_REDUCE_MAX ? a > b : a < b) ? a : b;
  const uint64_t sum = (uint64_t)a + (uint64_t)b;
  switch (dtype) {
    case BS_I32:
      return (int32_t)(uint32_t)sum;
    case BS_I8:
      return (int8_t)(uint8_t)sum;
    case BS_U8:
      return (uint8_t)sum;
    default:
      return (int64_t)sum;
  }
}

CUDA_FN void ranks_f32(const ranks_reduce_args *a, const cuda_place *at, const int count) {
  float sum[CUDA_RANKS_WIDTH], v[CUDA_RANKS_WIDTH];
  cuda_raw raw = ranks_get(a, 0, at, count);
  cuda_widen_f32(a->reduce_dtype, &raw, sum, count);
  CUDA_ROLL
  for (uint32_t r = 1; r < a->n_in; r++) {
    raw = ranks_get(a, r, at, count);
    cuda_widen_f32(a->reduce_dtype, &raw, v, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) sum[i] = ranks_join_f32(a->op, sum[i], v[i]);
    if (a->reduce_dtype == BS_F32) continue;
    raw = cuda_narrow_f32(a->reduce_dtype, sum, count);
    cuda_widen_f32(a->reduce_dtype, &raw, sum, count);
  }
  raw = cuda_narrow_f32(a->dtype_out, sum, count);
  ranks_put(a, at, &raw, count);
}

CUDA_FN void ranks_f64(const ranks_reduce_args *a, const cuda_place *at, const int count) {
  double sum[2], v[2];
  cuda_raw raw = ranks_get(a, 0, at, count);
  cuda_widen_f64(BS_F64, &raw, sum, count);
  CUDA_ROLL
  for (uint32_t r = 1; r < a->n_in; r++) {
    raw = ranks_get(a, r, at, count);
    cuda_widen_f64(BS_F64, &raw, v, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) sum[i] = ranks_join_f64(a->op, sum[i], v[i]);
  }
  raw = cuda_narrow_f64(a->dtype_out, sum, count);
  ranks_put(a, at, &raw, count);
}

CUDA_FN void ranks_i64(const ranks_reduce_args *a, const cuda_place *at, const int count) {
  int64_t sum[CUDA_RANKS_WIDTH], v[CUDA_RANKS_WIDTH];
  cuda_raw raw = ranks_get(a, 0, at, count);
  cuda_widen_i64(a->reduce_dtype, &raw, sum, count);
  CUDA_ROLL
  for (uint32_t r = 1; r < a->n_in; r++) {
    raw = ranks_get(a, r, at, count);
    cuda_widen_i64(a->reduce_dtype, &raw, v, count);
    CUDA_UNROLL
    for (int i = 0; i < count; i++) sum[i] = ranks_join_i64(a->op, a->reduce_dtype, sum[i], v[i]);
  }
  raw = cuda_narrow_i64(a->dtype_out, sum, count);
  ranks_put(a, at, &raw, count);
}

CUDA_FN void ranks_some(const ranks_reduce_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (!at.live) return;
    if (a->work == CUDA_BY_F32) {
      ranks_f32(a, &at, count);
    } else if (a->work == CUDA_BY_I64) {
      ranks_i64(a, &at, count);
    } else if (count <= 2) {
      ranks_f64(a, &at, count);
    }
  }
}

CUDA_FN void ranks_reduce_thread(const ranks_reduce_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole) {
    ranks_some(a, start.item, 1);
  } else if (a->walk.width == 2) {
    ranks_some(a, start.item, 2);
  } else {
    ranks_some(a, start.item, 4);
  }
}
#endif
