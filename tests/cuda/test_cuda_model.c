/* SPDX-License-Identifier: MIT
 * test_cuda_model.c - models on the cuda backend over the stand-in: every node is on the device, and right; a
 * step of decode is replayed; a call of the driver that fails is one error, and nothing stays. */
#include <math.h>
#include <string.h>

#include "graph/run/session.h"
#include "tests/cuda/backend.h"
#include "tests/graph/split_case.h"

enum { PROMPT = 5, TEXT = 1 << 14 };

static over cuda;

static void before(void) {
  files_begin();
  split_err = (bs_error)BS_ERROR_INIT;
}

static void open_with(const char *setup) {
  cuda = over_open(NULL, setup);
  split_context = cuda.context;
}

/* bs_model_close of a model that no one opened has nothing to do. */
static void after(void) {
  split_end();
  (void)split_begin;
}

static int32_t open_on(bs_graph *model, const char *backend, int64_t tokens, bs_session **out) {
  const gmodel *m = model->model;
  bs_dim dims[8];
  const bs_dim *list[8];
  for (uint32_t i = 0; i < m->n_symbols && i < 8; i++) {
    const int batch = strstr(m->symbols[i], "batch") != NULL;
    dims[i] = (bs_dim){.struct_size = sizeof dims[i], .name = m->symbols[i], .size = batch ? 2 : tokens};
    list[i] = &dims[i];
  }
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                .backend = backend,
                                .threads = 1,
                                .dims = list,
                                .n_dims = m->n_symbols};
  return bs_session_open(split_context, model, &o, out, &split_err);
}

static int32_t try_open(bs_graph *model, int64_t tokens, bs_session **out) {
  return open_on(model, "cuda", tokens, out);
}

static int32_t set_ids(bs_session *s, int64_t *ids, int64_t n) {
  bs_tensor_desc d;
  split_ok(bs_session_port(s, 0, NULL, &d, &split_err), "port");
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = d.dtype, .rank = d.rank, .data = ids};
  memcpy(t.dims, d.dims, sizeof t.dims);
  memcpy(t.strides, d.strides, sizeof t.strides);
  t.bytes = tensor_elements(&t) * BS_DTYPE_BYTES(t.dtype);
  ck_assert_uint_le(tensor_elements(&t), (uint64_t)n);
  return bs_session_set(s, 0, &t, &split_err);
}

static void all_right(void *user, const bs_node_check *row) {
  ck_assert_msg(row->ok, "%s of %s by %s: %s", row->op, row->origin, row->serves, row->reason);
  ck_assert_msg(strncmp(row->serves, "cuda:", 5) == 0, "%s of %s is on the host: %s", row->op, row->origin,
                row->serves);
  ++*(unsigned *)user;
}

static const char *const models[] = {"gpt2/", "qwen3/", "builtin:lm:1x64"};

START_TEST(each_node_is_right) {
  int64_t ids[] = {3, 1, 4, 1, 2, 0, 4, 2, 3, 1};
  bs_session *s = NULL;
  unsigned on_device = 0;
  open_with("");
  bs_graph *model = split_open(models[_i]);
  split_ok(try_open(model, PROMPT, &s), "open");
  split_ok(set_ids(s, ids, 10), "set");
  split_ok(bs_session_check(s, all_right, &on_device, &split_err), "check");
  ck_assert_uint_gt(on_device, 0);
  if (model->model->n_states > 0) { /* a step of decode */
    const bs_dim dim = {.struct_size = sizeof dim, .name = "sequence", .size = 1}, *const list[] = {&dim};
    split_ok(bs_session_bind(s, list, 1, &split_err), "bind");
    split_ok(set_ids(s, ids + 1, 9), "set");
    split_ok(bs_session_check(s, all_right, &on_device, &split_err), "check");
    ck_assert_int_eq(bs_session_cache_length(s), PROMPT + 1);
  }
  bs_session_close(s);
  nothing_lives();
}
END_TEST

/* Runs a step of decode of a session on both, and compares the logits. */
static void same_step(bs_session *device, bs_session *host, int64_t length, int64_t token) {
  const float *logits[2];
  uint64_t n = 0;
  bs_session *const all[2] = {device, host};
  for (int i = 0; i < 2; i++) {
    bs_tensor t = {.struct_size = (uint32_t)sizeof t};
    if (length < bs_session_cache_length(all[i]))
      split_ok(bs_session_cache(all[i], length, &split_err), "cache");
    split_ok(set_ids(all[i], &token, 1), "set");
    split_ok(bs_session_run(all[i], &split_err), "run");
    split_ok(bs_session_get(all[i], all[i]->graph->model->n_inputs, &t, &split_err), "get");
    logits[i] = t.data;
    n = tensor_elements(&t);
  }
  for (uint64_t k = 0; k < n; k++)
    ck_assert_msg(fabsf(logits[0][k] - logits[1][k]) <= 1e-5f, "length %lld: logit %llu is %g, want %g",
                  (long long)length, (unsigned long long)k, (double)logits[0][k], (double)logits[1][k]);
}

/* Keeps the end of a report. */
static void append(void *user, const char *part) {
  char *text = user;
  const size_t used = strlen(text), n = strlen(part), room = TEXT - 1;
  if (n > room) return;
  const size_t cut = used + n > room ? used + n - room : 0;
  memmove(text, text + cut, used - cut + 1);
  memcpy(text + used - cut, part, n + 1);
}

/* A captured step of decode reads the length, the token and the cache of each run. */
START_TEST(decode_is_replayed) {
  enum { STEPS = 64 };
  int64_t ids[] = {3, 1, 4, 1, 2, 0, 4, 2, 3, 1};
  bs_session *s[2] = {NULL, NULL};
  const bs_dim dim = {.struct_size = sizeof dim, .name = "sequence", .size = 1}, *const list[] = {&dim};
  open_with("");
  bs_graph *model = split_open(models[_i]);
  for (int i = 0; i < 2; i++) {
    split_ok(open_on(model, i == 0 ? "cuda" : "ref", PROMPT, &s[i]), "open");
    split_ok(set_ids(s[i], ids, 10), "set");
    split_ok(bs_session_run(s[i], &split_err), "prompt");
    split_ok(bs_session_bind(s[i], list, 1, &split_err), "bind");
  }
  for (int i = 0; i < STEPS; i++) { /* the cache grows to its end, and is cut */
    const int64_t length = bs_session_cache_length(s[0]);
    same_step(s[0], s[1], length < 8 ? length : i % 3, (i * 7 + 1) % 5);
  }
  char text[TEXT] = "";
  split_ok(bs_session_text(s[0], BS_REPORT_EXPLAIN, 0, append, text, &split_err), "report");
  ck_assert_msg(strstr(text, " captures; ") != NULL || strstr(text, " capture; ") != NULL, "%s", text);
  ck_assert_uint_ge(calls_of("cuGraphLaunch"), STEPS - 2);
  bs_session_close(s[0]);
  bs_session_close(s[1]);
  nothing_lives();
}
END_TEST

/* Ops that a parameter takes away run on the host between two captures: right, and counted. */
static void host_ops(void *user, const bs_node_check *row) {
  unsigned *n = user;
  ck_assert_msg(row->ok, "%s of %s by %s: %s", row->op, row->origin, row->serves, row->reason);
  const int taken = strcmp(row->op, "normalize") == 0 || strcmp(row->op, "take") == 0;
  ck_assert_msg((strncmp(row->serves, "cuda:", 5) != 0) == taken, "%s by %s", row->op, row->serves);
  *n += (unsigned)taken;
}
START_TEST(ops_that_are_taken_away) {
  int64_t ids[] = {3, 1, 4, 1, 2, 0, 4, 2, 3, 1};
  const bs_dim dim = {.struct_size = sizeof dim, .name = "sequence", .size = 1}, *const list[] = {&dim};
  bs_session *s[2] = {NULL, NULL};
  bs_session_stats stats = {.struct_size = sizeof stats};
  unsigned taken = 0;
  cuda = over_open_with(NULL, "", "cuda.without=topk,normalize,take");
  split_context = cuda.context;
  bs_graph *model = split_open(models[_i]);
  split_ok(try_open(model, PROMPT, &s[0]), "open");
  split_ok(set_ids(s[0], ids, 10), "set");
  split_ok(bs_session_check(s[0], host_ops, &taken, &split_err), "check");
  split_ok(bs_session_stats_get(s[0], &stats, &split_err), "stats");
  ck_assert_uint_gt(taken, 0);
  ck_assert_uint_eq(stats.fallback_nodes, taken);
  split_ok(open_on(model, "ref", PROMPT, &s[1]), "open on ref");
  for (int i = 0; i < 2; i++) {
    split_ok(bs_session_cache(s[i], 0, &split_err), "empty");
    split_ok(set_ids(s[i], ids, 10), "set");
    split_ok(bs_session_run(s[i], &split_err), "prompt");
    split_ok(bs_session_bind(s[i], list, 1, &split_err), "bind");
  }
  for (int i = 0; i < 4; i++) same_step(s[0], s[1], PROMPT + i, i % 5); /* by nodes, captured, replayed */
  ck_assert_uint_gt(calls_of("cuGraphLaunch"), 0);
  bs_session_close(s[0]);
  bs_session_close(s[1]);
  nothing_lives();
}
END_TEST

START_TEST(an_op_that_is_none) {
  ck_assert_int_ne(over_try(NULL, "", "cuda.without=take,topkk", &cuda, &split_err), BS_OK);
  ck_assert_msg(strstr(split_err.message, "'topkk' is no op") != NULL, "%s", split_err.message);
  split_context = cuda.context;
}
END_TEST

static const char *const failing[] = {
    "cuMemAllocFromPoolAsync",     "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",    "cuMemcpyDtoDAsync_v2",
    "cuStreamSynchronize",         "cuLaunchKernel",       "cuStreamBeginCapture_v2", "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags", "cuGraphLaunch"};
#if BS_SLOW
static const unsigned turns[] = {1, 5, 61};
#else
static const unsigned turns[] = {1, 2, 5, 17, 61};
#endif
enum { FAILING = sizeof failing / sizeof failing[0], TURNS = sizeof turns / sizeof turns[0] };

START_TEST(a_call_that_fails_is_one_error) {
  const char *name = failing[_i / TURNS];
  const unsigned turn = turns[_i % TURNS];
  int64_t ids[] = {3, 1, 4, 1, 2, 0, 4, 2, 3, 1};
  char setup[96];
  bs_session *s = NULL;
  snprintf(setup, sizeof setup, "plan=%s:%u=999", name, turn);
  open_with(setup);
  bs_graph *model = split_open("gpt2/");
  int32_t rc = try_open(model, PROMPT, &s);
  if (rc == BS_OK) {
    split_ok(set_ids(s, ids, 10), "set");
    for (int i = 0; i < 3 && rc == BS_OK; i++) { /* by steps, captured, replayed */
      split_ok(bs_session_cache(s, 0, &split_err), "cache");
      rc = bs_session_run(s, &split_err);
    }
  }
  char text[TEXT] = "";
  if (rc == BS_OK) split_ok(bs_session_text(s, BS_REPORT_EXPLAIN, 0, append, text, &split_err), "report");
  const int told = strstr(text, "not captured: ") != NULL && strstr(text, "999") != NULL;
  bs_session_close(s);
  const uint64_t calls = calls_of(name);
  if (calls < turn) ck_assert_int_eq(rc, BS_OK);
  if (rc != BS_OK) /* ops that ask for memory report no more than that */
    ck_assert_msg(
        strstr(split_err.message, "999") != NULL || strstr(split_err.message, "no device memory") != NULL,
        "%s", split_err.message);
  /* A capture that fails has run nothing, and the run goes on by steps. The last wait is that of closing.
   * Products that have no room to be timed are chosen untimed. */
  if (rc == BS_OK && calls > turn)
    ck_assert(told || strcmp(name, "cuStreamSynchronize") == 0 ||
              strcmp(name, "cuMemAllocFromPoolAsync") == 0);
  nothing_lives();
}
END_TEST

/* A device that has no room says what the session holds, and another session opens. */
START_TEST(no_room) {
  bs_session *s = NULL;
  open_with("memory=65536");
  ck_assert_int_eq(try_open(split_open("builtin:lm:1x64"), PROMPT, &s), BS_NO_MEMORY);
  ck_assert_str_eq(split_err.id, "BS-GRAPH-DEVICE-MEMORY");
  ck_assert_ptr_nonnull(strstr(split_err.message, "MiB"));
  nothing_lives();
}
END_TEST

int main(void) {
  const test_case rows[] = {{each_node_is_right, TEST_COUNT(models)},
                            {decode_is_replayed, 2},
                            {ops_that_are_taken_away, 2},
                            {an_op_that_is_none},
                            {a_call_that_fails_is_one_error, FAILING * TURNS},
                            {no_room},
                            {0}};
  return run_tests("cuda_model", rows, (test_setup){.before = before, .after = after, .timeout = 60});
}
