/* SPDX-License-Identifier: MIT
 * gguf.c - a GGUF file as a source model, with what the builders of folders read (gguf.h). Called by
 * bs_graph_open. */
#include "graph/import/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/gguf_quant.h"
#include "graph/import/import.h"

/* ---- names ------------------------------------------------------------------------------------ */

static const char *join(char buffer[GGUF_NAME], const char *a, const char *b, const char *c) {
  snprintf(buffer, GGUF_NAME, "%s%s%s", a, b, c);
  return buffer;
}

const char *gguf_tensor_name(const hf_gguf *g, const char *name, char buffer[GGUF_NAME]) {
  return bs_gguf_tensor_name(g->arch->family, name, buffer, GGUF_NAME);
}

static const char *folder_key(const hf_gguf *g, const bs_gguf_config_key *key) {
  return g->arch->family->is_gpt2 ? key->gpt2 : key->llama;
}

const char *gguf_key_name(const hf_gguf *g, const char *name, char buffer[GGUF_NAME]) {
  for (const bs_gguf_config_key *k = bs_gguf_config_keys; k->key != NULL; k++)
    if (folder_key(g, k) != NULL && strcmp(folder_key(g, k), name) == 0)
      return join(buffer, g->arch->name, ".", k->key);
  return name;
}

/* ---- keys ------------------------------------------------------------------------------------- */

static const bs_gguf_key *find_key(const hf_gguf *g, const char *key) {
  char name[GGUF_NAME];
  return bs_gguf_find_key(&g->file, join(name, g->arch->name, ".", key));
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

static int32_t set_key(const hf_gguf *g, const bs_gguf_config_key *row, json_t *config, bs_error *err) {
  const bs_gguf_key *key = find_key(g, row->key);
  const char *name = folder_key(g, row);
  int64_t whole = 0;
  double real = 0;
  if (key == NULL || row->kind == BS_GGUF_CONFIG_UNUSED) return BS_OK;
  if (key->is_array) return bad_key(key, "one value for all layers is read, and no array", err);
  if (row->kind == BS_GGUF_CONFIG_ZERO) {
    if ((!bs_gguf_int(key, 0, &whole) && !bs_gguf_real(key, 0, &real)) || whole != 0 || real != 0)
      return bad_key(key, "only 0 is built", err);
    return BS_OK;
  }
  if (name == NULL) return bad_key(key, "it is not known for this architecture", err);
  if (row->kind == BS_GGUF_CONFIG_INT ? !bs_gguf_int(key, 0, &whole) : !bs_gguf_real(key, 0, &real))
    return bad_key(key, row->kind == BS_GGUF_CONFIG_INT ? "it must be a whole number" : "it must be a number",
                   err);
  json_t *value = row->kind == BS_GGUF_CONFIG_INT ? json_integer(whole) : json_real(decimal(real));
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
  const size_t size = strlen(g->arch->name);
  for (uint32_t k = 0; k < g->file.n_keys; k++) {
    const char *name = g->file.keys[k].name;
    const bs_gguf_config_key *row = bs_gguf_config_keys;
    if (strncmp(name, g->arch->name, size) != 0 || name[size] != '.') continue;
    while (row->key != NULL && strcmp(name + size + 1, row->key) != 0) row++;
    if (row->key == NULL) return bad_key(&g->file.keys[k], "it is not known for this architecture", err);
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
  int bad = set(config, "model_type", json_string(g->arch->name));
  bad |= set(config, g->arch->family->is_gpt2 ? "activation_function" : "hidden_act",
             json_string(g->arch->family->is_gpt2 ? "gelu_new" : "silu"));
  bad |= set(config, "tie_word_embeddings",
             json_boolean(bs_gguf_find_tensor(&g->file, "output.weight") == NULL));
  if (table != NULL) bad |= set(config, "vocab_size", json_integer(table->dims[0]));
  if (find_key(g, "attention.sliding_window") != NULL) {
    bad |= set(config, "use_sliding_window", json_true());
    if (strcmp(g->arch->name, "llama") == 0) bad |= set(config, "model_type", json_string("mistral"));
  }
  int32_t rc = bad != 0 ? model_no_memory(err) : refuse_unknown(g, err);
  for (const bs_gguf_config_key *k = bs_gguf_config_keys; rc == BS_OK && k->key != NULL; k++)
    rc = set_key(g, k, config, err);
  if (rc == BS_OK && !g->arch->family->is_gpt2) rc = set_heads(g, config, err);
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
  g->arch = bs_gguf_arch_of(arch);
  if (g->arch != NULL) return BS_OK;
  bs_error_set(err, BS_INPUT, "BS-GGUF-ARCH", "the architecture '%.*s' is not built", BS_SPAN_PRINT(arch));
  bs_error_hint(err, "known: %s", BS_GGUF_ARCHS);
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

/* Activations have the dtype of the products' weights if all weights have the same, else f32. The table of
 * positions does not count: llama.cpp keeps it in f32. If a weight is quantised, the cache is f16, as in
 * llama.cpp. */
void gguf_settings(hf_build *b) {
  const hf_gguf *g = b->weights->gguf;
  b->straight = 1;
  b->pairs = g->arch->pairs;
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
