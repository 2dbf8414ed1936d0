/* SPDX-License-Identifier: MIT
 * The communicator "shm", its ranks forked by the test: every collective against a plain reference, element
 * by element, and bit by bit against "threads"; what is said when ranks disagree, are late or die; worlds and
 * groups opened and closed again and again; nothing left behind. A rank is a process: it says what it thinks
 * in shared memory, and the test judges. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

#define LATE_NS INT64_C(200000000)
#define MOST 8u

/* What a rank leaves: its outcome, and a hash of all bits that it got. */
typedef struct outcome {
  int32_t rc;
  uint32_t finished;
  uint64_t bits;
  double seconds;
  bs_error err;
} outcome;

static outcome *outcomes; /* shared, [MOST] */

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what, const bs_error *err) {
  fprintf(stderr, "a rank: %s: %s %s\n", what, err->id, err->message);
  _exit(3);
}

/* ---- bodies that both communicators run --------------------------------------------------------- */

static uint64_t mixed(uint64_t h, const void *data, uint64_t n) {
  const unsigned char *p = data;
  for (uint64_t i = 0; i < n; ++i) h = (h ^ p[i]) * UINT64_C(1099511628211);
  return h;
}

typedef struct walk {
  test_rank *t;
  uint64_t bits;
  char bad[200]; /* the first wrong element */
} walk;

static void expect(walk *w, int32_t rc) {
  if (rc != BS_OK && w->t->rc == BS_OK) w->t->rc = rc;
}

static void wrong(walk *w, const char *what, uint64_t i, double got, double want) {
  if (w->bad[0] != '\0' || got == want) return;
  snprintf(w->bad, sizeof w->bad, "%s of %u ranks, element %llu: %g, not %g", what, w->t->size,
           (unsigned long long)i, got, want);
}

static void do_reduce(walk *w, uint32_t in, uint32_t reduce, uint32_t out, uint64_t rows, uint64_t n,
                      int64_t pad) {
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, in, rows, n, "reduce");
  c.dtype_out = out;
  c.reduce_dtype = reduce;
  c.in_stride = (int64_t)n + pad;
  c.out_stride = (int64_t)n + 2 * pad;
  const uint64_t bytes = rows * (uint64_t)c.out_stride * BS_DTYPE_BYTES(out);
  void *x = calloc(1, rows * (uint64_t)c.in_stride * 8u + 8u), *y = calloc(1, bytes + 8u);
  fill(in, x, w->t->rank, rows, n, c.in_stride);
  c.in = x;
  c.out = y;
  expect(w, w->t->comm->all_reduce(w->t->handle, &c, &w->t->err));
  for (uint64_t i = 0; i < rows * n; i += step_for(rows * n))
    wrong(w, "all_reduce", i, bs_load_f64(out, y, (int64_t)(i / n) * c.out_stride + (int64_t)(i % n)),
          reduced(in, reduce, out, w->t->size, i));
  w->bits = mixed(w->bits, y, bytes);
  free(x);
  free(y);
}

/* Rank r has n + r columns. */
static void do_blocks(walk *w, uint32_t kind, uint64_t rows, uint64_t n, int64_t pad) {
  const uint32_t P = w->t->size, me = w->t->rank;
  uint64_t counts[MOST], all = 0, first = 0;
  for (uint32_t r = 0; r < P; ++r) {
    counts[r] = n + r;
    if (r < me) first += counts[r];
    all += counts[r];
  }
  bs_coll_call c = make_call(kind, BS_F32, rows, 0, "blocks");
  const int gathers = kind == BS_COLL_ALL_GATHER;
  const uint64_t in_cols = gathers ? counts[me] : all, out_cols = gathers ? all : counts[me];
  c.counts = counts;
  c.in_stride = (int64_t)in_cols + pad;
  c.out_stride = (int64_t)out_cols + pad;
  const uint64_t bytes = rows * (uint64_t)c.out_stride * 4u;
  float *x = calloc(1, rows * (uint64_t)c.in_stride * 4u + 4u), *y = calloc(1, bytes + 4u);
  fill(BS_F32, x, me, rows, in_cols, c.in_stride);
  c.in = x;
  c.out = y;
  expect(w, gathers ? w->t->comm->all_gather(w->t->handle, &c, &w->t->err)
                    : w->t->comm->reduce_scatter(w->t->handle, &c, &w->t->err));
  for (uint64_t i = 0; i < rows * out_cols; i += step_for(rows * out_cols)) {
    const uint64_t row = i / out_cols, col = i % out_cols;
    uint64_t r = 0, at = col;
    while (gathers && at >= counts[r]) at -= counts[r++];
    const double want = gathers ? rounded(BS_F32, value_of(BS_F32, (uint32_t)r, row * counts[r] + at))
                                : reduced(BS_F32, BS_F32, BS_F32, P, row * all + first + col);
    wrong(w, gathers ? "all_gather" : "reduce_scatter", i, (double)y[row * (uint64_t)c.out_stride + col],
          want);
  }
  w->bits = mixed(w->bits, y, bytes);
  free(x);
  free(y);
}

/* Rank a sends b rows x (a + 2 b + n). */
static void do_all_to_all(walk *w, uint64_t rows, uint64_t n) {
  const uint32_t P = w->t->size, me = w->t->rank;
  uint64_t counts[MOST], recv[MOST], in_cols = 0, out_cols = 0;
  for (uint32_t r = 0; r < P; ++r) {
    counts[r] = me + 2u * r + n;
    recv[r] = r + 2u * me + n;
    in_cols += counts[r];
    out_cols += recv[r];
  }
  bs_coll_call c = make_call(BS_COLL_ALL_TO_ALL, BS_I32, rows, 0, "exchange");
  c.counts = counts;
  c.recv_counts = recv;
  c.in_stride = (int64_t)in_cols;
  c.out_stride = (int64_t)out_cols;
  int32_t *x = calloc(rows * in_cols + 1, 4), *y = calloc(rows * out_cols + 1, 4);
  for (uint64_t row = 0; row < rows; ++row) {
    int32_t *at = x + row * in_cols;
    for (uint32_t to = 0; to < P; ++to)
      for (uint64_t i = 0; i < counts[to]; ++i)
        *at++ = (int32_t)(me * 1000003u + to * 10007u + row * 101u + i);
  }
  c.in = x;
  c.out = y;
  expect(w, w->t->comm->all_to_all(w->t->handle, &c, &w->t->err));
  for (uint64_t row = 0; row < rows; ++row) {
    const int32_t *at = y + row * out_cols;
    for (uint32_t from = 0; from < P; ++from)
      for (uint64_t i = 0; i < recv[from]; ++i)
        wrong(w, "all_to_all", i, *at++, (double)(int32_t)(from * 1000003u + me * 10007u + row * 101u + i));
  }
  w->bits = mixed(w->bits, y, rows * out_cols * 4u);
  free(x);
  free(y);
}

static void do_broadcast(walk *w, uint64_t rows, uint64_t n, uint32_t root) {
  bs_coll_call c = make_call(BS_COLL_BROADCAST, BS_F64, rows, n, "broadcast");
  double *y = calloc(rows * n + 1, 8);
  if (w->t->rank == root) fill(BS_F64, y, root, rows, n, c.in_stride);
  c.root = root;
  c.in = c.out = y;
  expect(w, w->t->comm->broadcast(w->t->handle, &c, &w->t->err));
  for (uint64_t i = 0; i < rows * n; ++i) wrong(w, "broadcast", i, y[i], value_of(BS_F64, root, i));
  w->bits = mixed(w->bits, y, rows * n * 8u);
  free(y);
}

/* Around the ring, large and small, strided. */
static void do_messages(walk *w, uint64_t rows, uint64_t n) {
  const uint32_t P = w->t->size, me = w->t->rank;
  bs_coll_call c = make_call(BS_COLL_SEND, BS_F32, rows, n, "ring");
  float *x = calloc(rows * (n + 3) + 1, 4);
  c.in_stride = c.out_stride = (int64_t)n + 3;
  c.in = c.out = x;
  for (uint32_t from = 0; from < P && P > 1; ++from) {
    const uint32_t to = (from + 1) % P;
    c.kind = me == from ? BS_COLL_SEND : BS_COLL_RECV;
    c.root = me == from ? to : from;
    if (me == from) {
      fill(BS_F32, x, from, rows, n, c.in_stride);
      expect(w, w->t->comm->send(w->t->handle, &c, &w->t->err));
    } else if (me == to) {
      memset(x, 0, rows * (n + 3) * 4u);
      expect(w, w->t->comm->recv(w->t->handle, &c, &w->t->err));
      for (uint64_t i = 0; i < rows * n; i += step_for(rows * n))
        wrong(w, "recv", i, (double)x[(i / n) * (n + 3) + i % n], rounded(BS_F32, value_of(BS_F32, from, i)));
      w->bits = mixed(w->bits, x, rows * (n + 3) * 4u);
    }
  }
  free(x);
}

/* Each pair of neighbours is a group; the whole world is one too. */
static void do_groups(walk *w) {
  const uint32_t me = w->t->rank, first = me & ~1u;
  uint32_t ranks[2] = {first, first + 1u}, all[MOST];
  if (w->t->size % 2 != 0) return;
  for (uint32_t r = 0; r < w->t->size; ++r) all[r] = r;
  for (int again = 0; again < 3; ++again) {
    void *pair = NULL, *world = NULL;
    float x[2] = {(float)me, 1.0f};
    bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, 2, "group");
    c.in = c.out = x;
    expect(w, w->t->comm->group_open(w->t->handle, ranks, 2, &pair, &w->t->err));
    expect(w, w->t->comm->group_open(w->t->handle, all, w->t->size, &world, &w->t->err));
    if (w->t->rc != BS_OK) return;
    expect(w, w->t->comm->all_reduce(pair, &c, &w->t->err));
    wrong(w, "group of two", 0, (double)x[0], (double)(2u * first + 1u));
    expect(w, w->t->comm->all_reduce(world, &c, &w->t->err));
    wrong(w, "group of all", 1, (double)x[1], 2.0 * w->t->size);
    w->t->comm->rank_close(pair);
    w->t->comm->rank_close(world);
  }
}

static void everything(test_rank *t) {
  static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_I64, BS_I32, BS_I8};
  static const uint64_t sizes[] = {0, 1, 7, 333, 1025, 70001, 150000};
  static const uint32_t mixes[][3] = {{BS_F32, BS_BF16, BS_F32},
                                      {BS_BF16, BS_F32, BS_F32},
                                      {BS_I8, BS_I32, BS_I32},
                                      {BS_F32, BS_F64, BS_F32}};
  walk w = {t, 14695981039346656037u, ""};
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
      do_reduce(&w, dtypes[d], dtypes[d], dtypes[d], 1, sizes[s], 0);
    do_reduce(&w, dtypes[d], dtypes[d], dtypes[d], 67, 1290, 5);
  }
  for (size_t m = 0; m < sizeof mixes / sizeof mixes[0]; ++m) {
    do_reduce(&w, mixes[m][0], mixes[m][1], mixes[m][2], 1, 37, 0);
    do_reduce(&w, mixes[m][0], mixes[m][1], mixes[m][2], 300, 301, 1);
  }
  for (uint32_t kind = BS_COLL_ALL_GATHER; kind <= BS_COLL_REDUCE_SCATTER; ++kind) {
    do_blocks(&w, kind, 1, 0, 0);
    do_blocks(&w, kind, 3, 5, 2);
    do_blocks(&w, kind, 41, 2503, 1);
    do_blocks(&w, kind, 1, 100001, 0);
  }
  do_all_to_all(&w, 3, 1);
  do_all_to_all(&w, 20, 4001);
  do_broadcast(&w, 1, 3, t->size - 1);
  do_broadcast(&w, 7, 20001, 0);
  do_messages(&w, 1, 1);
  do_messages(&w, 5, 3001);
  do_groups(&w);
  if (w.bad[0] != '\0') {
    t->rc = BS_NUMERIC;
    bs_error_set(&t->err, BS_NUMERIC, "TEST", "%s", w.bad);
  }
  *(uint64_t *)t->arg = w.bits;
}

/* ---- ranks as processes ------------------------------------------------------------------------- */

typedef struct test_job {
  uint32_t size;
  void (*body)(test_rank *t);
  void *arg;
  int64_t timeout_ns;
  uint64_t hash[MOST];
  uint32_t absent; /* a rank that never comes; MOST: none */
} test_job;

static void set(const char *name, uint32_t value) {
  char text[16];
  snprintf(text, sizeof text, "%u", value);
  setenv(name, text, 1);
}

static void rank_process(const test_job *j, uint32_t rank, int fd) {
  extern char **environ;
  outcome *out = &outcomes[rank];
  test_rank t = {.rank = rank, .size = j->size, .body = j->body, .err = BS_ERROR_INIT};
  bs_attachment here = {.struct_size = sizeof here};
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  set("BLOCKSHOCK_RANK", rank);
  set("BLOCKSHOCK_WORLD_SIZE", j->size);
  set("BLOCKSHOCK_SHM_FD", (uint32_t)fd);
  const bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY};
  if (bs_context_open(&o, &test_context, &err) != BS_OK) die("context", &err);
  if (bs_find_comm(test_context, "shm", &t.comm, &state, &err) != BS_OK) die("comm", &err);
  if (t.comm->attach(state, (const char *const *)environ, &here, &err) != BS_OK) die("attach", &err);
  if (here.rank != rank || here.world_size != j->size || here.local_size != j->size) die("place", &err);
  const bs_world_request q = {.struct_size = sizeof q,
                              .world_size = j->size,
                              .rank = rank,
                              .config_hash = j->hash[rank],
                              .timeout_ns = j->timeout_ns > 0 ? j->timeout_ns : INT64_C(60000000000)};
  t.rc = t.comm->world_open(state, &q, &t.world, &t.err);
  if (t.rc == BS_OK) t.rc = t.comm->rank_open(t.world, rank, &t.handle, &t.err);
  t.arg = j->arg != NULL ? j->arg : &out->bits;
  const double start = seconds_now();
  if (t.rc == BS_OK) j->body(&t);
  out->seconds = seconds_now() - start;
  out->rc = t.rc;
  out->err = t.err;
  out->finished = 1;
  if (t.handle != NULL) t.comm->rank_close(t.handle);
  if (t.world != NULL) t.comm->world_close(t.world);
  bs_context_close(test_context);
}

/* How each ended is in `status`. */
static void run_job(const test_job *j, int status[MOST]) {
  pid_t pids[MOST];
  const int fd = (int)syscall(SYS_memfd_create, "test", 0u);
  ck_assert_int_ge(fd, 0);
  memset(outcomes, 0, MOST * sizeof *outcomes);
  fflush(NULL);
  for (uint32_t r = 0; r < j->size; ++r) {
    pids[r] = -1;
    if (j->absent == r && j->absent < MOST) continue;
    pids[r] = fork();
    ck_assert_int_ge(pids[r], 0);
    if (pids[r] != 0) continue;
    rank_process(j, r, fd);
    _exit(0);
  }
  for (uint32_t r = 0; r < j->size; ++r) {
    status[r] = -1;
    if (pids[r] <= 0) continue;
    for (;;) { /* one that was stopped is ended once the others are done with it */
      ck_assert_int_eq(waitpid(pids[r], &status[r], WUNTRACED), pids[r]);
      if (!WIFSTOPPED(status[r])) break;
      for (uint32_t k = 0; k < j->size; ++k)
        while (k != r && outcomes[k].finished == 0) usleep(1000);
      kill(pids[r], SIGKILL);
    }
  }
  close(fd);
}

static test_job job(uint32_t size, void (*body)(test_rank *t)) {
  return (test_job){.size = size, .body = body, .absent = MOST};
}

static void setup(void) {
  outcomes = mmap(NULL, MOST * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(outcomes, MAP_FAILED);
}
static void teardown(void) {
  munmap(outcomes, MOST * sizeof *outcomes);
}

static void says(uint32_t rank, int32_t code, const char *id, const char *a, const char *b) {
  const outcome *o = &outcomes[rank];
  ck_assert_msg(o->finished && o->rc == code, "rank %u: status %d, not %d: %s", rank, o->rc, code,
                o->err.message);
  ck_assert_str_eq(o->err.id, id);
  ck_assert_msg(strstr(o->err.message, a) != NULL, "rank %u: '%s' lacks '%s'", rank, o->err.message, a);
  ck_assert_msg(strstr(o->err.message, b) != NULL, "rank %u: '%s' lacks '%s'", rank, o->err.message, b);
}

/* ---- tests -------------------------------------------------------------------------------------- */

static const uint32_t worlds[] = {2, 3, 4};

static uint64_t thread_bits[16];
static void everything_in_threads(test_rank *t) {
  t->arg = &thread_bits[t->rank];
  everything(t);
}

START_TEST(test_same_bits) {
  int status[MOST];
  test_rank ranks[16];
  test_job j = job(worlds[_i], everything);
  run_job(&j, status); /* before this process has threads */
  open_comm();
  run_ranks(j.size, everything_in_threads, NULL, ranks);
  close_comm();
  for (uint32_t r = 0; r < j.size; ++r) {
    ck_assert_int_eq(status[r], 0);
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s", r, outcomes[r].err.message);
    ck_assert_msg(ranks[r].rc == BS_OK, "thread %u: %s", r, ranks[r].err.message);
    ck_assert_msg(outcomes[r].bits == thread_bits[r], "rank %u of %u has other bits than with threads", r,
                  j.size);
  }
}
END_TEST

static int32_t reduce(test_rank *t, uint64_t n, const char *site, int64_t timeout_ns) {
  float *room = calloc(n + 200, 4);
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, n, site);
  c.in = c.out = room;
  c.timeout_ns = timeout_ns;
  const int32_t rc = t->comm->all_reduce(t->handle, &c, &t->err);
  free(room);
  return rc;
}

static const uint64_t few_or_many[] = {100, 200000};
static uint64_t count_now;

static void counts_body(test_rank *t) {
  for (int i = 0; i < 3 && t->rc == BS_OK; ++i) t->rc = reduce(t, count_now, "layer0.y", 0);
  if (t->rc == BS_OK) t->rc = reduce(t, t->rank + 1 == t->size ? count_now + 100 : count_now, "layer1.y", 0);
}
START_TEST(test_counts_differ) {
  int status[MOST];
  test_job j = job(3, counts_body);
  count_now = few_or_many[_i];
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r) {
    says(r, BS_MISMATCH, "BS-COLL-MISMATCH", "rank 0", "rank 2");
    says(r, BS_MISMATCH, "BS-COLL-MISMATCH", "layer1.y", "all_reduce f32");
  }
}
END_TEST

static void pairs_body(test_rank *t) {
  uint64_t counts[2] = {4, 4}, recv[2] = {4, 4};
  float x[16] = {0};
  if (t->rank == 1) recv[0] = 5;
  bs_coll_call c = make_call(BS_COLL_ALL_TO_ALL, BS_F32, 1, 0, "pairs");
  c.counts = counts;
  c.recv_counts = recv;
  c.in = x;
  c.out = x + 8;
  t->rc = t->comm->all_to_all(t->handle, &c, &t->err);
}
static void p2p_body(test_rank *t) {
  float x[8] = {0};
  bs_coll_call c = make_call(t->rank == 0 ? BS_COLL_SEND : BS_COLL_RECV, BS_F32, 1, 4u + t->rank, "p2p");
  c.root = 1u - t->rank;
  c.in = c.out = x;
  t->rc = t->rank == 0 ? t->comm->send(t->handle, &c, &t->err) : t->comm->recv(t->handle, &c, &t->err);
}
START_TEST(test_pairs_differ) {
  int status[MOST];
  test_job j = job(2, _i == 0 ? pairs_body : p2p_body);
  run_job(&j, status);
  for (uint32_t r = 0; r < 2; ++r)
    says(r, BS_MISMATCH, "BS-COLL-MISMATCH", _i == 0 ? "'pairs'" : "send f32 1x4",
         _i == 0 ? "expecting 5" : "recv f32 1x5");
}
END_TEST

/* Rank 1 dies, or stands still, on its way to a call; or between the pieces of a large one. */
static int signal_now;
static void gone_body(test_rank *t) {
  t->rc = reduce(t, count_now, "early", 0);
  if (t->rank == 1) kill(getpid(), signal_now);
  if (t->rank == 1) usleep(50000); /* a stop reaches the process a little later */
  if (t->rc == BS_OK) t->rc = reduce(t, count_now, "late.site", signal_now == SIGSTOP ? LATE_NS : 0);
}
START_TEST(test_dead) {
  int status[MOST];
  test_job j = job(3, gone_body);
  count_now = few_or_many[_i];
  signal_now = SIGKILL;
  run_job(&j, status);
  ck_assert_int_eq(WTERMSIG(status[1]), SIGKILL);
  for (uint32_t r = 0; r < 3; r += 2) {
    says(r, BS_RANK_FAILED, "BS-RANK-DEAD", "rank 1", "'early'");
    ck_assert_int_eq(outcomes[r].err.rank, 1);
    ck_assert_msg(outcomes[r].seconds < 2.0, "it took %g s", outcomes[r].seconds);
  }
}
END_TEST
START_TEST(test_stopped) {
  int status[MOST];
  test_job j = job(3, gone_body);
  count_now = few_or_many[_i];
  signal_now = SIGSTOP;
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; r += 2)
    says(r, BS_DEADLINE, "BS-COLL-DEADLINE", "missing: rank 1", "late.site");
}
END_TEST

static void abort_body(test_rank *t) {
  if (t->rank == 2) {
    usleep(50000);
    t->comm->abort(t->world, 2, BS_NUMERIC, "[BS-X] it went wrong");
    t->rc = BS_NUMERIC;
    return;
  }
  t->rc = reduce(t, 10, "waits", 0);
}
START_TEST(test_abort) {
  int status[MOST];
  test_job j = job(3, abort_body);
  run_job(&j, status);
  for (uint32_t r = 0; r < 2; ++r) {
    says(r, BS_ABORTED, "BS-COLL-ABORTED", "rank 2 failed", "[BS-X] it went wrong");
    ck_assert_int_eq(outcomes[r].err.native_code, BS_NUMERIC);
  }
}
END_TEST

static void no_body(test_rank *t) {
  (void)t;
}
START_TEST(test_configured_otherwise) {
  int status[MOST];
  test_job j = job(3, no_body);
  j.hash[1] = 7;
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r) ck_assert_int_eq(outcomes[r].rc, BS_MISMATCH);
  says(1, BS_MISMATCH, "BS-RANK-CONFIG", "rank 0", "rank 1");
}
END_TEST
START_TEST(test_absent) {
  int status[MOST];
  test_job j = job(3, no_body);
  j.absent = (uint32_t)_i;
  j.timeout_ns = LATE_NS;
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r)
    if (r != j.absent)
      says(r, BS_DEADLINE, "BS-COLL-DEADLINE", _i == 0 ? "rank 0" : "rank 1", "has not come");
}
END_TEST

/* Sixty worlds one after another, more than the mapping has room for at once; of two at a time each is its
 * own. */
static void worlds_body(test_rank *t) {
  void *state = NULL;
  const bs_comm *comm = NULL;
  bs_world_request q = {
      .struct_size = sizeof q, .world_size = t->size, .rank = t->rank, .timeout_ns = 60000000000};
  if (bs_find_comm(test_context, "shm", &comm, &state, &t->err) != BS_OK) t->rc = BS_INTERNAL;
  for (int i = 0; i < 60 && t->rc == BS_OK; ++i) {
    test_rank other = *t;
    t->rc = comm->world_open(state, &q, &other.world, &t->err);
    if (t->rc == BS_OK) t->rc = comm->rank_open(other.world, t->rank, &other.handle, &t->err);
    if (t->rc != BS_OK) return;
    t->rc = reduce(&other, 5000, "inner", 0);
    if (t->rc == BS_OK) t->rc = reduce(t, 5000, "outer", 0);
    comm->rank_close(other.handle);
    comm->world_close(other.world);
  }
}
START_TEST(test_many_worlds) {
  int status[MOST];
  test_job j = job(3, worlds_body);
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r) {
    ck_assert_int_eq(status[r], 0);
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s", r, outcomes[r].err.message);
  }
}
END_TEST

/* What torchrun sets, and no file that a launcher gives. */
static void attach_only(const char *const *env, int32_t code, const char *id) {
  const bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY};
  const bs_comm *comm = NULL;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_attachment here = {.struct_size = sizeof here};
  ck_assert_int_eq(bs_context_open(&o, &test_context, &err), BS_OK);
  ck_assert_int_eq(bs_find_comm(test_context, "shm", &comm, &state, &err), BS_OK);
  const int32_t rc = comm->attach(state, env, &here, &err);
  ck_assert_int_eq(rc, code);
  if (code != BS_OK) ck_assert_str_eq(err.id, id);
  if (code == BS_OK) ck_assert_uint_eq(here.rank + here.world_size * 10u, 21u);
  bs_context_close(test_context);
}
START_TEST(test_environments) {
  const char *const none[] = {"PATH=/bin", NULL};
  const char *const torch[] = {"RANK=1",
                               "WORLD_SIZE=2",
                               "LOCAL_RANK=1",
                               "LOCAL_WORLD_SIZE=2",
                               "MASTER_ADDR=localhost",
                               "MASTER_PORT=29500",
                               NULL};
  const char *const spread[] = {"RANK=1",
                                "WORLD_SIZE=4",
                                "LOCAL_RANK=1",
                                "LOCAL_WORLD_SIZE=2",
                                "MASTER_ADDR=localhost",
                                "MASTER_PORT=29500",
                                NULL};
  const char *const wrong_rank[] = {"RANK=2",        "WORLD_SIZE=2",  "LOCAL_RANK=2",
                                    "MASTER_ADDR=h", "MASTER_PORT=1", NULL};
  attach_only(none, BS_UNAVAILABLE, "BS-SHM-NOJOB");
  attach_only(torch, BS_OK, "");
  attach_only(spread, BS_UNSUPPORTED, "BS-SHM-MACHINES");
  attach_only(wrong_rank, BS_CONFIG, "BS-SHM-RANK");
}
END_TEST

int main(void) {
  Suite *s = suite_create("shm");
  TCase *t = tcase_create("shm");
  tcase_add_checked_fixture(t, setup, teardown);
  tcase_add_loop_test(t, test_same_bits, 0, (int)(sizeof worlds / sizeof worlds[0]));
  tcase_add_loop_test(t, test_counts_differ, 0, 2);
  tcase_add_loop_test(t, test_pairs_differ, 0, 2);
  tcase_add_loop_test(t, test_dead, 0, 2);
  tcase_add_loop_test(t, test_stopped, 0, 2);
  tcase_add_test(t, test_abort);
  tcase_add_test(t, test_configured_otherwise);
  tcase_add_loop_test(t, test_absent, 0, 2);
  tcase_add_test(t, test_many_worlds);
  tcase_add_test(t, test_environments);
  suite_add_tcase(s, t);
  SRunner *runner = srunner_create(s);
  srunner_run_all(runner, CK_NORMAL);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? 0 : 1;
}
