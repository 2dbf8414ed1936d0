/* SPDX-License-Identifier: MIT
 * matrix.c - panels of a matrix in a file: pread, pick the wanted columns, round. Called by ranks while they
 * pack; thread-safe, no allocation, buffers of less than 24 KiB. */
#include <inttypes.h>

#include "file.h"

static int32_t read_bytes(const bs_file_matrix *m, uint64_t element, void *out, int64_t n, bs_error *err) {
  uint64_t size = BS_DTYPE_BYTES(m->input->dtype);
  if (m->input->tensor == NULL)
    return bs_npy_read(&m->input->npy, m->input->path, element * size, out, (uint64_t)n * size, err);
  return bs_map_pread(m->input->map, m->input->path, m->input->offset + element * size, out,
                      (uint64_t)n * size, err);
}

/* One row: runs of wanted columns, each read whole and gathered in place. */
static int32_t read_row(const bs_file_matrix *m, int64_t row, const bs_wl_columns *c, uint32_t dtype,
                        char *out, bs_error *err) {
  uint64_t raw[BS_WL_BLOCK], base = (uint64_t)row * (uint64_t)m->cols;
  size_t size = BS_DTYPE_BYTES(m->input->dtype);
  for (int64_t i = 0, n; i < c->count; i += n) {
    n = bs_wl_run(c, i, BS_WL_BLOCK);
    const uint32_t *at = c->columns == NULL ? NULL : c->columns + i;
    int64_t first = at == NULL ? c->begin + i : (int64_t)at[0];
    int64_t span = at == NULL ? n : (int64_t)(at[n - 1] - at[0]) + 1;
    int32_t rc = read_bytes(m, base + (uint64_t)first, raw, span, err);
    if (rc != BS_OK) return rc;
    for (int64_t j = 1; at != NULL && j < n; j++)
      memmove((char *)raw + (size_t)j * size, (char *)raw + (size_t)(at[j] - at[0]) * size, size);
    rc = bs_wl_round(m->host, m->dtype, dtype, out + (size_t)i * BS_DTYPE_BYTES(dtype), m->input->dtype, raw,
                     n, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* Stored [cols, rows]: each wanted column is contiguous in the file, and is scattered over the panel. */
static int32_t read_transposed(const bs_file_matrix *m, int64_t row, int64_t nrows, const bs_wl_columns *c,
                               uint32_t dtype, char *out, int64_t out_stride, bs_error *err) {
  uint64_t raw[BS_WL_BLOCK], rounded[BS_WL_BLOCK];
  size_t size = BS_DTYPE_BYTES(dtype);
  for (int64_t i = 0; i < c->count; i++) {
    int64_t column = c->columns == NULL ? c->begin + i : (int64_t)c->columns[i];
    for (int64_t r = 0, n; r < nrows; r += n) {
      n = nrows - r < BS_WL_BLOCK ? nrows - r : BS_WL_BLOCK;
      int32_t rc = read_bytes(m, (uint64_t)column * (uint64_t)m->rows + (uint64_t)(row + r), raw, n, err);
      if (rc == BS_OK) rc = bs_wl_round(m->host, m->dtype, dtype, rounded, m->input->dtype, raw, n, err);
      if (rc != BS_OK) return rc;
      for (int64_t j = 0; j < n; j++)
        memcpy(out + ((size_t)(r + j) * (size_t)out_stride + (size_t)i) * size,
               (char *)rounded + (size_t)j * size, size);
    }
  }
  return BS_OK;
}

/* Rows that need no rounding go from the file to the caller's memory directly. */
static int32_t read_direct(const bs_file_matrix *m, int64_t row, int64_t nrows, const bs_wl_columns *c,
                           char *out, int64_t out_stride, bs_error *err) {
  uint64_t cols = (uint64_t)m->cols;
  if (c->count == m->cols && out_stride == m->cols)
    return read_bytes(m, (uint64_t)row * cols, out, nrows * m->cols, err);
  for (int64_t r = 0; r < nrows; r++) {
    char *to = out + (size_t)r * (size_t)out_stride * BS_DTYPE_BYTES(m->dtype);
    int32_t rc = read_bytes(m, (uint64_t)(row + r) * cols + (uint64_t)c->begin, to, c->count, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t read_panel(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const bs_file_matrix *m = ctx;
  bs_wl_columns c;
  int32_t rc = bs_wl_check_read(m->rows, m->cols, row, nrows, cols, out_stride, &c, err);
  if (rc != BS_OK) return rc;
  if (m->transposed) {
    rc = read_transposed(m, row, nrows, &c, dtype, out, out_stride, err);
  } else if (c.columns == NULL && dtype == m->dtype && dtype == m->input->dtype) {
    rc = read_direct(m, row, nrows, &c, out, out_stride, err);
  } else {
    for (int64_t r = 0; r < nrows && rc == BS_OK; r++)
      rc = read_row(m, row + r, &c, dtype,
                    (char *)out + (size_t)r * (size_t)out_stride * BS_DTYPE_BYTES(dtype), err);
  }
  /* After the read: bytes that came from an edited file must not be used. */
  return rc == BS_OK ? bs_map_unchanged(m->input->map, m->input->path, err) : rc;
}

void bs_file_matrix_source(bs_file_matrix *m, bs_source *out_source) {
  const bs_source s = {.struct_size = (uint32_t)sizeof s,
                       .dtype = m->dtype,
                       .rows = m->rows,
                       .cols = m->cols,
                       .ctx = m,
                       .read = read_panel};
  bs_out_copy(out_source, &s, sizeof s);
}

static int finite(double v) {
  return v - v == 0.0;
}

/* The first bad element of a block: its index, or -1. Counts all. `found` and `seen` hold f64. */
static int64_t first_bad(const double *found, const double *rounded, int64_t n, uint64_t *count) {
  int64_t first = -1;
  for (int64_t i = 0; i < n; i++)
    if (!finite(found[i]) || !finite(rounded[i])) {
      if (first < 0) first = i;
      ++*count;
    }
  return first;
}

static void describe(const bs_file_matrix *m, uint64_t index, double found, char *out, size_t size) {
  uint64_t width = (uint64_t)(m->transposed ? m->rows : m->cols);
  snprintf(out, size, "element [%" PRIu64 ", %" PRIu64 "] is %s", index / width, index % width,
           finite(found)    ? "beyond the model dtype"
           : found != found ? "NaN"
                            : "Inf");
}

int32_t bs_file_matrix_scan(const bs_file_matrix *m, uint64_t *out_count, bs_error *err) {
  uint64_t raw[BS_WL_BLOCK], total = (uint64_t)m->rows * (uint64_t)m->cols;
  double found[BS_WL_BLOCK], rounded[BS_WL_BLOCK];
  char first[96] = "";
  *out_count = 0;
  for (uint64_t at = 0; at < total; at += BS_WL_BLOCK) {
    int64_t n = total - at < BS_WL_BLOCK ? (int64_t)(total - at) : BS_WL_BLOCK;
    uint64_t before = *out_count;
    int32_t rc = read_bytes(m, at, raw, n, err);
    if (rc == BS_OK) rc = bs_wl_round(m->host, m->dtype, BS_F64, rounded, m->input->dtype, raw, n, err);
    if (rc == BS_OK) rc = bs_wl_round(m->host, BS_F64, BS_F64, found, m->input->dtype, raw, n, err);
    if (rc != BS_OK) return rc;
    int64_t bad = first_bad(found, rounded, n, out_count);
    if (bad >= 0 && before == 0) describe(m, at + (uint64_t)bad, found[bad], first, sizeof first);
  }
  int32_t rc = bs_map_unchanged(m->input->map, m->input->path, err);
  if (rc != BS_OK || *out_count == 0) return rc;
  bs_fail(err, BS_INPUT, "BS-IN-NAN", "%" PRIu64 " of %" PRIu64 " values are not finite; %s%s%s: %s",
          *out_count, total, m->input->path, m->input->tensor != NULL ? "#" : "",
          m->input->tensor != NULL ? m->input->tensor : "", first);
  bs_fail_hint(err, "--set workload.allow_nonfinite=true runs with them");
  return bs_wl_at(err, BS_INPUT, m->input->option);
}
