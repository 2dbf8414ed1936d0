/* SPDX-License-Identifier: MIT
 *
 * by_row_gradient.c - the backward pass of a layer of 2:4 values: dX = dY W over the packed values (terms of
 * a sum in every column, unlike a K-partition's), dW = dY^T X where weights are kept, db = dY^T 1.
 */
#include "by_row.h"

static int32_t prepare(tp_layer *l, const bs_layer_spec *spec, const char *op,
                       const bs_tensor_desc *const *args, uint32_t nargs, int sparse, int x_full,
                       bs_packed *packed, bs_plan **out_plan, bs_error *err) {
  const by_row *b = by_row_of(l);
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = nargs;
  q.args = args;
  q.partition = sparse ? &b->shape.run : NULL;
  q.kept = sparse ? &b->positions.kept : NULL;
  q.accumulate = spec->accumulate;
  q.flags = BS_QUERY_DETERMINISTIC | (x_full ? (uint32_t)BS_QUERY_X_FULL : 0u);
  q.weight_dtype = packed != NULL ? l->shape.w_dtype : 0;
  return l->api->op_prepare(l->rank, &q, packed, out_plan, err);
}

/* Row stride of dY, or of dZ, as the products see it. */
static int64_t dy_stride(const tp_layer *l) {
  const by_row_shape *s = &by_row_of(l)->shape;
  return s->dy_ranks > 0 || l->gradient->slope != NULL ? s->base.row_count : s->dy_cols;
}

static int32_t build_dx(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  by_row *b = by_row_of(l);
  const tp_shape *s = &l->shape;
  if (s->row_count == 0 || b->shape.run.count == 0) return BS_OK;
  const int64_t stride = b->shape.dx.gather_ranks > 0 && !b->shape.own_dx ? s->K : b->shape.dx_cols;
  const bs_tensor_desc dy = tp_strided(s->y_dtype, s->B, s->row_count, dy_stride(l));
  const bs_tensor_desc dx = tp_strided(b->shape.dx_dtype, s->B, b->shape.dx_cols, stride);
  const bs_tensor_desc *args[2] = {&dy, &dx};
  return prepare(l, spec, "matmul24_dx", args, 2, 1, 0, l->packed, &l->gradient->dx, err);
}

static int32_t build_dw(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  by_row *b = by_row_of(l);
  const tp_shape *s = &l->shape;
  if (s->row_count == 0) return BS_OK;
  const bs_tensor_desc dy = tp_strided(s->y_dtype, s->B, s->row_count, dy_stride(l));
  const bs_tensor_desc x = bs_desc_2d(s->x_dtype, s->B, s->K);
  const bs_tensor_desc dw = bs_desc_2d(b->shape.wide, s->row_count, s->k_own);
  const bs_tensor_desc *args[3] = {&x, &dy, &dw};
  int32_t rc = BS_OK;
  if (s->k_own > 0) rc = prepare(l, spec, "matmul24_dw", args, 3, 1, 1, NULL, &l->gradient->dw, err);
  if (rc != BS_OK || !spec->has_bias) return rc;
  const bs_tensor_desc ones = bs_desc_2d(b->shape.wide, s->B, 1);
  const bs_tensor_desc db = bs_desc_2d(b->shape.wide, s->row_count, 1);
  const bs_tensor_desc *sums[3] = {&ones, &dy, &db};
  return prepare(l, spec, "matmul_dw", sums, 3, 0, 0, NULL, &l->gradient->db, err);
}

static int32_t build_scratch(tp_layer *l, bs_error *err) {
  by_row *b = by_row_of(l);
  const by_row_shape *s = &b->shape;
  const bs_tensor_desc dy = bs_desc_2d(s->base.y_dtype, s->base.B, s->base.row_count);
  const bs_tensor_desc dx = bs_desc_2d(s->dx_dtype, s->base.B, s->dx_cols);
  int32_t rc = BS_OK;
  if (s->dy_ranks > 0) rc = l->api->tensor_alloc(l->rank, &dy, BS_LIFE_SCRATCH, &l->gradient->dy, err);
  if (rc == BS_OK && s->dy_ranks > 0) rc = by_row_gather_dy(l, s->dy_ranks, err);
  if (rc == BS_OK && s->own_dx)
    rc = l->api->tensor_alloc(l->rank, &dx, BS_LIFE_SCRATCH, &l->gradient->product, err);
  return rc;
}

static int32_t make_gradient(tp_layer *l, uint32_t activation, bs_error *err) {
  const by_row_shape *s = &by_row_of(l)->shape;
  tp_gradient *g = l->gradient = l->api->alloc(l->rank, sizeof *g);
  if (g == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for the plan of a backward pass");
  g->shape.dx = TP_DX_SUM;
  g->shape.dx_coll = s->dx.sum;
  g->shape.product_dtype = s->dx_dtype;
  g->shape.wide = s->wide;
  g->shape.gather_dy = s->dy_ranks > 0;
  g->shape.own_product = s->own_dx;
  g->shape.dx_width = s->dx_cols;
  g->shape.dy_cols = s->dy_cols;
  g->shape.dy_begin =
      s->y.sum == BS_COLL_REDUCE_SCATTER || s->dy_cols == s->base.row_count ? 0 : s->base.row_begin;
  g->shape.activation = activation;
  g->shape.dz_cols = s->z_cols;
  return BS_OK;
}

int32_t by_row_gradient_build(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  by_row *b = by_row_of(l);
  int32_t rc = make_gradient(l, spec->activation, err);
  if (rc == BS_OK) rc = build_scratch(l, err);
  if (rc == BS_OK)
    rc = by_row_exchange_make(l, &b->shape.dx, b->shape.dx_dtype, l->shape.x_dtype, l->shape.x_dtype,
                              l->state->traits->dx_site, &l->gradient->sum_dx, &b->gather_dx, err);
  if (rc == BS_OK) rc = tp_slope_build(l, spec, err);
  if (rc == BS_OK) rc = tp_ones_build(l, spec, b->shape.wide, err);
  if (rc == BS_OK) rc = build_dx(l, spec, err);
  if (rc == BS_OK) rc = build_dw(l, spec, err);
  return rc;
}

/* W += alpha dY^T X on the kept values, without a dW. */
static int32_t build_fused(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  const bs_tensor_desc dy = tp_strided(s->y_dtype, s->B, s->row_count, dy_stride(l));
  const bs_tensor_desc x = bs_desc_2d(s->x_dtype, s->B, s->K);
  const bs_tensor_desc alpha = tp_vector(BS_F32, 1);
  const bs_tensor_desc *args[3] = {&x, &dy, &alpha};
  return prepare(l, spec, "matmul24_update", args, 3, 1, 1, l->packed, &l->training->fused, err);
}

int32_t by_row_training_build(tp_layer *l, const bs_layer_spec *spec, const bs_source *bias, bs_error *err) {
  const int32_t rc = tp_training_build(l, spec, bias, err);
  const tp_training *t = l->training;
  if (rc != BS_OK || t->sgd == NULL || t->flags & BS_LAYER_MOMENTUM) return rc;
  return build_fused(l, spec, err);
}

/* ---- backward ------------------------------------------------------------------------------------ */

static int32_t weight_gradient(tp_layer *l, const bs_tensor *x, bs_tensor *dy, bs_tensor *dw,
                               bs_stream *stream, bs_error *err) {
  bs_tensor whole = *x; /* the op picks the columns of the slice */
  bs_tensor *args[3] = {&whole, dy, dw};
  return l->api->op_run(l->gradient->dw, args, 3, stream, err);
}

static int32_t input_gradient(tp_layer *l, bs_tensor *dy, bs_tensor *dx, bs_stream *stream, bs_error *err) {
  by_row *b = by_row_of(l);
  const by_row_shape *s = &b->shape;
  bs_tensor place = s->dx.gather_ranks > 0 ? tp_view_columns(dx, s->run.begin, s->run.count) : *dx;
  bs_tensor product = s->own_dx ? tp_view_rows(&l->gradient->product, dy->dims[0]) : place;
  int32_t rc = BS_OK;
  if (l->gradient->dx != NULL) {
    bs_tensor *args[2] = {dy, &product};
    rc = l->api->op_run(l->gradient->dx, args, 2, stream, err);
  }
  if (rc == BS_OK && l->gradient->sum_dx != NULL)
    rc = by_row_exchange_run(l, l->gradient->sum_dx, &product, &place, stream, err);
  if (rc == BS_OK && b->gather_dx != NULL) rc = by_row_exchange_run(l, b->gather_dx, &place, dx, stream, err);
  return rc;
}

int32_t by_row_backward(tp_layer *l, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx, bs_tensor *dw,
                        bs_tensor *db, bs_stream *stream, bs_error *err) {
  by_row *b = by_row_of(l);
  const by_row_shape *s = &b->shape;
  int32_t rc = tp_check_gradients(l, s->dy_cols, s->wide, x, dy, dx, dw, db, err);
  if (rc != BS_OK) return rc;
  bs_tensor own = *dy, mine = *dy;
  if (l->gradient->slope != NULL) rc = tp_slope_run(l, dy, &mine, stream, err);
  if (rc != BS_OK) return rc;
  if (l->gradient->whole_dy != NULL) {
    own = tp_view_rows(&l->gradient->dy, dy->dims[0]);
    rc = by_row_exchange_run(l, l->gradient->whole_dy, &mine, &own, stream, err);
  } else if (l->gradient->slope != NULL) {
    own = mine;
  } else if (s->dy_cols != s->base.row_count) {
    own = tp_view_columns(dy, s->base.row_begin, s->base.row_count);
  }
  if (rc == BS_OK && dw != NULL && l->gradient->dw != NULL) rc = weight_gradient(l, x, &own, dw, stream, err);
  if (rc == BS_OK && db != NULL && l->gradient->db != NULL) rc = tp_bias_gradient(l, &own, db, stream, err);
  if (rc == BS_OK && dx != NULL) rc = input_gradient(l, &own, dx, stream, err);
  return rc;
}
