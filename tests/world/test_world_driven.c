/* SPDX-License-Identifier: MIT
 * test_world_driven.c - worlds that a communicator drives by a clock of its own: regions read that clock, a
 * started collective runs beside the ops of its rank, there may be many ranks, and a rank is small. */
#include <malloc.h>

#include "tests/run_tests.h"
#include "world_help.h"

static const bs_rank_api *api;
static void open_all(void) {
  open_plugins("testvirtual", "testalgorithm");
  api = bs_rank_get_api();
}

typedef struct rank_work {
  bs_coll_plan *sum;
  bs_plan *op;
  bs_tensor x;
} rank_work;

static void prepare(bs_rank *rank, rank_work *w, bs_error *e) {
  const bs_tensor_desc d = {
      .struct_size = sizeof d, .dtype = BS_F32, .rank = 2, .dims = {1, 8}, .strides = {8, 1}};
  const bs_tensor_desc *const args[1] = {&d};
  const bs_op_query query = {.struct_size = sizeof query, .nargs = 1, .op = "testwork", .args = args};
  const bs_collective what = {.struct_size = sizeof what,
                              .kind = BS_COLL_ALL_REDUCE,
                              .dtype_in = BS_F32,
                              .rows = 1,
                              .count = 8,
                              .site = "virtual"};
  ck_assert_msg(api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &w->x, e) == BS_OK, "%s", e->message);
  ck_assert_msg(api->op_prepare(rank, &query, NULL, &w->op, e) == BS_OK, "%s", e->message);
  ck_assert_msg(api->collective_prepare(rank, &what, &w->sum, e) == BS_OK, "%s", e->message);
}
static void release(bs_rank *rank, rank_work *w) {
  api->collective_release(w->sum);
  api->op_release(w->op);
  api->tensor_free(rank, &w->x);
}
static void op(rank_work *w, bs_error *e) {
  bs_tensor *const args[1] = {&w->x};
  ck_assert_msg(api->op_run(w->op, args, 1, NULL, e) == BS_OK, "%s", e->message);
}
static double region_ms(bs_rank *rank, uint32_t region) {
  bs_region_stats stats = {.struct_size = sizeof stats};
  bs_error e = {.struct_size = sizeof e};
  ck_assert_int_eq(bs_rank_region_stats(rank, region, &stats, &e), BS_OK);
  return stats.sum_ms;
}

/* An op of 3 ms and a collective of 5: one behind the other 8; the collective started first 5, since the op
 * hides behind it; and two ops 6. */
static int32_t overlap_main(bs_rank *rank, void *arg, bs_error *e) {
  rank_work w;
  (void)arg;
  prepare(rank, &w, e);
  const uint64_t began = bs_rank_clock_ns(rank);
  api->region_begin(rank, BS_REGION_FORWARD);
  op(&w, e);
  ck_assert_int_eq(api->collective_run(w.sum, &w.x, &w.x, NULL, e), BS_OK);
  ck_assert_int_eq(bs_rank_sync(rank, e), BS_OK);
  api->region_end(rank, BS_REGION_FORWARD);
  ck_assert_uint_eq(bs_rank_clock_ns(rank) - began, 8000000);
  for (uint32_t ops = 1; ops <= 2; ++ops) {
    const uint32_t region = ops == 1 ? BS_REGION_BACKWARD : BS_REGION_OPT_STEP;
    api->region_begin(rank, region);
    ck_assert_int_eq(api->collective_start(w.sum, &w.x, &w.x, NULL, e), BS_OK);
    for (uint32_t i = 0; i < ops; ++i) op(&w, e);
    ck_assert_int_eq(api->collective_wait(w.sum, e), BS_OK);
    ck_assert_int_eq(bs_rank_sync(rank, e), BS_OK);
    api->region_end(rank, region);
  }
  release(rank, &w);
  return BS_OK;
}
START_TEST(a_started_collective_hides_behind_an_op) {
  static const uint32_t modes[] = {BS_SYNC_NONE, BS_SYNC_SYNC, BS_SYNC_EVENTS};
  bs_world_options o = options(3, "vdev");
  o.comm = "virtual";
  o.sync_mode = modes[_i];
  bs_world *world = world_of(&o);
  run(world, overlap_main, NULL, BS_OK);
  for (uint32_t r = 0; r < 3; ++r) {
    bs_rank *rank = bs_world_rank(world, r);
    ck_assert_double_eq(region_ms(rank, BS_REGION_FORWARD), 8.0);
    ck_assert_double_eq(region_ms(rank, BS_REGION_BACKWARD), 5.0);
    ck_assert_double_eq(region_ms(rank, BS_REGION_OPT_STEP), 6.0);
    ck_assert_double_eq(region_ms(rank, BS_REGION_BUILD), 0.0); /* never begun */
  }
  bs_world_destroy(world);
}
END_TEST

/* A device without values: the host copies and reduces nothing, and messages have the tensor's dtype. */
static int32_t rounds_main(bs_rank *rank, void *arg, bs_error *e) {
  const bs_tensor_desc d = {
      .struct_size = sizeof d, .dtype = BS_BF16, .rank = 2, .dims = {3, 8}, .strides = {8, 1}};
  const bs_collective what = {.struct_size = sizeof what,
                              .kind = BS_COLL_ALL_REDUCE,
                              .dtype_in = BS_BF16,
                              .rows = 3,
                              .count = 8,
                              .site = "rounds"};
  bs_coll_plan *plan = NULL;
  bs_tensor x;
  (void)arg;
  ck_assert_msg(api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &x, e) == BS_OK, "%s", e->message);
  ck_assert_msg(api->collective_prepare(rank, &what, &plan, e) == BS_OK, "%s", e->message);
  const uint64_t began = bs_rank_clock_ns(rank);
  ck_assert_msg(api->collective_run(plan, &x, &x, NULL, e) == BS_OK, "%s", e->message);
  ck_assert_int_eq(bs_rank_sync(rank, e), BS_OK);
  ck_assert_uint_eq(bs_rank_clock_ns(rank) - began, 9000000); /* 2 (4 - 1) rounds, half of them reduce */
  api->collective_release(plan);
  api->tensor_free(rank, &x);
  return BS_OK;
}
START_TEST(algorithms_run_without_values) {
  bs_world_options o = options(4, "vdev");
  o.comm = "virtual";
  o.algorithm = "testring";
  bs_world *world = world_of(&o);
  run(world, rounds_main, NULL, BS_OK);
  ck_assert_ptr_nonnull(strstr(bs_world_algorithms(world), "all_reduce@algorithm/testring"));
  bs_world_destroy(world);
}
END_TEST

static int32_t real_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)arg, (void)e;
  ck_assert_uint_gt(bs_rank_clock_ns(rank), 0);
  return BS_OK;
}
START_TEST(without_a_clock_it_is_the_machines) {
  bs_world_options o = options(2, "vdev");
  o.comm = "realtime";
  run_by(&o, real_main, NULL, BS_OK);
}
END_TEST

enum { MANY = 4096, KIB = 4 };

/* Regions of a rank that has begun a few, and one of its own; two plans of a gather with a block size a rank.
 */
typedef struct small_ranks {
  uint64_t counts[MANY];
  bs_coll_plan *plans[MANY][2];
} small_ranks;
static int32_t small_main(bs_rank *rank, void *arg, bs_error *e) {
  small_ranks *s = arg;
  for (uint32_t i = 0; i < 40; ++i) { /* more than the reservoir keeps */
    api->region_begin(rank, BS_REGION_FORWARD);
    api->region_end(rank, BS_REGION_FORWARD);
  }
  const uint32_t mine = api->region_named(rank, "mine");
  api->region_begin(rank, mine);
  api->region_end(rank, mine);
  for (uint32_t k = 0; k < 2; ++k) {
    const bs_collective what = {.struct_size = sizeof what,
                                .kind = BS_COLL_ALL_GATHER,
                                .dtype_in = BS_F32,
                                .rows = 1,
                                .count = 5,
                                .counts = k == 0 ? s->counts : NULL,
                                .ncounts = k == 0 ? MANY : 0,
                                .site = "gather"};
    ck_assert_msg(api->collective_prepare(rank, &what, &s->plans[rank_of(rank)][k], e) == BS_OK, "%s",
                  e->message);
  }
  return BS_OK;
}
START_TEST(ranks_are_many_and_small) {
  small_ranks *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  for (uint32_t r = 0; r < MANY; ++r) s->counts[r] = r % 3;
  bs_world_options o = options(MANY, "vdev");
  o.comm = "virtual";
  o.sync_mode = BS_SYNC_NONE; /* as virtual worlds are timed */
  const size_t before = mallinfo2().uordblks;
  bs_world *world = world_of(&o);
  run(world, small_main, s, BS_OK);
  const size_t took = mallinfo2().uordblks - before; /* a list of 4096 sizes has 32 KiB */
  ck_assert_msg(took <= (size_t)MANY * KIB * 1024, "%zu bytes a rank", took / MANY);
  bs_region_stats stats = {.struct_size = sizeof stats};
  ck_assert_int_eq(bs_rank_region_stats(bs_world_rank(world, MANY - 1), BS_REGION_FORWARD, &stats, &err),
                   BS_OK);
  ck_assert_uint_eq(stats.count, 40);
  ck_assert_uint_eq(bs_rank_region_count(bs_world_rank(world, MANY - 1)), BS_REGION_BUILTIN_COUNT_ + 1);
  for (uint32_t r = 0; r < MANY; ++r)
    for (uint32_t k = 0; k < 2; ++k) api->collective_release(s->plans[r][k]);
  bs_world_destroy(world);
  free(s);
}
END_TEST

START_TEST(the_most_ranks_depend_on_the_launch) {
  static const struct {
    const char *comm;
    uint32_t size;
    int32_t code;
    const char *text;
  } cases[] = {{"threads", 1025, BS_CONFIG, "a world of 1025 ranks; 1 to 1024 are possible over threads"},
               {"virtual", (1u << 20) + 1u, BS_CONFIG, "1 to 1048576 are possible over virtual"},
               {"realtime", 13, BS_CONFIG, "1 to 12 are possible over realtime"},
               {"virtual", 0, BS_CONFIG, "a world of 0 ranks"}};
  bs_world_options o = options(cases[_i].size, "vdev");
  bs_world *world = NULL;
  o.comm = cases[_i].comm;
  ck_assert_int_eq(bs_world_create(context, &o, &world, &err), cases[_i].code);
  ck_assert_str_eq(err.id, "BS-WORLD-SIZE");
  ck_assert_msg(strstr(err.message, cases[_i].text) != NULL, "%s", err.message);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_started_collective_hides_behind_an_op, 3}, {algorithms_run_without_values},
                             {without_a_clock_it_is_the_machines},         {ranks_are_many_and_small},
                             {the_most_ranks_depend_on_the_launch, 4},     {0}};
  return run_tests("world_driven", tests, (test_setup){open_all, close_context});
}
