/* SPDX-License-Identifier: MIT
 *
 * tp_build.c - builds a rank's share of a layer: pulls only its own part of W into the packed weight,
 * prepares the product, the move of x and the one collective, and takes all the memory that forward
 * will need. Everything slow is here.
 */
#include "tp_kept.h"
#include "tp_mixed.h"
#include "tp_tree.h"

/* Prepare a one-input, one-output op over the layer's columns. */
static int32_t prepare_move(tp_layer *l, const char *op, const bs_tensor_desc *in, const bs_tensor_desc *out,
                            bs_plan **out_plan, bs_error *err) {
  const bs_tensor_desc *args[2] = {in, out};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = 2;
  q.args = args;
  q.partition = l->shape.cols;
  return l->api->op_prepare(l->rank, &q, NULL, out_plan, err);
}

/* The bias of the own rows as a [n] tensor; f32 holds every narrower float exactly. */
int32_t tp_bias_build(tp_layer *l, const bs_source *bias, bs_error *err) {
  const tp_shape *s = &l->shape;
  if (!s->bias_here) return BS_OK;
  if (bias == NULL || bias->cols != s->N)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-BIAS",
                   "method %s: bias has %lld values, the layer %lld outputs", l->state->traits->name,
                   bias != NULL ? (long long)bias->cols : -1LL, (long long)s->N);
  const uint32_t wide = BS_DTYPE_BYTES(bias->dtype) > 4 || BS_DTYPE_BYTES(s->y_dtype) > 4;
  uint32_t dtype = wide ? BS_F64 : BS_F32;
  if (s->y_dtype == BS_I32 || s->y_dtype == BS_I64) dtype = s->y_dtype;
  bs_partition own;
  memset(&own, 0, sizeof own);
  own.struct_size = (uint32_t)sizeof own;
  own.kind = BS_PARTITION_CONTIGUOUS;
  own.total = s->N;
  own.begin = s->row_begin;
  own.count = s->row_count;
  bs_tensor_desc d = bs_desc_2d(dtype, 1, s->row_count);
  int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_WEIGHTS, &l->bias_row, err);
  if (rc == BS_OK) rc = l->api->tensor_read(l->rank, bias, 0, &own, &l->bias_row, err);
  l->bias = l->bias_row;
  l->bias.rank = 1;
  l->bias.dims[0] = s->row_count;
  l->bias.strides[0] = 1;
  l->bias.dims[1] = l->bias.strides[1] = 0;
  return rc;
}

void tp_product_query_fill(const tp_layer *l, const bs_layer_spec *spec, tp_product_query *p) {
  const tp_shape *s = &l->shape;
  memset(p, 0, sizeof *p);
  if (s->input == TP_X_FULL)
    p->x = bs_desc_2d(s->x_dtype, s->B, s->K);
  else
    p->x = tp_strided(s->x_dtype, s->B, s->k_mul, s->input == TP_X_VIEW ? s->K : s->k_mul);
  /* The own block of a gathered y keeps y's row stride, and so does a chunk. */
  const int part = (s->coll == BS_COLL_ALL_GATHER && !s->keeps) || s->chunks > 1;
  p->y = tp_strided(s->product_dtype, s->B, s->row_count, part ? s->N : s->row_count);
  p->args[0] = &p->x;
  p->args[3] = &p->y;
  if (s->bias_here) {
    p->bias = tp_vector(l->bias.dtype, s->row_count);
    p->args[1] = &p->bias;
  }
  p->q.struct_size = (uint32_t)sizeof p->q;
  p->q.op = "matmul";
  p->q.nargs = 4;
  p->q.args = p->args;
  p->q.partition = l->state->traits->full_width || s->input == TP_X_ZERO ? NULL : s->cols;
  p->q.accumulate = spec->accumulate;
  p->q.activation = s->after != BS_ACT_NONE ? (uint32_t)BS_ACT_NONE : spec->activation;
  p->q.flags = BS_QUERY_DETERMINISTIC | (s->input == TP_X_FULL ? (uint32_t)BS_QUERY_X_FULL : 0u) |
               (spec->flags & BS_LAYER_BACKWARD ? (uint32_t)BS_QUERY_TRAIN : 0u) |
               (s->repro >= BS_REPRO_R2 ? (uint32_t)BS_QUERY_TOKENWISE : 0u);
  p->q.weight_dtype = s->w_dtype;
}

/* The level and score of the best implementation for an input form; level NO: none. */
static bs_op_answer ask(tp_layer *l, const bs_layer_spec *spec, uint32_t input) {
  tp_product_query p;
  bs_op_answer answer;
  bs_error why;
  memset(&answer, 0, sizeof answer);
  memset(&why, 0, sizeof why);
  answer.struct_size = (uint32_t)sizeof answer;
  why.struct_size = (uint32_t)sizeof why;
  l->shape.input = input;
  tp_product_query_fill(l, spec, &p);
  if (l->api->op_supports(l->rank, &p.q, &answer, &why) != BS_OK) answer.level = BS_LEVEL_NO;
  return answer;
}

/* Let the kernel pick the columns itself where it does so natively (no copy of x, no scratch), unless another
 * kernel is better on gathered columns: then the copy costs less than the worse kernel. */
static void choose_input(tp_layer *l, const bs_layer_spec *spec) {
  if (l->shape.input != TP_X_GATHER || strcmp(tp_option_get(spec, "kernel", "auto"), "auto") != 0) return;
  const bs_op_answer full = ask(l, spec, TP_X_FULL);
  const bs_op_answer gathered = ask(l, spec, TP_X_GATHER);
  if (full.level == BS_LEVEL_NATIVE && (gathered.level != BS_LEVEL_NATIVE || full.score >= gathered.score)) {
    l->shape.input = TP_X_FULL;
  }
}

/* This rank's part of W, packed as one, or in chunks of features; of a mask by row timed as `mask` and
 * `compress`. */
static int32_t pack_part(tp_layer *l, const bs_layer_spec *spec, const bs_op_query *q,
                         const bs_source *weights, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_rows_view rows;
  tp_zeros_view zeros;
  tp_kept_view kept;
  bs_source own = *weights;
  int32_t rc = BS_OK;
  if (s->input == TP_X_ZERO)
    own = tp_source_zero_column(weights);
  else if (s->split == BS_SPLIT_N)
    own = tp_source_rows(&rows, weights, s->row_begin, s->row_count);
  else if (s->by_row)
    rc = tp_by_row_source(l, spec, weights, &kept, &own, err);
  else if (l->state->traits->full_width && s->cols != NULL)
    own = tp_source_zeros(&zeros, weights, s->cols);
  if (s->by_row) l->api->region_begin(l->rank, BS_REGION_COMPRESS);
  if (rc == BS_OK && s->chunk_features) {
    rc = tp_overlap_pack(l, spec, &own, err);
  } else if (rc == BS_OK) {
    l->api->region_begin(l->rank, BS_REGION_PACK);
    rc = l->api->pack(l->rank, q, &own, &l->packed, err);
    l->api->region_end(l->rank, BS_REGION_PACK);
  }
  if (s->by_row) l->api->region_end(l->rank, BS_REGION_COMPRESS);
  return rc;
}

static int32_t build_product(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights,
                             bs_error *err) {
  const tp_shape *s = &l->shape;
  if (s->row_count == 0) return BS_OK;
  if (s->mixed) return tp_mixed_build(l, spec, weights, err);
  if (s->row_leaves > 0) return tp_rows_build(l, spec, weights, err);
  choose_input(l, spec);
  tp_product_query p;
  tp_product_query_fill(l, spec, &p);
  const int32_t rc = pack_part(l, spec, &p.q, weights, err);
  return rc == BS_OK && !s->chunk_features ? l->api->op_prepare(l->rank, &p.q, l->packed, &l->matmul, err)
                                           : rc;
}

/* Scratch for x and the op that fills it. Only a gather fills all of it; the rest relies on its zeros. */
static int32_t build_move(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  if (s->row_count == 0 || (s->input != TP_X_GATHER && s->input != TP_X_SPREAD && s->input != TP_X_ZERO))
    return BS_OK;
  bs_tensor_desc scratch = bs_desc_2d(s->x_dtype, s->B, s->k_mul);
  const uint32_t life = s->input == TP_X_GATHER ? BS_LIFE_CALL : BS_LIFE_SCRATCH;
  int32_t rc = l->api->tensor_alloc(l->rank, &scratch, life, &l->x_scratch, err);
  if (rc != BS_OK || s->input == TP_X_ZERO || s->k_own == 0) return rc;
  bs_tensor_desc x = bs_desc_2d(s->x_dtype, s->B, s->x_cols);
  const char *op = s->input == TP_X_GATHER ? "gather_columns" : "scatter_columns";
  return prepare_move(l, op, &x, &scratch, &l->move, err);
}

int32_t tp_collective(tp_layer *l, uint32_t kind, uint32_t dtype_in, uint32_t dtype_out,
                      const uint64_t *counts, const uint64_t *recv_counts, bs_coll_plan **out_plan,
                      bs_error *err) {
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = (uint32_t)sizeof c;
  c.kind = kind;
  c.dtype_in = dtype_in;
  c.dtype_out = dtype_out;
  c.rows = (uint64_t)l->shape.B;
  c.ncounts = l->shape.world;
  c.counts = counts;
  c.recv_counts = recv_counts;
  c.site = l->state->traits->site;
  return l->api->collective_prepare(l->rank, &c, out_plan, err);
}

/* Sets each rank's share of the output. Even shares need no list: there are worlds of thousands of ranks. */
static int32_t fill_shares(tp_layer *l, bs_collective *c, bs_error *err) {
  const tp_shape *s = &l->shape;
  c->count = (uint64_t)(s->N / (int64_t)s->world);
  const int64_t parts = s->row_leaves > 0 ? TP_LEAVES : (int64_t)s->world;
  if (!s->y_tokens && s->N % parts == 0) return BS_OK;
  l->counts = l->api->alloc(l->rank, s->world * sizeof *l->counts);
  if (l->counts == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u block sizes", s->world);
  for (uint32_t r = 0; r < s->world; r++) {
    int64_t begin, count;
    tp_rows_share(s, r, &begin, &count);
    l->counts[r] = (uint64_t)count;
  }
  if (s->y_tokens) tp_place_counts(s, s->N, l->counts);
  c->ncounts = s->world;
  c->counts = l->counts;
  c->count = 0;
  return BS_OK;
}

static int32_t build_collective(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  int32_t rc = BS_OK;
  if (s->own_partial) {
    bs_tensor_desc d = bs_desc_2d(s->reduce_dtype, s->B, s->N);
    rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_CALL, &l->partial, err);
  }
  if (rc != BS_OK || s->coll == BS_COLL_COUNT_) return rc;
  const uint32_t out_dtype = s->after != BS_ACT_NONE && !s->keeps ? s->reduce_dtype : s->y_dtype;
  if (s->wire == BS_I8) return tp_quantise_build(l, out_dtype, err);
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = (uint32_t)sizeof c;
  c.kind = s->coll;
  c.dtype_in = s->keeps ? s->y_dtype : s->product_dtype;
  c.dtype_out = out_dtype;
  c.reduce_dtype = s->reduce_dtype;
  c.reduce_op = BS_REDUCE_SUM;
  c.rows = s->y_tokens ? 1u : (uint64_t)s->B; /* tokens are parts of one long row */
  c.count = (uint64_t)s->N;
  c.site = l->state->traits->site;
  if (s->coll != BS_COLL_ALL_REDUCE) rc = fill_shares(l, &c, err);
  if (rc == BS_OK && s->chunks > 1)
    rc = tp_overlap_build(l, &c, err);
  else if (rc == BS_OK)
    rc = l->api->collective_prepare(l->rank, &c, &l->coll, err);
  if (l->counts != NULL) l->api->free(l->rank, l->counts); /* the plan has its own */
  l->counts = NULL;
  return rc;
}

int32_t tp_activation_prepare(tp_layer *l, const bs_layer_spec *spec, int own, const bs_tensor_desc *in,
                              const bs_tensor_desc *out, bs_error *err) {
  const bs_tensor_desc *args[2] = {in, out};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "activate";
  q.nargs = 2;
  q.args = args;
  q.activation = spec->activation;
  int32_t rc = BS_OK;
  /* Backward reads them. */
  const uint32_t life = spec->flags & BS_LAYER_BACKWARD ? BS_LIFE_SCRATCH : BS_LIFE_CALL;
  if (own) rc = l->api->tensor_alloc(l->rank, in, life, &l->sums, err);
  return rc == BS_OK ? l->api->op_prepare(l->rank, &q, NULL, &l->activate, err) : rc;
}

/* The activation of a sum over ranks, or of a product that is kept: it stays in the dtype of the sums, so
 * that y is rounded once. */
static int32_t build_activation(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  if (s->after == BS_ACT_NONE || (s->keeps && s->row_count == 0)) return BS_OK;
  bs_tensor_desc in =
      tp_strided(s->reduce_dtype, s->B, s->y_cols, s->y_cols); /* none where shares are empty */
  bs_tensor_desc out = tp_strided(s->y_dtype, s->B, s->y_cols, s->y_cols);
  if (s->keeps) {
    in = bs_desc_2d(s->product_dtype, s->B, s->row_count);
    out = tp_strided(s->y_dtype, s->B, s->row_count, s->coll == BS_COLL_ALL_GATHER ? s->N : s->row_count);
  }
  return tp_activation_prepare(l, spec, s->own_sums || s->keeps, &in, &out, err);
}

int32_t tp_check_weights(const tp_layer *l, const bs_source *weights, bs_error *err) {
  if (weights != NULL && weights->rows == l->shape.N && weights->cols == l->shape.K) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-WEIGHTS",
                 "method %s: weights are %lld x %lld, the layer %lld x %lld", l->state->traits->name,
                 weights != NULL ? (long long)weights->rows : -1LL,
                 weights != NULL ? (long long)weights->cols : -1LL, (long long)l->shape.N,
                 (long long)l->shape.K);
}

static int32_t no_bits(const tp_layer *l, bs_error *err) {
  bs_fail(
      err, BS_UNSUPPORTED, "BS-METHOD-REPRO",
      "method %s: repro=R3 of a layer that trains needs kernels with the bits of definition 1, this backend "
      "has none for its products",
      l->state->traits->name);
  return bs_fail_hint(err, "the backend cpu with f32, bf16 or f16, or repro=R2"), BS_UNSUPPORTED;
}

/* The sums over tokens of dW: asked first, so that the refusal names the promise. */
static int32_t check_bits(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  const uint32_t wide =
      s->x_dtype == BS_F64 || s->w_dtype == BS_F64 || s->y_dtype == BS_F64 ? BS_F64 : BS_F32;
  const bs_tensor_desc x = bs_desc_2d(s->x_dtype, s->B, 1), dy = bs_desc_2d(s->y_dtype, s->B, 1);
  const bs_tensor_desc dw = bs_desc_2d(wide, 1, 1);
  const bs_tensor_desc *args[3] = {&x, &dy, &dw};
  bs_op_query q;
  bs_op_answer answer;
  bs_error why;
  memset(&q, 0, sizeof q);
  memset(&answer, 0, sizeof answer);
  memset(&why, 0, sizeof why);
  q.struct_size = (uint32_t)sizeof q;
  answer.struct_size = (uint32_t)sizeof answer;
  why.struct_size = (uint32_t)sizeof why;
  q.op = "matmul_dw";
  q.nargs = 3;
  q.args = args;
  q.flags = BS_QUERY_DETERMINISTIC | tp_bits_flag(s);
  const int32_t rc = l->api->op_supports(l->rank, &q, &answer, &why);
  return rc == BS_OK && answer.level != BS_LEVEL_NO ? BS_OK : no_bits(l, err);
}

static int32_t build_backward(tp_layer *l, const bs_layer_spec *spec, const bs_source *bias, bs_error *err) {
  int32_t rc = BS_OK;
  if (l->shape.repro >= BS_REPRO_R3 && spec->flags & BS_LAYER_BACKWARD) rc = check_bits(l, err);
  if (rc == BS_OK && spec->flags & BS_LAYER_BACKWARD) rc = tp_gradient_build(l, spec, err);
  if (rc == BS_OK && spec->flags & (BS_LAYER_SGD | BS_LAYER_ADAMW))
    rc = tp_training_build(l, spec, bias, err);
  const int leaves = (l->leaves != NULL && l->packed == NULL) || l->shape.row_leaves > 0;
  if (rc == BS_OK && spec->flags & BS_LAYER_BACKWARD && leaves) rc = tp_leaf_grad_build(l, spec, err);
  return rc;
}

int32_t tp_build(void *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *spec,
                 const bs_source *weights, const bs_source *bias, void **out_layer, bs_error *err) {
  *out_layer = NULL;
  tp_layer *l = api->alloc(rank, sizeof *l);
  if (l == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a layer");
  l->state = state;
  l->api = api;
  l->rank = rank;
  int32_t rc = tp_shape_make(state, spec, api->rank(rank), api->world_size(rank), &l->shape, err);
  if (rc == BS_OK) rc = tp_check_weights(l, weights, err);
  if (rc == BS_OK) rc = tp_place_build(l, err);
  if (rc == BS_OK) rc = tp_bias_build(l, bias, err);
  if (rc == BS_OK && l->shape.leaves > 0) {
    rc = tp_leaves_build(l, spec, weights, err);
  } else {
    if (rc == BS_OK) rc = build_product(l, spec, weights, err);
    if (rc == BS_OK) rc = build_move(l, err);
    if (rc == BS_OK) rc = build_collective(l, err);
    if (rc == BS_OK) rc = build_activation(l, spec, err);
  }
  if (rc == BS_OK) rc = build_backward(l, spec, bias, err);
  if (rc != BS_OK) {
    tp_layer_free(l);
    return rc;
  }
  *out_layer = l;
  return BS_OK;
}

void tp_layer_free(void *layer) {
  tp_layer *l = layer;
  if (l == NULL) return;
  const bs_rank_api *api = l->api;
  tp_leaf_grad_free(l);
  tp_training_free(l);
  tp_gradient_free(l);
  tp_overlap_free(l);
  tp_quantise_free(l);
  tp_leaves_free(l);
  tp_rows_free(l);
  tp_mixed_free(l);
  if (l->coll != NULL) api->collective_release(l->coll);
  if (l->counts != NULL) api->free(l->rank, l->counts);
  if (l->before != NULL) api->collective_release(l->before);
  if (l->before_counts != NULL) api->free(l->rank, l->before_counts);
  if (l->whole.data != NULL) api->tensor_free(l->rank, &l->whole);
  if (l->activate != NULL) api->op_release(l->activate);
  if (l->move != NULL) api->op_release(l->move);
  if (l->matmul != NULL) api->op_release(l->matmul);
  if (l->packed != NULL) api->packed_release(l->packed);
  if (l->sums.data != NULL) api->tensor_free(l->rank, &l->sums);
  if (l->partial.data != NULL) api->tensor_free(l->rank, &l->partial);
  if (l->x_scratch.data != NULL) api->tensor_free(l->rank, &l->x_scratch);
  if (l->bias_row.data != NULL) api->tensor_free(l->rank, &l->bias_row);
  tp_by_row_free(l);
  tp_shape_free(l->state, &l->shape);
  api->free(l->rank, l);
}
