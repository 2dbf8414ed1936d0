/* SPDX-License-Identifier: MIT
 * weights.c - constants that are weights of matmul, packed once each: the source reads them as the model has
 * them, in any order of rows and columns, aligned or not; tied weights and other bindings find them again. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/op/quant.h"
#include "graph/ir/arena.h"
#include "graph/run/run.h"
#include "graph/run/weights.h"

/* The state of a bs_source: element (row, col) of a part lies at data + (row row_stride + col col_stride) of
 * `dtype`. */
typedef struct strided {
  gpart part;
  int64_t cols;
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
  const unsigned char *from = s->part.data + (uint64_t)(row * s->part.row_stride) * size;
  if (cols == NULL && s->part.col_stride == 1 && ((uintptr_t)from & (size - 1u)) == 0) {
    bs_convert(dtype, out, s->dtype, from + (uint64_t)k * size, (uint64_t)n);
    return;
  }
  if (cols == NULL && s->part.col_stride == 1) {
    memcpy(buffer, from + (uint64_t)k * size, (size_t)n * size);
  } else {
    for (int64_t i = 0; i < n; i++)
      memcpy(buffer + (size_t)i * size, from + (uint64_t)(column(cols, k + i) * s->part.col_stride) * size,
             size);
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
      memcpy(line, s->part.data + (uint64_t)((row + r) * s->part.row_stride + k * s->part.col_stride) * size,
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

enum { DROP_BYTES = 2 << 20 };

/* Rows that were read in order are given back while the weight is packed, so that it is never resident twice:
 * at the end of each block of DROP_BYTES. Pages that are dropped too early are read again. */
static void drop_lines(const unsigned char *data, uint64_t line, int64_t row, int64_t nrows) {
  const uint64_t end = (uint64_t)(row + nrows) * line / DROP_BYTES * DROP_BYTES,
                 begin = (uint64_t)row * line / DROP_BYTES * DROP_BYTES;
  if (end > begin) gdrop_mapped(data + begin, end - begin);
}

static void drop_behind(const strided *s, int64_t row, int64_t nrows) {
  if (s->part.row_stride >= s->cols)
    drop_lines(s->part.data, (uint64_t)s->part.row_stride * BS_DTYPE_BYTES(s->dtype), row, nrows);
}

/* Multiplies rows that were read. */
static void scale_rows(const strided *s, int64_t nrows, int64_t count, uint32_t dtype, void *out,
                       int64_t out_stride) {
  for (int64_t r = 0; r < nrows; r++) {
    float *row = (float *)out + r * out_stride;
    for (int64_t k = 0; dtype == BS_F32 && k < count; k++) row[k] = (float)(s->part.scale * (double)row[k]);
    for (int64_t k = r * out_stride; dtype != BS_F32 && k < r * out_stride + count; k++)
      bs_store_f64(dtype, out, k, s->part.scale * bs_load_f64(dtype, out, k));
  }
}

/* Rows row .. row+nrows-1 of one part. */
static void read_part(const strided *s, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                      void *out, int64_t out_stride) {
  const int64_t count = cols != NULL ? cols->count : s->cols;
  if (cols == NULL && s->part.row_stride == 1 && s->part.col_stride != 1 && nrows > 1) {
    read_turned(s, row, nrows, count, dtype, out, out_stride);
    return;
  }
  const uint32_t to = BS_DTYPE_BYTES(dtype);
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t k = 0; k < count; k += BUFFER)
      read_run(s, row + r, cols, k, count - k < BUFFER ? count - k : BUFFER, dtype,
               (unsigned char *)out + (uint64_t)(r * out_stride + k) * to);
  drop_behind(s, row, nrows);
}

int32_t gweight_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                     void *out, int64_t out_stride, bs_error *err) {
  const gweight *w = ctx;
  if (row < 0 || nrows < 0 || nrows > w->rows - row)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-WEIGHT", "rows %lld.. of a weight of %lld rows",
                        (long long)row, (long long)w->rows);
  const uint64_t line = (uint64_t)out_stride * BS_DTYPE_BYTES(dtype);
  for (uint32_t p = 0; p < w->n_parts && nrows > 0; p++) {
    const strided s = {w->parts[p], w->cols, w->dtype};
    if (row >= s.part.rows) {
      row -= s.part.rows;
      continue;
    }
    const int64_t n = nrows < s.part.rows - row ? nrows : s.part.rows - row;
    read_part(&s, row, n, cols, dtype, out, out_stride);
    if (s.part.scale != 0) scale_rows(&s, n, cols != NULL ? cols->count : s.cols, dtype, out, out_stride);
    out = (unsigned char *)out + (uint64_t)n * line;
    nrows -= n;
    row = 0;
  }
  return BS_OK;
}

/* Never 0. */
static uint64_t hash_of(const unsigned char *data, uint64_t bytes, uint64_t offset) {
  uint64_t hash = UINT64_C(14695981039346656037) ^ offset;
  for (uint64_t at = 0; at < bytes; at += sizeof hash) {
    uint64_t word = 0;
    memcpy(&word, data + at, bytes - at < sizeof word ? (size_t)(bytes - at) : sizeof word);
    hash = (hash ^ word) * UINT64_C(1099511628211);
    hash ^= hash >> 32;
  }
  return hash | 1u;
}

static gpart gweight_part(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value];
  const gvalue *root = &g->values[v->base];
  const uint64_t offset = (uint64_t)v->offset * BS_DTYPE_BYTES(v->dtype);
  return (gpart){.data = (const unsigned char *)root->data + offset,
                 .rows = v->dims[0],
                 .row_stride = v->strides[0],
                 .col_stride = v->strides[1],
                 .scale = v->scale,
                 .hash = graph_owns(g, root->data) ? hash_of(root->data, graph_bytes(root), offset) : 0};
}

gweight gweight_key(const graph *g, const gnode *node, const gquery *q) {
  const gvalue *w = &g->values[node->weight];
  const gquant *quant = graph_quant(g, node->weight);
  if (quant != NULL) {
    gweight key = {.rows = w->dims[0], .cols = w->dims[1], .n_parts = quant->n_keys, .form = quant->quant};
    memcpy(key.keys, quant->keys, sizeof key.keys);
    return key;
  }
  gweight key = {.rows = w->dims[0],
                 .cols = w->dims[1],
                 .n_parts = 1,
                 .dtype = w->dtype,
                 .x_dtype = q->descs[0].dtype,
                 .y_dtype = q->descs[3].dtype};
  if (w->flags & GV_JOINED) {
    const gjoin *join = w->data;
    key.n_parts = join->n;
    for (uint32_t i = 0; i < join->n; i++) key.parts[i] = gweight_part(g, join->parts[i]);
  } else {
    key.parts[0] = gweight_part(g, node->weight);
  }
  return key;
}

static int same_parts(const gweight *a, const gweight *b) {
  for (uint32_t i = 0; i < a->n_parts; i++) {
    const gpart *x = &a->parts[i], *y = &b->parts[i];
    if (x->hash != y->hash || (x->hash == 0 && x->data != y->data) || x->rows != y->rows ||
        x->row_stride != y->row_stride || x->col_stride != y->col_stride || x->scale != y->scale)
      return 0;
  }
  return 1;
}

gweight gweight_row(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value];
  const gvalue *root = &g->values[v->base];
  const uint64_t offset = (uint64_t)v->offset * BS_DTYPE_BYTES(v->dtype);
  const int64_t count = v->dims[v->rank - 1], stride = v->strides[v->rank - 1];
  gweight row = {.rows = 1, .cols = count, .n_parts = 1, .dtype = v->dtype};
  row.parts[0] =
      (gpart){.data = (const unsigned char *)root->data + offset,
              .rows = 1,
              .row_stride = count,
              .col_stride = stride,
              .hash = graph_owns(g, root->data) ? hash_of(root->data, graph_bytes(root), offset) : 0};
  return row;
}

int gweight_same(const gweight *a, const gweight *b) {
  if (a->form.struct_size != b->form.struct_size ||
      (a->form.struct_size > 0 && !bs_quant_same_form(&a->form, &b->form)))
    return 0;
  return memcmp(a->keys, b->keys, sizeof a->keys) == 0 && a->n_parts == b->n_parts && same_parts(a, b) &&
         a->rows == b->rows && a->cols == b->cols && a->dtype == b->dtype && a->x_dtype == b->x_dtype &&
         a->y_dtype == b->y_dtype;
}

/* The elements of a weight's parts are there to be read. */
int32_t gweight_ask(const graph *g, uint32_t weight, bs_error *err) {
  const gvalue *w = &g->values[weight];
  if (!(w->flags & GV_JOINED)) return graph_ask(g, weight, err);
  const gjoin *join = w->data;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < join->n && rc == BS_OK; i++) rc = graph_ask(g, join->parts[i], err);
  return rc;
}

/* Quantised weights are packed for matmul_q: a take_q asks with a product of one row. */
int32_t gpack_quant(grank *rank, const gquery *q, bs_packed **out_packed, bs_error *err) {
  const bs_quant *form = q->query.quant;
  gquery product;
  if (strcmp(q->query.op, "take_q") != 0)
    return rank->api->pack(rank->rank, &q->query, NULL, out_packed, err);
  memset(&product, 0, sizeof product);
  const int64_t columns[2] = {form->cols, form->rows};
  for (uint32_t i = 0; i < 2; i++) {
    product.descs[i] = (bs_tensor_desc){.struct_size = (uint32_t)sizeof product.descs[i],
                                        .dtype = BS_F32,
                                        .rank = 2,
                                        .dims = {1, columns[i]},
                                        .strides = {columns[i], 1}};
    product.args[3 * i] = &product.descs[i];
  }
  product.query = (bs_op_query){.struct_size = (uint32_t)sizeof product.query,
                                .nargs = 4,
                                .op = "matmul_q",
                                .args = product.args,
                                .weight_dtype = BS_F32,
                                .quant = form};
  return rank->api->pack(rank->rank, &product.query, NULL, out_packed, err);
}

/* bs_quant.read of a gquant: what was read in order is given back. */
static int32_t read_quant(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const gquant *quant = ctx;
  const int32_t rc = quant->quant.read(quant->quant.ctx, row, nrows, out, err);
  for (uint32_t p = 0; p < quant->n_keys && nrows > 0; p++) {
    const gquant_place *at = &quant->places[p];
    if (row >= at->rows) {
      row -= at->rows;
      continue;
    }
    const int64_t n = nrows < at->rows - row ? nrows : at->rows - row;
    if (at->line > 0) drop_lines(at->data, (uint64_t)at->line, row, n);
    nrows -= n;
    row = 0;
  }
  return rc;
}

static int32_t pack_mapped(grank *rank, const gquery *q, const gquant *quant, bs_packed **out_packed,
                           bs_error *err) {
  bs_quant form = *q->query.quant;
  gquery asked = *q;
  form.ctx = (void *)(uintptr_t)quant;
  form.read = read_quant;
  asked.query.quant = &form;
  return gpack_quant(rank, &asked, out_packed, err);
}

/* Gives back the pages of what was packed. */
void gweight_drop(const gweight *key, const gquant *quant) {
  for (uint32_t i = 0; quant != NULL && i < quant->n_keys; i++)
    gdrop_mapped(quant->places[i].data, quant->places[i].bytes);
  for (uint32_t i = 0; i < key->n_parts && quant == NULL; i++) {
    const gpart *p = &key->parts[i];
    const int64_t last = (p->rows - 1) * p->row_stride + (key->cols - 1) * p->col_stride;
    gdrop_mapped(p->data, (uint64_t)(last + 1) * BS_DTYPE_BYTES(key->dtype));
  }
}

static int32_t pack(gcore *core, grank *rank, const graph *g, uint32_t weight, gweight *key, const gquery *q,
                    bs_error *err) {
  if (!ARRAY_GROW(core->weights, core->n_weights, core->cap_weights))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a packed weight");
  const bs_source source = {.struct_size = (uint32_t)sizeof source,
                            .dtype = key->dtype,
                            .rows = key->rows,
                            .cols = key->cols,
                            .ctx = key,
                            .read = gweight_read};
  const double began = bs_clock_s();
  const gquant *quant = graph_quant(g, weight);
  const uint64_t bytes = quant != NULL
                             ? bs_quant_bytes(&quant->quant)
                             : (uint64_t)key->rows * (uint64_t)key->cols * BS_DTYPE_BYTES(key->dtype);
  int32_t rc = quant != NULL ? BS_OK : gweight_ask(g, weight, err);
  if (rc == BS_OK) rc = gdevice_fits(rank, bytes, "the packed weights of the model", err);
  if (rc == BS_OK)
    rc = quant != NULL ? pack_mapped(rank, q, quant, &key->packed, err)
                       : rank->api->pack(rank->rank, &q->query, &source, &key->packed, err);
  if (rc != BS_OK) return rc;
  core->pack_s += bs_clock_s() - began;
  gweight_drop(key, quant);
  core->packed_bytes += rank->api->packed_bytes(key->packed);
  key->rank = rank;
  rank->refs++;
  core->weights[core->n_weights++] = *key;
  return BS_OK;
}

int32_t gcore_product(gcore *core, grank *rank, const graph *g, const gnode *node, const gquery *q,
                      bs_plan **out_plan, bs_error *err) {
  gweight key = gweight_key(g, node, q);
  for (uint32_t i = 0; i < core->n_weights; i++) {
    if (!gweight_same(&core->weights[i], &key) || core->weights[i].rank->apart != rank->apart) continue;
    const int32_t rc = rank->api->op_prepare(rank->rank, &q->query, core->weights[i].packed, out_plan, err);
    if (rc != BS_UNSUPPORTED) return rc;
    bs_error_clear(err);
  }
  const int32_t rc = pack(core, rank, g, node->weight, &key, q, err);
  return rc == BS_OK ? rank->api->op_prepare(rank->rank, &q->query, key.packed, out_plan, err) : rc;
}
