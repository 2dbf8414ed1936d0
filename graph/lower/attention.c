/* SPDX-License-Identifier: MIT
 * attention.c - Attention (opset 23 to 25) and FlexAttention. Both become the one op `attention`, unless the
 * node asks for scores or changes them: then the products, the mask and the softmax are ops of their own.
 * Attention of the domain `blockshock` takes K and V of another dtype than Q: a cache of 16 bits. */
#include <math.h>
#include <string.h>

#include "graph/lower/rules.h"

/* The parameters of an attention, its operands brought into [batch, heads, tokens, width]. */
typedef struct request {
  uint32_t q, k, v;
  uint32_t mask;   /* bool or float; GNONE */
  uint32_t length; /* i64 [batch]: how many keys are real; GNONE: all */
  int64_t past;    /* tokens of the cache that the node itself joins */
  int has_past, causal;
  int64_t left, right; /* windows, -1 none */
  double scale, softcap;
  uint32_t precision; /* dtype of the softmax; 0: as it comes */
} request;

/* [B,S,H*D] as [B,H,S,D]; a value of 4 dims stays. */
static uint32_t heads_first(build *b, uint32_t value, int64_t heads) {
  if (build_rank(b, value) != 3) return value;
  const int64_t width = build_dim(b, value, 2);
  build_check(b, heads > 0 && width % heads == 0, "q_num_heads or kv_num_heads does not divide the width");
  if (b->rc != BS_OK) return GNONE;
  return build_swap(b, build_split_dim(b, value, 2, heads, width / heads), 1, 2);
}

/* [B,H,S,E] back to [B,S,H*E]. */
static uint32_t heads_last(build *b, uint32_t value) {
  return build_join_dims(b, build_swap(b, value, 1, 2), 2, 2);
}

/* Extends a mask whose last dim is shorter than the keys: queries do not see the keys after its end. */
static uint32_t lengthen_mask(build *b, uint32_t mask, int64_t keys) {
  const uint32_t rank = build_rank(b, mask);
  build_shape more = build_shape_of(b, mask);
  if (mask == GNONE || b->rc != BS_OK) return GNONE;
  build_check(b, rank >= 1 && rank <= 4, "the mask must have 1 to 4 dims");
  build_check(b, rank >= 1 && more.dims[rank - 1] <= keys, "the mask is longer than the keys");
  if (b->rc != BS_OK || more.dims[rank - 1] == keys || (more.dims[rank - 1] == 1 && keys == 1)) return mask;
  more.dims[rank - 1] = keys - more.dims[rank - 1];
  const uint32_t dtype = build_dtype(b, mask);
  const uint32_t parts[2] = {mask,
                             build_expand(b, build_real(b, dtype, dtype == BS_BOOL ? 0 : -INFINITY), &more)};
  return build_concat(b, parts, 2, rank - 1);
}

/* Bool [B or 1,1,S,T]: the keys that causality and windows let a query see. Query s has the position s +
 * past, or with lengths s + length - S. */
static uint32_t position_mask(build *b, const request *r) {
  lower_map m;
  const int64_t queries = build_dim(b, r->q, 2), keys = build_dim(b, r->k, 2);
  const build_shape shape = {4, {r->length == GNONE ? 1 : build_dim(b, r->q, 0), 1, queries, keys}};
  const build_shape column = {4, {shape.dims[0], 1, 1, 1}};
  const uint32_t first =
      r->length == GNONE ? build_real(b, BS_I64, (double)r->past) : build_reshape(b, r->length, &column);
  const uint32_t wide = build_expand(b, first, &shape);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t position =
      lower_map_step(&m, BS_EXPR_ADD, lower_map_in(&m, wide), lower_map_step(&m, BS_EXPR_INDEX, 2, 0, 0), 0);
  if (r->length != GNONE)
    position = lower_map_step(&m, BS_EXPR_SUB, position, lower_map_const_int(&m, queries), 0);
  const uint8_t away =
      lower_map_step(&m, BS_EXPR_SUB, lower_map_step(&m, BS_EXPR_INDEX, 3, 0, 0), position, 0);
  uint8_t seen = lower_map_const_int(&m, 1);
  if (r->causal || r->right >= 0) {
    const int64_t most = r->causal ? 0 : r->right;
    seen = lower_map_step(&m, BS_EXPR_LE, away, lower_map_const_int(&m, most), 0);
  }
  if (r->left >= 0) {
    const uint8_t near = lower_map_step(&m, BS_EXPR_LE, lower_map_const_int(&m, -r->left), away, 0);
    seen = lower_map_step(&m, BS_EXPR_AND, seen, near, 0);
  }
  return build_map(b, &m, seen, BS_BOOL);
}

/* Bool [B,1,1,T]: key t is real. */
static uint32_t length_mask(build *b, const request *r) {
  lower_map m;
  const build_shape shape = {4, {build_dim(b, r->q, 0), 1, 1, build_dim(b, r->k, 2)}};
  const build_shape column = {4, {shape.dims[0], 1, 1, 1}};
  const uint32_t wide = build_expand(b, build_reshape(b, r->length, &column), &shape);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t length = lower_map_in(&m, wide), key = lower_map_step(&m, BS_EXPR_INDEX, 3, 0, 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_LT, key, length, 0), BS_BOOL);
}

/* Both masks as one: where `seen` is false, nothing is seen. */
static uint32_t both_masks(build *b, uint32_t seen, uint32_t mask) {
  if (mask == GNONE || seen == GNONE) return mask == GNONE ? seen : mask;
  if (build_dtype(b, mask) == BS_BOOL) return build_binary(b, BS_EXPR_AND, seen, mask, BS_BOOL);
  return build_select(b, seen, mask, build_real(b, build_dtype(b, mask), -INFINITY));
}

/* How the op's own causality and windows can say what is asked; -1: a mask must. */
static int own_causality(const build *b, const request *r) {
  const int windows = r->left >= 0 || r->right >= 0;
  if (!r->causal && !windows) return BS_CAUSAL_NONE;
  const int64_t queries = build_dim(b, r->q, 2), keys = build_dim(b, r->k, 2);
  if (r->length != GNONE) return r->causal ? BS_CAUSAL_LOWER_RIGHT : -1;
  if (r->past == 0) return r->causal ? BS_CAUSAL_UPPER_LEFT : BS_CAUSAL_NONE;
  return r->causal && keys - queries == r->past ? BS_CAUSAL_LOWER_RIGHT : -1;
}

static uint32_t fused(build *b, const request *r) {
  uint32_t y = GNONE;
  const int causality = own_causality(b, r);
  lower_attention_args args = {r->q,       r->k,           r->v, r->mask, GNONE, r->scale,
                               r->softcap, BS_CAUSAL_NONE, -1,   -1,      0};
  if (r->length != GNONE) args.kv_len = build_cast(b, r->length, BS_I32);
  if (causality < 0) {
    args.mask = both_masks(b, position_mask(b, r), args.mask);
  } else {
    args.causal = (uint32_t)causality;
    args.window_left = r->left;
    args.window_right = r->causal ? -1 : r->right;
  }
  if (b->rc == BS_OK) b->rc = lower_attention(b->c, &args, &y, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

/* K or V [B,G,T,D] seen by each of the H query heads: [B,G,H/G,T,D], and Q as [B,G,H/G,S,D]. */
static uint32_t by_groups(build *b, uint32_t value, int64_t groups, int64_t times) {
  if (build_dim(b, value, 1) != groups || times == 1)
    return build_split_dim(b, value, 1, groups, build_dim(b, value, 1) / groups);
  build_shape shape = build_shape_of(b, build_unsqueeze(b, value, 2));
  shape.dims[2] = times;
  return build_expand(b, build_unsqueeze(b, value, 2), &shape);
}

/* Q K^T scale: [B,H,S,T]. */
static uint32_t scores_of(build *b, const request *r) {
  const int64_t heads = build_dim(b, r->q, 1), groups = build_dim(b, r->k, 1), times = heads / groups;
  const uint32_t q = build_split_dim(b, r->q, 1, groups, times), k = by_groups(b, r->k, groups, times);
  return build_join_dims(b, build_contract(b, q, build_swap(b, k, 3, 4), GNONE, r->scale), 1, 2);
}

/* P V: [B,H,S,E]. */
static uint32_t values_by(build *b, const request *r, uint32_t weights) {
  const int64_t heads = build_dim(b, r->q, 1), groups = build_dim(b, r->v, 1), times = heads / groups;
  const uint32_t p = build_split_dim(b, weights, 1, groups, times), v = by_groups(b, r->v, groups, times);
  return build_join_dims(b, build_contract(b, p, v, GNONE, 1), 1, 2);
}

static uint32_t cap_scores(build *b, uint32_t scores, double cap) {
  lower_map m;
  if (cap <= 0 || b->rc != BS_OK) return scores;
  lower_map_begin(&m, b->c, lower_compute(build_dtype(b, scores)));
  const uint8_t c = lower_map_const(&m, cap),
                x = lower_map_step(&m, BS_EXPR_DIV, lower_map_in(&m, scores), c, 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_MUL, lower_map_step(&m, BS_EXPR_TANH, x, 0, 0), c, 0),
                   build_dtype(b, scores));
}

static uint32_t mask_scores(build *b, uint32_t scores, uint32_t mask) {
  if (mask == GNONE) return scores;
  if (build_dtype(b, mask) != BS_BOOL)
    return build_binary(b, BS_EXPR_ADD, scores, mask, build_dtype(b, scores));
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  const uint32_t dtype = build_dtype(b, scores);
  lower_map_begin(&m, b->c, lower_compute(dtype));
  const uint8_t s = lower_map_in(&m, scores), seen = lower_map_in(&m, mask);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_SELECT, seen, s, lower_map_const(&m, -INFINITY)), dtype);
}

/* Softmax over the keys; a query whose mask lets it see no key gets zeros. */
static uint32_t weights_of(build *b, const request *r, uint32_t scores, uint32_t mask) {
  const uint32_t dtype = build_dtype(b, scores), wide = r->precision != 0 ? r->precision : dtype;
  uint32_t p = build_normalize(b, BS_NORMALIZE_SOFTMAX, 0, build_cast(b, scores, wide), GNONE, GNONE);
  p = build_cast(b, p, dtype);
  if (mask == GNONE || b->rc != BS_OK) return p;
  const uint32_t last = 1u << (build_rank(b, mask) - 1);
  lower_map m;
  uint32_t most;
  if (build_dtype(b, mask) == BS_BOOL) {
    most = build_cast(b, build_reduce(b, BS_FOLD_MAX, build_cast(b, mask, BS_U8), last, 1), BS_BOOL);
  } else {
    const uint32_t largest = build_reduce(b, BS_FOLD_MAX, mask, last, 1);
    if (b->rc != BS_OK) return GNONE;
    lower_map_begin(&m, b->c, lower_compute(build_dtype(b, mask)));
    const uint8_t none = lower_map_const(&m, -INFINITY);
    const uint8_t blind = lower_map_step(&m, BS_EXPR_EQ, lower_map_in(&m, largest), none, 0);
    most = build_map(b, &m, lower_map_step(&m, BS_EXPR_NOT, blind, 0, 0), BS_BOOL);
  }
  return build_select(b, most, p, build_real(b, dtype, 0));
}

/* The products, cap, mask and softmax as ops; *out_scores as qk_matmul_output_mode says. */
static uint32_t unfused(build *b, const request *r, int64_t mode, uint32_t *out_scores) {
  const uint32_t raw = scores_of(b, r), capped = cap_scores(b, raw, r->softcap);
  uint32_t mask = r->mask;
  if (r->causal || r->left >= 0 || r->right >= 0) mask = both_masks(b, position_mask(b, r), mask);
  if (r->length != GNONE) mask = both_masks(b, length_mask(b, r), mask);
  const uint32_t masked = mask_scores(b, capped, mask), weights = weights_of(b, r, masked, mask);
  const uint32_t choices[4] = {raw, capped, masked, weights};
  *out_scores = choices[mode];
  return values_by(b, r, weights);
}

static double default_scale(const build *b, const request *r) {
  const int64_t width = build_dim(b, r->q, 3);
  return lower_float(b->node, "scale", width > 0 ? 1.0 / sqrt((double)width) : 1);
}

static void check_request(build *b, const request *r) {
  const int64_t groups = build_dim(b, r->k, 1);
  build_check(b, build_rank(b, r->q) == 4 && build_rank(b, r->k) == 4 && build_rank(b, r->v) == 4,
              "Q, K and V must all have 3 or all 4 dims");
  build_check(b, groups > 0 && build_dim(b, r->q, 1) % groups == 0 && build_dim(b, r->v, 1) == groups,
              "the heads of Q are no multiple of those of K and V");
  build_check(b, build_dim(b, r->q, 3) == build_dim(b, r->k, 3), "Q and K differ in width");
  build_check(b, build_dim(b, r->k, 2) == build_dim(b, r->v, 2), "K and V differ in length");
  build_check(
      b, build_dim(b, r->q, 0) == build_dim(b, r->k, 0) && build_dim(b, r->q, 0) == build_dim(b, r->v, 0),
      "Q, K and V differ in batch");
  if (build_dtype(b, r->k) != build_dtype(b, r->v) ||
      (build_dtype(b, r->q) != build_dtype(b, r->k) && strcmp(b->node->domain, "blockshock") != 0))
    build_refuse(b, build_dtype(b, r->v), "Q, K and V of different dtypes");
  build_check(b, build_is_float(build_dtype(b, r->q)), "the operator takes floats");
  if (b->rc == BS_OK && r->scale == 0) build_refuse(b, 0, "a scale of 0");
}

/* The mask as the op takes it: bool, or a float of Q's dtype. */
static uint32_t checked_mask(build *b, uint32_t mask, uint32_t dtype) {
  if (mask == GNONE || b->rc != BS_OK || build_dtype(b, mask) == BS_BOOL) return mask;
  if (!build_is_float(build_dtype(b, mask))) build_refuse(b, build_dtype(b, mask), "a mask of integers");
  return build_cast(b, mask, dtype);
}

static int32_t attention(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  request r = {0};
  const uint32_t q = build_in(&b, 0), past_k = build_optional(&b, 4), past_v = build_optional(&b, 5);
  const int flat = build_rank(&b, q) == 3;
  const int64_t heads = lower_int(node, "q_num_heads", 0), groups = lower_int(node, "kv_num_heads", 0);
  const int64_t mode = lower_int(node, "qk_matmul_output_mode", 0),
                precision = lower_int(node, "softmax_precision", 0);
  r.q = heads_first(&b, q, heads);
  r.k = heads_first(&b, build_in(&b, 1), groups);
  r.v = heads_first(&b, build_in(&b, 2), groups);
  r.length = build_optional(&b, 6);
  if (r.length != GNONE) { /* one number may stand for every batch */
    const build_shape batch = {1, {build_dim(&b, r.q, 0)}};
    r.length = build_expand(&b, r.length, &batch);
  }
  build_check(&b, (past_k == GNONE) == (past_v == GNONE), "past_key and past_value come together");
  build_check(&b, past_k == GNONE || r.length == GNONE, "past_key and nonpad_kv_seqlen exclude each other");
  build_check(&b, mode >= 0 && mode <= 3, "qk_matmul_output_mode is none of 0 to 3");
  if (past_k != GNONE && b.rc == BS_OK) {
    const uint32_t keys[2] = {past_k, r.k}, values[2] = {past_v, r.v};
    build_check(&b, build_rank(&b, past_k) == 4 && build_rank(&b, past_v) == 4,
                "past_key and past_value must have 4 dims");
    r.past = build_dim(&b, past_k, 2);
    if (b.rc == BS_OK) r.k = build_concat(&b, keys, 2, 2);
    if (b.rc == BS_OK) r.v = build_concat(&b, values, 2, 2);
  }
  r.scale = default_scale(&b, &r);
  r.softcap = lower_float(node, "softcap", 0);
  r.causal = lower_int(node, "is_causal", 0) != 0;
  r.left = lower_int(node, "left_window_size", -1);
  r.right = lower_int(node, "right_window_size", -1);
  build_check(&b, r.left >= -1 && r.right >= -1, "a window is below -1");
  if (precision != 0) r.precision = build_onnx_dtype(precision);
  if (precision != 0 && !build_is_float(r.precision))
    build_refuse(&b, 0, "softmax_precision that is no float");
  check_request(&b, &r);
  r.mask =
      lengthen_mask(&b, checked_mask(&b, build_optional(&b, 3), build_dtype(&b, q)), build_dim(&b, r.k, 2));
  const int wants_scores = lower_wants(node, 3);
  uint32_t scores = GNONE;
  /* The op's softmax is at least as exact as f32. */
  const int apart = wants_scores || (r.precision == BS_F64 && build_dtype(&b, q) != BS_F64);
  if (b.rc != BS_OK) return b.rc;
  const uint32_t y = apart ? unfused(&b, &r, mode, &scores) : fused(&b, &r);
  build_out(&b, 0, flat ? heads_last(&b, y) : y);
  if (lower_wants(node, 1)) build_out(&b, 1, r.k);
  if (lower_wants(node, 2)) build_out(&b, 2, r.v);
  if (wants_scores) build_out(&b, 3, scores);
  return b.rc;
}

/* A function of the scores or the weights that the node brings: its nodes are lowered in place. */
static uint32_t modified(build *b, const char *attr, uint32_t value) {
  const bs_attr *body = gmodel_attr(b->node, attr);
  uint32_t out = GNONE;
  if (body == NULL || body->type != BS_ATTR_GRAPH || b->rc != BS_OK) return value;
  b->rc = lower_block(b->c, b->node, (uint32_t)body->i, &value, 1, &out, 1, b->err);
  const build_shape before = build_shape_of(b, value),
                    after = build_shape_of(b, b->rc == BS_OK ? out : GNONE);
  build_check(b, build_same(&before, &after), "score_mod or prob_mod changes the shape");
  return b->rc == BS_OK ? out : GNONE;
}

static int32_t flex_attention(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  request r = {0};
  r.q = build_in(&b, 0);
  r.k = build_in(&b, 1);
  r.v = build_in(&b, 2);
  r.mask = r.length = GNONE;
  r.left = r.right = -1;
  r.scale = default_scale(&b, &r);
  check_request(&b, &r);
  const uint32_t dtype = build_dtype(&b, r.q);
  const int64_t precision = lower_int(node, "softmax_precision", 0);
  const uint32_t wide = precision != 0 ? build_onnx_dtype(precision) : dtype == BS_F64 ? BS_F64 : BS_F32;
  if (!build_is_float(wide)) build_refuse(&b, 0, "softmax_precision that is no float");
  if (b.rc != BS_OK) return b.rc;
  const int plain = gmodel_attr(node, "score_mod") == NULL && gmodel_attr(node, "prob_mod") == NULL;
  if (plain && (wide != BS_F64 || dtype == BS_F64)) {
    build_out(&b, 0, fused(&b, &r));
    return b.rc;
  }
  const uint32_t scores = modified(&b, "score_mod", build_cast(&b, scores_of(&b, &r), wide));
  const uint32_t weights =
      modified(&b, "prob_mod", build_normalize(&b, BS_NORMALIZE_SOFTMAX, 0, scores, GNONE, GNONE));
  build_out(&b, 0, values_by(&b, &r, build_cast(&b, weights, dtype)));
  return b.rc;
}

const lower_rule lower_rules_attention[] = {{"Attention", 23, 0, attention, NULL},
                                            {"RotaryEmbedding", 23, 0, lower_rotary, NULL},
                                            {"RotaryPairs", 1, 0, lower_rotary, "blockshock"},
                                            {"Attention", 1, 0, attention, "blockshock"},
                                            {"LinearAttention", 27, 0, lower_linear_attention, NULL},
                                            {"FlexAttention", 1, 0, flex_attention, "ai.onnx.preview"},
                                            {0}};
