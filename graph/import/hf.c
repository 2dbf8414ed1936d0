/* SPDX-License-Identifier: MIT
 * hf.c - a folder with config.json and safetensors as a source model: the kind of model by "model_type", then
 * its builder. Called by bs_graph_open. */
#include "graph/import/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/import/gguf.h"
#include "graph/import/import.h"

enum { OPSET = 25 }; /* the first whose Attention has windows */

static const struct {
  const char *type;
  void (*build)(hf_build *b, int64_t asked);
} builders[] = {{"gpt2", hf_gpt2},      {"llama", hf_llama},     {"mistral", hf_llama}, {"qwen2", hf_llama},
                {"qwen3", hf_llama},    {"phi3", hf_llama},      {"olmo2", hf_llama},   {"gemma2", hf_llama},
                {"mixtral", hf_llama},  {"qwen3_moe", hf_llama}, {"granite", hf_llama}, {"smollm3", hf_llama},
                {"seed_oss", hf_llama}, {"exaone4", hf_llama}};

static void close_weights(void *weights) {
  hf_weights_close(weights);
  free(weights);
}

static int32_t unchanged(void *weights, bs_error *err) {
  return hf_weights_unchanged(weights, err);
}

static void build_model(hf_build *b, const char *folder, int64_t asked) {
  const char *type = hf_text(b, "model_type", NULL);
  if (b->rc == BS_OK) b->rc = gmodel_set_about(b->model, folder, type, b->err);
  for (size_t i = 0; b->rc == BS_OK && i < sizeof builders / sizeof *builders; i++)
    if (strcmp(builders[i].type, type) == 0) {
      builders[i].build(b, asked);
      return;
    }
  hf_refuse(
      b, "model_type",
      "known: gpt2 llama mistral qwen2 qwen3 phi3 olmo2 gemma2 mixtral qwen3_moe granite smollm3 seed_oss "
      "exaone4; others are read as .onnx");
}

/* Tensors that files of old programs hold and that no model needs: tables that are computed. */
static int is_computed(const char *name) {
  static const char *const ends[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
  const size_t size = strlen(name);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (size >= strlen(ends[i]) && strcmp(name + size - strlen(ends[i]), ends[i]) == 0) return 1;
  return 0;
}

/* Sets the model's warning: the tensors of the folder that are not read, a quantization_config, the note. */
static void warn(hf_build *b) {
  enum { SHOWN = 4 };
  const hf_weights *w = b->weights;
  char text[700] = "";
  size_t at = 0;
  uint32_t unread = 0;
  if (b->rc != BS_OK) return;
  for (uint32_t i = 0; i < w->n_tensors; i++) {
    const char *name = w->tensors[i]->name;
    if (w->read[i] || is_computed(name)) continue;
    if (unread++ < SHOWN)
      at += (size_t)snprintf(text + at, sizeof text - at, "%s%.100s", at > 0 ? ", " : "", name);
  }
  char line[1000] = "";
  at = 0;
  if (unread > 0)
    at = (size_t)snprintf(line, sizeof line, "%u tensor%s of the files %s not read: %s%s", unread,
                          unread == 1 ? "" : "s", unread == 1 ? "is" : "are", text,
                          unread > SHOWN ? ", .." : "");
  if (hf_has_key(b, "quantization_config"))
    at += (size_t)snprintf(line + at, sizeof line - at, "%squantization_config of config.json is not applied",
                           at > 0 ? "; " : "");
  if (b->note != NULL) snprintf(line + at, sizeof line - at, "%s%s", at > 0 ? "; " : "", b->note);
  b->model->warning = gmodel_copy_text(b->model, line, strlen(line));
  if (b->model->warning == NULL)
    b->rc = bs_error_set(b->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the model");
}

int32_t hf_import(const char *path, json_t *config, hf_weights *weights, const bs_graph_options *options,
                  gmodel **out_model, bs_error *err) {
  gmodel *model = NULL;
  int32_t rc = gmodel_new(OPSET, &model, err);
  if (rc != BS_OK) {
    close_weights(weights);
    return rc;
  }
  rc = gmodel_keep(model, weights, close_weights, err);
  if (rc == BS_OK) rc = gmodel_watch(model, weights, unchanged, err);
  if (rc == BS_OK) {
    hf_build b = {
        .model = model, .weights = weights, .config = config, .layers = options->layers, .err = err};
    snprintf(b.config_path, sizeof b.config_path, weights->gguf != NULL ? "%.140s" : "%.140s/config.json",
             path);
    b.slots = options->slots;
    b.last_logits = options->last_logits;
    if (weights->gguf != NULL) gguf_settings(&b);
    if (options->cache_dtype != 0) b.cache_dtype = options->cache_dtype;
    model->cache_dtype = options->cache_dtype;
    model->shapes = weights->shapes != NULL;
    if (b.cache_dtype != 0 && b.cache_dtype != BS_F32 && b.cache_dtype != BS_F16 && b.cache_dtype != BS_BF16)
      b.rc = bs_error_set(err, BS_INVALID_ARGUMENT, "BS-HF-CACHE", "a cache of %s: f32, f16 or bf16 only",
                          bs_dtype_name(b.cache_dtype));
    build_model(&b, path, options->cache_tokens);
    if (options->layers == 0) warn(&b);
    rc = b.rc;
  }
  if (rc == BS_OK) rc = hf_weights_unchanged(weights, err);
  if (rc == BS_OK)
    *out_model = model;
  else
    gmodel_free(model);
  return rc;
}

static int32_t open_weights(const char *folder, const bs_graph_options *o, hf_weights *out, bs_error *err) {
  if (o->shapes == 0 || hf_weights_in(folder)) return hf_weights_open(folder, out, err);
  return hf_shapes_open(out, err);
}

int32_t import_folder(const char *path, const bs_graph_options *options, gmodel **out_model, bs_error *err) {
  bs_graph_options o = {0};
  if (options != NULL) memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  bs_error_clear(err);
  json_t *config = hf_json(path, "config.json", err);
  if (config == NULL) {
    if (err != NULL && err->hint[0] == '\0')
      bs_error_hint(err, "a model is a file .onnx or .gguf, or a folder with config.json and safetensors");
    return err != NULL && err->code != BS_OK ? err->code : BS_INPUT;
  }
  hf_weights *weights = calloc(1, sizeof *weights);
  int32_t rc = weights == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the model")
                               : open_weights(path, &o, weights, err);
  if (rc == BS_OK)
    rc = hf_import(path, config, weights, &o, out_model, err);
  else
    free(weights);
  json_decref(config);
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", path);
  return rc;
}
