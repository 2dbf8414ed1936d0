/* SPDX-License-Identifier: MIT
 * test_cuda_sessions.c - sessions of one model on one device over the stand-in, each in a separate thread:
 * their prompts and steps have the bits of one session after the other. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "graph/run/session.h"
#include "tests/cuda/backend.h"
#include "tests/graph/split_case.h"

enum { SESSIONS = 4, PROMPT = 5, STEPS = 8, WORDS = 5, LOGITS = (PROMPT + STEPS) * WORDS };

typedef struct user {
  pthread_t thread;
  int64_t first;        /* token */
  float logits[LOGITS]; /* of each token in turn */
  bs_error err;
  int32_t rc;
} user;

static over cuda;
static bs_graph *model;

static void before(void) {
  files_begin();
  split_err = (bs_error)BS_ERROR_INIT;
  cuda = over_open(NULL, "");
  split_context = cuda.context;
}

static void after(void) {
  split_end();
  (void)split_begin;
}

/* Binds n tokens, runs them, and keeps their logits. */
static int32_t run_tokens(bs_session *s, user *u, int64_t n, float *out_logits) {
  const bs_dim dim = {.struct_size = sizeof dim, .name = "sequence", .size = n}, *const list[] = {&dim};
  int64_t ids[PROMPT];
  bs_tensor in = {.struct_size = (uint32_t)sizeof in,
                  .dtype = BS_I64,
                  .rank = 2,
                  .dims = {1, n},
                  .strides = {n, 1},
                  .data = ids,
                  .bytes = 8 * (uint64_t)n};
  bs_tensor out = {.struct_size = (uint32_t)sizeof out};
  for (int64_t i = 0; i < n; i++) ids[i] = (u->first + 3 * i) % WORDS;
  u->first = (u->first + 3 * n) % WORDS;
  int32_t rc = bs_session_bind(s, list, 1, &u->err);
  if (rc == BS_OK) rc = bs_session_set(s, 0, &in, &u->err);
  if (rc == BS_OK) rc = bs_session_run(s, &u->err);
  if (rc == BS_OK) rc = bs_session_get(s, model->model->n_inputs, &out, &u->err);
  if (rc == BS_OK) memcpy(out_logits, out.data, (size_t)(n * WORDS) * sizeof *out_logits);
  return rc;
}

/* Opens a session, runs a prompt and steps of decode (by nodes, then captured, then replayed), and closes it.
 */
static void *use(void *arg) {
  user *u = arg;
  bs_session *s = NULL;
  const bs_dim dim = {.struct_size = sizeof dim, .name = "sequence", .size = PROMPT}, *const list[] = {&dim};
  const bs_session_options o = {
      .struct_size = (uint32_t)sizeof o, .backend = "cuda", .threads = 1, .dims = list, .n_dims = 1};
  u->rc = bs_session_open(split_context, model, &o, &s, &u->err);
  if (u->rc == BS_OK) u->rc = run_tokens(s, u, PROMPT, u->logits);
  for (int i = 0; u->rc == BS_OK && i < STEPS; i++)
    u->rc = run_tokens(s, u, 1, u->logits + (PROMPT + i) * WORDS);
  bs_session_close(s);
  return NULL;
}

static void begin(user *all) {
  for (int i = 0; i < SESSIONS; i++) all[i] = (user){.first = i, .err = BS_ERROR_INIT};
}

static void expect_ok(const user *u) {
  ck_assert_msg(u->rc == BS_OK, "%s: %s", u->err.id, u->err.message);
}

START_TEST(sessions_in_threads) {
  user at_once[SESSIONS], in_turn[SESSIONS];
  model = split_open(_i == 0 ? "gpt2/" : "qwen3/");
  begin(at_once);
  begin(in_turn);
  for (int i = 0; i < SESSIONS; i++)
    ck_assert_int_eq(pthread_create(&at_once[i].thread, NULL, use, &at_once[i]), 0);
  for (int i = 0; i < SESSIONS; i++) pthread_join(at_once[i].thread, NULL);
  for (int i = 0; i < SESSIONS; i++) use(&in_turn[i]);
  for (int i = 0; i < SESSIONS; i++) {
    expect_ok(&at_once[i]);
    expect_ok(&in_turn[i]);
    ck_assert_mem_eq(at_once[i].logits, in_turn[i].logits, sizeof in_turn[i].logits);
  }
  ck_assert_mem_ne(at_once[0].logits, at_once[1].logits, sizeof at_once[0].logits);
  ck_assert_uint_gt(calls_of("cuGraphLaunch"), 0);
  nothing_lives();
}
END_TEST

int main(void) {
  const test_case rows[] = {{sessions_in_threads, 2}, {0}};
  return run_tests("cuda_sessions", rows, (test_setup){.before = before, .after = after, .timeout = 60});
}
