/* SPDX-License-Identifier: MIT
 * What graph.h lets threads do at the same time: sessions of one graph, which share weights or do not, are
 * opened, bound, run, checked and closed by two threads, and each gives the bits that it gives alone. Runs
 * under ThreadSanitizer too. */
#include <pthread.h>
#include <string.h>

#include "graph/run/session.h"
#include "tests/graph/build.h"

#define NONE BS_GRAPH_NONE

enum { THREADS = 2, ROUNDS = 60, WIDE = 48, SIZES = 6, MOST = SIZES + 1 };

/* Tokens [N,48] through two layers with a norm and a softmax between. The shape of the Reshape is computed
 * while the model is lowered, by the nodes that the graph folds; a constant is a table, and not aligned. */
static void make_model(void) {
  static unsigned char table[MOST * WIDE * sizeof(float) + 1];
  float values[MOST * WIDE];
  const int64_t dims[] = {-1, WIDE}, w[] = {WIDE, WIDE}, row[] = {WIDE}, one[] = {1}, minus[] = {-1};
  const int64_t zero[] = {0};
  const char *const names[] = {"N", NULL};
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = BS_F32, .rank = 2, .dims = {MOST, WIDE}};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  uint32_t positions = 0, shape = 0;
  tb_fill(values, MOST * WIDE, 9);
  memcpy(table + 1, values, sizeof values);
  ck_assert_int_eq(bs_graph_constant(tb_graph, "table", &d, table + 1, &positions, &err), BS_OK);
  const uint32_t x = tb_symbolic("x", BS_F32, 2, dims, names);
  const uint32_t n = tb_op("Gather", tb_op("Shape", x, NONE, NONE), tb_ints(1, zero), NONE);
  const uint32_t in[] = {positions, tb_ints(1, zero), n, tb_ints(1, zero)};
  uint32_t some = 0;
  tb_many("Slice", "", in, 4, &some, 1);
  uint32_t h = tb_op("Add", x, some, NONE);
  for (int layer = 0; layer < 2; layer++) {
    h = tb_op("Add", tb_op("MatMul", h, tb_random(2, w, 0.2), NONE), tb_random(1, row, 0.3), NONE);
    h = tb_op("LayerNormalization", h, tb_random(1, row, 1), tb_random(1, row, 1));
    h = tb_with("Softmax", "axis=-1", h, NONE, NONE);
  }
  const uint32_t parts[] = {n, tb_ints(1, minus), tb_ints(1, one)};
  tb_many("Concat", "axis=0", parts, 3, &shape, 1);
  tb_output("y", tb_op("Reshape", h, shape, NONE));
}

/* ---- one thread's work ----------------------------------------------------------------------- */

/* Threads do not assert: what went wrong first is told when they have ended. */
typedef struct work {
  int me;
  const char *backend;
  uint32_t threads;
  bs_session *session, *share; /* session NULL: opened by the thread, with `share` */
  float x[MOST * WIDE], want[MOST][MOST * WIDE];
  uint32_t wrong;
  char failed[400];
} work;

static work works[THREADS];

static int went_wrong(work *w, int32_t rc, const char *what, const bs_error *err) {
  if (rc != BS_OK && w->failed[0] == '\0')
    snprintf(w->failed, sizeof w->failed, "%.40s: %.40s: %.200s (%.80s)", what, err->id, err->message,
             err->where);
  return rc != BS_OK;
}

static int32_t open_one(const work *w, bs_session **out, bs_error *err) {
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "N", .size = MOST}, *dims = &dim;
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                .threads = w->threads,
                                .backend = w->backend,
                                .dims = &dims,
                                .n_dims = 1,
                                .plans = 2, /* bindings come and go */
                                .share = w->share};
  return bs_session_open(tb_context, tb_graph, &o, out, err);
}

static int32_t bind_one(bs_session *s, int64_t size, bs_error *err) {
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "N", .size = size}, *dims = &dim;
  return bs_session_bind(s, &dims, 1, err);
}

/* Runs the session for `size` tokens; *out_y lies in it. */
static int32_t run_one(work *w, bs_session *s, int64_t size, const float **out_y, bs_error *err) {
  bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                 .dtype = BS_F32,
                 .rank = 2,
                 .dims = {size, WIDE},
                 .strides = {WIDE, 1},
                 .data = w->x,
                 .bytes = (uint64_t)size * WIDE * sizeof(float)};
  int32_t rc = bs_session_set(s, 0, &t, err);
  if (rc == BS_OK) rc = bs_session_run(s, err);
  if (rc == BS_OK) rc = bs_session_get(s, 1, &t, err);
  *out_y = t.data;
  return rc;
}

static void compare(work *w, int64_t size, const float *y) {
  w->wrong += memcmp(y, w->want[size - 1], (size_t)size * WIDE * sizeof(float)) != 0;
}

static void *run_rounds(void *user) {
  work *w = user;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const float *y;
  for (int i = 0; i < ROUNDS; i++) {
    if (went_wrong(w, run_one(w, w->session, MOST, &y, &err), "run", &err)) return NULL;
    compare(w, MOST, y);
  }
  return NULL;
}

static void *bind_rounds(void *user) {
  work *w = user;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const float *y;
  for (int i = 0; i < ROUNDS; i++) {
    const int64_t size = 1 + (i + 2 * w->me) % SIZES;
    if (went_wrong(w, bind_one(w->session, size, &err), "bind", &err)) return NULL;
    if (went_wrong(w, run_one(w, w->session, size, &y, &err), "run", &err)) return NULL;
    compare(w, size, y);
  }
  return NULL;
}

static void *open_rounds(void *user) {
  work *w = user;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const float *y;
  for (int i = 0; i < 8; i++) {
    bs_session *s = NULL;
    bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
    if (went_wrong(w, open_one(w, &s, &err), "open", &err)) return NULL;
    if (!went_wrong(w, run_one(w, s, MOST, &y, &err), "run", &err)) compare(w, MOST, y);
    went_wrong(w, bs_session_stats_get(s, &stats, &err), "stats", &err);
    if (i == 7) went_wrong(w, bs_session_check(s, NULL, NULL, &err), "check", &err);
    bs_session_close(s);
  }
  return NULL;
}

/* ---- both together --------------------------------------------------------------------------- */

/* What one thread with these inputs gets alone, for every size. */
static void learn(work *w) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session *alone = NULL;
  const float *y;
  tb_fill(w->x, MOST * WIDE, 100 + (uint64_t)w->me);
  ck_assert_int_eq(open_one(w, &alone, &err), BS_OK);
  for (int64_t size = 1; size <= MOST; size++) {
    ck_assert_int_eq(bind_one(alone, size, &err), BS_OK);
    ck_assert_int_eq(run_one(w, alone, size, &y, &err), BS_OK);
    memcpy(w->want[size - 1], y, (size_t)size * WIDE * sizeof(float));
  }
  bs_session_close(alone);
}

static const struct {
  const char *backend;
  uint32_t threads;
  int share, open; /* open: by the threads */
  void *(*main)(void *user);
} cases[] = {
    {"cpu", 1, 1, 0, run_rounds},  {"cpu", 2, 1, 0, run_rounds},  {"ref", 1, 1, 0, run_rounds},
    {"cpu", 1, 0, 0, run_rounds},  {"cpu", 1, 0, 0, bind_rounds}, {"cpu", 1, 1, 0, bind_rounds},
    {"ref", 2, 0, 0, bind_rounds}, {"ref", 1, 1, 0, bind_rounds}, {"cpu", 1, 0, 1, open_rounds},
    {"cpu", 1, 1, 1, open_rounds},
};

START_TEST(gives_the_bits_of_one_thread) {
  pthread_t threads[THREADS];
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session *first = NULL;
  make_model();
  for (int i = 0; i < THREADS; i++) {
    work *w = &works[i];
    *w = (work){.me = i, .backend = cases[_i].backend, .threads = cases[_i].threads};
    learn(w);
    w->share = cases[_i].share ? first : NULL;
    if (!cases[_i].open || (cases[_i].share && i == 0)) {
      ck_assert_int_eq(open_one(w, &w->session, &err), BS_OK);
      if (i == 0) first = w->session;
    }
    if (cases[_i].share) w->share = first;
  }
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, cases[_i].main, &works[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    ck_assert_msg(works[i].failed[0] == '\0', "thread %d: %s", i, works[i].failed);
    ck_assert_msg(works[i].wrong == 0, "thread %d: %u runs gave other bits", i, works[i].wrong);
  }
  for (int i = THREADS; i-- > 0;) bs_session_close(works[i].session);
}
END_TEST

/* Each session has a rank of its own; weights are there once, whoever packed them, and stay when the session
 * that packed them is closed. */
START_TEST(shares_weights_alone) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session *a = NULL, *b = NULL, *c = NULL;
  bs_session_stats stats[2] = {{.struct_size = (uint32_t)sizeof stats[0]},
                               {.struct_size = (uint32_t)sizeof stats[0]}};
  const float *y;
  work *w = &works[0];
  make_model();
  *w = (work){.backend = "cpu", .threads = 1};
  learn(w);
  ck_assert_int_eq(open_one(w, &a, &err), BS_OK);
  ck_assert_int_eq(bs_session_stats_get(a, &stats[0], &err), BS_OK);
  w->share = a;
  ck_assert_int_eq(open_one(w, &b, &err), BS_OK);
  ck_assert_int_eq(bs_session_stats_get(b, &stats[1], &err), BS_OK);
  ck_assert_uint_eq(stats[0].packed_bytes, stats[1].packed_bytes);
  ck_assert(a->core == b->core && a->rank != b->rank);
  w->backend = "ref";
  ck_assert_int_eq(open_one(w, &c, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-GRAPH-SHARE");
  w->backend = NULL; /* that of the other */
  w->threads = 0;
  ck_assert_int_eq(open_one(w, &c, &err), BS_OK);
  ck_assert_uint_eq(bs_world_threads_per_rank(c->rank->world), 1);
  bs_session_close(a);
  for (int64_t size = 1; size <= MOST; size++) {
    ck_assert_int_eq(bind_one(b, size, &err), BS_OK);
    ck_assert_int_eq(run_one(w, b, size, &y, &err), BS_OK);
    compare(w, size, y);
  }
  ck_assert_uint_eq(w->wrong, 0);
  ck_assert_int_eq(bs_session_stats_get(b, &stats[1], &err), BS_OK);
  ck_assert_uint_eq(stats[0].packed_bytes, stats[1].packed_bytes);
  bs_session_close(b);
  bs_session_close(c);
}
END_TEST

int main(void) {
  const test_case rows[] = {{gives_the_bits_of_one_thread, TEST_COUNT(cases)}, {shares_weights_alone}, {0}};
  return run_tests("graph threads", rows, (test_setup){.before = tb_begin, .after = tb_end});
}
