/* SPDX-License-Identifier: MIT
 * model_generate.c - `bsrun model generate MODEL`: tokens after a prompt, or after several ones, as they
 * are made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/model.h"
#include "bsrun/model_text.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/model/text_file.h"

static const args_option model_generate_options[] = {
    {OPT_PROMPT, NULL, 0},
    {OPT_IDS, NULL, 0},
    {OPT_TOKENS, NULL, 0},
    {OPT_STOP, NULL, 0},
    {OPT_SEED, "of --with temperature; default: 0", 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_PROMPTS, NULL, 0},
    {OPT_WITH_TEMPERATURE, NULL, 0},
    {OPT_WITH_TOP_K, NULL, 0},
    {OPT_WITH_TOP_P, NULL, 0},
    {OPT_WITH_MIN_P, NULL, 0},
    {OPT_WITH_REPETITION, NULL, 0},
    {OPT_WITH_DRAFT, NULL, 0},
    MODEL_OPTION_CACHE_DTYPE,
    {OPT_WITH_SHAPES, NULL, 0},
    {OPT_WITH_REPRO, NULL, 0},
    {OPT_TO, "the generated ids, a .npy file", 0},
    MODEL_OPTION_BACKEND,
    MODEL_OPTION_THREADS,
    MODEL_OPTIONS_RANKS,
    MODEL_OPTION_PASS,
    MODEL_OPTIONS_QUANT,
    MODEL_OPTION_TOKENS,
    MODEL_OPTIONS_PLUGINS,
    {OPT_OUTPUT, "text or json", 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

enum { SLOTS = 8 };

/* A prompt and what was made of it. */
typedef struct one_prompt {
  int64_t *ids, *made;
  size_t n, n_made;
  model_text text;
} one_prompt;

typedef struct generation {
  const args *a;
  model_asked asked;
  one_prompt *prompts;
  size_t n_prompts;
  bs_tokenizer *tokenizer; /* NULL: ids are given and printed */
  int64_t n_new, stop;
  const char *stop_text;
  int streams; /* tokens are printed as they come */
  int json;
  bs_sampling sampling;
  size_t made; /* tokens of all prompts */
  bs_generator_stats stats;
  int32_t rc; /* of take_token */
  bs_error why;
} generation;

/* ---- prompts --------------------------------------------------------------------------------- */

static int32_t add_prompt(generation *g, const int64_t *ids, size_t n, bs_error *err) {
  one_prompt *grown = realloc(g->prompts, (g->n_prompts + 1) * sizeof *grown);
  if (grown != NULL) g->prompts = grown;
  int64_t *own = malloc((n + 1) * sizeof *own);
  if (grown == NULL || own == NULL) {
    free(own);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a prompt");
  }
  memcpy(own, ids, n * sizeof *ids);
  g->prompts[g->n_prompts++] = (one_prompt){.ids = own, .n = n};
  return BS_OK;
}

/* Ids of one prompt, or [prompts, tokens]. */
static int32_t read_file(generation *g, const char *path, bs_error *err) {
  bs_npy npy;
  int32_t rc = bs_npy_open(path, &npy, err);
  if (rc != BS_OK) return rc;
  const size_t rows = npy.rank == 2 && npy.dims[0] > 1 ? (size_t)npy.dims[0] : 1;
  if (!bs_model_are_ids(&npy))
    rc = bs_error_set(err, BS_INPUT, "BS-MODEL-IDS", "%.200s holds no i64 token ids of 0 or more", path);
  for (size_t i = 0; rc == BS_OK && i < rows; i++)
    rc = add_prompt(g, (const int64_t *)npy.data + i * (npy.count / rows), npy.count / rows, err);
  bs_npy_close(&npy);
  return rc;
}

/* A file that is there is one; else a text with a comma, or that begins as a number does, is a list. */
static int is_list(const char *text) {
  return access(text, F_OK) != 0 && (strchr(text, ',') != NULL || strspn(text, " 0123456789+-") > 0);
}

static int32_t read_list(const char *text, int64_t *ids, size_t *out_n, bs_error *err) {
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

/* "1,2,3", or a file. */
static int32_t read_ids(generation *g, const char *text, bs_error *err) {
  if (text == NULL) {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "model generate needs a prompt");
    bs_error_hint(err, "--prompt TEXT, --ids 1,2,3, or --ids prompt.npy");
    return BS_USAGE;
  }
  if (text[strspn(text, " ")] == '\0') {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--ids '%.40s' holds no token id", text);
    bs_error_hint(err, "--ids 1,2,3, or --ids prompt.npy");
    return BS_USAGE;
  }
  if (!is_list(text)) return read_file(g, text, err);
  int64_t *ids = calloc(strlen(text) + 1, sizeof *ids);
  size_t n = 0;
  if (ids == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a prompt");
  int32_t rc = read_list(text, ids, &n, err);
  if (rc == BS_OK) rc = add_prompt(g, ids, n, err);
  free(ids);
  return rc;
}

static int has_text(const args *a) {
  return args_has(a, "prompt") || args_has(a, "prompts");
}

static int32_t add_text(generation *g, const char *text, bs_error *err) {
  int64_t *ids = NULL;
  size_t n = 0;
  int32_t rc = model_text_ids(g->tokenizer, text, &ids, &n, err);
  if (rc == BS_OK) rc = add_prompt(g, ids, n, err);
  free(ids);
  return rc;
}

static int32_t add_lines(generation *g, const char *path, bs_error *err) {
  char *text = NULL, *rest;
  int32_t rc = path != NULL ? bs_text_file_read(path, "BS-MODEL-PROMPTS", &text, err) : BS_OK;
  rest = text;
  for (char *line; rc == BS_OK && rest != NULL && (line = bs_text_file_line(&rest)) != NULL;)
    if (line[0] != '\0') rc = add_text(g, line, err);
  free(text);
  return rc;
}

/* --prompt and --prompts: the model's tokenizer makes ids of them, and says which token ends a text. */
static int32_t read_texts(generation *g, bs_error *err) {
  const char **texts = NULL;
  size_t n = 0;
  if (args_has(g->a, "ids")) {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--ids and --prompt are given");
    bs_error_hint(err, "give the prompt as ids, or as text");
    return BS_USAGE;
  }
  int32_t rc = bs_tokenizer_open(g->a->words[0], &g->tokenizer, err);
  if (rc == BS_OK) rc = args_values(g->a, "prompt", &texts, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = add_text(g, texts[i], err);
  free((void *)texts);
  if (rc == BS_OK) rc = add_lines(g, args_value(g->a, "prompts"), err);
  if (rc == BS_OK && g->n_prompts == 0) {
    bs_error_set(err, BS_INPUT, "BS-MODEL-PROMPTS", "%.200s has no prompt", args_value(g->a, "prompts"));
    bs_error_hint(err, "a prompt on each line");
    return BS_INPUT;
  }
  if (rc != BS_OK) return rc;
  g->stop = bs_tokenizer_special(g->tokenizer, BS_TOKEN_EOS);
  g->stop_text = args_value(g->a, "stop");
  return BS_OK;
}

static size_t longest(const generation *g) {
  size_t n = 0;
  for (size_t i = 0; i < g->n_prompts; i++)
    if (g->prompts[i].n > n) n = g->prompts[i].n;
  return n;
}

/* ---- results --------------------------------------------------------------------------------- */

static int take_token(void *user, size_t prompt, int64_t id) {
  generation *g = user;
  one_prompt *p = &g->prompts[prompt];
  model_progress_end(&g->asked);
  if (g->streams && g->tokenizer == NULL) {
    bs_print(stdout, "%s%lld", p->n_made == 0 ? "" : ",", (long long)id);
    fflush(stdout);
  }
  p->made[p->n_made++] = id;
  g->made++;
  if (g->tokenizer == NULL) return 0;
  if (bs_tokenizer_ends(g->tokenizer, id)) return 1;
  g->rc = model_text_add(&p->text, id, &g->why);
  return g->rc != BS_OK || p->text.ended;
}

static double rate(double n, double seconds) {
  return seconds > 0 ? n / seconds : 0;
}

/* "prompt 512 tokens 1,930/s, 384 kept · 128 tokens 58.1/s · drafted 61, kept 40" */
static void tell_rates(const generation *g) {
  const bs_generator_stats *s = &g->stats;
  char line[240];
  size_t at = 0;
  const double computed = (double)(s->prompt_tokens - s->kept_tokens);
  if (!(s->prompt_seconds > 0)) return; /* an error came before there were any */
  at +=
      (size_t)snprintf(line, sizeof line, "prompt %llu token%s %.1f/s", (unsigned long long)s->prompt_tokens,
                       s->prompt_tokens == 1 ? "" : "s", rate(computed, s->prompt_seconds));
  if (s->kept_tokens > 0)
    at += (size_t)snprintf(line + at, sizeof line - at, ", %llu kept", (unsigned long long)s->kept_tokens);
  at += (size_t)snprintf(line + at, sizeof line - at, " · %zu token%s %.1f/s", g->made,
                         g->made == 1 ? "" : "s", rate((double)g->made, s->step_seconds));
  if (g->sampling.draft > 0)
    snprintf(line + at, sizeof line - at, " · drafted %llu, kept %llu", (unsigned long long)s->drafted,
             (unsigned long long)s->accepted);
  bsrun_note(args_has(g->a, "quiet"), line);
}

static json_t *list_of(const one_prompt *p) {
  json_t *list = json_array();
  for (size_t i = 0; i < p->n_made; i++) json_array_append_new(list, json_integer(p->made[i]));
  return list;
}

/* Bytes that are not UTF-8 never are in it. */
static json_t *text_of(const one_prompt *p) {
  return json_stringn(p->text.all.data != NULL ? p->text.all.data : "", p->text.all.size);
}

static int32_t print_json(const generation *g, int complete, bs_error *err) {
  const bs_generator_stats *s = &g->stats;
  json_t *row = json_pack(
      "{s:b, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I}", "complete", complete, "prompt_tokens",
      (json_int_t)s->prompt_tokens, "kept_tokens", (json_int_t)s->kept_tokens, "prompt_s", s->prompt_seconds,
      "tokens_s", s->step_seconds, "tokens_per_s", rate((double)g->made, s->step_seconds), "runs",
      (json_int_t)s->runs, "drafted", (json_int_t)s->drafted, "accepted", (json_int_t)s->accepted);
  json_t *ids = json_array(), *texts = json_array();
  for (size_t i = 0; i < g->n_prompts; i++) {
    json_array_append_new(ids, list_of(&g->prompts[i]));
    json_array_append_new(texts, text_of(&g->prompts[i]));
  }
  const int one = g->n_prompts == 1;
  json_object_set(row, one ? "tokens" : "sequences", one ? json_array_get(ids, 0) : ids);
  if (g->tokenizer != NULL)
    json_object_set(row, one ? "text" : "texts", one ? json_array_get(texts, 0) : texts);
  const int32_t rc = model_print_json(row, err);
  json_decref(ids);
  json_decref(texts);
  json_decref(row);
  return rc;
}

static int32_t print_results(const generation *g, int complete, bs_error *err) {
  if (g->json) return print_json(g, complete, err);
  for (size_t k = 0; k < g->n_prompts && !g->streams; k++) {
    if (g->tokenizer != NULL) {
      printf("prompt %zu:\n", k + 1);
      fwrite(g->prompts[k].text.all.data, 1, g->prompts[k].text.all.size, stdout);
    }
    for (size_t i = 0; g->tokenizer == NULL && i < g->prompts[k].n_made; i++)
      bs_print(stdout, "%s%lld", i == 0 ? "" : ",", (long long)g->prompts[k].made[i]);
    printf("\n");
  }
  if (g->streams) printf("\n");
  tell_rates(g);
  return BS_OK;
}

static void tell_fallback(const generation *g) {
  json_t *stats = json_pack("{s:I}", "fallback_nodes", (json_int_t)g->stats.fallback_nodes);
  model_tell_fallback(g->a, &g->asked.request, stats);
  json_decref(stats);
}

/* The ids of one prompt [n], of several [prompts, n] with -1 after the end of a shorter one. */
static int32_t keep_tokens(const generation *g, bs_error *err) {
  size_t most = 0;
  if (!args_has(g->a, "to")) return BS_OK;
  for (size_t i = 0; i < g->n_prompts; i++)
    if (g->prompts[i].n_made > most) most = g->prompts[i].n_made;
  int64_t *all = malloc((g->n_prompts * most + 1) * sizeof *all);
  if (all == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for tokens");
  for (size_t i = 0; i < g->n_prompts; i++)
    for (size_t k = 0; k < most; k++)
      all[i * most + k] = k < g->prompts[i].n_made ? g->prompts[i].made[k] : -1;
  const int64_t dims[2] = {(int64_t)g->n_prompts, (int64_t)most};
  const int one = g->n_prompts == 1;
  const int32_t rc = bs_npy_write(args_value(g->a, "to"), BS_I64, one ? 1 : 2, dims + one, all, err);
  free(all);
  return rc;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int32_t read_sampling(const args *a, bs_sampling *out, bs_error *err) {
  int64_t top_k = 0, draft = 0, seed = 0;
  *out = (bs_sampling){.struct_size = sizeof *out};
  int32_t rc = args_real(a, "temperature", 0, 1000, 0, &out->temperature, err);
  if (rc == BS_OK) rc = args_real(a, "top-p", 0, 1, 1, &out->top_p, err);
  if (rc == BS_OK) rc = args_real(a, "min-p", 0, 1, 0, &out->min_p, err);
  if (rc == BS_OK) rc = args_real(a, "repetition", 0.01, 100, 1, &out->repetition, err);
  if (rc == BS_OK) rc = args_integer(a, "top-k", 0, UINT32_MAX, 0, &top_k, err);
  if (rc == BS_OK) rc = args_integer(a, "draft", 0, BS_DRAFT_MOST, 0, &draft, err);
  if (rc == BS_OK) rc = args_integer(a, "seed", 0, INT64_MAX, 0, &seed, err);
  out->top_k = (uint32_t)top_k;
  out->draft = (uint32_t)draft;
  out->seed = (uint64_t)seed;
  return rc;
}

static int32_t read_words(const args *a, generation *g, bs_error *err) {
  static const char *const formats[] = {"text", "json"};
  const char *format = args_value(a, "output");
  int32_t rc = BS_OK;
  g->json = format != NULL && strcmp(format, "json") == 0;
  if (format != NULL && strcmp(format, "text") != 0 && !g->json)
    rc = bsrun_unknown("output format", format, formats, 2, err);
  if (rc == BS_OK) rc = args_integer(a, "tokens", 1, 1 << 24, 64, &g->n_new, err);
  if (rc == BS_OK && !has_text(a)) rc = args_integer(a, "stop", 0, INT64_MAX, -1, &g->stop, err);
  if (rc == BS_OK) rc = read_sampling(a, &g->sampling, err);
  if (rc == BS_OK) rc = has_text(a) ? read_texts(g, err) : read_ids(g, args_value(a, "ids"), err);
  g->streams = g->n_prompts == 1 && !g->json;
  return rc;
}

static int32_t fits_cache(const generation *g, int64_t n_new, bs_error *err) {
  return bs_model_context_check(g->asked.model.graph, g->asked.request.cache_tokens, longest(g),
                                (size_t)n_new, err);
}

static int32_t open_model(const args *a, generation *g, bs_error *err) {
  int32_t rc = model_asked_read(a, &g->asked, err);
  g->asked.request.slots = g->n_prompts < SLOTS ? (int64_t)g->n_prompts : SLOTS;
  if (rc == BS_OK) rc = bs_model_open(g->asked.context, &g->asked.request, &g->asked.model, err);
  if (rc == BS_OK) rc = bs_model_has_slots(g->asked.model.graph, err);
  /* Without --tokens: as many as the cache has room for, and at most n_new. */
  while (rc == BS_OK && !args_has(a, "tokens") && g->n_new > 1 && fits_cache(g, g->n_new, NULL) != BS_OK)
    g->n_new--;
  if (rc == BS_OK) rc = fits_cache(g, g->stop < 0 && g->stop_text == NULL ? g->n_new : 1, err);
  for (size_t i = 0; rc == BS_OK && i < g->n_prompts; i++) {
    g->prompts[i].made = calloc((size_t)g->n_new, sizeof *g->prompts[i].made);
    if (g->prompts[i].made == NULL)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for tokens");
    if (rc == BS_OK && g->tokenizer != NULL)
      rc = model_text_open(g->tokenizer, g->stop_text, g->streams, &g->prompts[i].text, err);
  }
  return rc;
}

static int32_t run_generation(generation *g, bs_error *err) {
  const int64_t **ids = calloc(g->n_prompts + 1, sizeof *ids);
  size_t *lengths = calloc(g->n_prompts + 1, sizeof *lengths);
  int32_t rc = ids == NULL || lengths == NULL
                   ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for prompts")
                   : BS_OK;
  for (size_t i = 0; rc == BS_OK && i < g->n_prompts; i++) {
    ids[i] = g->prompts[i].ids;
    lengths[i] = g->prompts[i].n;
  }
  const bs_model_prompts prompts = {.ids = ids,
                                    .lengths = lengths,
                                    .n = g->n_prompts,
                                    .n_new = (size_t)g->n_new,
                                    .stop = g->stop,
                                    .sampling = g->sampling,
                                    .token = take_token,
                                    .user = g};
  g->stats.struct_size = sizeof g->stats;
  if (rc == BS_OK)
    rc = bs_model_generate_many(g->asked.context, &g->asked.request, &g->asked.model, &prompts, &g->stats,
                                err);
  for (size_t i = 0; g->rc == BS_OK && g->tokenizer != NULL && i < g->n_prompts; i++)
    if (g->prompts[i].text.stream != NULL) g->rc = model_text_end(&g->prompts[i].text, &g->why);
  free((void *)ids);
  free(lengths);
  if (g->rc == BS_OK) return rc;
  if (err != NULL) *err = g->why;
  return g->rc;
}

static int32_t generate(const args *a, bs_error *err) {
  generation g = {.a = a, .stop = -1, .why = BS_ERROR_INIT};
  bsrun_interruptible("the tokens above were made; --tokens N makes fewer");
  int32_t rc = read_words(a, &g, err);
  if (rc == BS_OK) rc = open_model(a, &g, err);
  const int opened = rc == BS_OK;
  if (opened) rc = run_generation(&g, err);
  if (opened && rc == BS_OVERFLOW && fits_cache(&g, g.n_new, err) != BS_OK) rc = BS_USAGE;
  model_progress_end(&g.asked);
  if (opened && g.made > 0) {
    /* Tokens that are there when the cache is full are not lost: they come first, then the error. */
    tell_fallback(&g);
    int32_t kept = keep_tokens(&g, rc == BS_OK ? err : NULL);
    if (kept == BS_OK) kept = print_results(&g, rc == BS_OK, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = kept;
  }
  model_asked_free(&g.asked);
  for (size_t i = 0; i < g.n_prompts; i++) {
    free(g.prompts[i].ids);
    free(g.prompts[i].made);
    model_text_close(&g.prompts[i].text);
  }
  free(g.prompts);
  bs_tokenizer_close(g.tokenizer);
  return rc;
}

const bsrun_verb model_generate = {
    .name = "generate",
    .words =
        "FOLDER --prompt TEXT [--tokens N] [--stop TEXT] [--with WORDS]\nFOLDER --ids LIST|FILE [--tokens N] "
        "[--stop ID] [--with WORDS]",
    .summary = "generate text or tokens behind a prompt",
    .about =
        "FOLDER holds config.json and safetensors of GPT-2, Llama, Mistral or Qwen; for text also\n"
        "tokenizer.json. Text or ids go to stdout as they are made, of several prompts when all are there;\n"
        "rates go to stderr. Without --with temperature each token is the likeliest one, of equal ones the\n"
        "one with the lowest id. Words of --with may be options of their own: --top-k 40. Several prompts\n"
        "share each run, and the prefixes that they have in common; neither these nor drafts change a "
        "token.\n"
        "\n"
        "Text ends at the tokenizer's token of the end. Tokens for which the cache has no room are refused\n"
        "before anything runs (exit 2). With an end that may come first, those that there is room for are\n"
        "printed first. share/doc/blockshock/generate.md has more.\n",
    .examples =
        "  bsrun model generate gpt2 --prompt 'Once upon a time' --temperature 0.7 --top-p 0.9 --seed 1\n"
        "  bsrun model generate gpt2 --prompts prompts.txt --tokens 20 --draft 7 -o json\n"
        "  bsrun model generate gpt2 --ids 464,3290,318 --tokens 20 --to tokens.npy\n",
    .options = model_generate_options,
    .run = generate,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
