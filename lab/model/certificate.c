/* SPDX-License-Identifier: MIT
 * certificate.c - see certificate.h. Reading is in certificate_read.c. */
#include "lab/model/certificate.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "graph/api.h"
#include "lab/store/env.h"
#include "lab/store/sha256.h"

enum { NAMED = 64, NAMED_DIGITS = 16, PATH_BYTES = 4096 };

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a certificate");
}

static json_t *text_or_null(const char *text) {
  return text != NULL ? bs_model_json_text(text) : json_null();
}

/* ---- what was asked -------------------------------------------------------------------------- */

json_t *bs_certificate_asked(const bs_model_request *q, const bs_model *m) {
  json_t *passes = json_array();
  /* Sizes that follow from the inputs of a folder with vectors.txt are not asked: they would hide these. */
  json_t *dims = m->n_inputs > q->inputs.n ? json_object() : bs_model_dims(m);
  for (size_t i = 0; i < q->passes.n; i++) json_array_append_new(passes, text_or_null(q->passes.words[i]));
  json_t *asked = json_pack("{s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o}", "backend", text_or_null(q->backend),
                            "cache_tokens", (json_int_t)q->cache_tokens, "cache_dtype",
                            text_or_null(q->cache_dtype != 0 ? bs_dtype_name(q->cache_dtype) : NULL), "seed",
                            (json_int_t)q->seed, "weights", text_or_null(q->weights), "activations",
                            text_or_null(q->activations), "passes_off", passes, "dims", dims);
  if (q->ranks == NULL) return asked;
  json_t *options = json_object();
  for (uint32_t i = 0; i < q->ranks->n_options; i++)
    json_object_set_new(options, q->ranks->keys[i], text_or_null(q->ranks->values[i]));
  json_object_set_new(asked, "method", text_or_null(q->ranks->method));
  json_object_set_new(asked, "method_options", options);
  json_object_set_new(asked, "mask", text_or_null(q->ranks->has_mask ? q->ranks->mask.name : NULL));
  return asked;
}

/* The method of a certificate over ranks. */
static int32_t ask_ranks(const json_t *asked, bs_model_request *io, bs_certificate_words *words,
                         bs_error *err) {
  bs_model_ranks *k = &words->ranks;
  json_t *options = json_object_get(asked, "method_options"), *value;
  const char *key, *mask = json_string_value(json_object_get(asked, "mask"));
  k->method = json_string_value(json_object_get(asked, "method"));
  if (k->method == NULL) return BS_OK;
  k->keys = calloc(json_object_size(options) + 1, sizeof *k->keys);
  k->values = calloc(json_object_size(options) + 1, sizeof *k->values);
  if (k->keys == NULL || k->values == NULL) return no_memory(err);
  json_object_foreach(options, key, value) {
    k->keys[k->n_options] = key;
    k->values[k->n_options++] = json_string_value(value);
  }
  k->n = 1;
  k->has_mask = mask != NULL;
  io->ranks = k;
  if (mask == NULL || bs_mask_parse(mask, NULL, NULL, &k->mask, NULL) == BS_OK) return BS_OK;
  return bs_error_set(err, BS_INPUT, "BS-CERT-BAD", "asked.mask of the certificate is no mask: '%.60s'",
                      mask);
}

int32_t bs_certificate_ask(const json_t *certificate, bs_model_request *io, bs_certificate_words *words,
                           bs_error *err) {
  json_t *asked = json_object_get(certificate, "asked"), *dims = json_object_get(asked, "dims"), *value;
  json_t *passes = json_object_get(asked, "passes_off");
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
  const char *name, *backend = json_string_value(json_object_get(asked, "backend"));
  const char *cache = json_string_value(json_object_get(asked, "cache_dtype"));
  *words = (bs_certificate_words){.dims = calloc(json_object_size(dims) + 1, sizeof *words->dims),
                                  .passes = calloc(json_array_size(passes) + 1, sizeof *words->passes)};
  if (words->dims == NULL || words->passes == NULL) return no_memory(err);
  json_object_foreach(dims, name, value) {
    bs_text word = {0};
    bs_text_printf(&word, "%s=%lld", name, (long long)json_integer_value(value));
    words->dims[words->n_dims++] = word.data;
    if (word.failed || word.data == NULL) return no_memory(err);
  }
  for (size_t i = 0; i < json_array_size(passes); i++)
    words->passes[i] = json_string_value(json_array_get(passes, i));
  io->dims = (bs_model_words){(const char *const *)words->dims, words->n_dims};
  io->passes = (bs_model_words){words->passes, json_array_size(passes)};
  if (io->backend == NULL) io->backend = backend;
  io->cache_tokens = json_integer_value(json_object_get(asked, "cache_tokens"));
  for (size_t i = 0; cache != NULL && i < sizeof dtypes / sizeof dtypes[0]; i++)
    if (strcmp(cache, bs_dtype_name(dtypes[i])) == 0) io->cache_dtype = dtypes[i];
  if (cache != NULL && io->cache_dtype == 0)
    return bs_error_set(err, BS_INPUT, "BS-CERT-BAD",
                        "asked.cache_dtype of the certificate is not f32, f16 or bf16: '%.20s'", cache);
  io->seed = (uint32_t)json_integer_value(json_object_get(asked, "seed"));
  io->weights = json_string_value(json_object_get(asked, "weights"));
  io->activations = json_string_value(json_object_get(asked, "activations"));
  return ask_ranks(asked, io, words, err);
}

void bs_certificate_words_free(bs_certificate_words *words) {
  for (size_t i = 0; i < words->n_dims; i++) free(words->dims[i]);
  free(words->ranks.keys);
  free(words->ranks.values);
  free(words->dims);
  free(words->passes);
  *words = (bs_certificate_words){0};
}

/* ---- files ----------------------------------------------------------------------------------- */

static int32_t add_file(json_t *files, const char *name, const char *path, bs_error *err) {
  struct stat at;
  char hex[65];
  size_t i;
  const json_t *old;
  json_array_foreach(files, i, old) {
    if (strcmp(json_string_value(json_object_get(old, "name")), name) == 0) return BS_OK;
  }
  int32_t rc = bs_sha256_file(path, hex, err);
  if (rc == BS_OK && stat(path, &at) != 0)
    rc = bs_error_set(err, BS_IO, "BS-CERT-FILE", "%.200s is gone", path);
  if (rc != BS_OK) return rc;
  json_t *row = json_pack("{s:o, s:I, s:s}", "name", bs_model_json_text(name), "bytes",
                          (json_int_t)at.st_size, "sha256", hex);
  return json_array_append_new(files, row) == 0 ? BS_OK : no_memory(err);
}

/* The files that are read and closed again. */
static int32_t add_own(json_t *files, const char *path, bs_error *err) {
  static const char *const of_folder[] = {"config.json", "model.safetensors.index.json"};
  const char *last = strrchr(path, '/');
  char file[PATH_BYTES];
  struct stat at;
  int32_t rc = BS_OK;
  if (stat(path, &at) != 0) return BS_OK; /* it was made by calls */
  if (!S_ISDIR(at.st_mode)) return add_file(files, last != NULL ? last + 1 : path, path, err);
  snprintf(file, sizeof file, "%s/model.safetensors", path);
  const int is_one = stat(file, &at) == 0; /* the index is not read then */
  for (size_t i = 0; rc == BS_OK && i < (is_one ? 1u : 2u); i++) {
    snprintf(file, sizeof file, "%s/%s", path, of_folder[i]);
    if (stat(file, &at) == 0) rc = add_file(files, of_folder[i], file, err);
  }
  return rc;
}

/* The name of an open file from the model's folder on. It may be there by a link, as in the cache of a hub:
 * then it has the link's name. A file elsewhere has its last name. */
static void name_in(const char *folder, const char *real, char out[PATH_BYTES]) {
  const size_t n = strlen(folder);
  const char *last = strrchr(real, '/');
  char path[PATH_BYTES + 260];
  struct dirent **entries = NULL;
  const int count = n > 0 ? scandir(folder, &entries, NULL, alphasort) : 0;
  int found = 0;
  snprintf(out, PATH_BYTES, "%s", last != NULL ? last + 1 : real);
  if (n > 0 && strncmp(real, folder, n) == 0 && real[n] == '/') {
    snprintf(out, PATH_BYTES, "%s", real + n + 1);
    found = 1;
  }
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    char *to = found ? NULL : realpath(path, NULL);
    if (to != NULL && strcmp(to, real) == 0) {
      snprintf(out, PATH_BYTES, "%s", entries[i]->d_name);
      found = 1;
    }
    free(to);
    free(entries[i]);
  }
  free(entries);
}

static int fd_of(const gmodel *g, const gmodel_value *v) {
  uint64_t at;
  return v->kind == GMODEL_CONSTANT && v->bytes > 0 && g->file_of != NULL ? g->file_of(v->data, v->bytes, &at)
                                                                          : -1;
}

/* The files that constants lie in. */
static int32_t add_mapped(json_t *files, const gmodel *g, const char *folder, bs_error *err) {
  int32_t rc = BS_OK;
  int before = -1;
  for (uint32_t i = 0; rc == BS_OK && i < g->n_values; i++) {
    const int fd = fd_of(g, &g->values[i]);
    char link[64], path[PATH_BYTES], name[PATH_BYTES];
    if (fd < 0 || fd == before) continue;
    before = fd;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return bs_error_set(err, BS_IO, "BS-CERT-FILE", "cannot find the name of an open file");
    path[n] = '\0';
    name_in(folder, path, name);
    rc = add_file(files, name, path, err);
  }
  return rc;
}

/* The folder of the model, without links; "" for one that was made by calls. */
static void folder_of(const char *path, char out[PATH_BYTES]) {
  struct stat at;
  const int is_folder = stat(path, &at) == 0 && S_ISDIR(at.st_mode);
  const char *last = strrchr(path, '/');
  const int n = is_folder ? (int)strlen(path) : last != NULL ? (int)(last - path) : 0;
  char folder[PATH_BYTES];
  snprintf(folder, sizeof folder, "%.*s", n, path);
  char *real = realpath(n > 0 ? folder : last != NULL ? "/" : ".", NULL);
  snprintf(out, PATH_BYTES, "%s", real != NULL && path[0] != '\0' ? real : "");
  free(real);
}

/* ---- constants ------------------------------------------------------------------------------- */

static void hash_value(bs_sha256 *h, const gmodel_value *v) {
  const uint64_t about[2] = {v->dtype, v->rank};
  bs_sha256_field(h, v->name);
  bs_sha256_add(h, about, sizeof about);
  for (uint32_t d = 0; d < v->rank && d < BS_MAX_DIMS; d++) bs_sha256_add(h, &v->dims[d], sizeof v->dims[d]);
  if (v->data != NULL) bs_sha256_add(h, v->data, v->bytes);
}

static json_t *made_constants(const gmodel *g) {
  char hex[65];
  bs_sha256 all, one;
  json_int_t count = 0;
  json_t *named = json_object();
  bs_sha256_init(&all);
  for (uint32_t i = 0; i < g->n_values; i++) {
    const gmodel_value *v = &g->values[i];
    if (v->kind != GMODEL_CONSTANT || !bs_dtype_is_float(v->dtype) || fd_of(g, v) >= 0) continue;
    count++;
    hash_value(&all, v);
    if (v->name[0] == '\0' || json_object_size(named) >= NAMED) continue;
    bs_sha256_init(&one);
    hash_value(&one, v);
    bs_sha256_hex(&one, hex);
    json_object_set_new(named, v->name, json_stringn(hex, NAMED_DIGITS)); /* not, where it is no UTF-8 */
  }
  bs_sha256_hex(&all, hex);
  return json_pack("{s:I, s:s, s:o}", "count", count, "sha256", hex, "named", named);
}

int32_t bs_certificate_add_files(const bs_model *model, json_t *to, bs_error *err) {
  bs_graph_info info = {.struct_size = sizeof info};
  char folder[PATH_BYTES];
  json_t *files = json_array();
  int32_t rc = bs_graph_info_get(model->graph, &info, err);
  if (rc == BS_OK) folder_of(info.path, folder);
  if (rc == BS_OK) rc = add_own(files, info.path, err);
  if (rc == BS_OK) rc = add_mapped(files, model->graph->model, folder, err);
  if (rc != BS_OK) {
    json_decref(files);
    return rc;
  }
  if (json_object_set_new(to, "files", files) != 0 ||
      json_object_set_new(to, "made_constants", made_constants(model->graph->model)) != 0)
    return no_memory(err);
  return BS_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static int has_file(const bs_model *m, const char *name) {
  for (size_t i = 0; i < m->n_inputs; i++)
    if (strcmp(m->names[i], name) == 0) return 1;
  return 0;
}

int32_t bs_certificate_add_inputs(const bs_model *m, json_t *to, bs_error *err) {
  json_t *inputs = json_array();
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < bs_graph_port_count(m->graph, 1); i++) {
    bs_tensor t = {.struct_size = sizeof t};
    char hex[65];
    bs_sha256 h;
    const char *name;
    json_t *shape = json_array();
    rc = bs_session_port(m->session, i, &name, NULL, err);
    if (rc == BS_OK) rc = bs_session_get(m->session, i, &t, err);
    if (rc != BS_OK) {
      json_decref(shape);
      break;
    }
    for (uint32_t d = 0; d < t.rank; d++) json_array_append_new(shape, json_integer(t.dims[d]));
    bs_sha256_init(&h);
    bs_sha256_add(&h, t.data, t.bytes);
    bs_sha256_hex(&h, hex);
    json_t *row =
        json_pack("{s:o, s:s, s:o, s:b, s:s}", "name", bs_model_json_text(name), "dtype",
                  bs_dtype_name(t.dtype), "shape", shape, "made", !has_file(m, name), "sha256", hex);
    if (json_array_append_new(inputs, row) != 0) rc = no_memory(err);
  }
  if (rc == BS_OK && json_object_set_new(to, "inputs", inputs) == 0) return BS_OK;
  if (rc != BS_OK) json_decref(inputs);
  return rc != BS_OK ? rc : no_memory(err);
}

/* ---- machine --------------------------------------------------------------------------------- */

static json_t *plugins_of(const json_t *env) {
  json_t *plugins = json_object(), *row;
  size_t i;
  json_array_foreach(json_object_get(env, "plugins"), i, row) {
    json_t *sum = json_object_get(row, "sha256");
    json_object_set(plugins, json_string_value(json_object_get(row, "id")),
                    sum != NULL ? sum : json_object_get(row, "library_build_id"));
  }
  return plugins;
}

/* The names of tables in cells, each once. */
static json_t *tables_of(const json_t *cells) {
  json_t *tables = json_array(), *cell, *old;
  size_t i, k;
  json_array_foreach(cells, i, cell) {
    json_t *table = json_object_get(cell, "table");
    int is_new = 1;
    json_array_foreach(tables, k, old) is_new &= !json_equal(old, table);
    if (is_new) json_array_append(tables, table);
  }
  return tables;
}

int32_t bs_certificate_add_machine(bs_context *context, json_t *to, bs_error *err) {
  static const char *const keys[][2] = {{"blockshock", "version"},
                                        {"library_build_id", "library_build_id"},
                                        {"compiler", "compiler"},
                                        {"libc", "libc"}};
  json_t *env = bs_env_collect(context), *build = json_object();
  const json_t *of_build = json_object_get(env, "build"), *cpu = json_object_get(env, "cpu");
  if (env == NULL || build == NULL) {
    json_decref(env);
    json_decref(build);
    return no_memory(err);
  }
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    json_object_set(build, keys[i][1], json_object_get(of_build, keys[i][0]));
  json_object_set_new(build, "plugins", plugins_of(env));
  json_t *machine =
      json_pack("{s:O, s:O}", "cpu", json_object_get(cpu, "model"), "isa", json_object_get(cpu, "isa"));
  int failed = json_object_set_new(to, "build", build);
  failed |= json_object_set_new(to, "machine", machine);
  json_decref(env);
  return failed != 0 ? no_memory(err) : BS_OK;
}

int32_t bs_certificate_add_tables(json_t *to, bs_error *err) {
  json_t *machine = json_object_get(to, "machine");
  return machine == NULL ||
                 json_object_set_new(machine, "tables", tables_of(json_object_get(to, "cells"))) == 0
             ? BS_OK
             : no_memory(err);
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "unknown";
}

void bs_certificate_maker(const json_t *certificate, char *out, size_t size) {
  const json_t *build = json_object_get(certificate, "build");
  snprintf(out, size, "%.40s by %.60s, libc %.20s, on %.80s", text_of(build, "version"),
           text_of(build, "compiler"), text_of(build, "libc"),
           text_of(json_object_get(certificate, "machine"), "cpu"));
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const json_t *named(const json_t *rows, const char *name) {
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) if (strcmp(text_of(row, "name"), name) == 0) return row;
  return NULL;
}

static int32_t same_file(const json_t *want, const json_t *has, bs_error *err) {
  const char *name = text_of(want, "name"), *sums[2] = {text_of(want, "sha256"), NULL};
  if (has == NULL)
    return bs_error_set(err, BS_INPUT, "BS-CERT-FILE",
                        "the certificate has the file %.150s, the model has not", name);
  const long long bytes[2] = {(long long)json_integer_value(json_object_get(want, "bytes")),
                              (long long)json_integer_value(json_object_get(has, "bytes"))};
  sums[1] = text_of(has, "sha256");
  if (bytes[0] != bytes[1])
    return bs_error_set(err, BS_INPUT, "BS-CERT-FILE", "%.150s has %lld bytes, in the certificate %lld", name,
                        bytes[1], bytes[0]);
  if (strcmp(sums[0], sums[1]) == 0) return BS_OK;
  bs_error_set(err, BS_INPUT, "BS-CERT-FILE",
               "%.150s has other contents: its sha256 is %.64s, in the certificate %.64s", name, sums[1],
               sums[0]);
  bs_error_hint(err, "take the file that the certificate was made of");
  return BS_INPUT;
}

static int32_t same_constants(const json_t *certificate, const json_t *now, bs_error *err) {
  const json_t *want = json_object_get(certificate, "made_constants");
  const json_t *has = json_object_get(now, "made_constants");
  const char *which = NULL, *name;
  char maker[240];
  json_t *digits;
  if (strcmp(text_of(want, "sha256"), text_of(has, "sha256")) == 0) return BS_OK;
  json_object_foreach(json_object_get(want, "named"), name, digits) {
    if (which == NULL && !json_equal(digits, json_object_get(json_object_get(has, "named"), name)))
      which = name;
  }
  bs_certificate_maker(certificate, maker, sizeof maker);
  if (which != NULL)
    bs_error_set(err, BS_INPUT, "BS-CERT-CONSTANT",
                 "constant '%.100s' lies in no file, and has other bits than in the certificate", which);
  else
    bs_error_set(err, BS_INPUT, "BS-CERT-CONSTANT",
                 "the constants that lie in no file are others: %lld here, %lld in the certificate, "
                 "made_constants.sha256 is %.64s and %.64s",
                 (long long)json_integer_value(json_object_get(has, "count")),
                 (long long)json_integer_value(json_object_get(want, "count")), text_of(has, "sha256"),
                 text_of(want, "sha256"));
  bs_error_hint(
      err, "the C library computes such constants, or --constant gives them; the certificate was made by %s",
      maker);
  return BS_INPUT;
}

int32_t bs_certificate_same_files(const json_t *certificate, const json_t *now, bs_error *err) {
  const json_t *want = json_object_get(certificate, "files"), *has = json_object_get(now, "files"), *row;
  int32_t rc = BS_OK;
  size_t i;
  json_array_foreach(want, i, row) {
    rc = same_file(row, named(has, text_of(row, "name")), err);
    if (rc != BS_OK) return rc;
  }
  json_array_foreach(has, i, row) {
    if (named(want, text_of(row, "name")) == NULL)
      return bs_error_set(err, BS_INPUT, "BS-CERT-FILE",
                          "the model has the file %.150s, the certificate has not", text_of(row, "name"));
  }
  return same_constants(certificate, now, err);
}

static int32_t same_input(const json_t *want, const json_t *has, bs_error *err) {
  const char *name = text_of(want, "name");
  const int made[2] = {json_is_true(json_object_get(want, "made")),
                       json_is_true(json_object_get(has, "made"))};
  if (has == NULL)
    return bs_error_set(err, BS_INPUT, "BS-CERT-INPUT",
                        "the certificate has the input '%.100s', the model has not", name);
  if (strcmp(text_of(want, "sha256"), text_of(has, "sha256")) == 0) return BS_OK;
  bs_error_set(err, BS_INPUT, "BS-CERT-INPUT",
               "input '%.100s' has other numbers: their sha256 is %.64s, in the certificate %.64s", name,
               text_of(has, "sha256"), text_of(want, "sha256"));
  if (!made[0])
    bs_error_hint(err, "it came from a file: give the same one, --input %.100s=FILE.npy", name);
  else if (!made[1])
    bs_error_hint(err, "it was made: leave --input %.100s out", name);
  else
    bs_error_hint(err, "both were made: another version made others, or the certificate was changed");
  return BS_INPUT;
}

int32_t bs_certificate_same_inputs(const json_t *certificate, const json_t *now, bs_error *err) {
  const json_t *want = json_object_get(certificate, "inputs"), *has = json_object_get(now, "inputs"), *row;
  int32_t rc = BS_OK;
  size_t i;
  json_array_foreach(want, i, row) {
    if (rc == BS_OK) rc = same_input(row, named(has, text_of(row, "name")), err);
  }
  json_array_foreach(has, i, row) {
    if (rc == BS_OK && named(want, text_of(row, "name")) == NULL)
      rc = bs_error_set(err, BS_INPUT, "BS-CERT-INPUT",
                        "the model has the input '%.100s', the certificate has not", text_of(row, "name"));
  }
  return rc;
}
