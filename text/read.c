/* SPDX-License-Identifier: MIT
 * read.c - reads tokenizer.json (Hugging Face's tokenizers, version 1.0) and, beside it, which tokens have a
 * role in tokenizer_config.json. A scan before the parser bounds the nesting. Truncation and padding are left
 * to the caller. A GGUF file goes to read_gguf.c. Called by api.c. */
#include "text/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "formats/map.h"
#include "text/read_gguf.h"

enum { MAX_FILE = 64 << 20, MAX_DEPTH = 32 };

/* ---- parts of the file ----------------------------------------------------------------------- */

int32_t bs_tok_bad(bs_error *err, const char *part, const char *what) {
  return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "%.60s: %s", part, what);
}

int32_t bs_tok_unknown(bs_error *err, const char *what, const char *type) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-TOK-KIND", "%s is '%.100s', which is not known", what, type);
  bs_error_hint(err, "share/doc/blockshock/models.md lists the tokenizers that are served");
  return BS_UNSUPPORTED;
}

char *bs_tok_copy(const char *text, size_t bytes) {
  char *copy = malloc(bytes + 1);
  if (copy == NULL) return NULL;
  if (bytes > 0) memcpy(copy, text, bytes);
  copy[bytes] = '\0';
  return copy;
}

const char *bs_tok_json_type(const json_t *object) {
  const char *type = json_string_value(json_object_get(object, "type"));
  return type == NULL ? "" : type;
}

int32_t bs_tok_json_text(const json_t *object, const char *part, const char *key, const char **out_text,
                         size_t *out_bytes, bs_error *err) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value))
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "%.60s: %s is no text", part, key);
  *out_text = json_string_value(value);
  *out_bytes = json_string_length(value);
  return BS_OK;
}

int32_t bs_tok_json_bool(const json_t *object, const char *part, const char *key, int fallback, int *out,
                         bs_error *err) {
  const json_t *value = json_object_get(object, key);
  *out = value == NULL || json_is_null(value) ? fallback : json_is_true(value);
  if (value != NULL && !json_is_null(value) && !json_is_boolean(value))
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "%.60s: %s is neither true nor false", part, key);
  return BS_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The nesting, minding strings. Malformed text is left to the parser. */
static int32_t scan(const char *text, size_t bytes, bs_error *err) {
  int depth = 0, in_string = 0;
  for (size_t i = 0; i < bytes; i++) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        i++;
      else if (c == '"')
        in_string = 0;
    } else if (c == '"') {
      in_string = 1;
    } else if (c == '{' || c == '[') {
      if (++depth > MAX_DEPTH)
        return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "it nests deeper than %d at byte %zu", MAX_DEPTH,
                            i);
    } else if (c == '}' || c == ']') {
      depth--;
    }
  }
  return BS_OK;
}

static int32_t load(const char *path, json_t **out, bs_error *err) {
  bs_map map = {0};
  char *text = NULL;
  json_error_t why;
  int32_t rc = bs_map_open(path, "BS-TOK-FILE", &map, err);
  if (rc != BS_OK) return rc;
  if (map.bytes > MAX_FILE) {
    rc = bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "%.200s has %llu bytes; at most %d are read", path,
                      (unsigned long long)map.bytes, MAX_FILE);
  } else if ((text = malloc((size_t)map.bytes + 1)) == NULL) {
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %.200s", path);
  } else {
    rc = bs_map_pread(&map, path, 0, text, map.bytes, err);
  }
  const size_t bytes = (size_t)map.bytes;
  bs_map_close(&map);
  if (rc == BS_OK && (rc = scan(text, bytes, err)) == BS_OK &&
      (*out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why)) == NULL)
    rc = bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "line %d: %s", why.line, why.text);
  free(text);
  return rc;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static int32_t read_flags(const json_t *token, int *out_flags, int *out_normalized, bs_error *err) {
  static const struct {
    const char *key;
    int flag;
  } rows[] = {{"special", BS_TOK_SPECIAL},
              {"single_word", BS_TOK_SINGLE_WORD},
              {"lstrip", BS_TOK_LSTRIP},
              {"rstrip", BS_TOK_RSTRIP}};
  int on;
  *out_flags = 0;
  int32_t rc = bs_tok_json_bool(token, "an added token", "normalized", 1, out_normalized, err);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0] && rc == BS_OK; i++) {
    rc = bs_tok_json_bool(token, "an added token", rows[i].key, 0, &on, err);
    if (on) *out_flags |= rows[i].flag;
  }
  return rc;
}

static int32_t add_extra(const char *text, size_t bytes, int64_t id, bs_tokenizer *out, bs_error *err) {
  const char *other = bs_tok_vocab_text(&out->model.vocab, id, NULL);
  if (other == NULL) return bs_tok_vocab_add(&out->extra, text, bytes, id, err);
  return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "two tokens have the id %lld: '%.60s' and '%.60s'",
                      (long long)id, other, text);
}

/* First all tokens get their ids, then what is kept by id has its size. */
static int32_t name_added(const json_t *tokens, bs_tokenizer *out, bs_error *err) {
  size_t i, bytes;
  const json_t *token;
  const char *text;
  if (tokens != NULL && !json_is_null(tokens) && !json_is_array(tokens))
    return bs_tok_bad(err, "added_tokens", "it is no list");
  json_array_foreach(tokens, i, token) {
    const json_t *id = json_object_get(token, "id");
    int32_t rc = bs_tok_json_text(token, "an added token", "content", &text, &bytes, err);
    if (rc == BS_OK && !json_is_integer(id)) rc = bs_tok_bad(err, "an added token", "id is no integer");
    if (rc == BS_OK && bytes > 0 && bs_tok_find(out, text, bytes) == BS_TOK_NONE)
      rc = add_extra(text, bytes, json_integer_value(id), out, err);
    if (rc != BS_OK) return rc;
  }
  if (out->model.vocab.count == 0) return bs_tok_bad(err, "the model", "it has no tokens");
  out->is_special = calloc(bs_tok_size(out), 1);
  out->shown = calloc(bs_tok_size(out), sizeof *out->shown);
  if (out->is_special == NULL || out->shown == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  return BS_OK;
}

/* A normalized token is looked for as the normalizers write it, and decoders see that text. */
static int32_t add_one(const json_t *token, bs_tok_work *work, uint8_t *seen, bs_tokenizer *out,
                       bs_error *err) {
  const json_t *content = json_object_get(token, "content");
  const char *text = json_string_value(content);
  const size_t bytes = json_string_length(content);
  int flags, normalized;
  if (bytes == 0) return BS_OK;
  const uint32_t id = bs_tok_find(out, text, bytes);
  int32_t rc = read_flags(token, &flags, &normalized, err);
  if (rc != BS_OK) return rc;
  if (seen[id])
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "added token '%.60s' is there twice", text);
  seen[id] = 1;
  out->is_special[id] = (flags & BS_TOK_SPECIAL) != 0;
  if (!normalized) return bs_tok_added_add(&out->added, text, bytes, id, flags, err);
  rc = bs_tok_normalize(&out->normalizers, work, text, bytes, err);
  if (rc != BS_OK) return rc;
  if (work->text.size != bytes || memcmp(work->text.data, text, bytes) != 0) {
    bs_text_append(&out->shown[id], work->text.data, work->text.size);
    if (out->shown[id].failed)
      return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
    out->is_special[id] = 0; /* as in tokenizers: such a token is not left out of a text */
  }
  return bs_tok_added_add(&out->added_normalized, work->text.data, work->text.size, id, flags, err);
}

static int32_t read_added(const json_t *tokens, bs_tokenizer *out, bs_error *err) {
  bs_tok_work work = {0};
  size_t i;
  const json_t *token;
  int32_t rc = name_added(tokens, out, err);
  if (rc != BS_OK) return rc;
  uint8_t *seen = calloc(bs_tok_size(out), 1);
  if (seen == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  rc = bs_tok_work_make(&work, err);
  json_array_foreach(tokens, i, token) if (rc == BS_OK) rc = add_one(token, &work, seen, out, err);
  bs_tok_work_free(&work);
  free(seen);
  bs_tok_added_sort(&out->added);
  bs_tok_added_sort(&out->added_normalized);
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int32_t read_file(const json_t *file, bs_tokenizer *out, bs_error *err) {
  const json_t *version = json_object_get(file, "version"), *decoder = json_object_get(file, "decoder");
  if (!json_is_object(file)) return bs_tok_bad(err, "the file", "it is no object");
  if (version != NULL && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
    return bs_tok_unknown(err, "the version",
                          json_is_string(version) ? json_string_value(version) : "no text");
  int32_t rc = bs_tok_read_normalizer(json_object_get(file, "normalizer"), &out->normalizers, err);
  if (rc == BS_OK) rc = bs_tok_read_splitter(json_object_get(file, "pre_tokenizer"), &out->splitters, err);
  if (rc == BS_OK) rc = bs_tok_read_decoder(decoder, &out->decoders, err);
  if (rc == BS_OK) rc = bs_tok_read_around(json_object_get(file, "post_processor"), out, err);
  if (rc == BS_OK) rc = bs_tok_read_model(json_object_get(file, "model"), &out->model, err);
  if (rc == BS_OK) rc = read_added(json_object_get(file, "added_tokens"), out, err);
  out->no_decoder = decoder == NULL || json_is_null(decoder);
  return rc;
}

/* The roles of tokens: a text, or an added token with its content. A file that is not there says nothing. */
static int32_t read_roles(const char *path, bs_tokenizer *out, bs_error *err) {
  static const char *const keys[] = {[BS_TOKEN_BOS] = "bos_token",
                                     [BS_TOKEN_EOS] = "eos_token",
                                     [BS_TOKEN_UNK] = "unk_token",
                                     [BS_TOKEN_PAD] = "pad_token"};
  struct stat info;
  json_t *file = NULL;
  for (size_t i = 0; i < 4; i++) out->roles[i] = -1;
  out->roles[BS_TOKEN_UNK] = out->model.unk == BS_TOK_NONE ? -1 : (int64_t)out->model.unk;
  if (stat(path, &info) != 0) return BS_OK;
  const int32_t rc = load(path, &file, err);
  for (size_t i = 0; i < 4 && rc == BS_OK; i++) {
    const json_t *token = json_object_get(file, keys[i]);
    if (json_is_object(token)) token = json_object_get(token, "content");
    if (!json_is_string(token)) continue;
    const uint32_t id = bs_tok_find(out, json_string_value(token), json_string_length(token));
    if (id != BS_TOK_NONE) out->roles[i] = id;
  }
  json_decref(file);
  if (rc != BS_OK) bs_error_file(err, path);
  return rc;
}

/* The ids that end a text, one or a list, and the role. */
static int32_t read_ends(const char *path, bs_tokenizer *out, bs_error *err) {
  struct stat info;
  json_t *file = NULL;
  int32_t rc = bs_tok_add_end(out, out->roles[BS_TOKEN_EOS], err);
  if (rc != BS_OK || stat(path, &info) != 0) return rc;
  rc = load(path, &file, err);
  const json_t *ids = json_object_get(file, "eos_token_id");
  if (rc == BS_OK && json_is_integer(ids)) rc = bs_tok_add_end(out, json_integer_value(ids), err);
  for (size_t i = 0; i < json_array_size(ids) && rc == BS_OK; i++)
    if (json_is_integer(json_array_get(ids, i)))
      rc = bs_tok_add_end(out, json_integer_value(json_array_get(ids, i)), err);
  json_decref(file);
  if (rc != BS_OK) bs_error_file(err, path);
  return rc;
}

/* A model's file, beside which its tokenizer lies. */
static int is_model(const char *path) {
  static const char *const ends[] = {".onnx", ".safetensors"};
  const size_t n = strlen(path);
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
    if (n >= strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0) return 1;
  return 0;
}

static int32_t read_json(const char *path, int is_folder, bs_tokenizer *out, bs_error *err) {
  bs_text file = {0}, roles = {0}, ends = {0};
  json_t *root = NULL;
  const char *slash = strrchr(path, '/');
  const int folder = is_folder ? (int)strlen(path) : slash == NULL ? 0 : (int)(slash - path + 1);
  bs_text_printf(&roles, "%.*s%stokenizer_config.json", folder, path, is_folder ? "/" : "");
  bs_text_printf(&ends, "%.*s%sgeneration_config.json", folder, path, is_folder ? "/" : "");
  if (is_folder || is_model(path))
    bs_text_printf(&file, "%.*s%stokenizer.json", folder, path, is_folder ? "/" : "");
  else
    bs_text_printf(&file, "%s", path);
  int32_t rc = file.failed || roles.failed || ends.failed
                   ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a path")
                   : load(file.data, &root, err);
  if (rc == BS_OK) rc = read_file(root, out, err);
  json_decref(root);
  if (rc != BS_OK && rc != BS_NO_MEMORY && err != NULL && strcmp(err->id, "BS-TOK-FILE") != 0)
    bs_error_file(err, file.data);
  if (rc == BS_OK) rc = read_roles(roles.data, out, err);
  if (rc == BS_OK) rc = read_ends(ends.data, out, err);
  bs_text_free(&file);
  bs_text_free(&roles);
  bs_text_free(&ends);
  return rc;
}

int32_t bs_tok_read(const char *path, bs_tokenizer *out, bs_error *err) {
  struct stat info;
  const int is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
  return !is_folder && bs_tok_is_gguf(path) ? bs_tok_read_gguf(path, out, err)
                                            : read_json(path, is_folder, out, err);
}
