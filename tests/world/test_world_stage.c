/* SPDX-License-Identifier: MIT
 * test_world_stage.c - collectives over host memory of a backend whose memory is its own: its addresses are
 * none of the host's, so that a communicator that is given one stops with a signal. */
#include <check.h>

#include "tests/run_tests.h"
#include "world_help.h"

enum { RANKS = 3, ROWS = 4, COLS = 5, GAP = 2 };

/* A [ROWS, cols] f32 tensor whose rows are `gap` elements apart, filled with value(rank, row, col). */
static bs_tensor make(bs_rank *rank, int64_t cols, int64_t gap, bs_error *e) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = 2};
  bs_tensor t;
  d.dims[0] = ROWS;
  d.dims[1] = cols;
  d.strides[0] = cols + gap;
  d.strides[1] = 1;
  ck_assert_int_eq(bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, e), BS_OK);
  return t;
}

static float value(uint32_t rank, int64_t row, int64_t col) {
  return (float)(100 * (int64_t)rank + 10 * row + col);
}

static int32_t read_value(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t stride, bs_error *e) {
  const uint32_t *what = ctx; /* rank, columns */
  (void)cols, (void)e;
  ck_assert_uint_eq(dtype, BS_F32);
  for (int64_t i = 0; i < nrows; ++i)
    for (int64_t c = 0; c < what[1]; ++c) ((float *)out)[i * stride + c] = value(what[0], row + i, c);
  return BS_OK;
}

static void fill(bs_rank *rank, bs_tensor *t, bs_error *e) {
  uint32_t what[2] = {rank_of(rank), (uint32_t)t->dims[1]};
  const bs_source s = {.struct_size = sizeof s,
                       .dtype = BS_F32,
                       .rows = t->dims[0],
                       .cols = t->dims[1],
                       .ctx = what,
                       .read = read_value};
  ck_assert_int_eq(bs_rank_get_api()->tensor_read(rank, &s, 0, NULL, t, e), BS_OK);
}

typedef struct job {
  uint32_t started; /* start and wait in the place of run */
  uint32_t wrong;   /* of all ranks */
} job;

static bs_collective describe(uint32_t kind, uint64_t count, const uint64_t *counts, const char *site) {
  return (bs_collective){.struct_size = sizeof(bs_collective),
                         .kind = kind,
                         .dtype_in = BS_F32,
                         .dtype_out = BS_F32,
                         .rows = ROWS,
                         .count = count,
                         .counts = counts,
                         .ncounts = counts != NULL ? RANKS : 0,
                         .root = kind == BS_COLL_BROADCAST ? 1 : 0,
                         .site = site};
}

static int32_t once(bs_rank *rank, const bs_collective *what, const bs_tensor *in, bs_tensor *out, int start,
                    bs_error *e) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_coll_plan *plan = NULL;
  int32_t rc = api->collective_prepare(rank, what, &plan, e);
  if (rc == BS_OK && start) {
    rc = api->collective_start(plan, in, out, NULL, e);
    if (rc == BS_OK) rc = api->collective_wait(plan, e);
  } else if (rc == BS_OK) {
    rc = api->collective_run(plan, in, out, NULL, e);
  }
  api->collective_release(plan);
  return rc;
}

/* How many elements of `t` are not wanted(row, col, rank). */
static uint32_t differ(bs_rank *rank, const bs_tensor *t, float (*wanted)(int64_t, int64_t, uint32_t),
                       bs_error *e) {
  float got[ROWS * RANKS * COLS];
  uint32_t wrong = 0;
  ck_assert_int_le(t->dims[0] * t->dims[1], ROWS * RANKS * COLS);
  if (bs_rank_copy_out(rank, t, got, e) != BS_OK) return 1;
  for (int64_t r = 0; r < t->dims[0]; ++r)
    for (int64_t c = 0; c < t->dims[1]; ++c)
      wrong += !(got[r * t->dims[1] + c] == wanted(r, c, rank_of(rank)));
  return wrong;
}

static float summed(int64_t row, int64_t col, uint32_t rank) {
  (void)rank;
  return value(0, row, col) + value(1, row, col) + value(2, row, col);
}
static float of_root(int64_t row, int64_t col, uint32_t rank) {
  (void)rank;
  return value(1, row, col);
}
static float gathered(int64_t row, int64_t col, uint32_t rank) {
  (void)rank;
  return value((uint32_t)(col / COLS), row, col % COLS);
}
static float scattered(int64_t row, int64_t col, uint32_t rank) {
  return summed(row, col + (int64_t)rank * COLS, rank);
}
static float own(int64_t row, int64_t col, uint32_t rank) {
  return value(rank, row, col);
}

static int32_t all_kinds(bs_rank *rank, void *arg, bs_error *e) {
  static const uint64_t counts[RANKS] = {COLS, COLS, COLS};
  const bs_rank_api *api = bs_rank_get_api();
  job *j = arg;
  const int start = j->started != 0;
  uint32_t wrong = 0;
  bs_tensor x = make(rank, COLS, GAP, e), y = make(rank, COLS, 0, e), wide = make(rank, RANKS * COLS, GAP, e);
  fill(rank, &x, e);
  fill(rank, &wide, e);
  bs_collective what = describe(BS_COLL_ALL_REDUCE, COLS, NULL, "sum");
  int32_t rc = once(rank, &what, &x, &y, start, e);
  wrong += differ(rank, &y, summed, e);
  what = describe(BS_COLL_REDUCE_SCATTER, 0, counts, "scatter");
  if (rc == BS_OK) rc = once(rank, &what, &wide, &y, start, e);
  wrong += differ(rank, &y, scattered, e);
  what = describe(BS_COLL_ALL_GATHER, 0, counts, "gather");
  if (rc == BS_OK) rc = once(rank, &what, &x, &wide, start, e);
  wrong += differ(rank, &wide, gathered, e);
  what = describe(BS_COLL_BROADCAST, COLS, NULL, "spread");
  if (rc == BS_OK) rc = once(rank, &what, rank_of(rank) == 1 ? &x : NULL, &y, start, e);
  wrong += differ(rank, &y, of_root, e);
  const uint32_t me = rank_of(rank);
  bs_group *alone = NULL;
  if (rc == BS_OK) rc = api->group_open(rank, &me, 1, &alone, e);
  what = describe(BS_COLL_ALL_REDUCE, COLS, NULL, "alone");
  what.group = alone;
  if (rc == BS_OK) rc = once(rank, &what, &x, &y, start, e);
  wrong += differ(rank, &y, own, e);
  what = describe(BS_COLL_ALL_REDUCE, COLS, NULL, "in place");
  if (rc == BS_OK) rc = once(rank, &what, &x, &x, start, e);
  wrong += differ(rank, &x, summed, e);
  const float told = (float)rank_of(rank) + 1.0f; /* of host memory */
  float all[RANKS] = {0};
  what = describe(BS_COLL_ALL_GATHER, 1, NULL, "host");
  what.rows = 1;
  if (rc == BS_OK) rc = bs_rank_collective_host(rank, &what, &told, 1, all, RANKS, e);
  for (int i = 0; i < RANKS; ++i) wrong += !(all[i] == (float)i + 1.0f);
  api->group_close(alone);
  api->tensor_free(rank, &wide);
  api->tensor_free(rank, &y);
  api->tensor_free(rank, &x);
  __atomic_fetch_add(&j->wrong, wrong, __ATOMIC_RELAXED);
  return rc;
}

START_TEST(test_kinds) {
  for (uint32_t started = 0; started < 2; ++started) {
    bs_world_options o = options(RANKS, "evdev");
    job j = {started, 0};
    bs_world *world = world_of(&o);
    run(world, all_kinds, &j, BS_OK);
    ck_assert_uint_eq(j.wrong, 0);
    ck_assert_ptr_nonnull(strstr(bs_world_algorithms(world), "collectives@host/staged"));
    bs_world_destroy(world);
  }
}
END_TEST

/* What a hook changes of the data is what the device gets. */
static void spoil(void *user, uint32_t rank, const bs_coll_call *call) {
  (void)user;
  if (rank == 0 && strcmp(call->site, "sum") == 0) ((float *)call->out)[COLS] += 1.0f;
}

START_TEST(test_hook) {
  bs_world_options o = options(RANKS, "evdev");
  const bs_collective_hook hook = {.after = spoil};
  job j = {0, 0};
  o.hook = &hook;
  run_by(&o, all_kinds, &j, BS_OK);
  ck_assert_uint_eq(j.wrong, 1);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_kinds}, {test_hook}, {0}};
  return run_tests("world_stage", tests, (test_setup){open_context, close_context});
}
