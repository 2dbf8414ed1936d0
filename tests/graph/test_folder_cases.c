/* SPDX-License-Identifier: MIT
 * test_folder_cases.c - folders of each kind of model against transformers: logits behind a prompt, behind
 * each token that is decoded with the cache, and of one run over all tokens. tests/graph/cases/folders.txt,
 * which folder_cases.py makes; BS_FOLDER_CASES names another file of that form. */
#include <math.h>

#include "blockshock/graph.h"
#include "core/base/error.h"
#include "tests/graph/folder_case.h"
#include "tests/graph/random_text.h"

enum { MOST_TOKENS = 64, MOST_WORDS = 64, MOST_WEIGHTS = 256, HEADER = 1 << 16 };

typedef struct weight {
  char name[160], shape[40];
  double scale, offset;
} weight;

typedef struct folder_case {
  char name[80], config[4096];
  weight weights[MOST_WEIGHTS];
  int n_weights, n_tokens, prompt, words;
  int64_t tokens[MOST_TOKENS];
  double logits[MOST_TOKENS + 1][MOST_WORDS]; /* behind that many tokens; [0] of a run over all of them, where
                                                it is another */
  int has_whole;
} folder_case;

static bs_context *context;
static bs_graph *model;
static bs_error err;
static folder_case this_case;

static void ok(int32_t rc, const char *what) {
  ck_assert_msg(rc == BS_OK, "%s, %s: %s %s", this_case.name, what, err.id, err.message);
}

/* ---- the file --------------------------------------------------------------------------------- */

static FILE *open_cases(void) {
  char path[1024];
  const char *other = getenv("BS_FOLDER_CASES");
  snprintf(path, sizeof path, "%s/tests/graph/cases/folders.txt", getenv("BS_TEST_SOURCE_DIR"));
  return fopen(other != NULL ? other : path, "r");
}

/* Outside of a test. */
static int count_cases(void) {
  char line[8192];
  int n = 0;
  FILE *f = open_cases();
  if (f == NULL) return 0;
  while (fgets(line, sizeof line, f) != NULL) n += strncmp(line, "case ", 5) == 0;
  fclose(f);
  return n;
}

static void read_logits(folder_case *c, const char *line, int whole) {
  char *at = (char *)(uintptr_t)line;
  const long tokens = whole ? 0 : strtol(line + 1, &at, 10);
  ck_assert(tokens >= 0 && tokens <= MOST_TOKENS);
  if (c->prompt == 0) c->prompt = (int)tokens;
  for (c->words = 0; *at == ' '; c->words++) {
    ck_assert(c->words < MOST_WORDS);
    c->logits[tokens][c->words] = strtod(at, &at);
  }
}

static void read_line(folder_case *c, const char *line) {
  if (strncmp(line, "config ", 7) == 0) {
    snprintf(c->config, sizeof c->config, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
  } else if (strncmp(line, "weight ", 7) == 0) {
    ck_assert(c->n_weights < MOST_WEIGHTS);
    weight *w = &c->weights[c->n_weights++];
    char *at;
    int used = 0;
    ck_assert_int_eq(sscanf(line + 7, "%159s %39s%n", w->name, w->shape, &used), 2);
    w->scale = strtod(line + 7 + used, &at);
    w->offset = strtod(at, &at);
    ck_assert_int_eq(strspn(at, "\n"), strlen(at));
  } else if (strncmp(line, "tokens ", 7) == 0) {
    for (char *at = (char *)(uintptr_t)(line + 6); *at == ' ';) {
      ck_assert(c->n_tokens < MOST_TOKENS);
      c->tokens[c->n_tokens++] = strtol(at, &at, 10);
    }
  } else {
    c->has_whole = strncmp(line, "whole ", 6) == 0;
    ck_assert_msg(c->has_whole || strncmp(line, "logits ", 7) == 0, "%s", line);
    read_logits(c, line + strcspn(line, " "), c->has_whole);
  }
}

/* Case number n. */
static void read_case(int n, folder_case *out_case) {
  char line[8192];
  FILE *f = open_cases();
  ck_assert_ptr_nonnull(f);
  memset(out_case, 0, sizeof *out_case);
  while (n >= 0 && fgets(line, sizeof line, f) != NULL) n -= strncmp(line, "case ", 5) == 0;
  ck_assert_int_lt(n, 0);
  snprintf(out_case->name, sizeof out_case->name, "%.*s", (int)strcspn(line + 5, "\n"), line + 5);
  while (fgets(line, sizeof line, f) != NULL && strcmp(line, "end\n") != 0) read_line(out_case, line);
  fclose(f);
}

/* ---- the folder ------------------------------------------------------------------------------- */

static uint64_t elements(const char *shape) {
  uint64_t n = 1;
  for (char *at = (char *)(uintptr_t)(shape - 1); at < shape || *at == ',';) n *= strtoull(at + 1, &at, 10);
  return n;
}

static void write_folder(const folder_case *c) {
  static char header[HEADER];
  size_t at = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < c->n_weights; i++) {
    const uint64_t end = bytes + 4 * elements(c->weights[i].shape);
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                           i > 0 ? ',' : '{', c->weights[i].name, c->weights[i].shape,
                           (unsigned long long)bytes, (unsigned long long)end);
    bytes = end;
  }
  ck_assert(at < sizeof header - 16);
  header[at++] = '}';
  while (at % 8 != 0) header[at++] = ' ';
  const uint64_t length = at;
  FILE *f = fopen(files_path("model.safetensors"), "wb");
  ck_assert_ptr_nonnull(f);
  fwrite(&length, 8, 1, f);
  fwrite(header, 1, at, f);
  for (int i = 0; i < c->n_weights; i++)
    for (uint64_t k = 0; k < elements(c->weights[i].shape); k++) {
      const weight *w = &c->weights[i];
      const float value = (float)(w->offset + w->scale * random_step((uint64_t)i + 1, k) / 128);
      fwrite(&value, sizeof value, 1, f);
    }
  ck_assert_int_eq(fclose(f), 0);
  files_write("config.json", c->config, strlen(c->config));
}

/* ---- runs ------------------------------------------------------------------------------------- */

static bs_session *open_session(const char *backend, int64_t tokens, bs_session *share) {
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = tokens};
  const bs_dim *const dims[1] = {&dim};
  const bs_session_options options = {.struct_size = (uint32_t)sizeof options,
                                      .backend = backend,
                                      .threads = 1,
                                      .dims = dims,
                                      .n_dims = 1,
                                      .share = share,
                                      .no_fallback = 1}; /* every node is the backend's own */
  bs_session *session = NULL;
  ok(bs_session_open(context, model, &options, &session, &err), "session");
  return session;
}

/* Runs `count` tokens behind the first `before` ones and compares the logits of the last with row `want`. */
static void run(bs_session *session, const folder_case *c, int before, int count, int row, const char *what) {
  uint32_t port = 0;
  bs_tensor ids = {.struct_size = (uint32_t)sizeof ids,
                   .dtype = BS_I64,
                   .rank = 2,
                   .dims = {1, count},
                   .strides = {count, 1},
                   .data = (void *)(uintptr_t)&c->tokens[before],
                   .bytes = 8 * (uint64_t)count};
  bs_tensor logits = {.struct_size = (uint32_t)sizeof logits};
  double largest = 0;
  ok(bs_session_find(session, "input_ids", &port, &err), "input_ids");
  ok(bs_session_set(session, port, &ids, &err), "set");
  ok(bs_session_run(session, &err), what);
  ok(bs_session_find(session, "logits", &port, &err), "logits");
  ok(bs_session_get(session, port, &logits, &err), "get");
  ck_assert(logits.dtype == BS_F32 && logits.dims[1] == count && logits.dims[2] == c->words);
  const double *want = c->logits[row];
  const float *seen = (const float *)logits.data + (int64_t)(count - 1) * c->words;
  for (int i = 0; i < c->words; i++) largest = fmax(largest, fabs(want[i]));
  for (int i = 0; i < c->words; i++)
    ck_assert_msg(fabs((double)seen[i] - want[i]) <= 1e-5 * largest,
                  "%s, %s, token %d, word %d: %.9g, want %.9g", c->name, what, before + count, i,
                  (double)seen[i], want[i]);
}

static void before(void) {
  files_begin();
  ok(bs_context_open(NULL, &context, &err), "context");
}

static void after(void) {
  bs_graph_close(model);
  bs_context_close(context);
  files_end();
}

START_TEST(logits_are_those_of_transformers) {
  const char *backend = _i % 2 == 0 ? "ref" : "cpu";
  folder_case *c = &this_case;
  read_case(_i / 2, c);
  ck_assert(c->prompt > 0 && c->prompt < c->n_tokens);
  write_folder(c);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
  bs_session *prefill = open_session(backend, c->prompt, NULL), *decode = open_session(backend, 1, prefill);
  run(prefill, c, 0, c->prompt, c->prompt, "prompt");
  for (int n = c->prompt; n < c->n_tokens; n++) run(decode, c, n, 1, n + 1, "decode");
  bs_session_close(decode);
  bs_session_close(prefill);
  bs_session *whole = open_session(backend, c->n_tokens, NULL);
  run(whole, c, 0, c->n_tokens, c->has_whole ? 0 : c->n_tokens, "whole");
  bs_session_close(whole);
}
END_TEST

int main(void) {
  const test_case rows[] = {{logits_are_those_of_transformers, 2 * count_cases()}, {0}};
  return run_tests("folder_cases", rows, (test_setup){.before = before, .after = after});
}
