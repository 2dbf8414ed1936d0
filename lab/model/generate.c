/* SPDX-License-Identifier: MIT
 * generate.c - tokens one after another from a model with a key-value cache: the prompt in one run, then one
 * run a token. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/model/model.h"
#include "lab/stop.h"

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
  bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-GENERATE",
               "%.200s does not generate: it needs a key-value cache and token ids as its one input",
               info.path);
  bs_error_hint(err, "a file .gguf, or a folder with config.json and safetensors, of GPT-2, Llama or Qwen");
  return BS_UNSUPPORTED;
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
