/* SPDX-License-Identifier: MIT
 * all_gather, broadcast, all_to_all, send/recv, barrier and groups of the communicator "threads" against
 * values computed from (rank, element). */
#include "ranks.h"
#include "tests/run_tests.h"

#include <stdatomic.h>

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 8};
static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_I64, BS_I32, BS_I8};

static void expect(test_rank *t, const char *what, uint32_t dtype, const void *y, int64_t at, uint32_t from,
                   uint32_t in_dtype, uint64_t i) {
  double got = bs_load_f64(dtype, y, at);
  double want = rounded(dtype, rounded(in_dtype, value_of(in_dtype, from, i)));
  ck_assert_msg(got == want, "%s: rank %u of %u dtype %04x: element %llu of rank %u is %g, not %g", what,
                t->rank, t->size, dtype, (unsigned long long)i, from, got, want);
}

static void one_gather(test_rank *t, uint32_t in, uint32_t out, uint64_t rows, uint64_t base, int64_t pad,
                       int in_place) {
  uint64_t counts[16], total = 0, first = 0;
  for (uint32_t r = 0; r < t->size; ++r) {
    counts[r] = base == 0 ? 0 : (base + r * 5u) % (3u * base); /* uneven, some empty */
    if (r < t->rank) first += counts[r];
    total += counts[r];
  }
  uint64_t mine = counts[t->rank];
  bs_coll_call c = make_call(BS_COLL_ALL_GATHER, in, rows, 0, "gather");
  c.dtype_out = out;
  c.counts = counts;
  c.out_stride = (int64_t)total + pad;
  c.in_stride = in_place ? c.out_stride : (int64_t)mine + 1;
  void *y = calloc(1, rows * (uint64_t)c.out_stride * BS_DTYPE_BYTES(out) + 1);
  void *x = in_place ? (char *)y + first * BS_DTYPE_BYTES(out)
                     : calloc(1, rows * (uint64_t)c.in_stride * BS_DTYPE_BYTES(in) + 1);
  fill(in, x, t->rank, rows, mine, c.in_stride);
  c.in = x;
  c.out = y;
  must(t, t->comm->all_gather(t->handle, &c, &t->err));
  uint64_t at = 0;
  for (uint32_t r = 0; r < t->size; ++r) {
    for (uint64_t row = 0; row < rows; ++row)
      for (uint64_t col = 0; col < counts[r]; col += step_for(rows * total))
        expect(t, "all_gather", out, y, (int64_t)row * c.out_stride + (int64_t)(at + col), r, in,
               row * counts[r] + col);
    at += counts[r];
  }
  if (!in_place) free(x);
  free(y);
}

static void gather_body(test_rank *t) {
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d) {
    for (int in_place = 0; in_place < 2; ++in_place) {
      one_gather(t, dtypes[d], dtypes[d], 1, 0, 0, in_place);
      one_gather(t, dtypes[d], dtypes[d], 1, 1, 0, in_place);
      one_gather(t, dtypes[d], dtypes[d], 4, 9, 3, in_place);
      one_gather(t, dtypes[d], dtypes[d], 7, 1300, 0, in_place);
    }
  }
  one_gather(t, BS_F32, BS_BF16, 3, 21, 0, 0);
  one_gather(t, BS_BF16, BS_F32, 3, 4000, 1, 0);
}
START_TEST(test_all_gather) {
  test_rank ranks[16];
  run_ranks(worlds[_i], gather_body, NULL, ranks);
}
END_TEST

static void one_broadcast(test_rank *t, uint32_t dtype, uint64_t rows, uint64_t count, uint32_t root,
                          int in_place) {
  bs_coll_call c = make_call(BS_COLL_BROADCAST, dtype, rows, count, "broadcast");
  c.root = root;
  c.out_stride = (int64_t)count + 2;
  c.in_stride = in_place ? c.out_stride : (int64_t)count;
  size_t bytes = rows * (uint64_t)c.out_stride * BS_DTYPE_BYTES(dtype) + 1;
  void *y = calloc(1, bytes), *x = in_place ? y : calloc(1, bytes);
  if (t->rank == root) fill(dtype, x, root, rows, count, c.in_stride);
  c.in = t->rank == root ? x : NULL;
  c.out = y;
  must(t, t->comm->broadcast(t->handle, &c, &t->err));
  for (uint64_t i = 0; i < rows * count; i += step_for(rows * count))
    expect(t, "broadcast", dtype, y, (int64_t)(i / count) * c.out_stride + (int64_t)(i % count), root, dtype,
           i);
  if (x != y) free(x);
  free(y);
}
static void broadcast_body(test_rank *t) {
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d) {
    for (uint32_t root = 0; root < t->size; ++root) {
      one_broadcast(t, dtypes[d], 1, 0, root, 0);
      one_broadcast(t, dtypes[d], 1, 1, root, 1);
      one_broadcast(t, dtypes[d], 3, 31, root, 0);
      one_broadcast(t, dtypes[d], 5, 2003, root, 1);
    }
  }
}
START_TEST(test_broadcast) {
  test_rank ranks[16];
  run_ranks(worlds[_i], broadcast_body, NULL, ranks);
}
END_TEST

/* Rank i sends (i * 3 + j) % 5 * scale elements a row to rank j. */
static uint64_t exchanged(uint32_t from, uint32_t to, uint64_t scale) {
  return (from * 3u + to) % 5u * scale;
}

static void one_exchange(test_rank *t, uint32_t dtype, uint64_t rows, uint64_t scale) {
  uint64_t counts[16], recv[16], sent = 0, got = 0;
  for (uint32_t r = 0; r < t->size; ++r) {
    sent += counts[r] = exchanged(t->rank, r, scale);
    got += recv[r] = exchanged(r, t->rank, scale);
  }
  bs_coll_call c = make_call(BS_COLL_ALL_TO_ALL, dtype, rows, 0, "exchange");
  c.counts = counts;
  c.recv_counts = recv;
  c.in_stride = (int64_t)sent + 1;
  c.out_stride = (int64_t)got + 2;
  void *x = calloc(1, rows * (uint64_t)c.in_stride * BS_DTYPE_BYTES(dtype) + 1);
  void *y = calloc(1, rows * (uint64_t)c.out_stride * BS_DTYPE_BYTES(dtype) + 1);
  fill(dtype, x, t->rank, rows, sent, c.in_stride);
  c.in = x;
  c.out = y;
  must(t, t->comm->all_to_all(t->handle, &c, &t->err));
  uint64_t at = 0;
  for (uint32_t r = 0; r < t->size; ++r) {
    uint64_t theirs = 0, before = 0;
    for (uint32_t to = 0; to < t->size; ++to) {
      theirs += exchanged(r, to, scale);
      if (to < t->rank) before += exchanged(r, to, scale);
    }
    for (uint64_t row = 0; row < rows; ++row)
      for (uint64_t col = 0; col < recv[r]; col += step_for(rows * got))
        expect(t, "all_to_all", dtype, y, (int64_t)row * c.out_stride + (int64_t)(at + col), r, dtype,
               row * theirs + before + col);
    at += recv[r];
  }
  free(x);
  free(y);
}
static void exchange_body(test_rank *t) {
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d) {
    one_exchange(t, dtypes[d], 1, 0);
    one_exchange(t, dtypes[d], 2, 1);
    one_exchange(t, dtypes[d], 3, 701);
  }
}
START_TEST(test_all_to_all) {
  test_rank ranks[16];
  run_ranks(worlds[_i], exchange_body, NULL, ranks);
}
END_TEST

/* A ring: even ranks send first; messages of growing size, in order. */
static void ring_body(test_rank *t) {
  uint32_t next = (t->rank + 1u) % t->size, before = (t->rank + t->size - 1u) % t->size;
  for (uint64_t n = 0; n < 3000; n = n * 3 + 1) {
    float *x = calloc(n + 1, sizeof *x), *y = calloc(n + 1, sizeof *y);
    fill(BS_F32, x, t->rank, 1, n, (int64_t)n);
    bs_coll_call send = make_call(BS_COLL_SEND, BS_F32, 1, n, "ring");
    bs_coll_call recv = make_call(BS_COLL_RECV, BS_F32, 1, n, "ring");
    send.in = x;
    send.root = next;
    recv.out = y;
    recv.root = before;
    if (t->rank % 2 == 0) must(t, t->comm->send(t->handle, &send, &t->err));
    must(t, t->comm->recv(t->handle, &recv, &t->err));
    if (t->rank % 2 == 1) must(t, t->comm->send(t->handle, &send, &t->err));
    for (uint64_t i = 0; i < n; ++i) expect(t, "recv", BS_F32, y, (int64_t)i, before, BS_F32, i);
    free(x);
    free(y);
  }
}
START_TEST(test_ring) {
  test_rank ranks[16];
  run_ranks(4, ring_body, NULL, ranks);
  run_ranks(2, ring_body, NULL, ranks);
}
END_TEST

/* Nobody leaves barrier k before all have entered it. */
static _Atomic uint32_t entered[64];
static void barrier_body(test_rank *t) {
  for (uint32_t k = 0; k < 64; ++k) {
    bs_coll_call c = make_call(BS_COLL_BARRIER, 0, 0, 0, "barrier");
    atomic_fetch_add(&entered[k], 1u);
    must(t, t->comm->barrier(t->handle, &c, &t->err));
    ck_assert_uint_eq(atomic_load(&entered[k]), t->size);
  }
}
START_TEST(test_barrier) {
  test_rank ranks[16];
  run_ranks(5, barrier_body, NULL, ranks);
}
END_TEST

/* Two halves of four ranks reduce by themselves; a second group of the same ranks is another one. */
static void group_body(test_rank *t) {
  uint32_t members[2] = {t->rank % 2u, t->rank % 2u + 2u};
  void *a = NULL, *b = NULL;
  must(t, t->comm->group_open(t->handle, members, 2, &a, &t->err));
  must(t, t->comm->group_open(t->handle, members, 2, &b, &t->err));
  for (int i = 0; i < 50; ++i) {
    int32_t v = (int32_t)t->rank + i;
    bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_I32, 1, 1, "half");
    c.in = c.out = &v;
    must(t, t->comm->all_reduce(i % 2 ? a : b, &c, &t->err));
    ck_assert_int_eq(v, (int32_t)(members[0] + members[1]) + 2 * i);
  }
  t->comm->rank_close(a);
  int32_t all = 1;
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_I32, 1, 1, "all");
  c.in = c.out = &all;
  must(t, t->comm->all_reduce(t->handle, &c, &t->err));
  ck_assert_int_eq(all, 4);
  t->comm->rank_close(b);
  uint32_t wrong[2] = {3, 1}, others[1] = {(t->rank + 1u) % 4u};
  ck_assert_int_eq(t->comm->group_open(t->handle, wrong, 2, &a, &t->err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(t->comm->group_open(t->handle, others, 1, &a, &t->err), BS_INVALID_ARGUMENT);
}
START_TEST(test_groups) {
  test_rank ranks[16];
  run_ranks(4, group_body, NULL, ranks);
}
END_TEST

int main(void) {
  Suite *s = suite_create("threads move");
  TCase *c = tcase_create("move");
  int n = TEST_COUNT(worlds);
  tcase_add_unchecked_fixture(c, open_comm, close_comm);
  tcase_add_loop_test(c, test_all_gather, 0, n);
  tcase_add_loop_test(c, test_broadcast, 0, n);
  tcase_add_loop_test(c, test_all_to_all, 0, n);
  tcase_add_test(c, test_ring);
  tcase_add_test(c, test_barrier);
  tcase_add_test(c, test_groups);
  suite_add_tcase(s, c);
  return run_suite(s);
}
