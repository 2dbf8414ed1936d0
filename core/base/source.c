/* SPDX-License-Identifier: MIT
 * source.c - a bs_source over caller memory (blockshock.h). */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"

typedef struct memory_source {
  const unsigned char *data;
  uint32_t dtype;
  int64_t rows, cols, stride;
} memory_source;

static int32_t check_read(const memory_source *m, int64_t row, int64_t nrows, const bs_partition *cols,
                          bs_error *err) {
  if (row < 0 || nrows < 0 || row > m->rows || nrows > m->rows - row) {
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SRC-ROWS", "rows %lld to %lld of a source of %lld",
                        (long long)row, (long long)(row + nrows), (long long)m->rows);
  }
  if (cols && cols->total != m->cols) {
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SRC-COLS",
                        "a partition of %lld columns for a source of %lld", (long long)cols->total,
                        (long long)m->cols);
  }
  return BS_OK;
}

static int32_t memory_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const memory_source *m = ctx;
  const size_t in_bytes = BS_DTYPE_BYTES(m->dtype);
  const size_t out_bytes = BS_DTYPE_BYTES(dtype);
  int32_t rc = check_read(m, row, nrows, cols, err);
  for (int64_t i = 0; i < nrows && rc == BS_OK; ++i) {
    const unsigned char *from = m->data + (size_t)((row + i) * m->stride) * in_bytes;
    unsigned char *to = (unsigned char *)out + (size_t)(i * out_stride) * out_bytes;
    if (cols && cols->kind == BS_PARTITION_GATHER) {
      for (int64_t j = 0; j < cols->count && rc == BS_OK; ++j) {
        rc = bs_convert(dtype, to + (size_t)j * out_bytes, m->dtype, from + cols->columns[j] * in_bytes, 1);
      }
    } else {
      const int64_t begin = cols ? cols->begin : 0;
      rc = bs_convert(dtype, to, m->dtype, from + (size_t)begin * in_bytes,
                      (uint64_t)(cols ? cols->count : m->cols));
    }
    if (rc != BS_OK) {
      bs_error_set(err, rc, "BS-SRC-DTYPE", "no conversion from %s to %s", bs_dtype_name(m->dtype),
                   bs_dtype_name(dtype));
    }
  }
  return rc;
}

int32_t bs_source_from_memory(const void *data, uint32_t dtype, int64_t rows, int64_t cols, int64_t stride,
                              bs_source *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  if (!bs_dtype_known(dtype) || rows < 0 || cols < 0 || stride < cols || (!data && rows > 0 && cols > 0)) {
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SRC-SHAPE",
                        "a source of %lld x %lld, stride %lld, dtype %s is not possible", (long long)rows,
                        (long long)cols, (long long)stride, bs_dtype_name(dtype));
  }
  memory_source *m = malloc(sizeof *m);
  if (!m) return bs_error_set(err, BS_NO_MEMORY, "BS-SRC-MEMORY", "no memory for a source");
  *m = (memory_source){data, dtype, rows, cols, stride};
  *out = (bs_source){sizeof *out, dtype, rows, cols, m, memory_read, NULL};
  return BS_OK;
}

void bs_source_release(bs_source *source) {
  if (!source || source->read != memory_read) return;
  free(source->ctx);
  memset(source, 0, sizeof *source);
}
