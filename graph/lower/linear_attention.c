/* SPDX-License-Identifier: MIT
 * linear_attention.c - LinearAttention: the recurrence token by token, unrolled, since shapes are static. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/rules.h"

enum { MAX_TOKENS = 4096 };

/* [B,T,H*D] as [B,H,T,D] in f32. */
static uint32_t unpack(build *b, uint32_t packed, int64_t heads) {
  build_check(b, build_rank(b, packed) == 3, "an input must have 3 dims");
  const int64_t width = build_dim(b, packed, 2);
  build_check(b, heads > 0 && width % heads == 0, "the heads do not divide a width");
  if (b->rc != BS_OK) return GNONE;
  return build_cast(b, build_swap(b, build_split_dim(b, packed, 2, heads, width / heads), 1, 2), BS_F32);
}

typedef struct operands {
  uint32_t q, k, v, decay, beta; /* [B,heads,T,width]; decay and beta may be GNONE */
  int64_t times;                 /* query heads a key head */
  double scale;
} operands;

static uint32_t token(build *b, uint32_t value, int64_t t) {
  return build_slice(b, value, 2, t, 1, 1);
}

/* One token: the state [B,G,K,V] becomes decay state + beta k (v - k decay state); returns q state as
 * [B,G,times,V]. */
static uint32_t step(build *b, const operands *o, int64_t t, uint32_t *state) {
  const uint32_t k = token(b, o->k, t), column = build_swap(b, k, 2, 3);
  uint32_t v = token(b, o->v, t);
  if (o->decay != GNONE) {
    const uint32_t g = build_swap(b, build_unary(b, BS_EXPR_EXP, token(b, o->decay, t), BS_F32), 2, 3);
    *state = build_binary(b, BS_EXPR_MUL, *state, g, BS_F32);
  }
  if (o->beta != GNONE) {
    v = build_binary(b, BS_EXPR_SUB, v, build_contract(b, k, *state, GNONE, 1), BS_F32);
    v = build_binary(b, BS_EXPR_MUL, v, token(b, o->beta, t), BS_F32);
  }
  const uint32_t outer = build_binary(b, BS_EXPR_MUL, column, v, BS_F32);
  *state = build_binary(b, BS_EXPR_ADD, *state, outer, BS_F32);
  const int64_t groups = build_dim(b, o->k, 1);
  const uint32_t q = build_squeeze(b, build_split_dim(b, token(b, o->q, t), 1, groups, o->times), 3);
  return build_contract(b, q, *state, GNONE, o->scale);
}

static void read_gates(build *b, const char *rule, operands *o, int64_t groups) {
  const int gated = strstr(rule, "gated") != NULL, delta = strstr(rule, "delta") != NULL;
  const uint32_t decay = build_optional(b, 4), beta = build_optional(b, 5);
  build_check(b, gated == (decay != GNONE) && delta == (beta != GNONE),
              "update_rule and the inputs decay and beta contradict");
  o->decay = o->beta = GNONE;
  if (gated) o->decay = unpack(b, decay, groups);
  if (delta) o->beta = unpack(b, beta, build_dim(b, beta, 2) == 1 ? 1 : groups);
  build_check(b, !delta || build_dim(b, o->beta, 3) == 1, "beta must have one number a head");
}

int32_t lower_linear_attention(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  operands o = {0};
  const uint32_t query = build_in(&b, 0), past = build_optional(&b, 3), dtype = build_dtype(&b, query);
  const int64_t heads = lower_int(node, "q_num_heads", 0), groups = lower_int(node, "kv_num_heads", 0);
  const char *rule = lower_text(node, "update_rule", "gated_delta");
  build_check(&b, groups > 0 && heads > 0 && heads % groups == 0,
              "q_num_heads is no multiple of kv_num_heads");
  build_check(&b,
              strcmp(rule, "linear") == 0 || strcmp(rule, "gated") == 0 || strcmp(rule, "delta") == 0 ||
                  strcmp(rule, "gated_delta") == 0,
              "update_rule is unknown");
  o.q = unpack(&b, query, heads);
  o.k = unpack(&b, build_in(&b, 1), groups);
  o.v = unpack(&b, build_in(&b, 2), groups);
  read_gates(&b, rule, &o, groups);
  const int64_t tokens = build_dim(&b, o.q, 2), width = build_dim(&b, o.k, 3);
  const build_shape room = {4, {build_dim(&b, o.q, 0), groups, width, build_dim(&b, o.v, 3)}};
  build_check(&b, build_dim(&b, o.q, 3) == width && width > 0, "query and key differ in width");
  build_check(&b, build_dim(&b, o.k, 2) == tokens && build_dim(&b, o.v, 2) == tokens,
              "query, key and value differ in length");
  if (tokens <= 0 || tokens > MAX_TOKENS) {
    build_refuse(&b, 0, "a sequence of no or more than 4096 tokens");
    return b.rc;
  }
  if (b.rc != BS_OK) return b.rc;
  const double asked = lower_float(node, "scale", 0);
  o.scale = asked != 0 ? asked : 1.0 / sqrt((double)width);
  o.times = heads / groups;
  uint32_t state =
      past != GNONE ? build_cast(&b, past, BS_F32) : build_expand(&b, build_real(&b, BS_F32, 0), &room);
  const build_shape given = build_shape_of(&b, state);
  build_check(&b, build_same(&given, &room), "past_state has another shape than the heads ask for");
  uint32_t *outs = calloc((size_t)tokens, sizeof *outs);
  if (outs == NULL && b.rc == BS_OK) build_no_memory(&b);
  for (int64_t t = 0; t < tokens && b.rc == BS_OK; ++t) { /* each [B,G,times,V], as [B,1,heads V] */
    outs[t] = build_unsqueeze(&b, build_join_dims(&b, step(&b, &o, t, &state), 1, 3), 1);
  }
  const uint32_t y = b.rc == BS_OK ? build_concat(&b, outs, (uint32_t)tokens, 1) : GNONE;
  free(outs);
  build_out(&b, 0, build_cast(&b, y, dtype));
  build_out(&b, 1, build_cast(&b, state, past != GNONE ? build_dtype(&b, past) : dtype));
  return b.rc;
}
