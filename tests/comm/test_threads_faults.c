/* SPDX-License-Identifier: MIT
 * What the communicator "threads" says when ranks disagree, one is late, one fails: the error names ranks
 * and call sites, every rank wakes, again and again. */
#include <stdatomic.h>

#include "ranks.h"
#include "tests/run_tests.h"

#define TIMES 200
#define LATE_NS INT64_C(200000000)

static void nap(double s) {
  struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
  nanosleep(&t, NULL);
}
static void says(const test_rank *t, int32_t code, const char *id, const char *a, const char *b) {
  ck_assert_msg(t->rc == code && t->err.code == code, "rank %u: status %d: %s", t->rank, t->rc,
                t->err.message);
  ck_assert_str_eq(t->err.id, id);
  ck_assert_msg(strstr(t->err.message, a) != NULL, "rank %u: '%s' lacks '%s'", t->rank, t->err.message, a);
  ck_assert_msg(strstr(t->err.message, b) != NULL, "rank %u: '%s' lacks '%s'", t->rank, t->err.message, b);
}

static float room[16][30000];
static int32_t reduce(test_rank *t, uint64_t n, const char *site, int64_t timeout_ns) {
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, n, site);
  c.in = c.out = room[t->rank];
  c.timeout_ns = timeout_ns;
  return t->comm->all_reduce(t->handle, &c, &t->err);
}

/* Same site, another count on the last rank; small (one meeting) and large (read in place). */
static void counts_body(test_rank *t) {
  uint64_t n = *(const uint64_t *)t->arg;
  for (int i = 0; i < 3; ++i) must(t, reduce(t, n, "layer0.y", 0));
  t->rc = reduce(t, t->rank + 1 == t->size ? n + 100 : n, "layer1.y", 0);
}
START_TEST(test_counts_differ) {
  test_rank ranks[16];
  uint64_t n = _i == 0 ? 100 : 20000;
  for (int i = 0; i < TIMES; ++i) {
    run_ranks(3, counts_body, &n, ranks);
    for (uint32_t r = 0; r < 3; ++r) {
      says(&ranks[r], BS_MISMATCH, "BS-COLL-MISMATCH", "rank 0", "rank 2");
      says(&ranks[r], BS_MISMATCH, "BS-COLL-MISMATCH", "layer1.y", _i == 0 ? "1x100 " : "1x20000 ");
      says(&ranks[r], BS_MISMATCH, "BS-COLL-MISMATCH", "all_reduce f32", _i == 0 ? "1x200 " : "1x20100 ");
    }
  }
}
END_TEST

/* Another kind at another site: both are named, on both ranks. */
static void kinds_body(test_rank *t) {
  if (t->rank == 0) {
    t->rc = reduce(t, 5, "first.site", 0);
    return;
  }
  bs_coll_call c = make_call(BS_COLL_BROADCAST, BS_F32, 1, 5, "second.site");
  c.in = c.out = room[1];
  t->rc = t->comm->broadcast(t->handle, &c, &t->err);
}
START_TEST(test_kinds_differ) {
  test_rank ranks[16];
  for (int i = 0; i < TIMES; ++i) {
    run_ranks(2, kinds_body, NULL, ranks);
    for (uint32_t r = 0; r < 2; ++r) {
      says(&ranks[r], BS_MISMATCH, "BS-COLL-MISMATCH", "rank 0 called all_reduce", "'first.site'");
      says(&ranks[r], BS_MISMATCH, "BS-COLL-MISMATCH", "rank 1 called broadcast", "'second.site'");
    }
  }
}
END_TEST

/* all_to_all: what one sends is not what the other expects. */
static void pairs_body(test_rank *t) {
  uint64_t counts[2] = {4, 4}, recv[2] = {4, 4};
  if (t->rank == 1) recv[0] = 5;
  bs_coll_call c = make_call(BS_COLL_ALL_TO_ALL, BS_F32, 1, 0, "pairs");
  c.counts = counts;
  c.recv_counts = recv;
  c.in = room[t->rank];
  c.out = room[t->rank + 8];
  t->rc = t->comm->all_to_all(t->handle, &c, &t->err);
}
static void p2p_body(test_rank *t) {
  bs_coll_call c = make_call(t->rank == 0 ? BS_COLL_SEND : BS_COLL_RECV, BS_F32, 1, 4u + t->rank, "p2p");
  c.root = 1u - t->rank;
  c.in = c.out = room[t->rank];
  t->rc = t->rank == 0 ? t->comm->send(t->handle, &c, &t->err) : t->comm->recv(t->handle, &c, &t->err);
}
START_TEST(test_pairs_differ) {
  test_rank ranks[16];
  for (int i = 0; i < TIMES; ++i) {
    run_ranks(2, pairs_body, NULL, ranks);
    for (uint32_t r = 0; r < 2; ++r)
      says(&ranks[r], BS_MISMATCH, "BS-COLL-MISMATCH", "'pairs'", "expecting 5");
    run_ranks(2, p2p_body, NULL, ranks);
    for (uint32_t r = 0; r < 2; ++r)
      says(&ranks[r], BS_MISMATCH, "BS-COLL-MISMATCH", "send f32 1x4", "recv f32 1x5");
  }
}
END_TEST

/* Rank 1 comes after the deadline, when the others have given up: those who waited name it and the site; it
 * learns that the world failed. */
static int64_t began[3], ended[3];
static atomic_int gave_up;
static void late_body(test_rank *t) {
  uint64_t n = *(const uint64_t *)t->arg;
  must(t, reduce(t, n, "early", 0));
  while (t->rank == 1 && atomic_load(&gave_up) < 2) nap(0.001);
  began[t->rank] = clock_ns();
  t->rc = reduce(t, n, "late.site", t->rank == 1 ? 0 : LATE_NS);
  ended[t->rank] = clock_ns();
  atomic_fetch_add(&gave_up, 1);
}
START_TEST(test_late) {
  test_rank ranks[16];
  uint64_t n = _i == 0 ? 10 : 20000;
  int turn = 0;
  do {
    ck_assert_int_lt(turn++, FAIR_TURNS);
    atomic_store(&gave_up, 0);
    run_ranks(3, late_body, &n, ranks);
  } while (!together(began[0], began[2], LATE_NS));
  for (uint32_t r = 0; r < 3; r += 2) { /* the first deadline ends the wait of both */
    const int64_t first = began[0] < began[2] ? began[0] : began[2];
    ck_assert_msg(ended[r] - first >= LATE_NS && ended[r] - began[r] < INT64_C(30000000000),
                  "rank %u waited %g s", r, 1e-9 * (double)(ended[r] - began[r]));
  }
  says(&ranks[0], BS_DEADLINE, "BS-COLL-DEADLINE", "missing: rank 1", "'late.site'");
  says(&ranks[2], BS_DEADLINE, "BS-COLL-DEADLINE", "missing: rank 1", "'late.site'");
  ck_assert_msg(strstr(ranks[0].err.message, "rank 2") == NULL, "%s", ranks[0].err.message);
  ck_assert_msg(strstr(ranks[0].err.message, "'early'") != NULL, "the last call: %s", ranks[0].err.message);
  says(&ranks[1], BS_ABORTED, "BS-COLL-ABORTED", "missing: rank 1", "late.site");
}
END_TEST

/* Nobody sends: the receiver names whom it waits for. Then nobody receives. */
static void alone_body(test_rank *t) {
  int receive = *(const int *)t->arg;
  if (t->rank == 1) return;
  bs_coll_call c = make_call(receive ? BS_COLL_RECV : BS_COLL_SEND, BS_F32, 1, 3, "alone");
  c.root = 1;
  c.timeout_ns = LATE_NS;
  c.in = c.out = room[0];
  t->rc = receive ? t->comm->recv(t->handle, &c, &t->err) : t->comm->send(t->handle, &c, &t->err);
}
START_TEST(test_alone) {
  test_rank ranks[16];
  run_ranks(2, alone_body, &_i, ranks);
  says(&ranks[0], BS_DEADLINE, "BS-COLL-DEADLINE", "missing: rank 1 (last call: none)", "'alone'");
}
END_TEST

/* One rank gives up: all others wake with its reason, whatever they wait in. */
static void abort_body(test_rank *t) {
  int round = *(const int *)t->arg;
  if (t->rank == 1) {
    if (round % 3 == 0) nap(0.001);
    t->comm->abort(t->world, 1, BS_NUMERIC, "found a NaN in y");
    t->rc = reduce(t, 3, "after", 0);
    return;
  }
  bs_coll_call c = make_call(round % 2 ? BS_COLL_RECV : BS_COLL_BARRIER, BS_F32, 1, 3, "waiting.site");
  c.root = 1;
  c.out = room[t->rank];
  if (round % 4 == 0)
    t->rc = reduce(t, 20000, "waiting.site", 0);
  else
    t->rc = round % 2 ? t->comm->recv(t->handle, &c, &t->err) : t->comm->barrier(t->handle, &c, &t->err);
}
START_TEST(test_abort) {
  test_rank ranks[16];
  for (int i = 0; i < TIMES; ++i) {
    run_ranks(4, abort_body, &i, ranks);
    for (uint32_t r = 0; r < 4; ++r) {
      says(&ranks[r], BS_ABORTED, "BS-COLL-ABORTED", "rank 1 failed", "found a NaN in y");
      says(&ranks[r], BS_ABORTED, "BS-COLL-ABORTED", r == 1 ? "'after'" : "'waiting.site'", "");
    }
  }
}
END_TEST

/* Buffers are freed as soon as a call returns, while an abort comes at any moment: nobody may read a peer's
 * memory after the peer left (the sanitizers see it). */
static void storm_body(test_rank *t) {
  int round = *(const int *)t->arg;
  for (int i = 0; i < 50 && t->rc == BS_OK; ++i) {
    float *x = malloc(12000 * sizeof *x);
    for (int k = 0; k < 12000; ++k) x[k] = (float)(t->rank + 1);
    bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, 12000, "storm");
    c.in = c.out = x;
    if (t->rank == 2 && i == round % 50) t->comm->abort(t->world, 2, BS_INTERNAL, "storm");
    t->rc = t->comm->all_reduce(t->handle, &c, &t->err);
    if (t->rc == BS_OK) ck_assert_float_eq(x[round * 7 % 12000], 6.0f);
    free(x);
  }
}
START_TEST(test_storm) {
  test_rank ranks[16];
  for (int i = 0; i < TIMES; ++i) {
    run_ranks(3, storm_body, &i, ranks);
    for (uint32_t r = 0; r < 3; ++r) ck_assert_int_eq(ranks[r].rc, BS_ABORTED);
  }
}
END_TEST

/* A failed world wakes the members of its groups too. */
static void group_body(test_rank *t) {
  uint32_t members[2] = {0, 1};
  void *group = NULL;
  if (t->rank == 2) {
    nap(0.005);
    t->comm->abort(t->world, 2, BS_NO_MEMORY, "no memory for y");
    return;
  }
  must(t, t->comm->group_open(t->handle, members, 2, &group, &t->err));
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, 2, "pair");
  c.in = c.out = room[t->rank];
  if (t->rank == 0) t->rc = t->comm->all_reduce(group, &c, &t->err);
  if (t->rank == 1) t->rc = reduce(t, 2, "world", 0);
  t->comm->rank_close(group);
}
START_TEST(test_group_wakes) {
  test_rank ranks[16];
  for (int i = 0; i < 20; ++i) {
    run_ranks(3, group_body, NULL, ranks);
    says(&ranks[0], BS_ABORTED, "BS-COLL-ABORTED", "'pair'", "rank 2 failed: no memory for y");
    says(&ranks[1], BS_ABORTED, "BS-COLL-ABORTED", "'world'", "rank 2 failed: no memory for y");
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("threads faults");
  TCase *c = tcase_create("faults");
  tcase_add_unchecked_fixture(c, open_comm, close_comm);
  tcase_add_loop_test(c, test_counts_differ, 0, 2);
  tcase_add_test(c, test_kinds_differ);
  tcase_add_test(c, test_pairs_differ);
  tcase_add_loop_test(c, test_late, 0, 2);
  tcase_add_loop_test(c, test_alone, 0, 2);
  tcase_add_test(c, test_abort);
  tcase_add_test(c, test_storm);
  tcase_add_test(c, test_group_wakes);
  suite_add_tcase(s, c);
  return run_suite(s);
}
