/* SPDX-License-Identifier: MIT
 * views.c - see views.h. */
#include "lab/gate/views.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/error.h"

int64_t bs_view_column(const bs_partition *p, int64_t j) {
  if (p == NULL) return j;
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[j] : p->begin + j;
}

/* ctx: the source whose columns are the rows here. */
static int32_t read_transposed(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols,
                               uint32_t dtype, void *out, int64_t out_stride, bs_error *err) {
  const bs_source *inner = ctx;
  const bs_partition run = {.struct_size = sizeof run,
                            .kind = BS_PARTITION_CONTIGUOUS,
                            .total = inner->cols,
                            .begin = row,
                            .count = nrows};
  const int64_t count = cols ? cols->count : inner->rows;
  const size_t size = BS_DTYPE_BYTES(dtype);
  char *line = malloc((size_t)(nrows > 0 ? nrows : 1) * size);
  if (line == NULL) return bs_no_memory(err, "%lld values", (long long)nrows);
  int32_t rc = BS_OK;
  for (int64_t j = 0; rc == BS_OK && j < count; ++j) {
    rc = inner->read(inner->ctx, bs_view_column(cols, j), 1, &run, dtype, line, nrows, err);
    for (int64_t i = 0; rc == BS_OK && i < nrows; ++i)
      memcpy((char *)out + (size_t)(i * out_stride + j) * size, line + (size_t)i * size, size);
  }
  free(line);
  return rc;
}

bs_source bs_view_transposed(const bs_source *inner) {
  return (bs_source){.struct_size = sizeof(bs_source),
                     .dtype = inner->dtype,
                     .rows = inner->cols,
                     .cols = inner->rows,
                     .ctx = (void *)(uintptr_t)inner,
                     .read = read_transposed};
}

static int32_t read_squared(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const bs_source *inner = ctx;
  const int64_t count = cols ? cols->count : inner->cols;
  const int32_t rc = inner->read(inner->ctx, row, nrows, cols, dtype, out, out_stride, err);
  for (int64_t i = 0; rc == BS_OK && i < nrows; ++i)
    for (int64_t j = 0; j < count; ++j) {
      const double v = bs_load_f64(dtype, out, i * out_stride + j);
      bs_store_f64(dtype, out, i * out_stride + j, v * v);
    }
  return rc;
}

bs_source bs_view_squared(const bs_source *inner) {
  bs_source s = *inner;
  s.dtype = BS_F64;
  s.ctx = (void *)(uintptr_t)inner;
  s.read = read_squared;
  return s;
}
