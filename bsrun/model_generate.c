/* SPDX-License-Identifier: MIT
 * model_generate.c - `bsrun model generate FOLDER --ids 1,2,3`: the likeliest tokens, one after another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/text.h"

static const args_option model_generate_options[] = {
    {OPT_IDS, NULL, 0},    {OPT_TOKENS, NULL, 0},
    {OPT_STOP, NULL, 0},   {OPT_TO, "the generated ids, a .npy file", 0},
    MODEL_OPTION_BACKEND,  MODEL_OPTION_THREADS,
    MODEL_OPTION_PASS,     MODEL_OPTIONS_QUANT,
    MODEL_OPTION_TOKENS,   MODEL_OPTION_TUNED,
    MODEL_OPTIONS_PLUGINS, {OPT_OUTPUT, "text or json", 0},
    {OPT_QUIET, NULL, 0},  ARGS_HELP,
};

static int32_t copy_file(const char *path, int64_t **out, size_t *out_n, bs_error *err) {
  bs_npy npy;
  int32_t rc = bs_npy_open(path, &npy, err);
  if (rc != BS_OK) return rc;
  if (!bs_model_are_ids(&npy)) {
    rc = bs_error_set(err, BS_INPUT, "BS-MODEL-IDS", "%.200s holds no i64 token ids of 0 or more", path);
  } else if ((*out = malloc(npy.count * sizeof **out)) == NULL) {
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a prompt");
  } else {
    memcpy(*out, npy.data, npy.count * sizeof **out);
    *out_n = npy.count;
  }
  bs_npy_close(&npy);
  return rc;
}

/* A file that is there is one; else a text with a comma, or that begins as a number does, is a list. */
static int is_list(const char *text) {
  return access(text, F_OK) != 0 && (strchr(text, ',') != NULL || strspn(text, " 0123456789+-") > 0);
}

/* "1,2,3", or a file. */
static int32_t read_ids(const char *text, int64_t **out, size_t *out_n, bs_error *err) {
  if (text == NULL) {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "model generate needs a prompt");
    bs_error_hint(err, "--ids 1,2,3, or --ids prompt.npy");
    return BS_USAGE;
  }
  if (text[strspn(text, " ")] == '\0') {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--ids '%.40s' holds no token id", text);
    bs_error_hint(err, "--ids 1,2,3, or --ids prompt.npy");
    return BS_USAGE;
  }
  if (!is_list(text)) return copy_file(text, out, out_n, err);
  int64_t *ids = calloc(strlen(text) + 1, sizeof *ids);
  *out = ids;
  if (ids == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a prompt");
  for (const char *p = text;; p++) {
    char word[32];
    p += strspn(p, " ");
    const size_t n = strcspn(p, ",");
    snprintf(word, sizeof word, "%.*s", n < sizeof word ? (int)n : 0, p);
    if (!bs_parse_i64(word, &ids[*out_n]) || ids[*out_n] < 0) {
      bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--ids: '%.*s' is not a token id", n < 60 ? (int)n : 60,
                   p);
      bs_error_hint(err, "--ids 1,2,3, or a .npy file that is there");
      return BS_USAGE;
    }
    ++*out_n;
    p += n;
    if (*p == '\0') return BS_OK;
  }
}

static int32_t print_tokens(const args *a, const int64_t *ids, size_t n, size_t n_prompt, int complete,
                            const bs_model_times *times, bs_error *err) {
  const double rate = n > 1 && times->tokens_s > 0 ? (double)(n - 1) / times->tokens_s : 0;
  const char *format = args_value(a, "output");
  if (format != NULL && strcmp(format, "json") == 0) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    json_t *row = json_pack("{s:o, s:b, s:I, s:f, s:f, s:f}", "tokens", list, "complete", complete,
                            "prompt_tokens", (json_int_t)n_prompt, "prompt_s", times->prompt_s, "tokens_s",
                            times->tokens_s, "tokens_per_s", rate);
    const int32_t rc = model_print_json(row, err);
    json_decref(row);
    return rc;
  }
  for (size_t i = 0; i < n; i++) bs_print(stdout, "%s%lld", i == 0 ? "" : ",", (long long)ids[i]);
  printf("\n");
  char line[160];
  snprintf(line, sizeof line, "prompt of %zu tokens %.3f s, %zu tokens at %.1f a second", n_prompt,
           times->prompt_s, n, rate);
  bsrun_note(args_has(a, "quiet"), line);
  return BS_OK;
}

static void tell_fallback(const args *a, const model_asked *asked) {
  json_t *stats = bs_model_stats(asked->model.session);
  model_tell_fallback(a, &asked->request, stats);
  json_decref(stats);
}

static int32_t keep_tokens(const args *a, const int64_t *ids, size_t n, bs_error *err) {
  const int64_t dims[] = {(int64_t)n};
  return args_has(a, "to") ? bs_npy_write(args_value(a, "to"), BS_I64, 1, dims, ids, err) : BS_OK;
}

static int32_t fits_cache(const model_asked *asked, size_t n_prompt, int64_t n_new, bs_error *err) {
  return bs_model_context_check(asked->model.graph, asked->request.cache_tokens, n_prompt, (size_t)n_new,
                                err);
}

/* Without --tokens: as many as the cache has room for, and at most n_new. */
static int64_t most_tokens(const model_asked *asked, size_t n_prompt, int64_t n_new) {
  while (n_new > 1 && fits_cache(asked, n_prompt, n_new, NULL) != BS_OK) n_new--;
  return n_new;
}

static int32_t generate(const args *a, bs_error *err) {
  static const char *const formats[] = {"text", "json"};
  model_asked asked = {0};
  const char *symbol, *format = args_value(a, "output");
  int64_t *prompt = NULL, *ids = NULL, n_new = 64, stop = -1;
  size_t n_prompt = 0, n = 0;
  bs_model_times times;
  int32_t rc = BS_OK;
  bsrun_interruptible("the tokens above were made; --tokens N makes fewer");
  if (format != NULL && strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
    rc = bsrun_unknown("output format", format, formats, 2, err);
  if (rc == BS_OK) rc = args_integer(a, "tokens", 1, 1 << 24, n_new, &n_new, err);
  if (rc == BS_OK) rc = args_integer(a, "stop", 0, INT64_MAX, stop, &stop, err);
  if (rc == BS_OK) rc = read_ids(args_value(a, "ids"), &prompt, &n_prompt, err);
  if (rc == BS_OK) rc = model_asked_make(a, &asked, err);
  if (rc == BS_OK) rc = bs_model_token_dim(asked.model.graph, &symbol, err);
  if (rc == BS_OK && !args_has(a, "tokens")) n_new = most_tokens(&asked, n_prompt, n_new);
  if (rc == BS_OK) rc = fits_cache(&asked, n_prompt, stop < 0 ? n_new : 1, err);
  if (rc == BS_OK) rc = bs_model_set_dim(&asked.model, symbol, (int64_t)n_prompt, err);
  if (rc == BS_OK) rc = bs_model_start(asked.context, &asked.request, &asked.model, err);
  if (rc == BS_OK && (ids = calloc((size_t)n_new, sizeof *ids)) == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for tokens");
  int32_t made = rc;
  if (rc == BS_OK)
    made = bs_model_generate(asked.model.session, symbol, prompt, n_prompt, (size_t)n_new, stop, ids, &n,
                             &times, err);
  if (made == BS_OVERFLOW && fits_cache(&asked, n_prompt, n_new, err) != BS_OK) made = BS_USAGE;
  model_progress_end(&asked);
  if (rc == BS_OK && n > 0) tell_fallback(a, &asked);
  /* Tokens that are there when the cache is full are not lost: they come first, then the error. */
  if (rc == BS_OK && n > 0) rc = keep_tokens(a, ids, n, made == BS_OK ? err : NULL);
  if (rc == BS_OK && n > 0)
    rc = print_tokens(a, ids, n, n_prompt, made == BS_OK, &times, made == BS_OK ? err : NULL);
  if (made != BS_OK) rc = made;
  model_asked_free(&asked);
  free(prompt);
  free(ids);
  return rc;
}

const bsrun_verb model_generate = {
    .name = "generate",
    .words = "FOLDER --ids LIST|FILE [--tokens N] [--stop ID] [--backend NAME] [-o text|json]",
    .summary = "generate tokens from token ids with a key-value cache",
    .about =
        "FOLDER holds config.json and safetensors of GPT-2, Llama, Mistral or Qwen. The prompt is one run;\n"
        "then each run adds one token, the likeliest (of equal ones the lowest id). Tokens for which the\n"
        "cache has no room are refused before anything runs (exit 2). With --stop, the tokens that there is\n"
        "room for are printed first.\n",
    .examples =
        "  bsrun model generate gpt2 --ids 464,3290,318 --tokens 20\n"
        "  bsrun model generate gpt2 --ids prompt.npy --to tokens.npy -o json\n",
    .options = model_generate_options,
    .run = generate,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
