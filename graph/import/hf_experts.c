/* SPDX-License-Identifier: MIT
 * hf_experts.c - a layer of experts of a folder (Qwen3 MoE, Mixtral): a router chooses some of them for each
 * token. All experts are computed for all tokens, and the gates of those that were not chosen are 0. Called
 * by llama.c. */
#include <stdio.h>

#include "graph/import/hf.h"

static uint32_t sum_over(hf_build *b, const char *name, uint32_t x, int64_t axis, int keep) {
  const uint32_t in[2] = {x, hf_ints(b, &axis, 1)};
  const bs_attr attr = hf_attr_int("keepdims", keep);
  return hf_op(b, "ReduceSum", name, in, 2, &attr, 1);
}

/* x [..] with a dim of 1 behind. */
static uint32_t column(hf_build *b, const char *name, uint32_t x) {
  static const int64_t last = -1;
  return hf_op2(b, "Unsqueeze", name, x, hf_ints(b, &last, 1));
}

/* The gate of each expert [tokens, experts], in f32 or wider: the softmax of the router for those chosen,
 * else 0. */
static uint32_t gates(hf_build *b, const hf_experts *e, const char *prefix, uint32_t x) {
  const int64_t dims[2] = {e->count, e->width};
  const char *name = hf_name(b, prefix, ".gate");
  uint32_t scores = hf_gemm(b, name, x, hf_weight(b, hf_name(b, name, ".weight"), 2, dims), GMODEL_NONE, 0);
  scores = hf_widen(b, name, scores);
  const bs_attr axis = hf_attr_int("axis", -1);
  const uint32_t in[2] = {hf_op(b, "Softmax", name, &scores, 1, &axis, 1), hf_ints(b, &e->chosen, 1)};
  const bs_attr largest = hf_attr_int("axis", -1);
  const bs_attr *const attrs[1] = {&largest};
  uint32_t top[2] = {GMODEL_NONE, GMODEL_NONE};
  if (b->rc == BS_OK) b->rc = gmodel_op(b->model, "TopK", name, in, 2, attrs, 1, top, 2, b->err);
  uint32_t shares = top[0];
  if (e->norm) shares = hf_op2(b, "Div", name, shares, sum_over(b, name, shares, -1, 1));
  const uint32_t off_on[2] = {hf_number(b, 0, hf_wide(b)), hf_number(b, 1, hf_wide(b))};
  uint32_t pair[2];
  for (int i = 0; i < 2; i++) pair[i] = column(b, name, off_on[i]);
  const bs_attr join = hf_attr_int("axis", 0);
  const uint32_t hot[3] = {top[1], hf_scalar(b, e->count), hf_op(b, "Concat", name, pair, 2, &join, 1)};
  const uint32_t chosen = hf_op(b, "OneHot", name, hot, 3, NULL, 0); /* [tokens, chosen, experts] */
  return sum_over(b, name, hf_op2(b, "Mul", name, chosen, column(b, name, shares)), 1, 0);
}

/* Column i of the gates: [tokens, 1]. */
static uint32_t gate_of(hf_build *b, const char *name, uint32_t all, int64_t i) {
  const int64_t end = i + 1, axis = 1;
  const uint32_t in[4] = {all, hf_ints(b, &i, 1), hf_ints(b, &end, 1), hf_ints(b, &axis, 1)};
  return hf_op(b, "Slice", name, in, 4, NULL, 0);
}

/* A weight of expert i: a tensor of its own, or rows of one of all experts. */
static uint32_t weight_of(hf_build *b, const hf_experts *e, const char *prefix, int64_t i, int which) {
  static const char *const names[2][3] = {{".gate_proj.weight", ".up_proj.weight", ".down_proj.weight"},
                                          {".w1.weight", ".w3.weight", ".w2.weight"}};
  const int64_t rows = which == 2 ? e->width : e->inner, columns = which == 2 ? e->inner : e->width;
  const int64_t dims[2] = {rows, columns};
  char number[40];
  snprintf(number, sizeof number, ".experts.%lld", (long long)i);
  if (!hf_has_weight(b, hf_name(b, prefix, ".experts.gate_up_proj")))
    return hf_weight(b, hf_name(b, hf_name(b, prefix, number), names[e->numbered][which]), 2, dims);
  const int64_t all[3] = {e->count, which == 2 ? rows : 2 * rows, columns};
  const char *name = hf_name(b, prefix, which == 2 ? ".experts.down_proj" : ".experts.gate_up_proj");
  const char *part = hf_name(b, number, which == 0 ? ".gate" : which == 1 ? ".up" : ".down");
  return hf_weight_rows(b, name, part, 3, all, i * all[1] + (which == 1 ? rows : 0), rows);
}

/* What expert i adds: 0, also where its result is no number, for tokens that did not choose it. */
static uint32_t expert(hf_build *b, const hf_experts *e, const char *prefix, uint32_t x, uint32_t all,
                       int64_t i) {
  char number[40];
  snprintf(number, sizeof number, ".experts.%lld", (long long)i);
  const char *name = hf_name(b, prefix, number);
  const uint32_t gate =
      hf_gemm(b, hf_name(b, name, ".gate"), x, weight_of(b, e, prefix, i, 0), GMODEL_NONE, 0);
  const uint32_t up = hf_gemm(b, hf_name(b, name, ".up"), x, weight_of(b, e, prefix, i, 1), GMODEL_NONE, 0);
  const uint32_t active = hf_activation(b, "hidden_act", NULL, hf_name(b, name, ".act"), gate);
  uint32_t y = hf_gemm(b, hf_name(b, name, ".down"), hf_op2(b, "Mul", name, active, up),
                       weight_of(b, e, prefix, i, 2), GMODEL_NONE, 0);
  uint32_t share = gate_of(b, name, all, i);
  if (e->wide)
    y = hf_widen(b, name, y);
  else
    share = hf_cast(b, name, share, hf_wide(b));
  const uint32_t dtype = e->wide ? hf_wide(b) : b->dtype, zero = hf_number(b, 0, dtype);
  const uint32_t in[3] = {hf_op2(b, "Greater", name, share, zero), hf_op2(b, "Mul", name, y, share), zero};
  y = hf_op(b, "Where", name, in, 3, NULL, 0);
  return e->wide ? hf_cast(b, name, y, dtype) : y;
}

uint32_t hf_experts_of(hf_build *b, const hf_experts *e, const char *prefix, uint32_t x) {
  const uint32_t all = gates(b, e, prefix, x);
  uint32_t sum = GMODEL_NONE;
  for (int64_t i = 0; b->rc == BS_OK && i < e->count; i++) {
    const uint32_t y = expert(b, e, prefix, x, all, i);
    sum = i == 0 ? y : hf_op2(b, "Add", hf_name(b, prefix, ".sum"), sum, y);
  }
  return sum;
}
