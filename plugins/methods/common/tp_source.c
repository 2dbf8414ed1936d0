/* SPDX-License-Identifier: MIT
 *
 * tp_source.c - views of a weight source: some rows, all columns with zeros where not owned (by columns, or
 * by positions in each row), only the own columns, one zero column. Used during packing (tp_build.c),
 * possibly by several members of the rank's team at the same time. */
#include "tp.h"

#define CHUNK 512 /* columns moved together: about 10 KiB of stack */

static int32_t read_rows(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  const tp_rows_view *view = ctx;
  return view->inner->read(view->inner->ctx, view->row_begin + row, nrows, cols, dtype, out, out_stride, err);
}

bs_source tp_source_rows(tp_rows_view *view, const bs_source *inner, int64_t row_begin, int64_t row_count) {
  bs_source source = *inner;
  view->inner = inner;
  view->row_begin = row_begin;
  source.rows = row_count;
  source.ctx = view;
  source.read = read_rows;
  bs_generator_under(inner, row_begin, view, &view->made, &source);
  return source;
}

static void zero_rows(void *out, int64_t nrows, int64_t ncols, int64_t stride, uint64_t size) {
  for (int64_t r = 0; r < nrows; r++)
    memset((char *)out + (uint64_t)(r * stride) * size, 0, (uint64_t)ncols * size);
}

static int64_t column(const bs_partition *p, int64_t i) {
  if (p == NULL) return i;
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i;
}

/* Reads the owned columns `list` of each row and puts them at `place` of out. */
static int32_t place_columns(const bs_source *inner, int64_t row, int64_t nrows, const uint32_t *list,
                             const int64_t *place, int64_t n, uint32_t dtype, void *out, int64_t out_stride,
                             bs_error *err) {
  uint64_t buffer[CHUNK]; /* wide enough for f64 */
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  bs_partition part;
  memset(&part, 0, sizeof part);
  part.struct_size = (uint32_t)sizeof part;
  part.kind = BS_PARTITION_GATHER;
  part.total = inner->cols;
  part.count = n;
  part.columns = list;
  for (int64_t r = 0; r < nrows; r++) {
    int32_t rc = inner->read(inner->ctx, row + r, 1, &part, dtype, buffer, n, err);
    if (rc != BS_OK) return rc;
    char *to = (char *)out + (uint64_t)(r * out_stride) * size;
    for (int64_t i = 0; i < n; i++)
      memcpy(to + (uint64_t)place[i] * size, (const char *)buffer + (uint64_t)i * size, size);
  }
  return BS_OK;
}

static int32_t read_zeros(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const tp_zeros_view *view = ctx;
  const bs_partition *own = view->own;
  const int64_t asked = cols != NULL ? cols->count : view->inner->cols;
  uint32_t list[CHUNK];
  int64_t place[CHUNK], n = 0, i = 0, j = 0;
  zero_rows(out, nrows, asked, out_stride, BS_DTYPE_BYTES(dtype));
  /* Both lists ascend: walk them together and read where they meet. */
  while (i < asked && j < own->count) {
    const int64_t want = column(cols, i), have = column(own, j);
    if (want == have) {
      list[n] = (uint32_t)want;
      place[n++] = i;
    }
    i += want <= have;
    j += have <= want;
    if (n == CHUNK || (n > 0 && (i == asked || j == own->count))) {
      int32_t rc = place_columns(view->inner, row, nrows, list, place, n, dtype, out, out_stride, err);
      if (rc != BS_OK) return rc;
      n = 0;
    }
  }
  return BS_OK;
}

bs_source tp_source_zeros(tp_zeros_view *view, const bs_source *inner, const bs_partition *own) {
  bs_source source = *inner;
  view->inner = inner;
  view->own = own;
  source.ctx = view;
  source.read = read_zeros;
  return source;
}

/* The positions of one row around the columns that are asked for, a window at a time. */
typedef struct kept_window {
  const tp_kept_view *view;
  uint8_t bits[CHUNK];
  int64_t row, first, count; /* groups of the run that bits has */
} kept_window;

static int32_t is_kept(kept_window *w, int64_t k, int *out_kept, bs_error *err) {
  const bs_partition *run = w->view->run;
  const bs_kept *kept = w->view->kept;
  *out_kept = 0;
  if (k < run->begin || k >= run->begin + run->count) return BS_OK;
  const int64_t group = (k - run->begin) / 4, groups = (run->count + 3) / 4;
  if (group < w->first || group >= w->first + w->count) {
    w->first = group;
    w->count = groups - group < CHUNK ? groups - group : CHUNK;
    const int32_t rc = kept->read(kept->ctx, w->row, 1, group, w->count, w->bits, w->count, err);
    if (rc != BS_OK) return rc;
  }
  *out_kept = w->bits[group - w->first] >> ((k - run->begin) % 4) & 1;
  return BS_OK;
}

static int32_t read_kept_row(kept_window *w, const bs_partition *cols, int64_t asked, uint32_t dtype,
                             void *out, bs_error *err) {
  uint32_t list[CHUNK];
  int64_t place[CHUNK], n = 0;
  for (int64_t i = 0; i < asked; i++) {
    const int64_t k = column(cols, i);
    int kept;
    int32_t rc = is_kept(w, k, &kept, err);
    if (rc != BS_OK) return rc;
    if (kept) {
      list[n] = (uint32_t)k;
      place[n++] = i;
    }
    if (n == 0 || (n < CHUNK && i + 1 < asked)) continue;
    rc = place_columns(w->view->inner, w->row, 1, list, place, n, dtype, out, 0, err);
    if (rc != BS_OK) return rc;
    n = 0;
  }
  return BS_OK;
}

static int32_t read_kept(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  const tp_kept_view *view = ctx;
  const int64_t asked = cols != NULL ? cols->count : view->inner->cols;
  kept_window window = {.view = view};
  int32_t rc = BS_OK;
  zero_rows(out, nrows, asked, out_stride, BS_DTYPE_BYTES(dtype));
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++) {
    window.row = row + r;
    window.count = 0;
    rc = read_kept_row(&window, cols, asked, dtype,
                       (char *)out + (uint64_t)(r * out_stride) * BS_DTYPE_BYTES(dtype), err);
  }
  return rc;
}

bs_source tp_source_kept(tp_kept_view *view, const bs_source *inner, const bs_kept *kept,
                         const bs_partition *run) {
  bs_source source = *inner;
  view->inner = inner;
  view->kept = kept;
  view->run = run;
  source.ctx = view;
  source.read = read_kept;
  return source;
}

/* Columns `cols` of `own`, as columns of the inner source: a list of them at a time. */
static int32_t read_columns(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const tp_zeros_view *view = ctx;
  const int64_t asked = cols != NULL ? cols->count : view->own->count;
  uint32_t list[CHUNK];
  bs_partition part;
  memset(&part, 0, sizeof part);
  part.struct_size = (uint32_t)sizeof part;
  part.kind = BS_PARTITION_GATHER;
  part.total = view->inner->cols;
  part.columns = list;
  for (int64_t first = 0; first < asked; first += CHUNK) {
    part.count = asked - first < CHUNK ? asked - first : CHUNK;
    for (int64_t i = 0; i < part.count; i++) list[i] = (uint32_t)column(view->own, column(cols, first + i));
    const int32_t rc =
        view->inner->read(view->inner->ctx, row, nrows, &part, dtype,
                          (char *)out + (uint64_t)first * BS_DTYPE_BYTES(dtype), out_stride, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

bs_source tp_source_columns(tp_zeros_view *view, const bs_source *inner, const bs_partition *own) {
  bs_source source = *inner;
  view->inner = inner;
  view->own = own;
  source.cols = own->count;
  source.ctx = view;
  source.read = read_columns;
  return source;
}

static int32_t read_zero_column(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols,
                                uint32_t dtype, void *out, int64_t out_stride, bs_error *err) {
  (void)ctx;
  (void)row;
  (void)err;
  zero_rows(out, nrows, cols != NULL ? cols->count : 1, out_stride, BS_DTYPE_BYTES(dtype));
  return BS_OK;
}

bs_source tp_source_zero_column(const bs_source *inner) {
  bs_source source = *inner;
  source.cols = 1;
  source.ctx = NULL;
  source.read = read_zero_column;
  return source;
}
