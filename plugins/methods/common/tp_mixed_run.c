/* SPDX-License-Identifier: MIT
 *
 * tp_mixed_run.c - the product of a layer in two precisions: X of the int8 columns is rounded token by token,
 * multiplied exactly in 32 bits, and joined by its scales with the product of the high columns, so that the
 * output is rounded once; fp8 columns are multiplied and joined by one op. Allocates nothing. And
 * read_weights: what is multiplied, int8 or fp8 by its scales.
 */
#include "tp_mixed.h"

static int32_t run(tp_layer *l, bs_plan *plan, bs_tensor *a, bs_tensor *b, bs_stream *stream, bs_error *err) {
  bs_tensor *args[2] = {a, b};
  return l->api->op_run(plan, args, 2, stream, err);
}

/* x of a segment: a run of its columns, or a copy. */
static int32_t take(tp_layer *l, uint32_t segment, const bs_tensor *x, bs_tensor *in, bs_stream *stream,
                    bs_error *err) {
  const tp_mixed *m = l->mixed;
  if (m->x[segment].data == NULL) {
    *in = tp_view_columns(x, m->cols[segment]->begin, m->cols[segment]->count);
    return BS_OK;
  }
  *in = tp_view_rows(&m->x[segment], x->dims[0]);
  if (m->move[segment] == NULL) return BS_OK;
  bs_tensor from = *x;
  l->api->region_begin(l->rank, BS_REGION_LAYOUT_FIX);
  const int32_t rc = run(l, m->move[segment], &from, in, stream, err);
  l->api->region_end(l->rank, BS_REGION_LAYOUT_FIX);
  return rc;
}

static int32_t multiply(tp_layer *l, uint32_t segment, bs_tensor *x, int with_bias, bs_tensor *y,
                        bs_stream *stream, bs_error *err) {
  bs_tensor *args[4] = {x, with_bias ? &l->bias : NULL, NULL, y};
  return l->api->op_run(l->mixed->product[segment], args, 4, stream, err);
}

static int32_t narrow(tp_layer *l, bs_tensor *x, bs_tensor *values, bs_tensor *scales, bs_stream *stream,
                      bs_error *err) {
  const tp_mixed *m = l->mixed;
  bs_tensor wide = tp_view_rows(&m->wide, x->dims[0]);
  bs_tensor *args[3] = {m->widen != NULL ? &wide : x, values, scales};
  l->api->region_begin(l->rank, m->region_in);
  int32_t rc = m->widen != NULL ? run(l, m->widen, x, &wide, stream, err) : BS_OK;
  if (rc == BS_OK) rc = l->api->op_run(m->narrow, args, 3, stream, err);
  l->api->region_end(l->rank, m->region_in);
  return rc;
}

/* int8: exact sums, then what they stand for. */
static int32_t join_int8(tp_layer *l, bs_tensor *values, bs_tensor *scales, bs_tensor *base, bs_tensor *out,
                         bs_stream *stream, bs_error *err) {
  tp_mixed *m = l->mixed;
  bs_tensor sums = tp_view_rows(&m->sums, values->dims[0]);
  bs_tensor *args[6] = {&sums, scales, &m->w_row, l->shape.bias_here ? &l->bias : NULL, base, out};
  int32_t rc = multiply(l, TP_LOW, values, 0, &sums, stream, err);
  if (rc != BS_OK) return rc;
  l->api->region_begin(l->rank, m->region_out);
  rc = l->api->op_run(m->join, args, 6, stream, err);
  l->api->region_end(l->rank, m->region_out);
  return rc;
}

static int32_t join_f8(tp_layer *l, bs_tensor *values, bs_tensor *scales, bs_tensor *base, bs_tensor *out,
                       bs_stream *stream, bs_error *err) {
  tp_mixed *m = l->mixed;
  bs_tensor *args[7] = {values, scales, &m->w, &m->w_scales, l->shape.bias_here ? &l->bias : NULL, base, out};
  return l->api->op_run(m->join, args, 7, stream, err);
}

int32_t tp_mixed_multiply(tp_layer *l, const bs_tensor *x, bs_tensor *out, bs_stream *stream, bs_error *err) {
  tp_mixed *m = l->mixed;
  const int64_t rows = x->dims[0];
  bs_tensor in, base = tp_view_rows(&m->base, rows), values = tp_view_rows(&m->values, rows);
  bs_tensor scales = tp_view_rows(&m->x_scales, rows);
  const int bias = (int)l->shape.bias_here, high = m->product[TP_HIGH] != NULL, low = m->join != NULL;
  int32_t rc = BS_OK;
  if (high) rc = take(l, TP_HIGH, x, &in, stream, err);
  if (rc == BS_OK && high) rc = multiply(l, TP_HIGH, &in, bias && !low, low ? &base : out, stream, err);
  if (rc != BS_OK || !low) return rc;
  rc = take(l, TP_LOW, x, &in, stream, err);
  if (rc == BS_OK) rc = narrow(l, &in, &values, &scales, stream, err);
  if (rc != BS_OK) return rc;
  return l->shape.mixed_dtype == BS_I8 ? join_int8(l, &values, &scales, high ? &base : NULL, out, stream, err)
                                       : join_f8(l, &values, &scales, high ? &base : NULL, out, stream, err);
}

/* ---- what is multiplied ------------------------------------------------------------------------- */

typedef struct reading {
  bs_tensor bytes, values; /* a block of rows of a segment: int8 or fp8, and in out's dtype */
  bs_plan *widen, *spread;
} reading;

static int32_t open_reading(tp_layer *l, uint32_t segment, const bs_partition *places, const bs_tensor *out,
                            int64_t block, reading *r, bs_error *err) {
  const bs_tensor_desc values = bs_desc_2d(out->dtype, block, places->count);
  const tp_shape *s = &l->shape;
  const bs_tensor_desc bytes = bs_desc_2d(s->mixed_dtype, block, places->count);
  const bs_tensor_desc scales = bs_desc_2d(BS_F32, block, segment == TP_LOW ? tp_mixed_groups(s) : 1);
  bs_tensor_desc to = bs_desc_2d(out->dtype, block, out->dims[1]);
  to.strides[0] = out->strides[0];
  const bs_tensor_desc *spread[2] = {&values, &to}, *widen[3] = {&bytes, &scales, &values};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "scatter_columns";
  q.nargs = 2;
  q.args = spread;
  q.partition = places;
  int32_t rc = l->api->tensor_alloc(l->rank, &values, BS_LIFE_SCRATCH, &r->values, err);
  if (rc == BS_OK) rc = l->api->op_prepare(l->rank, &q, NULL, &r->spread, err);
  if (rc != BS_OK || segment != TP_LOW) return rc;
  q.op = "dequantize_sum";
  q.nargs = 3;
  q.args = widen;
  q.partition = NULL;
  q.attrs[0] = s->mixed_group;
  q.attrs[1] = 1;
  if (s->mixed_dtype == BS_I8) rc = l->api->tensor_alloc(l->rank, &bytes, BS_LIFE_SCRATCH, &r->bytes, err);
  return rc == BS_OK ? l->api->op_prepare(l->rank, &q, NULL, &r->widen, err) : rc;
}

static void close_reading(tp_layer *l, reading *r) {
  if (r->widen != NULL) l->api->op_release(r->widen);
  if (r->spread != NULL) l->api->op_release(r->spread);
  if (r->bytes.data != NULL) l->api->tensor_free(l->rank, &r->bytes);
  if (r->values.data != NULL) l->api->tensor_free(l->rank, &r->values);
}

/* Rows row .. of a segment to `to`, which has as many. */
static int32_t read_block(tp_layer *l, uint32_t segment, const reading *r, int64_t row, bs_tensor *to,
                          bs_error *err) {
  tp_mixed *m = l->mixed;
  const int low = segment == TP_LOW, f8 = low && l->shape.mixed_dtype != BS_I8;
  bs_tensor values = tp_view_rows(&r->values, to->dims[0]);
  bs_tensor bytes = f8 ? tp_view_run(&m->w, row, to->dims[0]) : tp_view_rows(&r->bytes, to->dims[0]);
  bs_tensor scales = f8 ? tp_view_run(&m->w_scales, row, to->dims[0]) : tp_view_columns(&m->w_scales, row, 1);
  scales.dims[0] = to->dims[0];
  if (!f8) scales.strides[0] = 1;
  bs_tensor *widen[3] = {&bytes, &scales, &values};
  int32_t rc = f8 ? BS_OK : l->api->packed_read(m->packed[segment], row, low ? &bytes : &values, err);
  if (rc == BS_OK && low) rc = l->api->op_run(r->widen, widen, 3, NULL, err);
  return rc == BS_OK ? run(l, r->spread, &values, to, NULL, err) : rc;
}

static int32_t read_segment(tp_layer *l, uint32_t segment, const bs_partition *places, int64_t row,
                            bs_tensor *out, bs_error *err) {
  const int64_t block = out->dims[0] < 64 ? out->dims[0] : 64;
  reading r;
  memset(&r, 0, sizeof r);
  int32_t rc = open_reading(l, segment, places, out, block, &r, err);
  for (int64_t done = 0; rc == BS_OK && done < out->dims[0]; done += block) {
    const int64_t n = out->dims[0] - done < block ? out->dims[0] - done : block;
    bs_tensor to = tp_view_run(out, done, n);
    rc = read_block(l, segment, &r, row + done, &to, err);
  }
  close_reading(l, &r);
  return rc;
}

int32_t tp_mixed_read(tp_layer *l, int64_t row, bs_tensor *out, bs_error *err) {
  const tp_shape *s = &l->shape;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < TP_SEGMENTS; i++) {
    bs_partition *places = NULL;
    if (s->segment[i]->count == 0) continue;
    rc = tp_leaf_places(l->state, s->segment[i], s->cols != NULL ? s->cols : &l->mixed->all, &places, err);
    if (rc == BS_OK) rc = read_segment(l, i, places, row, out, err);
    tp_partition_free(l->state, places);
  }
  return rc;
}
