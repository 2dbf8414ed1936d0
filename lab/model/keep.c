/* SPDX-License-Identifier: MIT
 * keep.c - stores the results of `model check` and `model bench` as a run folder:
 * <out_dir>/model_check/<model>/<run_id>/ (docs/runs.md). It is written at the end: a command that fails or
 * is interrupted leaves no folder. */
#include "lab/model/keep.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/model/builtin.h"
#include "lab/store/file_sum.h"
#include "lab/store/keep.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a record");
}

/* ---- the model's files ----------------------------------------------------------------------- */

static int32_t add_file(json_t *files, const char *path, bs_error *err) {
  struct stat st;
  char hex[65];
  int whole = 0;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return BS_OK;
  const int32_t rc = bs_file_sum_parts(path, hex, &whole, err);
  if (rc != BS_OK) return rc;
  json_t *row = json_pack("{s:o, s:I, s:s}", "file", bs_model_json_text(path), "bytes",
                          (json_int_t)st.st_size, whole ? "sha256" : "sha256_of_64_MiB", hex);
  return json_array_append_new(files, row) == 0 ? BS_OK : no_memory(err);
}

static int is_of_model(const struct dirent *e) {
  const char *dot = strrchr(e->d_name, '.');
  if (dot == NULL || e->d_name[0] == '.') return 0;
  return strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".onnx") == 0 || strcmp(dot, ".gguf") == 0 ||
         strcmp(dot, ".data") == 0 || strcmp(dot, ".json") == 0 || strcmp(e->d_name, "vectors.txt") == 0;
}

/* Adds the file and its external data in the same folder (FILE.data); for a folder its model files and
 * indexes. */
static int32_t add_files(json_t *files, const char *path, bs_error *err) {
  struct dirent **entries = NULL;
  const int n = scandir(path, &entries, is_of_model, alphasort);
  int32_t rc = BS_OK;
  if (n < 0) {
    bs_text data = {0};
    bs_text_printf(&data, "%s.data", path);
    rc = data.failed ? no_memory(err) : add_file(files, path, err);
    if (rc == BS_OK) rc = add_file(files, data.data, err);
    bs_text_free(&data);
  }
  for (int i = 0; i < n; i++) {
    bs_text one = {0};
    bs_text_printf(&one, "%s/%s", path, entries[i]->d_name);
    if (rc == BS_OK) rc = one.failed ? no_memory(err) : add_file(files, one.data, err);
    bs_text_free(&one);
    free(entries[i]);
  }
  free(entries);
  return rc;
}

/* "minilm" of out/minilm and of out/minilm/model.onnx, "toy" of toy.onnx and toy.gguf; a folder's name for
 * out_dir. */
static void name_of(const char *path, char out[65]) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  char *real = realpath(path, NULL);
  char *at = real;
  const char *last = at != NULL ? strrchr(at, '/') : NULL;
  if (last != NULL && strcmp(last, "/model.onnx") == 0) {
    at[last - at] = '\0';
    last = strrchr(at, '/');
  }
  snprintf(out, 65, "%.64s", last != NULL ? last + 1 : bs_model_is_builtin(path) ? path : "");
  const size_t n = strlen(out);
  if (n > 5 && (strcmp(out + n - 5, ".onnx") == 0 || strcmp(out + n - 5, ".gguf") == 0)) out[n - 5] = '\0';
  for (char *c = out; *c != '\0'; c++)
    if (strchr(plain, *c) == NULL) *c = '_';
  if (out[strspn(out, ".")] == '\0') snprintf(out, 65, "model");
  if (out[0] == '.') out[0] = '_';
  free(real);
}

/* ---- the configuration ------------------------------------------------------------------------ */

static int32_t set_words(bs_node *config, const char *key, const bs_model_words *words, bs_error *err) {
  json_t *list = json_array();
  for (size_t i = 0; i < words->n; i++) json_array_append_new(list, bs_model_json_text(words->words[i]));
  char *text = json_dumps(list, JSON_COMPACT); /* a list in JSON is one in YAML */
  const int32_t rc = text == NULL ? no_memory(err) : bs_config_set(config, key, text, err);
  free(text);
  json_decref(list);
  return rc;
}

static int32_t set_number(bs_node *config, const char *key, double value, bs_error *err) {
  char text[40];
  snprintf(text, sizeof text, "%.17g", value);
  return bs_config_set(config, key, text, err);
}

static int32_t set_given(bs_node *config, const char *key, const char *value, bs_error *err) {
  return value != NULL ? bs_config_set_text(config, key, value, err) : BS_OK;
}

/* How the model is split, and where it is simulated. */
static int32_t set_ranks(bs_node *config, const bs_model_ranks *k, bs_error *err) {
  char key[80];
  int32_t rc = set_given(config, "model.method", k->method, err);
  if (rc == BS_OK) rc = set_number(config, "model.world_size", k->n, err);
  if (rc == BS_OK) rc = set_given(config, "model.comm", k->comm, err);
  if (rc == BS_OK) rc = set_given(config, "model.launch", k->launch, err);
  if (rc == BS_OK && k->has_mask) rc = bs_config_set_text(config, "model.mask", k->mask.name, err);
  if (rc == BS_OK && k->replicas > 1) rc = set_number(config, "model.replicas", k->replicas, err);
  if (rc == BS_OK) rc = set_given(config, "model.machine", k->machine, err);
  if (rc == BS_OK) rc = set_given(config, "model.algorithm", k->algorithm, err);
  if (rc == BS_OK) rc = set_given(config, "model.topology", k->topology, err);
  for (uint32_t i = 0; rc == BS_OK && i < k->n_options; i++) {
    snprintf(key, sizeof key, "method.%.70s", k->keys[i]);
    rc = bs_config_set_text(config, key, k->values[i], err);
  }
  return rc;
}

/* Writes the settings that change numbers. Sizes and files are written elsewhere. */
static int32_t set_numbers_of(bs_node *config, const bs_model_request *r, bs_error *err) {
  static const char *const bits[] = {NULL, "batch", "tokens", "ranks"};
  int32_t rc = set_given(config, "model.weights", r->weights, err);
  if (rc == BS_OK) rc = set_given(config, "model.activations", r->activations, err);
  if (rc == BS_OK && r->cache_dtype != 0)
    rc = bs_config_set_text(config, "model.cache_dtype", bs_dtype_name(r->cache_dtype), err);
  if (rc == BS_OK && r->tokenwise < sizeof bits / sizeof bits[0])
    rc = set_given(config, "model.repro", bits[r->tokenwise], err);
  return rc == BS_OK && r->choices.n > 0 ? set_words(config, "model.choices", &r->choices, err) : rc;
}

/* Makes the configuration of the request, in the words of the command line, with the absolute path. */
static int32_t make_config(const bs_model_keep_request *q, bs_node **out, bs_error *err) {
  const bs_model_request *r = q->model;
  char *real = realpath(r->path, NULL);
  bs_node *config = *out = bs_config_new_map();
  if (config == NULL) {
    free(real);
    return no_memory(err);
  }
  int32_t rc = bs_config_set_text(config, "model.path", real != NULL ? real : r->path, err);
  free(real);
  if (rc == BS_OK)
    rc = bs_config_set_text(config, "model.backend", r->backend != NULL ? r->backend : "cpu", err);
  if (rc == BS_OK) rc = set_number(config, "model.threads", bs_model_threads(r), err);
  if (rc == BS_OK && r->ranks != NULL) rc = set_ranks(config, r->ranks, err);
  if (rc == BS_OK) rc = set_numbers_of(config, r, err);
  if (rc == BS_OK) rc = set_number(config, "model.cache_tokens", (double)r->cache_tokens, err);
  if (rc == BS_OK) rc = set_words(config, "model.dims", &r->dims, err);
  if (rc == BS_OK) rc = set_words(config, "model.inputs", &r->inputs, err);
  if (rc == BS_OK) rc = set_words(config, "model.constants", &r->constants, err);
  if (rc == BS_OK) rc = set_words(config, "model.passes", &r->passes, err);
  for (size_t i = 0; rc == BS_OK && i < q->n_settings; i++)
    rc = bs_config_set(config, q->settings[i][0], q->settings[i][1], err);
  return rc;
}

/* ---- the folder ------------------------------------------------------------------------------- */

/* `result` itself, or a record for each of its rows with the fields that the rows share. */
static int32_t records_of(const json_t *result, int each_row, json_t **out, bs_error *err) {
  const json_t *rows = json_object_get(result, "rows");
  json_t *records = *out = json_array();
  int bad = records == NULL;
  if (!bad && !each_row) bad = json_array_append(records, (json_t *)(uintptr_t)result) != 0;
  for (size_t i = 0; !bad && each_row && i < json_array_size(rows); i++) {
    json_t *fields = json_copy((json_t *)(uintptr_t)result);
    json_object_del(fields, "rows");
    json_object_del(fields, "median_s");
    if (i + 1 < json_array_size(rows)) { /* these fields belong to the last row */
      json_object_del(fields, "profile");
      json_object_del(fields, "profile_work");
    }
    bad = fields == NULL || json_object_update(fields, json_array_get(rows, i)) != 0;
    if (bad)
      json_decref(fields);
    else
      bad = json_array_append_new(records, fields) != 0;
  }
  return bad ? no_memory(err) : BS_OK;
}

int32_t bs_model_keep(const bs_model_keep_request *q, json_t *result, char **out_folder, bs_error *err) {
  char name[65];
  bs_node *config = NULL;
  json_t *files = json_array(), *records = NULL;
  *out_folder = NULL;
  name_of(q->model->path, name);
  int32_t rc = files == NULL ? no_memory(err) : add_files(files, q->model->path, err);
  if (rc == BS_OK) rc = make_config(q, &config, err);
  if (rc == BS_OK) rc = records_of(result, strcmp(q->phase, "model_bench") == 0, &records, err);
  const bs_keep_request keep = {.context = q->context,
                                .out_dir = q->out_dir,
                                .run_id = q->run_id,
                                .phase = q->phase,
                                .method = name,
                                .command = q->command,
                                .config = config,
                                .inputs = files,
                                .grades = q->grades,
                                .status = q->passed ? "ok" : "not passed",
                                .opened = q->opened,
                                .closed = q->closed};
  if (rc == BS_OK) rc = bs_keep(&keep, records, out_folder, err);
  if (rc == BS_OK) json_object_set_new(result, "run", bs_model_json_text(*out_folder));
  bs_config_free(config);
  json_decref(files);
  json_decref(records);
  return rc;
}
