/* SPDX-License-Identifier: MIT
 *
 * order.c - a weight source whose rows, or columns, are seen in another order. Runs are long, so that a read
 * of the view is a few reads of the source. Methods read such a view as they read any source.
 */
#include "core/partition/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

/* Columns of one read of the source that are no run. */
enum { GATHERED = 256 };

int32_t bs_order_add(bs_order *o, int64_t from, int64_t count, bs_error *err) {
  bs_order_run *last = o->runs != NULL && o->n > 0 ? &o->runs[o->n - 1] : NULL;
  if (count <= 0) return BS_OK;
  if (last != NULL && last->from + last->count == from) {
    last->count += count;
    o->total += count;
    return BS_OK;
  }
  if (o->runs == NULL || o->n == o->cap) {
    const uint32_t cap = o->cap > 0 ? 2 * o->cap : 8;
    bs_order_run *runs = realloc(o->runs, cap * sizeof *runs);
    if (runs == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-ORDER-MEMORY", "no memory for an order");
    o->runs = runs;
    o->cap = cap;
  }
  o->runs[o->n++] = (bs_order_run){o->total, from, count};
  o->total += count;
  return BS_OK;
}

int32_t bs_order_check(const bs_order *o, int64_t total, bs_error *err) {
  if (o->total != total)
    return bs_error_set(err, BS_INTERNAL, "BS-ORDER-ROWS", "an order of %" PRId64 " rows has %" PRId64, total,
                        o->total);
  unsigned char *seen = calloc((size_t)total + 1u, 1);
  if (seen == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-ORDER-MEMORY", "no memory for an order");
  int64_t wrong = -1;
  for (uint32_t i = 0; i < o->n && wrong < 0; i++)
    for (int64_t k = o->runs[i].from; k < o->runs[i].from + o->runs[i].count && wrong < 0; k++) {
      if (k < 0 || k >= total || seen[k]) wrong = k;
      if (wrong < 0) seen[k] = 1;
    }
  free(seen);
  if (wrong < 0) return BS_OK;
  return bs_error_set(err, BS_INTERNAL, "BS-ORDER-ROWS",
                      "row %" PRId64 " comes twice in an order of %" PRId64 " rows, or is none", wrong,
                      total);
}

int bs_order_is_plain(const bs_order *o) {
  return o->n == 0 || (o->n == 1 && o->runs[0].from == 0);
}

/* The run that has a position. */
static uint32_t run_of(const bs_order *o, int64_t at) {
  uint32_t low = 0, high = o->n;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (o->runs[middle].at <= at)
      low = middle;
    else
      high = middle;
  }
  return low;
}

int64_t bs_order_at(const bs_order *o, int64_t at) {
  const bs_order_run *run = &o->runs[run_of(o, at)];
  return run->from + at - run->at;
}

int bs_order_same(const bs_order *a, const bs_order *b) {
  return a->n == b->n && (a->n == 0 || memcmp(a->runs, b->runs, a->n * sizeof *a->runs) == 0);
}

int32_t bs_order_copy(const bs_order *o, bs_order *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  if (o->n == 0) return BS_OK;
  out->runs = malloc(o->n * sizeof *out->runs);
  if (out->runs == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-ORDER-MEMORY", "no memory for an order");
  memcpy(out->runs, o->runs, o->n * sizeof *out->runs);
  out->n = out->cap = o->n;
  out->total = o->total;
  return BS_OK;
}

void bs_order_free(bs_order *o) {
  free(o->runs);
  memset(o, 0, sizeof *o);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Rows of the source that follow each other there. */
typedef struct rows_read {
  const bs_order_view *v;
  int64_t row, nrows;
  uint32_t dtype;
  unsigned char *out;
  int64_t out_stride;
} rows_read;

/* Columns of the source to columns `to` on of out. */
static int32_t read_columns(const rows_read *r, const bs_partition *cols, int64_t to, bs_error *err) {
  const bs_source *s = r->v->inner;
  return s->read(s->ctx, r->row, r->nrows, cols, r->dtype, r->out + (uint64_t)to * BS_DTYPE_BYTES(r->dtype),
                 r->out_stride, err);
}

/* Positions begin .. begin+count-1 of the order of columns. */
static int32_t read_run(const rows_read *r, int64_t begin, int64_t count, bs_error *err) {
  const bs_order *o = r->v->columns;
  int32_t rc = BS_OK;
  uint32_t at = count > 0 ? run_of(o, begin) : 0;
  for (int64_t done = 0, n; done < count && rc == BS_OK; done += n, at++) {
    const bs_order_run *run = &o->runs[at];
    const int64_t skip = begin + done - run->at;
    n = run->count - skip < count - done ? run->count - skip : count - done;
    const bs_partition cols = {.struct_size = (uint32_t)sizeof cols,
                               .kind = BS_PARTITION_CONTIGUOUS,
                               .total = r->v->inner->cols,
                               .begin = run->from + skip,
                               .count = n};
    rc = read_columns(r, &cols, done, err);
  }
  return rc;
}

/* Columns of a list. A partition is ascending, so that each read ends where the source's columns fall. */
static int32_t read_list(const rows_read *r, const uint32_t *columns, int64_t count, bs_error *err) {
  uint32_t list[GATHERED];
  int32_t rc = BS_OK;
  for (int64_t done = 0, n; done < count && rc == BS_OK; done += n) {
    for (n = 0; n < GATHERED && done + n < count; n++) {
      list[n] = (uint32_t)bs_order_at(r->v->columns, columns[done + n]);
      if (n > 0 && list[n] <= list[n - 1]) break;
    }
    const bs_partition cols = {.struct_size = (uint32_t)sizeof cols,
                               .kind = BS_PARTITION_GATHER,
                               .total = r->v->inner->cols,
                               .count = n,
                               .columns = list};
    rc = read_columns(r, &cols, done, err);
  }
  return rc;
}

static int32_t read_rows(const rows_read *r, const bs_partition *cols, bs_error *err) {
  if (r->v->columns == NULL) return read_columns(r, cols, 0, err);
  if (cols == NULL) return read_run(r, 0, r->v->source.cols, err);
  if (cols->kind == BS_PARTITION_CONTIGUOUS) return read_run(r, cols->begin, cols->count, err);
  return read_list(r, cols->columns, cols->count, err);
}

static int32_t outside(const bs_order_view *v, int64_t row, int64_t nrows, bs_error *err) {
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-ORDER-RANGE",
                      "rows %" PRId64 "..+%" PRId64 " or columns beyond a weight of %" PRId64 " x %" PRId64,
                      row, nrows, v->source.rows, v->source.cols);
}

/* Columns of a list are compared one by one: the order has no place for others. */
static int inside(const bs_order_view *v, int64_t row, int64_t nrows, const bs_partition *cols) {
  if (row < 0 || nrows < 0 || row > v->source.rows || nrows > v->source.rows - row) return 0;
  if (cols == NULL) return 1;
  if (cols->kind == BS_PARTITION_CONTIGUOUS)
    return cols->begin >= 0 && cols->count >= 0 && cols->begin <= v->source.cols &&
           cols->count <= v->source.cols - cols->begin;
  for (int64_t i = 0; i < cols->count; i++)
    if (cols->columns[i] >= v->source.cols) return 0;
  return 1;
}

static int32_t read_view(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  const bs_order_view *v = ctx;
  rows_read r = {.v = v, .row = row, .nrows = nrows, .dtype = dtype, .out = out, .out_stride = out_stride};
  if (!inside(v, row, nrows, cols)) return outside(v, row, nrows, err);
  if (v->rows == NULL) return read_rows(&r, cols, err);
  int32_t rc = BS_OK;
  uint32_t at = nrows > 0 ? run_of(v->rows, row) : 0;
  for (int64_t done = 0; done < nrows && rc == BS_OK; done += r.nrows, at++) {
    const bs_order_run *run = &v->rows->runs[at];
    const int64_t skip = row + done - run->at;
    r.row = run->from + skip;
    r.nrows = run->count - skip < nrows - done ? run->count - skip : nrows - done;
    r.out = (unsigned char *)out + (uint64_t)(done * out_stride) * BS_DTYPE_BYTES(dtype);
    rc = read_rows(&r, cols, err);
  }
  return rc;
}

int32_t bs_order_view_make(const bs_source *inner, const bs_order *rows, const bs_order *columns,
                           bs_order_view *out, bs_error *err) {
  if ((rows != NULL && rows->total != inner->rows) || (columns != NULL && columns->total != inner->cols))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-ORDER-LENGTH",
                        "an order of %" PRId64 " rows and %" PRId64 " columns of a weight of %" PRId64
                        " x %" PRId64,
                        rows != NULL ? rows->total : inner->rows,
                        columns != NULL ? columns->total : inner->cols, inner->rows, inner->cols);
  *out = (bs_order_view){.source = *inner, .inner = inner, .rows = rows, .columns = columns};
  out->source.ctx = out;
  out->source.read = read_view;
  out->source.generator = NULL;
  return BS_OK;
}
