/* SPDX-License-Identifier: MIT
 *
 * by_row_forward.c - the hot path of a layer of 2:4 values: one product, a sum, an activation, a gather.
 * Allocates nothing, locks nothing.
 */
#include "by_row.h"

static int32_t multiply(tp_layer *l, const bs_tensor *x, bs_tensor *out, bs_stream *stream, bs_error *err) {
  const by_row *b = by_row_of(l);
  bs_tensor in = *x;
  if (l->shape.input == TP_X_VIEW) in = tp_view_columns(x, b->shape.run.begin, b->shape.run.count);
  if (l->shape.input == TP_X_ZERO) in = tp_view_rows(&l->x_scratch, x->dims[0]);
  bs_tensor *args[4] = {&in, l->shape.bias_here ? &l->bias : NULL, NULL, out};
  return l->api->op_run(l->matmul, args, 4, stream, err);
}

static int32_t sum_ranks(tp_layer *l, bs_tensor *product, bs_tensor *sums, bs_stream *stream, bs_error *err) {
  return l->quantise != NULL ? tp_quantise_forward(l, product, sums, stream, err)
                             : by_row_exchange_run(l, by_row_of(l)->sum_y, product, sums, stream, err);
}

/* Sums the product into its place in y. */
static int32_t sum(tp_layer *l, bs_tensor *product, bs_tensor *place, bs_stream *stream, bs_error *err) {
  const tp_shape *s = &l->shape;
  const by_row *b = by_row_of(l);
  if (s->keeps) {
    bs_tensor *args[2] = {product, place};
    return l->activate != NULL ? l->api->op_run(l->activate, args, 2, stream, err) : BS_OK;
  }
  if (b->sum_y == NULL && l->quantise == NULL) return BS_OK; /* it was made there */
  if (l->activate == NULL) return sum_ranks(l, product, place, stream, err);
  bs_tensor sums = s->own_sums                     ? tp_view_rows(&l->sums, place->dims[0])
                   : s->reduce_dtype == s->y_dtype ? *place
                                                   : *product;
  const int32_t rc = sum_ranks(l, product, &sums, stream, err);
  if (rc != BS_OK || place->dims[1] == 0) return rc; /* fewer features than ranks */
  bs_tensor *args[2] = {&sums, place};
  return l->api->op_run(l->activate, args, 2, stream, err);
}

int32_t by_row_forward(tp_layer *l, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err) {
  const tp_shape *s = &l->shape;
  const by_row *b = by_row_of(l);
  const int64_t rows = x->dims[0];
  if (rows < 0 || rows > s->B || !tp_fits(x, rows, s->x_dtype, s->x_cols))
    return tp_wrong_shape(l, "x", x, s->x_dtype, s->x_cols, err);
  if (!tp_fits(y, rows, s->y_dtype, s->y_cols)) return tp_wrong_shape(l, "y", y, s->y_dtype, s->y_cols, err);
  bs_tensor place = b->gather_y != NULL ? tp_view_columns(y, s->row_begin, s->row_count) : *y;
  bs_tensor product = s->keeps         ? tp_view_rows(&l->sums, rows)
                      : s->own_partial ? tp_view_rows(&l->partial, rows)
                                       : place;
  l->kept_rows = rows;
  int32_t rc = l->matmul != NULL ? multiply(l, x, &product, stream, err) : BS_OK;
  if (rc == BS_OK) rc = sum(l, &product, &place, stream, err);
  if (rc == BS_OK && b->gather_y != NULL) rc = by_row_exchange_run(l, b->gather_y, &place, y, stream, err);
  return rc;
}
