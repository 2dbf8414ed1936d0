/* SPDX-License-Identifier: MIT
 * llama.c - Llama and its kin of a folder (Llama, Mistral, Qwen2, Qwen3): root-mean-square norms, rotary
 * positions, grouped heads, sliding windows, a gated MLP. Qwen3 also normalises each head of Q and K. Called
 * by hf.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/hf.h"

/* Which layers have a sliding window. */
enum {
  WINDOW_NONE,  /* none: a config.json that asks for one is refused */
  WINDOW_ALL,   /* all, where sliding_window is there */
  WINDOW_LISTED /* with use_sliding_window: those of layer_types, else from max_window_layers on */
};

/* The kinds of models, and what their config.json means where a key is not there. */
typedef struct family {
  const char *type;
  double eps, theta;
  int64_t window; /* sliding_window; 0: none */
  uint8_t windows, norms_heads;
} family;

static const family families[] = {{"llama", 1e-6, 1e4, 0, WINDOW_NONE, 0},
                                  {"mistral", 1e-6, 1e4, 4096, WINDOW_ALL, 0},
                                  {"qwen2", 1e-6, 1e4, 4096, WINDOW_LISTED, 0},
                                  {"qwen3", 1e-6, 1e4, 4096, WINDOW_LISTED, 1}};

typedef struct llama {
  const family *kind;
  int64_t width, inner, heads, groups, head; /* head: width of one */
  double eps;
  hf_rope rope;
  const char *prefix; /* of all names: "model." or "" */
} llama;

/* ---- windows ---------------------------------------------------------------------------------- */

static int is_full(hf_build *b, const char *kind) {
  if (kind != NULL && strcmp(kind, "sliding_attention") == 0) return 0;
  if (kind == NULL || strcmp(kind, "full_attention") != 0)
    hf_refuse(b, "layer_types", "known: full_attention sliding_attention, one for each layer");
  return 1;
}

/* The window that config.json gives to layers that have one; 0: there is none. */
static int64_t stated_window(hf_build *b, const family *kind) {
  const char *key = "sliding_window";
  if (hf_is_null(b, key)) return 0;
  return hf_has_key(b, key) ? hf_int(b, key, 1, INT32_MAX, 0) : kind->window;
}

/* Whether transformers gives the layer that window. */
static int has_window(hf_build *b, const family *kind, int64_t layer) {
  if (kind->windows == WINDOW_ALL) return 1;
  if (!hf_bool(b, "use_sliding_window", 0)) return 0;
  if (hf_has_key(b, "layer_types")) return !is_full(b, hf_item(b, "layer_types", layer));
  return layer >= hf_int(b, "max_window_layers", 0, INT32_MAX, kind->windows == WINDOW_NONE ? 0 : 28);
}

/* The window of a layer, 0: it sees all. What config.json says otherwise than transformers reads it is
 * refused. */
static int64_t layer_window(hf_build *b, const llama *l, int64_t layer) {
  const int64_t window = stated_window(b, l->kind);
  const int used = window > 0 && has_window(b, l->kind, layer);
  if (window >= b->cache) return 0;
  if (used && l->kind->windows == WINDOW_NONE)
    hf_refuse(b, "sliding_window", "this model_type has no windows; ask for fewer cache tokens");
  if (used && l->kind->windows == WINDOW_ALL && !hf_bool(b, "use_sliding_window", 1))
    hf_refuse(b, "use_sliding_window", "this model_type has a window in each layer");
  if (hf_has_key(b, "layer_types") && is_full(b, hf_item(b, "layer_types", layer)) == used)
    hf_refuse(b, "layer_types", "this model_type has no such layers, or sliding_window is null");
  return used ? window : 0;
}

/* ---- layers ----------------------------------------------------------------------------------- */

static uint32_t norm(hf_build *b, const llama *l, const char *prefix, uint32_t x, int64_t width) {
  const uint32_t in[2] = {x, hf_weight(b, hf_name(b, prefix, ".weight"), 1, &width)};
  const bs_attr attrs[2] = {hf_attr_float("epsilon", l->eps), hf_attr_int("axis", -1)};
  return hf_op(b, "RMSNormalization", prefix, in, 2, attrs, 2);
}

/* Q or K: its product, heads, norm of heads and rotation. `which`: ".q" or ".k". */
static uint32_t rotated(hf_build *b, const llama *l, const char *prefix, const char *which, uint32_t x,
                        int64_t heads) {
  const char *name = hf_name(b, prefix, which);
  uint32_t y = hf_heads(b, name, hf_linear(b, hf_name(b, name, "_proj"), x, l->width, heads * l->head, 0),
                        heads, l->head);
  if (l->kind->norms_heads) y = norm(b, l, hf_name(b, name, "_norm"), y, l->head);
  return hf_rope_turn(b, &l->rope, hf_name(b, name, "_rope"), y, l->head);
}

static uint32_t attention(hf_build *b, const llama *l, const char *prefix, uint32_t x, int64_t window) {
  const hf_attend how = {.scale = 1 / sqrt((double)l->head), .window = window, .filled = b->filled};
  const uint32_t q = rotated(b, l, prefix, ".q", x, l->heads), k = rotated(b, l, prefix, ".k", x, l->groups);
  const uint32_t v = hf_heads(
      b, hf_name(b, prefix, ".v"),
      hf_linear(b, hf_name(b, prefix, ".v_proj"), x, l->width, l->groups * l->head, 0), l->groups, l->head);
  const uint32_t keys = hf_remember(b, hf_name(b, prefix, ".cache_k"), k, l->groups, l->head),
                 values = hf_remember(b, hf_name(b, prefix, ".cache_v"), v, l->groups, l->head);
  const uint32_t y = hf_attention(b, prefix, q, keys, values, &how);
  return hf_linear(b, hf_name(b, prefix, ".o_proj"), hf_unheads(b, prefix, y, l->heads, l->head),
                   l->heads * l->head, l->width, 0);
}

static uint32_t mlp(hf_build *b, const llama *l, const char *prefix, uint32_t x) {
  const uint32_t gate = hf_linear(b, hf_name(b, prefix, ".gate_proj"), x, l->width, l->inner, 0);
  const uint32_t up = hf_linear(b, hf_name(b, prefix, ".up_proj"), x, l->width, l->inner, 0);
  const uint32_t active = hf_activation(b, "hidden_act", hf_name(b, prefix, ".act"), gate);
  return hf_linear(b, hf_name(b, prefix, ".down_proj"),
                   hf_op2(b, "Mul", hf_name(b, prefix, ".gated"), active, up), l->inner, l->width, 0);
}

static uint32_t block(hf_build *b, const llama *l, uint32_t x, int64_t layer) {
  char number[40];
  snprintf(number, sizeof number, "layers.%lld", (long long)layer);
  const char *prefix = hf_name(b, l->prefix, number);
  const uint32_t seen =
      attention(b, l, hf_name(b, prefix, ".self_attn"),
                norm(b, l, hf_name(b, prefix, ".input_layernorm"), x, l->width), layer_window(b, l, layer));
  x = hf_op2(b, "Add", hf_name(b, prefix, ".attn_residual"), seen, x);
  const uint32_t thought = mlp(b, l, hf_name(b, prefix, ".mlp"),
                               norm(b, l, hf_name(b, prefix, ".post_attention_layernorm"), x, l->width));
  return hf_op2(b, "Add", hf_name(b, prefix, ".mlp_residual"), thought, x);
}

/* ---- the model -------------------------------------------------------------------------------- */

static void read_config(hf_build *b, llama *l) {
  const char *type = hf_text(b, "model_type", NULL);
  l->kind = families;
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(families[i].type, type) == 0) l->kind = &families[i];
  l->prefix = hf_has_weight(b, "model.embed_tokens.weight") ? "model." : "";
  l->width = hf_int(b, "hidden_size", 1, 1 << 24, 0);
  l->inner = hf_int(b, "intermediate_size", 1, 1 << 26, 0);
  l->heads = hf_int(b, "num_attention_heads", 1, 1 << 16, 0);
  l->groups = hf_int(b, "num_key_value_heads", 1, l->heads, l->heads);
  l->head = hf_int(b, "head_dim", 1, 1 << 16, l->width / l->heads);
  l->eps = hf_real(b, "rms_norm_eps", l->kind->eps);
  if (b->rc != BS_OK) return;
  if (l->heads % l->groups != 0) hf_refuse(b, "num_key_value_heads", "it must divide num_attention_heads");
  if (!hf_has_key(b, "head_dim") && l->width % l->heads != 0)
    hf_refuse(b, "num_attention_heads", "it must divide hidden_size");
  if (l->head % 2 != 0) hf_refuse(b, "head_dim", "an even width is rotated");
}

void hf_llama(hf_build *b, int64_t asked) {
  llama l = {0};
  read_config(b, &l);
  const int64_t words = hf_int(b, "vocab_size", 1, INT32_MAX, 0), layers = hf_layers(b, "num_hidden_layers");
  const int64_t rows[2] = {words, l.width};
  const uint32_t embeddings = hf_weight(b, hf_name(b, l.prefix, "embed_tokens.weight"), 2, rows);
  hf_begin(b, hf_int(b, "max_position_embeddings", 1, INT32_MAX, 0), asked);
  hf_rope_read(b, l.head, l.kind->theta, &l.rope);
  uint32_t x = hf_op2(b, "Gather", "embeddings", embeddings, b->ids);
  for (int64_t i = 0; b->rc == BS_OK && i < layers; i++) x = block(b, &l, x, i);
  x = norm(b, &l, hf_name(b, l.prefix, "norm"), x, l.width);
  const int tied = hf_bool(b, "tie_word_embeddings", 0);
  if (tied) hf_weights_use(b->weights, "lm_head.weight"); /* a copy of the embeddings */
  hf_end(b, x, tied ? embeddings : hf_weight(b, "lm_head.weight", 2, rows), words);
}
