/* SPDX-License-Identifier: MIT
 *
 * tp_leaf_grad.c - the backward pass and the steps of a layer with leaves (repro=R3). dX of a split over N is
 * a sum over rows: a product for each leaf of 8 of them, added by the tree. dX of a split over K, dW and db
 * have one owner and one chain for each element: they need kernels with the bits of definition 1, and no
 * tree. Weights take steps leaf by leaf, because each leaf is packed by itself; a step changes each weight by
 * its own numbers.
 */
#include "tp_tree.h"

void tp_leaf_grad_tree(const tp_shape *s, const char *site, tp_tree_spec *t) {
  memset(t, 0, sizeof *t);
  t->way = tp_tree_way(s->world, 0);
  t->leaves = s->row_leaves;
  t->dtype = s->reduce_dtype;
  t->out_dtype = s->x_dtype;
  t->width = t->out_stride = s->K;
  t->site = site;
}

static uint32_t leaves_of(const tp_shape *s) {
  return s->row_leaves > 0 ? s->row_leaves : s->leaves;
}

static int is_run(const bs_partition *p) {
  return p->kind == BS_PARTITION_CONTIGUOUS;
}

/* Of columns at most: blocks of dX and of dW, where no leaf's columns are a run. */
uint64_t tp_leaf_grad_bytes(const tp_shape *s, const bs_layer_spec *spec, uint32_t wide) {
  if (s->row_leaves > 0) {
    tp_tree_spec t;
    tp_leaf_grad_tree(s, NULL, &t);
    return tp_tree_bytes(s, &t);
  }
  if (s->leaves == 0 || (s->cols != NULL && is_run(s->cols))) return 0;
  uint64_t most = 0;
  for (uint32_t i = 0; i < s->leaves; i++)
    if ((uint64_t)s->leaf_width[i] > most) most = (uint64_t)s->leaf_width[i];
  const int steps = (spec->flags & (BS_LAYER_SGD | BS_LAYER_ADAMW)) != 0;
  return most *
         ((uint64_t)s->B * BS_DTYPE_BYTES(s->x_dtype) + (steps ? (uint64_t)s->N * BS_DTYPE_BYTES(wide) : 0));
}

/* ---- build ----------------------------------------------------------------------------------- */

static int32_t prepare(tp_layer *l, const char *op, const bs_layer_spec *spec, const bs_tensor_desc *a,
                       const bs_tensor_desc *b, const bs_partition *cols, int full, bs_packed *packed,
                       bs_plan **out_plan, bs_error *err) {
  const bs_tensor_desc *args[2] = {a, b};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = 2;
  q.args = args;
  q.partition = cols;
  if (packed != NULL) {
    q.accumulate = spec->accumulate;
    q.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_BITS | (full ? (uint32_t)BS_QUERY_X_FULL : 0u);
    q.weight_dtype = l->shape.w_dtype;
  }
  return l->api->op_prepare(l->rank, &q, packed, out_plan, err);
}

/* The layer of a leaf: the same but for its part of the weight. It owns its steps alone. */
static tp_layer *part_of(tp_layer *l, bs_packed *packed, int64_t rows, int64_t cols) {
  tp_layer *part = l->api->alloc(l->rank, sizeof *part);
  if (part == NULL) return NULL;
  *part = *l;
  part->packed = packed;
  part->training = NULL;
  part->shape.row_count = rows;
  part->shape.k_own = part->shape.k_mul = cols;
  part->shape.bias_here = 0;
  return part;
}

/* A tensor for the columns of any leaf. */
static int32_t take_block(tp_layer *l, uint32_t dtype, int64_t rows, bs_tensor *out, bs_error *err) {
  int64_t most = 0;
  for (uint32_t j = 0; j < l->shape.leaves; j++)
    if (l->shape.leaf_width[j] > most) most = l->shape.leaf_width[j];
  const bs_tensor_desc d = bs_desc_2d(dtype, rows, most);
  return out->data == NULL ? l->api->tensor_alloc(l->rank, &d, BS_LIFE_SCRATCH, out, err) : BS_OK;
}

/* The kernel writes the columns of a dX that has all of x's; of a rank's block that is gathered it writes a
 * run, or a block of the leaf that is spread over the rank's. */
static int32_t build_columns_dx(tp_layer *l, const bs_layer_spec *spec, uint32_t i, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_leaf_grad *v = l->leaf_grad;
  const tp_leaf *leaf = &l->leaves->leaf[i];
  const uint32_t dtype = l->gradient->shape.product_dtype;
  const int all = l->gradient->begin == NULL, run = is_run(v->places[i]);
  const int64_t count = leaf->cols->count;
  const bs_tensor_desc dy = tp_dy_desc(l), own = tp_strided(dtype, s->B, s->k_own, s->K);
  const bs_tensor_desc dx = all   ? bs_desc_2d(dtype, s->B, s->x_cols)
                            : run ? tp_strided(dtype, s->B, count, s->K)
                                  : bs_desc_2d(dtype, s->B, count);
  int32_t rc = prepare(l, "matmul_dx", spec, &dy, &dx, leaf->cols, all, leaf->packed, &v->dx[i], err);
  if (rc != BS_OK || all || run) return rc;
  rc = take_block(l, dtype, s->B, &v->block, err);
  return rc == BS_OK
             ? prepare(l, "scatter_columns", NULL, &dx, &own, v->places[i], 0, NULL, &v->spread[i], err)
             : rc;
}

/* The way of dW's columns to a step. */
static int32_t build_pick(tp_layer *l, uint32_t i, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_leaf_grad *v = l->leaf_grad;
  const bs_partition *at = v->places[i];
  if (is_run(at)) {
    v->part[i]->shape.dw_stride = s->k_own;
    return BS_OK;
  }
  const uint32_t wide = l->gradient->shape.wide;
  const bs_tensor_desc all = bs_desc_2d(wide, s->N, s->k_own), own = bs_desc_2d(wide, s->N, at->count);
  const int32_t rc = take_block(l, wide, s->N, &v->dw, err);
  return rc == BS_OK ? prepare(l, "gather_columns", NULL, &all, &own, at, 0, NULL, &v->pick[i], err) : rc;
}

static int32_t copy_places(tp_layer *l, const tp_leaf *leaf, uint32_t i, bs_error *err) {
  const tp_shape *s = &l->shape;
  const bs_partition all = {.struct_size = sizeof all,
                            .kind = BS_PARTITION_CONTIGUOUS,
                            .total = leaf->cols->total,
                            .count = leaf->cols->total};
  /* Of an x that is whole the leaf's columns are among all K, else they are places already. */
  const bs_partition *own = s->cols != NULL && leaf->cols->total != s->k_own ? s->cols : &all;
  return tp_leaf_places(l->state, leaf->cols, own, &l->leaf_grad->places[i], err);
}

static int32_t build_columns(tp_layer *l, const bs_layer_spec *spec, uint32_t i, bs_error *err) {
  tp_leaf_grad *v = l->leaf_grad;
  const tp_leaf *leaf = &l->leaves->leaf[i];
  if (leaf->packed == NULL || leaf->input == TP_X_ZERO) return BS_OK;
  int32_t rc = copy_places(l, leaf, i, err);
  if (rc == BS_OK) rc = build_columns_dx(l, spec, i, err);
  if (rc != BS_OK || l->training == NULL) return rc;
  v->part[i] = part_of(l, leaf->packed, l->shape.row_count, leaf->cols->count);
  if (v->part[i] == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a leaf");
  v->part[i]->shape.cols = leaf->cols;
  v->part[i]->shape.input = leaf->input;
  rc = build_pick(l, i, err);
  bs_layer_spec whole = *spec; /* the leaf's columns are among those of the caller's x */
  whole.x_placement = BS_REPLICATED;
  return rc == BS_OK ? tp_training_build(v->part[i], &whole, NULL, err) : rc;
}

static int32_t build_rows(tp_layer *l, const bs_layer_spec *spec, uint32_t i, bs_error *err) {
  tp_leaf_grad *v = l->leaf_grad;
  const tp_shape *s = &l->shape;
  if (l->rows == NULL || l->rows->packed[i] == NULL || s->input == TP_X_ZERO) return BS_OK;
  v->part[i] = part_of(l, l->rows->packed[i], l->rows->count[i], s->k_own);
  if (v->part[i] == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a leaf");
  const bs_tensor_desc dy = tp_dy_desc(v->part[i]);
  const bs_tensor_desc dx = tp_strided(s->reduce_dtype, s->B, s->K, tp_tree_stride(l, &v->tree.spec));
  const int32_t rc = prepare(l, "matmul_dx", spec, &dy, &dx, NULL, 0, l->rows->packed[i], &v->dx[i], err);
  return rc == BS_OK && l->training != NULL ? tp_training_build(v->part[i], spec, NULL, err) : rc;
}

int32_t tp_leaf_grad_build(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  int32_t rc = BS_OK;
  l->leaf_grad = l->api->alloc(l->rank, sizeof *l->leaf_grad);
  if (l->leaf_grad == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a layer");
  if (s->row_leaves > 0) {
    tp_tree_spec t;
    tp_leaf_grad_tree(s, l->state->traits->dx_site, &t);
    rc = tp_tree_build(l, &t, &l->leaf_grad->tree, err);
  }
  for (uint32_t i = 0; rc == BS_OK && i < leaves_of(s); i++)
    rc = s->row_leaves > 0 ? build_rows(l, spec, i, err) : build_columns(l, spec, i, err);
  return rc;
}

void tp_leaf_grad_free(tp_layer *l) {
  tp_leaf_grad *v = l->leaf_grad;
  if (v == NULL) return;
  for (uint32_t i = 0; i < TP_LEAVES; i++) {
    if (v->part[i] != NULL) {
      tp_training_free(v->part[i]);
      l->api->free(l->rank, v->part[i]);
    }
    if (v->dx[i] != NULL) l->api->op_release(v->dx[i]);
    if (v->spread[i] != NULL) l->api->op_release(v->spread[i]);
    if (v->pick[i] != NULL) l->api->op_release(v->pick[i]);
    tp_partition_free(l->state, v->places[i]);
  }
  if (v->block.data != NULL) l->api->tensor_free(l->rank, &v->block);
  if (v->dw.data != NULL) l->api->tensor_free(l->rank, &v->dw);
  tp_tree_free(l, &v->tree);
  l->api->free(l->rank, v);
  l->leaf_grad = NULL;
}

/* ---- run ------------------------------------------------------------------------------------- */

static int32_t product(tp_layer *l, uint32_t i, const bs_tensor *dy, bs_tensor *out, bs_stream *stream,
                       bs_error *err) {
  bs_tensor from = *dy;
  bs_tensor *args[2] = {&from, out};
  return l->api->op_run(l->leaf_grad->dx[i], args, 2, stream, err);
}

/* A leaf without rows leaves its sum as it was made: zero. */
static int32_t rows_dx(tp_layer *l, const bs_tensor *dy, bs_tensor *dx, bs_stream *stream, bs_error *err) {
  tp_leaf_grad *v = l->leaf_grad;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < l->shape.row_leaves; i++) {
    if (v->dx[i] == NULL) continue;
    const bs_tensor own = tp_view_columns(dy, l->rows->begin[i], l->rows->count[i]);
    bs_tensor part = tp_tree_part(l, &v->tree, i, dy->dims[0]);
    rc = product(l, i, &own, &part, stream, err);
  }
  return rc == BS_OK ? tp_tree_sum(l, &v->tree, dx, stream, err) : rc;
}

static int32_t columns_dx(tp_layer *l, uint32_t i, const bs_tensor *dy, bs_tensor *dx, bs_stream *stream,
                          bs_error *err) {
  tp_leaf_grad *v = l->leaf_grad;
  const bs_partition *at = v->places[i];
  if (l->gradient->begin == NULL) return product(l, i, dy, dx, stream, err);
  if (is_run(at)) {
    bs_tensor own = tp_view_columns(dx, at->begin, at->count);
    return product(l, i, dy, &own, stream, err);
  }
  bs_tensor block = tp_view_rows(&v->block, dy->dims[0]);
  block.dims[1] = block.strides[0] = at->count;
  bs_tensor *args[2] = {&block, dx};
  const int32_t rc = product(l, i, dy, &block, stream, err);
  return rc == BS_OK ? l->api->op_run(v->spread[i], args, 2, stream, err) : rc;
}

int32_t tp_leaf_dx(tp_layer *l, const bs_tensor *dy, bs_tensor *dx, bs_stream *stream, bs_error *err) {
  int32_t rc = BS_OK;
  if (l->shape.row_leaves > 0) return rows_dx(l, dy, dx, stream, err);
  for (uint32_t i = 0; rc == BS_OK && i < l->shape.leaves; i++)
    if (l->leaf_grad->dx[i] != NULL) rc = columns_dx(l, i, dy, dx, stream, err);
  return rc;
}

/* The leaf's part of dW: rows, a run of columns, or a copy of its columns. */
static int32_t dw_of(tp_layer *l, uint32_t i, const bs_tensor *dw, bs_tensor *out, bs_stream *stream,
                     bs_error *err) {
  tp_leaf_grad *v = l->leaf_grad;
  if (l->shape.row_leaves > 0) {
    *out = tp_view_run(dw, l->rows->begin[i], l->rows->count[i]);
    return BS_OK;
  }
  const bs_partition *at = v->places[i];
  if (v->pick[i] == NULL) {
    *out = tp_view_columns(dw, at->begin, at->count);
    return BS_OK;
  }
  *out = v->dw;
  out->dims[1] = out->strides[0] = at->count;
  bs_tensor from = *dw;
  bs_tensor *args[2] = {&from, out};
  return l->api->op_run(v->pick[i], args, 2, stream, err);
}

int32_t tp_leaf_step(tp_layer *l, const bs_step *step, bs_stream *stream, bs_error *err) {
  int32_t rc = BS_OK;
  const bs_tensor whole = step->dw == NULL ? tp_own_dy(l, step->dy) : (bs_tensor){0};
  for (uint32_t i = 0; rc == BS_OK && i < leaves_of(&l->shape); i++) {
    tp_layer *part = l->leaf_grad->part[i];
    bs_tensor dy = whole, dw = {0};
    if (part == NULL || part->training == NULL) continue;
    if (step->dw == NULL && l->shape.row_leaves > 0)
      dy = tp_view_columns(&whole, l->rows->begin[i], l->rows->count[i]);
    if (step->dw != NULL) rc = dw_of(l, i, step->dw, &dw, stream, err);
    if (rc == BS_OK) rc = tp_step_weights(part, step, &dy, step->dw != NULL ? &dw : NULL, stream, err);
  }
  return rc;
}
