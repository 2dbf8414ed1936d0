/* SPDX-License-Identifier: MIT
 *
 * tp_gradient.c - what the backward pass of a rank's share of a layer needs, made once: dX = dY W over the
 * weight that forward has packed, dW = dY^T X and db = dY^T 1. Columns of W are owned by one rank each, so a
 * split over K gives complete columns of dX, which are gathered at most; a split over N gives terms of a sum.
 */
#include "tp_kept.h"
#include "tp_tree.h"

int32_t tp_gradient_shape_make(const tp_state *state, const bs_layer_spec *spec, const tp_shape *s,
                               tp_gradient_shape *out_shape, bs_error *err) {
  const char *name = state->traits->name;
  if (!tp_is_float(s->x_dtype) || !tp_is_float(s->w_dtype) || !tp_is_float(s->y_dtype))
    return bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-BACKWARD",
                   "method %s: a backward pass needs floating point x, w and y", name);
  tp_gradient_shape g;
  memset(&g, 0, sizeof g);
  g.wide = s->x_dtype == BS_F64 || s->w_dtype == BS_F64 || s->y_dtype == BS_F64 ? BS_F64 : BS_F32;
  g.product_dtype = s->x_dtype;
  g.dx_width = s->k_mul;
  g.dx_coll = BS_COLL_COUNT_;
  g.dy_cols = g.dz_cols = s->y_cols;
  g.activation = spec->activation;
  const uint32_t whole_x = s->x_cols == s->K && spec->x_placement == BS_REPLICATED;
  if (s->row_leaves > 0) g.dx = TP_DX_TREE;
  if (s->leaves > 0 && !state->traits->full_width) g.dx_width = s->k_own;
  if (s->split == BS_SPLIT_N) {
    if (s->row_leaves == 0) g.dx = TP_DX_SUM;
    g.dz_cols = s->row_count;
    g.dy_begin = spec->y_placement == BS_SPLIT ? 0 : s->row_begin;
  } else if (s->split == BS_SPLIT_K) {
    g.gather_dy = spec->y_placement == BS_SPLIT;
    g.picks = state->traits->full_width && whole_x && s->leaves > 0; /* no -0 + 0 of a sum over ranks */
    if (state->traits->full_width && !g.picks)
      g.dx = whole_x ? TP_DX_SUM : TP_DX_PICK;
    else
      g.dx = whole_x ? TP_DX_RUN : TP_DX_PLAIN;
  }
  if (g.dx == TP_DX_RUN) g.dx_coll = BS_COLL_ALL_GATHER;
  if (g.dx == TP_DX_SUM) {
    g.dx_coll = BS_COLL_ALL_REDUCE;
    g.product_dtype = s->reduce_dtype;
    g.dx_width = s->K;
  }
  g.own_product =
      g.dx == TP_DX_PICK || (g.dx == TP_DX_SUM && (s->reduce_dtype != s->x_dtype || s->row_count == 0));
  *out_shape = g;
  return BS_OK;
}

static int32_t prepare(tp_layer *l, const bs_layer_spec *spec, const char *op,
                       const bs_tensor_desc *const *args, uint32_t nargs, const bs_partition *cols,
                       bs_packed *packed, uint32_t flags, bs_plan **out_plan, bs_error *err) {
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = nargs;
  q.args = args;
  q.partition = cols;
  q.accumulate = spec->accumulate;
  q.flags =
      flags | (strcmp(op, "matmul_dx") == 0 || strcmp(op, "matmul_dw") == 0 ? tp_bits_flag(&l->shape) : 0u);
  q.weight_dtype = packed != NULL ? l->shape.w_dtype : 0;
  return l->api->op_prepare(l->rank, &q, packed, out_plan, err);
}

/* dY as the products see it: the own features of the caller's, or the gathered whole. */
bs_tensor_desc tp_dy_desc(const tp_layer *l) {
  const tp_shape *s = &l->shape;
  const tp_gradient_shape *g = &l->gradient->shape;
  const int64_t stride = g->gather_dy ? s->N : g->activation != BS_ACT_NONE ? g->dz_cols : g->dy_cols;
  return tp_strided(s->y_dtype, s->B, s->row_count, stride);
}

static int32_t build_dx(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  const tp_gradient_shape *g = &l->gradient->shape;
  if (l->packed == NULL || s->input == TP_X_ZERO) return BS_OK;
  const int64_t stride = !g->picks && (g->dx == TP_DX_RUN || g->dx == TP_DX_GATHER) ? s->K : g->dx_width;
  const bs_tensor_desc dy = tp_dy_desc(l), dx = tp_strided(g->product_dtype, s->B, g->dx_width, stride);
  const bs_tensor_desc *args[2] = {&dy, &dx};
  return prepare(l, spec, "matmul_dx", args, 2, l->state->traits->full_width ? NULL : s->cols, l->packed,
                 BS_QUERY_DETERMINISTIC, &l->gradient->dx, err);
}

static int32_t build_dw(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_gradient *g = l->gradient;
  if (s->row_count == 0) return BS_OK;
  const bs_tensor_desc dy = tp_dy_desc(l), x = bs_desc_2d(s->x_dtype, s->B, s->x_cols);
  const bs_tensor_desc dw = bs_desc_2d(g->shape.wide, s->row_count, s->k_own);
  const bs_tensor_desc *args[3] = {&x, &dy, &dw};
  const int picks = s->cols != NULL && spec->x_placement == BS_REPLICATED;
  int32_t rc = BS_OK;
  if (s->k_own > 0 && s->by_row)
    rc = tp_by_row_dw(l, spec, args, err);
  else if (s->k_own > 0)
    rc = prepare(l, spec, "matmul_dw", args, 3, picks ? s->cols : NULL, NULL,
                 BS_QUERY_DETERMINISTIC | (picks ? (uint32_t)BS_QUERY_X_FULL : 0u), &g->dw, err);
  if (rc != BS_OK || !spec->has_bias) return rc;
  const bs_tensor_desc ones = bs_desc_2d(g->ones.dtype, s->B, 1);
  const bs_tensor_desc db = bs_desc_2d(g->shape.wide, s->row_count, 1);
  const bs_tensor_desc *sums[3] = {&ones, &dy, &db};
  return prepare(l, spec, "matmul_dw", sums, 3, NULL, NULL, BS_QUERY_DETERMINISTIC, &g->db, err);
}

static int32_t read_ones(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  (void)ctx;
  (void)row;
  (void)cols;
  if (dtype != BS_F32 && dtype != BS_F64)
    return bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-ONES", "ones are f32 or f64");
  for (int64_t i = 0; i < nrows; i++) {
    if (dtype == BS_F64)
      ((double *)out)[i * out_stride] = 1.0;
    else
      ((float *)out)[i * out_stride] = 1.0f;
  }
  return BS_OK;
}

int32_t tp_ones_build(tp_layer *l, const bs_layer_spec *spec, uint32_t dtype, bs_error *err) {
  tp_gradient *g = l->gradient;
  if (!spec->has_bias || l->shape.row_count == 0) return BS_OK;
  bs_source ones;
  memset(&ones, 0, sizeof ones);
  ones.struct_size = (uint32_t)sizeof ones;
  ones.dtype = dtype;
  ones.rows = l->shape.B;
  ones.cols = 1;
  ones.read = read_ones;
  const bs_tensor_desc d = bs_desc_2d(dtype, l->shape.B, 1);
  int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_SCRATCH, &g->ones, err);
  if (rc == BS_OK) rc = l->api->tensor_read(l->rank, &ones, 0, NULL, &g->ones, err);
  return rc;
}

static int32_t no_memory(bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for the plan of a backward pass");
}

/* The place of rank r's columns in the gathered dX. */
static int32_t place_block(tp_layer *l, const bs_partition *cols, uint32_t r, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_gradient *g = l->gradient;
  const int64_t count = cols->count;
  g->dx_counts[r] = (uint64_t)count;
  g->begin[r + 1] = g->begin[r] + count;
  const int in_place = count == 0 || (cols->kind == BS_PARTITION_CONTIGUOUS && cols->begin == g->begin[r]);
  if (!in_place) g->shape.dx = TP_DX_GATHER;
  const bs_tensor_desc block = tp_strided(s->x_dtype, s->B, count, s->K);
  const bs_tensor_desc dx = bs_desc_2d(s->x_dtype, s->B, s->K);
  const bs_tensor_desc *args[2] = {&block, &dx};
  const bs_layer_spec plain = {.struct_size = sizeof plain};
  return count > 0 ? prepare(l, &plain, "scatter_columns", args, 2, cols, NULL, 0, &g->spread[r], err)
                   : BS_OK;
}

/* Computes the place of each rank's columns in the gathered dX. Runs in rank order are already in place. */
static int32_t build_blocks(tp_layer *l, const bs_layer_spec *spec, const bs_mask *mask, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_gradient *g = l->gradient;
  g->begin = l->api->alloc(l->rank, (s->world + 1) * sizeof *g->begin);
  g->spread = l->api->alloc(l->rank, s->world * sizeof *g->spread);
  g->dx_counts = l->api->alloc(l->rank, s->world * sizeof *g->dx_counts);
  if (g->begin == NULL || g->spread == NULL || g->dx_counts == NULL) return no_memory(err);
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < s->world; r++) {
    const bs_partition *cols = NULL;
    tp_shape leaves = {0};
    rc = s->leaves > 0 ? tp_shape_make(l->state, spec, r, s->world, &leaves, err)
                       : l->api->partition_make(l->rank, mask, s->K, r, s->world, &cols, err);
    if (rc == BS_OK) rc = place_block(l, s->leaves > 0 ? leaves.cols : cols, r, err);
    if (cols != NULL) l->api->partition_free(cols);
    tp_shape_free(l->state, &leaves);
  }
  if (rc == BS_OK && g->begin[s->world] != s->K)
    rc = bs_fail(err, BS_INTERNAL, "BS-METHOD-COLUMNS", "method %s: the ranks own %lld of %lld columns",
                 l->state->traits->name, (long long)g->begin[s->world], (long long)s->K);
  return rc;
}

static int32_t collective(tp_layer *l, uint32_t kind, uint32_t in, uint32_t out, int64_t count,
                          const uint64_t *counts, const char *site, bs_coll_plan **out_plan, bs_error *err) {
  const tp_shape *s = &l->shape;
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = (uint32_t)sizeof c;
  c.kind = kind;
  c.dtype_in = in;
  c.dtype_out = out;
  c.reduce_dtype = kind == BS_COLL_ALL_REDUCE ? s->reduce_dtype : 0;
  c.rows = (uint64_t)s->B;
  c.count = counts == NULL ? (uint64_t)count : 0;
  c.counts = counts;
  c.ncounts = counts == NULL ? 0 : s->world;
  c.site = site;
  return l->api->collective_prepare(l->rank, &c, out_plan, err);
}

static int32_t build_dy(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_gradient *g = l->gradient;
  if (!g->shape.gather_dy) return BS_OK;
  const bs_tensor_desc d = bs_desc_2d(s->y_dtype, s->B, s->N);
  g->dy_counts = l->api->alloc(l->rank, s->world * sizeof *g->dy_counts);
  if (g->dy_counts == NULL) return no_memory(err);
  for (uint32_t r = 0; r < s->world; r++) {
    int64_t begin, count;
    tp_share(s->N, r, s->world, &begin, &count);
    g->dy_counts[r] = (uint64_t)count;
  }
  int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_SCRATCH, &g->dy, err);
  if (rc == BS_OK)
    rc = collective(l, BS_COLL_ALL_GATHER, s->y_dtype, s->y_dtype, 0, g->dy_counts, l->state->traits->dy_site,
                    &g->whole_dy, err);
  return rc;
}

/* Scratch of the product, and what takes it to dx. */
static int32_t build_way_to_dx(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_gradient *g = l->gradient;
  const char *site = l->state->traits->dx_site;
  int32_t rc = BS_OK;
  if (g->shape.dx == TP_DX_RUN) {
    bs_mask mask;
    rc = l->state->traits->choose_mask(spec, &mask, err);
    if (rc == BS_OK) rc = build_blocks(l, spec, &mask, err);
    if (rc == BS_OK)
      rc = collective(l, BS_COLL_ALL_GATHER, s->x_dtype, s->x_dtype, 0, g->dx_counts, site, &g->sum_dx, err);
  }
  g->shape.own_product |= g->shape.dx == TP_DX_GATHER;
  if (rc == BS_OK && g->shape.own_product) {
    const bs_tensor_desc d = bs_desc_2d(g->shape.product_dtype, s->B, s->K);
    rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_SCRATCH, &g->product, err);
  }
  if (rc == BS_OK && g->shape.dx == TP_DX_SUM)
    rc = collective(l, BS_COLL_ALL_REDUCE, s->reduce_dtype, s->x_dtype, s->K, NULL, site, &g->sum_dx, err);
  const bs_tensor_desc all = bs_desc_2d(s->x_dtype, s->B, s->K);
  if (rc == BS_OK && g->shape.picks) rc = l->api->tensor_alloc(l->rank, &all, BS_LIFE_SCRATCH, &g->wide, err);
  if (rc == BS_OK && (g->shape.dx == TP_DX_PICK || g->shape.picks) && s->k_own > 0) {
    const bs_tensor_desc own = tp_strided(s->x_dtype, s->B, s->k_own, g->shape.picks ? s->K : s->k_own);
    const bs_tensor_desc *args[2] = {&all, &own};
    rc = prepare(l, spec, "gather_columns", args, 2, s->cols, NULL, 0, &g->pick, err);
  }
  return rc;
}

int32_t tp_slope_build(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_gradient *g = l->gradient;
  if (spec->activation == BS_ACT_NONE || g->shape.dz_cols == 0) return BS_OK;
  const bs_tensor_desc dy = tp_strided(s->y_dtype, s->B, g->shape.dz_cols, g->shape.dy_cols);
  const bs_tensor_desc z = bs_desc_2d(l->sums.dtype, s->B, g->shape.dz_cols);
  const bs_tensor_desc dz = bs_desc_2d(s->y_dtype, s->B, g->shape.dz_cols);
  const bs_tensor_desc *args[3] = {&dy, &z, &dz};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "activate_dx";
  q.nargs = 3;
  q.args = args;
  q.activation = spec->activation;
  const int32_t rc = l->api->tensor_alloc(l->rank, &dz, BS_LIFE_SCRATCH, &g->dz, err);
  return rc == BS_OK ? l->api->op_prepare(l->rank, &q, NULL, &g->slope, err) : rc;
}

int32_t tp_gradient_build(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  l->gradient = l->api->alloc(l->rank, sizeof *l->gradient);
  if (l->gradient == NULL) return no_memory(err);
  int32_t rc = tp_gradient_shape_make(l->state, spec, &l->shape, &l->gradient->shape, err);
  if (rc == BS_OK) rc = build_way_to_dx(l, spec, err);
  if (rc == BS_OK) rc = build_dy(l, err);
  if (rc == BS_OK) rc = tp_slope_build(l, spec, err);
  if (rc == BS_OK) rc = tp_ones_build(l, spec, l->gradient->shape.wide, err);
  if (rc == BS_OK) rc = build_dx(l, spec, err);
  if (rc == BS_OK) rc = build_dw(l, spec, err);
  return rc;
}

static void release_plans(tp_layer *l) {
  const bs_rank_api *api = l->api;
  tp_gradient *g = l->gradient;
  bs_plan *const plans[] = {g->dx, g->dw, g->db, g->pick, g->slope};
  for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
    if (plans[i] != NULL) api->op_release(plans[i]);
  for (uint32_t r = 0; g->spread != NULL && r < l->shape.world; r++)
    if (g->spread[r] != NULL) api->op_release(g->spread[r]);
  if (g->sum_dx != NULL) api->collective_release(g->sum_dx);
  if (g->whole_dy != NULL) api->collective_release(g->whole_dy);
}

void tp_gradient_free(tp_layer *l) {
  tp_gradient *g = l->gradient;
  if (g == NULL) return;
  release_plans(l);
  void *const blocks[] = {g->spread, g->begin, g->dx_counts, g->dy_counts};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
    if (blocks[i] != NULL) l->api->free(l->rank, blocks[i]);
  bs_tensor *const tensors[] = {&g->product, &g->wide, &g->dy, &g->dz, &g->ones};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
    if (tensors[i]->data != NULL) l->api->tensor_free(l->rank, tensors[i]);
  l->api->free(l->rank, g);
  l->gradient = NULL;
}
