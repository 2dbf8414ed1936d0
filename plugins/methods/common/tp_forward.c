/* SPDX-License-Identifier: MIT
 *
 * tp_forward.c - the hot path of a layer: at most one move of x, one product, one collective (or chunks of
 * both, tp_overlap.c), one activation of the sum. Allocates nothing, locks nothing; views are copies of the
 * caller's tensors with other sizes.
 */
#include "tp_mixed.h"
#include "tp_tree.h"

bs_tensor tp_view_columns(const bs_tensor *t, int64_t begin, int64_t count) {
  bs_tensor view = *t;
  const uint64_t skip = (uint64_t)begin * BS_DTYPE_BYTES(t->dtype);
  view.dims[1] = count;
  view.data = t->data != NULL ? (char *)t->data + skip : NULL;
  view.bytes = t->bytes > skip ? t->bytes - skip : 0;
  return view;
}

bs_tensor tp_view_rows(const bs_tensor *t, int64_t rows) {
  bs_tensor view = *t;
  view.dims[0] = rows;
  return view;
}

bs_tensor tp_view_run(const bs_tensor *t, int64_t begin, int64_t rows) {
  bs_tensor view = tp_view_rows(t, rows);
  const uint64_t skip = (uint64_t)(begin * t->strides[0]) * BS_DTYPE_BYTES(t->dtype);
  view.data = t->data != NULL ? (char *)t->data + skip : NULL;
  view.bytes = t->bytes > skip ? t->bytes - skip : 0;
  return view;
}

int32_t tp_wrong_shape(const tp_layer *l, const char *name, const bs_tensor *t, uint32_t dtype, int64_t cols,
                       bs_error *err) {
  bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-FORWARD",
          "method %s: %s is [%lld,%lld] of dtype 0x%04x, the layer wants at most %lld rows of %lld columns "
          "of dtype 0x%04x",
          l->state->traits->name, name, (long long)t->dims[0], (long long)t->dims[1], t->dtype,
          (long long)l->shape.B, (long long)cols, dtype);
  return bs_fail_hint(err, "x and y are dense and row-major, with the same number of rows"),
         BS_INVALID_ARGUMENT;
}

int tp_fits(const bs_tensor *t, int64_t rows, uint32_t dtype, int64_t cols) {
  return t->rank == 2 && t->dtype == dtype && t->dims[0] == rows && t->dims[1] == cols &&
         (rows <= 1 || cols == 0 || t->strides[0] == cols);
}

int32_t tp_take_input(tp_layer *l, const bs_tensor *x, bs_tensor *in, bs_stream *stream, bs_error *err) {
  const tp_shape *s = &l->shape;
  *in = *x;
  if (s->input == TP_X_VIEW) {
    *in = tp_view_columns(x, s->cols->begin, s->k_own);
  } else if (s->input == TP_X_GATHER || s->input == TP_X_SPREAD || s->input == TP_X_ZERO) {
    bs_tensor from = *x;
    *in = tp_view_rows(&l->x_scratch, x->dims[0]);
    if (l->move != NULL) {
      bs_tensor *move[2] = {&from, in};
      l->api->region_begin(l->rank, BS_REGION_LAYOUT_FIX);
      int32_t rc = l->api->op_run(l->move, move, 2, stream, err);
      l->api->region_end(l->rank, BS_REGION_LAYOUT_FIX);
      return rc;
    }
  }
  return BS_OK;
}

int32_t tp_multiply(tp_layer *l, const bs_tensor *x, bs_tensor *out, bs_stream *stream, bs_error *err) {
  bs_tensor in;
  if (l->mixed != NULL) return tp_mixed_multiply(l, x, out, stream, err);
  const int32_t rc = tp_take_input(l, x, &in, stream, err);
  if (rc != BS_OK) return rc;
  if (l->rows != NULL) return tp_rows_multiply(l, &in, out, stream, err);
  bs_tensor *args[4] = {&in, l->shape.bias_here ? &l->bias : NULL, NULL, out};
  return l->api->op_run(l->matmul, args, 4, stream, err);
}

static int32_t exchange(tp_layer *l, const bs_tensor *in, bs_tensor *y, bs_stream *stream, bs_error *err) {
  bs_tensor from = *in, to = *y;
  if (l->shape.y_tokens) {
    from = tp_view_flat(in);
    to = tp_view_flat(y);
  }
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  int32_t rc = l->api->collective_run(l->coll, &from, &to, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}

/* The output of the sum: y, or, if an activation follows, the reduce dtype: in y itself, in the partial (an
 * all-reduce in place) or in scratch. */
static bs_tensor sums_of(const tp_layer *l, const bs_tensor *product, const bs_tensor *y) {
  const tp_shape *s = &l->shape;
  if (s->after == BS_ACT_NONE) return *y;
  if (s->own_sums) return tp_view_rows(&l->sums, y->dims[0]);
  return s->reduce_dtype == s->y_dtype ? *y : *product;
}

static int32_t activate(tp_layer *l, bs_tensor *sums, bs_tensor *y, bs_stream *stream, bs_error *err) {
  if (l->shape.y_cols == 0) return BS_OK; /* fewer features than ranks */
  bs_tensor *args[2] = {sums, y};
  return l->api->op_run(l->activate, args, 2, stream, err);
}

/* Keeps the product and writes its activation to y. */
static int32_t activate_kept(tp_layer *l, bs_tensor *y, bs_stream *stream, bs_error *err) {
  bs_tensor kept = tp_view_rows(&l->sums, y->dims[0]), own = *y;
  if (l->shape.coll == BS_COLL_ALL_GATHER) own = tp_view_columns(y, l->shape.y_begin, l->shape.row_count);
  bs_tensor *args[2] = {&kept, &own};
  const int32_t rc = l->activate != NULL ? l->api->op_run(l->activate, args, 2, stream, err) : BS_OK;
  return rc == BS_OK && l->coll != NULL ? exchange(l, &own, y, stream, err) : rc;
}

int32_t tp_forward(void *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err) {
  tp_layer *l = layer;
  const tp_shape *s = &l->shape;
  bs_tensor whole;
  if (l->before != NULL || s->y_tokens) {
    const int32_t rc = tp_place_input(l, x, y, &whole, stream, err);
    if (rc != BS_OK) return rc;
    x = &whole;
  }
  const int64_t rows = x->dims[0];
  if (rows < 0 || rows > s->B || !tp_fits(x, rows, s->x_dtype, s->x_cols))
    return tp_wrong_shape(l, "x", x, s->x_dtype, s->x_cols, err);
  if (!tp_fits(y, s->y_tokens ? y->dims[0] : rows, s->y_dtype, s->y_cols))
    return tp_wrong_shape(l, "y", y, s->y_dtype, s->y_cols, err);
  l->kept_rows = rows;
  if (l->leaves != NULL) return tp_leaves_forward(l, x, y, stream, err);
  bs_tensor product = *y;
  if (s->keeps)
    product = tp_view_rows(&l->sums, rows);
  else if (s->own_partial)
    product = tp_view_rows(&l->partial, rows);
  else if (s->coll == BS_COLL_ALL_GATHER)
    product = tp_view_columns(y, s->y_begin, s->row_count);
  int32_t rc = BS_OK;
  if (s->keeps) {
    if (l->matmul != NULL || l->rows != NULL) rc = tp_multiply(l, x, &product, stream, err);
    return rc == BS_OK ? activate_kept(l, y, stream, err) : rc;
  }
  bs_tensor sums = sums_of(l, &product, y);
  if (s->chunks > 1) {
    rc = tp_overlap_forward(l, x, &product, &sums, stream, err);
  } else {
    if (l->matmul != NULL || l->mixed != NULL || l->rows != NULL)
      rc = tp_multiply(l, x, &product, stream, err);
    if (rc == BS_OK && l->quantise != NULL) rc = tp_quantise_forward(l, &product, &sums, stream, err);
    if (rc == BS_OK && l->coll != NULL) rc = exchange(l, &product, &sums, stream, err);
  }
  return rc == BS_OK && s->after != BS_ACT_NONE ? activate(l, &sums, y, stream, err) : rc;
}
