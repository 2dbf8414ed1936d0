/* SPDX-License-Identifier: MIT
 *
 * mlp.c - two layers: column, activation, row. The hidden features that the first layer makes on a rank are
 * the columns that the second one owns there. Where those are no run (masks of blockshock), the first layer
 * is given W1's rows in the order of the columns: `rows_view` and `bias_view` stand before the caller's
 * sources while it is built.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tp/linear.h"

struct bs_tp_mlp {
  bs_rank *rank;
  bs_tp_linear *column, *row;
  int64_t hidden; /* of this rank */
  uint32_t dtype;
  bs_tensor h, dh; /* [tokens, hidden] */
};

/* ---- rows of W1 in the order of the second layer's columns ----------------------------------- */

typedef struct order {
  const bs_source *inner;
  const uint32_t *map; /* own row begin + i is the caller's row map[i] */
  int64_t begin, count;
} order;

static int32_t outside(const order *o, int64_t first, int64_t n, bs_error *err) {
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-PAIR",
                      "hidden features %" PRId64 "..+%" PRId64 " are asked of a rank that has %" PRId64
                      "..+%" PRId64,
                      first, n, o->begin, o->count);
}

static int32_t read_rows(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  const order *o = ctx;
  int32_t rc = BS_OK;
  if (row < o->begin || nrows > o->count - (row - o->begin)) return outside(o, row, nrows, err);
  for (int64_t i = 0; i < nrows && rc == BS_OK; ++i)
    rc = o->inner->read(o->inner->ctx, o->map[row - o->begin + i], 1, cols, dtype,
                        (char *)out + i * out_stride * (int64_t)BS_DTYPE_BYTES(dtype), out_stride, err);
  return rc;
}

/* A bias is one row: its columns are taken through the map. */
static int32_t read_bias(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  const order *o = ctx;
  if (cols == NULL || cols->kind != BS_PARTITION_CONTIGUOUS || cols->begin < o->begin ||
      cols->count > o->count - (cols->begin - o->begin))
    return outside(o, cols != NULL ? cols->begin : 0, cols != NULL ? cols->count : o->inner->cols, err);
  const bs_partition mapped = {.struct_size = (uint32_t)sizeof mapped,
                               .kind = BS_PARTITION_GATHER,
                               .total = o->inner->cols,
                               .count = cols->count,
                               .columns = o->map + (cols->begin - o->begin)};
  return o->inner->read(o->inner->ctx, row, nrows, &mapped, dtype, out, out_stride, err);
}

static bs_source view(const bs_source *inner, order *o,
                      int32_t (*read)(void *, int64_t, int64_t, const bs_partition *, uint32_t, void *,
                                      int64_t, bs_error *)) {
  bs_source s = *inner;
  o->inner = inner;
  s.ctx = o;
  s.read = read;
  s.generator = NULL;
  return s;
}

/* The hidden features of this rank, and whether they are its even share as it is (*out_map NULL). */
static int32_t find_order(const bs_tp_linear *row, int64_t hidden, uint32_t **out_map, int64_t *out_begin,
                          int64_t *out_count, bs_error *err) {
  const bs_tp_place *p = &row->state->place;
  const bs_partition *c = row->own.columns;
  int64_t begin, count;
  tp_share(hidden, p->tensor_rank, p->tensor_size, &begin, &count);
  *out_map = NULL;
  *out_begin = begin;
  *out_count = count;
  const int64_t owned = c != NULL ? c->count : hidden;
  if (owned != count || row->own.kept != NULL) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-TP-PAIR",
                 "the second layer takes %" PRId64 "%s of %" PRId64
                 " hidden features on rank %u, whose even "
                 "share is %" PRId64,
                 owned, row->own.kept != NULL ? " (row by row)" : "", hidden, p->tensor_rank, count);
    bs_error_hint(err, "a mask that gives every rank as many columns, the same in every row");
    return BS_UNSUPPORTED;
  }
  if (c == NULL || (c->kind == BS_PARTITION_CONTIGUOUS && c->begin == begin)) return BS_OK;
  uint32_t *map = calloc(count > 0 ? (size_t)count : 1, sizeof *map);
  if (map == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for an order of rows");
  for (int64_t i = 0; i < count; ++i)
    map[i] = c->kind == BS_PARTITION_GATHER ? c->columns[i] : (uint32_t)(c->begin + i);
  *out_map = map;
  return BS_OK;
}

/* ---- make ------------------------------------------------------------------------------------ */

static bs_tp_linear_spec common_spec(const bs_tp_mlp_spec *s) {
  return (bs_tp_linear_spec){.struct_size = (uint32_t)sizeof(bs_tp_linear_spec),
                             .bias = s->bias,
                             .tokens = s->tokens,
                             .x_dtype = s->dtype,
                             .reduce_dtype = s->reduce_dtype,
                             .flags = s->flags};
}

static int32_t make_row(bs_tp_mlp *m, const bs_tp_mlp_spec *s, const bs_source *w, const bs_source *b,
                        bs_error *err) {
  bs_tp_linear_spec spec = common_spec(s);
  spec.out_features = s->out_features;
  spec.in_features = s->hidden_features;
  spec.input_is_parallel = 1;
  spec.method = s->row_method;
  spec.mask = s->row_mask;
  return bs_tp_row_linear(m->rank, &spec, w, b, &m->row, err);
}

static int32_t make_column(bs_tp_mlp *m, const bs_tp_mlp_spec *s, const bs_source *w, const bs_source *b,
                           bs_error *err) {
  bs_tp_linear_spec spec = common_spec(s);
  order rows = {.inner = NULL};
  uint32_t *map;
  spec.out_features = s->hidden_features;
  spec.in_features = s->in_features;
  spec.activation = s->activation;
  int32_t rc = find_order(m->row, s->hidden_features, &map, &rows.begin, &rows.count, err);
  if (rc != BS_OK) return rc;
  if (map == NULL) return bs_tp_column_linear(m->rank, &spec, w, b, &m->column, err);
  rows.map = map;
  order columns = rows;
  const bs_source w_view = view(w, &rows, read_rows);
  const bs_source b_view = b != NULL ? view(b, &columns, read_bias) : w_view;
  rc = bs_tp_column_linear(m->rank, &spec, &w_view, b != NULL ? &b_view : NULL, &m->column, err);
  if (rc == BS_OK)
    m->column->row_map = map;
  else
    free(map);
  return rc;
}

static int32_t make_hidden(bs_tp_mlp *m, const bs_tp_mlp_spec *s, bs_error *err) {
  m->hidden = m->column->shape.y_features;
  int32_t rc = bs_tp_tensor_make(m->rank, m->dtype, s->tokens, m->hidden, &m->h, err);
  if (rc == BS_OK && (s->flags & BS_LAYER_BACKWARD) != 0)
    rc = bs_tp_tensor_make(m->rank, m->dtype, s->tokens, m->hidden, &m->dh, err);
  return rc;
}

int32_t bs_tp_mlp_make(bs_rank *rank, const bs_tp_mlp_spec *given, const bs_source *w1, const bs_source *b1,
                       const bs_source *w2, const bs_source *b2, bs_tp_mlp **out_mlp, bs_error *err) {
  bs_tp_mlp_spec spec;
  if (rank == NULL || given == NULL || out_mlp == NULL)
    return tp_null("bs_tp_mlp_make", "rank, spec and out_mlp", err);
  if (tp_size("bs_tp_mlp_spec", given->struct_size, sizeof given->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  memset(&spec, 0, sizeof spec);
  memcpy(&spec, given, given->struct_size < sizeof spec ? given->struct_size : sizeof spec);
  if (w1 == NULL || w2 == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-WEIGHTS", "an MLP needs weights of both layers");
  bs_tp_mlp *m = calloc(1, sizeof *m);
  if (m == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for an MLP");
  m->rank = rank;
  m->dtype = spec.dtype != 0 ? spec.dtype : (uint32_t)BS_F32;
  int32_t rc = make_row(m, &spec, w2, b2, err);
  if (rc == BS_OK) rc = make_column(m, &spec, w1, b1, err);
  if (rc == BS_OK) rc = make_hidden(m, &spec, err);
  if (rc == BS_OK)
    *out_mlp = m;
  else
    bs_tp_mlp_free(m);
  return rc;
}

void bs_tp_mlp_free(bs_tp_mlp *m) {
  if (m == NULL) return;
  bs_tp_tensor_free(m->rank, &m->h);
  bs_tp_tensor_free(m->rank, &m->dh);
  bs_tp_linear_free(m->column);
  bs_tp_linear_free(m->row);
  free(m);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* The first rows of a hidden tensor, as many as x has. */
static bs_tensor rows_of(const bs_tensor *t, const bs_tensor *x) {
  bs_tensor v = *t;
  if (x != NULL && x->rank == 2 && x->dims[0] >= 0 && x->dims[0] < v.dims[0]) {
    v.dims[0] = x->dims[0];
    v.bytes = (uint64_t)(v.dims[0] * v.dims[1]) * BS_DTYPE_BYTES(v.dtype);
  }
  return v;
}

int32_t bs_tp_mlp_forward(bs_tp_mlp *m, const bs_tensor *x, bs_tensor *y, bs_error *err) {
  if (m == NULL) return tp_null("bs_tp_mlp_forward", "mlp", err);
  bs_tensor h = rows_of(&m->h, x);
  const int32_t rc = bs_tp_linear_forward(m->column, x, &h, err);
  return rc == BS_OK ? bs_tp_linear_forward(m->row, &h, y, err) : rc;
}

int32_t bs_tp_mlp_backward(bs_tp_mlp *m, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx,
                           bs_error *err) {
  if (m == NULL) return tp_null("bs_tp_mlp_backward", "mlp", err);
  if (m->dh.struct_size == 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-TP-LINEAR", "the MLP was made for forward only");
  const bs_tensor h = rows_of(&m->h, x);
  bs_tensor dh = rows_of(&m->dh, x);
  const int32_t rc = bs_tp_linear_backward(m->row, &h, dy, &dh, err);
  return rc == BS_OK ? bs_tp_linear_backward(m->column, x, &dh, dx, err) : rc;
}

int32_t bs_tp_mlp_step(bs_tp_mlp *m, const bs_step *step, bs_error *err) {
  if (m == NULL) return tp_null("bs_tp_mlp_step", "mlp", err);
  const int32_t rc = bs_tp_linear_step(m->column, step, err);
  return rc == BS_OK ? bs_tp_linear_step(m->row, step, err) : rc;
}

bs_tp_linear *bs_tp_mlp_column(bs_tp_mlp *m) {
  return m != NULL ? m->column : NULL;
}
bs_tp_linear *bs_tp_mlp_row(bs_tp_mlp *m) {
  return m != NULL ? m->row : NULL;
}
