/* SPDX-License-Identifier: MIT
 *
 * tp_leaf_build.c - builds the leaves of a rank (repro=R3, R4): each leaf's columns are packed by themselves
 * and multiplied by a plan of their own, sums side by side; then the plans that join them, and the exchange
 * of the ranks' sums. Everything slow is here. What follows from the shape alone: tp_leaf_shape.c.
 */
#include "tp_tree.h"

typedef struct leaf_query {
  bs_tensor_desc x, bias, y;
  const bs_tensor_desc *args[4];
  bs_op_query q;
} leaf_query;

/* The tree of y: of the rank's own features where N is split. A sum that backward needs is kept as it is. */
static tp_tree_spec tree_of(const tp_shape *s) {
  tp_tree_spec t;
  memset(&t, 0, sizeof t);
  t.way = s->tree_way;
  t.leaves = s->leaves;
  t.dtype = s->product_dtype;
  t.out_dtype = s->own_sums ? s->product_dtype : s->y_dtype;
  t.activation = s->own_sums ? (uint32_t)BS_ACT_NONE : s->after;
  t.width = s->row_count;
  t.out_stride = s->y_cols;
  for (uint32_t i = 0; i < s->leaves; i++) t.empty |= s->leaf_width[i] == 0;
  return t;
}

static void query_fill(const tp_layer *l, const bs_layer_spec *spec, uint32_t i, leaf_query *p) {
  const tp_shape *s = &l->shape;
  const tp_leaf *leaf = &l->leaves->leaf[i];
  const int64_t k = s->leaf_width[i];
  memset(p, 0, sizeof *p);
  p->x = leaf->input == TP_X_FULL   ? bs_desc_2d(s->x_dtype, s->B, s->x_cols)
         : leaf->input == TP_X_VIEW ? tp_strided(s->x_dtype, s->B, k, s->x_cols)
                                    : bs_desc_2d(s->x_dtype, s->B, k);
  p->y = tp_strided(s->product_dtype, s->B, s->row_count, tp_tree_stride(l, &l->leaves->tree.spec));
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
  p->q.partition = leaf->input == TP_X_ZERO || leaf->input == TP_X_SPREAD ? NULL : leaf->cols;
  p->q.accumulate = spec->accumulate;
  p->q.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_TOKENWISE |
               (leaf->input == TP_X_FULL ? (uint32_t)BS_QUERY_X_FULL : 0u) |
               (spec->flags & BS_LAYER_BACKWARD ? (uint32_t)BS_QUERY_TRAIN : 0u);
  p->q.weight_dtype = s->w_dtype;
}

/* A run is viewed; other columns are picked by the kernel where it can, else copied before. */
static void choose_input(tp_layer *l, const bs_layer_spec *spec, uint32_t i) {
  tp_leaf *leaf = &l->leaves->leaf[i];
  leaf->input = l->state->traits->full_width ? TP_X_SPREAD : TP_X_VIEW;
  if (leaf->input == TP_X_SPREAD) return;
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
                       const bs_partition *cols, bs_plan **out_plan, bs_error *err) {
  const bs_tensor_desc *args[2] = {in, out};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = 2;
  q.args = args;
  q.partition = cols;
  return l->api->op_prepare(l->rank, &q, NULL, out_plan, err);
}

/* x with zeros in the columns of other leaves: the product with the weights of all of them is the leaf's. */
static int32_t build_spread(tp_layer *l, const bs_layer_spec *spec, uint32_t i, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_leaf *leaf = &l->leaves->leaf[i];
  bs_layer_spec whole = *spec;
  bs_partition *places = NULL;
  const bs_tensor_desc from = bs_desc_2d(s->x_dtype, s->B, s->x_cols);
  const bs_tensor_desc narrow = bs_desc_2d(s->x_dtype, s->B, leaf->cols->count);
  const bs_tensor_desc to = bs_desc_2d(s->x_dtype, s->B, s->leaf_width[i]);
  int32_t rc = l->api->tensor_alloc(l->rank, &to, BS_LIFE_SCRATCH, &leaf->x, err);
  if (rc != BS_OK || leaf->cols->count == 0) return rc;
  whole.x_placement = BS_REPLICATED; /* columns of all K */
  rc = tp_leaf_columns(l->state, &whole, s, i, &places, err);
  if (rc == BS_OK) rc = l->api->tensor_alloc(l->rank, &narrow, BS_LIFE_SCRATCH, &leaf->narrow, err);
  if (rc == BS_OK) rc = prepare(l, "gather_columns", &from, &narrow, leaf->cols, &leaf->move, err);
  if (rc == BS_OK) rc = prepare(l, "scatter_columns", &narrow, &to, places, &leaf->spread, err);
  tp_partition_free(l->state, places);
  return rc;
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
    rc = prepare(l, "gather_columns", &from, &to, leaf->cols, &leaf->move, err);
  return rc;
}

/* All K columns, with zeros in those of other ranks. */
static int32_t pack_whole(tp_layer *l, const bs_op_query *q, const bs_source *weights, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_zeros_view zeros;
  bs_source own = s->cols != NULL ? tp_source_zeros(&zeros, weights, s->cols) : *weights;
  if (s->K == 0) own = tp_source_zero_column(weights);
  return l->api->pack(l->rank, q, &own, &l->packed, err);
}

static int32_t build_leaf(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, uint32_t i,
                          bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_leaf *leaf = &l->leaves->leaf[i];
  int32_t rc = tp_leaf_columns(l->state, spec, s, i, &leaf->cols, err);
  if (rc != BS_OK) return rc;
  if (s->leaf_width[i] == 0) return BS_OK;
  choose_input(l, spec, i);
  leaf_query p;
  query_fill(l, spec, i, &p);
  if (leaf->input == TP_X_SPREAD) {
    if (l->packed == NULL) rc = pack_whole(l, &p.q, weights, err);
    if (rc == BS_OK) rc = l->api->op_prepare(l->rank, &p.q, l->packed, &leaf->product, err);
    return rc == BS_OK ? build_spread(l, spec, i, err) : rc;
  }
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

/* The sums of the leaves to y. */
static int32_t build_tree(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_tree_spec t = tree_of(s);
  uint32_t order[TP_LEAVES];
  bs_mask mask;
  const int32_t rc = tp_leaf_mask(l->state->traits, spec, &mask, err);
  for (uint32_t p = 0; p < TP_LEAVES && p < s->world; p++) order[p] = tp_leaf_rank(mask.kind, p, s->world);
  t.order = order;
  t.site = l->state->traits->site;
  return rc == BS_OK ? tp_tree_build(l, &t, &l->leaves->tree, err) : rc;
}

/* Own features of a y that is gathered. */
static int32_t build_gather(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  if (s->coll == BS_COLL_COUNT_) return BS_OK;
  l->counts = l->api->alloc(l->rank, s->world * sizeof *l->counts);
  if (l->counts == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u block sizes", s->world);
  for (uint32_t r = 0; r < s->world; r++) {
    int64_t begin, share;
    tp_share(s->N, r, s->world, &begin, &share);
    l->counts[r] = (uint64_t)share;
  }
  return tp_collective(l, s->coll, s->y_dtype, s->y_dtype, l->counts, NULL, &l->coll, err);
}

/* The activation of a sum that is kept. */
static int32_t build_activation(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  if (!s->own_sums || s->y_cols == 0) return BS_OK;
  const bs_tensor_desc in = bs_desc_2d(s->product_dtype, s->B, s->y_cols);
  const bs_tensor_desc out = bs_desc_2d(s->y_dtype, s->B, s->y_cols);
  return tp_activation_prepare(l, spec, 1, &in, &out, err);
}

int32_t tp_leaves_build(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, bs_error *err) {
  const tp_shape *s = &l->shape;
  l->leaves = l->api->alloc(l->rank, sizeof *l->leaves);
  if (l->leaves == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a layer");
  int32_t rc = s->row_count > 0 ? build_tree(l, spec, err) : BS_OK;
  if (rc == BS_OK && s->row_count > 0) {
    l->api->region_begin(l->rank, BS_REGION_PACK);
    for (uint32_t i = 0; rc == BS_OK && i < s->leaves; i++) rc = build_leaf(l, spec, weights, i, err);
    l->api->region_end(l->rank, BS_REGION_PACK);
  }
  if (rc == BS_OK) rc = build_activation(l, spec, err);
  return rc == BS_OK ? build_gather(l, err) : rc;
}

void tp_leaves_free(tp_layer *l) {
  tp_leaves *v = l->leaves;
  const bs_rank_api *api = l->api;
  if (v == NULL) return;
  for (uint32_t i = 0; i < TP_LEAVES; i++) {
    tp_leaf *leaf = &v->leaf[i];
    if (leaf->move != NULL) api->op_release(leaf->move);
    if (leaf->spread != NULL) api->op_release(leaf->spread);
    if (leaf->narrow.data != NULL) api->tensor_free(l->rank, &leaf->narrow);
    if (leaf->product != NULL) api->op_release(leaf->product);
    if (leaf->packed != NULL) api->packed_release(leaf->packed);
    if (leaf->x.data != NULL) api->tensor_free(l->rank, &leaf->x);
    tp_partition_free(l->state, leaf->cols);
  }
  tp_tree_free(l, &v->tree);
  api->free(l->rank, v);
  l->leaves = NULL;
}

void tp_leaves_propose(const tp_shape *s, bs_proposal *p) {
  const uint64_t rows = (uint64_t)s->B;
  const tp_tree_spec t = tree_of(s);
  uint64_t columns = 0;
  for (uint32_t i = 0; i < s->leaves; i++) columns += (uint64_t)s->leaf_width[i];
  p->flops = 2u * rows * (uint64_t)s->row_count * columns;
  if (columns > (uint64_t)s->k_mul) columns += (uint64_t)s->k_own;  /* copied twice */
  p->workspace_bytes = rows * columns * BS_DTYPE_BYTES(s->x_dtype); /* of leaves that are copied */
  p->workspace_bytes += tp_tree_bytes(s, &t);
  if (s->own_sums) p->workspace_bytes += rows * (uint64_t)s->y_cols * BS_DTYPE_BYTES(s->product_dtype);
  p->n_collectives +=
      tp_tree_claims(s, &t, p->coll_kind + p->n_collectives, p->coll_payload + p->n_collectives);
}

const char *tp_leaves_words(const tp_shape *s) {
  static const char *const ways[] = {"no collective", "all_gather", "all_to_all", "all_to_all, all_gather"};
  return ways[s->tree_way];
}
