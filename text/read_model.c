/* SPDX-License-Identifier: MIT
 * read_model.c - the model of tokenizer.json, its vocabulary and merges, and the ids that a post-processor
 * puts around a text. Called by read.c. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/read.h"

/* ---- model ----------------------------------------------------------------------------------- */

static int32_t read_vocab(const json_t *vocab, bs_tok_model *out, bs_error *err) {
  const char *text;
  json_t *id;
  if (!json_is_object(vocab)) return bs_tok_bad(err, "the model", "vocab is no object");
  if (json_object_size(vocab) > BS_TOK_MAX_TOKENS)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "%zu tokens; at most %d are read",
                        json_object_size(vocab), BS_TOK_MAX_TOKENS);
  json_object_foreach((json_t *)vocab, text, id) {
    if (!json_is_integer(id))
      return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "the id of token '%.60s' is no integer", text);
    const int32_t rc = bs_tok_vocab_add(&out->vocab, text, strlen(text), json_integer_value(id), err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* The two tokens of a merge: "a b", or ["a", "b"]. */
static int merge_parts(const json_t *merge, const char *parts[2], size_t bytes[2]) {
  if (json_is_array(merge)) {
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right)) return 0;
    parts[0] = json_string_value(left);
    bytes[0] = json_string_length(left);
    parts[1] = json_string_value(right);
    bytes[1] = json_string_length(right);
    return 1;
  }
  const char *text = json_string_value(merge), *blank = text == NULL ? NULL : strchr(text, ' ');
  if (blank == NULL || strchr(blank + 1, ' ') != NULL) return 0;
  parts[0] = text;
  bytes[0] = (size_t)(blank - text);
  parts[1] = blank + 1;
  bytes[1] = strlen(blank + 1);
  return 1;
}

int32_t bs_tok_read_merge(const char *const parts[2], const size_t bytes[2], uint32_t rank, bs_text *whole,
                          bs_tok_model *out, bs_error *err) {
  const size_t prefix = out->prefix == NULL ? 0 : strlen(out->prefix);
  if (bytes[1] < prefix)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "merge %u is not two tokens", rank);
  whole->size = 0;
  bs_text_append(whole, parts[0], bytes[0]);
  bs_text_append(whole, parts[1] + prefix, bytes[1] - prefix);
  if (whole->failed) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for merges");
  const uint32_t left = bs_tok_vocab_find(&out->vocab, parts[0], bytes[0]),
                 right = bs_tok_vocab_find(&out->vocab, parts[1], bytes[1]),
                 id = bs_tok_vocab_find(&out->vocab, whole->data, whole->size);
  if (left == BS_TOK_NONE || right == BS_TOK_NONE || id == BS_TOK_NONE)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT",
                        "merge %u, '%.60s' and '%.60s', has a token that is not there", rank, parts[0],
                        parts[1]);
  bs_tok_bpe_merge(out, left, right, rank, id);
  return BS_OK;
}

static int32_t read_merge(const json_t *merge, uint32_t rank, bs_text *whole, bs_tok_model *out,
                          bs_error *err) {
  const char *parts[2];
  size_t bytes[2];
  if (!merge_parts(merge, parts, bytes))
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "merge %u is not two tokens", rank);
  return bs_tok_read_merge(parts, bytes, rank, whole, out, err);
}

static int32_t read_merges(const json_t *merges, bs_tok_model *out, bs_error *err) {
  bs_text whole = {0};
  size_t i, skipped = 0;
  const json_t *merge;
  if (!json_is_array(merges)) return bs_tok_bad(err, "the model", "merges is no list");
  if (json_array_size(merges) > BS_TOK_MAX_MERGES)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "%zu merges; at most %d are read",
                        json_array_size(merges), BS_TOK_MAX_MERGES);
  int32_t rc = bs_tok_bpe_prepare(out, json_array_size(merges), err);
  json_array_foreach(merges, i, merge) {
    const char *text = json_string_value(merge);
    if (text != NULL && strncmp(text, "#version", 8) == 0)
      skipped++;
    else if (rc == BS_OK)
      rc = read_merge(merge, (uint32_t)(i - skipped), &whole, out, err);
  }
  bs_text_free(&whole);
  return rc;
}

/* A text that may be missing, null or empty: *out stays NULL then. */
static int32_t read_affix(const json_t *model, const char *key, char **out, bs_error *err) {
  const json_t *value = json_object_get(model, key);
  if (value == NULL || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0))
    return BS_OK;
  if (!json_is_string(value)) return bs_tok_bad(err, "the model", "a prefix or suffix is no text");
  *out = bs_tok_copy(json_string_value(value), json_string_length(value));
  return *out != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
}

static int32_t read_unk(const json_t *model, bs_tok_model *out, bs_error *err) {
  const json_t *unk = json_object_get(model, "unk_token");
  out->unk = BS_TOK_NONE;
  if (unk == NULL || json_is_null(unk)) return BS_OK;
  if (json_is_string(unk))
    out->unk = bs_tok_vocab_find(&out->vocab, json_string_value(unk), json_string_length(unk));
  return out->unk != BS_TOK_NONE ? BS_OK : bs_tok_bad(err, "the model", "unk_token is no token");
}

static int32_t read_bpe(const json_t *model, bs_tok_model *out, bs_error *err) {
  const json_t *dropout = json_object_get(model, "dropout");
  out->kind = BS_TOK_BPE;
  if (json_is_number(dropout) && json_number_value(dropout) != 0)
    return bs_tok_unknown(err, "the model", "BPE with dropout, whose ids are random");
  int32_t rc = read_affix(model, "continuing_subword_prefix", &out->prefix, err);
  if (rc == BS_OK) rc = read_affix(model, "end_of_word_suffix", &out->suffix, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(model, "BPE", "fuse_unk", 0, &out->fuse_unk, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(model, "BPE", "byte_fallback", 0, &out->byte_fallback, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(model, "BPE", "ignore_merges", 0, &out->ignore_merges, err);
  if (rc == BS_OK) rc = read_unk(model, out, err);
  return rc == BS_OK ? read_merges(json_object_get(model, "merges"), out, err) : rc;
}

static int32_t read_wordpiece(const json_t *model, bs_tok_model *out, bs_error *err) {
  const json_t *longest = json_object_get(model, "max_input_chars_per_word");
  out->kind = BS_TOK_WORDPIECE;
  if (!json_is_integer(longest) || json_integer_value(longest) < 0)
    return bs_tok_bad(err, "the model", "max_input_chars_per_word is no count");
  out->longest_word = (uint64_t)json_integer_value(longest);
  int32_t rc = read_affix(model, "continuing_subword_prefix", &out->prefix, err);
  if (rc == BS_OK) rc = read_unk(model, out, err);
  if (rc == BS_OK && out->unk == BS_TOK_NONE)
    rc = bs_tok_bad(err, "the model", "WordPiece without unk_token");
  return rc;
}

int32_t bs_tok_read_model(const json_t *model, bs_tok_model *out, bs_error *err) {
  const char *type = bs_tok_json_type(model);
  const json_t *vocab = json_object_get(model, "vocab");
  if (!json_is_object(model)) return bs_tok_bad(err, "the file", "there is no model");
  if (type[0] == '\0') /* files of older versions do not say it */
    type = json_object_get(model, "merges") != NULL                     ? "BPE"
           : json_object_get(model, "max_input_chars_per_word") != NULL ? "WordPiece"
                                                                        : "";
  if (strcmp(type, "BPE") != 0 && strcmp(type, "WordPiece") != 0)
    return bs_tok_unknown(err, "the model", type);
  const int32_t rc = read_vocab(vocab, out, err);
  if (rc != BS_OK) return rc;
  return type[0] == 'B' ? read_bpe(model, out, err) : read_wordpiece(model, out, err);
}

/* ---- ids around a text ----------------------------------------------------------------------- */

typedef struct id_list {
  int64_t at[64];
  size_t n;
} id_list;

static int32_t add_ids(const json_t *ids, id_list *out, bs_error *err) {
  size_t i;
  const json_t *id;
  if (!json_is_array(ids)) return bs_tok_bad(err, "the post-processor", "a special token without ids");
  json_array_foreach(ids, i, id) {
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= BS_TOK_MAX_TOKENS)
      return bs_tok_bad(err, "the post-processor", "an id that is no token");
    if (out->n == sizeof out->at / sizeof out->at[0])
      return bs_tok_bad(err, "the post-processor", "more than 64 ids on one side");
    out->at[out->n++] = json_integer_value(id);
  }
  return BS_OK;
}

/* The template of one text: special tokens and, once, the text. */
static int32_t read_template(const json_t *part, id_list *before, id_list *after, bs_error *err) {
  const json_t *pieces = json_object_get(part, "single"), *known = json_object_get(part, "special_tokens"),
               *piece;
  size_t i;
  int seen = 0;
  json_array_foreach(pieces, i, piece) {
    const json_t *special = json_object_get(piece, "SpecialToken"),
                 *sequence = json_object_get(piece, "Sequence");
    const char *id = json_string_value(json_object_get(special != NULL ? special : sequence, "id"));
    if (id == NULL) return bs_tok_bad(err, "the post-processor", "a piece without id");
    if (special == NULL && (strcmp(id, "A") != 0 || seen))
      return bs_tok_unknown(err, "the post-processor", "a template that has the text twice");
    seen |= special == NULL;
    if (special == NULL) continue;
    const int32_t rc =
        add_ids(json_object_get(json_object_get(known, id), "ids"), seen ? after : before, err);
    if (rc != BS_OK) return rc;
  }
  return seen ? BS_OK : bs_tok_unknown(err, "the post-processor", "a template without the text");
}

/* BERT's and RoBERTa's: ["[CLS]", 101] before, ["[SEP]", 102] after. */
static int32_t read_pair(const json_t *pair, id_list *out, bs_error *err) {
  const json_t *id = json_array_get(pair, 1);
  if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= BS_TOK_MAX_TOKENS)
    return bs_tok_bad(err, "the post-processor", "cls or sep is no token with an id");
  out->at[out->n++] = json_integer_value(id);
  return BS_OK;
}

/* Puts ids outside of those that are there. */
static int32_t put_around(const id_list *added, int64_t **ids, size_t *n, int in_front, bs_error *err) {
  if (added->n == 0) return BS_OK;
  int64_t *more = realloc(*ids, (*n + added->n) * sizeof *more);
  if (more == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  if (in_front && *n > 0) memmove(more + added->n, more, *n * sizeof *more);
  memcpy(more + (in_front ? 0 : *n), added->at, added->n * sizeof *more);
  *ids = more;
  *n += added->n;
  return BS_OK;
}

static int32_t read_around(const json_t *part, int depth, bs_tokenizer *out, bs_error *err) {
  const char *type = bs_tok_json_type(part);
  id_list before = {.n = 0}, after = {.n = 0};
  int32_t rc = BS_OK;
  if (part == NULL || json_is_null(part)) return BS_OK;
  if (strcmp(type, "Sequence") == 0 && depth < 8) {
    const json_t *parts = json_object_get(part, "processors"), *each;
    size_t i;
    if (json_array_size(parts) > BS_TOK_MAX_STEPS)
      return bs_tok_unknown(err, "the post-processor", "a long Sequence");
    json_array_foreach(parts, i, each) if (rc == BS_OK) rc = read_around(each, depth + 1, out, err);
    return rc;
  }
  if (strcmp(type, "ByteLevel") == 0) return BS_OK; /* it moves offsets, no ids */
  if (strcmp(type, "TemplateProcessing") == 0) {
    rc = read_template(part, &before, &after, err);
  } else if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
    rc = read_pair(json_object_get(part, "cls"), &before, err);
    if (rc == BS_OK) rc = read_pair(json_object_get(part, "sep"), &after, err);
  } else {
    return bs_tok_unknown(err, "the post-processor", type);
  }
  if (rc == BS_OK) rc = put_around(&before, &out->before, &out->n_before, 1, err);
  return rc == BS_OK ? put_around(&after, &out->after, &out->n_after, 0, err) : rc;
}

int32_t bs_tok_read_around(const json_t *part, bs_tokenizer *out, bs_error *err) {
  return read_around(part, 0, out, err);
}
