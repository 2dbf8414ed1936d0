/* SPDX-License-Identifier: MIT
 * work.c - what collectives do with device memory that a rank can reach: sums in rank order, copies. */
#include "../ops/convert.h"
#include "../ops/ops.h"
#include "comm.h"

uint64_t cuda_sum(const uint64_t *counts, uint32_t n) {
  uint64_t sum = 0;
  for (uint32_t r = 0; r < n; r++) sum += counts[r];
  return sum;
}

cuda_rank_rows cuda_rows_at(const void *base, int64_t stride, uint32_t dtype, uint64_t row, uint64_t col) {
  const int64_t at = (int64_t)row * stride + (int64_t)col;
  const cuda_rank_rows rows = {(char *)(uintptr_t)base + at * (int64_t)BS_DTYPE_BYTES(dtype), stride};
  return rows;
}

cuda_part cuda_share(const bs_coll_call *call, uint32_t r, uint32_t n) {
  const uint64_t piece = 64; /* columns: every share begins where the widest loads may */
  cuda_part part = {0, call->rows, 0, call->count};
  if (call->rows >= n) {
    part.row = call->rows * r / n;
    part.rows = call->rows * (r + 1u) / n - part.row;
    return part;
  }
  const uint64_t pieces = (call->count + piece - 1) / piece;
  const uint64_t end = pieces * (r + 1u) / n * piece;
  part.col = pieces * r / n * piece;
  part.cols = (end < call->count ? end : call->count) - part.col;
  return part;
}

static uint32_t work_of(uint32_t reduce_dtype) {
  if (!cuda_is_float(reduce_dtype)) return CUDA_BY_I64;
  return reduce_dtype == BS_F64 ? CUDA_BY_F64 : CUDA_BY_F32;
}

int32_t cuda_reduce_check(const bs_coll_call *call, uint32_t n, bs_error *err) {
  if (call->reduce_op > BS_REDUCE_MIN)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-OP", "unknown reduce op %u", call->reduce_op);
  if (call->reduce_dtype == BS_BOOL && call->reduce_op == BS_REDUCE_SUM)
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-DTYPE", "bool has no sum; reduce it with max or min");
  if (n > CUDA_RANKS_MAX)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-COMM", "%u ranks; %d at most", n, CUDA_RANKS_MAX);
  return BS_OK;
}

/* 1 if all rows are contiguous. */
static int dense(const cuda_rank_rows *rows, uint32_t n, uint64_t cols) {
  for (uint32_t r = 0; r < n; r++)
    if (rows[r].row != (int64_t)cols) return 0;
  return 1;
}

static int fits(const cuda_rank_rows *rows, uint32_t n, int64_t n_rows, uint32_t dtype, uint32_t width) {
  for (uint32_t r = 0; r < n; r++) {
    const cuda_view view = {.data = rows[r].data,
                            .rows = n_rows,
                            .row = rows[r].row,
                            .col = 1,
                            .dtype = dtype,
                            .size = BS_DTYPE_BYTES(dtype)};
    if (!cuda_view_fits(&view, width)) return 0;
  }
  return 1;
}

int32_t cuda_reduce(const cuda_device *device, const bs_coll_call *call, uint64_t rows, uint64_t cols,
                    const cuda_rank_rows *in, uint32_t n_in, const cuda_rank_rows *out, uint32_t n_out,
                    CUstream stream, bs_error *err) {
  ranks_reduce_args args = {.n_in = n_in,
                            .n_out = n_out,
                            .dtype_in = call->dtype_in,
                            .reduce_dtype = call->reduce_dtype,
                            .dtype_out = call->dtype_out,
                            .op = call->reduce_op,
                            .load = cuda_convert_by(call->dtype_in, call->reduce_dtype),
                            .work = work_of(call->reduce_dtype)};
  uint32_t widest = BS_DTYPE_BYTES(call->reduce_dtype);
  if (rows == 0 || cols == 0) return BS_OK;
  if (dense(in, n_in, cols) && dense(out, n_out, cols)) {
    cols *= rows;
    rows = 1;
  }
  if (BS_DTYPE_BYTES(call->dtype_in) > widest) widest = BS_DTYPE_BYTES(call->dtype_in);
  if (BS_DTYPE_BYTES(call->dtype_out) > widest) widest = BS_DTYPE_BYTES(call->dtype_out);
  const uint32_t width = widest > 4 ? 2 : CUDA_RANKS_WIDTH;
  const int whole = fits(in, n_in, (int64_t)rows, call->dtype_in, width) &&
                    fits(out, n_out, (int64_t)rows, call->dtype_out, width);
  cuda_walk_lay((int64_t)rows, (int64_t)cols, whole ? width : 1, &args.walk);
  memcpy(args.in, in, n_in * sizeof *in);
  memcpy(args.out, out, n_out * sizeof *out);
  return cuda_launch_items(device, CUDA_RANKS_REDUCE, cuda_walk_threads(&args.walk), stream, &args, err);
}

int32_t cuda_move(const cuda_device *device, const bs_coll_call *call, uint64_t rows, uint64_t cols,
                  cuda_rank_rows in, cuda_rank_rows out, CUstream stream, bs_error *err) {
  const int same = in.data == out.data && call->dtype_in == call->dtype_out;
  if (rows == 0 || cols == 0 || same) return BS_OK;
  const cuda_view from = {.data = in.data,
                          .rows = (int64_t)rows,
                          .cols = (int64_t)cols,
                          .row = in.row,
                          .col = 1,
                          .dtype = call->dtype_in,
                          .size = BS_DTYPE_BYTES(call->dtype_in)};
  const cuda_view to = {.data = out.data,
                        .rows = (int64_t)rows,
                        .cols = (int64_t)cols,
                        .row = out.row,
                        .col = 1,
                        .dtype = call->dtype_out,
                        .size = BS_DTYPE_BYTES(call->dtype_out)};
  return cuda_convert_views(device, &from, &to, stream, err);
}
