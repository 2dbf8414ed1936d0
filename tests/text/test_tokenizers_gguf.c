/* SPDX-License-Identifier: MIT
 * test_tokenizers_gguf.c - tokenizers of GGUF files: those of tests/text/cases written as GGUF give the same
 * ids and text; SentencePiece's merges by score; ids around a text; an error for each kind that is not known
 * and each damage. */
#include "tests/formats/gguf_make.h"
#include "tests/text/check_cases.h"

#define K "tokenizer.ggml."

/* ---- a file in words ------------------------------------------------------------------------- */

/* "name=kindvalue": t text, T texts, W texts that end at a blank, i u32, I numbers of i32, F numbers of f32,
 * b bool; other items end at |. No kind: the key is left out. */
static void put_items(const char *name, char kind, const char *value) {
  gguf_bytes *b = &gguf_made.keys;
  const char *end = kind == 'W' ? " " : "|";
  uint64_t n = 1;
  for (const char *p = value; *p != '\0'; p++) n += *p == end[0];
  gguf_make_array(name,
                  kind == 'T' || kind == 'W' ? BS_GGUF_KIND_TEXT
                  : kind == 'I'              ? BS_GGUF_KIND_I32
                                             : BS_GGUF_KIND_F32,
                  n);
  for (const char *p = value; n-- > 0; p += strcspn(p, end) + 1) {
    const size_t bytes = strcspn(p, end);
    const float real = strtof(p, NULL);
    if (kind == 'T' || kind == 'W') {
      gguf_put_number(b, bytes, 8);
      gguf_put(b, p, bytes);
    } else if (kind == 'I') {
      gguf_put_number(b, (uint32_t)strtol(p, NULL, 10), 4);
    } else {
      gguf_put(b, &real, sizeof real);
    }
  }
}

static void put_bool(const char *name, int value) {
  gguf_make_key(name, BS_GGUF_KIND_BOOL);
  gguf_put_number(&gguf_made.keys, (uint64_t)value, 1);
}

static void put_word(const char *word) {
  char name[96];
  const char *equals = strchr(word, '=');
  const int key = (int)(equals - word);
  snprintf(name, sizeof name, "%s%.*s", strncmp(word, "general.", 8) == 0 ? "" : K, key, word);
  if (equals[1] == 't')
    gguf_make_text(name, equals + 2);
  else if (equals[1] == 'i')
    gguf_make_u32(name, (uint32_t)strtoul(equals + 2, NULL, 10));
  else if (equals[1] == 'b')
    put_bool(name, equals[2] == '1');
  else if (equals[1] != '\0')
    put_items(name, equals[1], equals + 2);
}

/* The words of `base`, each in the place of a word of `other` with its key, then what is left of `other`. */
static const char *write_words(const char *const *base, const char *const *other) {
  gguf_make_begin();
  for (; *base != NULL; base++) {
    const size_t key = strcspn(*base, "=") + 1;
    int is_other = 0;
    for (const char *const *o = other; *o != NULL; o++) is_other |= strncmp(*o, *base, key) == 0;
    if (!is_other) put_word(*base);
  }
  for (; *other != NULL; other++) put_word(*other);
  return gguf_make_file("made.gguf");
}

static const char *const of_gpt2[] = {"model=tgpt2",           "pre=tgpt-2",  "tokens=Ta|b|ab|\xc4\xa0|<e>",
                                      "token_type=I1|1|1|1|3", "merges=Ta b", "bos_token_id=i4",
                                      "eos_token_id=i4",       NULL};
static const char *const of_llama[] = {
    "model=tllama", "tokens=T<unk>|<s>|</s>|<0xC3>|<0xA4>|\xe2\x96\x81|a|b|ab|ba|aba|<",
    "token_type=I2|3|3|6|6|1|1|1|1|1|1|1", "scores=F0|0|0|0|0|-9|-9|-9|-2|-2|-1|-9", NULL};
static const char *const of_bert[] = {"model=tbert",
                                      "tokens=T[PAD]|[UNK]|[CLS]|[SEP]|\xe2\x96\x81go|ing|\xe2\x96\x81o",
                                      "token_type=I3|3|3|3|1|1|1",
                                      "cls_token_id=i2",
                                      "seperator_token_id=i3",
                                      "unknown_token_id=i1",
                                      NULL};
static const char *const nothing[] = {NULL};

static void ids_of(const bs_tokenizer *t, const char *text, uint32_t flags, const char *want) {
  int64_t ids[64];
  char got[256] = "";
  uint64_t n = 0;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_tokenizer_encode(t, text, strlen(text), flags, ids, 64, &n, &err) == BS_OK, "%s",
                err.message);
  for (uint64_t i = 0, at = 0; i < n; i++)
    at += (uint64_t)snprintf(got + at, sizeof got - at, "%s%lld", i > 0 ? " " : "", (long long)ids[i]);
  ck_assert_msg(strcmp(got, want) == 0, "'%s': %s, not %s", text, got, want);
}

/* ---- the cases of tokenizer.json as GGUF ----------------------------------------------------- */

static const struct {
  const char *name, *model, *pre, *bos, *eos, *add;
} same[] = {{"gpt2", "gpt2", "gpt-2", "<|endoftext|>", "<|endoftext|>", NULL},
            {"llama3", "gpt2", "llama-bpe", "<|begin_of_text|>", NULL, NULL},
            {"qwen2", "gpt2", "qwen2", NULL, "<|endoftext|>", NULL},
            {"o200k", "gpt2", "gpt-4o", "<|endoftext|>", "<|endoftext|>", "be"},
            {"deepseek", "gpt2", "deepseek-v3", "<bos>", NULL, NULL},
            {"llama2", "llama", "default", "<s>", "</s>", NULL},
            {"bert", "bert", "bert-bge", NULL, NULL, NULL}};

/* A tokenizer.json of the cases: its tokens by id, with their types. */
typedef struct vocabulary {
  json_t *root;
  const char *tokens[1024];
  int32_t types[1024];
  size_t n;
} vocabulary;

static int flag(const json_t *token, const char *name) {
  return json_is_true(json_object_get(token, name));
}

/* A type that nothing becomes: what GGUF cannot say of an added token. */
enum { OTHER = 6 };

static vocabulary read_vocabulary(const char *name) {
  char path[4096];
  vocabulary v = {.n = 0};
  const char *text;
  json_t *id, *token;
  size_t i;
  snprintf(path, sizeof path, "%s/tests/text/cases/%s.json", getenv("BS_TEST_SOURCE_DIR"), name);
  v.root = json_load_file(path, 0, NULL);
  ck_assert_ptr_nonnull(v.root);
  json_object_foreach(json_object_get(json_object_get(v.root, "model"), "vocab"), text, id) {
    v.tokens[json_integer_value(id)] = text;
    v.types[json_integer_value(id)] = strncmp(text, "<0x", 3) == 0 ? 6 : 1;
  }
  json_array_foreach(json_object_get(v.root, "added_tokens"), i, token) {
    const json_int_t at = json_integer_value(json_object_get(token, "id"));
    const int other = flag(token, "lstrip") || flag(token, "rstrip") || flag(token, "single_word") ||
                      flag(token, "normalized");
    v.tokens[at] = json_string_value(json_object_get(token, "content"));
    v.types[at] = other ? OTHER : flag(token, "special") ? 3 : 4;
  }
  while (v.tokens[v.n] != NULL) v.n++;
  return v;
}

/* A token as GGUF has it: the words of BERT begin with a mark, in the place of ## elsewhere. */
static void put_token(const char *text, int is_bert) {
  char marked[512];
  const int named = text[0] == '[' && text[strlen(text) - 1] == ']';
  snprintf(marked, sizeof marked, "%s%s",
           is_bert && !named && strncmp(text, "##", 2) != 0 ? "\xe2\x96\x81" : "",
           is_bert && strncmp(text, "##", 2) == 0 ? text + 2 : text);
  gguf_put_text(&gguf_made.keys, marked);
}

/* Merges, or the scores that a file of SentencePiece would have: a token's is that of its first merge. */
static void put_merges(const vocabulary *v, int as_scores) {
  const json_t *merges = json_object_get(json_object_get(v->root, "model"), "merges"), *merge;
  float scores[1024];
  size_t i;
  if (merges == NULL) return;
  gguf_make_array(as_scores ? K "scores" : K "merges", as_scores ? BS_GGUF_KIND_F32 : BS_GGUF_KIND_TEXT,
                  as_scores ? v->n : json_array_size(merges));
  for (i = 0; i < v->n; i++) scores[i] = -1e6f;
  json_array_foreach(merges, i, merge) {
    char text[512];
    const char *parts[2] = {json_string_value(json_array_get(merge, 0)),
                            json_string_value(json_array_get(merge, 1))};
    snprintf(text, sizeof text, as_scores ? "%s%s" : "%s %s", parts[0], parts[1]);
    if (!as_scores) gguf_put_text(&gguf_made.keys, text);
    for (size_t id = 0; as_scores && id < v->n; id++)
      if (strcmp(v->tokens[id], text) == 0 && scores[id] < -1e5f) scores[id] = -(float)i;
  }
  if (as_scores) gguf_put(&gguf_made.keys, scores, v->n * sizeof scores[0]);
}

static void put_id(const vocabulary *v, const char *key, const char *token) {
  for (size_t id = 0; token != NULL && id < v->n; id++)
    if (strcmp(v->tokens[id], token) == 0) gguf_make_u32(key, (uint32_t)id);
}

static const char *write_same(const vocabulary *v, int row) {
  const int is_bert = same[row].model[0] == 'b';
  gguf_make_begin();
  gguf_make_text(K "model", same[row].model);
  gguf_make_text(K "pre", same[row].pre);
  gguf_make_array(K "tokens", BS_GGUF_KIND_TEXT, v->n);
  for (size_t i = 0; i < v->n; i++) put_token(v->tokens[i], is_bert);
  gguf_make_array(K "token_type", BS_GGUF_KIND_I32, v->n);
  for (size_t i = 0; i < v->n; i++) gguf_put_number(&gguf_made.keys, (uint64_t)v->types[i], 4);
  put_merges(v, same[row].model[0] == 'l');
  put_id(v, K "bos_token_id", same[row].bos);
  put_id(v, K "eos_token_id", same[row].eos);
  put_id(v, K "unknown_token_id", is_bert ? "[UNK]" : "<unk>");
  put_id(v, K "cls_token_id", is_bert ? "[CLS]" : NULL);
  put_id(v, K "seperator_token_id", is_bert ? "[SEP]" : NULL);
  if (same[row].add != NULL) {
    put_bool(K "add_bos_token", 1);
    put_bool(K "add_eos_token", 1);
  }
  return gguf_make_file("same.gguf");
}

static int has_other(const vocabulary *v, const json_t *ids) {
  size_t i;
  const json_t *id;
  json_array_foreach(ids, i, id) {
    const json_int_t at = json_integer_value(id);
    if (v->types[at] == OTHER && strncmp(v->tokens[at], "<0x", 3) != 0) return 1;
  }
  return 0;
}

/* The lines without tokens that GGUF cannot say. */
static const char *write_lines(const vocabulary *v, const char *name) {
  char path[4096], *line = NULL;
  size_t room = 0;
  bs_text all = {0};
  snprintf(path, sizeof path, "%s/tests/text/cases/%s.jsonl", getenv("BS_TEST_SOURCE_DIR"), name);
  FILE *f = fopen(path, "r");
  ck_assert_ptr_nonnull(f);
  for (ssize_t n; (n = getline(&line, &room, f)) > 0;) {
    json_t *row = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
    if (!has_other(v, json_array_get(row, 1)) && !has_other(v, json_array_get(row, 4)))
      bs_text_append(&all, line, (size_t)n);
    json_decref(row);
  }
  free(line);
  fclose(f);
  const char *written = files_write("same.jsonl", all.data, all.size);
  bs_text_free(&all);
  return written;
}

START_TEST(same_as_tokenizer_json) {
  vocabulary v = read_vocabulary(same[_i].name);
  int wrong = 0;
  const char *file = write_same(&v, _i);
  const int count = check_file(file, write_lines(&v, same[_i].name), &wrong);
  ck_assert_msg(count >= 90 && wrong == 0, "%s: %d lines, %d differ", same[_i].name, count, wrong);
  json_decref(v.root);
}
END_TEST

/* Every name that is served, by a text that each of them splits. */
START_TEST(known_names) {
  static const char *const names[] = {
      "default", "gpt-2",     "phi-2",  "mpt",          "olmo",           "starcoder",  "refact",
      "smollm",  "command-r", "falcon", "dbrx",         "llama-bpe",      "llama-v3",   "llama3",
      "qwen2",   "gpt-4o",    "tekken", "deepseek-llm", "deepseek-coder", "deepseek-v3"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char word[40];
    snprintf(word, sizeof word, "pre=t%s", names[i]);
    const char *const other[] = {word, NULL};
    bs_tokenizer *t = opened(write_words(of_gpt2, other));
    const int bos = strncmp(names[i], "llama", 5) == 0 || strcmp(names[i], "tekken") == 0;
    ids_of(t, "ab a!ab\xc2\xb5", 0, bos ? "4 2 3 0 2" : "2 3 0 2");
    bs_tokenizer_close(t);
  }
}
END_TEST

/* ---- SentencePiece --------------------------------------------------------------------------- */

START_TEST(merges_by_score) {
  static const char *const no_prefix[] = {"add_space_prefix=b0", "add_bos_token=b0", "add_eos_token=b1",
                                          NULL};
  static const char *const no_bytes[] = {"token_type=I2|3|3|1|5|1|1|1|1|1|1|1", "add_space_prefix=b0", NULL};
  static const char *const with_tag[] = {"tokens=T<unk>|<s>|</s>|<0xC3>|<0xA4>|\xe2\x96\x81|a|b|ab|ba|<s|<",
                                         "add_space_prefix=b0", NULL};
  bs_tokenizer *t = opened(write_words(of_llama, nothing));
  ids_of(t, "", 0, "1");
  ids_of(t, "a", 0, "1 5 6");
  /* ab and ba have one score: the left one is first. aba has a higher one. */
  ids_of(t, "bab", BS_ENCODE_PLAIN, "5 9 7");
  ids_of(t, "abab", BS_ENCODE_PLAIN, "5 10 7");
  ids_of(t, "aba", BS_ENCODE_PLAIN, "5 10");
  ids_of(t, "a\xc3\xa4", BS_ENCODE_PLAIN, "5 6 3 4"); /* bytes */
  ids_of(t,
         "\xc3\xa5\xc3\xa5"
         "b",
         BS_ENCODE_PLAIN, "5 0 7"); /* 0xA5 has no token: one unknown */
  ids_of(t, "a</s>b", BS_ENCODE_PLAIN, "5 6 2 5 7");
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_BOS), 1);
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_EOS), 2);
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_UNK), 0);
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_PAD), -1);
  bs_tokenizer_close(t);
  t = opened(write_words(of_llama, no_prefix));
  ids_of(t, "aba", 0, "10 2");
  bs_tokenizer_close(t);
  t = opened(write_words(of_llama, no_bytes)); /* the name makes a byte token, not the type */
  ids_of(t, "\xc3\xa4", BS_ENCODE_PLAIN, "3 4");
  bs_tokenizer_close(t);
  t = opened(write_words(of_llama, with_tag)); /* a control token is never made of text */
  ids_of(t, "<s>", BS_ENCODE_PLAIN, "1");
  ids_of(t, "<s>", BS_ENCODE_PLAIN | BS_ENCODE_LITERAL, "10 0");
  bs_tokenizer_close(t);
}
END_TEST

START_TEST(ids_around) {
  static const char *const both[] = {"add_bos_token=b1", "add_eos_token=b1", "eos_token_id=i2", NULL};
  static const char *const phi3[] = {"general.architecture=tphi3", NULL};
  static const char *const cased[] = {"normalizer.lowercase=b0", "add_bos_token=b0", NULL};
  static const char *const unnamed[] = {"tokens=Ta|b|ab||<e>", NULL};
  bs_tokenizer *t = opened(write_words(of_gpt2, nothing));
  ids_of(t, "ab", 0, "2");
  ids_of(t, " a<e>", 0, "3 0 4");
  bs_tokenizer_close(t);
  t = opened(write_words(of_gpt2, both));
  ids_of(t, "ab", 0, "4 2 2");
  bs_tokenizer_close(t);
  t = opened(write_words(of_gpt2, unnamed)); /* a token without a text has a name */
  ck_assert_str_eq(bs_tokenizer_token(t, 3), "[EMPTY_3]");
  bs_tokenizer_close(t);
  t = opened(write_words(of_llama, phi3)); /* takes the blank after </s>, not the one after <s> */
  ids_of(t, "</s> a", BS_ENCODE_PLAIN, "2 5 6");
  ids_of(t, "<s> a", BS_ENCODE_PLAIN, "1 5 5 6");
  bs_tokenizer_close(t);
  t = opened(write_words(of_bert, nothing));
  ids_of(t, "Going \xc3\x93", 0, "2 4 5 6 3");
  ck_assert_str_eq(bs_tokenizer_token(t, 5), "##ing");
  bs_tokenizer_close(t);
  t = opened(write_words(of_bert, cased));
  ids_of(t, "Going o", 0, "1 6 3");
  bs_tokenizer_close(t);
}
END_TEST

/* ---- where a generator stops ------------------------------------------------------------------ */

static void ends_are(const char *const *other, const char *want) {
  char got[64] = "";
  bs_tokenizer *t = opened(write_words(of_gpt2, other));
  for (int64_t id = -1; id < (int64_t)bs_tokenizer_size(t) + 1; id++)
    if (bs_tokenizer_ends(t, id))
      snprintf(got + strlen(got), sizeof got - strlen(got), "%lld ", (long long)id);
  ck_assert_msg(strcmp(got, want) == 0, "'%s', not '%s'", got, want);
  bs_tokenizer_close(t);
}

START_TEST(ends) {
  ends_are((const char *const[]){NULL}, "4 ");
  ends_are((const char *const[]){"eot_token_id=i2", "eom_token_id=i1", NULL}, "1 2 4 ");
  ends_are((const char *const[]){"eos_token_id=", NULL}, "");
  ends_are((const char *const[]){"tokens=Wa b ab \xc4\xa0 <e> <|im_end|> <|x|> <|eot_id|> </s>",
                                 "token_type=I1|1|1|1|3|3|3|3|1", NULL},
           "4 5 7 8 ");
  /* The end of a message is another token. */
  ends_are((const char *const[]){"tokens=Wa b ab \xc4\xa0 <e> <|end|> <|return|> <|call|>",
                                 "token_type=I1|1|1|1|3|3|3|3", NULL},
           "4 6 7 ");
  ends_are((const char *const[]){"tokens=Wa b ab \xc4\xa0 <e> <|end|> <|file_sep|> <fim_pad>",
                                 "token_type=I1|1|1|1|3|3|3|3", "fim_pad_token_id=i1", NULL},
           "1 4 5 6 ");
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

static const struct {
  const char *const *base;
  const char *other[3], *id, *says;
  int32_t status;
} refused[] = {
    {of_gpt2, {"model=tt5"}, "BS-TOK-KIND", "tokenizer.ggml.model is 't5'", BS_UNSUPPORTED},
    {of_gpt2, {"model="}, "BS-TOK-KIND", "the file has no tokenizer", BS_UNSUPPORTED},
    {of_gpt2, {"model=tno_vocab"}, "BS-TOK-KIND", "the file has no tokenizer", BS_UNSUPPORTED},
    {of_gpt2, {"model=i1"}, "BS-TOK-FORMAT", "tokenizer.ggml.model: it is no text", BS_INPUT},
    {of_gpt2, {"pre=tqwen9"}, "BS-TOK-KIND", "tokenizer.ggml.pre is 'qwen9'", BS_UNSUPPORTED},
    {of_gpt2, {"pre="}, "BS-TOK-KIND", "does not say how a text is split", BS_UNSUPPORTED},
    {of_llama, {"pre=tgpt-2"}, "BS-TOK-KIND", "tokenizer.ggml.pre is 'gpt-2'", BS_UNSUPPORTED},
    {of_bert, {"pre=tnone"}, "BS-TOK-KIND", "tokenizer.ggml.pre is 'none'", BS_UNSUPPORTED},
    {of_gpt2, {"add_space_prefix=b1"}, "BS-TOK-KIND", "add_space_prefix", BS_UNSUPPORTED},
    {of_llama, {"remove_extra_whitespaces=b1"}, "BS-TOK-KIND", "remove_extra_whitespaces", BS_UNSUPPORTED},
    {of_gpt2, {"add_sep_token=b1"}, "BS-TOK-KIND", "add_sep_token", BS_UNSUPPORTED},
    {of_gpt2, {"tokens="}, "BS-TOK-FORMAT", "tokenizer.ggml.tokens: it is no list of texts", BS_INPUT},
    {of_gpt2, {"tokens=I1|2"}, "BS-TOK-FORMAT", "no list of texts", BS_INPUT},
    {of_gpt2, {"tokens=Ta|b|ab|a|<e>"}, "BS-TOK-FORMAT", "token 'a' is there twice, as 0 and as 3", BS_INPUT},
    {of_gpt2, {"tokens=Ta|b|ab|\xff|<e>"}, "BS-TOK-FORMAT", "token 3 is not UTF-8 at byte 0", BS_INPUT},
    {of_gpt2, {"token_type=I1|1|1|1"}, "BS-TOK-FORMAT", "4 items for 5 tokens", BS_INPUT},
    {of_gpt2, {"token_type=I1|1|1|1|7"}, "BS-TOK-FORMAT", "type of token 4 is 7", BS_INPUT},
    {of_gpt2, {"token_type=I1|1|1|-1|3"}, "BS-TOK-FORMAT", "type of token 3 is -1", BS_INPUT},
    {of_gpt2, {"token_type=F1|1|1|1|1"}, "BS-TOK-FORMAT", "type of token 0", BS_INPUT},
    {of_gpt2, {"token_type=Ta|a|a|a|a"}, "BS-TOK-FORMAT", "no list of numbers", BS_INPUT},
    {of_gpt2, {"merges="}, "BS-TOK-FORMAT", "tokenizer.ggml.merges: it is no list of texts", BS_INPUT},
    {of_gpt2, {"merges=Tab"}, "BS-TOK-FORMAT", "merge 0 is not two tokens", BS_INPUT},
    {of_gpt2, {"merges=Ta b|a b a"}, "BS-TOK-FORMAT", "merge 1 is not two tokens", BS_INPUT},
    {of_gpt2, {"merges=Tb a"}, "BS-TOK-FORMAT", "has a token that is not there", BS_INPUT},
    {of_gpt2, {"eot_token_id=i5"}, "BS-TOK-FORMAT", "eot_token_id is 5; there are 5 tokens", BS_INPUT},
    {of_gpt2, {"eos_token_id=i5"}, "BS-TOK-FORMAT", "eos_token_id is 5; there are 5 tokens", BS_INPUT},
    {of_gpt2, {"bos_token_id=i4294967295"}, "BS-TOK-FORMAT", "bos_token_id is 4294967295", BS_INPUT},
    {of_gpt2, {"padding_token_id=t0"}, "BS-TOK-FORMAT", "no whole number", BS_INPUT},
    {of_gpt2, {"add_bos_token=i1"}, "BS-TOK-FORMAT", "neither true nor false", BS_INPUT},
    {of_gpt2, {"add_bos_token=b1", "bos_token_id="}, "BS-TOK-FORMAT", "add_bos_token is true", BS_INPUT},
    {of_gpt2, {"add_eos_token=b1", "eos_token_id="}, "BS-TOK-FORMAT", "add_eos_token is true", BS_INPUT},
    {of_llama, {"scores="}, "BS-TOK-FORMAT", "tokenizer.ggml.scores: it is not there", BS_INPUT},
    {of_llama, {"scores=F0|0"}, "BS-TOK-FORMAT", "2 items for 12 tokens", BS_INPUT},
    {of_llama,
     {"scores=F0|0|0|nan|0|0|0|0|0|0|0|0"},
     "BS-TOK-FORMAT",
     "score of token 3 is no number",
     BS_INPUT},
    {of_bert, {"unknown_token_id="}, "BS-TOK-FORMAT", "without unknown_token_id", BS_INPUT},
    {of_bert, {"seperator_token_id="}, "BS-TOK-FORMAT", "add_sep_token is true", BS_INPUT},
};

START_TEST(refuses) {
  bs_tokenizer *t = NULL;
  bs_error err = BS_ERROR_INIT;
  const char *path = write_words(refused[_i].base, refused[_i].other);
  const int32_t rc = bs_tokenizer_open(path, &t, &err);
  files_expect(&err, rc, refused[_i].status, refused[_i].id, refused[_i].says);
  ck_assert_msg(strstr(err.message, refused[_i].says) != NULL, "'%s' is not in '%s'", refused[_i].says,
                err.message);
  ck_assert_msg(strstr(err.message, "made.gguf") != NULL, "'%s' does not name the file", err.message);
  ck_assert_ptr_null(t);
}
END_TEST

/* Every length of a file that is cut, and any byte that is changed: an error, or a tokenizer. */
START_TEST(damaged) {
  write_words(of_llama, nothing);
  const size_t size = gguf_made.whole.size;
  ck_assert_uint_gt(size, 100);
  for (size_t i = 0; i < 2 * size; i++) {
    bs_tokenizer *t = NULL;
    bs_error err = BS_ERROR_INIT;
    const size_t at = i % size;
    if (i >= size) gguf_made.whole.data[at] ^= (unsigned char)(1u << at % 8);
    const int32_t rc =
        bs_tokenizer_open(files_write("cut.gguf", gguf_made.whole.data, i < size ? i : size), &t, &err);
    if (i >= size) gguf_made.whole.data[at] ^= (unsigned char)(1u << at % 8);
    ck_assert(i >= size || rc == BS_INPUT);
    ck_assert(rc == BS_OK || strncmp(err.id, "BS-GGUF-", 8) == 0 || strncmp(err.id, "BS-TOK-", 7) == 0);
    bs_tokenizer_close(t);
  }
}
END_TEST

int main(void) {
  const test_case rows[] = {{same_as_tokenizer_json, TEST_COUNT(same)},
                            {known_names},
                            {merges_by_score},
                            {ids_around},
                            {ends},
                            {refuses, TEST_COUNT(refused)},
                            {damaged},
                            {0}};
  return run_tests("tokenizers_gguf", rows, (test_setup){.before = files_begin, .after = files_end});
}
