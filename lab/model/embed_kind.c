/* SPDX-License-Identifier: MIT
 * embed_kind.c - reads the files of sentence-transformers: the modules after the model, the pooling, and the
 * most tokens of a text. A module or pooling that is not served is refused by name. Called by embed.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/model/embed.h"
#include "lab/model/text_file.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a path");
}

static int32_t unknown(bs_error *err, const char *what, const char *name) {
  return bs_error_set(err, BS_UNSUPPORTED, "BS-EMBED-KIND", "%s is '%.100s', which is not served", what,
                      name);
}

/* FOLDER/NAME; NULL: out of memory. */
static char *path_in(const char *folder, const char *name) {
  bs_text path = {0};
  bs_text_printf(&path, "%s/%s", folder, name);
  if (!path.failed) return path.data;
  bs_text_free(&path);
  return NULL;
}

/* *out stays NULL where there is no such file. */
static int32_t load(const char *folder, const char *name, json_t **out, bs_error *err) {
  char *path = path_in(folder, name), *text = NULL;
  json_error_t why;
  int32_t rc = path == NULL ? no_memory(err) : BS_OK;
  if (rc == BS_OK && access(path, F_OK) == 0) {
    rc = bs_text_file_read(path, "BS-EMBED-FILE", &text, err);
    if (rc == BS_OK && (*out = json_loads(text, JSON_REJECT_DUPLICATES, &why)) == NULL)
      rc = bs_error_set(err, BS_INPUT, "BS-EMBED-FILE", "%.200s: line %d: %s", path, why.line, why.text);
  }
  free(text);
  free(path);
  return rc;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static int has(const char *folder, const char *name) {
  char *path = path_in(folder, name);
  const int there = path != NULL && access(path, F_OK) == 0;
  free(path);
  return there;
}

/* The model's folder, or the one around it, where tokenizer.json lies there alone (onnx/model.onnx). */
static int32_t find_folder(const char *model, char **out, bs_error *err) {
  struct stat info;
  bs_text folder = {0};
  const char *slash = strrchr(model, '/');
  if (stat(model, &info) == 0 && S_ISDIR(info.st_mode))
    bs_text_printf(&folder, "%s", model);
  else if (slash != NULL)
    bs_text_printf(&folder, "%.*s", slash == model ? 1 : (int)(slash - model), model);
  else
    bs_text_printf(&folder, ".");
  if (!folder.failed && !has(folder.data, "tokenizer.json")) {
    char *around = path_in(folder.data, "..");
    if (around != NULL && has(around, "tokenizer.json")) bs_text_printf(&folder, "/..");
    free(around);
  }
  if (folder.failed) {
    bs_text_free(&folder);
    return no_memory(err);
  }
  *out = folder.data;
  return BS_OK;
}

/* ---- pooling --------------------------------------------------------------------------------- */

static const struct {
  const char *key, *mode, *name;
  int pooling;
} poolings[] = {{"pooling_mode_mean_tokens", "mean", "mean", BS_POOL_MEAN},
                {"pooling_mode_cls_token", "cls", "first token", BS_POOL_CLS},
                {"pooling_mode_max_tokens", "max", "maximum", BS_POOL_MAX},
                {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens",
                 "sum over the root of the length", BS_POOL_SQRT_MEAN},
                {"pooling_mode_lasttoken", "lasttoken", "last token", BS_POOL_LAST}};
enum { N_POOLINGS = sizeof poolings / sizeof poolings[0] };

/* Old files have a key for each mode, new ones a word. */
static int32_t read_pooling(const json_t *file, const char *from, bs_embed_kind *out, bs_error *err) {
  const char *word = json_string_value(json_object_get(file, "pooling_mode")), *key;
  json_t *value;
  size_t found = N_POOLINGS, n = 0;
  for (size_t i = 0; i < N_POOLINGS && word != NULL; i++)
    if (strcmp(word, poolings[i].mode) == 0) found = i;
  if (word != NULL && found == N_POOLINGS) return unknown(err, "the pooling", word);
  json_object_foreach((json_t *)file, key, value) {
    size_t k = 0;
    if (word != NULL || strncmp(key, "pooling_mode_", 13) != 0 || !json_is_true(value)) continue;
    while (k < N_POOLINGS && strcmp(key, poolings[k].key) != 0) k++;
    if (k == N_POOLINGS) return unknown(err, "the pooling", key);
    found = k;
    n++;
  }
  if (n > 1) return unknown(err, "the pooling", "of several modes");
  if (found == N_POOLINGS) return unknown(err, "the pooling", "of no mode");
  out->pooling = poolings[found].pooling;
  out->name = poolings[found].name;
  snprintf(out->from, sizeof out->from, "%s", from);
  return BS_OK;
}

/* The modules in their order: Transformer, Pooling, Normalize. */
static int32_t read_modules(const json_t *modules, bs_embed_kind *out, bs_error *err) {
  size_t i;
  const json_t *module;
  int32_t rc = BS_OK;
  json_array_foreach(modules, i, module) {
    const char *type = json_string_value(json_object_get(module, "type")),
               *path = json_string_value(json_object_get(module, "path"));
    const char *dot = type == NULL ? NULL : strrchr(type, '.');
    const char *name = dot != NULL ? dot + 1 : type;
    json_t *file = NULL;
    if (name == NULL)
      return bs_error_set(err, BS_INPUT, "BS-EMBED-FILE", "modules.json: a module without type");
    if (strcmp(name, "Transformer") == 0 || strcmp(name, "Normalize") == 0) continue;
    if (strcmp(name, "Pooling") != 0) return unknown(err, "a module of modules.json", name);
    bs_text inner = {0};
    bs_text_printf(&inner, "%s/config.json", path == NULL ? "" : path);
    rc = inner.failed ? no_memory(err) : load(out->folder, inner.data, &file, err);
    if (rc == BS_OK && file != NULL) rc = read_pooling(file, inner.data, out, err);
    bs_text_free(&inner);
    json_decref(file);
    if (rc != BS_OK) return rc;
  }
  return rc;
}

/* Without sentence_bert_config.json: the places of config.json, and what tokenizer_config.json says. Programs
 * write a number beyond all sizes for no limit. */
static int32_t read_limits(bs_embed_kind *out, bs_error *err) {
  static const char *const limits[][2] = {{"config.json", "max_position_embeddings"},
                                          {"tokenizer_config.json", "model_max_length"}};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    json_t *file = NULL;
    const int32_t rc = load(out->folder, limits[i][0], &file, err);
    const json_int_t most = json_integer_value(json_object_get(file, limits[i][1]));
    if (most > 0 && (out->most == 0 || most < out->most)) out->most = (int64_t)most;
    json_decref(file);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* A text that every text gets in front, and texts in lower case, are refused: the vectors would be others. */
static int32_t read_rest(bs_embed_kind *out, bs_error *err) {
  json_t *lengths = NULL, *prompts = NULL;
  int32_t rc = load(out->folder, "sentence_bert_config.json", &lengths, err);
  if (rc == BS_OK) rc = load(out->folder, "config_sentence_transformers.json", &prompts, err);
  const json_int_t most = json_integer_value(json_object_get(lengths, "max_seq_length"));
  const char *prompt = json_string_value(json_object_get(prompts, "default_prompt_name"));
  out->most = most > 0 ? (int64_t)most : 0;
  if (rc == BS_OK && json_is_true(json_object_get(lengths, "do_lower_case")))
    rc = unknown(err, "a key of sentence_bert_config.json", "do_lower_case");
  if (rc == BS_OK && prompt != NULL) {
    rc = unknown(err, "the default prompt", prompt);
    bs_error_hint(err,
                  "put the prompt of config_sentence_transformers.json before each text, and set "
                  "default_prompt_name to null");
  }
  json_decref(lengths);
  json_decref(prompts);
  return rc == BS_OK && out->most == 0 ? read_limits(out, err) : rc;
}

int32_t bs_embed_kind_read(const char *model, bs_embed_kind *out, bs_error *err) {
  json_t *modules = NULL, *pooling = NULL;
  *out = (bs_embed_kind){.pooling = BS_POOL_MEAN, .name = poolings[0].name};
  int32_t rc = find_folder(model, &out->folder, err);
  if (rc == BS_OK) rc = load(out->folder, "modules.json", &modules, err);
  if (rc == BS_OK && modules != NULL) {
    rc = json_is_array(modules) ? read_modules(modules, out, err)
                                : bs_error_set(err, BS_INPUT, "BS-EMBED-FILE", "modules.json is no list");
  } else if (rc == BS_OK) {
    rc = load(out->folder, "1_Pooling/config.json", &pooling, err);
    if (rc == BS_OK && pooling != NULL) rc = read_pooling(pooling, "1_Pooling/config.json", out, err);
  }
  if (rc == BS_OK) rc = read_rest(out, err);
  json_decref(modules);
  json_decref(pooling);
  return rc;
}

void bs_embed_kind_free(bs_embed_kind *kind) {
  free(kind->folder);
  memset(kind, 0, sizeof *kind);
}
