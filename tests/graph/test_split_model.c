/* SPDX-License-Identifier: MIT
 * test_split_model.c - models over many ranks: prefill, decode, the check node by node and the comparison
 * with the graph as written, of each method on 1 to 4 ranks. What a method does not take is refused with a
 * reason. Methods' faults are found. */
#include <math.h>
#include <string.h>

#include "blockshock/graph.h"
#include "graph/run/session.h"
#include "graph/split/front.h"
#include "graph/split/method.h"
#include "tests/graph/folder_case.h"

enum { WORDS = 5, PROMPT = 4, ALL = 8, MOST_RANKS = 4 };
static const double tolerance = 1e-6;
static const entry no_change[] = {{0}};
static const struct {
  const entry *config, *weights;
} models[] = {{gpt2_config, gpt2_weights}, {llama_config, llama_weights}};
static const char *const methods[] = {"row_parallel",
                                      "column_parallel",
                                      "blockshock",
                                      "masked_split",
                                      "column_parallel+row_parallel",
                                      "column_parallel+blockshock"};
enum { MODELS = 2, METHODS = sizeof methods / sizeof methods[0] };
static const int64_t tokens[ALL] = {3, 1, 4, 1, 3, 4, 3, 4};

static bs_context *context;
static bs_graph *model;
static bs_world *world;
static bs_error err;

static void ok(int32_t rc, const char *what) {
  ck_assert_msg(rc == BS_OK, "%s: %s %s", what, err.id, err.message);
}

static void before(void) {
  files_begin();
  ok(bs_context_open(NULL, &context, &err), "context");
}

static void after(void) {
  gmethod_fault = NULL;
  bs_graph_close(model);
  bs_world_destroy(world);
  bs_context_close(context);
  model = NULL;
  world = NULL;
  files_end();
}

static void open_model(int which) {
  write_config(models[which].config, no_change);
  write_weights("model.safetensors", models[which].weights, 0, 100, no_change);
  ok(bs_graph_open(context, files_folder, NULL, &model, &err), "graph");
}

static void open_world(uint32_t ranks) {
  const bs_world_options options = {
      .struct_size = (uint32_t)sizeof options, .world_size = ranks, .threads_per_rank = 1, .fallback = 1};
  ok(bs_world_create(context, &options, &world, &err), "world");
}

static const bs_dim *const *dims_of(int64_t n) {
  static bs_dim dim;
  static const bs_dim *list[1] = {&dim};
  dim = (bs_dim){.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = n};
  return list;
}

/* method NULL: one rank. */
static int32_t try_session(const char *method, uint32_t bits, int64_t n, bs_session **out) {
  const bs_session_options options = {.struct_size = (uint32_t)sizeof options,
                                      .threads = method == NULL,
                                      .dims = dims_of(n),
                                      .n_dims = 1,
                                      .world = method != NULL ? world : NULL,
                                      .method = method,
                                      .tokenwise = bits};
  return bs_session_open(context, model, &options, out, &err);
}

/* The logits of the last of n tokens behind those in the cache. */
static int32_t run(bs_session *s, const int64_t *ids, int64_t n, float *out_logits) {
  bs_tensor in = {.struct_size = (uint32_t)sizeof in,
                  .dtype = BS_I64,
                  .rank = 2,
                  .dims = {1, n},
                  .strides = {n, 1},
                  .data = (void *)(uintptr_t)ids,
                  .bytes = 8 * (uint64_t)n};
  bs_tensor logits = {.struct_size = (uint32_t)sizeof logits};
  ok(bs_session_bind(s, dims_of(n), 1, &err), "bind");
  ok(bs_session_set(s, 0, &in, &err), "set");
  const int32_t rc = bs_session_run(s, &err);
  if (rc != BS_OK) return rc;
  ok(bs_session_get(s, 1, &logits, &err), "get");
  memcpy(out_logits, (const float *)logits.data + (n - 1) * WORDS, WORDS * sizeof *out_logits);
  return rc;
}

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

/* A layer that gives other numbers on one rank is named by the check, and the comparison blames the ranks. */
START_TEST(a_wrong_layer_is_found) {
  float logits[WORDS];
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  bs_session *s = NULL;
  open_model(0);
  open_world(2);
  ok(try_session("row_parallel", BS_BITS_RUNS, PROMPT, &s), "session");
  ok(run(s, tokens, PROMPT, logits), "prompt");
  gcore *core = gsession_lead(s)->core;
  glayer *first = core->layers[0], *other = core->layers[4]; /* Q, K and V of both blocks */
  ck_assert(first->spec.N == other->spec.N && first->spec.K == other->spec.K);
  bs_layer *mine = first->layer;
  first->layer = other->layer;
  ok(bs_session_cache(s, 0, &err), "empty");
  ck_assert_int_eq(bs_session_check(s, NULL, NULL, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-GRAPH-CHECK");
  ck_assert_ptr_nonnull(strstr(err.message, "row_parallel"));
  ok(bs_session_cache(s, 0, &err), "empty");
  ck_assert_int_eq(bs_session_verify(s, &report, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-GRAPH-SPLIT");
  ck_assert_str_eq(report.serves, "row_parallel");
  first->layer = mine;
  bs_session_close(s);
}
END_TEST

/* The first split in a role. */
static gnode_split *split_of(const graph *g, uint32_t role) {
  for (uint32_t i = 0; i < g->n_splits; i++)
    if (g->splits[i].role == role) return &g->splits[i];
  ck_abort_msg("no layer has role %u", role);
}

/* Row i of F becomes the one that lay at place(i). */
static int32_t move_rows(graph *g, int64_t (*place)(int64_t i, int64_t total), bs_error *out_err) {
  gnode_split *f = split_of(g, GNODE_F);
  bs_order moved = {0};
  int32_t rc = BS_OK;
  ck_assert_int_gt(f->rows.total, 1);
  for (int64_t i = 0; i < f->rows.total && rc == BS_OK; i++)
    rc = bs_order_add(&moved, bs_order_at(&f->rows, place(i, f->rows.total)), 1, out_err);
  bs_order_free(&f->rows);
  f->rows = moved;
  return rc;
}

/* The first row changes its place with the last one. */
static int64_t turned(int64_t i, int64_t total) {
  return i == 0 ? total - 1 : i == total - 1 ? 0 : i;
}
static int32_t turn_rows(graph *g, bs_error *out_err) {
  return move_rows(g, turned, out_err);
}

/* Each of three ranks has one of three heads: rows of Q, then of K, then of V. */
enum { HEADS = 3, OF_ATTENTION = 3 };

/* All rows are off by one head. */
static int64_t shifted(int64_t i, int64_t total) {
  return (i + total / (HEADS * OF_ATTENTION)) % total;
}
static int32_t shift_rows(graph *g, bs_error *out_err) {
  return move_rows(g, shifted, out_err);
}

/* Ranks 0 and 1 have each other's keys. */
static int64_t other_keys(int64_t i, int64_t total) {
  const int64_t rank = total / HEADS, unit = rank / OF_ATTENTION;
  if (i >= unit && i < 2 * unit) return i + rank;
  return i >= rank + unit && i < rank + 2 * unit ? i - rank : i;
}
static int32_t change_heads(graph *g, bs_error *out_err) {
  return move_rows(g, other_keys, out_err);
}

static int32_t drop_bias(graph *g, bs_error *out_err) {
  gnode_split *s = split_of(g, GNODE_S);
  (void)out_err;
  ck_assert_uint_ne(s->bias, GNONE);
  s->bias = GNONE;
  return BS_OK;
}

/* The layers compute what the graph of the rank says, so the check node by node says nothing. The comparison
 * with the graph as written finds it, and blames the methods. */
START_TEST(a_wrong_split_is_found) {
  static int32_t (*const faults[])(graph *, bs_error *) = {turn_rows, shift_rows, change_heads, drop_bias};
  const char *method = "column_parallel+row_parallel";
  float logits[WORDS];
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  bs_session *s = NULL;
  open_model(0);
  open_world(3);
  gmethod_fault = faults[_i];
  ok(try_session(method, BS_BITS_RUNS, PROMPT, &s), "session");
  ok(run(s, tokens, PROMPT, logits), "prompt");
  ok(bs_session_cache(s, 0, &err), "empty");
  ok(bs_session_check(s, NULL, NULL, &err), "check");
  ok(bs_session_cache(s, 0, &err), "empty");
  ck_assert_int_eq(bs_session_verify(s, &report, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-GRAPH-SPLIT");
  ck_assert_str_eq(report.serves, method);
  bs_session_close(s);
}
END_TEST

/* y = x w, z = a + a. One rank has another a: all nodes are right, and z is not that of the other rank. */
START_TEST(ranks_that_differ_are_found) {
  static const float w[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7};
  static float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, a[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5}, minus[4];
  const bs_tensor_desc of[] = {{.struct_size = sizeof of[0], .dtype = BS_F32, .rank = 2, .dims = {4, 4}},
                               {.struct_size = sizeof of[0], .dtype = BS_F32, .rank = 2, .dims = {2, 4}},
                               {.struct_size = sizeof of[0], .dtype = BS_F32, .rank = 1, .dims = {4}}};
  uint32_t values[3], y = 0, z = 0;
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  bs_session *s = NULL;
  ok(bs_graph_new(context, &model, &err), "graph");
  ok(bs_graph_constant(model, "w", &of[0], w, &values[0], &err), "w");
  ok(bs_graph_input(model, "x", &of[1], NULL, &values[1], &err), "x");
  ok(bs_graph_input(model, "a", &of[2], NULL, &values[2], &err), "a");
  const uint32_t product[] = {values[1], values[0]}, sum[] = {values[2], values[2]};
  ok(bs_graph_op(model, "MatMul", product, 2, NULL, 0, &y, 1, &err), "product");
  ok(bs_graph_op(model, "Add", sum, 2, NULL, 0, &z, 1, &err), "sum");
  ok(bs_graph_output(model, "y", y, &err), "y");
  ok(bs_graph_output(model, "z", z, &err), "z");
  open_world(2);
  const bs_session_options options = {
      .struct_size = (uint32_t)sizeof options, .world = world, .method = "row_parallel"};
  ok(bs_session_open(context, model, &options, &s, &err), "session");
  bs_tensor in[] = {{.struct_size = sizeof in[0],
                     .dtype = BS_F32,
                     .rank = 2,
                     .dims = {2, 4},
                     .strides = {4, 1},
                     .data = x,
                     .bytes = sizeof x},
                    {.struct_size = sizeof in[0],
                     .dtype = BS_F32,
                     .rank = 1,
                     .dims = {4},
                     .strides = {1},
                     .data = a,
                     .bytes = sizeof a}};
  ok(bs_session_set(s, 0, &in[0], &err), "x");
  ok(bs_session_set(s, 1, &in[1], &err), "a");
  ok(bs_session_check(s, NULL, NULL, &err), "equal ranks");
  a[0] = NAN; /* the processor chooses the sign of a NaN: no difference */
  memcpy(minus, a, sizeof minus);
  minus[0] = copysignf(NAN, -1);
  in[1].data = minus;
  ok(bs_session_set(gfront_member(s->front, 1), 1, &in[1], &err), "another NaN");
  ok(bs_session_check(s, NULL, NULL, &err), "NaNs of two signs");
  a[0] = 1;
  in[1].data = other;
  ok(bs_session_set(gfront_member(s->front, 1), 1, &in[1], &err), "another a");
  ck_assert_int_eq(bs_session_check(s, NULL, NULL, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-GRAPH-RANKS");
  ok(bs_session_run(s, &err), "a run compares nothing");
  ck_assert_int_eq(bs_session_verify(s, &report, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-GRAPH-RANKS");
  ck_assert_uint_eq(report.ok, 0);
  ck_assert_str_eq(report.output, "");
  ok(bs_session_run(s, &err), "nor does one behind it");
  bs_session_close(s);
}
END_TEST

static uint32_t twice(void *user, uint32_t rank, const bs_coll_call *call) {
  (void)user;
  (void)rank;
  (void)call;
  return 2;
}

/* A collective that is made twice gives the same numbers, and not the counters that the method proposed. */
START_TEST(counters_are_those_of_the_proposals) {
  static const bs_collective_hook hook = {.before = twice};
  const bs_world_options options = {
      .struct_size = (uint32_t)sizeof options, .world_size = 2, .threads_per_rank = 1, .hook = &hook};
  float logits[WORDS];
  bs_session *s = NULL;
  open_model(0);
  ok(bs_world_create(context, &options, &world, &err), "world");
  ok(try_session("column_parallel", BS_BITS_RUNS, PROMPT, &s), "session");
  ok(run(s, tokens, PROMPT, logits), "prompt");
  ok(bs_session_cache(s, 0, &err), "empty");
  ck_assert_int_eq(bs_session_check(s, NULL, NULL, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-GRAPH-COUNTERS");
  bs_session_close(s);
}
END_TEST

/* A layer that refuses its forward on one rank alone ends the run of all: no rank waits for a deadline. */
START_TEST(an_error_of_one_rank_ends_the_run) {
  float logits[WORDS];
  bs_session *s = NULL;
  open_model(0);
  open_world(2);
  ok(try_session(_i == 0 ? "row_parallel" : "column_parallel+row_parallel", BS_BITS_RUNS, PROMPT, &s),
     "session");
  ok(run(s, tokens, PROMPT, logits), "prompt");
  gcore *core = gsession_lead(s)->core;
  glayer *first = core->layers[0];
  bs_layer *mine = first->layer;
  first->layer = core->layers[3]->layer; /* of the MLP: its x is wider */
  ck_assert_int_eq(run(s, tokens, PROMPT, logits), BS_INVALID_ARGUMENT);
  ck_assert_msg(strstr(err.message, "the layer wants") != NULL, "%s", err.message);
  ck_assert_int_eq(err.rank, 0);
  first->layer = mine;
  ck_assert_int_ne(bs_session_run(s, &err), BS_OK);
  ck_assert_str_eq(err.id, "BS-WORLD-FAILED");
  bs_session_close(s);
}
END_TEST

/* A method S that owns other columns than its probe had: no rank computes with the wrong ones. */
START_TEST(other_columns_are_refused) {
  bs_session *s = NULL;
  open_model(0);
  open_world(2);
  ok(try_session("column_parallel+row_parallel", BS_BITS_RUNS, 1, &s), "session");
  const gmethod *method = gsession_lead(s)->core->method;
  ck_assert_uint_ge(method->n_probes, 1);
  for (uint32_t i = 0; i < method->n_probes; i++) {
    const gmethod_probe *p = &method->probes[i];
    p->columns[0] = (uint32_t)p->k - 1;
    p->columns[p->k - 1] = 0;
  }
  ck_assert_int_eq(bs_session_bind(s, dims_of(2), 1, &err), BS_UNSUPPORTED);
  ck_assert_msg(strstr(err.message, "owns other columns") != NULL, "%s", err.message);
  bs_session_close(s);
}
END_TEST

START_TEST(wrong_options_are_refused) {
  bs_session *s = NULL;
  open_model(0);
  open_world(2);
  const bs_session_options alone = {.struct_size = (uint32_t)sizeof alone, .method = "row_parallel"};
  ck_assert_int_eq(bs_session_open(context, model, &alone, &s, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-GRAPH-WORLD");
  const bs_session_options threads = {.struct_size = (uint32_t)sizeof threads, .world = world, .threads = 2};
  ck_assert_int_eq(bs_session_open(context, model, &threads, &s, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "threads"));
  const bs_session_options ranks = {
      .struct_size = (uint32_t)sizeof ranks, .world = world, .tokenwise = BS_BITS_RANKS};
  ck_assert_int_eq(bs_session_open(context, model, &ranks, &s, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-GRAPH-BITS");
  ck_assert_int_eq(try_session("row_paralel", BS_BITS_RUNS, 1, &s), BS_NOT_FOUND);
  ck_assert_int_eq(err.rank, -1); /* of no rank alone */
  ck_assert_int_eq(try_session("dense", BS_BITS_RUNS, 1, &s), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-GRAPH-SPLIT");
  ok(try_session("row_parallel", BS_BITS_RUNS, 1, &s), "the world still runs");
  bs_session_close(s);
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
                            {a_wrong_layer_is_found},
                            {a_wrong_split_is_found, 4},
                            {ranks_that_differ_are_found},
                            {counters_are_those_of_the_proposals},
                            {an_error_of_one_rank_ends_the_run, 2},
                            {other_columns_are_refused},
                            {wrong_options_are_refused},
                            {0}};
  return run_tests("split_model", rows, (test_setup){.before = before, .after = after});
}
