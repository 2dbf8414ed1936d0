/* SPDX-License-Identifier: MIT
 *
 * by_row_build.c - builds a rank's share of a layer of 2:4 values: positions and values of its half, the
 * product, its collectives, and all the memory that forward will need.
 */
#include "by_row.h"

typedef struct product_query {
  bs_tensor_desc x, bias, y;
  const bs_tensor_desc *args[4];
  bs_op_query q;
} product_query;

/* A product that goes straight into the own block of y keeps y's row stride. */
static int in_place(const by_row_shape *s) {
  return s->slice_rows && s->y.gather_ranks > 0 && !s->base.own_partial && !s->base.keeps;
}

static void product_query_fill(const tp_layer *l, const bs_layer_spec *spec, product_query *p) {
  const by_row *b = by_row_of(l);
  const tp_shape *s = &l->shape;
  memset(p, 0, sizeof *p);
  const int64_t width = s->input == TP_X_ZERO ? 1 : b->shape.run.count;
  p->x = tp_strided(s->x_dtype, s->B, width, s->input == TP_X_VIEW ? s->K : width);
  p->y = tp_strided(s->product_dtype, s->B, s->row_count, in_place(&b->shape) ? s->N : s->row_count);
  p->args[0] = &p->x;
  p->args[3] = &p->y;
  if (s->bias_here) {
    p->bias = tp_vector(l->bias.dtype, s->row_count);
    p->args[1] = &p->bias;
  }
  p->q.struct_size = (uint32_t)sizeof p->q;
  p->q.op = s->input == TP_X_ZERO ? "matmul" : "matmul24";
  p->q.nargs = 4;
  p->q.args = p->args;
  p->q.partition = s->input == TP_X_ZERO ? NULL : &b->shape.run;
  p->q.kept = s->input == TP_X_ZERO ? NULL : &b->positions.kept;
  p->q.accumulate = spec->accumulate;
  p->q.activation = s->after != BS_ACT_NONE ? (uint32_t)BS_ACT_NONE : spec->activation;
  p->q.flags = BS_QUERY_DETERMINISTIC | (spec->flags & BS_LAYER_BACKWARD ? (uint32_t)BS_QUERY_TRAIN : 0u) |
               (s->repro >= BS_REPRO_R2 ? (uint32_t)BS_QUERY_TOKENWISE : 0u);
  p->q.weight_dtype = s->w_dtype;
}

/* Positions and packed values of this rank's part, timed as `mask` and `compress`. */
static int32_t compress(tp_layer *l, const bs_op_query *query, const bs_source *weights, bs_error *err) {
  by_row *b = by_row_of(l);
  tp_rows_view rows;
  const bs_source own = tp_source_rows(&rows, weights, l->shape.row_begin, l->shape.row_count);
  int32_t rc = tp_kept_make(&b->positions, l->api, l->rank, &b->shape.mask, b->shape.half, weights, err);
  l->api->region_begin(l->rank, BS_REGION_COMPRESS);
  if (rc == BS_OK) rc = l->api->pack(l->rank, query, &own, &l->packed, err);
  l->api->region_end(l->rank, BS_REGION_COMPRESS);
  return rc;
}

/* A rank without columns multiplies a zero one, so that its term is zero, or the bias. */
static int32_t build_stand_in(tp_layer *l, const bs_op_query *q, const bs_source *weights, bs_error *err) {
  const tp_shape *s = &l->shape;
  const bs_tensor_desc d = bs_desc_2d(s->x_dtype, s->B, 1);
  const bs_source zero = tp_source_zero_column(weights);
  const int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_SCRATCH, &l->x_scratch, err);
  return rc == BS_OK ? l->api->pack(l->rank, q, &zero, &l->packed, err) : rc;
}

static int32_t build_product(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights,
                             bs_error *err) {
  const tp_shape *s = &l->shape;
  if (s->row_count == 0) return BS_OK;
  product_query p;
  product_query_fill(l, spec, &p);
  l->api->region_begin(l->rank, BS_REGION_PACK);
  int32_t rc =
      s->input == TP_X_ZERO ? build_stand_in(l, &p.q, weights, err) : compress(l, &p.q, weights, err);
  l->api->region_end(l->rank, BS_REGION_PACK);
  if (rc == BS_OK) rc = l->api->op_prepare(l->rank, &p.q, l->packed, &l->matmul, err);
  return rc;
}

static int32_t build_ways(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  by_row *b = by_row_of(l);
  int32_t rc = BS_OK;
  b->counts = l->api->alloc(l->rank, s->world * sizeof *b->counts);
  if (b->counts == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u block sizes", s->world);
  if (s->own_partial) {
    const bs_tensor_desc d = bs_desc_2d(s->reduce_dtype, s->B, s->row_count);
    rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_CALL, &l->partial, err);
  }
  if (rc == BS_OK) rc = by_row_groups(l, (spec->flags & BS_LAYER_BACKWARD) != 0, err);
  if (rc != BS_OK) return rc;
  const uint32_t summed = s->after != BS_ACT_NONE ? s->reduce_dtype : s->y_dtype;
  if (s->wire == BS_I8) return tp_quantise_build(l, summed, err);
  return by_row_exchange_make(l, &b->shape.y, s->product_dtype, summed, s->y_dtype, l->state->traits->site,
                              &b->sum_y, &b->gather_y, err);
}

/* The activation of a sum over ranks, or of a product that is kept: it stays in the dtype of the sums, so
 * that y is rounded once. */
static int32_t build_activation(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  const by_row_shape *shape = &by_row_of(l)->shape;
  if (s->after == BS_ACT_NONE) return BS_OK;
  const int64_t cols = shape->z_cols;
  const int own = s->own_sums || s->keeps;
  const int64_t stride = shape->slice_rows && shape->y.gather_ranks > 0 ? s->N : cols;
  const uint32_t dtype = s->keeps ? s->product_dtype : s->reduce_dtype;
  const bs_tensor_desc in = tp_strided(dtype, s->B, cols, !own && in_place(shape) ? s->N : cols);
  const bs_tensor_desc out = tp_strided(s->y_dtype, s->B, cols, stride);
  return tp_activation_prepare(l, spec, own, &in, &out, err);
}

int32_t by_row_build(const tp_state *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *spec,
                     const bs_source *weights, const bs_source *bias, void **out_layer, bs_error *err) {
  *out_layer = NULL;
  tp_layer *l = api->alloc(rank, sizeof *l);
  by_row *b = api->alloc(rank, sizeof *b);
  if (l == NULL || b == NULL) {
    if (l != NULL) api->free(rank, l);
    if (b != NULL) api->free(rank, b);
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a layer");
  }
  l->state = state;
  l->api = api;
  l->rank = rank;
  l->by_row = b;
  int32_t rc = by_row_shape_make(state, spec, api->rank(rank), api->world_size(rank), &b->shape, err);
  l->shape = b->shape.base;
  tp_kept_init(&b->positions, l->shape.row_begin, l->shape.row_count, &b->shape.run);
  if (rc == BS_OK) rc = tp_check_weights(l, weights, err);
  if (rc == BS_OK) rc = tp_bias_build(l, bias, err);
  if (rc == BS_OK) rc = build_product(l, spec, weights, err);
  if (rc == BS_OK) rc = build_ways(l, spec, err);
  if (rc == BS_OK) rc = build_activation(l, spec, err);
  if (rc == BS_OK && spec->flags & BS_LAYER_BACKWARD) rc = by_row_gradient_build(l, spec, err);
  if (rc == BS_OK && spec->flags & (BS_LAYER_SGD | BS_LAYER_ADAMW))
    rc = by_row_training_build(l, spec, bias, err);
  if (rc == BS_OK) {
    *out_layer = l;
    return BS_OK;
  }
  by_row_layer_free(l);
  return rc;
}

/* Plans before the groups that they speak in and the positions that they were made of. */
void by_row_layer_free(tp_layer *l) {
  const bs_rank_api *api = l->api;
  bs_rank *rank = l->rank;
  by_row *b = by_row_of(l);
  tp_layer_free(l);
  bs_coll_plan *const plans[] = {b->sum_y, b->gather_y, b->gather_dx};
  for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
    if (plans[i] != NULL) api->collective_release(plans[i]);
  if (b->peers != NULL) api->group_close(b->peers);
  if (b->pair != NULL) api->group_close(b->pair);
  if (b->counts != NULL) api->free(rank, b->counts);
  tp_kept_free(&b->positions, api, rank);
  api->free(rank, b);
}
