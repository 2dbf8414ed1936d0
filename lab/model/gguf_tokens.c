/* SPDX-License-Identifier: MIT
 * gguf_tokens.c - see gguf_tokens.h. Merges are written in their order; where the file has scores (byte
 * fallback), a token's score is minus the rank of the merge that makes it. */
#include "lab/model/gguf_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

enum { MOST_JSON = 64 << 20, MOST_TOKENS = 1 << 20 };
/* Types of tokens in the format. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

#define CL100K_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define CL100K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct {
  const char *name, *pattern;
} pieces[] = {{"llama-bpe", CL100K_HEAD "{1,3}" CL100K_TAIL}, {"qwen2", CL100K_HEAD CL100K_TAIL}};

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

static int32_t refuse(const char *what, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-GGUF-TOKENIZER", "tokenizer.json: %s cannot be written as GGUF",
               what);
  bs_error_hint(err, "without tokenizer.json in the folder the file gets no tokenizer");
  return BS_UNSUPPORTED;
}

/* ---- the kind ------------------------------------------------------------------------------------ */

static int is_type(const json_t *part, const char *type) {
  const char *is = json_string_value(json_object_get(part, "type"));
  return is != NULL && strcmp(is, type) == 0;
}

static const char *pattern_name(const json_t *part) {
  const char *text = json_string_value(json_object_get(json_object_get(part, "pattern"), "Regex"));
  for (size_t i = 0; text != NULL && i < sizeof pieces / sizeof pieces[0]; i++)
    if (strcmp(pieces[i].pattern, text) == 0) return pieces[i].name;
  return NULL;
}

/* The name in the format of how a text is split; NULL: the format has no name for it. */
static const char *pieces_of(const json_t *tokenizer) {
  const json_t *pre = json_object_get(tokenizer, "pre_tokenizer");
  const json_t *list = json_object_get(pre, "pretokenizers");
  if (is_type(pre, "ByteLevel")) {
    const int split = !json_is_false(json_object_get(pre, "use_regex"));
    return split && !json_is_true(json_object_get(pre, "add_prefix_space")) ? "gpt-2" : NULL;
  }
  if (!is_type(pre, "Sequence") || json_array_size(list) != 2) return NULL;
  const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
  if (!is_type(first, "Split") || !is_type(second, "ByteLevel")) return NULL;
  return json_is_false(json_object_get(second, "use_regex")) ? pattern_name(first) : NULL;
}

/* 1: a special token stands before a text. */
static int begins_with_special(const json_t *post) {
  const json_t *list = json_object_get(post, "processors"), *part;
  size_t i;
  json_array_foreach(list, i, part) if (begins_with_special(part)) return 1;
  const json_t *single = json_object_get(post, "single");
  return json_object_get(json_array_get(single, 0), "SpecialToken") != NULL;
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
    if (!json_is_string(content)) return refuse("an added token without a text", err);
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
      rc = refuse("a merge that is not two tokens", err);
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
  bs_gguf_keys_free(&both);
  bs_gguf_keys_free(&joined);
  return rc;
}

/* ---- keys ---------------------------------------------------------------------------------------- */

static void put_id(const json_t *config, const char *from, const char *to, bs_gguf_keys *keys) {
  const json_t *id = json_object_get(config, from);
  if (json_is_array(id)) id = json_array_get(id, 0);
  if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < MOST_TOKENS)
    bs_gguf_put_u32(keys, to, (uint32_t)json_integer_value(id));
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

/* 1: a blank is put before a text. */
static int prepends(const json_t *part) {
  const json_t *list = json_object_get(part, "normalizers"), *inner;
  size_t i;
  json_array_foreach(list, i, inner) if (prepends(inner)) return 1;
  return is_type(part, "Prepend");
}

int32_t bs_gguf_put_tokens(const json_t *tokenizer, const json_t *config, int64_t vocabulary,
                           bs_gguf_keys *keys, bs_error *err) {
  const json_t *model = json_object_get(tokenizer, "model");
  const int fallback = json_is_true(json_object_get(model, "byte_fallback"));
  const char *pre = fallback ? NULL : pieces_of(tokenizer);
  if (!is_type(model, "BPE") || !json_is_object(json_object_get(model, "vocab")))
    return refuse("a model that is no BPE", err);
  if (!fallback && pre == NULL)
    return refuse("a pre-tokenizer that is not GPT-2's, Llama 3's or Qwen2's", err);
  if (vocabulary < 1 || vocabulary > MOST_TOKENS) return refuse("a vocabulary of this size", err);
  const size_t n = (size_t)vocabulary;
  token *tokens = calloc(n, sizeof *tokens);
  if (tokens == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %zu tokens", n);
  bs_gguf_put_text(keys, "tokenizer.ggml.model", fallback ? "llama" : "gpt2", fallback ? 5 : 4);
  if (pre != NULL) bs_gguf_put_text(keys, "tokenizer.ggml.pre", pre, strlen(pre));
  int32_t rc = read_tokens(tokenizer, tokens, n, fallback, err);
  if (rc == BS_OK) rc = put_merges(tokenizer, tokens, n, fallback, keys, err);
  if (rc == BS_OK) put_lists(tokens, n, fallback, keys);
  put_id(config, "bos_token_id", "tokenizer.ggml.bos_token_id", keys);
  put_id(config, "eos_token_id", "tokenizer.ggml.eos_token_id", keys);
  bs_gguf_put_bool(keys, "tokenizer.ggml.add_bos_token",
                   begins_with_special(json_object_get(tokenizer, "post_processor")));
  if (fallback)
    bs_gguf_put_bool(keys, "tokenizer.ggml.add_space_prefix",
                     prepends(json_object_get(tokenizer, "normalizer")));
  free(tokens);
  return rc;
}
