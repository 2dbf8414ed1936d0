/* SPDX-License-Identifier: MIT
 * panel.c - arguments, column runs and rounding of a source's read (panel.h). */
#include "panel.h"

#include <float.h>
#include <inttypes.h>

static int32_t bad(bs_error *err, const char *what, int64_t value, int64_t limit) {
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-WL-READ", "source read: %s %" PRId64 ", limit %" PRId64, what,
                 value, limit);
}

int32_t bs_wl_check_read(int64_t rows, int64_t cols, int64_t row, int64_t nrows, const bs_partition *part,
                         int64_t out_stride, bs_wl_columns *out_columns, bs_error *err) {
  bs_wl_columns c = {0, cols, NULL};
  if (row < 0 || row > rows) return bad(err, "row", row, rows);
  if (nrows < 0 || nrows > rows - row) return bad(err, "row count", nrows, rows - row);
  if (part != NULL) {
    if (part->total != cols) return bad(err, "partition of columns", part->total, cols);
    if (part->count < 0 || part->count > cols) return bad(err, "column count", part->count, cols);
    c.count = part->count;
    if (part->kind == BS_PARTITION_GATHER) {
      c.columns = part->columns;
      if (c.columns == NULL && c.count > 0) return bad(err, "column list missing, columns", c.count, 0);
    } else {
      if (part->begin < 0 || part->begin > cols - part->count)
        return bad(err, "first column", part->begin, cols - part->count);
      c.begin = part->begin;
    }
  }
  for (int64_t i = 0; c.columns != NULL && i < c.count; i++) {
    if ((int64_t)c.columns[i] >= cols) return bad(err, "column", c.columns[i], cols);
    if (i > 0 && c.columns[i] <= c.columns[i - 1])
      return bad(err, "columns do not ascend at", c.columns[i], c.columns[i - 1]);
  }
  if (out_stride < c.count && nrows > 1) return bad(err, "row stride", out_stride, c.count);
  *out_columns = c;
  return BS_OK;
}

int64_t bs_wl_run(const bs_wl_columns *columns, int64_t i, uint32_t max_gap) {
  int64_t left = columns->count - i, n = 1;
  if (columns->columns == NULL) return left < BS_WL_BLOCK ? left : BS_WL_BLOCK;
  const uint32_t *at = columns->columns + i;
  while (n < left && at[n] - at[0] < BS_WL_BLOCK && at[n] - at[n - 1] <= max_gap) n++;
  return n;
}

static int32_t convert(const bs_host *host, uint32_t to, void *out, uint32_t from, const void *src, int64_t n,
                       bs_error *err) {
  if (to == from) {
    memcpy(out, src, (size_t)n * BS_DTYPE_BYTES(to));
    return BS_OK;
  }
  if (host->convert(to, out, from, src, (uint64_t)n) == BS_OK) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-WL-DTYPE",
                 "no conversion from dtype 0x%04" PRIx32 " to 0x%04" PRIx32, from, to);
}

int32_t bs_wl_round(const bs_host *host, uint32_t model, uint32_t out_dtype, void *out, uint32_t src_dtype,
                    const void *src, int64_t n, bs_error *err) {
  uint64_t scratch[BS_WL_BLOCK];
  if (src_dtype == model || out_dtype == model) return convert(host, out_dtype, out, src_dtype, src, n, err);
  int32_t rc = convert(host, model, scratch, src_dtype, src, n, err);
  return rc == BS_OK ? convert(host, out_dtype, out, model, scratch, n, err) : rc;
}

double bs_wl_max_finite(uint32_t dtype) {
  switch (dtype) {
    case BS_F64:
      return DBL_MAX;
    case BS_F32:
      return FLT_MAX;
    case BS_BF16:
      return 0x1.fep127;
    case BS_F16:
      return 65504.0;
    case BS_F8E5M2:
      return 57344.0;
    case BS_F8E4M3:
      return 448.0;
    default:
      return 0.0;
  }
}
