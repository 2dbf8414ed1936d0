/* SPDX-License-Identifier: MIT
 * read_steps.c - the normalizers, pre-tokenizers and decoders of tokenizer.json as steps. A sequence is its
 * parts, one after the other. A part that has no row here is refused. Called by read.c. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/chars.h"
#include "text/read.h"
#include "text/utf8.h"

static const char gpt2_words[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- adding steps ---------------------------------------------------------------------------- */

static int32_t add(bs_tok_steps *steps, int kind, int flags, bs_tok_step **out, bs_error *err) {
  if (steps->n == BS_TOK_MAX_STEPS)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-TOK-KIND", "a tokenizer of more than %d steps",
                        BS_TOK_MAX_STEPS);
  bs_tok_step *at = realloc(steps->at, (steps->n + 1) * sizeof *at);
  if (at == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  steps->at = at;
  at[steps->n] = (bs_tok_step){.kind = kind, .flags = flags};
  if (out != NULL) *out = &at[steps->n];
  steps->n++;
  return BS_OK;
}

static int32_t add_with(bs_tok_steps *steps, int kind, int flags, const char *text, size_t bytes,
                        bs_tok_step **out, bs_error *err) {
  bs_tok_step *step = NULL;
  if (bytes > BS_TOK_MAX_BYTES)
    return bs_error_set(err, BS_INPUT, "BS-TOK-FORMAT", "a text of %zu bytes in a step; at most %d are read",
                        bytes, BS_TOK_MAX_BYTES);
  int32_t rc = add(steps, kind, flags, &step, err);
  if (rc != BS_OK) return rc;
  step->text = bs_tok_copy(text, bytes);
  step->bytes = bytes;
  if (out != NULL) *out = step;
  return step->text != NULL ? BS_OK
                            : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
}

static int32_t add_split(bs_tok_steps *steps, int split, int (*is)(uint32_t), bs_error *err) {
  bs_tok_step *step = NULL;
  const int32_t rc = add(steps, BS_TOK_SPLIT, 0, &step, err);
  if (rc != BS_OK) return rc;
  step->split = split;
  step->pattern.is = is;
  return BS_OK;
}

/* "pattern": {"String": ..} or {"Regex": ..}. */
static int32_t read_pattern(const json_t *part, const char *name, bs_tok_pattern *out, bs_error *err) {
  const json_t *pattern = json_object_get(part, "pattern");
  const char *key = json_object_get(pattern, "Regex") != NULL ? "Regex" : "String", *text;
  size_t bytes;
  const int32_t rc = bs_tok_json_text(pattern, name, key, &text, &bytes, err);
  if (rc != BS_OK) return rc;
  if (key[0] == 'R') return bs_tok_pattern_regex(text, bytes, out, err);
  if (bytes == 0) return bs_tok_unknown(err, "a pattern", "of no text");
  return bs_tok_pattern_text(text, bytes, out, err);
}

static int32_t read_replace(const json_t *part, bs_tok_steps *out, bs_error *err) {
  const char *text;
  size_t bytes;
  bs_tok_step *step = NULL;
  int32_t rc = bs_tok_json_text(part, "Replace", "content", &text, &bytes, err);
  if (rc == BS_OK) rc = add_with(out, BS_TOK_REPLACE, 0, text, bytes, &step, err);
  return rc == BS_OK ? read_pattern(part, "Replace", &step->pattern, err) : rc;
}

/* ---- normalizers ----------------------------------------------------------------------------- */

static int32_t read_bert(const json_t *part, bs_tok_steps *out, bs_error *err) {
  int clean, chinese, lower, accents;
  const char *name = "BertNormalizer";
  int32_t rc = bs_tok_json_bool(part, name, "clean_text", 1, &clean, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, name, "handle_chinese_chars", 1, &chinese, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, name, "lowercase", 1, &lower, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, name, "strip_accents", lower, &accents, err);
  if (rc == BS_OK && clean) rc = add(out, BS_TOK_CLEAN, 0, NULL, err);
  if (rc == BS_OK && chinese) rc = add(out, BS_TOK_CHINESE, 0, NULL, err);
  if (rc == BS_OK && accents) rc = add(out, BS_TOK_NFD, 0, NULL, err);
  if (rc == BS_OK && accents) rc = add(out, BS_TOK_STRIP_ACCENTS, BS_TOK_NONSPACING, NULL, err);
  if (rc == BS_OK && lower) rc = add(out, BS_TOK_LOWERCASE, 0, NULL, err);
  return rc;
}

static int32_t read_strip(const json_t *part, bs_tok_steps *out, bs_error *err) {
  int left, right;
  int32_t rc = bs_tok_json_bool(part, "Strip", "strip_left", 0, &left, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, "Strip", "strip_right", 0, &right, err);
  return rc == BS_OK
             ? add(out, BS_TOK_STRIP, (left ? BS_TOK_LEFT : 0) | (right ? BS_TOK_RIGHT : 0), NULL, err)
             : rc;
}

static int32_t read_prepend(const json_t *part, bs_tok_steps *out, bs_error *err) {
  const char *text;
  size_t bytes;
  const int32_t rc = bs_tok_json_text(part, "Prepend", "prepend", &text, &bytes, err);
  return rc == BS_OK ? add_with(out, BS_TOK_PREPEND, 0, text, bytes, NULL, err) : rc;
}

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

static int32_t read_behavior(const json_t *part, const char *name, const char *fallback, int *out,
                             bs_error *err) {
  static const char *const names[] = {[BS_TOK_REMOVED] = "Removed",
                                      [BS_TOK_ISOLATED] = "Isolated",
                                      [BS_TOK_WITH_PREVIOUS] = "MergedWithPrevious",
                                      [BS_TOK_WITH_NEXT] = "MergedWithNext",
                                      [BS_TOK_CONTIGUOUS] = "Contiguous"};
  const json_t *value = json_object_get(part, "behavior");
  const char *text = value == NULL ? fallback : json_string_value(value);
  for (size_t i = 0; i < sizeof names / sizeof names[0] && text != NULL; i++)
    if (strcmp(text, names[i]) == 0) {
      *out = (int)i;
      return BS_OK;
    }
  return text == NULL ? bs_tok_bad(err, name, "behavior is no text")
                      : bs_tok_unknown(err, "a behavior", text);
}

static int32_t read_split(const json_t *part, bs_tok_steps *out, bs_error *err) {
  int behavior, invert;
  bs_tok_step *step = NULL;
  int32_t rc = read_behavior(part, "Split", NULL, &behavior, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, "Split", "invert", 0, &invert, err);
  if (rc == BS_OK) rc = add(out, BS_TOK_SPLIT, invert ? BS_TOK_INVERTED : 0, &step, err);
  if (rc != BS_OK) return rc;
  step->split = behavior;
  return read_pattern(part, "Split", &step->pattern, err);
}

static int32_t read_byte_level(const json_t *part, bs_tok_steps *out, bs_error *err) {
  int prefix, words;
  bs_tok_step *step = NULL;
  int32_t rc = bs_tok_json_bool(part, "ByteLevel", "add_prefix_space", 1, &prefix, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, "ByteLevel", "use_regex", 1, &words, err);
  if (rc == BS_OK && prefix) rc = add_with(out, BS_TOK_PREPEND, BS_TOK_UNLESS_THERE, " ", 1, NULL, err);
  if (rc == BS_OK && words) {
    rc = add(out, BS_TOK_SPLIT, 0, &step, err);
    if (rc == BS_OK) step->split = BS_TOK_ISOLATED;
    if (rc == BS_OK) rc = bs_tok_pattern_regex(gpt2_words, sizeof gpt2_words - 1, &step->pattern, err);
  }
  return rc == BS_OK ? add(out, BS_TOK_BYTES, 0, NULL, err) : rc;
}

/* The character of Metaspace, and where it is put before a text: 0 never, 1 the first, 2 all. */
static int32_t read_metaspace_parts(const json_t *part, const char **out_text, size_t *out_bytes,
                                    int *out_scheme, bs_error *err) {
  static const char *const schemes[] = {"never", "first", "always"};
  const char *name = "Metaspace", *scheme = "always";
  int prefix = 1;
  size_t n = 0, good;
  int32_t rc = bs_tok_json_text(part, name, "replacement", out_text, out_bytes, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, name, "add_prefix_space", 1, &prefix, err);
  if (rc == BS_OK && json_object_get(part, "prepend_scheme") != NULL)
    rc = bs_tok_json_text(part, name, "prepend_scheme", &scheme, &n, err);
  if (rc != BS_OK) return rc;
  if (bs_utf8_measure(*out_text, *out_bytes, &good) != *out_bytes || *out_bytes == 0)
    return bs_tok_bad(err, name, "replacement is not one character");
  for (*out_scheme = 0; *out_scheme < 3 && strcmp(scheme, schemes[*out_scheme]) != 0;) ++*out_scheme;
  if (*out_scheme == 3) return bs_tok_unknown(err, "a prepend_scheme", scheme);
  if (!prefix && *out_scheme != 0 && json_object_get(part, "prepend_scheme") != NULL)
    return bs_tok_bad(err, name, "add_prefix_space does not fit prepend_scheme");
  if (!prefix) *out_scheme = 0;
  return BS_OK;
}

static int32_t read_metaspace(const json_t *part, bs_tok_steps *out, bs_error *err) {
  const char *text = NULL;
  size_t bytes = 0;
  int scheme = 0, split = 0;
  bs_tok_step *step = NULL;
  int32_t rc = read_metaspace_parts(part, &text, &bytes, &scheme, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, "Metaspace", "split", 1, &split, err);
  if (rc == BS_OK) rc = add_with(out, BS_TOK_REPLACE, 0, text, bytes, &step, err);
  if (rc == BS_OK) rc = bs_tok_pattern_text(" ", 1, &step->pattern, err);
  if (rc == BS_OK && scheme != 0)
    rc = add_with(out, BS_TOK_PREPEND, BS_TOK_UNLESS_THERE | (scheme == 1 ? BS_TOK_ONLY_FIRST : 0), text,
                  bytes, NULL, err);
  if (rc != BS_OK || !split) return rc;
  rc = add(out, BS_TOK_SPLIT, 0, &step, err);
  if (rc != BS_OK) return rc;
  step->split = BS_TOK_WITH_NEXT;
  return bs_tok_pattern_text(text, bytes, &step->pattern, err);
}

static int32_t read_bert_words(const json_t *part, bs_tok_steps *out, bs_error *err) {
  (void)part;
  const int32_t rc = add_split(out, BS_TOK_REMOVED, bs_tok_is_space, err);
  return rc == BS_OK ? add_split(out, BS_TOK_ISOLATED, bs_tok_is_punctuation, err) : rc;
}

static int32_t read_whitespace(const json_t *part, bs_tok_steps *out, bs_error *err) {
  (void)part;
  const int32_t rc = add_split(out, BS_TOK_REMOVED, bs_tok_is_space, err);
  return rc == BS_OK ? add_split(out, BS_TOK_CONTIGUOUS, bs_tok_is_word, err) : rc;
}

static int32_t read_whitespace_split(const json_t *part, bs_tok_steps *out, bs_error *err) {
  (void)part;
  return add_split(out, BS_TOK_REMOVED, bs_tok_is_space, err);
}

static int32_t read_digits(const json_t *part, bs_tok_steps *out, bs_error *err) {
  int each;
  const int32_t rc = bs_tok_json_bool(part, "Digits", "individual_digits", 0, &each, err);
  return rc == BS_OK ? add_split(out, each ? BS_TOK_ISOLATED : BS_TOK_CONTIGUOUS, bs_tok_is_numeric, err)
                     : rc;
}

static int32_t read_punctuation(const json_t *part, bs_tok_steps *out, bs_error *err) {
  int behavior = 0;
  const int32_t rc = read_behavior(part, "Punctuation", "Isolated", &behavior, err);
  return rc == BS_OK ? add_split(out, behavior, bs_tok_is_punctuation, err) : rc;
}

/* ---- decoders -------------------------------------------------------------------------------- */

static int32_t read_words(const json_t *part, bs_tok_steps *out, bs_error *err) {
  const char *text = NULL;
  size_t bytes = 0;
  int cleanup = 0;
  int32_t rc = bs_tok_json_text(part, "WordPiece", "prefix", &text, &bytes, err);
  if (rc == BS_OK) rc = bs_tok_json_bool(part, "WordPiece", "cleanup", 1, &cleanup, err);
  return rc == BS_OK ? add_with(out, BS_TOK_FROM_WORDS, cleanup ? BS_TOK_CLEANUP : 0, text, bytes, NULL, err)
                     : rc;
}

static int32_t read_from_metaspace(const json_t *part, bs_tok_steps *out, bs_error *err) {
  const char *text = NULL;
  size_t bytes = 0;
  int scheme = 0;
  const int32_t rc = read_metaspace_parts(part, &text, &bytes, &scheme, err);
  return rc == BS_OK
             ? add_with(out, BS_TOK_FROM_METASPACE, scheme != 0 ? BS_TOK_LEFT : 0, text, bytes, NULL, err)
             : rc;
}

static int32_t read_cut(const json_t *part, bs_tok_steps *out, bs_error *err) {
  const json_t *start = json_object_get(part, "start"), *stop = json_object_get(part, "stop");
  const char *text;
  size_t bytes, good;
  bs_tok_step *step = NULL;
  int32_t rc = bs_tok_json_text(part, "Strip", "content", &text, &bytes, err);
  if (rc != BS_OK) return rc;
  if (bytes == 0 || bs_utf8_measure(text, bytes, &good) != bytes || !json_is_integer(start) ||
      !json_is_integer(stop) || json_integer_value(start) < 0 || json_integer_value(stop) < 0)
    return bs_tok_bad(err, "Strip", "not a character and two counts");
  rc = add_with(out, BS_TOK_CUT, 0, text, bytes, &step, err);
  if (rc != BS_OK) return rc;
  step->begin = (uint64_t)json_integer_value(start);
  step->end = (uint64_t)json_integer_value(stop);
  return BS_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* A part that is one step of this kind, or is read by a function. */
typedef struct row {
  const char *type;
  int kind;
  int32_t (*read)(const json_t *part, bs_tok_steps *out, bs_error *err);
} row;

static const row normalizers[] = {{"NFC", BS_TOK_NFC, NULL},
                                  {"NFD", BS_TOK_NFD, NULL},
                                  {"NFKC", BS_TOK_NFKC, NULL},
                                  {"NFKD", BS_TOK_NFKD, NULL},
                                  {"Lowercase", BS_TOK_LOWERCASE, NULL},
                                  {"StripAccents", BS_TOK_STRIP_ACCENTS, NULL},
                                  {"ByteLevel", BS_TOK_BYTES, NULL},
                                  {"Strip", 0, read_strip},
                                  {"Prepend", 0, read_prepend},
                                  {"Replace", 0, read_replace},
                                  {"BertNormalizer", 0, read_bert},
                                  {NULL, 0, NULL}};
static const row splitters[] = {{"Split", 0, read_split},
                                {"ByteLevel", 0, read_byte_level},
                                {"Metaspace", 0, read_metaspace},
                                {"BertPreTokenizer", 0, read_bert_words},
                                {"Whitespace", 0, read_whitespace},
                                {"WhitespaceSplit", 0, read_whitespace_split},
                                {"Digits", 0, read_digits},
                                {"Punctuation", 0, read_punctuation},
                                {NULL, 0, NULL}};
static const row decoders[] = {{"ByteLevel", BS_TOK_FROM_BYTES, NULL},
                               {"ByteFallback", BS_TOK_FROM_FALLBACK, NULL},
                               {"Fuse", BS_TOK_FUSE, NULL},
                               {"Replace", 0, read_replace},
                               {"Strip", 0, read_cut},
                               {"WordPiece", 0, read_words},
                               {"Metaspace", 0, read_from_metaspace},
                               {NULL, 0, NULL}};

/* `what` is the kind of part, and `list` the key of the parts of a sequence. */
static int32_t read_part(const row *rows, const char *what, const char *list, const json_t *part, int depth,
                         bs_tok_steps *out, bs_error *err) {
  const char *type = bs_tok_json_type(part);
  if (part == NULL || json_is_null(part)) return BS_OK;
  if (strcmp(type, "Sequence") == 0 && depth < 8) {
    const json_t *parts = json_object_get(part, list), *each;
    int32_t rc = json_is_array(parts) ? BS_OK : bs_tok_bad(err, what, "a Sequence without parts");
    size_t i;
    json_array_foreach(parts, i, each) if (rc == BS_OK) rc =
        read_part(rows, what, list, each, depth + 1, out, err);
    return rc;
  }
  for (const row *r = rows; r->type != NULL; r++)
    if (strcmp(type, r->type) == 0)
      return r->read != NULL ? r->read(part, out, err) : add(out, r->kind, 0, NULL, err);
  return bs_tok_unknown(err, what, type);
}

int32_t bs_tok_read_normalizer(const json_t *part, bs_tok_steps *out, bs_error *err) {
  return read_part(normalizers, "the normalizer", "normalizers", part, 0, out, err);
}

int32_t bs_tok_read_splitter(const json_t *part, bs_tok_steps *out, bs_error *err) {
  return read_part(splitters, "the pre-tokenizer", "pretokenizers", part, 0, out, err);
}

int32_t bs_tok_read_decoder(const json_t *part, bs_tok_steps *out, bs_error *err) {
  return read_part(decoders, "the decoder", "decoders", part, 0, out, err);
}
