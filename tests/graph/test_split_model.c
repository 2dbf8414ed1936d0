/* SPDX-License-Identifier: MIT
 * test_split_model.c - models over many ranks: prefill, decode, the check node by node and the comparison
 * with the graph as written, of each method on 1 to 4 ranks. What a method does not take is refused with a
 * reason. */
#include "tests/graph/split_model.h"

enum { MOST_RANKS = 4 };
static const double tolerance = 1e-6;
static const char *const methods[] = {"row_parallel",
                                      "column_parallel",
                                      "blockshock",
                                      "masked_split",
                                      "column_parallel+row_parallel",
                                      "column_parallel+blockshock"};
enum { MODELS = 2, METHODS = sizeof methods / sizeof methods[0] };

static void expect(const float *seen, const float *want, const char *what) {
  for (int i = 0; i < WORDS; i++)
    ck_assert_msg(fabs((double)seen[i] - (double)want[i]) <= tolerance, "%s: word %d: %.9g, want %.9g", what,
                  i, (double)seen[i], (double)want[i]);
}

/* The logits behind the prompt and behind each token after it, on one rank. */
static void one_rank(float want[ALL - PROMPT + 1][WORDS]) {
  bs_session *s = NULL;
  ok(try_session(NULL, BS_BITS_RUNS, PROMPT, &s), "one rank");
  ok(run(s, tokens, PROMPT, want[0]), "one rank");
  for (int i = PROMPT; i < ALL; i++) ok(run(s, &tokens[i], 1, want[i - PROMPT + 1]), "one rank");
  bs_session_close(s);
}

static uint32_t wrong_nodes;
static void count_wrong(void *user, const bs_node_check *row) {
  (void)user;
  wrong_nodes += !row->ok;
}

static void expect_layers(bs_session *s, uint32_t ranks, const char *method) {
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  uint64_t layers = 0;
  ok(bs_session_stats_get(s, &stats, &err), "stats");
  ck_assert_uint_eq(stats.ranks, ranks);
  ck_assert_uint_gt(stats.layers, 0);
  for (uint32_t i = 0; i < bs_session_node_count(s); i++) {
    bs_node_info node = {.struct_size = (uint32_t)sizeof node};
    ok(bs_session_node(s, i, &node, &err), "node");
    if (strcmp(node.op, "layer") != 0) continue;
    layers++;
    ck_assert_ptr_nonnull(strstr(method, node.method));
    ck_assert(ranks > 1 ? node.n_collectives > 0 || strchr(method, '+') != NULL : node.n_collectives == 0);
  }
  ck_assert_uint_eq(layers, stats.layers);
}

START_TEST(methods_give_what_one_rank_gives) {
  const char *method = methods[_i / MODELS];
  float want[ALL - PROMPT + 1][WORDS], got[WORDS];
  open_model(_i % MODELS);
  one_rank(want);
  for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
    bs_session *s = NULL;
    open_world(ranks);
    const int32_t rc = try_session(method, BS_BITS_RUNS, PROMPT, &s);
    const int odd_halves =
        ranks == 3 && (strcmp(method, "blockshock") == 0 || strcmp(method, "masked_split") == 0);
    if (odd_halves || (rc != BS_OK && strcmp(method, "masked_split") == 0)) {
      ck_assert_int_ne(rc, BS_OK);
      ck_assert_str_eq(err.id, "BS-GRAPH-SPLIT");
      ck_assert_ptr_nonnull(strstr(err.message, "takes none of the model's"));
    } else {
      ok(rc, method);
      expect_layers(s, ranks, method);
      ok(run(s, tokens, PROMPT, got), "prompt");
      expect(got, want[0], "prompt");
      for (int i = PROMPT; i < ALL; i++) {
        ok(run(s, &tokens[i], 1, got), "token");
        expect(got, want[i - PROMPT + 1], "token");
      }
      ck_assert_int_eq(bs_session_cache_length(s), ALL);
      ck_assert_int_eq(run(s, tokens, 1, got), BS_OVERFLOW); /* of all ranks alike: the world goes on */
      ok(bs_session_cache(s, PROMPT, &err), "cut");
      ok(run(s, &tokens[PROMPT], 1, got), "after a cut");
      expect(got, want[1], "after a cut");
    }
    bs_session_close(s);
    bs_world_destroy(world);
    world = NULL;
  }
}
END_TEST

/* Three heads on three ranks: each has one head, with its part of the cache, of the weights and of the MLP.
 */
START_TEST(a_rank_has_its_heads) {
  const char *method = "column_parallel+row_parallel";
  float logits[WORDS];
  bs_session_stats one = {.struct_size = (uint32_t)sizeof one}, stats = one;
  bs_session *s = NULL;
  uint32_t inside = 0, joined = 0;
  open_model(0);
  ok(try_session(NULL, BS_BITS_RUNS, PROMPT, &s), "one rank");
  ok(run(s, tokens, PROMPT, logits), "one rank");
  ok(bs_session_stats_get(s, &one, &err), "stats");
  bs_session_close(s);
  open_world(3);
  ok(try_session(method, BS_BITS_RUNS, PROMPT, &s), method);
  ok(run(s, tokens, PROMPT, logits), "prompt");
  ok(bs_session_stats_get(s, &stats, &err), "stats");
  ck_assert_uint_eq(3 * stats.state_bytes, one.state_bytes);
  for (uint32_t i = 0; i < bs_session_node_count(s); i++) {
    bs_node_info node = {.struct_size = (uint32_t)sizeof node};
    ok(bs_session_node(s, i, &node, &err), "node");
    if (strcmp(node.op, "layer") != 0) continue;
    inside += node.n_collectives == 0;
    joined += node.n_collectives == 1 && strcmp(node.method, "row_parallel") == 0;
  }
  ck_assert_uint_eq(inside, 4); /* of two blocks: Q, K and V; the first half of the MLP */
  ck_assert_uint_eq(joined, 4);
  ck_assert_uint_eq(stats.collectives, 5); /* and the head, which is alone */
  const gcore *core = gsession_lead(s)->core;
  for (uint32_t i = 0; i < core->n_layers; i++) {
    const glayer *l = core->layers[i];
    if (l->spec.N != WORDS)
      ck_assert_uint_eq(3 * l->bytes, (uint64_t)(l->spec.N * l->spec.K) * sizeof(float));
  }
  bs_session_close(s);
}
END_TEST

START_TEST(checks_pass) {
  float logits[WORDS];
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  bs_session *s = NULL;
  const char *method = methods[_i / 2 / MODELS];
  open_model(_i / 2 % MODELS);
  open_world(2 + (uint32_t)_i % 2);
  if (try_session(method, BS_BITS_RUNS, PROMPT, &s) != BS_OK) {
    ck_assert_int_eq(_i % 2, 1); /* odd halves */
    return;
  }
  ok(run(s, tokens, PROMPT, logits), "prompt");
  ok(bs_session_cache(s, 0, &err), "empty");
  wrong_nodes = 0;
  ok(bs_session_check(s, count_wrong, NULL, &err), "check");
  ck_assert_uint_eq(wrong_nodes, 0);
  ok(bs_session_cache(s, 0, &err), "empty");
  ok(bs_session_verify(s, &report, &err), "verify");
  ck_assert(report.ok == 1 && report.compared > 0);
  bs_session_close(s);
}
END_TEST

/* A layer is built for the rows of the first sizes, and again for more; never for fewer. */
START_TEST(more_rows_build_layers_again) {
  float want[ALL - PROMPT + 1][WORDS], got[WORDS];
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  bs_session *s = NULL;
  open_model(0);
  one_rank(want);
  open_world(2);
  ok(try_session("row_parallel", BS_BITS_RUNS, 1, &s), "session");
  ok(run(s, tokens, PROMPT, got), "prompt");
  expect(got, want[0], "prompt");
  ok(bs_session_stats_get(s, &stats, &err), "stats");
  ck_assert_uint_eq(stats.layers_again, stats.layers);
  ok(run(s, &tokens[PROMPT], 1, got), "token");
  expect(got, want[1], "token");
  ok(bs_session_stats_get(s, &stats, &err), "stats");
  ck_assert_uint_eq(stats.layers_again, stats.layers);
  bs_session_close(s);
}
END_TEST

/* The biases of Q, K and V are one constant of each plan's graph. A layer that is built again reads that of
 * the new plan: the old plan may be gone. */
START_TEST(joined_biases_outlive_a_plan) {
  static const entry config[] = {{"model_type", "\"qwen2\""}, {0}};
  static const entry weights[] = {{"model.embed_tokens.weight", "5,16"},
                                  {L "input_layernorm.weight", "16"},
                                  {L "self_attn.q_proj.weight", "16,16"},
                                  {L "self_attn.k_proj.weight", "8,16"},
                                  {L "self_attn.v_proj.weight", "8,16"},
                                  {L "self_attn.q_proj.bias", "16"},
                                  {L "self_attn.k_proj.bias", "8"},
                                  {L "self_attn.v_proj.bias", "8"},
                                  {L "self_attn.o_proj.weight", "16,16"},
                                  {L "post_attention_layernorm.weight", "16"},
                                  {L "mlp.gate_proj.weight", "12,16"},
                                  {L "mlp.up_proj.weight", "12,16"},
                                  {L "mlp.down_proj.weight", "16,12"},
                                  {"model.norm.weight", "16"},
                                  {"lm_head.weight", "5,16"},
                                  {0}};
  float logits[WORDS];
  bs_session *s = NULL;
  write_config(llama_config, config);
  write_weights("model.safetensors", weights, 0, 100, no_change);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
  open_world(2);
  const bs_session_options options = {.struct_size = (uint32_t)sizeof options,
                                      .dims = dims_of(1),
                                      .n_dims = 1,
                                      .plans = 1,
                                      .exact = 1,
                                      .world = world,
                                      .method = "row_parallel"};
  ok(bs_session_open(context, model, &options, &s, &err), "session");
  ok(run(s, tokens, 2, logits), "two tokens");
  ok(run(s, tokens, 3, logits), "three tokens");
  const bs_session *lead = gsession_lead(s);
  uint32_t biased = 0;
  for (uint32_t i = 0; i < lead->core->n_layers; i++) {
    const gweight *bias = &lead->core->layers[i]->bias;
    if (bias->rows == 0) continue;
    ck_assert(graph_owns(lead->bound->g, bias->parts[0].data));
    biased++;
  }
  ck_assert_uint_eq(biased, 1);
  bs_session_close(s);
}
END_TEST

/* Tokens keep their bits through another cut, on the same ranks. */
START_TEST(tokens_keep_their_bits) {
  float once[WORDS], cut[WORDS];
  bs_session *s = NULL;
  open_model(_i % MODELS);
  open_world(2);
  ok(try_session(methods[_i / MODELS], BS_BITS_TOKENS, ALL, &s), "session");
  ok(run(s, tokens, ALL, once), "all");
  ok(bs_session_cache(s, 0, &err), "empty");
  ok(run(s, tokens, 3, cut), "three");
  ok(run(s, &tokens[3], ALL - 3, cut), "the rest");
  ck_assert_mem_eq(once, cut, sizeof once);
  bs_session_close(s);
}
END_TEST

/* The same bits on 1, 2, 4 and 8 ranks, however the tokens are cut. Without the promise they differ. */
START_TEST(ranks_keep_their_bits) {
  static const char *const of[] = {"row_parallel", "column_parallel", "blockshock",
                                   "column_parallel+row_parallel", "column_parallel+blockshock"};
  const char *method = of[_i / MODELS];
  float first[ALL - PROMPT + 1][WORDS], got[WORDS];
  uint32_t differs = 0;
  open_model(_i % MODELS);
  for (uint32_t bits = BS_BITS_RANKS; bits != BS_BITS_BATCH;
       bits = bits == BS_BITS_RANKS ? BS_BITS_RUNS : BS_BITS_BATCH)
    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
      bs_session *s = NULL;
      open_world(ranks);
      ok(try_session(method, bits, PROMPT, &s), method);
      ok(run(s, tokens, PROMPT, got), "prompt");
      if (ranks == 1 && bits == BS_BITS_RANKS) memcpy(first[0], got, sizeof got);
      if (bits == BS_BITS_RANKS) ck_assert_mem_eq(got, first[0], sizeof got);
      differs += memcmp(got, first[0], sizeof got) != 0;
      for (int i = PROMPT; i < ALL; i++) {
        ok(run(s, &tokens[i], 1, got), "token");
        if (ranks == 1 && bits == BS_BITS_RANKS) memcpy(first[i - PROMPT + 1], got, sizeof got);
        if (bits == BS_BITS_RANKS) ck_assert_mem_eq(got, first[i - PROMPT + 1], sizeof got);
      }
      bs_session_close(s);
      bs_world_destroy(world);
      world = NULL;
    }
  ck_assert(differs > 0 || _i % MODELS != 0 || strcmp(method, "column_parallel") == 0);
}
END_TEST

int main(void) {
  const test_case rows[] = {{methods_give_what_one_rank_gives, MODELS * METHODS},
                            {a_rank_has_its_heads},
                            {checks_pass, 2 * MODELS * METHODS},
                            {more_rows_build_layers_again},
                            {joined_biases_outlive_a_plan},
                            {tokens_keep_their_bits, MODELS * METHODS},
                            {ranks_keep_their_bits, 5 * MODELS},
                            {0}};
  return run_tests("split_model", rows, (test_setup){.before = before, .after = after});
}
