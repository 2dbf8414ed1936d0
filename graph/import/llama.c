/* SPDX-License-Identifier: MIT
 * llama.c - Llama and its kin of a folder (Mistral, Qwen2, Qwen3, Phi-3, OLMo2, Gemma 2, Granite ..):
 * root-mean-square norms, rotary positions, grouped heads, sliding windows, a gated MLP. Called by hf.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/hf.h"

/* Which layers have a sliding window. */
enum {
  WINDOW_NONE,    /* none: a config.json that asks for one is refused */
  WINDOW_ALL,     /* all, where sliding_window is there */
  WINDOW_USED,    /* all, with use_sliding_window */
  WINDOW_LISTED,  /* with use_sliding_window: those of layer_types, else from max_window_layers on */
  WINDOW_EVERY_2, /* those of layer_types, else layers 0, 2 .. */
  WINDOW_PATTERN  /* those of layer_types, else all but each sliding_window_pattern-th */
};

/* What else a kind has. */
enum {
  NORM_HEADS = 1,      /* Q and K are normed, each head alone */
  NORM_QK = 2,         /* Q and K are normed, all heads as one */
  NORM_AFTER = 4,      /* attention and MLP are normed after, and not before */
  GEMMA = 8,           /* norms before and after, with weights 1 + w; caps; scaled embeddings */
  FUSED = 16,          /* one weight for Q, K and V, one for gate and up */
  ATTENTION_BIAS = 32, /* attention_bias is a key */
  MLP_BIAS = 64,       /* mlp_bias is a key */
  WIDE = 128,          /* norms in f32 to the end, and heads are turned in f32 */
  EXPERTS = 256,       /* layers of experts: all, or with decoder_sparse_step and mlp_only_layers some */
  MIXTRAL = 512,       /* their names and gates */
  MULTIPLIERS = 1024,  /* of embeddings, scores, residuals and logits */
  SOME_TURNED = 2048,  /* layers whose heads are not rotated */
  OUT_BIAS = 4096,     /* attention_out_bias is a key */
  TIED = 8192          /* tie_word_embeddings is true where it is absent */
};

/* The kinds of models, and what their config.json means where a key is not there. */
typedef struct family {
  const char *type;
  double eps, theta;
  int64_t window, head; /* sliding_window, head_dim; 0: none, of the width */
  uint16_t windows, has;
} family;

static const family families[] = {
    {"llama", 1e-6, 1e4, 0, 0, WINDOW_NONE, ATTENTION_BIAS | MLP_BIAS},
    {"mistral", 1e-6, 1e4, 4096, 0, WINDOW_ALL, 0},
    {"qwen2", 1e-6, 1e4, 4096, 0, WINDOW_LISTED, 0},
    {"qwen3", 1e-6, 1e4, 4096, 128, WINDOW_LISTED, NORM_HEADS | ATTENTION_BIAS},
    {"phi3", 1e-5, 1e4, 0, 0, WINDOW_ALL, FUSED},
    {"olmo2", 1e-5, 1e4, 0, 0, WINDOW_NONE, NORM_QK | NORM_AFTER | ATTENTION_BIAS | WIDE},
    {"gemma2", 1e-6, 1e4, 4096, 256, WINDOW_EVERY_2, GEMMA | ATTENTION_BIAS},
    {"mixtral", 1e-5, 1e6, 0, 0, WINDOW_ALL, EXPERTS | MIXTRAL},
    {"qwen3_moe", 1e-6, 1e4, 4096, 0, WINDOW_USED, NORM_HEADS | ATTENTION_BIAS | EXPERTS},
    {"granite", 1e-6, 1e4, 0, 0, WINDOW_NONE, ATTENTION_BIAS | MLP_BIAS | MULTIPLIERS},
    {"smollm3", 1e-6, 2e6, 0, 0, WINDOW_NONE, ATTENTION_BIAS | MLP_BIAS | SOME_TURNED | TIED},
    {"seed_oss", 1e-6, 1e4, 0, 128, WINDOW_NONE, ATTENTION_BIAS | MLP_BIAS | OUT_BIAS},
    {"exaone4", 1e-5, 1e4, 4096, 0, WINDOW_PATTERN, NORM_HEADS | NORM_AFTER | SOME_TURNED}};

typedef struct llama {
  const family *kind;
  int64_t width, inner, heads, groups, head; /* head: width of one */
  double eps, scale, softcap, cap;           /* scale, softcap: of scores; cap: of logits */
  double embeddings_by, residual_by, logits_over;
  hf_rope rope;
  hf_experts experts;
  const char *prefix; /* of all names: "model." or "" */
} llama;

static int has(const llama *l, int what) {
  return (l->kind->has & what) != 0;
}

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
  if (!hf_bool(b, "use_sliding_window", kind->windows == WINDOW_EVERY_2 || kind->windows == WINDOW_PATTERN))
    return 0;
  if (kind->windows == WINDOW_USED) return 1;
  if (hf_has_key(b, "layer_types")) return !is_full(b, hf_item(b, "layer_types", layer));
  if (kind->windows == WINDOW_EVERY_2) return layer % 2 == 0;
  if (kind->windows == WINDOW_PATTERN)
    return (layer + 1) % hf_int(b, "sliding_window_pattern", 1, INT32_MAX, 4) != 0;
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
  const uint32_t kind = l->kind->windows;
  if ((kind == WINDOW_ALL || kind == WINDOW_EVERY_2 || kind == WINDOW_PATTERN) && window > 0 &&
      !hf_bool(b, "use_sliding_window", 1))
    hf_refuse(b, "use_sliding_window", "windows of this model_type cannot be left out");
  if (hf_has_key(b, "layer_types") && is_full(b, hf_item(b, "layer_types", layer)) == used)
    hf_refuse(b, "layer_types", "this model_type has no such layers, or sliding_window is null");
  return used ? window : 0;
}

/* Whether the heads of a layer are rotated: as no_rope_layers says, or those with a window where some have
 * one. */
static int is_turned(hf_build *b, const llama *l, int64_t layer) {
  static const char listed[] = "no_rope_layers", interval[] = "no_rope_layer_interval";
  if (!has(l, SOME_TURNED)) return 1;
  if (l->kind->windows == WINDOW_PATTERN)
    return stated_window(b, l->kind) == 0 || has_window(b, l->kind, layer);
  if (hf_has_key(b, listed)) return hf_list_int(b, listed, layer, 0, 1) != 0;
  return (layer + 1) % hf_int(b, interval, 1, INT32_MAX, 4) != 0;
}

/* ---- layers ----------------------------------------------------------------------------------- */

static uint32_t norm(hf_build *b, const llama *l, const char *prefix, uint32_t x, int64_t width) {
  const bs_attr attrs[2] = {hf_attr_float("epsilon", l->eps), hf_attr_int("axis", -1)};
  uint32_t weight = hf_weight(b, hf_name(b, prefix, ".weight"), 1, &width);
  const int wide = has(l, WIDE | GEMMA);
  if (wide) {
    x = hf_widen(b, prefix, x);
    weight = hf_widen(b, prefix, weight);
  }
  if (has(l, GEMMA)) weight = hf_op2(b, "Add", prefix, weight, hf_number(b, 1, hf_wide(b)));
  const uint32_t in[2] = {x, weight}, y = hf_op(b, "RMSNormalization", prefix, in, 2, attrs, 2);
  return wide ? hf_cast(b, prefix, y, hf_wide(b)) : y;
}

/* The product with prefix.weight, and prefix.bias as the key says; without the key, where there is one. */
static uint32_t linear(hf_build *b, const char *prefix, const char *bias_key, uint32_t x, int64_t inputs,
                       int64_t outputs) {
  const int64_t dims[2] = {outputs, inputs};
  const char *name = hf_name(b, prefix, ".bias");
  const int has_bias = b->rc == BS_OK && hf_bool(b, bias_key, hf_has_weight(b, name));
  const uint32_t weight = hf_weight(b, hf_name(b, prefix, ".weight"), 2, dims);
  return hf_gemm(b, prefix, x, weight, has_bias ? hf_weight(b, name, 1, &outputs) : GMODEL_NONE, 0);
}

/* The product with rows of prefix.weight, which has `all` rows; the value's name ends with `part`. */
static uint32_t part_of(hf_build *b, const llama *l, const char *prefix, const char *part, uint32_t x,
                        int64_t all, int64_t first, int64_t rows) {
  const int64_t dims[2] = {all, l->width};
  const uint32_t weight = hf_weight_rows(b, hf_name(b, prefix, ".weight"), part, 2, dims, first, rows);
  return hf_gemm(b, hf_name(b, prefix, part), x, weight, GMODEL_NONE, 0);
}

/* Q, K or V, the heads `first` and following of all: the product [tokens, heads width]. */
static uint32_t projected(hf_build *b, const llama *l, const char *prefix, const char *which, uint32_t x,
                          int64_t first, int64_t heads) {
  const int64_t rows = heads * l->head, all = (l->heads + 2 * l->groups) * l->head;
  if (has(l, FUSED))
    return part_of(b, l, hf_name(b, prefix, ".qkv_proj"), which, x, all, first * l->head, rows);
  return linear(b, hf_name(b, hf_name(b, prefix, which), "_proj"), "attention_bias", x, l->width, rows);
}

/* Q or K: its product, norm, heads and where `turned` their rotation. `which`: ".q" or ".k". */
static uint32_t rotated(hf_build *b, const llama *l, const char *prefix, const char *which, uint32_t x,
                        int64_t first, int64_t heads, int turned) {
  const char *name = hf_name(b, prefix, which), *norm_name = hf_name(b, name, "_norm");
  uint32_t y = projected(b, l, prefix, which, x, first, heads);
  if (has(l, NORM_QK)) y = norm(b, l, norm_name, y, heads * l->head);
  y = hf_heads(b, name, y, heads, l->head);
  if (has(l, NORM_HEADS)) y = norm(b, l, norm_name, y, l->head);
  return turned ? hf_rope_turn(b, &l->rope, hf_name(b, name, "_rope"), y, l->head) : y;
}

static uint32_t attention(hf_build *b, const llama *l, const char *prefix, uint32_t x, int64_t layer) {
  const hf_attend how = {
      .scale = l->scale, .softcap = l->softcap, .window = layer_window(b, l, layer), .filled = b->filled};
  const int turned = is_turned(b, l, layer);
  const uint32_t q = rotated(b, l, prefix, ".q", x, 0, l->heads, turned),
                 k = rotated(b, l, prefix, ".k", x, l->heads, l->groups, turned);
  const uint32_t v =
      hf_heads(b, hf_name(b, prefix, ".v"), projected(b, l, prefix, ".v", x, l->heads + l->groups, l->groups),
               l->groups, l->head);
  const uint32_t keys = hf_remember(b, hf_name(b, prefix, ".cache_k"), k, l->groups, l->head),
                 values = hf_remember(b, hf_name(b, prefix, ".cache_v"), v, l->groups, l->head);
  const uint32_t y = hf_unheads(b, prefix, hf_attention(b, prefix, q, keys, values, &how), l->heads, l->head);
  const char *bias = has(l, OUT_BIAS) ? "attention_out_bias" : "attention_bias";
  return linear(b, hf_name(b, prefix, ".o_proj"), bias, y, l->heads * l->head, l->width);
}

/* act(gate) up. */
static uint32_t gated(hf_build *b, const llama *l, const char *prefix, uint32_t gate, uint32_t up) {
  const char *key = has(l, GEMMA) ? "hidden_activation" : "hidden_act";
  const char *usual = has(l, GEMMA) ? "gelu_pytorch_tanh" : NULL;
  const uint32_t active = hf_activation(b, key, usual, hf_name(b, prefix, ".act"), gate);
  return hf_op2(b, "Mul", hf_name(b, prefix, ".gated"), active, up);
}

static uint32_t mlp(hf_build *b, const llama *l, const char *prefix, uint32_t x) {
  static const char bias[] = "mlp_bias";
  const char *both = hf_name(b, prefix, ".gate_up_proj");
  uint32_t gate, up;
  if (has(l, FUSED)) {
    gate = part_of(b, l, both, ".gate", x, 2 * l->inner, 0, l->inner);
    up = part_of(b, l, both, ".up", x, 2 * l->inner, l->inner, l->inner);
  } else {
    gate = linear(b, hf_name(b, prefix, ".gate_proj"), bias, x, l->width, l->inner);
    up = linear(b, hf_name(b, prefix, ".up_proj"), bias, x, l->width, l->inner);
  }
  return linear(b, hf_name(b, prefix, ".down_proj"), bias, gated(b, l, prefix, gate, up), l->inner, l->width);
}

/* Whether the layer has experts. */
static int is_sparse(hf_build *b, const llama *l, int64_t layer) {
  if (l->experts.count == 0 || has(l, MIXTRAL)) return l->experts.count > 0;
  return !hf_list_has_int(b, "mlp_only_layers", layer) && (layer + 1) % l->experts.step == 0;
}

static uint32_t feed_forward(hf_build *b, const llama *l, const char *prefix, uint32_t x, int64_t layer) {
  const char *old = hf_name(b, prefix, ".block_sparse_moe"), *now = hf_name(b, prefix, ".mlp");
  if (!is_sparse(b, l, layer)) return mlp(b, l, now, x);
  return hf_experts_of(b, &l->experts, hf_has_weight(b, hf_name(b, old, ".gate.weight")) ? old : now, x);
}

/* x by a number; 1: x. */
static uint32_t times(hf_build *b, const char *name, uint32_t x, double by) {
  return by == 1 ? x : hf_op2(b, "Mul", name, x, hf_number(b, by, b->dtype));
}

static uint32_t block(hf_build *b, const llama *l, uint32_t x, int64_t layer) {
  char number[40];
  snprintf(number, sizeof number, "layers.%lld", (long long)layer);
  const char *prefix = hf_name(b, l->prefix, number);
  const int before = !has(l, NORM_AFTER), after = has(l, NORM_AFTER | GEMMA);
  uint32_t y = before ? norm(b, l, hf_name(b, prefix, ".input_layernorm"), x, l->width) : x;
  y = attention(b, l, hf_name(b, prefix, ".self_attn"), y, layer);
  if (after) y = norm(b, l, hf_name(b, prefix, ".post_attention_layernorm"), y, l->width);
  y = times(b, hf_name(b, prefix, ".attn_times"), y, l->residual_by);
  x = hf_op2(b, "Add", hf_name(b, prefix, ".attn_residual"), y, x);
  const char *second = has(l, GEMMA) ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
  y = before ? norm(b, l, hf_name(b, prefix, second), x, l->width) : x;
  y = feed_forward(b, l, prefix, y, layer);
  if (after) y = norm(b, l, hf_name(b, prefix, ".post_feedforward_layernorm"), y, l->width);
  y = times(b, hf_name(b, prefix, ".mlp_times"), y, l->residual_by);
  return hf_op2(b, "Add", hf_name(b, prefix, ".mlp_residual"), y, x);
}

/* ---- the model -------------------------------------------------------------------------------- */

/* Caps of Gemma 2; null: there is none. */
static double cap_of(hf_build *b, const char *key, double otherwise) {
  return hf_is_null(b, key) ? 0 : hf_real(b, key, otherwise);
}

/* Keys that say how numbers are made and that a kind may not have. */
static void read_rest(hf_build *b, llama *l) {
  l->scale = 1 / sqrt((double)l->head);
  l->embeddings_by = has(l, GEMMA) ? sqrt((double)l->width) : 1;
  l->residual_by = l->logits_over = 1;
  if (has(l, MULTIPLIERS)) {
    l->scale = hf_real(b, "attention_multiplier", 1);
    l->embeddings_by = hf_real(b, "embedding_multiplier", 1);
    l->residual_by = hf_real(b, "residual_multiplier", 1);
    l->logits_over = hf_real(b, "logits_scaling", 1);
  }
  if (has(l, GEMMA)) {
    l->scale = 1 / sqrt(hf_real(b, "query_pre_attn_scalar", 256));
    l->softcap = cap_of(b, "attn_logit_softcapping", 50);
    l->cap = cap_of(b, "final_logit_softcapping", 30);
    if (hf_bool(b, "use_bidirectional_attention", 0))
      hf_refuse(b, "use_bidirectional_attention", "only false is built");
  }
  if (!has(l, ATTENTION_BIAS) && hf_bool(b, "attention_bias", 0))
    hf_refuse(b, "attention_bias", "this model_type has no such key");
  if (!has(l, MLP_BIAS) && hf_bool(b, "mlp_bias", 0))
    hf_refuse(b, "mlp_bias", "this model_type has no such key");
  if (hf_has_key(b, "per_layer_config")) hf_refuse(b, "per_layer_config", "layers that differ are not built");
}

static void read_experts(hf_build *b, llama *l) {
  static const char count[] = "num_local_experts", old[] = "num_experts", chosen[] = "num_experts_per_tok";
  const int mixtral = has(l, MIXTRAL);
  hf_experts *e = &l->experts;
  if (!has(l, EXPERTS)) return;
  e->width = l->width;
  e->inner = mixtral ? l->inner : hf_int(b, "moe_intermediate_size", 1, 1 << 26, 768);
  e->count = hf_int(b, hf_has_key(b, count) ? count : old, mixtral, 1 << 16, mixtral ? 8 : 128);
  if (hf_has_key(b, count) && hf_has_key(b, old) && hf_int(b, old, 0, 1 << 16, 0) != e->count)
    hf_refuse(b, old, "it differs from num_local_experts");
  e->chosen = hf_int(b, chosen, 1, 1 << 16, mixtral ? 2 : 8);
  if (b->rc == BS_OK && e->count > 0 && e->chosen > e->count) hf_refuse(b, chosen, "there are fewer experts");
  e->step = hf_int(b, "decoder_sparse_step", 1, INT32_MAX, 1);
  e->norm = mixtral || hf_bool(b, "norm_topk_prob", 0);
  e->wide = e->numbered = mixtral;
  if (hf_has_key(b, "mlp_only_layers") && hf_count(b, "mlp_only_layers") < 0)
    hf_refuse(b, "mlp_only_layers", "it must be a list");
}

static void read_config(hf_build *b, llama *l) {
  const char *type = hf_text(b, "model_type", NULL);
  l->kind = families;
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(families[i].type, type) == 0) l->kind = &families[i];
  l->prefix = hf_has_weight(b, "model.embed_tokens.weight") ? "model." : "";
  l->width = hf_int(b, "hidden_size", 1, 1 << 24, 0);
  l->inner = hf_int(b, "intermediate_size", 1, 1 << 26, 0);
  l->heads = hf_int(b, "num_attention_heads", 1, 1 << 16, 0);
  const int stated =
      has(l, SOME_TURNED | OUT_BIAS); /* 1: no default, because the family's is another number */
  l->groups = hf_int(b, "num_key_value_heads", 1, l->heads, stated ? 0 : l->heads);
  const int own = l->kind->head > 0 && !hf_is_null(b, "head_dim");
  l->head = hf_int(b, "head_dim", 1, 1 << 16, own ? l->kind->head : l->width / l->heads);
  l->eps = hf_real(b, "rms_norm_eps", l->kind->eps);
  if (b->rc != BS_OK) return;
  if (l->heads % l->groups != 0) hf_refuse(b, "num_key_value_heads", "it must divide num_attention_heads");
  if (!hf_has_key(b, "head_dim") && !own && l->width % l->heads != 0)
    hf_refuse(b, "num_attention_heads", "it must divide hidden_size");
  if (l->head % 2 != 0) hf_refuse(b, "head_dim", "an even width is rotated");
  read_rest(b, l);
  read_experts(b, l);
}

void hf_llama(hf_build *b, int64_t asked) {
  llama l = {0};
  read_config(b, &l);
  const int64_t words = hf_int(b, "vocab_size", 1, INT32_MAX, 0), layers = hf_layers(b, "num_hidden_layers");
  const int64_t rows[2] = {words, l.width};
  const uint32_t embeddings = hf_weight(b, hf_name(b, l.prefix, "embed_tokens.weight"), 2, rows);
  hf_begin(b, hf_int(b, "max_position_embeddings", 1, INT32_MAX, 0), asked);
  hf_rope_read(b, l.head, l.kind->theta, has(&l, WIDE), &l.rope);
  uint32_t x = hf_op2(b, "Gather", "embeddings", embeddings, b->ids);
  x = times(b, "embeddings_scale", x, l.embeddings_by);
  for (int64_t i = 0; b->rc == BS_OK && i < layers; i++) x = block(b, &l, x, i);
  x = norm(b, &l, hf_name(b, l.prefix, "norm"), x, l.width);
  if (l.logits_over != 1) x = hf_op2(b, "Div", "logits_scale", x, hf_number(b, l.logits_over, b->dtype));
  const int tied = hf_bool(b, "tie_word_embeddings", has(&l, GEMMA | TIED));
  if (tied) hf_weights_use(b->weights, "lm_head.weight"); /* a copy of the embeddings */
  hf_end(b, x, tied ? embeddings : hf_weight(b, "lm_head.weight", 2, rows), words, l.cap);
}
