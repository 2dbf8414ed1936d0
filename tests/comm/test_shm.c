/* SPDX-License-Identifier: MIT
 * The communicator "shm", its ranks forked by the test: every collective against a plain reference, element
 * by element, and bit by bit against "threads". */
#include "processes.h"
#include "tests/run_tests.h"

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

int main(void) {
  const test_case tests[] = {{test_same_bits, TEST_COUNT(worlds)}, {0}};
  return run_tests("shm", tests, (test_setup){setup, teardown});
}
