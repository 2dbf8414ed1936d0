/* SPDX-License-Identifier: MIT
 * weights.c - constants that are weights of matmul, packed once each: the source reads them as the model has
 * them, in any order of rows and columns, aligned or not; tied weights and other bindings find them again. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/run/run.h"

/* Behind a bs_source: element (row, col) lies at data + (row row_stride + col col_stride) of `dtype`. */
typedef struct strided {
  const unsigned char *data;
  int64_t rows, cols, row_stride, col_stride;
  uint32_t dtype;
} strided;

enum { BUFFER = 1024 };

static int64_t column(const bs_partition *cols, int64_t i) {
  if (cols == NULL) return i;
  return cols->kind == BS_PARTITION_CONTIGUOUS ? cols->begin + i : (int64_t)cols->columns[i];
}

/* Elements k .. k+n-1 of a row into a buffer, then rounded to the wanted dtype. */
static void read_run(const strided *s, int64_t row, const bs_partition *cols, int64_t k, int64_t n,
                     uint32_t dtype, unsigned char *out) {
  unsigned char buffer[BUFFER * 8];
  const uint32_t size = BS_DTYPE_BYTES(s->dtype);
  const unsigned char *from = s->data + (uint64_t)(row * s->row_stride) * size;
  if (cols == NULL && s->col_stride == 1 && ((uintptr_t)from & (size - 1u)) == 0) {
    bs_convert(dtype, out, s->dtype, from + (uint64_t)k * size, (uint64_t)n);
    return;
  }
  if (cols == NULL && s->col_stride == 1) {
    memcpy(buffer, from + (uint64_t)k * size, (size_t)n * size);
  } else {
    for (int64_t i = 0; i < n; i++)
      memcpy(buffer + (size_t)i * size, from + (uint64_t)(column(cols, k + i) * s->col_stride) * size, size);
  }
  bs_convert(dtype, out, s->dtype, buffer, (uint64_t)n);
}

/* A weight [K,N] of the model, seen as [N,K]: whole cache lines of it are rows here, so that a block of rows
 * is read column by column. */
static void read_turned(const strided *s, int64_t row, int64_t nrows, int64_t cols, uint32_t dtype,
                        unsigned char *out, int64_t out_stride) {
  unsigned char line[64 * 8], wide[64 * 8];
  const uint32_t size = BS_DTYPE_BYTES(s->dtype), to = BS_DTYPE_BYTES(dtype);
  for (int64_t r = 0; r < nrows; r += 64) {
    const int64_t n = nrows - r < 64 ? nrows - r : 64;
    for (int64_t k = 0; k < cols; k++) {
      memcpy(line, s->data + (uint64_t)((row + r) * s->row_stride + k * s->col_stride) * size,
             (size_t)n * size);
      const unsigned char *from = line;
      if (dtype != s->dtype) {
        bs_convert(dtype, wide, s->dtype, line, (uint64_t)n);
        from = wide;
      }
      for (int64_t i = 0; i < n; i++)
        memcpy(out + (uint64_t)((r + i) * out_stride + k) * to, from + (size_t)i * to, to);
    }
  }
}

static int32_t read_rows(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  const strided *s = ctx;
  const int64_t count = cols != NULL ? cols->count : s->cols;
  if (row < 0 || nrows < 0 || nrows > s->rows - row)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-WEIGHT", "rows %lld.. of a weight of %lld rows",
                        (long long)row, (long long)s->rows);
  if (cols == NULL && s->row_stride == 1 && s->col_stride != 1 && nrows > 1) {
    read_turned(s, row, nrows, count, dtype, out, out_stride);
    return BS_OK;
  }
  const uint32_t to = BS_DTYPE_BYTES(dtype);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t k = 0; k < count; k += BUFFER)
      read_run(s, row + r, cols, k, count - k < BUFFER ? count - k : BUFFER, dtype,
               (unsigned char *)out + (uint64_t)(r * out_stride + k) * to);
  return BS_OK;
}

static gweight key_of(const graph *g, const gnode *node, const gquery *q) {
  const gvalue *w = &g->values[node->weight];
  const gvalue *root = &g->values[w->base];
  return (gweight){.data = (const unsigned char *)root->data + (uint64_t)w->offset * BS_DTYPE_BYTES(w->dtype),
                   .rows = w->dims[0],
                   .cols = w->dims[1],
                   .row_stride = w->strides[0],
                   .col_stride = w->strides[1],
                   .dtype = w->dtype,
                   .x_dtype = q->descs[0].dtype,
                   .y_dtype = q->descs[3].dtype};
}

static int same_weight(const gweight *a, const gweight *b) {
  return a->data == b->data && a->rows == b->rows && a->cols == b->cols && a->row_stride == b->row_stride &&
         a->col_stride == b->col_stride && a->dtype == b->dtype && a->x_dtype == b->x_dtype &&
         a->y_dtype == b->y_dtype;
}

int32_t gcore_weight(gcore *core, const graph *g, const gnode *node, const gquery *q, int again,
                     bs_packed **out_packed, bs_error *err) {
  gweight key = key_of(g, node, q);
  for (uint32_t i = 0; i < core->n_weights && !again; i++)
    if (same_weight(&core->weights[i], &key)) {
      *out_packed = core->weights[i].packed;
      return BS_OK;
    }
  if (!ARRAY_GROW(core->weights, core->n_weights, core->cap_weights))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a packed weight");
  strided s = {key.data, key.rows, key.cols, key.row_stride, key.col_stride, key.dtype};
  const bs_source source = {.struct_size = (uint32_t)sizeof source,
                            .dtype = key.dtype,
                            .rows = key.rows,
                            .cols = key.cols,
                            .ctx = &s,
                            .read = read_rows};
  const double began = gclock_s();
  const int32_t rc = core->rank.api->pack(core->rank.rank, &q->query, &source, &key.packed, err);
  if (rc != BS_OK) return rc;
  core->pack_s += gclock_s() - began;
  core->packed_bytes += core->rank.api->packed_bytes(key.packed);
  core->weights[core->n_weights++] = key;
  *out_packed = key.packed;
  return BS_OK;
}
