/* SPDX-License-Identifier: MIT
 * contrib_attention.c - Attention, MultiHeadAttention and EmbedLayerNormalization of com.microsoft, as the
 * tools of ONNX Runtime write them. Their masks are numbers that are added to the scores, so that a query
 * whose keys are all masked sees all of them alike. */
#include <math.h>
#include <string.h>

#include "graph/lower/rules.h"

/* q [B,H,S,D], k [B,H,T,D], v [B,H,T,E]. */
typedef struct heads {
  uint32_t q, k, v, mask, more; /* mask: integers; more: added to the scores */
  int64_t batch, heads, past;   /* past: tokens of the cache */
} heads;

/* [B,S,N*D] as [B,N,S,D]; a value of 4 dims stays. */
static uint32_t heads_first(build *b, uint32_t value, int64_t n) {
  if (build_rank(b, value) != 3) return value;
  const int64_t width = build_dim(b, value, 2);
  build_check(b, n > 0 && width % n == 0, "num_heads does not divide the width");
  if (b->rc != BS_OK) return GNONE;
  return build_swap(b, build_split_dim(b, value, 2, n, width / n), 1, 2);
}

/* 0 where the mask lets a key be seen, else mask_filter_value: [B,1,1 or S,T]. */
static uint32_t added_mask(build *b, const heads *h) {
  const build_shape own = build_shape_of(b, h->mask);
  const int64_t keys = build_dim(b, h->k, 2), queries = build_dim(b, h->q, 2);
  const uint32_t dtype = build_dtype(b, h->q);
  build_shape shape = {4, {h->batch, 1, 1, keys}};
  lower_map m;
  uint32_t y = GNONE;
  if (h->mask == GNONE || b->rc != BS_OK) return GNONE;
  build_check(b, !build_is_float(build_dtype(b, h->mask)), "the mask is not of integers");
  const int lengths = own.rank == 1 && own.dims[0] == h->batch;
  const int rows = own.rank == 2 && own.dims[0] == h->batch && own.dims[1] == keys;
  const int whole = own.rank == 3 && own.dims[0] == h->batch && own.dims[1] == queries && own.dims[2] == keys;
  if (b->rc == BS_OK && !lengths && !rows && !whole)
    build_refuse(b, 0, "a mask of another shape than [batch], [batch, keys] and [batch, queries, keys]");
  if (whole) shape.dims[2] = queries;
  const build_shape column = {4, {h->batch, 1, 1, 1}};
  const uint32_t mask = build_reshape(b, h->mask, lengths ? &column : &shape);
  const uint32_t wide = lengths ? build_expand(b, mask, &shape) : mask;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t seen = lower_map_in(&m, wide);
  if (lengths)
    seen = lower_map_step(&m, BS_EXPR_LT, lower_map_step(&m, BS_EXPR_INDEX, 3, 0, 0), seen, 0);
  else
    seen = lower_map_step(&m, BS_EXPR_LT, lower_map_const_int(&m, 0), seen, 0);
  const uint32_t is_seen = build_map(b, &m, seen, BS_BOOL);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(dtype));
  const uint8_t value =
      lower_map_step(&m, BS_EXPR_SELECT, lower_map_in(&m, is_seen), lower_map_const(&m, 0),
                     lower_map_const(&m, lower_float(b->node, "mask_filter_value", -10000)));
  y = build_map(b, &m, value, dtype);
  return y;
}

/* The attention of `h` as [B,S,N*E]. */
static uint32_t attend(build *b, const heads *h) {
  const int64_t width = build_dim(b, h->q, 3), queries = build_dim(b, h->q, 2), keys = build_dim(b, h->k, 2);
  build_check(b, build_rank(b, h->q) == 4 && build_rank(b, h->k) == 4 && build_rank(b, h->v) == 4,
              "query, key and value have no dims of heads");
  build_check(b,
              build_dim(b, h->k, 1) == build_dim(b, h->q, 1) &&
                  build_dim(b, h->v, 1) == build_dim(b, h->q, 1) && build_dim(b, h->k, 3) == width &&
                  build_dim(b, h->v, 2) == keys && width > 0 && build_dim(b, h->k, 0) == h->batch &&
                  build_dim(b, h->v, 0) == h->batch,
              "query, key and value do not fit each other");
  build_check(b,
              build_is_float(build_dtype(b, h->q)) && build_dtype(b, h->k) == build_dtype(b, h->q) &&
                  build_dtype(b, h->v) == build_dtype(b, h->q),
              "query, key and value must be floats of one dtype");
  uint32_t mask = added_mask(b, h), y = GNONE;
  if (h->more != GNONE) {
    build_check(b, build_rank(b, h->more) == 4 && build_dim(b, h->more, 3) == keys,
                "attention_bias does not fit the keys");
    mask = mask == GNONE ? h->more : build_binary(b, BS_EXPR_ADD, mask, h->more, build_dtype(b, h->q));
  }
  const double asked = lower_float(b->node, "scale", 0);
  lower_attention_args args = {
      .q = h->q, .k = h->k, .v = h->v, .mask = mask, .kv_len = GNONE, .window_left = -1, .window_right = -1};
  args.scale = asked != 0 ? asked : width > 0 ? 1 / sqrt((double)width) : 1;
  args.causal = BS_CAUSAL_NONE;
  if (lower_int(b->node, "unidirectional", 0) != 0) {
    if (keys != queries + h->past)
      build_refuse(b, 0, "unidirectional with another number of keys than queries (and the cache)");
    args.causal = h->past == 0 ? BS_CAUSAL_UPPER_LEFT : BS_CAUSAL_LOWER_RIGHT;
  }
  if (b->rc == BS_OK) b->rc = lower_attention(b->c, &args, &y, b->err);
  return build_join_dims(b, build_swap(b, b->rc == BS_OK ? y : GNONE, 1, 2), 2, 2);
}

/* Keys or values after those of a cache [B,N,P,D]. */
static uint32_t after_past(build *b, uint32_t past, uint32_t value) {
  const uint32_t parts[2] = {past, value};
  if (past == GNONE || b->rc != BS_OK) return value;
  build_check(b, build_rank(b, past) == 4 && build_rank(b, value) == 4, "the cache must have 4 dims");
  return b->rc == BS_OK ? build_concat(b, parts, 2, 2) : GNONE;
}

/* The input times the weights of queries, keys and values side by side. */
int32_t lower_contrib_attention(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t in[2] = {build_in(&b, 0), build_in(&b, 1)}, bias = build_optional(&b, 2),
                 past = build_optional(&b, 4);
  const bs_attr *sizes = lower_ints(node, "qkv_hidden_sizes");
  heads h = {.mask = build_optional(&b, 3),
             .more = build_optional(&b, 5),
             .batch = build_dim(&b, in[0], 0),
             .heads = lower_int(node, "num_heads", 0)};
  uint32_t all = GNONE;
  build_check(&b, build_rank(&b, in[0]) == 3 && build_rank(&b, in[1]) == 2,
              "input and weights must have 3 and 2 dims");
  build_check(&b, sizes == NULL || sizes->count == 3, "qkv_hidden_sizes has not 3 numbers");
  if (lower_int(node, "do_rotary", 0) != 0) build_refuse(&b, 0, "do_rotary 1");
  if (lower_int(node, "past_present_share_buffer", 0) != 0 || build_optional(&b, 6) != GNONE)
    build_refuse(&b, 0, "past_present_share_buffer 1");
  if (b.rc == BS_OK) b.rc = lower_call(c, node, "MatMul", in, 2, NULL, 0, &all, 1, err);
  if (b.rc == BS_OK && bias != GNONE) all = build_binary(&b, BS_EXPR_ADD, all, bias, build_dtype(&b, all));
  const int64_t width = build_dim(&b, all, 2);
  const int64_t size[3] = {sizes != NULL ? sizes->ints[0] : width / 3,
                           sizes != NULL ? sizes->ints[1] : width / 3,
                           sizes != NULL ? sizes->ints[2] : width / 3};
  build_check(&b,
              size[0] > 0 && size[1] > 0 && size[2] > 0 && size[0] <= width && size[1] <= width &&
                  size[2] <= width && size[0] + size[1] + size[2] == width,
              "the weights do not fit queries, keys and values");
  if (b.rc != BS_OK) return b.rc;
  h.q = heads_first(&b, build_slice(&b, all, 2, 0, size[0], 1), h.heads);
  h.k = heads_first(&b, build_slice(&b, all, 2, size[0], size[1], 1), h.heads);
  h.v = heads_first(&b, build_slice(&b, all, 2, size[0] + size[1], size[2], 1), h.heads);
  if (past != GNONE) {
    build_check(&b, build_rank(&b, past) == 5 && build_dim(&b, past, 0) == 2,
                "past must have 5 dims, the first of 2");
    h.past = build_dim(&b, past, 3);
    h.k = after_past(&b, build_squeeze(&b, build_slice(&b, past, 0, 0, 1, 1), 0), h.k);
    h.v = after_past(&b, build_squeeze(&b, build_slice(&b, past, 0, 1, 1, 1), 0), h.v);
  }
  build_out(&b, 0, attend(&b, &h));
  if (lower_wants(node, 1) && b.rc == BS_OK) {
    const uint32_t parts[2] = {build_unsqueeze(&b, h.k, 0), build_unsqueeze(&b, h.v, 0)};
    if (b.rc == BS_OK) build_out(&b, 1, build_concat(&b, parts, 2, 0));
  }
  return b.rc;
}

/* Plane i of a packed [B,S,N,n,D] as [B,N,S,D]. */
static uint32_t unpacked(build *b, uint32_t packed, int64_t i) {
  return build_swap(b, build_squeeze(b, build_slice(b, packed, 3, i, 1, 1), 3), 1, 2);
}

/* x [B,N,S,D] with the part of the bias that begins at `first`. */
static uint32_t with_bias(build *b, uint32_t x, uint32_t bias, int64_t first) {
  const build_shape row = {4, {1, build_dim(b, x, 1), 1, build_dim(b, x, 3)}};
  if (bias == GNONE || b->rc != BS_OK) return x;
  const int64_t n = build_elements(&row);
  build_check(b, build_rank(b, bias) == 1 && first + n <= build_dim(b, bias, 0),
              "the bias does not fit the heads");
  const uint32_t part = build_reshape(b, build_slice(b, bias, 0, first, n, 1), &row);
  return build_binary(b, BS_EXPR_ADD, x, part, build_dtype(b, x));
}

int32_t lower_multi_head_attention(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t query = build_in(&b, 0), key = build_optional(&b, 1), value = build_optional(&b, 2),
                 bias = build_optional(&b, 3), past_k = build_optional(&b, 6), past_v = build_optional(&b, 7);
  heads h = {.mask = build_optional(&b, 4),
             .more = build_optional(&b, 5),
             .batch = build_dim(&b, query, 0),
             .heads = lower_int(node, "num_heads", 0)};
  if (build_optional(&b, 8) != GNONE || build_optional(&b, 9) != GNONE)
    build_refuse(&b, 0, "past_sequence_length and cache_indirection");
  if (lower_wants(node, 3)) build_refuse(&b, 0, "the output qk");
  if (build_rank(&b, query) == 5) {
    build_check(&b, build_dim(&b, query, 3) == 3 && key == GNONE && value == GNONE,
                "a packed query has other dims");
    if (b.rc != BS_OK) return b.rc;
    h.q = unpacked(&b, query, 0);
    h.k = unpacked(&b, query, 1);
    h.v = unpacked(&b, query, 2);
  } else {
    const int packed = build_rank(&b, key) == 5;
    build_check(&b, key != GNONE && (packed ? value == GNONE && build_dim(&b, key, 3) == 2 : value != GNONE),
                "key or value is absent, or a packed key has other dims");
    if (b.rc != BS_OK) return b.rc;
    h.q = heads_first(&b, query, h.heads);
    h.k = packed ? unpacked(&b, key, 0) : heads_first(&b, key, h.heads);
    h.v = packed ? unpacked(&b, key, 1) : heads_first(&b, value, h.heads);
  }
  const int64_t width = build_dim(&b, h.q, 1) * build_dim(&b, h.q, 3);
  h.q = with_bias(&b, h.q, bias, 0);
  if (build_rank(&b, key) != 4) {
    h.k = with_bias(&b, h.k, bias, width);
    h.v = with_bias(&b, h.v, bias, 2 * width);
  }
  build_check(&b, (past_k == GNONE) == (past_v == GNONE), "past_key and past_value come together");
  if (past_k != GNONE && build_rank(&b, past_k) == 4) h.past = build_dim(&b, past_k, 2);
  h.k = after_past(&b, past_k, h.k);
  h.v = after_past(&b, past_v, h.v);
  build_out(&b, 0, attend(&b, &h));
  if (lower_wants(node, 1)) build_out(&b, 1, h.k);
  if (lower_wants(node, 2)) build_out(&b, 2, h.v);
  return b.rc;
}

/* Rows of tables of words, positions and segments, their sum, and the norm of it. */
int32_t lower_embed_norm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t ids = build_in(&b, 0), segments = build_optional(&b, 1), words = build_in(&b, 2),
                 places = build_in(&b, 3), kinds = build_optional(&b, 4), gamma = build_in(&b, 5),
                 beta = build_in(&b, 6), mask = build_optional(&b, 7), positions = build_optional(&b, 8);
  const build_shape shape = build_shape_of(&b, ids);
  build_check(&b, shape.rank == 2 && build_rank(&b, words) == 2 && build_rank(&b, places) == 2,
              "input_ids and the tables must have 2 dims");
  if (b.rc != BS_OK) return b.rc;
  const uint32_t dtype = build_dtype(&b, words);
  build_check(&b, positions != GNONE || shape.dims[1] <= build_dim(&b, places, 0),
              "there are fewer positions than tokens");
  const uint32_t word[2] = {words, ids}, kind[2] = {kinds, segments}, place[2] = {places, positions};
  uint32_t sum = GNONE, rows = GNONE;
  if (b.rc == BS_OK) b.rc = lower_call(c, node, "Gather", word, 2, NULL, 0, &sum, 1, err);
  if (positions == GNONE)
    rows = build_unsqueeze(&b, build_slice(&b, places, 0, 0, shape.dims[1], 1), 0);
  else if (b.rc == BS_OK)
    b.rc = lower_call(c, node, "Gather", place, 2, NULL, 0, &rows, 1, err);
  sum = build_binary(&b, BS_EXPR_ADD, sum, rows, dtype);
  if (segments != GNONE && kinds != GNONE) {
    if (b.rc == BS_OK) b.rc = lower_call(c, node, "Gather", kind, 2, NULL, 0, &rows, 1, err);
    sum = build_binary(&b, BS_EXPR_ADD, sum, rows, dtype);
  }
  build_out(&b, 0,
            build_normalize(&b, BS_NORMALIZE_LAYER, lower_float(node, "epsilon", 1e-12f), sum, gamma, beta));
  if (lower_wants(node, 1)) {
    const build_shape batch = {1, {shape.dims[0]}};
    build_out(
        &b, 1,
        mask != GNONE
            ? build_reshape(&b, build_reduce(&b, BS_FOLD_SUM, build_cast(&b, mask, BS_I32), 2, 1), &batch)
            : build_expand(&b, build_real(&b, BS_I32, 0), &batch));
  }
  if (lower_wants(node, 2)) build_out(&b, 2, sum);
  return b.rc;
}
