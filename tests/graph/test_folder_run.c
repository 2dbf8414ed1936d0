/* SPDX-License-Identifier: MIT
 * test_folder_run.c - folders of GPT-2, Llama and Qwen3 that run: logits and greedy tokens as
 * transformers 5.24 computes them in f64 from the same weights; prefill and decode with one cache are the
 * whole run; a cache that is full is an error, one that is cut goes on. */
#include <math.h>
#include <sys/stat.h>

#include "blockshock/graph.h"
#include "core/base/error.h"
#include "graph/run/session.h"
#include "tests/graph/folder_case.h"

enum { WORDS = 5, PROMPT = 4, ALL = 8 };
static const double tolerance = 1e-6;

static const entry llama_norms[] = {{0}};
static const entry qwen3_config_rows[] = {{"model_type", "\"qwen3\""}, {"tie_word_embeddings", "true"}, {0}};
static const entry qwen3_norms[] = {
    {L "self_attn.q_norm.weight", "8"}, {L "self_attn.k_norm.weight", "8"}, {"lm_head.weight", NULL}, {0}};

/* Logits behind the prompt and behind all 8 tokens; the tokens are the prompt and 4 greedy ones. */
static const struct {
  const entry *config, *changed_config, *weights, *changed_weights;
  int64_t tokens[ALL];
  double first[WORDS], last[WORDS];
} models[] = {{gpt2_config,
               NULL,
               gpt2_weights,
               NULL,
               {3, 1, 4, 1, 3, 4, 3, 4},
               {-0.0410932824, -0.0352801076, -0.0182308792, 0.0352087065, 0.0281179987},
               {-0.0479991793, -0.0530651685, -0.0252247699, 0.0335631895, 0.0435944611}},
              {llama_config,
               NULL,
               llama_weights,
               llama_norms,
               {3, 1, 4, 1, 3, 0, 1, 2},
               {-0.035390169, -0.0309251762, -0.00882694883, -0.00327120389, -0.00542854822},
               {-0.056319081, -0.125232303, -0.039805893, 9.0355011e-05, 0.0157827085}},
              {llama_config,
               qwen3_config_rows,
               llama_weights,
               qwen3_norms,
               {3, 1, 4, 1, 2, 2, 2, 2},
               {0.00348866298, 0.0353326301, 0.0467138687, -0.0208083977, -0.0352224194},
               {0.0205655935, 0.0576679577, 0.125471008, -0.0121443753, -0.0892703523}}};

static bs_context *context;
static bs_graph *model;
static bs_error err;

static void ok(int32_t rc, const char *what) {
  ck_assert_msg(rc == BS_OK, "%s: %s %s", what, err.id, err.message);
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

/* The logits of the last of n tokens. */
static int32_t run(bs_session *session, const int64_t *tokens, int64_t n, double *out_logits) {
  uint32_t port = 0;
  bs_tensor ids = {.struct_size = (uint32_t)sizeof ids,
                   .dtype = BS_I64,
                   .rank = 2,
                   .dims = {1, n},
                   .strides = {n, 1},
                   .data = (void *)(uintptr_t)tokens,
                   .bytes = 8 * (uint64_t)n};
  bs_tensor logits = {.struct_size = (uint32_t)sizeof logits};
  ok(bs_session_find(session, "input_ids", &port, &err), "input_ids");
  ok(bs_session_set(session, port, &ids, &err), "set");
  const int32_t rc = bs_session_run(session, &err);
  if (rc != BS_OK) return rc;
  ok(bs_session_find(session, "logits", &port, &err), "logits");
  ok(bs_session_get(session, port, &logits, &err), "get");
  ck_assert(logits.dtype == BS_F32 && logits.dims[1] == n && logits.dims[2] == WORDS);
  for (int64_t i = 0; i < WORDS; i++)
    out_logits[i] = (double)((const float *)logits.data)[(n - 1) * WORDS + i];
  return rc;
}

static void expect(const double *seen, const double *want, const char *what) {
  for (int i = 0; i < WORDS; i++)
    ck_assert_msg(fabs(seen[i] - want[i]) <= tolerance, "%s: word %d: %.9g, want %.9g", what, i, seen[i],
                  want[i]);
}

static int64_t largest(const double *logits) {
  int64_t best = 0;
  for (int64_t i = 1; i < WORDS; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

START_TEST(prefill_and_decode) {
  const char *backend = _i % 2 == 0 ? "ref" : "cpu";
  const int64_t *tokens = models[_i / 2].tokens;
  double logits[WORDS];
  write_config(models[_i / 2].config, models[_i / 2].changed_config);
  write_weights("model.safetensors", models[_i / 2].weights, 0, 100, models[_i / 2].changed_weights);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
  bs_session *prefill = open_session(backend, PROMPT, NULL), *decode = open_session(backend, 1, prefill);
  ok(run(prefill, tokens, PROMPT, logits), "prompt");
  expect(logits, models[_i / 2].first, "prompt");
  for (int64_t i = PROMPT; i < ALL; i++) {
    ck_assert_int_eq(largest(logits), tokens[i]);
    ok(run(decode, &tokens[i], 1, logits), "decode");
    ck_assert_int_eq(bs_session_cache_length(decode), i + 1);
  }
  expect(logits, models[_i / 2].last, "decode");
  ck_assert_int_eq(run(decode, tokens, 1, logits), BS_OVERFLOW);
  ok(bs_session_cache(decode, ALL - 1, &err), "cut");
  ok(run(decode, &tokens[ALL - 1], 1, logits), "again");
  expect(logits, models[_i / 2].last, "after a cut");
  bs_session_close(decode);
  bs_session_close(prefill);
  bs_session *whole = open_session(backend, ALL, NULL);
  ok(run(whole, tokens, ALL, logits), "whole");
  expect(logits, models[_i / 2].last, "whole");
  bs_session_close(whole);
}
END_TEST

/* Another session runs on the cache that both share: a run, a check are refused, not wrong. */
START_TEST(a_cache_serves_one_run_at_a_time) {
  double logits[WORDS];
  write_config(gpt2_config, NULL);
  write_weights("model.safetensors", gpt2_weights, 0, 100, NULL);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
  bs_session *prefill = open_session("ref", PROMPT, NULL), *decode = open_session("ref", 1, prefill),
             *other = open_session("ref", PROMPT, NULL);
  ok(run(prefill, models[0].tokens, PROMPT, logits), "prompt");
  ok(gcore_take_states(prefill->core, model->model, &err), "a run");
  files_expect(&err, run(decode, models[0].tokens, 1, logits), BS_INVALID_ARGUMENT, "BS-GRAPH-BUSY", "run");
  files_expect(&err, bs_session_check(decode, NULL, NULL, &err), BS_INVALID_ARGUMENT, "BS-GRAPH-BUSY",
               "check");
  ok(run(other, models[0].tokens, PROMPT, logits), "a cache of its own");
  gcore_give_states(prefill->core, model->model);
  ok(run(decode, &models[0].tokens[PROMPT], 1, logits), "decode");
  ck_assert_int_eq(bs_session_cache_length(prefill), PROMPT + 1);
  bs_session_close(other);
  bs_session_close(decode);
  bs_session_close(prefill);
}
END_TEST

/* The embeddings are read where they lie in the file. */
/* A plan that makes room for another one leaves the cache to it. */
START_TEST(a_dropped_plan_leaves_the_cache) {
  static const int64_t cuts[] = {PROMPT, 1, 2, 1};
  const bs_session_options options = {
      .struct_size = (uint32_t)sizeof options, .backend = "ref", .threads = 1, .plans = 1, .exact = 1};
  bs_session_options o = options;
  bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = 3};
  const bs_dim *const dims[1] = {&dim};
  double logits[WORDS];
  bs_session *s = NULL;
  int64_t at = 0;
  write_config(models[0].config, NULL);
  write_weights("model.safetensors", models[0].weights, 0, 100, NULL);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
  o.dims = dims;
  o.n_dims = 1;
  ok(bs_session_open(context, model, &o, &s, &err), "session");
  for (uint32_t i = 0; i < sizeof cuts / sizeof cuts[0]; at += cuts[i++]) {
    dim.size = cuts[i];
    ok(bs_session_bind(s, dims, 1, &err), "bind");
    ok(run(s, models[0].tokens + at, cuts[i], logits), "run");
  }
  ck_assert_int_eq(at, ALL);
  expect(logits, models[0].last, "all");
  bs_session_close(s);
}
END_TEST

START_TEST(a_file_is_cut_between_runs) {
  double logits[WORDS];
  struct stat st;
  write_config(gpt2_config, NULL);
  write_weights("model.safetensors", gpt2_weights, 0, 100, NULL);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
  bs_session *session = open_session("ref", PROMPT, NULL);
  ok(run(session, models[0].tokens, PROMPT, logits), "before");
  ck_assert_int_eq(stat(files_path("model.safetensors"), &st), 0);
  ck_assert_int_eq(truncate(files_path("model.safetensors"), st.st_size - 4), 0);
  files_expect(&err, run(session, models[0].tokens, PROMPT, logits), BS_INPUT, "BS-FILE-CHANGED", "cut");
  bs_session_close(session);
}
END_TEST

int main(void) {
  const test_case rows[] = {{prefill_and_decode, 2 * TEST_COUNT(models)},
                            {a_dropped_plan_leaves_the_cache},
                            {a_file_is_cut_between_runs},
                            {a_cache_serves_one_run_at_a_time},
                            {0}};
  return run_tests("folder_run", rows, (test_setup){.before = before, .after = after});
}
