/* SPDX-License-Identifier: MIT
 * test_tokenizers.c - ids and text of tests/text/cases, which tests/text/make_cases.py made with Hugging
 * Face's tokenizers; with an argument, of the .json and .jsonl files of that folder
 * (scripts/tokenizer-tests), each of them a line of what it found. */
#include <dirent.h>
#include <pthread.h>

#include "tests/text/check_cases.h"

static const char *const names[] = {"bert",  "bert_cased", "clip",    "deepseek", "falcon",
                                    "gemma", "gpt2",       "llama2",  "llama3",   "mistral",
                                    "o200k", "qwen2",      "roberta", "words"};

/* The folder of the cases that are in the tree. */
static const char *path_of(const char *name, const char *end) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/tests/text/cases/%s%s", getenv("BS_TEST_SOURCE_DIR"), name, end);
  return path;
}

START_TEST(cases_of_the_tree) {
  char json[4096];
  int wrong = 0;
  snprintf(json, sizeof json, "%s", path_of(names[_i], ".json"));
  const int count = check_file(json, path_of(names[_i], ".jsonl"), &wrong);
  ck_assert_int_eq(count, 145);
  ck_assert_int_eq(wrong, 0);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

static const char *write_file(const char *text, size_t bytes) {
  static char path[] = "tokenizer_XXXXXX.json";
  strcpy(path, "tokenizer_XXXXXX.json");
  const int fd = mkstemps(path, 5);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
  close(fd);
  return path;
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define SPLIT(pattern)                                                       \
  "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
  "\"},\"behavior\":\"Isolated\",\"invert\":false}," MODEL "}"

static const struct {
  const char *id, *says, *file;
  int32_t status;
} refused[] = {
    {"BS-TOK-FORMAT", "line 1", "{", BS_INPUT},
    {"BS-TOK-FORMAT", "no model", "{}", BS_INPUT},
    {"BS-TOK-FORMAT", "no object", "[]", BS_INPUT},
    {"BS-TOK-FORMAT", "duplicate", "{\"model\":1,\"model\":1}", BS_INPUT},
    {"BS-TOK-FORMAT", "deeper than 32", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", BS_INPUT},
    {"BS-TOK-KIND", "the version is '2.0'", "{\"version\":\"2.0\"," MODEL "}", BS_UNSUPPORTED},
    {"BS-TOK-KIND", "the model is 'Unigram'", "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}",
     BS_UNSUPPORTED},
    {"BS-TOK-KIND", "dropout",
     "{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}", BS_UNSUPPORTED},
    {"BS-TOK-KIND", "the normalizer is 'Precompiled'",
     "{\"normalizer\":{\"type\":\"Precompiled\"}," MODEL "}", BS_UNSUPPORTED},
    {"BS-TOK-KIND", "the normalizer is 'Nmt'",
     "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Nmt\"}]}," MODEL
     "}",
     BS_UNSUPPORTED},
    {"BS-TOK-KIND", "the pre-tokenizer is 'UnicodeScripts'",
     "{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}", BS_UNSUPPORTED},
    {"BS-TOK-KIND", "the decoder is 'CTC'", "{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", BS_UNSUPPORTED},
    {"BS-TOK-KIND", "the post-processor is 'Other'", "{\"post_processor\":{\"type\":\"Other\"}," MODEL "}",
     BS_UNSUPPORTED},
    {"BS-TOK-KIND", "the text twice",
     "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{"
     "\"Sequence\":{\"id\":\"A\"}}]}," MODEL "}",
     BS_UNSUPPORTED},
    {"BS-TOK-FORMAT", "merge 0", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
     BS_INPUT},
    {"BS-TOK-FORMAT", "not two tokens",
     "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", BS_INPUT},
    {"BS-TOK-FORMAT", "two tokens have the id 0",
     "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", BS_INPUT},
    {"BS-TOK-FORMAT", "the id 1048576",
     "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1048576},\"merges\":[]}}", BS_INPUT},
    {"BS-TOK-FORMAT", "the id -1", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
     BS_INPUT},
    {"BS-TOK-FORMAT", "no integer", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}",
     BS_INPUT},
    {"BS-TOK-FORMAT", "unk_token",
     "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"a\":0},\"merges\":[]}}", BS_INPUT},
    {"BS-TOK-FORMAT", "two tokens have the id 1",
     "{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]," MODEL "}", BS_INPUT},
    {"BS-TOK-FORMAT", "there twice",
     "{\"added_tokens\":[{\"id\":3,\"content\":\"x\"},{\"id\":3,\"content\":\"x\"}]," MODEL "}", BS_INPUT},
    {"BS-TOK-FORMAT", "single_word",
     "{\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"single_word\":1}]," MODEL "}", BS_INPUT},
    {"BS-TOK-REGEX", "missing closing parenthesis", SPLIT("(a"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "a group that is not known", SPLIT("(?<n>a)"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "a group that is not known", SPLIT("a(?R)"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "a group that is not known", SPLIT("a(?C1)b"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "a verb", SPLIT("(*UCP)a"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "an escape that is not known at byte 2", SPLIT("\\\\C"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "an escape that is not known", SPLIT("(a)\\\\1"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "an escape that is not known", SPLIT("\\\\bx"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "no general category", SPLIT("\\\\p{Han}"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "\\P inside", SPLIT("[\\\\P{L}]"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "a set inside", SPLIT("[a-z&&[^b]]"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "^ or $", SPLIT("^a"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "{n}+", SPLIT("a{2}+"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "{,n}", SPLIT("a{,2}"), BS_UNSUPPORTED},
    {"BS-TOK-REGEX", "nothing to look for", SPLIT(""), BS_UNSUPPORTED},
};

START_TEST(refuses) {
  bs_tokenizer *t = NULL;
  bs_error err = BS_ERROR_INIT;
  const char *path = write_file(refused[_i].file, strlen(refused[_i].file));
  const int32_t rc = bs_tokenizer_open(path, &t, &err);
  unlink(path);
  ck_assert_msg(rc == refused[_i].status, "%d: %s %s", rc, err.id, err.message);
  ck_assert_str_eq(err.id, refused[_i].id);
  ck_assert_msg(strstr(err.message, refused[_i].says) != NULL, "'%s' is not in '%s'", refused[_i].says,
                err.message);
  ck_assert_msg(strstr(err.message, path) != NULL, "'%s' does not name the file", err.message);
  ck_assert_ptr_null(t);
}
END_TEST

START_TEST(a_long_pattern) {
  bs_text file = {0};
  bs_error err = BS_ERROR_INIT;
  bs_tokenizer *t = NULL;
  bs_text_printf(&file,
                 "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%8193s\"},\"behavior\":"
                 "\"Isolated\"}," MODEL "}",
                 "x");
  const char *path = write_file(file.data, file.size);
  ck_assert_int_eq(bs_tokenizer_open(path, &t, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-TOK-REGEX");
  ck_assert_ptr_nonnull(strstr(err.message, "8193 bytes; at most 8192"));
  unlink(path);
  bs_text_free(&file);
}
END_TEST

START_TEST(a_match_that_explodes) {
  static const char file[] = SPLIT("(a|a)*(a|a)*(a|a)*c|b");
  char text[400];
  uint64_t n;
  bs_error err = BS_ERROR_INIT;
  const char *path = write_file(file, sizeof file - 1);
  bs_tokenizer *t = opened(path);
  unlink(path);
  memset(text, 'a', sizeof text);
  ck_assert_int_eq(bs_tokenizer_encode(t, text, sizeof text, 0, NULL, 0, &n, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "BS-TOK-REGEX");
  bs_tokenizer_close(t);
}
END_TEST

/* Each step doubles the text: without a limit 40 of them would need 2^40 bytes. */
START_TEST(steps_that_explode) {
  bs_text file = {0};
  uint64_t n;
  bs_error err = BS_ERROR_INIT;
  bs_text_printf(&file, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
  for (int i = 0; i < 40; i++)
    bs_text_printf(&file, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}",
                   i > 0 ? "," : "");
  bs_text_printf(&file, "]}," MODEL "}");
  const char *path = write_file(file.data, file.size);
  bs_tokenizer *t = opened(path);
  unlink(path);
  ck_assert_int_eq(bs_tokenizer_encode(t, "a", 1, 0, NULL, 0, &n, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "BS-TOK-TEXT");
  bs_tokenizer_close(t);
  bs_text_free(&file);
}
END_TEST

START_TEST(text_that_is_no_utf8) {
  static const struct {
    const char *text;
    int at;
  } rows[] = {
      {"a\x80", 1}, {"ab\xc0\xaf", 2},  {"\xed\xa0\x80", 0}, {"\xf4\x90\x80\x80", 0}, {"\xc3\xa4\xe4\xb8", 2},
      {"x\xff", 1}, {"\xe0\x9f\xbf", 0}};
  bs_tokenizer *t = opened(path_of("gpt2", ".json"));
  char want[64];
  uint64_t n;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(bs_tokenizer_encode(t, rows[i].text, strlen(rows[i].text), 0, NULL, 0, &n, &err),
                     BS_INPUT);
    ck_assert_str_eq(err.id, "BS-TOK-UTF8");
    snprintf(want, sizeof want, "at offset %d", rows[i].at);
    ck_assert_msg(strstr(err.message, want) != NULL, "'%s' is not in '%s'", want, err.message);
  }
  bs_tokenizer_close(t);
}
END_TEST

/* ---- the interface --------------------------------------------------------------------------- */

START_TEST(names_and_roles) {
  char folder[] = "roles_XXXXXX", path[64];
  uint64_t n = 0;
  int64_t ids[2] = {7, 7};
  bs_error err = BS_ERROR_INIT;
  static const char tokens[] =
      "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true,\"normalized\":false}]," MODEL "}";
  static const char roles[] =
      "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"ab\",\"pad_token\":\"none\",\"unk_token\":null}";
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  ck_assert_int_eq(rename(write_file(tokens, sizeof tokens - 1), path), 0);
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  ck_assert_int_eq(rename(write_file(roles, sizeof roles - 1), path), 0);
  snprintf(path, sizeof path, "%s/generation_config.json", folder);
  ck_assert_int_eq(rename(write_file("{\"eos_token_id\":[1,3]}", 22), path), 0);
  snprintf(path, sizeof path, "%s/model.onnx", folder); /* a model in the folder: the file is absent */
  bs_tokenizer *beside = opened(path), *t = opened(folder);
  ck_assert_uint_eq(bs_tokenizer_size(t), 4);
  ck_assert_uint_eq(bs_tokenizer_size(beside), 4);
  ck_assert_int_eq(bs_tokenizer_id(t, "ab"), 2);
  ck_assert_int_eq(bs_tokenizer_id(t, "<s>"), 3);
  ck_assert_int_eq(bs_tokenizer_id(t, "<"), -1);
  ck_assert_str_eq(bs_tokenizer_token(t, 3), "<s>");
  ck_assert_ptr_null(bs_tokenizer_token(t, 4));
  ck_assert_ptr_null(bs_tokenizer_token(t, -1));
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_BOS), 3);
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_EOS), 2);
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_PAD), -1);
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_UNK), -1);
  ck_assert(!bs_tokenizer_ends(t, 0) && bs_tokenizer_ends(t, 1) && bs_tokenizer_ends(t, 2) &&
            bs_tokenizer_ends(t, 3) && !bs_tokenizer_ends(t, -1));
  /* The special token is one id, or text that the vocabulary has nothing of. */
  ck_assert_int_eq(bs_tokenizer_encode(t, "ab<s>a", 6, 0, ids, 1, &n, NULL), BS_OK);
  ck_assert_uint_eq(n, 3);
  ck_assert_int_eq(ids[0], 2);
  ck_assert_int_eq(ids[1], 7);
  ck_assert_int_eq(bs_tokenizer_encode(t, "ab<s>a", 6, BS_ENCODE_LITERAL, ids, 2, &n, NULL), BS_OK);
  ck_assert_uint_eq(n, 2);
  ids[0] = 4;
  ck_assert_int_eq(bs_tokenizer_decode(t, ids, 1, 0, NULL, 0, &n, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "BS-TOK-ID");
  ck_assert_int_eq(bs_tokenizer_encode(t, "", 0, 8, NULL, 0, &n, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_tokenizer_encode(NULL, "", 0, 0, NULL, 0, &n, &err), BS_INVALID_ARGUMENT);
  bs_tokenizer_close(t);
  bs_tokenizer_close(beside);
  bs_tokenizer_close(NULL);
  unlink(path);
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/generation_config.json", folder);
  unlink(path);
  rmdir(folder);
}
END_TEST

/* Work that grows with the square of the text would outlast the test's time. */
START_TEST(long_words) {
  enum { BYTES = 512 << 10 };
  static const char *const of[] = {"gpt2", "qwen2", "llama2", "bert", "words"};
  char *text = malloc(BYTES);
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    bs_tokenizer *t = opened(path_of(of[i], ".json"));
    for (int kind = 0; kind < 4; kind++) {
      uint64_t n = 0;
      for (size_t j = 0; j < BYTES; j++)
        text[j] = "abab    \xcc\x95\xcc\xb4\xcc\x95\xcc\xb4...."[kind == 2 ? 8 + j % 4 : kind * 4 + j % 4];
      ck_assert_int_eq(bs_tokenizer_encode(t, text, BYTES, 0, NULL, 0, &n, NULL), BS_OK);
    }
    bs_tokenizer_close(t);
  }
  free(text);
}
END_TEST

typedef struct worker {
  const bs_tokenizer *tokenizer;
  int ok;
} worker;

static void *encode_often(void *user) {
  worker *w = user;
  static const char text[] = "Don't stop: 12345 na\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd";
  int64_t first[128], ids[128];
  uint64_t n = 0, again = 0;
  w->ok = bs_tokenizer_encode(w->tokenizer, text, sizeof text - 1, 0, first, 128, &n, NULL) == BS_OK &&
          n > 8 && n < 128;
  for (int i = 0; i < 200 && w->ok; i++)
    w->ok = bs_tokenizer_encode(w->tokenizer, text, sizeof text - 1, 0, ids, 128, &again, NULL) == BS_OK &&
            again == n && memcmp(ids, first, (size_t)n * sizeof ids[0]) == 0;
  return NULL;
}

START_TEST(threads_share_a_tokenizer) {
  bs_tokenizer *t = opened(path_of("llama3", ".json"));
  pthread_t threads[4];
  worker workers[4];
  for (int i = 0; i < 4; i++) {
    workers[i] = (worker){t, 0};
    ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_often, &workers[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    ck_assert(workers[i].ok);
  }
  bs_tokenizer_close(t);
}
END_TEST

/* ---- a folder of cases ----------------------------------------------------------------------- */

/* NAME.jsonl is of NAME.json, and NAME.gguf.jsonl of NAME.gguf. */
static void path_of_cases(char out[4096], const char *folder, const char *cases) {
  const size_t n = strlen(cases);
  const int is_gguf = n > 11 && strcmp(cases + n - 11, ".gguf.jsonl") == 0;
  snprintf(out, 4096, "%s/%.*s", folder, (int)n - (is_gguf ? 6 : 1), cases);
}

/* A GGUF file of a kind that is not known is refused by name, and no failure. */
static int is_refused(const char *path) {
  bs_tokenizer *t = NULL;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_tokenizer_open(path, &t, &err);
  bs_tokenizer_close(t);
  if (rc == BS_OK || strstr(path, ".gguf") == NULL || strcmp(err.id, "BS-TOK-KIND") != 0) return 0;
  const char *slash = strrchr(path, '/');
  printf("%s: refused: %s\n", slash + 1, err.message);
  return 1;
}

static int check_folder(const char *folder) {
  struct dirent **entries = NULL;
  const int n = scandir(folder, &entries, NULL, alphasort);
  int files = 0, all_wrong = 0;
  for (int i = 0; i < n; i++) {
    char path[4096], cases[4096];
    const size_t size = strlen(entries[i]->d_name);
    if (size > 6 && strcmp(entries[i]->d_name + size - 6, ".jsonl") == 0) {
      int wrong = 0;
      path_of_cases(path, folder, entries[i]->d_name);
      snprintf(cases, sizeof cases, "%s/%s", folder, entries[i]->d_name);
      const int count = is_refused(path) ? -1 : check_file(path, cases, &wrong);
      if (count >= 0) printf("%.*s: %d texts, %d differ\n", (int)size - 6, entries[i]->d_name, count, wrong);
      files += count >= 0;
      all_wrong += wrong + (count == 0);
    }
    free(entries[i]);
  }
  free(entries);
  return files > 0 && all_wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
  const test_case rows[] = {{cases_of_the_tree, TEST_COUNT(names)},
                            {refuses, TEST_COUNT(refused)},
                            {a_long_pattern},
                            {a_match_that_explodes},
                            {steps_that_explode},
                            {text_that_is_no_utf8},
                            {names_and_roles},
                            {long_words},
                            {threads_share_a_tokenizer},
                            {0}};
  if (argc > 1) return check_folder(argv[1]);
  return run_tests("tokenizers", rows, (test_setup){.timeout = 60});
}
