/* SPDX-License-Identifier: MIT
 * test_split_faults.c - faults of models over many ranks: a wrong layer, wrong rows, columns, biases and
 * states, ranks that differ, and options that do not fit. Each is found or refused by name. */
#include "tests/graph/split_model.h"

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

/* Each of three ranks adds the bias, in the place of one. */
static int32_t add_bias_thrice(graph *g, bs_error *out_err) {
  static _Thread_local float bias[64]; /* as long as the thread of the rank */
  gvalue *v = &g->values[g->values[split_of(g, GNODE_S)->bias].base];
  (void)out_err;
  ck_assert(v->kind == GV_CONST && v->dims[v->rank - 1] <= 64 && v->data != NULL);
  if (v->data == bias) return BS_OK;
  const int64_t count = v->dims[v->rank - 1];
  float own[64];
  memcpy(own, v->data, (size_t)count * sizeof *own); /* aligned or not */
  for (int64_t i = 0; i < count; i++) bias[i] = 3 * own[i];
  v->data = bias;
  return BS_OK;
}

/* The layers compute what the graph of the rank says, so the check node by node says nothing. The comparison
 * with the graph as written finds it, and blames the methods. */
START_TEST(a_wrong_split_is_found) {
  static int32_t (*const faults[])(graph *, bs_error *) = {turn_rows, shift_rows, change_heads, drop_bias,
                                                           add_bias_thrice};
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

/* A state keeps the heads of all ranks on each: the rank's attention has other heads than its cache. */
static int32_t keep_state(graph *g, bs_error *out_err) {
  (void)out_err;
  for (uint32_t i = 0; i < g->n_values; i++)
    if (g->values[i].kind == GV_STATE) {
      g->values[i].dims[1] *= HEADS;
      return BS_OK;
    }
  ck_abort_msg("no state");
}
START_TEST(a_state_that_is_not_cut) {
  bs_session *s = NULL;
  open_model(0);
  open_world(HEADS);
  gmethod_fault = keep_state;
  ck_assert_int_ne(try_session("column_parallel+row_parallel", BS_BITS_RUNS, PROMPT, &s), BS_OK);
  ck_assert_str_eq(err.id, "BS-GRAPH-VALID");
  ck_assert_msg(strstr(err.message, "put") != NULL, "%s", err.message);
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
  const test_case rows[] = {{a_wrong_layer_is_found},
                            {a_wrong_split_is_found, 5},
                            {a_state_that_is_not_cut},
                            {ranks_that_differ_are_found},
                            {counters_are_those_of_the_proposals},
                            {an_error_of_one_rank_ends_the_run, 2},
                            {other_columns_are_refused},
                            {wrong_options_are_refused},
                            {0}};
  return run_tests("split_faults", rows, (test_setup){.before = before, .after = after});
}
