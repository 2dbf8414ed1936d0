/* SPDX-License-Identifier: MIT
 * gguf_kind.c - see gguf_kind.h. */
#include "lab/model/gguf_kind.h"

#include <string.h>

#include "core/base/error.h"

#define CL100K_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define CL100K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CL100K_HEAD "{1,3}" CL100K_TAIL
#define QWEN2 CL100K_HEAD CL100K_TAIL

static const char blank_mark[] = "\xe2\x96\x81"; /* U+2581 */

/* The pattern that a name of tokenizer.ggml.pre means. "": GPT-2's pattern, which ByteLevel contains. */
static const struct {
  const char *name, *pattern;
  int nfc, ignore_merges;
} kinds[] = {
    {"gpt-2", "", 0, 0}, {"llama-bpe", LLAMA3, 0, 1}, {"dbrx", LLAMA3, 0, 0}, {"qwen2", QWEN2, 1, 0}};
enum { KINDS = sizeof kinds / sizeof kinds[0], PARTS = 8 };

int32_t bs_gguf_kind_refuse(const char *what, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-GGUF-TOKENIZER", "tokenizer.json: %s cannot be written as GGUF",
               what);
  bs_error_hint(err, "without tokenizer.json in the folder the file gets no tokenizer");
  return BS_UNSUPPORTED;
}

static int is_text(const json_t *part, const char *key, const char *text) {
  const char *is = json_string_value(json_object_get(part, key));
  return is != NULL && strcmp(is, text) == 0;
}

static int is_type(const json_t *part, const char *type) {
  return is_text(part, "type", type);
}

static int is_on(const json_t *part, const char *key) {
  return json_is_true(json_object_get(part, key));
}

/* The parts of a Sequence and of those in it, at most PARTS; n: more than that are counted too. */
typedef struct parts {
  const json_t *at[PARTS];
  size_t n;
} parts;

static void flatten(const json_t *part, const char *list, parts *out) {
  const json_t *inner;
  size_t i;
  if (!json_is_object(part)) return;
  if (is_type(part, "Sequence")) {
    json_array_foreach(json_object_get(part, list), i, inner) flatten(inner, list, out);
    return;
  }
  if (out->n < PARTS) out->at[out->n] = part;
  out->n++;
}

/* ---- pieces of a text ---------------------------------------------------------------------------- */

/* The pattern that splits a text; NULL: a pre-tokenizer without one that the format knows. */
static const char *pattern_of(const parts *p) {
  if (p->n < 1 || p->n > 2) return NULL;
  const json_t *bytes = p->at[p->n - 1], *split = p->at[0];
  if (!is_type(bytes, "ByteLevel") || is_on(bytes, "add_prefix_space")) return NULL;
  const int splits = !json_is_false(json_object_get(bytes, "use_regex"));
  if (p->n == 1) return splits ? "" : NULL;
  if (splits || !is_type(split, "Split") || !is_text(split, "behavior", "Isolated") || is_on(split, "invert"))
    return NULL;
  return json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
}

static int32_t bytes_kind(const json_t *tokenizer, bs_gguf_tok *out, bs_error *err) {
  const json_t *model = json_object_get(tokenizer, "model");
  parts pre = {.n = 0}, normal = {.n = 0};
  flatten(json_object_get(tokenizer, "pre_tokenizer"), "pretokenizers", &pre);
  flatten(json_object_get(tokenizer, "normalizer"), "normalizers", &normal);
  const char *pattern = pattern_of(&pre);
  const int nfc = normal.n == 1 && is_type(normal.at[0], "NFC"), whole = is_on(model, "ignore_merges");
  int known = 0;
  for (size_t i = 0; i < KINDS && pattern != NULL; i++) {
    if (strcmp(pattern, kinds[i].pattern) != 0) continue;
    known = 1;
    if (nfc == kinds[i].nfc && whole == kinds[i].ignore_merges) out->pre = kinds[i].name;
  }
  if (!known) return bs_gguf_kind_refuse("a pre-tokenizer that is not GPT-2's, Llama 3's or Qwen2's", err);
  if (normal.n > (size_t)nfc) return bs_gguf_kind_refuse("a normalizer other than NFC", err);
  if (out->pre == NULL && whole) return bs_gguf_kind_refuse("ignore_merges with this pre-tokenizer", err);
  if (out->pre == NULL)
    return bs_gguf_kind_refuse(nfc ? "NFC with this pre-tokenizer" : "Qwen2's pre-tokenizer without NFC",
                               err);
  return BS_OK;
}

/* Llama's normalizer: a blank before a text, or none, then marks for all blanks. */
static int32_t fallback_kind(const json_t *tokenizer, bs_gguf_tok *out, bs_error *err) {
  parts normal = {.n = 0};
  flatten(json_object_get(tokenizer, "normalizer"), "normalizers", &normal);
  const json_t *last = normal.n > 0 && normal.n < 3 ? normal.at[normal.n - 1] : NULL;
  out->prepends =
      normal.n == 2 && is_type(normal.at[0], "Prepend") && is_text(normal.at[0], "prepend", blank_mark);
  const json_t *pre = json_object_get(tokenizer, "pre_tokenizer");
  if (pre != NULL && !json_is_null(pre))
    return bs_gguf_kind_refuse("a pre-tokenizer (of a model with byte_fallback)", err);
  if (!is_type(last, "Replace") || !is_text(json_object_get(last, "pattern"), "String", " ") ||
      !is_text(last, "content", blank_mark) || (normal.n == 2 && !out->prepends))
    return bs_gguf_kind_refuse("a normalizer that is not Llama's (of a model with byte_fallback)", err);
  return is_on(json_object_get(tokenizer, "model"), "ignore_merges")
             ? bs_gguf_kind_refuse("ignore_merges of a model with byte_fallback", err)
             : BS_OK;
}

/* ---- tokens around a text ------------------------------------------------------------------------ */

/* The one id of a special token of the template; -1: it has not one. */
static int64_t id_of(const json_t *template, const json_t *special) {
  const char *name = json_string_value(json_object_get(special, "id"));
  const json_t *of = name != NULL ? json_object_get(json_object_get(template, "special_tokens"), name) : NULL;
  const json_t *ids = json_object_get(of, "ids"), *id = json_array_get(ids, 0);
  return json_array_size(ids) == 1 && json_is_integer(id) ? (int64_t)json_integer_value(id) : -1;
}

static int32_t read_template(const json_t *template, bs_gguf_tok *out, bs_error *err) {
  const json_t *item;
  size_t i, texts = 0;
  json_array_foreach(json_object_get(template, "single"), i, item) {
    const json_t *special = json_object_get(item, "SpecialToken");
    int64_t *to = texts > 0 ? &out->after : &out->before;
    texts += json_object_get(item, "Sequence") != NULL;
    if (special == NULL) continue;
    if (*to >= 0 || (*to = id_of(template, special)) < 0)
      return bs_gguf_kind_refuse("more than one token before or after a text", err);
  }
  return texts == 1 ? BS_OK : bs_gguf_kind_refuse("a template that is not of one text", err);
}

static int32_t read_around(const json_t *tokenizer, bs_gguf_tok *out, bs_error *err) {
  parts post = {.n = 0};
  int templates = 0;
  int32_t rc = BS_OK;
  flatten(json_object_get(tokenizer, "post_processor"), "processors", &post);
  for (size_t i = 0; i < post.n && rc == BS_OK; i++) {
    const json_t *part = i < PARTS ? post.at[i] : NULL;
    if (is_type(part, "ByteLevel")) continue;
    rc = is_type(part, "TemplateProcessing") && templates++ == 0
             ? read_template(part, out, err)
             : bs_gguf_kind_refuse("a post-processor that is not one TemplateProcessing", err);
  }
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static int32_t check_added(const json_t *tokenizer, bs_error *err) {
  const json_t *added;
  size_t i;
  json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, added) if (
      is_on(added, "lstrip") || is_on(added, "rstrip") ||
      is_on(added,
            "single_word")) return bs_gguf_kind_refuse("an added token with lstrip, rstrip or single_word",
                                                       err);
  return BS_OK;
}

int32_t bs_gguf_kind_of(const json_t *tokenizer, bs_gguf_tok *out, bs_error *err) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  const json_t *model = json_object_get(tokenizer, "model"), *dropout = json_object_get(model, "dropout");
  *out = (bs_gguf_tok){.fallback = is_on(model, "byte_fallback"), .before = -1, .after = -1};
  if (!is_type(model, "BPE") || !json_is_object(json_object_get(model, "vocab")))
    return bs_gguf_kind_refuse("a model that is no BPE", err);
  for (size_t i = 0; i < sizeof affixes / sizeof affixes[0]; i++)
    if (json_string_length(json_object_get(model, affixes[i])) > 0)
      return bs_gguf_kind_refuse(affixes[i], err);
  if (json_is_number(dropout) && json_number_value(dropout) > 0)
    return bs_gguf_kind_refuse("BPE with dropout", err);
  int32_t rc = out->fallback ? fallback_kind(tokenizer, out, err) : bytes_kind(tokenizer, out, err);
  if (rc == BS_OK) rc = check_added(tokenizer, err);
  return rc == BS_OK ? read_around(tokenizer, out, err) : rc;
}
