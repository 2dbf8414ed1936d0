/* SPDX-License-Identifier: MIT
 *
 * tp_leaf_run.c - forward of a layer whose K is summed leaf by leaf: a product a leaf, then the tree over
 * leaves and ranks (tp_tree.c). Allocates nothing; and read_weights, which puts the leaves' columns back into
 * their order.
 */
#include "tp_tree.h"

static int32_t multiply(tp_layer *l, uint32_t i, const bs_tensor *x, bs_tensor *out, bs_stream *stream,
                        bs_error *err) {
  const tp_leaf *leaf = &l->leaves->leaf[i];
  bs_tensor in = *x;
  if (leaf->input == TP_X_SPREAD) in = tp_view_rows(&leaf->x, x->dims[0]);
  if (leaf->input == TP_X_VIEW) in = tp_view_columns(x, leaf->cols->begin, leaf->cols->count);
  if (leaf->input == TP_X_GATHER || leaf->input == TP_X_ZERO) in = tp_view_rows(&leaf->x, x->dims[0]);
  if (leaf->move != NULL) {
    bs_tensor from = *x, narrow = leaf->spread != NULL ? tp_view_rows(&leaf->narrow, x->dims[0]) : in;
    bs_tensor *move[2] = {&from, &narrow}, *spread[2] = {&narrow, &in};
    l->api->region_begin(l->rank, BS_REGION_LAYOUT_FIX);
    int32_t rc = l->api->op_run(leaf->move, move, 2, stream, err);
    if (rc == BS_OK && leaf->spread != NULL) rc = l->api->op_run(leaf->spread, spread, 2, stream, err);
    l->api->region_end(l->rank, BS_REGION_LAYOUT_FIX);
    if (rc != BS_OK) return rc;
  }
  bs_tensor *args[4] = {&in, l->shape.bias_here && i == 0 ? &l->bias : NULL, NULL, out};
  return l->api->op_run(leaf->product, args, 4, stream, err);
}

static int32_t gather(tp_layer *l, const bs_tensor *in, bs_tensor *out, bs_stream *stream, bs_error *err) {
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  const int32_t rc = l->api->collective_run(l->coll, in, out, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}

/* A leaf without columns has no product, but for the first, which adds the bias: its sum stays zero, as the
 * memory was made. */
int32_t tp_leaves_forward(tp_layer *l, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_tree *tree = &l->leaves->tree;
  const int64_t rows = x->dims[0];
  bs_tensor sums = s->own_sums ? tp_view_rows(&l->sums, rows) : *y;
  if (l->coll != NULL) sums = tp_view_columns(y, s->y_begin, s->row_count);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && s->row_count > 0 && i < s->leaves; i++) {
    if (l->leaves->leaf[i].product == NULL) continue;
    bs_tensor part = tp_tree_part(l, tree, i, rows);
    rc = multiply(l, i, x, &part, stream, err);
  }
  if (rc == BS_OK && s->row_count > 0) rc = tp_tree_sum(l, tree, &sums, stream, err);
  if (rc == BS_OK && l->activate != NULL) {
    bs_tensor *args[2] = {&sums, y};
    rc = l->api->op_run(l->activate, args, 2, stream, err);
  }
  return rc == BS_OK && l->coll != NULL ? gather(l, &sums, y, stream, err) : rc;
}

/* Rows of one leaf, spread over the columns of out that are its own. */
static int32_t read_leaf(tp_layer *l, const tp_leaf *leaf, const bs_partition *places, int64_t row,
                         bs_tensor *out, bs_error *err) {
  const int64_t block = out->dims[0] < 64 ? out->dims[0] : 64;
  const bs_tensor_desc part_desc = bs_desc_2d(out->dtype, block, places->count);
  bs_tensor_desc out_desc = bs_desc_2d(out->dtype, block, out->dims[1]);
  out_desc.strides[0] = out->strides[0];
  const bs_tensor_desc *args[2] = {&part_desc, &out_desc};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "scatter_columns";
  q.nargs = 2;
  q.args = args;
  q.partition = places;
  bs_plan *spread = NULL;
  bs_tensor rows;
  int32_t rc = l->api->tensor_alloc(l->rank, &part_desc, BS_LIFE_SCRATCH, &rows, err);
  if (rc != BS_OK) return rc;
  rc = l->api->op_prepare(l->rank, &q, NULL, &spread, err);
  for (int64_t done = 0; rc == BS_OK && done < out->dims[0]; done += block) {
    const int64_t n = out->dims[0] - done < block ? out->dims[0] - done : block;
    const uint64_t skip = (uint64_t)(done * out->strides[0]) * BS_DTYPE_BYTES(out->dtype);
    bs_tensor part = tp_view_rows(&rows, n), to = tp_view_rows(out, n);
    to.data = (char *)out->data + skip;
    to.bytes = out->bytes > skip ? out->bytes - skip : 0;
    rc = l->api->packed_read(leaf->packed, row + done, &part, err);
    bs_tensor *move[2] = {&part, &to};
    if (rc == BS_OK) rc = l->api->op_run(spread, move, 2, NULL, err);
  }
  if (spread != NULL) l->api->op_release(spread);
  l->api->tensor_free(l->rank, &rows);
  return rc;
}

int32_t tp_leaves_read(tp_layer *l, int64_t row, bs_tensor *out, bs_error *err) {
  const tp_shape *s = &l->shape;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < s->leaves; i++) {
    const tp_leaf *leaf = &l->leaves->leaf[i];
    if (leaf->input == TP_X_ZERO || leaf->packed == NULL) continue;
    bs_partition *places = NULL;
    if (s->cols != NULL && leaf->cols->total != s->k_own)
      rc = tp_leaf_places(l->state, leaf->cols, s->cols, &places, err);
    if (rc == BS_OK) rc = read_leaf(l, leaf, places != NULL ? places : leaf->cols, row, out, err);
    tp_partition_free(l->state, places);
  }
  return rc;
}
