/* SPDX-License-Identifier: MIT
 *
 * tp_leaf_build.c - builds the leaves of a rank (repro=R3, R4): each leaf's columns are packed by themselves
 * and multiplied by a plan of their own, sums side by side; then the plans that join them, and the exchange
 * of the ranks' sums. Everything slow is here. What follows from the shape alone: tp_leaf_shape.c.
 */
#include "tp.h"

typedef struct leaf_query {
  bs_tensor_desc x, bias, y;
  const bs_tensor_desc *args[4];
  bs_op_query q;
} leaf_query;

/* Row stride of what a leaf writes: the block of `parts`, of `all`, or the own sum. */
static int64_t sum_stride(const tp_layer *l) {
  const tp_shape *s = &l->shape;
  if (s->leaves > 1) return s->leaves * s->row_count;
  return l->leaves->own.data != NULL ? s->row_count : (int64_t)s->world * s->N;
}

static void query_fill(const tp_layer *l, const bs_layer_spec *spec, uint32_t i, leaf_query *p) {
  const tp_shape *s = &l->shape;
  const tp_leaf *leaf = &l->leaves->leaf[i];
  const int64_t k = s->leaf_width[i];
  memset(p, 0, sizeof *p);
  p->x = leaf->input == TP_X_FULL   ? bs_desc_2d(s->x_dtype, s->B, s->x_cols)
         : leaf->input == TP_X_VIEW ? tp_strided(s->x_dtype, s->B, k, s->x_cols)
                                    : bs_desc_2d(s->x_dtype, s->B, k);
  p->y = tp_strided(s->product_dtype, s->B, s->row_count, sum_stride(l));
  p->args[0] = &p->x;
  p->args[3] = &p->y;
  if (s->bias_here && i == 0) { /* the first leaf's; of the first rank's where K is split */
    p->bias = tp_vector(l->bias.dtype, s->row_count);
    p->args[1] = &p->bias;
  }
  p->q.struct_size = (uint32_t)sizeof p->q;
  p->q.op = "matmul";
  p->q.nargs = 4;
  p->q.args = p->args;
  p->q.partition = leaf->input == TP_X_ZERO ? NULL : leaf->cols;
  p->q.accumulate = spec->accumulate;
  p->q.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_TOKENWISE |
               (leaf->input == TP_X_FULL ? (uint32_t)BS_QUERY_X_FULL : 0u);
  p->q.weight_dtype = s->w_dtype;
}

/* A run is viewed; other columns are picked by the kernel where it can, else copied before. */
static void choose_input(tp_layer *l, const bs_layer_spec *spec, uint32_t i) {
  tp_leaf *leaf = &l->leaves->leaf[i];
  leaf->input = TP_X_VIEW;
  if (leaf->cols->count == 0) leaf->input = TP_X_ZERO;
  if (leaf->cols->kind == BS_PARTITION_CONTIGUOUS) return;
  leaf->input = TP_X_GATHER;
  if (strcmp(tp_option_get(spec, "kernel", "auto"), "auto") != 0) return;
  leaf_query p;
  bs_op_answer answer;
  bs_error why;
  memset(&answer, 0, sizeof answer);
  memset(&why, 0, sizeof why);
  answer.struct_size = (uint32_t)sizeof answer;
  why.struct_size = (uint32_t)sizeof why;
  leaf->input = TP_X_FULL;
  query_fill(l, spec, i, &p);
  if (l->api->op_supports(l->rank, &p.q, &answer, &why) != BS_OK || answer.level == BS_LEVEL_NO)
    leaf->input = TP_X_GATHER;
}

/* Prepares an op of one input and one output. */
static int32_t prepare(tp_layer *l, const char *op, const bs_tensor_desc *in, const bs_tensor_desc *out,
                       const bs_partition *cols, const bs_layer_spec *act, const uint32_t *order, uint32_t n,
                       bs_plan **out_plan, bs_error *err) {
  const bs_tensor_desc *args[2] = {in, out};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = 2;
  q.args = args;
  q.partition = cols;
  q.activation = act != NULL ? act->activation : (uint32_t)BS_ACT_NONE;
  for (uint32_t i = 0; i < n; i++) q.attrs[i] = order[i];
  return l->api->op_prepare(l->rank, &q, NULL, out_plan, err);
}

/* x of the leaf where it is copied first; the column of zeros of an empty leaf stays zero. */
static int32_t build_move(tp_layer *l, uint32_t i, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_leaf *leaf = &l->leaves->leaf[i];
  if (leaf->input != TP_X_GATHER && leaf->input != TP_X_ZERO) return BS_OK;
  const bs_tensor_desc to = bs_desc_2d(s->x_dtype, s->B, s->leaf_width[i]);
  const bs_tensor_desc from = bs_desc_2d(s->x_dtype, s->B, s->x_cols);
  int32_t rc = l->api->tensor_alloc(l->rank, &to, leaf->input == TP_X_GATHER ? BS_LIFE_CALL : BS_LIFE_SCRATCH,
                                    &leaf->x, err);
  if (rc == BS_OK && leaf->input == TP_X_GATHER)
    rc = prepare(l, "gather_columns", &from, &to, leaf->cols, NULL, NULL, 0, &leaf->move, err);
  return rc;
}

static int32_t build_leaf(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, uint32_t i,
                          bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_leaf *leaf = &l->leaves->leaf[i];
  int32_t rc = tp_leaf_columns(l->state, spec, s, i, &leaf->cols, err);
  if (rc != BS_OK) return rc;
  choose_input(l, spec, i);
  leaf_query p;
  query_fill(l, spec, i, &p);
  tp_rows_view rows;
  tp_zeros_view columns;
  bs_source own = *weights, all = *weights;
  if (s->split == BS_SPLIT_N) own = all = tp_source_rows(&rows, weights, s->row_begin, s->row_count);
  if (spec->x_placement == BS_SPLIT && s->cols != NULL) own = tp_source_columns(&columns, &all, s->cols);
  if (leaf->input == TP_X_ZERO) own = tp_source_zero_column(&all);
  rc = l->api->pack(l->rank, &p.q, &own, &leaf->packed, err);
  if (rc == BS_OK) rc = l->api->op_prepare(l->rank, &p.q, leaf->packed, &leaf->product, err);
  if (rc == BS_OK) rc = build_move(l, i, err);
  return rc;
}

/* Memory of the sums. */
static int32_t build_sums(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_leaves *v = l->leaves;
  const bs_tensor_desc parts = bs_desc_2d(s->product_dtype, s->B, s->leaves * s->row_count);
  const bs_tensor_desc own = bs_desc_2d(s->product_dtype, s->B, s->N);
  const bs_tensor_desc all = bs_desc_2d(s->product_dtype, s->B, (int64_t)s->world * s->y_cols);
  int32_t rc = BS_OK;
  if (s->leaves > 1) rc = l->api->tensor_alloc(l->rank, &parts, BS_LIFE_CALL, &v->parts, err);
  if (rc == BS_OK && s->coll == BS_COLL_ALL_TO_ALL)
    rc = l->api->tensor_alloc(l->rank, &own, BS_LIFE_CALL, &v->own, err);
  if (rc == BS_OK && s->split == BS_SPLIT_K)
    rc = l->api->tensor_alloc(l->rank, &all, BS_LIFE_CALL, &v->all, err);
  return rc;
}

/* The own leaves to the own sum, and what all ranks have to y. */
static int32_t build_joins(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  const uint32_t d = s->product_dtype;
  const bs_tensor_desc parts = bs_desc_2d(d, s->B, s->leaves * s->row_count);
  const bs_tensor_desc y =
      tp_strided(s->y_dtype, s->B, s->split == BS_SPLIT_N ? s->row_count : s->y_cols, s->y_cols);
  if (s->split != BS_SPLIT_K)
    return prepare(l, "tree_sum", &parts, &y, NULL, spec, NULL, 0, &l->leaves->last, err);
  const bs_tensor_desc own =
      tp_strided(d, s->B, s->N, s->coll == BS_COLL_ALL_TO_ALL ? s->N : (int64_t)s->world * s->N);
  const bs_tensor_desc all = bs_desc_2d(d, s->B, (int64_t)s->world * s->y_cols);
  bs_mask mask;
  uint32_t order[TP_LEAVES];
  int32_t rc = tp_leaf_mask(l->state->traits, spec, &mask, err);
  for (uint32_t p = 0; p < s->world; p++) order[p] = tp_leaf_rank(mask.kind, p, s->world);
  if (rc == BS_OK && s->leaves > 1)
    rc = prepare(l, "tree_sum", &parts, &own, NULL, NULL, NULL, 0, &l->leaves->join, err);
  if (rc == BS_OK) rc = prepare(l, "tree_sum", &all, &y, NULL, spec, order, s->world, &l->leaves->last, err);
  return rc;
}

static int32_t build_exchange(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  if (s->coll == BS_COLL_COUNT_) return BS_OK;
  l->counts = l->api->alloc(l->rank, s->world * sizeof *l->counts);
  l->leaves->recv = l->api->alloc(l->rank, s->world * sizeof *l->counts);
  if (l->counts == NULL || l->leaves->recv == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u block sizes", s->world);
  const uint32_t dtype = s->split == BS_SPLIT_K ? s->product_dtype : s->y_dtype;
  for (uint32_t r = 0; r < s->world; r++) {
    int64_t begin, share;
    tp_share(s->N, r, s->world, &begin, &share);
    const int whole = s->split == BS_SPLIT_K && s->coll == BS_COLL_ALL_GATHER;
    l->counts[r] = (uint64_t)(whole ? s->N : share);
    l->leaves->recv[r] = (uint64_t)s->y_cols;
  }
  return tp_collective(l, s->coll, dtype, dtype, l->counts,
                       s->coll == BS_COLL_ALL_TO_ALL ? l->leaves->recv : NULL, &l->coll, err);
}

int32_t tp_leaves_build(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, bs_error *err) {
  const tp_shape *s = &l->shape;
  l->leaves = l->api->alloc(l->rank, sizeof *l->leaves);
  if (l->leaves == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a layer");
  int32_t rc = build_sums(l, err);
  if (rc == BS_OK && s->row_count > 0) {
    l->api->region_begin(l->rank, BS_REGION_PACK);
    for (uint32_t i = 0; rc == BS_OK && i < s->leaves; i++) rc = build_leaf(l, spec, weights, i, err);
    l->api->region_end(l->rank, BS_REGION_PACK);
    if (rc == BS_OK) rc = build_joins(l, spec, err);
  }
  return rc == BS_OK ? build_exchange(l, err) : rc;
}

void tp_leaves_free(tp_layer *l) {
  tp_leaves *v = l->leaves;
  const bs_rank_api *api = l->api;
  if (v == NULL) return;
  for (uint32_t i = 0; i < TP_LEAVES; i++) {
    tp_leaf *leaf = &v->leaf[i];
    if (leaf->move != NULL) api->op_release(leaf->move);
    if (leaf->product != NULL) api->op_release(leaf->product);
    if (leaf->packed != NULL) api->packed_release(leaf->packed);
    if (leaf->x.data != NULL) api->tensor_free(l->rank, &leaf->x);
    tp_partition_free(l->state, leaf->cols);
  }
  if (v->join != NULL) api->op_release(v->join);
  if (v->last != NULL) api->op_release(v->last);
  if (v->parts.data != NULL) api->tensor_free(l->rank, &v->parts);
  if (v->own.data != NULL) api->tensor_free(l->rank, &v->own);
  if (v->all.data != NULL) api->tensor_free(l->rank, &v->all);
  if (v->recv != NULL) api->free(l->rank, v->recv);
  api->free(l->rank, v);
  l->leaves = NULL;
}

void tp_leaves_propose(const tp_shape *s, bs_proposal *p) {
  const uint64_t rows = (uint64_t)s->B, e = BS_DTYPE_BYTES(s->product_dtype), N = (uint64_t)s->N;
  const int whole = s->split == BS_SPLIT_K && s->coll == BS_COLL_ALL_GATHER;
  p->workspace_bytes = rows * (uint64_t)s->k_mul * BS_DTYPE_BYTES(s->x_dtype); /* of leaves that are copied */
  if (s->leaves > 1) p->workspace_bytes += rows * s->leaves * (uint64_t)s->row_count * e;
  if (s->coll == BS_COLL_ALL_TO_ALL) p->workspace_bytes += rows * N * e;
  if (s->split == BS_SPLIT_K) p->workspace_bytes += rows * s->world * (uint64_t)s->y_cols * e;
  if (s->coll == BS_COLL_COUNT_) return;
  p->coll_payload[p->n_collectives - 1] =
      rows * N * (s->split == BS_SPLIT_K ? e : BS_DTYPE_BYTES(s->y_dtype)) * (whole ? s->world : 1u);
}
