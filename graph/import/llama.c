/* SPDX-License-Identifier: MIT
 * llama.c - Llama and its kin of a folder (Llama, Mistral, Qwen2, Qwen3): root-mean-square norms, rotary
 * positions, grouped heads, a gated MLP. Qwen3 also normalises each head of Q and K. Called by hf.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/hf.h"

enum { MAX_TABLE = 1 << 24 }; /* 131072 tokens of heads of 256 */

typedef struct llama {
  int64_t width, inner, heads, groups, head; /* head: width of one */
  double eps;
  int norms_heads;
  uint32_t cosines, sines, places; /* of the rotation; places: i64 [1, tokens] */
  const char *prefix;              /* of all names: "model." or "" */
} llama;

/* ---- rotary positions ------------------------------------------------------------------------- */

/* The path of a rotation's key in config.json: in rope_parameters (transformers 5), in rope_scaling, or at
 * the top. */
static const char *rope_key(hf_build *b, const char *key) {
  static const char *const objects[2] = {"rope_parameters.", "rope_scaling."};
  for (int i = 0; i < 2; i++) {
    const char *name = hf_name(b, objects[i], key);
    if (hf_has_key(b, name)) return name;
  }
  return key;
}

static const char *rope_type(hf_build *b, const char **out_key) {
  *out_key = rope_key(b, "rope_type");
  if (!hf_has_key(b, *out_key)) *out_key = rope_key(b, "type");
  return hf_text(b, *out_key, "default");
}

/* Llama 3: long waves are stretched by the factor, short ones stay, those between are mixed. In f32, as the
 * original computes it. */
static float stretched(float frequency, float factor, float low, float high, float old) {
  const float wave = (float)(2 * acos(-1.0)) / frequency;
  if (wave > old / low) return frequency / factor;
  if (wave < old / high) return frequency;
  const float mix = (old / wave - low) / (high - low);
  return (1 - mix) * frequency / factor + mix * frequency;
}

/* Angles are rounded to f32 where the original rounds them, so that late positions agree. */
static void fill_tables(const llama *l, int64_t places, const float *frequencies, float *cosines,
                        float *sines) {
  const int64_t half = l->head / 2;
  for (int64_t t = 0; t < places; t++)
    for (int64_t i = 0; i < half; i++) {
      const float angle = (float)t * frequencies[i];
      cosines[t * half + i] = (float)cos((double)angle);
      sines[t * half + i] = (float)sin((double)angle);
    }
}

static void find_frequencies(hf_build *b, const llama *l, float *out) {
  const char *key, *type = rope_type(b, &key);
  const double base = hf_real(b, rope_key(b, "rope_theta"), 10000);
  const int scaled = strcmp(type, "llama3") == 0, linear = strcmp(type, "linear") == 0;
  const double factor = scaled || linear ? hf_real(b, rope_key(b, "factor"), 0) : 1;
  double low = 1, high = 4, old = 1;
  if (scaled) {
    low = hf_real(b, rope_key(b, "low_freq_factor"), 0);
    high = hf_real(b, rope_key(b, "high_freq_factor"), 0);
    old = hf_real(b, rope_key(b, "original_max_position_embeddings"), 0);
    if (b->rc == BS_OK && high <= low)
      hf_refuse(b, rope_key(b, "high_freq_factor"), "it must be above low_freq_factor");
  } else if (!linear && strcmp(type, "default") != 0) {
    hf_refuse(b, key, "known: default linear llama3");
  }
  if (hf_real(b, rope_key(b, "partial_rotary_factor"), 1) != 1)
    hf_refuse(b, rope_key(b, "partial_rotary_factor"), "only 1 is built");
  for (int64_t i = 0; b->rc == BS_OK && i < l->head / 2; i++) {
    const float power = powf((float)base, (float)(2 * i) / (float)l->head);
    out[i] = 1 / power;
    if (scaled) out[i] = stretched(out[i], (float)factor, (float)low, (float)high, (float)old);
    if (linear) out[i] = (float)((double)out[i] / factor);
  }
}

static uint32_t table(hf_build *b, const char *name, const int64_t *dims, const float *data) {
  uint32_t out = GMODEL_NONE;
  const uint64_t bytes = (uint64_t)dims[0] * (uint64_t)dims[1] * sizeof *data;
  if (b->rc == BS_OK) b->rc = gmodel_constant(b->model, name, BS_F32, 2, dims, data, bytes, 0, &out, b->err);
  return hf_cast(b, name, out, BS_F32);
}

static void rotary_tables(hf_build *b, llama *l) {
  const int64_t dims[2] = {b->cache, l->head / 2};
  if (b->rc != BS_OK) return;
  if (dims[0] > MAX_TABLE / dims[1]) {
    b->rc = bs_error_set(b->err, BS_INPUT, "BS-HF-CACHE",
                         "a cache of %lld tokens needs rotary tables of more than %d numbers",
                         (long long)dims[0], MAX_TABLE);
    bs_error_hint(b->err, "ask for fewer tokens of the cache");
    return;
  }
  const uint64_t bytes = (uint64_t)dims[0] * (uint64_t)dims[1] * sizeof(float);
  float *frequencies = gmodel_alloc(b->model, (uint64_t)dims[1] * sizeof(float));
  float *cosines = gmodel_alloc(b->model, bytes), *sines = gmodel_alloc(b->model, bytes);
  if (frequencies == NULL || cosines == NULL || sines == NULL) {
    b->rc = bs_error_set(b->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the rotary tables");
    return;
  }
  find_frequencies(b, l, frequencies);
  if (b->rc != BS_OK) return;
  fill_tables(l, b->cache, frequencies, cosines, sines);
  l->cosines = table(b, "rotary_cos", dims, cosines);
  l->sines = table(b, "rotary_sin", dims, sines);
  l->places = hf_places(b);
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
  if (l->norms_heads) y = norm(b, l, hf_name(b, name, "_norm"), y, l->head);
  const uint32_t in[4] = {y, l->cosines, l->sines, l->places};
  return hf_op(b, "RotaryEmbedding", hf_name(b, name, "_rope"), in, 4, NULL, 0);
}

static uint32_t attention(hf_build *b, const llama *l, const char *prefix, uint32_t x) {
  const uint32_t q = rotated(b, l, prefix, ".q", x, l->heads), k = rotated(b, l, prefix, ".k", x, l->groups);
  const uint32_t v = hf_linear(b, hf_name(b, prefix, ".v_proj"), x, l->width, l->groups * l->head, 0);
  const uint32_t y =
      hf_attention(b, prefix, q, k, hf_heads(b, hf_name(b, prefix, ".v"), v, l->groups, l->head), l->groups,
                   l->head, 1 / sqrt((double)l->head));
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
  const uint32_t seen = attention(b, l, hf_name(b, prefix, ".self_attn"),
                                  norm(b, l, hf_name(b, prefix, ".input_layernorm"), x, l->width));
  x = hf_op2(b, "Add", hf_name(b, prefix, ".attn_residual"), seen, x);
  const uint32_t thought = mlp(b, l, hf_name(b, prefix, ".mlp"),
                               norm(b, l, hf_name(b, prefix, ".post_attention_layernorm"), x, l->width));
  return hf_op2(b, "Add", hf_name(b, prefix, ".mlp_residual"), thought, x);
}

static void read_config(hf_build *b, llama *l) {
  l->prefix = hf_has_weight(b, "model.embed_tokens.weight") ? "model." : "";
  l->norms_heads = strcmp(hf_text(b, "model_type", NULL), "qwen3") == 0;
  l->width = hf_int(b, "hidden_size", 1, 1 << 24, 0);
  l->inner = hf_int(b, "intermediate_size", 1, 1 << 26, 0);
  l->heads = hf_int(b, "num_attention_heads", 1, 1 << 16, 0);
  l->groups = hf_int(b, "num_key_value_heads", 1, l->heads, l->heads);
  l->head = hf_int(b, "head_dim", 1, 1 << 16, l->width / l->heads);
  l->eps = hf_real(b, "rms_norm_eps", 1e-6);
  if (b->rc != BS_OK) return;
  if (l->heads % l->groups != 0) hf_refuse(b, "num_key_value_heads", "it must divide num_attention_heads");
  if (!hf_has_key(b, "head_dim") && l->width % l->heads != 0)
    hf_refuse(b, "num_attention_heads", "it must divide hidden_size");
  if (l->head % 2 != 0) hf_refuse(b, "head_dim", "an even width is rotated");
}

/* Refuses a sliding window that is shorter than the cache. A window that no layer uses does not count.
 * layer_types lists the layers that use it; without it those of Qwen from max_window_layers on do. */
static void check_window(hf_build *b, int64_t layers) {
  const int mistral = strcmp(hf_text(b, "model_type", NULL), "mistral") == 0;
  const int listed = hf_list_has(b, "layer_types", "sliding_attention");
  const int64_t first = mistral ? 0 : hf_int(b, "max_window_layers", 0, INT32_MAX, 0);
  const int used = hf_bool(b, "use_sliding_window", mistral) && (listed >= 0 ? listed : first < layers);
  if (used && hf_has_key(b, "sliding_window") && hf_int(b, "sliding_window", 1, INT32_MAX, 0) < b->cache)
    hf_refuse(b, "sliding_window",
              "windows shorter than the cache are not built; ask for fewer cache tokens");
}

void hf_llama(hf_build *b, int64_t asked) {
  llama l = {0};
  read_config(b, &l);
  const int64_t words = hf_int(b, "vocab_size", 1, INT32_MAX, 0), layers = hf_layers(b, "num_hidden_layers");
  const int64_t rows[2] = {words, l.width};
  const uint32_t embeddings = hf_weight(b, hf_name(b, l.prefix, "embed_tokens.weight"), 2, rows);
  hf_begin(b, hf_int(b, "max_position_embeddings", 1, INT32_MAX, 0), asked);
  check_window(b, layers);
  rotary_tables(b, &l);
  uint32_t x = hf_op2(b, "Gather", "embeddings", embeddings, b->ids);
  for (int64_t i = 0; b->rc == BS_OK && i < layers; i++) x = block(b, &l, x, i);
  x = norm(b, &l, hf_name(b, l.prefix, "norm"), x, l.width);
  const int tied = hf_bool(b, "tie_word_embeddings", 0);
  if (tied) hf_weights_use(b->weights, "lm_head.weight"); /* a copy of the embeddings */
  hf_end(b, x, tied ? embeddings : hf_weight(b, "lm_head.weight", 2, rows), words);
}
