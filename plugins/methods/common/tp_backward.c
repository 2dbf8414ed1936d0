/* SPDX-License-Identifier: MIT
 *
 * tp_backward.c - the backward pass of a layer: at most one gather of dY, the products, and one collective of
 * dX. It allocates nothing; a product is only computed if its result was requested. */
#include "tp_tree.h"

static int32_t wrong(const tp_layer *l, const char *name, const bs_tensor *t, int64_t rows, uint32_t dtype,
                     int64_t cols, bs_error *err) {
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-GRADIENT",
                 "method %s: %s is [%lld,%lld] of dtype 0x%04x, not a dense [%lld,%lld] of dtype 0x%04x",
                 l->state->traits->name, name, (long long)t->dims[0], (long long)t->dims[1], t->dtype,
                 (long long)rows, (long long)cols, dtype);
}

int tp_is_row(const bs_tensor *t, int64_t n, uint32_t dtype) {
  return t->rank == 1 && t->dtype == dtype && t->dims[0] == n && (n <= 1 || t->strides[0] == 1);
}

int32_t tp_check_gradients(const tp_layer *l, int64_t dy_cols, uint32_t wide, const bs_tensor *x,
                           const bs_tensor *dy, const bs_tensor *dx, const bs_tensor *dw, const bs_tensor *db,
                           bs_error *err) {
  const tp_shape *s = &l->shape;
  if (l->gradient == NULL) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-BACKWARD", "method %s: the layer was built for forward only",
            l->state->traits->name);
    return bs_fail_hint(err, "build it with BS_LAYER_BACKWARD"), BS_UNSUPPORTED;
  }
  const int64_t rows = dy->dims[0];
  if (rows < 0 || rows > s->B || !tp_fits(dy, rows, s->y_dtype, dy_cols))
    return wrong(l, "dy", dy, s->B, s->y_dtype, dy_cols, err);
  if (l->gradient->shape.activation != BS_ACT_NONE && rows != l->kept_rows)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-GRADIENT",
                   "method %s: dy of %lld tokens, the last forward had %lld", l->state->traits->name,
                   (long long)rows, (long long)l->kept_rows);
  if (dw != NULL && !tp_fits(x, rows, s->x_dtype, s->x_cols))
    return wrong(l, "x", x, rows, s->x_dtype, s->x_cols, err);
  if (dx != NULL && !tp_fits(dx, rows, s->x_dtype, s->x_cols))
    return wrong(l, "dx", dx, rows, s->x_dtype, s->x_cols, err);
  if (dw != NULL && !tp_fits(dw, s->row_count, wide, s->k_own))
    return wrong(l, "dw", dw, s->row_count, wide, s->k_own, err);
  if (db != NULL && !tp_is_row(db, s->row_count, wide)) return wrong(l, "db", db, s->row_count, wide, 0, err);
  return BS_OK;
}

static int32_t exchange(tp_layer *l, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out,
                        bs_stream *stream, bs_error *err) {
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  const int32_t rc = l->api->collective_run(plan, in, out, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}

/* The output of matmul_dx: dx, its own columns, or scratch. */
static bs_tensor product_of(const tp_layer *l, const bs_tensor *dx, int64_t rows) {
  const tp_gradient *g = l->gradient;
  bs_tensor to = g->shape.own_product ? tp_view_rows(&g->product, rows) : *dx;
  if (g->shape.dx == TP_DX_RUN || g->shape.dx == TP_DX_GATHER)
    to = tp_view_columns(&to, g->begin[l->shape.rank], l->shape.k_own);
  return to;
}

static int32_t spread(tp_layer *l, const bs_tensor *gathered, bs_tensor *dx, bs_stream *stream,
                      bs_error *err) {
  const tp_gradient *g = l->gradient;
  int32_t rc = BS_OK;
  l->api->region_begin(l->rank, BS_REGION_LAYOUT_FIX);
  for (uint32_t r = 0; rc == BS_OK && r < l->shape.world; r++) {
    if (g->spread[r] == NULL) continue;
    bs_tensor block = tp_view_columns(gathered, g->begin[r], g->begin[r + 1] - g->begin[r]);
    bs_tensor *args[2] = {&block, dx};
    rc = l->api->op_run(g->spread[r], args, 2, stream, err);
  }
  l->api->region_end(l->rank, BS_REGION_LAYOUT_FIX);
  return rc;
}

static int32_t input_gradient(tp_layer *l, bs_tensor *dy, bs_tensor *dx, bs_stream *stream, bs_error *err) {
  const tp_gradient *g = l->gradient;
  bs_tensor block = product_of(l, dx, dy->dims[0]);
  bs_tensor product = g->shape.picks ? tp_view_rows(&g->wide, dy->dims[0]) : block;
  int32_t rc = l->leaf_grad != NULL ? tp_leaf_dx(l, dy, &product, stream, err) : BS_OK;
  if (g->dx != NULL) {
    bs_tensor *args[2] = {dy, &product};
    rc = l->api->op_run(g->dx, args, 2, stream, err);
  }
  if (rc != BS_OK) return rc;
  if (g->pick != NULL) {
    bs_tensor *args[2] = {&product, g->shape.picks ? &block : dx};
    rc = l->api->op_run(g->pick, args, 2, stream, err);
  }
  if (rc != BS_OK || g->sum_dx == NULL) return rc;
  bs_tensor whole = g->shape.dx == TP_DX_GATHER ? tp_view_rows(&g->product, dy->dims[0]) : *dx;
  rc = exchange(l, g->sum_dx, &block, &whole, stream, err);
  return rc == BS_OK && g->shape.dx == TP_DX_GATHER ? spread(l, &whole, dx, stream, err) : rc;
}

int32_t tp_bias_gradient(tp_layer *l, bs_tensor *dy, bs_tensor *db, bs_stream *stream, bs_error *err) {
  bs_tensor ones = tp_view_rows(&l->gradient->ones, dy->dims[0]);
  bs_tensor column = *db;
  column.rank = 2;
  column.dims[1] = column.strides[0] = column.strides[1] = 1;
  bs_tensor *args[3] = {&ones, dy, &column};
  return l->api->op_run(l->gradient->db, args, 3, stream, err);
}

int32_t tp_slope_run(tp_layer *l, const bs_tensor *dy, bs_tensor *dz, bs_stream *stream, bs_error *err) {
  const tp_gradient *g = l->gradient;
  const int64_t begin = l->shape.split == BS_SPLIT_N ? g->shape.dy_begin : 0;
  bs_tensor from = tp_view_columns(dy, begin, g->shape.dz_cols), z = tp_view_rows(&l->sums, dy->dims[0]);
  *dz = tp_view_rows(&g->dz, dy->dims[0]);
  bs_tensor *args[3] = {&from, &z, dz};
  return l->api->op_run(g->slope, args, 3, stream, err);
}

bs_tensor tp_own_dy(const tp_layer *l, const bs_tensor *dy) {
  const tp_gradient *g = l->gradient;
  if (g->whole_dy != NULL) return tp_view_rows(&g->dy, dy->dims[0]);
  if (g->slope != NULL) return tp_view_rows(&g->dz, dy->dims[0]);
  if (l->shape.split == BS_SPLIT_N) return tp_view_columns(dy, g->shape.dy_begin, l->shape.row_count);
  return *dy;
}

int32_t tp_backward(void *layer, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx, bs_tensor *dw,
                    bs_tensor *db, bs_stream *stream, bs_error *err) {
  tp_layer *l = layer;
  const tp_gradient *g = l->gradient;
  int32_t rc = tp_check_gradients(l, g != NULL ? g->shape.dy_cols : 0, g != NULL ? g->shape.wide : 0, x, dy,
                                  dx, dw, db, err);
  if (rc != BS_OK) return rc;
  bs_tensor own = tp_own_dy(l, dy), mine = *dy;
  if (g->slope != NULL) rc = tp_slope_run(l, dy, &mine, stream, err);
  if (rc == BS_OK && g->whole_dy != NULL) rc = exchange(l, g->whole_dy, &mine, &own, stream, err);
  if (rc == BS_OK && dw != NULL && g->dw != NULL) {
    bs_tensor from = *x;
    bs_tensor *args[3] = {&from, &own, dw};
    rc = l->api->op_run(g->dw, args, 3, stream, err);
  }
  if (rc == BS_OK && db != NULL && g->db != NULL) rc = tp_bias_gradient(l, &own, db, stream, err);
  if (rc == BS_OK && dx != NULL) rc = input_gradient(l, &own, dx, stream, err);
  return rc;
}
