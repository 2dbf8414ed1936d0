/* SPDX-License-Identifier: MIT
 * gguf_tokens.c - see gguf_tokens.h. Merges are written in their order; where the file has scores (byte
 * fallback), a token's score is minus the rank of the merge that makes it. */
#include "lab/model/gguf_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/model/gguf_kind.h"

enum { MOST_JSON = 64 << 20, MOST_TOKENS = 1 << 20 };
/* Types of tokens in the format. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

json_t *bs_gguf_read_json(const char *path, bs_error *err) {
  bs_map map = {0};
  json_t *root = NULL;
  json_error_t bad;
  char *text = NULL;
  if (bs_map_open(path, "BS-HF-READ", &map, err) != BS_OK) return NULL;
  if (map.bytes > MOST_JSON)
    bs_error_set(err, BS_INPUT, "BS-HF-JSON", "%llu bytes; up to %d are read", (unsigned long long)map.bytes,
                 MOST_JSON);
  else if ((text = malloc((size_t)map.bytes + 1)) == NULL)
    bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %.200s", path);
  else if (bs_map_pread(&map, path, 0, text, map.bytes, err) == BS_OK) {
    root = json_loadb(text, (size_t)map.bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &bad);
    if (root == NULL)
      bs_error_set(err, BS_INPUT, "BS-HF-JSON", "line %d column %d: %.200s", bad.line, bad.column, bad.text);
    else if (!json_is_object(root))
      bs_error_set(err, BS_INPUT, "BS-HF-JSON", "it is not a JSON object");
  }
  if (root != NULL && !json_is_object(root)) {
    json_decref(root);
    root = NULL;
  }
  if (root == NULL && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", path);
  free(text);
  bs_map_close(&map);
  return root;
}

/* ---- tokens -------------------------------------------------------------------------------------- */

typedef struct token {
  const char *text;
  size_t size;
  int32_t type;
  float score;
} token;

static int32_t put_token(token *tokens, size_t n, const char *text, size_t size, const json_t *id,
                         int32_t type, bs_error *err) {
  const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
  if (at < 0 || (size_t)at >= n) {
    bs_error_set(err, BS_INPUT, "BS-GGUF-TOKENIZER",
                 "tokenizer.json: token '%.60s' has the id %lld; the model has %zu", text, (long long)at, n);
    return BS_INPUT;
  }
  tokens[at] = (token){.text = text, .size = size, .type = type, .score = 0.0F};
  return BS_OK;
}

static int32_t read_tokens(const json_t *tokenizer, token *tokens, size_t n, int fallback, bs_error *err) {
  const json_t *model = json_object_get(tokenizer, "model"), *id, *added;
  const char *text, *unknown = json_string_value(json_object_get(model, "unk_token"));
  size_t i;
  int32_t rc = BS_OK;
  json_object_foreach((json_t *)(uintptr_t)json_object_get(model, "vocab"), text, id) {
    const size_t size = strlen(text);
    const int byte = fallback && size == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
    const int unk = unknown != NULL && strcmp(unknown, text) == 0;
    rc = put_token(tokens, n, text, size, id, byte ? BYTE : unk ? UNKNOWN : NORMAL, err);
    if (rc != BS_OK) return rc;
  }
  json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, added) {
    const json_t *content = json_object_get(added, "content");
    const int special = json_is_true(json_object_get(added, "special"));
    if (!json_is_string(content)) return bs_gguf_kind_refuse("an added token without a text", err);
    const int unk = unknown != NULL && strcmp(unknown, json_string_value(content)) == 0;
    rc = put_token(tokens, n, json_string_value(content), json_string_length(content),
                   json_object_get(added, "id"),
                   unk && fallback ? UNKNOWN
                   : special       ? CONTROL
                                   : USER_DEFINED,
                   err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* A merge as "a b"; in `joined` also as "ab". 0: it is neither form. */
static int merge_texts(const json_t *merge, bs_gguf_keys *both, bs_gguf_keys *joined) {
  const char *a = NULL, *b = NULL;
  size_t a_size = 0, b_size = 0;
  both->size = joined->size = 0;
  if (json_is_array(merge) && json_array_size(merge) == 2) {
    a = json_string_value(json_array_get(merge, 0));
    b = json_string_value(json_array_get(merge, 1));
    a_size = json_string_length(json_array_get(merge, 0));
    b_size = json_string_length(json_array_get(merge, 1));
  } else if (json_is_string(merge)) {
    a = json_string_value(merge);
    const char *blank = strchr(a, ' ');
    a_size = blank != NULL ? (size_t)(blank - a) : 0;
    b = blank != NULL ? blank + 1 : NULL;
    b_size = blank != NULL ? strlen(b) : 0;
  }
  if (a == NULL || b == NULL) return 0;
  bs_gguf_put_item(both, a, a_size);
  bs_gguf_put_item(both, " ", 1);
  bs_gguf_put_item(both, b, b_size);
  bs_gguf_put_item(joined, a, a_size);
  bs_gguf_put_item(joined, b, b_size);
  bs_gguf_put_item(joined, "", 1);
  return !both->failed && !joined->failed;
}

/* Readers by scores make a token of any two that are its text, also one that no merge makes. */
static int32_t check_made(const json_t *vocab, const token *tokens, size_t n, bs_error *err) {
  bs_gguf_keys first = {0};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < n && rc == BS_OK; i++) {
    const token *t = &tokens[i];
    if (t->text == NULL || t->type != NORMAL || t->score < 0.0F) continue;
    for (size_t at = 1; at < t->size && rc == BS_OK; at++) {
      first.size = 0;
      bs_gguf_put_item(&first, t->text, at);
      bs_gguf_put_item(&first, "", 1);
      if (!first.failed && json_object_get(vocab, (const char *)first.data) != NULL &&
          json_object_get(vocab, t->text + at) != NULL)
        rc = bs_gguf_kind_refuse("a token that no merge makes", err);
    }
  }
  if (first.failed) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a token");
  bs_gguf_keys_free(&first);
  return rc;
}

/* The merges as texts, or as scores of the tokens that they make. */
static int32_t put_merges(const json_t *tokenizer, token *tokens, size_t n, int fallback, bs_gguf_keys *keys,
                          bs_error *err) {
  const json_t *model = json_object_get(tokenizer, "model"), *merges = json_object_get(model, "merges"),
               *merge;
  const json_t *vocab = json_object_get(model, "vocab");
  bs_gguf_keys both = {0}, joined = {0};
  int32_t rc = BS_OK;
  size_t i;
  if (!fallback) bs_gguf_put_array(keys, "tokenizer.ggml.merges", BS_GGUF_KIND_TEXT, json_array_size(merges));
  json_array_foreach(merges, i, merge) {
    if (!merge_texts(merge, &both, &joined)) {
      rc = bs_gguf_kind_refuse("a merge that is not two tokens", err);
      break;
    }
    if (!fallback) {
      bs_gguf_put_item_text(keys, (const char *)both.data, both.size);
      continue;
    }
    const json_t *id = json_object_get(vocab, (const char *)joined.data);
    const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
    if (at < 0 || (size_t)at >= n) continue;
    if (tokens[at].score < 0.0F) continue; /* an earlier merge makes it */
    tokens[at].score = -1.0F - (float)i;
  }
  if (rc == BS_OK && fallback) rc = check_made(vocab, tokens, n, err);
  bs_gguf_keys_free(&both);
  bs_gguf_keys_free(&joined);
  return rc;
}

/* ---- keys ---------------------------------------------------------------------------------------- */

/* An id of config.json, or the first of a list; -1: none. */
static int64_t id_of(const json_t *config, const char *key) {
  const json_t *id = json_object_get(config, key);
  if (json_is_array(id)) id = json_array_get(id, 0);
  return json_is_integer(id) ? (int64_t)json_integer_value(id) : -1;
}

static void put_id(int64_t id, const char *to, bs_gguf_keys *keys) {
  if (id >= 0 && id < MOST_TOKENS) bs_gguf_put_u32(keys, to, (uint32_t)id);
}

static void put_lists(const token *tokens, size_t n, int fallback, bs_gguf_keys *keys) {
  bs_gguf_put_array(keys, "tokenizer.ggml.tokens", BS_GGUF_KIND_TEXT, n);
  for (size_t i = 0; i < n; i++) {
    char unused[32];
    snprintf(unused, sizeof unused, "[PAD%zu]", i);
    if (tokens[i].text != NULL)
      bs_gguf_put_item_text(keys, tokens[i].text, tokens[i].size);
    else
      bs_gguf_put_item_text(keys, unused, strlen(unused));
  }
  bs_gguf_put_array(keys, "tokenizer.ggml.token_type", BS_GGUF_KIND_I32, n);
  for (size_t i = 0; i < n; i++) {
    const int32_t type = tokens[i].text != NULL ? tokens[i].type : UNUSED;
    bs_gguf_put_item(keys, &type, sizeof type);
  }
  if (!fallback) return;
  bs_gguf_put_array(keys, "tokenizer.ggml.scores", BS_GGUF_KIND_F32, n);
  for (size_t i = 0; i < n; i++) bs_gguf_put_item(keys, &tokens[i].score, sizeof tokens[i].score);
}

/* The ids around a text: those of the template, else those of config.json. */
static int32_t put_around(const bs_gguf_tok *kind, const json_t *config, bs_gguf_keys *keys, bs_error *err) {
  const int64_t eos = id_of(config, "eos_token_id");
  const int64_t bos = kind->before >= 0 ? kind->before : id_of(config, "bos_token_id");
  if (kind->after >= 0 && eos >= 0 && kind->after != eos)
    return bs_gguf_kind_refuse("a token after a text that is not eos_token_id of config.json", err);
  put_id(bos, "tokenizer.ggml.bos_token_id", keys);
  put_id(kind->after >= 0 ? kind->after : eos, "tokenizer.ggml.eos_token_id", keys);
  bs_gguf_put_bool(keys, "tokenizer.ggml.add_bos_token", kind->before >= 0);
  bs_gguf_put_bool(keys, "tokenizer.ggml.add_eos_token", kind->after >= 0);
  return BS_OK;
}

int32_t bs_gguf_put_tokens(const json_t *tokenizer, const json_t *config, int64_t vocabulary,
                           bs_gguf_keys *keys, bs_error *err) {
  const json_t *model = json_object_get(tokenizer, "model");
  bs_gguf_tok kind;
  int32_t rc = bs_gguf_kind_of(tokenizer, &kind, err);
  if (rc != BS_OK) return rc;
  const int fallback = kind.fallback;
  const char *unknown = json_string_value(json_object_get(model, "unk_token"));
  if (vocabulary < 1 || vocabulary > MOST_TOKENS)
    return bs_gguf_kind_refuse("a vocabulary of this size", err);
  const size_t n = (size_t)vocabulary;
  token *tokens = calloc(n, sizeof *tokens);
  if (tokens == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %zu tokens", n);
  bs_gguf_put_text(keys, "tokenizer.ggml.model", fallback ? "llama" : "gpt2", fallback ? 5 : 4);
  if (kind.pre != NULL) bs_gguf_put_text(keys, "tokenizer.ggml.pre", kind.pre, strlen(kind.pre));
  rc = read_tokens(tokenizer, tokens, n, fallback, err);
  if (rc == BS_OK) rc = put_merges(tokenizer, tokens, n, fallback, keys, err);
  if (rc == BS_OK) put_lists(tokens, n, fallback, keys);
  if (fallback && unknown != NULL)
    put_id(json_integer_value(json_object_get(json_object_get(model, "vocab"), unknown)),
           "tokenizer.ggml.unknown_token_id", keys);
  if (rc == BS_OK) rc = put_around(&kind, config, keys, err);
  if (fallback) bs_gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix", kind.prepends);
  free(tokens);
  return rc;
}
