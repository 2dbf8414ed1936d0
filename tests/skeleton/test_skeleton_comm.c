/* SPDX-License-Identifier: MIT
 * test_skeleton_comm.c - the skeleton of a communicator against a plain reference: reductions in rank order
 * in any float dtype, in place and with gaps, gathers, broadcasts; and what it says when ranks differ, are
 * late or fail. */
#include <stdatomic.h>

#include "skeleton_test.h"
#include "tests/comm/ranks.h"
#include "tests/run_tests.h"

static void setup(void) {
  bs_error err = BS_ERROR_INIT;
  test_context = skeleton_context();
  ck_assert_msg(bs_find_comm(test_context, "skel_communicator", &test_comm, &test_state, &err) == BS_OK, "%s",
                err.message);
}
static void teardown(void) {
  bs_context_close(test_context);
}

static const uint32_t worlds[] = {1, 2, 3, 4, 7};
enum { WORLDS = 5 };

/* ---- numbers -------------------------------------------------------------------------------- */

static void one_all_reduce(test_rank *t, const uint32_t dtypes[3], uint64_t rows, uint64_t count, int64_t pad,
                           int in_place) {
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, dtypes[0], rows, count, "reduce");
  c.reduce_dtype = dtypes[1];
  c.dtype_out = dtypes[2];
  c.in_stride = (int64_t)count + pad;
  c.out_stride = in_place ? c.in_stride : (int64_t)count + 2 * pad;
  void *x = calloc(8, rows * (uint64_t)c.in_stride + 1);
  void *y = in_place ? x : calloc(8, rows * (uint64_t)c.out_stride + 1);
  fill(dtypes[0], x, t->rank, rows, count, c.in_stride);
  c.in = x;
  c.out = y;
  must(t, t->comm->all_reduce(t->handle, &c, &t->err));
  for (uint64_t i = 0; i < rows * count; i++) {
    const int64_t at = (int64_t)(i / count) * c.out_stride + (int64_t)(i % count);
    const double got = bs_load_f64(dtypes[2], y, at);
    const double want = reduced(dtypes[0], dtypes[1], dtypes[2], t->size, i);
    ck_assert_msg(got == want, "rank %u of %u, %04x in %04x to %04x, element %llu: %.17g, not %.17g", t->rank,
                  t->size, dtypes[0], dtypes[1], dtypes[2], (unsigned long long)i, got, want);
  }
  if (y != x) free(y);
  free(x);
}

static void all_reduce_body(test_rank *t) {
  static const uint32_t dtypes[][3] = {{BS_F32, BS_F32, BS_F32},    {BS_F64, BS_F64, BS_F64},
                                       {BS_BF16, BS_BF16, BS_BF16}, {BS_F16, BS_F16, BS_F16},
                                       {BS_BF16, BS_F32, BS_BF16},  {BS_F32, BS_BF16, BS_F32},
                                       {BS_F32, BS_F32, BS_BF16},   {BS_F32, BS_F64, BS_F16}};
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    const int same = dtypes[d][0] == dtypes[d][2];
    one_all_reduce(t, dtypes[d], 1, 0, 0, 0);
    one_all_reduce(t, dtypes[d], 1, 1, 0, same);
    one_all_reduce(t, dtypes[d], 3, 13, 3, 0);
    one_all_reduce(t, dtypes[d], 3, 13, 3, same);
    one_all_reduce(t, dtypes[d], 2, 700, 1, 0); /* more than one piece */
  }
}
START_TEST(all_reduces) {
  test_rank ranks[16];
  run_ranks(worlds[_i], all_reduce_body, NULL, ranks);
}
END_TEST

static void min_max_body(test_rank *t) {
  float x = t->rank == 1 ? -3.0f : (float)t->rank, y = 0.0f;
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, 1, "extreme");
  c.in = &x;
  c.out = &y;
  c.reduce_op = BS_REDUCE_MAX;
  must(t, t->comm->all_reduce(t->handle, &c, &t->err));
  ck_assert_float_eq(y, (float)(t->size - 1));
  c.reduce_op = BS_REDUCE_MIN;
  must(t, t->comm->all_reduce(t->handle, &c, &t->err));
  ck_assert_float_eq(y, -3.0f);
}
START_TEST(extremes) {
  test_rank ranks[16];
  run_ranks(4, min_max_body, NULL, ranks);
}
END_TEST

/* Uneven blocks, two rows, in place: in is the own block of out. Then a broadcast from the last rank. */
static void move_body(test_rank *t) {
  uint64_t counts[16], total = 0, first = 0;
  float all[256] = {0}, told[8] = {0};
  for (uint32_t r = 0; r < t->size; r++) {
    counts[r] = (r * 2 + 1) % 4;
    if (r < t->rank) first += counts[r];
    total += counts[r];
  }
  bs_coll_call c = make_call(BS_COLL_ALL_GATHER, BS_F32, 2, 0, "gather");
  c.counts = counts;
  c.in_stride = c.out_stride = (int64_t)total;
  for (uint64_t i = 0; i < counts[t->rank]; i++)
    for (uint64_t row = 0; row < 2; row++)
      all[row * total + first + i] = (float)(100 * t->rank + 10 * row + i);
  c.in = all + first;
  c.out = all;
  must(t, t->comm->all_gather(t->handle, &c, &t->err));
  for (uint64_t row = 0, at = 0; row < 2; row++)
    for (uint32_t r = 0; r < t->size; r++)
      for (uint64_t i = 0; i < counts[r]; i++, at++)
        ck_assert_float_eq(all[at], (float)(100 * r + 10 * row + i));
  c = make_call(BS_COLL_BROADCAST, BS_F32, 1, 8, "tell");
  c.root = t->size - 1;
  for (int i = 0; i < 8 && t->rank == c.root; i++) told[i] = (float)i + 0.5f;
  c.in = c.out = told;
  must(t, t->comm->broadcast(t->handle, &c, &t->err));
  for (int i = 0; i < 8; i++) ck_assert_float_eq(told[i], (float)i + 0.5f);
}
START_TEST(moves) {
  test_rank ranks[16];
  run_ranks(worlds[_i], move_body, NULL, ranks);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------- */

static int32_t reduce(test_rank *t, uint64_t n, const char *site, int64_t timeout_ns) {
  static float room[16][64];
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, n, site);
  c.in = c.out = room[t->rank];
  if (timeout_ns > 0) c.timeout_ns = timeout_ns;
  return t->comm->all_reduce(t->handle, &c, &t->err);
}
static void says(const test_rank *t, int32_t code, const char *id, const char *a, const char *b) {
  ck_assert_msg(t->rc == code && t->err.code == code, "rank %u: %d: %s", t->rank, t->rc, t->err.message);
  ck_assert_str_eq(t->err.id, id);
  ck_assert_has(t->err.message, a);
  ck_assert_has(t->err.message, b);
}

/* Another count, or only another call site. */
static void differ_body(test_rank *t) {
  const uint64_t n = *(const uint64_t *)t->arg;
  must(t, reduce(t, 4, "same.site", 0));
  t->rc = t->rank == 1 ? reduce(t, 4, "second.site", 0) : reduce(t, n, "first.site", 0);
}
START_TEST(ranks_that_differ) {
  static const char *const id = "BS-SKEL-COMMUNICATOR-MISMATCH";
  const uint64_t n = _i == 0 ? 5 : 4;
  test_rank ranks[16];
  for (int i = 0; i < 50; i++) {
    run_ranks(2, differ_body, (void *)(uintptr_t)&n, ranks);
    for (uint32_t r = 0; r < 2; r++) {
      says(&ranks[r], BS_MISMATCH, id, n == 5 ? "rank 0 called all_reduce 1x5" : "all_reduce 1x4",
           "'first.site'");
      says(&ranks[r], BS_MISMATCH, id, "rank 1 all_reduce 1x4", "'second.site'");
    }
  }
}
END_TEST

/* Rank 1 does not come: the others say so, and when it comes it learns that the world has failed. */
#define LATE_NS INT64_C(100000000)
static int64_t began[3];
static atomic_int gave_up;
static void late_body(test_rank *t) {
  const struct timespec nap = {0, 1000000};
  while (t->rank == 1 && atomic_load(&gave_up) < 2) nanosleep(&nap, NULL);
  began[t->rank] = clock_ns();
  t->rc = reduce(t, 4, "late.site", t->rank == 1 ? 0 : LATE_NS);
  atomic_fetch_add(&gave_up, 1);
}
START_TEST(a_rank_that_is_late) {
  test_rank ranks[16];
  int turn = 0;
  do {
    ck_assert_int_lt(turn++, FAIR_TURNS);
    atomic_store(&gave_up, 0);
    run_ranks(3, late_body, NULL, ranks);
  } while (!together(began[0], began[2], LATE_NS));
  for (uint32_t r = 0; r < 3; r += 2)
    says(&ranks[r], BS_DEADLINE, "BS-SKEL-COMMUNICATOR-DEADLINE", "0.1 s passed in all_reduce at 'late.site'",
         "missing: rank 1");
  says(&ranks[1], BS_ABORTED, "BS-SKEL-COMMUNICATOR-ABORTED", "missing: rank 1", "");
}
END_TEST

static void abort_body(test_rank *t) {
  if (t->rank == 2) {
    t->comm->abort(t->world, 2, BS_NUMERIC, "found a NaN");
    t->rc = reduce(t, 4, "after", 0);
    return;
  }
  bs_coll_call c = make_call(BS_COLL_BARRIER, BS_F32, 0, 0, "waiting");
  t->rc = t->comm->barrier(t->handle, &c, &t->err);
}
START_TEST(a_rank_that_fails) {
  test_rank ranks[16];
  for (int i = 0; i < 100; i++) {
    run_ranks(3, abort_body, NULL, ranks);
    for (uint32_t r = 0; r < 3; r++)
      says(&ranks[r], BS_ABORTED, "BS-SKEL-COMMUNICATOR-ABORTED", "rank 2 failed", "found a NaN");
  }
}
END_TEST

/* Refused at once, with nobody waiting; what has no slot is refused by the host. */
static void refused_body(test_rank *t) {
  int32_t x[4] = {0};
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_I32, 1, 4, "integers");
  c.in = c.out = x;
  t->rc = t->rank == 0 ? t->comm->all_reduce(t->handle, &c, &t->err) : BS_OK;
}
START_TEST(what_is_not_served) {
  test_rank ranks[16];
  run_ranks(2, refused_body, NULL, ranks);
  says(&ranks[0], BS_UNSUPPORTED, "BS-SKEL-COMMUNICATOR-DTYPE", "reduces floats only", "0x0020");
  ck_assert_ptr_null((void *)(uintptr_t)test_comm->reduce_scatter);
  ck_assert_ptr_null((void *)(uintptr_t)test_comm->group_open);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {all_reduces, WORLDS}, {extremes},          {moves, WORLDS},      {ranks_that_differ, 2},
      {a_rank_that_is_late}, {a_rank_that_fails}, {what_is_not_served}, {0}};
  return run_tests("skeleton_comm", tests, (test_setup){setup, teardown});
}
