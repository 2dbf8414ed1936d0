/* SPDX-License-Identifier: MIT
 *
 * tp_rows.c - the leaves of rows of a layer that is split over N and trains under repro=R3: 8 runs of rows,
 * of which 1, 2, 4 or 8 ranks have aligned ones. An output of forward depends on no other output, so that y
 * has the bits of one product; dX is a sum over rows and is made leaf by leaf (tp_leaf_grad.c).
 */
#include "tp_tree.h"

void tp_rows_share(const tp_shape *s, uint32_t rank, int64_t *out_begin, int64_t *out_count) {
  if (s->row_leaves == 0) {
    tp_share(s->N, rank, s->world, out_begin, out_count);
    return;
  }
  int64_t last, count;
  tp_share(s->N, rank * s->row_leaves, TP_LEAVES, out_begin, out_count);
  tp_share(s->N, (rank + 1) * s->row_leaves - 1, TP_LEAVES, &last, &count);
  *out_count = last + count - *out_begin;
}

static int32_t build_leaf(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, uint32_t i,
                          bs_error *err) {
  tp_rows *r = l->rows;
  tp_layer part = *l;
  part.shape.row_count = r->count[i];
  tp_product_query p;
  tp_product_query_fill(&part, spec, &p);
  const int64_t wide =
      l->shape.coll == BS_COLL_ALL_GATHER && !l->shape.keeps ? l->shape.N : l->shape.row_count;
  p.y.strides[0] = wide;
  tp_rows_view rows;
  bs_source own = tp_source_rows(&rows, weights, l->shape.row_begin + r->begin[i], r->count[i]);
  if (l->shape.input == TP_X_ZERO) own = tp_source_zero_column(&own);
  const int32_t rc = l->api->pack(l->rank, &p.q, &own, &r->packed[i], err);
  return rc == BS_OK ? l->api->op_prepare(l->rank, &p.q, r->packed[i], &r->matmul[i], err) : rc;
}

int32_t tp_rows_build(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, bs_error *err) {
  const tp_shape *s = &l->shape;
  l->rows = l->api->alloc(l->rank, sizeof *l->rows);
  if (l->rows == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a layer");
  int32_t rc = BS_OK;
  l->api->region_begin(l->rank, BS_REGION_PACK);
  for (uint32_t i = 0; rc == BS_OK && i < s->row_leaves; i++) {
    tp_share(s->N, s->rank * s->row_leaves + i, TP_LEAVES, &l->rows->begin[i], &l->rows->count[i]);
    l->rows->begin[i] -= s->row_begin;
    if (l->rows->count[i] > 0) rc = build_leaf(l, spec, weights, i, err);
  }
  l->api->region_end(l->rank, BS_REGION_PACK);
  return rc;
}

void tp_rows_free(tp_layer *l) {
  tp_rows *r = l->rows;
  if (r == NULL) return;
  for (uint32_t i = 0; i < TP_LEAVES; i++) {
    if (r->matmul[i] != NULL) l->api->op_release(r->matmul[i]);
    if (r->packed[i] != NULL) l->api->packed_release(r->packed[i]);
  }
  l->api->free(l->rank, r);
  l->rows = NULL;
}

int32_t tp_rows_multiply(tp_layer *l, const bs_tensor *x, bs_tensor *out, bs_stream *stream, bs_error *err) {
  const tp_rows *r = l->rows;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < l->shape.row_leaves; i++) {
    if (r->matmul[i] == NULL) continue;
    bs_tensor in = *x, part = tp_view_columns(out, r->begin[i], r->count[i]), bias = l->bias;
    if (l->shape.bias_here) {
      const uint64_t skip = (uint64_t)r->begin[i] * BS_DTYPE_BYTES(bias.dtype);
      bias.dims[0] = r->count[i];
      bias.data = (char *)bias.data + skip;
      bias.bytes -= skip;
    }
    bs_tensor *args[4] = {&in, l->shape.bias_here ? &bias : NULL, NULL, &part};
    rc = l->api->op_run(r->matmul[i], args, 4, stream, err);
  }
  return rc;
}

int32_t tp_rows_read(tp_layer *l, int64_t row, bs_tensor *out, bs_error *err) {
  const tp_rows *r = l->rows;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < l->shape.row_leaves; i++) {
    const int64_t begin = r->begin[i], end = begin + r->count[i], asked = row + out->dims[0];
    const int64_t from = row > begin ? row : begin, to = asked < end ? asked : end;
    if (from >= to) continue;
    bs_tensor part = tp_view_run(out, from - row, to - from);
    rc = l->api->packed_read(r->packed[i], from - begin, &part, err);
  }
  return rc;
}
