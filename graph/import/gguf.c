/* SPDX-License-Identifier: MIT
 * gguf.c - a GGUF file as a source model: tables of its names and keys, and what the builders of folders read
 * (gguf.h). Called by bs_graph_open. */
#include "graph/import/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/gguf_quant.h"
#include "graph/import/import.h"

/* ---- tables ----------------------------------------------------------------------------------- */

/* The beginnings of names: of a folder, of the file. */
typedef struct name_pair {
  const char *folder, *file;
} name_pair;

/* Models of one builder. */
typedef struct gguf_family {
  const char *layers;        /* "model.layers." followed by a number is "blk." followed by that number */
  const name_pair *tensors;  /* outside of the layers */
  const name_pair *in_layer; /* behind the number of the layer */
  int is_gpt2;
} gguf_family;

static const gguf_family llama = {.layers = "model.layers.",
                                  .tensors = (const name_pair[]){{"model.embed_tokens.", "token_embd."},
                                                                 {"model.norm.", "output_norm."},
                                                                 {"lm_head.", "output."},
                                                                 {0}},
                                  .in_layer = (const name_pair[]){{"input_layernorm.", "attn_norm."},
                                                                  {"self_attn.q_proj.", "attn_q."},
                                                                  {"self_attn.k_proj.", "attn_k."},
                                                                  {"self_attn.v_proj.", "attn_v."},
                                                                  {"self_attn.o_proj.", "attn_output."},
                                                                  {"self_attn.q_norm.", "attn_q_norm."},
                                                                  {"self_attn.k_norm.", "attn_k_norm."},
                                                                  {"post_attention_layernorm.", "ffn_norm."},
                                                                  {"mlp.gate_proj.", "ffn_gate."},
                                                                  {"mlp.up_proj.", "ffn_up."},
                                                                  {"mlp.down_proj.", "ffn_down."},
                                                                  {0}}};
static const gguf_family gpt2 = {.layers = "transformer.h.",
                                 .tensors = (const name_pair[]){{"transformer.wte.", "token_embd."},
                                                                {"transformer.wpe.", "position_embd."},
                                                                {"transformer.ln_f.", "output_norm."},
                                                                {"lm_head.", "output."},
                                                                {0}},
                                 .in_layer = (const name_pair[]){{"ln_1.", "attn_norm."},
                                                                 {"attn.c_attn.", "attn_qkv."},
                                                                 {"attn.c_proj.", "attn_output."},
                                                                 {"ln_2.", "ffn_norm."},
                                                                 {"mlp.c_fc.", "ffn_up."},
                                                                 {"mlp.c_proj.", "ffn_down."},
                                                                 {0}},
                                 .is_gpt2 = 1};

/* pairs: the rows of Q and K lie as pairs that are turned together, and not as two halves of a head. */
static const struct {
  const char *arch;
  const gguf_family *family;
  int pairs;
} archs[] = {{"llama", &llama, 1}, {"qwen2", &llama, 0}, {"qwen3", &llama, 0}, {"gpt2", &gpt2, 0}};
static const char known_archs[] = "llama (Mistral, SmolLM too) qwen2 qwen3 gpt2";

/* Keys behind the architecture's name, and the keys of config.json. NULL: the family's builder reads none. */
enum key_kind { KEY_INT, KEY_REAL, KEY_ZERO /* only 0 is built */, KEY_UNUSED };
static const struct {
  const char *key, *llama, *gpt2;
  enum key_kind kind;
} keys[] = {
    {"context_length", "max_position_embeddings", "n_positions", KEY_INT},
    {"embedding_length", "hidden_size", "n_embd", KEY_INT},
    {"block_count", "num_hidden_layers", "n_layer", KEY_INT},
    {"feed_forward_length", "intermediate_size", "n_inner", KEY_INT},
    {"attention.head_count", "num_attention_heads", "n_head", KEY_INT},
    {"attention.head_count_kv", "num_key_value_heads", NULL, KEY_INT},
    {"attention.key_length", "head_dim", NULL, KEY_INT},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", NULL, KEY_REAL},
    {"attention.layer_norm_epsilon", NULL, "layer_norm_epsilon", KEY_REAL},
    {"attention.sliding_window", "sliding_window", NULL, KEY_INT},
    {"rope.freq_base", "rope_theta", NULL, KEY_REAL},
    {"rope.scaling.factor", "rope_scaling.factor", NULL, KEY_REAL},
    {"rope.scaling.original_context_length", "rope_scaling.original_max_position_embeddings", NULL, KEY_INT},
    {"expert_count", NULL, NULL, KEY_ZERO},
    {"expert_used_count", NULL, NULL, KEY_ZERO},
    {"attention.max_alibi_bias", NULL, NULL, KEY_ZERO},
    {"attention.clamp_kqv", NULL, NULL, KEY_ZERO},
    {"use_parallel_residual", NULL, NULL, KEY_ZERO},
    {"attention.value_length", NULL, NULL, KEY_UNUSED}, /* shapes of tensors are checked */
    {"rope.dimension_count", NULL, NULL, KEY_UNUSED},   /* set_heads reads it */
    {"rope.scaling.type", NULL, NULL, KEY_UNUSED},      /* the same */
    {"rope.scaling.finetuned", NULL, NULL, KEY_UNUSED},
    {"vocab_size", NULL, NULL, KEY_UNUSED}, /* the rows of token_embd count */
    {"tensor_data_layout", NULL, NULL, KEY_UNUSED},
    {"pooling_type", NULL, NULL, KEY_UNUSED}};
enum { KEYS = sizeof keys / sizeof *keys };

/* ---- names ------------------------------------------------------------------------------------ */

static const char *join(char buffer[GGUF_NAME], const char *a, size_t a_size, const char *b, const char *c) {
  snprintf(buffer, GGUF_NAME, "%.*s%s%s", (int)a_size, a, b, c);
  return buffer;
}

static const name_pair *beginning(const name_pair *pairs, const char *name) {
  while (pairs->folder != NULL && strncmp(name, pairs->folder, strlen(pairs->folder)) != 0) pairs++;
  return pairs->folder != NULL ? pairs : NULL;
}

const char *gguf_tensor_name(const hf_gguf *g, const char *name, char buffer[GGUF_NAME]) {
  const size_t layers = strlen(g->family->layers);
  const name_pair *pair = beginning(g->family->tensors, name);
  if (pair != NULL) return join(buffer, "", 0, pair->file, name + strlen(pair->folder));
  if (strncmp(name, g->family->layers, layers) != 0) return name;
  char layer[32];
  const char *number = name + layers, *rest = strchr(number, '.');
  if (rest == NULL || rest - number > 10) return name;
  pair = beginning(g->family->in_layer, ++rest);
  if (pair == NULL) return name;
  snprintf(layer, sizeof layer, "blk.%.*s", (int)(rest - number), number);
  return join(buffer, layer, strlen(layer), pair->file, rest + strlen(pair->folder));
}

static const char *folder_key(const hf_gguf *g, int i) {
  return g->family->is_gpt2 ? keys[i].gpt2 : keys[i].llama;
}

const char *gguf_key_name(const hf_gguf *g, const char *name, char buffer[GGUF_NAME]) {
  for (int i = 0; i < KEYS; i++)
    if (folder_key(g, i) != NULL && strcmp(folder_key(g, i), name) == 0)
      return join(buffer, g->arch, strlen(g->arch), ".", keys[i].key);
  return name;
}

/* ---- keys ------------------------------------------------------------------------------------- */

static const bs_gguf_key *find_key(const hf_gguf *g, const char *key) {
  char name[GGUF_NAME];
  return bs_gguf_find_key(&g->file, join(name, g->arch, strlen(g->arch), ".", key));
}

/* The shortest decimal number that is this f32: 1e-06 and not 9.99999997e-07, as in config.json. */
static double decimal(double value) {
  char text[40];
  double near = value;
  for (int digits = 1; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    near = strtod(text, NULL);
    if ((float)near == (float)value) break;
  }
  return near;
}

/* Sets a key of config.json; "object.key" is one of an object. */
static int set(json_t *config, const char *name, json_t *value) {
  const char *dot = strchr(name, '.');
  if (dot == NULL) return json_object_set_new(config, name, value);
  char first[40];
  snprintf(first, sizeof first, "%.*s", (int)(dot - name), name);
  if (json_object_get(config, first) == NULL && json_object_set_new(config, first, json_object()) != 0)
    return -1;
  return json_object_set_new(json_object_get(config, first), dot + 1, value);
}

static int32_t bad_key(const bs_gguf_key *key, const char *want, bs_error *err) {
  return bs_error_set(err, BS_INPUT, "BS-GGUF-KEY", "key '%.100s': %s", key->name, want);
}

static int32_t set_key(const hf_gguf *g, int i, json_t *config, bs_error *err) {
  const bs_gguf_key *key = find_key(g, keys[i].key);
  const char *name = folder_key(g, i);
  int64_t whole = 0;
  double real = 0;
  if (key == NULL || keys[i].kind == KEY_UNUSED) return BS_OK;
  if (key->is_array) return bad_key(key, "one value for all layers is read, and no array", err);
  if (keys[i].kind == KEY_ZERO) {
    if ((!bs_gguf_int(key, 0, &whole) && !bs_gguf_real(key, 0, &real)) || whole != 0 || real != 0)
      return bad_key(key, "only 0 is built", err);
    return BS_OK;
  }
  if (name == NULL) return bad_key(key, "it is not known for this architecture", err);
  if (keys[i].kind == KEY_INT ? !bs_gguf_int(key, 0, &whole) : !bs_gguf_real(key, 0, &real))
    return bad_key(key, keys[i].kind == KEY_INT ? "it must be a whole number" : "it must be a number", err);
  json_t *value = keys[i].kind == KEY_INT ? json_integer(whole) : json_real(decimal(real));
  return set(config, name, value) == 0 ? BS_OK : model_no_memory(err);
}

/* The columns of a head, how many of them are turned, and a scaling rule. */
static int32_t set_heads(const hf_gguf *g, json_t *config, bs_error *err) {
  const bs_gguf_key *type = find_key(g, "rope.scaling.type"), *turned = find_key(g, "rope.dimension_count");
  bs_span text = {"none", 4};
  int64_t width = 0;
  int bad = 0;
  if (type != NULL && !bs_gguf_text(type, &text)) return bad_key(type, "it must be a text", err);
  if (turned != NULL && !bs_gguf_int(turned, 0, &width))
    return bad_key(turned, "it must be a whole number", err);
  if (bs_span_is(text, "none") || bs_gguf_find_tensor(&g->file, "rope_freqs.weight") != NULL)
    json_object_del(config, "rope_scaling"); /* the tensor has the rule's factors */
  else
    bad = set(config, "rope_scaling.rope_type", json_stringn(text.data, (size_t)text.size));
  const int64_t heads = json_integer_value(json_object_get(config, "num_attention_heads")),
                all = json_integer_value(json_object_get(config, "hidden_size"));
  if (json_object_get(config, "head_dim") == NULL && heads > 0 && all % heads == 0)
    bad |= set(config, "head_dim", json_integer(all / heads));
  const int64_t columns = json_integer_value(json_object_get(config, "head_dim"));
  if (width > 0 && columns > 0 && width != columns)
    bad |= set(config, "partial_rotary_factor", json_real((double)width / (double)columns));
  return bad == 0 ? BS_OK : model_no_memory(err);
}

/* A key of the architecture that no row knows could change what the model computes. */
static int32_t refuse_unknown(const hf_gguf *g, bs_error *err) {
  const size_t size = strlen(g->arch);
  for (uint32_t k = 0; k < g->file.n_keys; k++) {
    const char *name = g->file.keys[k].name;
    int i = 0;
    if (strncmp(name, g->arch, size) != 0 || name[size] != '.') continue;
    while (i < KEYS && strcmp(name + size + 1, keys[i].key) != 0) i++;
    if (i == KEYS) return bad_key(&g->file.keys[k], "it is not known for this architecture", err);
  }
  const bs_gguf_key *parts = bs_gguf_find_key(&g->file, "split.count");
  int64_t count = 0;
  if (parts == NULL || (bs_gguf_int(parts, 0, &count) && count <= 1)) return BS_OK;
  bad_key(parts, "a model in several files is not read", err);
  bs_error_hint(err, "llama-gguf-split --merge makes one file of them");
  return BS_INPUT;
}

json_t *gguf_config(const hf_gguf *g, bs_error *err) {
  const bs_gguf_tensor *table = bs_gguf_find_tensor(&g->file, "token_embd.weight");
  json_t *config = json_object();
  int bad = set(config, "model_type", json_string(g->arch));
  bad |= set(config, g->family->is_gpt2 ? "activation_function" : "hidden_act",
             json_string(g->family->is_gpt2 ? "gelu_new" : "silu"));
  bad |= set(config, "tie_word_embeddings",
             json_boolean(bs_gguf_find_tensor(&g->file, "output.weight") == NULL));
  if (table != NULL) bad |= set(config, "vocab_size", json_integer(table->dims[0]));
  if (find_key(g, "attention.sliding_window") != NULL) {
    bad |= set(config, "use_sliding_window", json_true());
    if (strcmp(g->arch, "llama") == 0) bad |= set(config, "model_type", json_string("mistral"));
  }
  int32_t rc = bad != 0 ? model_no_memory(err) : refuse_unknown(g, err);
  for (int i = 0; rc == BS_OK && i < KEYS; i++) rc = set_key(g, i, config, err);
  if (rc == BS_OK && !g->family->is_gpt2) rc = set_heads(g, config, err);
  if (rc == BS_OK) return config;
  json_decref(config);
  return NULL;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static int32_t set_arch(hf_gguf *g, bs_error *err) {
  const bs_gguf_key *key = bs_gguf_find_key(&g->file, "general.architecture");
  bs_span arch = {"", 0};
  if (key == NULL || !bs_gguf_text(key, &arch))
    return bs_error_set(err, BS_INPUT, "BS-GGUF-ARCH", "there is no text general.architecture");
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
    if (bs_span_is(arch, archs[i].arch)) {
      snprintf(g->arch, sizeof g->arch, "%s", archs[i].arch);
      g->family = archs[i].family;
      return BS_OK;
    }
  bs_error_set(err, BS_INPUT, "BS-GGUF-ARCH", "the architecture '%.*s' is not built", BS_SPAN_PRINT(arch));
  bs_error_hint(err, "known: %s", known_archs);
  return BS_INPUT;
}

static uint32_t dtype_of(const bs_gguf_tensor *t) {
  switch (t->type->number) {
    case BS_GGUF_F32:
      return BS_F32;
    case BS_GGUF_F16:
      return BS_F16;
    case BS_GGUF_BF16:
      return BS_BF16;
    default:
      return 0;
  }
}

static int32_t index_tensors(hf_gguf *g, hf_weights *w, bs_error *err) {
  const uint32_t n = g->file.n_tensors;
  g->tensors = calloc(n + 1u, sizeof *g->tensors);
  w->spans = calloc(n + 1u, sizeof *w->spans);
  w->tensors = calloc(n + 1u, sizeof *w->tensors);
  w->read = calloc(n + 1u, 1);
  if (g->tensors == NULL || w->spans == NULL || w->tensors == NULL || w->read == NULL)
    return model_no_memory(err);
  for (uint32_t i = 0; i < n; i++) {
    const bs_gguf_tensor *from = &g->file.tensors[i];
    bs_st_tensor *to = &g->tensors[i];
    *to = (bs_st_tensor){.name = (char *)(uintptr_t)from->name,
                         .dtype = dtype_of(from),
                         .rank = from->rank,
                         .data = from->data,
                         .bytes = from->bytes,
                         .offset = from->offset,
                         .type_name = from->type->name};
    memcpy(to->dims, from->dims, sizeof from->dims);
    w->spans[i] = from->span;
    w->tensors[i] = to;
    w->n_tensors++;
    if (bs_names_add(&w->by_name, &w->spans[i], i) < 0) return model_no_memory(err);
  }
  return BS_OK;
}

int32_t gguf_weights_open(const char *path, hf_weights *w, bs_error *err) {
  memset(w, 0, sizeof *w);
  hf_gguf *g = calloc(1, sizeof *g);
  if (g == NULL) return model_no_memory(err);
  int32_t rc = bs_gguf_open(path, &g->file, err);
  if (rc != BS_OK) {
    free(g);
    return rc;
  }
  w->gguf = g;
  g->path = strdup(path);
  rc = g->path == NULL ? model_no_memory(err) : set_arch(g, err);
  if (rc == BS_OK) rc = index_tensors(g, w, err);
  if (rc != BS_OK) hf_weights_close(w);
  return rc;
}

int32_t gguf_weights_unchanged(const hf_gguf *g, bs_error *err) {
  return bs_map_unchanged(&g->file.map, g->path, err);
}

void gguf_weights_close(hf_gguf *g) {
  bs_gguf_close(&g->file);
  free(g->tensors);
  free(g->path);
  free(g);
}

/* Activations have the dtype of the products' weights where all have one, else f32, and beside quantised
 * weights the cache is f16, as in llama.cpp, which keeps the table of positions in f32. */
void gguf_settings(hf_build *b) {
  const hf_gguf *g = b->weights->gguf;
  b->straight = 1;
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
    if (strcmp(archs[i].arch, g->arch) == 0) b->pairs = archs[i].pairs;
  for (uint32_t i = 0; i < g->file.n_tensors; i++) {
    const bs_st_tensor *t = &g->tensors[i];
    if (t->dtype == 0) b->cache_dtype = BS_F16;
  }
  for (uint32_t i = 0; i < g->file.n_tensors; i++) {
    const bs_st_tensor *t = &g->tensors[i];
    if (t->rank < 2 || strcmp(t->name, "position_embd.weight") == 0) continue;
    if (t->dtype == 0 || (b->dtype != 0 && t->dtype != b->dtype)) {
      b->dtype = BS_F32;
      return;
    }
    b->dtype = t->dtype;
  }
}

uint32_t gguf_constant(hf_build *b, const char *name, const bs_st_tensor *tensor) {
  const bs_gguf_tensor *t = bs_gguf_find_tensor(&b->weights->gguf->file, tensor->name);
  uint32_t out = GMODEL_NONE;
  b->rc = bs_gguf_check_type(t, b->err);
  if (b->rc != BS_OK) return GMODEL_NONE;
  bs_quant quant;
  bs_gguf_rows *rows = gmodel_alloc(b->model, sizeof *rows);
  if (rows != NULL && bs_gguf_quant(t, rows, &quant)) {
    /* llama.cpp takes X in bytes too. */
    b->rc = gmodel_quant(b->model, name, &quant, t->data, t->bytes, 1, &out, b->err);
    return out;
  }
  uint64_t bytes = 0;
  float *data = gmodel_shape_bytes(BS_F32, t->rank, t->dims, &bytes) ? gmodel_alloc(b->model, bytes) : NULL;
  if (data == NULL) {
    b->rc = model_no_memory(b->err);
    return GMODEL_NONE;
  }
  bs_gguf_dequantize(t->type->number, t->data, bytes / sizeof *data, data);
  b->rc = gmodel_constant(b->model, name, BS_F32, t->rank, t->dims, data, bytes, 0, &out, b->err);
  return hf_cast(b, name, out, BS_F32);
}

int32_t import_gguf(const char *path, const bs_graph_options *options, gmodel **out_model, bs_error *err) {
  bs_graph_options o = {0};
  if (options != NULL) memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  bs_error_clear(err);
  hf_weights *weights = calloc(1, sizeof *weights);
  if (weights == NULL) return model_no_memory(err);
  int32_t rc = gguf_weights_open(path, weights, err);
  if (rc != BS_OK) {
    free(weights);
    return rc;
  }
  json_t *config = gguf_config(weights->gguf, err);
  if (config == NULL) {
    hf_weights_close(weights);
    free(weights);
    return err != NULL && err->code != BS_OK ? err->code : BS_INPUT;
  }
  rc = hf_import(path, config, weights, &o, out_model, err);
  json_decref(config);
  return rc;
}
