/* SPDX-License-Identifier: MIT
 * generate.c - tokens one after another from a model with a key-value cache. The expected tokens of
 * vectors.txt are made by one session, node by node where that is asked for; all other ones by a generator.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/model/model.h"
#include "lab/stop.h"

static int32_t no_generation(const char *path, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-GENERATE",
               "%.200s does not generate: it needs a key-value cache and token ids as its one input",
               path[0] != '\0' ? path : "a model without files");
  bs_error_hint(err, "a file .gguf, or a folder with config.json and safetensors, of GPT-2, Llama or Qwen");
  return BS_UNSUPPORTED;
}

int32_t bs_model_has_slots(const bs_graph *graph, bs_error *err) {
  bs_graph_info info = {.struct_size = sizeof info};
  const int32_t rc = bs_graph_info_get(graph, &info, err);
  return rc == BS_OK && info.slots < 1 ? no_generation(info.path, err) : rc;
}

int32_t bs_model_token_dim(const bs_graph *graph, const char **out_symbol, bs_error *err) {
  bs_port port = {.struct_size = sizeof port};
  bs_graph_info info = {.struct_size = sizeof info};
  int32_t rc = bs_graph_info_get(graph, &info, err);
  if (rc == BS_OK && bs_graph_port_count(graph, 1) == 1) rc = bs_graph_port(graph, 1, 0, &port, err);
  if (rc != BS_OK) return rc;
  if (info.cache_tokens > 0 && port.dtype == BS_I64 && port.rank == 2 && port.symbols[1] != NULL) {
    *out_symbol = port.symbols[1];
    return BS_OK;
  }
  return no_generation(info.path, err);
}

int32_t bs_model_ids_check(const bs_session *session, const int64_t *ids, size_t n, bs_error *err) {
  bs_tensor_desc logits = {.struct_size = sizeof logits};
  const int32_t rc = bs_session_port(session, 1, NULL, &logits, err);
  const int64_t words = rc == BS_OK && logits.rank > 0 ? logits.dims[logits.rank - 1] : 0;
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    if (ids[i] >= 0 && (words < 1 || ids[i] < words)) continue;
    bs_error_set(err, BS_INPUT, "BS-MODEL-IDS",
                 "token %zu of %zu is %lld, and the vocabulary has %lld tokens", i + 1, n, (long long)ids[i],
                 (long long)words);
    bs_error_hint(err, "give ids from 0 to %lld", (long long)words - 1);
    return BS_INPUT;
  }
  return rc;
}

int32_t bs_model_context_check(const bs_graph *graph, int64_t cache_tokens, size_t n_prompt, size_t n_new,
                               bs_error *err) {
  bs_graph_info info = {.struct_size = sizeof info};
  const int32_t rc = bs_graph_info_get(graph, &info, err);
  const long long limit = (long long)info.cache_tokens, need = (long long)(n_prompt + n_new - 1);
  if (rc != BS_OK || need <= limit) return rc;
  bs_error_set(err, BS_USAGE, "BS-MODEL-CONTEXT",
               "a prompt of %zu and %zu new tokens need a cache of %lld tokens; %s %lld", n_prompt, n_new,
               need, cache_tokens > 0 ? "--cache-tokens is" : "the model's positions are", limit);
  char fewer[80];
  if ((long long)n_prompt > limit)
    snprintf(fewer, sizeof fewer, "a prompt of %lld tokens or fewer", limit);
  else
    snprintf(fewer, sizeof fewer, "--tokens %lld or fewer", limit - (long long)n_prompt + 1);
  bs_error_hint(err, "%s%s", fewer,
                cache_tokens > 0 ? ", or a larger --cache-tokens"
                                 : "; --cache-tokens cannot be more than the model's positions");
  return BS_USAGE;
}

int32_t bs_model_feed(bs_session *session, const char *symbol, const int64_t *ids, size_t n,
                      bs_tensor *out_logits, bs_error *err) {
  const bs_dim dim = {.struct_size = sizeof dim, .name = symbol, .size = (int64_t)n};
  const bs_dim *dims[] = {&dim};
  bs_tensor input = {.struct_size = sizeof input, .dtype = BS_I64, .rank = 2, .dims = {1, (int64_t)n}};
  input.strides[0] = (int64_t)n;
  input.strides[1] = 1;
  input.data = (void *)(uintptr_t)ids;
  input.bytes = n * sizeof *ids;
  *out_logits = (bs_tensor){.struct_size = sizeof *out_logits};
  int32_t rc = bs_session_bind(session, dims, 1, err);
  if (rc == BS_OK) rc = bs_model_ids_check(session, ids, n, err);
  if (rc == BS_OK) rc = bs_session_set(session, 0, &input, err);
  if (rc == BS_OK) rc = bs_session_run(session, err);
  if (rc == BS_OK) rc = bs_session_get(session, 1, out_logits, err);
  if (rc == BS_OK && (out_logits->rank < 1 || out_logits->dims[out_logits->rank - 1] < 1))
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-GENERATE", "the model's output has no logits");
  return rc;
}

/* The index of the largest number of the last row; of equal ones the first. */
static int32_t last_argmax(const bs_tensor *t, int64_t *out, bs_error *err) {
  const uint32_t last = t->rank - 1;
  int64_t base = 0;
  double best = 0;
  for (uint32_t d = 0; d < last; d++) base += (t->dims[d] - 1) * t->strides[d];
  for (int64_t i = 0; i < t->dims[last]; i++) {
    const double v = bs_load_f64(t->dtype, t->data, base + i * t->strides[last]);
    if (isnan(v))
      return bs_error_set(err, BS_NUMERIC, "BS-MODEL-NAN", "logit %lld is no number", (long long)i);
    if (i > 0 && v <= best) continue;
    best = v;
    *out = i;
  }
  return BS_OK;
}

int32_t bs_model_generate(bs_session *session, const char *symbol, const int64_t *prompt, size_t n_prompt,
                          size_t n_new, int64_t stop, int64_t *out_ids, size_t *out_n, bs_model_times *times,
                          bs_error *err) {
  bs_tensor logits;
  double begin = bs_clock_s();
  memset(times, 0, sizeof *times);
  *out_n = 0;
  int32_t rc = bs_session_cache(session, 0, err);
  if (rc == BS_OK) rc = bs_model_feed(session, symbol, prompt, n_prompt, &logits, err);
  times->prompt_s = bs_clock_s() - begin;
  while (rc == BS_OK && *out_n < n_new && bs_stop_asked() == 0) {
    rc = last_argmax(&logits, &out_ids[*out_n], err);
    if (rc != BS_OK) break;
    const int64_t *token = &out_ids[(*out_n)++];
    if (*token == stop || *out_n == n_new) break;
    begin = bs_clock_s();
    rc = bs_model_feed(session, symbol, token, 1, &logits, err);
    const double took = bs_clock_s() - begin;
    times->tokens_s += took;
    if (*out_n == 1) times->first_token_s = took;
  }
  return rc;
}

/* ---- a generator ----------------------------------------------------------------------------- */

/* Of each slot: the prompt that it works on, how many tokens it has, and the prompt that is next. */
typedef struct sequence {
  size_t prompt, made, next;
  int live;
} sequence;

typedef struct generating {
  const bs_model_prompts *p;
  bs_token_generator *generator;
  sequence *slots;
  size_t n_slots;
  bs_token *tokens;
  int overflow;
} generating;

static int32_t stop_asked(void *user) {
  (void)user;
  return bs_stop_asked() != 0;
}

static int32_t next_prompt(generating *g, size_t slot, bs_error *err) {
  sequence *s = &g->slots[slot];
  s->live = s->next < g->p->n && bs_stop_asked() == 0;
  if (!s->live) return BS_OK;
  s->prompt = s->next;
  s->next += g->n_slots;
  s->made = 0;
  return bs_generator_prompt(g->generator, (uint32_t)slot, g->p->ids[s->prompt], g->p->lengths[s->prompt],
                             &g->p->sampling, err);
}

static int32_t take_token(generating *g, const bs_token *t, bs_error *err) {
  sequence *s = &g->slots[t->slot];
  if (!s->live) return BS_OK; /* behind the one that ended it */
  int ends = g->p->token(g->p->user, s->prompt, t->id) != 0 || t->id == g->p->stop;
  ends |= ++s->made == g->p->n_new;
  if (!ends && (t->flags & BS_TOKEN_LAST) == 0) return BS_OK;
  if (!ends) g->overflow = 1;
  s->live = 0;
  bs_generator_end(g->generator, t->slot);
  return next_prompt(g, t->slot, err);
}

static int32_t generate_all(generating *g, bs_error *err) {
  int32_t rc = BS_OK;
  uint32_t n = 1;
  for (size_t i = 0; rc == BS_OK && i < g->n_slots; i++) {
    g->slots[i].next = i;
    rc = next_prompt(g, i, err);
  }
  while (rc == BS_OK && n > 0 && bs_stop_asked() == 0) {
    rc = bs_generator_step(g->generator, g->tokens, (uint32_t)(8 * g->n_slots), &n, err);
    /* A prompt in the place of an ended one begins after all tokens of the step have been seen. */
    for (uint32_t i = 0; rc == BS_OK && i < n; i++) rc = take_token(g, &g->tokens[i], err);
  }
  return rc == BS_ABORTED && bs_stop_asked() != 0 ? BS_OK : rc;
}

int32_t bs_model_generate_many(bs_context *context, const bs_model_request *request, bs_model *model,
                               const bs_model_prompts *prompts, bs_generator_stats *out_stats,
                               bs_error *err) {
  const int32_t made = bs_model_world(context, request, model, err);
  if (made != BS_OK) return made;
  const bs_session_options session = bs_model_session_options(request, model);
  const bs_generator_options options = {
      .struct_size = sizeof options, .session = &session, .stop = stop_asked};
  bs_graph_info info = {.struct_size = sizeof info};
  generating g = {.p = prompts};
  int32_t rc = bs_graph_info_get(model->graph, &info, err);
  if (rc != BS_OK) return rc;
  g.n_slots = (size_t)info.slots;
  g.slots = calloc(g.n_slots + 1, sizeof *g.slots);
  g.tokens = calloc(8 * g.n_slots + 1, sizeof *g.tokens);
  if (g.slots == NULL || g.tokens == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for tokens");
  if (rc == BS_OK) g.tokens[0].struct_size = sizeof(bs_token);
  if (rc == BS_OK) rc = bs_generator_open(context, model->graph, &options, &g.generator, err);
  if (rc == BS_OK && bs_model_follows(model)) {
    rc = bs_generator_follow(g.generator, err);
    if (rc == BS_OK) rc = bs_model_done(0, err);
  }
  if (rc == BS_OK) rc = generate_all(&g, err);
  if (rc == BS_OK) rc = bs_generator_stats_get(g.generator, out_stats, err);
  if (rc == BS_OK && g.overflow)
    rc = bs_error_set(err, BS_OVERFLOW, "BS-GEN-CACHE", "the cache is full, of %lld tokens",
                      (long long)bs_generator_limit(g.generator));
  bs_generator_close(g.generator);
  free(g.slots);
  free(g.tokens);
  return rc;
}
