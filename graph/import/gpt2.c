/* SPDX-License-Identifier: MIT
 * gpt2.c - GPT-2 of a folder: learned positions, layer norms before attention and MLP, one product for Q, K
 * and V, weights stored [inputs, outputs], the head tied to the embeddings. Called by hf.c. */
#include <math.h>
#include <stdio.h>

#include "graph/import/hf.h"

typedef struct gpt2 {
  int64_t width, heads, inner;
  double eps;
  const char *prefix; /* of all names: "transformer." or "" */
} gpt2;

static uint32_t layer_norm(hf_build *b, const gpt2 *g, const char *prefix, uint32_t x) {
  const uint32_t in[3] = {x, hf_weight(b, hf_name(b, prefix, ".weight"), 1, &g->width),
                          hf_weight(b, hf_name(b, prefix, ".bias"), 1, &g->width)};
  const bs_attr attrs[2] = {hf_attr_float("epsilon", g->eps), hf_attr_int("axis", -1)};
  return hf_op(b, "LayerNormalization", prefix, in, 3, attrs, 2);
}

/* Columns begin .. begin+width-1 of the product of Q, K and V, as heads. */
static uint32_t part(hf_build *b, const gpt2 *g, const char *name, uint32_t qkv, int64_t which) {
  const int64_t begin = which * g->width, end = begin + g->width, axis = 1;
  const uint32_t in[4] = {qkv, hf_ints(b, &begin, 1), hf_ints(b, &end, 1), hf_ints(b, &axis, 1)};
  return hf_heads(b, name, hf_op(b, "Slice", name, in, 4, NULL, 0), g->heads, g->width / g->heads);
}

static uint32_t attention(hf_build *b, const gpt2 *g, const char *prefix, uint32_t x, int64_t layer) {
  const int64_t width = g->width / g->heads;
  double scale = hf_bool(b, "scale_attn_weights", 1) ? 1 / sqrt((double)width) : 1;
  if (hf_bool(b, "scale_attn_by_inverse_layer_idx", 0)) scale /= (double)(layer + 1);
  const uint32_t qkv = hf_linear(b, hf_name(b, prefix, ".c_attn"), x, g->width, 3 * g->width, 1);
  const uint32_t q = part(b, g, hf_name(b, prefix, ".q"), qkv, 0),
                 k = part(b, g, hf_name(b, prefix, ".k"), qkv, 1),
                 v = part(b, g, hf_name(b, prefix, ".v"), qkv, 2);
  const uint32_t keys = hf_remember(b, hf_name(b, prefix, ".cache_k"), k, g->heads, width),
                 values = hf_remember(b, hf_name(b, prefix, ".cache_v"), v, g->heads, width);
  const hf_attend how = {.scale = scale, .filled = b->filled};
  const uint32_t y = hf_attention(b, prefix, q, keys, values, &how);
  return hf_linear(b, hf_name(b, prefix, ".c_proj"), hf_unheads(b, prefix, y, g->heads, width), g->width,
                   g->width, 1);
}

static uint32_t mlp(hf_build *b, const gpt2 *g, const char *prefix, uint32_t x) {
  const uint32_t up = hf_linear(b, hf_name(b, prefix, ".c_fc"), x, g->width, g->inner, 1);
  const uint32_t active = hf_activation(b, "activation_function", NULL, hf_name(b, prefix, ".act"), up);
  return hf_linear(b, hf_name(b, prefix, ".c_proj"), active, g->inner, g->width, 1);
}

static uint32_t block(hf_build *b, const gpt2 *g, uint32_t x, int64_t layer) {
  char number[40];
  snprintf(number, sizeof number, "h.%lld", (long long)layer);
  const char *prefix = hf_name(b, g->prefix, number);
  const uint32_t seen =
      attention(b, g, hf_name(b, prefix, ".attn"), layer_norm(b, g, hf_name(b, prefix, ".ln_1"), x), layer);
  x = hf_op2(b, "Add", hf_name(b, prefix, ".attn_residual"), seen, x);
  const uint32_t thought =
      mlp(b, g, hf_name(b, prefix, ".mlp"), layer_norm(b, g, hf_name(b, prefix, ".ln_2"), x));
  return hf_op2(b, "Add", hf_name(b, prefix, ".mlp_residual"), thought, x);
}

void hf_gpt2(hf_build *b, int64_t asked) {
  gpt2 g = {.prefix = hf_has_weight(b, "transformer.wte.weight") ? "transformer." : ""};
  const int64_t words = hf_int(b, "vocab_size", 1, INT32_MAX, 0),
                positions = hf_int(b, "n_positions", 1, INT32_MAX, 0), layers = hf_layers(b, "n_layer");
  g.width = hf_int(b, "n_embd", 1, 1 << 24, 0);
  g.heads = hf_int(b, "n_head", 1, 1 << 16, 0);
  g.inner = hf_int(b, "n_inner", 1, 1 << 26, 4 * g.width);
  g.eps = hf_real(b, "layer_norm_epsilon", 1e-5);
  if (b->rc == BS_OK && g.width % g.heads != 0) hf_refuse(b, "n_head", "it must divide n_embd");
  if (hf_bool(b, "add_cross_attention", 0)) hf_refuse(b, "add_cross_attention", "only false is built");
  const int64_t table[2] = {words, g.width}, places[2] = {positions, g.width};
  const uint32_t wte = hf_weight(b, hf_name(b, g.prefix, "wte.weight"), 2, table);
  const uint32_t wpe = hf_weight(b, hf_name(b, g.prefix, "wpe.weight"), 2, places);
  hf_begin(b, positions, asked);
  uint32_t x = hf_op2(b, "Add", "embeddings", hf_op2(b, "Gather", "wte", wte, b->ids),
                      hf_op2(b, "Gather", "wpe", wpe, b->positions));
  for (int64_t i = 0; b->rc == BS_OK && i < layers; i++) x = block(b, &g, x, i);
  x = layer_norm(b, &g, hf_name(b, g.prefix, "ln_f"), x);
  const int tied = hf_bool(b, "tie_word_embeddings", 1);
  if (tied) hf_weights_use(b->weights, "lm_head.weight"); /* a copy of the embeddings */
  hf_end(b, x, tied ? wte : hf_weight(b, "lm_head.weight", 2, table), words, 0);
}
