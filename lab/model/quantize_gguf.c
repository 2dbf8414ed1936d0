/* SPDX-License-Identifier: MIT
 * quantize_gguf.c - see quantize_gguf.h. A row of one weight is held at a time. */
#include "lab/model/quantize_gguf.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "formats/safetensors.h"
#include "lab/model/gguf_config.h"
#include "lab/model/gguf_rows.h"
#include "lab/model/gguf_tokens.h"
#include "lab/stop.h"

enum { NAME = 200, PATH = 4096, FILES_MOST = 4096, SCHEME = 16 };

/* A tensor of the folder, as the file has it: [rows,cols], or one dimension of `cols` numbers. */
typedef struct part {
  const bs_st_tensor *from;
  uint32_t type;
  int64_t rows, cols;
  int64_t head; /* rows of a head whose halves become pairs; 0: rows stay in their order */
  int turned;   /* 1: the folder has it as [cols,rows] */
  char scheme[SCHEME];
  const char *reason; /* why it stays a float; NULL: it is rounded */
  double change, size;
} part;

typedef struct job {
  const bs_quantize_request *request;
  json_t *config, *tokenizer, *index;
  const bs_gguf_arch *arch;
  bs_st *files;
  char **paths;
  size_t n_files;
  part *parts;
  bs_gguf_new_tensor *tensors;
  size_t n, rounded;
  int tied;
  bs_gguf_keys keys;
} job;

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the tensors of the folder");
}

/* ---- the folder ---------------------------------------------------------------------------------- */

static int32_t open_file(job *j, const char *name, bs_error *err) {
  char path[PATH];
  if (name == NULL || strchr(name, '/') != NULL || name[0] == '.' || j->n_files >= FILES_MOST)
    return bs_error_set(err, BS_INPUT, "BS-HF-INDEX", "a file of the index is no name in this folder");
  snprintf(path, sizeof path, "%s/%s", j->request->from, name);
  for (size_t i = 0; i < j->n_files; i++)
    if (strcmp(j->paths[i], path) == 0) return BS_OK;
  bs_st *files = realloc(j->files, (j->n_files + 1) * sizeof *files);
  if (files != NULL) j->files = files;
  char **paths = realloc(j->paths, (j->n_files + 1) * sizeof *paths);
  if (paths != NULL) j->paths = paths;
  char *own = strdup(path);
  if (files == NULL || paths == NULL || own == NULL) {
    free(own);
    return no_memory(err);
  }
  const int32_t rc = bs_st_open(path, &j->files[j->n_files], err);
  if (rc != BS_OK)
    free(own);
  else
    j->paths[j->n_files++] = own;
  return rc;
}

static int is_there(const job *j, const char *name, char path[PATH]) {
  struct stat st;
  snprintf(path, PATH, "%s/%s", j->request->from, name);
  return stat(path, &st) == 0;
}

static int32_t open_folder(job *j, bs_error *err) {
  char path[PATH];
  const char *tensor;
  json_t *file;
  int32_t rc = BS_OK;
  is_there(j, "config.json", path);
  j->config = bs_gguf_read_json(path, err);
  if (j->config == NULL) return BS_INPUT;
  if (is_there(j, "tokenizer.json", path) && (j->tokenizer = bs_gguf_read_json(path, err)) == NULL)
    return BS_INPUT;
  if (is_there(j, "model.safetensors", path)) return open_file(j, "model.safetensors", err);
  is_there(j, "model.safetensors.index.json", path);
  j->index = bs_gguf_read_json(path, err);
  if (j->index == NULL) return BS_INPUT;
  json_object_foreach(json_object_get(j->index, "weight_map"), tensor, file) {
    rc = open_file(j, json_string_value(file), err);
    if (rc != BS_OK) return rc;
  }
  return rc;
}

/* ---- parts --------------------------------------------------------------------------------------- */

static int ends(const char *name, const char *end) {
  const size_t size = strlen(name), n = strlen(end);
  return size >= n && strcmp(name + size - n, end) == 0;
}

/* Tables that programs compute, and a copy of the embeddings. */
static int is_left_out(const job *j, const char *name) {
  return ends(name, ".rotary_emb.inv_freq") || ends(name, ".attn.bias") || ends(name, ".attn.masked_bias") ||
         (j->tied && strcmp(name, "lm_head.weight") == 0);
}

/* The name with the prefix that old files of GPT-2 leave out. */
static const char *whole_name(const job *j, const char *name, char buffer[NAME]) {
  if (!j->arch->family->is_gpt2 || strncmp(name, "transformer.", 12) == 0 ||
      strncmp(name, "lm_head.", 8) == 0)
    return name;
  snprintf(buffer, NAME, "transformer.%.180s", name);
  return buffer;
}

/* Is the first pattern of the list that fits a name more than `*`? */
static int names_table(const char *list, const char *name) {
  for (const char *at = list; *at != '\0'; at += strcspn(at, ";"), at += *at == ';') {
    char pattern[NAME];
    const size_t size = strcspn(at, "=;");
    if (at[size] != '=') return 0;
    snprintf(pattern, sizeof pattern, "%.*s", (int)(size < NAME ? size : NAME - 1), at);
    char shorter[NAME];
    snprintf(shorter, sizeof shorter, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    if (fnmatch(pattern, name, 0) == 0 || fnmatch(pattern, shorter, 0) == 0) return strcmp(pattern, "*") != 0;
  }
  return 0;
}

static void scheme_of(const job *j, const char *name, char out[SCHEME]) {
  char shorter[NAME];
  snprintf(shorter, sizeof shorter, "%.190s", name);
  if (ends(shorter, ".weight")) shorter[strlen(shorter) - strlen(".weight")] = '\0';
  bs_quantize_scheme_of(j->request->weights, name, out, SCHEME);
  char other[SCHEME];
  bs_quantize_scheme_of(j->request->weights, shorter, other, sizeof other);
  if (out[0] == '\0') snprintf(out, SCHEME, "%s", other);
}

/* The scheme of a tensor, or why it stays as it is. */
static int32_t choose(const job *j, const char *name, part *p, bs_error *err) {
  const bs_st_tensor *t = p->from;
  const int is_table =
      ends(name, "embed_tokens.weight") || ends(name, "wte.weight") || ends(name, "wpe.weight");
  const int head = j->tied && !ends(name, "wpe.weight");
  scheme_of(j, name, p->scheme);
  p->type = t->dtype == BS_F32 ? BS_GGUF_F32 : t->dtype == BS_F16 ? BS_GGUF_F16 : BS_GGUF_BF16;
  if (t->rank == 1 || ends(name, "wpe.weight")) p->type = BS_GGUF_F32;
  if (t->rank != 2) p->reason = "no matrix";
  if (p->reason == NULL && (p->scheme[0] == '\0' || strcmp(p->scheme, "float") == 0)) p->reason = "as asked";
  if (p->reason == NULL && is_table && !head && !names_table(j->request->weights, name))
    p->reason = "a table that no product reads";
  if (p->reason != NULL) return BS_OK;
  const uint32_t type = bs_gguf_type_of_scheme(p->scheme);
  if (type == 0) {
    bs_error_set(err, BS_USAGE, "BS-QUANT-SCHEME", "%s is no scheme that can be written as GGUF", p->scheme);
    bs_error_hint(err, "w8g32, w4g32, w4k, w6k or float");
    return BS_USAGE;
  }
  if (p->cols % bs_gguf_type_of(type)->block != 0)
    p->reason = "its rows are no whole blocks";
  else
    p->type = type;
  return BS_OK;
}

/* Q and K of llama: the rows of a head are stored as pairs. */
static int64_t head_of(const job *j, const char *name) {
  const int pairs = strstr(name, ".self_attn.q_proj.") != NULL || strstr(name, ".self_attn.k_proj.") != NULL;
  return j->arch->pairs && pairs ? bs_gguf_config_head(j->config, j->arch) : 0;
}

static int64_t row_of(const part *p, int64_t row) {
  if (p->head < 2) return row;
  const int64_t in = row % p->head;
  return row - in + in % 2 * (p->head / 2) + in / 2;
}

static void read_row(const part *p, int64_t row, float *out) {
  const bs_st_tensor *t = p->from;
  const size_t size = BS_DTYPE_BYTES(t->dtype);
  const char *data = t->data;
  if (!p->turned) {
    bs_convert(BS_F32, out, t->dtype, data + (size_t)(row_of(p, row) * p->cols) * size, (uint64_t)p->cols);
    return;
  }
  for (int64_t k = 0; k < p->cols; k++)
    bs_convert(BS_F32, &out[k], t->dtype, data + (size_t)(k * p->rows + row) * size, 1);
}

static int32_t fill(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  part *p = ctx;
  const bs_gguf_type *type = bs_gguf_type_of(p->type);
  const uint64_t line = (uint64_t)p->cols / type->block * type->bytes;
  float *row = malloc((size_t)p->cols * sizeof *row + 1);
  int32_t rc = row != NULL ? bs_stop_check(err) : no_memory(err);
  for (uint64_t at = 0; rc == BS_OK && at < bytes; at += line) {
    char *to = (char *)out + at;
    read_row(p, (int64_t)((offset + at) / line), row);
    if (p->type == BS_GGUF_F32)
      memcpy(to, row, line);
    else if (p->type == BS_GGUF_F16 || p->type == BS_GGUF_BF16)
      bs_convert(p->type == BS_GGUF_F16 ? BS_F16 : BS_BF16, to, BS_F32, row, (uint64_t)p->cols);
    else
      rc = bs_gguf_pack_row(p->type, row, p->cols, to, &p->change, &p->size, err);
  }
  free(row);
  return rc;
}

static int32_t add_part(job *j, const bs_st_tensor *from, bs_error *err) {
  char whole[NAME], buffer[NAME];
  const char *name = whole_name(j, from->name, whole);
  if (is_left_out(j, name)) return BS_OK;
  const char *to = bs_gguf_tensor_name(j->arch->family, name, buffer, sizeof buffer);
  bs_gguf_new_tensor *t = &j->tensors[j->n];
  part *p = &j->parts[j->n];
  const int bad_type = from->dtype != BS_F32 && from->dtype != BS_F16 && from->dtype != BS_BF16;
  if (to == name || strlen(to) >= 64 || bad_type || from->rank < 1 || from->rank > 2) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GGUF-TENSOR",
                 "tensor %.100s (%s, %u dimensions) is not written as GGUF", from->name, from->type_name,
                 from->rank);
    return BS_UNSUPPORTED;
  }
  *p = (part){.from = from, .cols = from->dims[from->rank - 1], .head = head_of(j, name)};
  p->rows = from->rank == 2 ? from->dims[0] : 1;
  p->turned = from->rank == 2 && j->arch->family->is_gpt2 && strstr(name, ".h.") != NULL;
  if (p->turned) {
    p->rows = from->dims[1];
    p->cols = from->dims[0];
  }
  if (from->rank == 1) p->head = 0; /* of a bias, which llama has not */
  if (p->head > 0 && p->rows % p->head != 0)
    return bs_error_set(err, BS_INPUT, "BS-GGUF-TENSOR",
                        "tensor %.100s has %lld rows, no whole heads of %lld", from->name, (long long)p->rows,
                        (long long)p->head);
  const int32_t rc = choose(j, from->name, p, err);
  if (rc != BS_OK) return rc;
  const bs_gguf_type *type = bs_gguf_type_of(p->type);
  *t = (bs_gguf_new_tensor){.type = p->type, .rank = from->rank, .ctx = p, .fill = fill};
  snprintf(t->name, sizeof t->name, "%s", to);
  t->dims[0] = from->rank == 2 ? p->rows : p->cols;
  t->dims[1] = p->cols;
  t->bytes = (uint64_t)(p->rows * (p->cols / type->block)) * type->bytes;
  j->rounded += p->reason == NULL;
  j->n++;
  return BS_OK;
}

static int32_t add_parts(job *j, bs_error *err) {
  size_t all = 0;
  for (size_t i = 0; i < j->n_files; i++) all += (size_t)j->files[i].count;
  j->parts = calloc(all + 1, sizeof *j->parts);
  j->tensors = calloc(all + 1, sizeof *j->tensors);
  if (j->parts == NULL || j->tensors == NULL) return no_memory(err);
  for (size_t i = 0; i < j->n_files; i++)
    for (uint64_t k = 0; k < j->files[i].count; k++) {
      const int32_t rc = add_part(j, &j->files[i].tensors[k], err);
      if (rc != BS_OK) return rc;
    }
  if (j->rounded > 0) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-NOTHING", "no weight of the folder was quantised");
  size_t first = 0; /* matrix; vectors of one dimension have one row */
  while (first < j->n && j->tensors[first].rank != 2) first++;
  if (first < j->n)
    bs_error_hint(err, "the first one, %s, stays: %s", j->tensors[first].name, j->parts[first].reason);
  return BS_UNSUPPORTED;
}

/* ---- the result ---------------------------------------------------------------------------------- */

static json_t *report(const job *j) {
  json_t *weights = json_array(), *kept = json_array();
  uint64_t before = 0, after = 0;
  for (size_t i = 0; i < j->n; i++) {
    const part *p = &j->parts[i];
    json_t *row = json_pack("{s:s, s:I, s:I, s:I}", "name", p->from->name, "rows", (json_int_t)p->rows,
                            "cols", (json_int_t)p->cols, "bytes", (json_int_t)j->tensors[i].bytes);
    if (p->reason != NULL) {
      json_object_set_new(row, "reason", json_string(p->reason));
      if (p->from->rank == 2) json_array_append(kept, row);
      json_decref(row);
      continue;
    }
    json_object_set_new(row, "scheme", json_string(p->scheme));
    json_object_set_new(row, "format", json_string(bs_gguf_type_of(p->type)->name));
    json_object_set_new(row, "bytes_before", json_integer((json_int_t)p->from->bytes));
    json_object_set_new(row, "error", json_real(p->size > 0.0 ? sqrt(p->change / p->size) : 0.0));
    json_array_append_new(weights, row);
    before += p->from->bytes;
    after += j->tensors[i].bytes;
  }
  return json_pack("{s:s, s:s, s:I, s:I, s:b, s:o, s:o}", "from", j->request->from, "to", j->request->to,
                   "bytes_before", (json_int_t)before, "bytes", (json_int_t)after, "tokenizer",
                   j->tokenizer != NULL, "weights", weights, "kept", kept);
}

static int64_t vocabulary(const job *j) {
  for (size_t i = 0; i < j->n; i++)
    if (strcmp(j->tensors[i].name, "token_embd.weight") == 0) return j->parts[i].rows;
  return 0;
}

static int32_t unchanged(const job *j, bs_error *err) {
  for (size_t i = 0; i < j->n_files; i++) {
    const int32_t rc = bs_map_unchanged(&j->files[i].map, j->paths[i], err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t bs_model_quantize_gguf(const bs_quantize_request *request, json_t **out, bs_error *err) {
  job j = {.request = request};
  *out = NULL;
  int32_t rc = open_folder(&j, err);
  if (rc == BS_OK) rc = bs_gguf_config_arch(j.config, &j.arch, err);
  if (rc == BS_OK) {
    const json_t *tied = json_object_get(j.config, "tie_word_embeddings");
    j.tied = tied == NULL ? j.arch->family->is_gpt2 : json_is_true(tied);
    rc = bs_gguf_put_config(j.config, j.arch, &j.keys, err);
  }
  if (rc == BS_OK) rc = add_parts(&j, err);
  if (rc == BS_OK && j.tokenizer != NULL)
    rc = bs_gguf_put_tokens(j.tokenizer, j.config, vocabulary(&j), &j.keys, err);
  if (rc == BS_OK) rc = bs_gguf_write(&j.keys, j.tensors, j.n, request->to, err);
  if (rc == BS_OK) rc = unchanged(&j, err);
  if (rc == BS_OK) *out = report(&j);
  for (size_t i = 0; i < j.n_files; i++) {
    bs_st_close(&j.files[i]);
    free(j.paths[i]);
  }
  json_decref(j.config);
  json_decref(j.tokenizer);
  json_decref(j.index);
  bs_gguf_keys_free(&j.keys);
  free(j.files);
  free(j.paths);
  free(j.parts);
  free(j.tensors);
  return rc;
}
