/* SPDX-License-Identifier: MIT
 * test_ccl_times.c - known answers of collective algorithms: messages to the picosecond beside the closed
 * form, and formulas alone. BS_TEST_BIG: 65,536 ranks in 5 s and 1 GiB. */
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "core/base/error.h"
#include "lab/coll/ccl.h"
#include "lab/coll/comm_bench.h"
#include "tests/run_tests.h"

#define MIB (UINT64_C(1) << 20)
#define SUM BS_COLL_ALL_REDUCE

static bs_context *context;

static void open_context(void) {
  bs_error err = BS_ERROR_INIT;
  const bs_context_options o = {.struct_size = sizeof o, .log_level = BS_LOG_ERROR};
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
}
static void close_context(void) {
  bs_context_close(context);
}

static bs_ccl opened(const char *name, const char *const *options, size_t n) {
  bs_error err = BS_ERROR_INIT;
  bs_ccl ccl;
  ck_assert_msg(bs_ccl_open(context, name, options, n, &ccl, &err) == BS_OK, "%s", err.message);
  return ccl;
}

static bs_coll_shape shape_of(const bs_ccl *ccl, uint32_t kind, uint32_t p, uint64_t bytes) {
  return (bs_coll_shape){.struct_size = sizeof(bs_coll_shape),
                         .kind = kind,
                         .world_size = p,
                         .count = bytes / 4,
                         .element_bytes = 4,
                         .options = ccl->options};
}

/* In a node of 8 ranks 1 us and 370 GB/s, between nodes 5 us and 48 GB/s. */
static uint32_t two_classes(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  const int inner = from / 8 == to / 8;
  (void)user;
  out_hops[0] = (sim_hop){.id = (uint64_t)from << 32 | (to + 1u),
                          .latency = inner ? 1000000 : 5000000,
                          .beta_q32 = sim_rate_q32(inner ? 370e9 : 48e9)};
  return 1;
}

/* ---- messages --------------------------------------------------------------------------------- */

enum link { HALF, ONE, PORT, SLOW, LOGGP, LOGGP_O, CLASSES };
static const sim_link links[] = {
    [HALF] = {.a_wire = 500000, .beta_q32 = UINT64_C(20) << 32},
    [ONE] = {.a_wire = 1000000, .beta_q32 = UINT64_C(20) << 32},
    [PORT] = {.a_port = 500000, .beta_q32 = UINT64_C(20) << 32},
    [SLOW] = {.a_wire = 5000000, .beta_q32 = (uint64_t)(4294967296.0 * 1000 / 48 + .5)},
    [LOGGP] = {.model = SIM_LOGGP, .L = 2500000, .o = 1500000, .g = 1000000, .G_q32 = UINT64_C(6000) << 32},
    [LOGGP_O] = {.model = SIM_LOGGP,
                 .L = 2500000,
                 .o = 1500000,
                 .g = 1000000,
                 .G_q32 = UINT64_C(6000) << 32,
                 .O_q32 = UINT64_C(20000) << 32},
    [CLASSES] = {.a_wire = 0},
};

/* ps: of the table of the specification, whose numbers are rows; slack: ps, where a byte takes no whole
 * number of them; closed: the algorithm's formula says the same. */
static const struct {
  int row;
  const char *name, *option;
  uint32_t kind, p;
  uint64_t bytes;
  enum link link;
  uint64_t ps, messages, slack;
  int closed;
} runs[] = {
    {1, "ring", NULL, SUM, 2, MIB, HALF, 21971520, 4, 0, 1},
    {1, "ring", NULL, SUM, 8, MIB, HALF, 43700160, 112, 0, 1},
    {1, "ring", NULL, SUM, 64, MIB, HALF, 104287680, 8064, 0, 1},
    {4, "ring", NULL, SUM, 8, MIB, ONE, 50700160, 112, 0, 1},
    {1, "ring_bidir", NULL, SUM, 64, MIB, HALF, 104287680, 16128, 0, 1},
    {5, "doubling", NULL, SUM, 8, MIB, HALF, 64414560, 24, 0, 1},
    {5, "doubling", NULL, SUM, 64, MIB, HALF, 128829120, 384, 0, 1},
    {6, "halving_doubling", NULL, SUM, 8, MIB, HALF, 39700160, 48, 0, 1},
    {6, "halving_doubling", NULL, SUM, 64, MIB, HALF, 47287680, 768, 0, 1},
    {7, "one_shot", NULL, SUM, 8, MIB, HALF, 147300640, 56, 0, 1},
    {7, "one_shot", NULL, SUM, 64, MIB, HALF, 1321705760, 4032, 0, 1},
    {7, "two_shot", NULL, SUM, 8, MIB, HALF, 37700160, 112, 0, 1},
    {7, "two_shot", NULL, SUM, 64, MIB, HALF, 42287680, 8064, 0, 1},
    {8, "binomial", NULL, SUM, 8, MIB, HALF, 128829120, 14, 0, 1},
    {8, "binomial", NULL, SUM, 64, MIB, HALF, 257658240, 126, 0, 1},
    {9, "chain", "chunks=16", BS_COLL_BROADCAST, 8, MIB, HALF, 32335840, 112, 0, 1},
    {9, "chain", "chunks=16", BS_COLL_BROADCAST, 8, MIB, PORT, 39835840, 112, 0, 0},
    {10, "ring", NULL, BS_COLL_ALL_GATHER, 64, MIB, HALF, 52143840, 4032, 0, 1},
    {10, "ring", NULL, BS_COLL_REDUCE_SCATTER, 64, MIB, HALF, 52143840, 4032, 0, 1},
    {10, "pairwise", NULL, BS_COLL_ALL_TO_ALL, 64, MIB, HALF, 52143840, 4032, 0, 1},
    {11, "torus2d", NULL, SUM, 256, 64 * MIB, HALF, UINT64_C(2703868800), 15360, 0, 1},
    {12, "hierarchical", "outer=halving_doubling", SUM, 1024, 64 * MIB, CLASSES, 748201456, 28672, 40, 0},
    {12, "hierarchical", "outer=ring", SUM, 1024, 64 * MIB, CLASSES, 1948201456, 274432, 300, 0},
    {16, "ring", NULL, SUM, 4, 4096, LOGGP, 69828000, 24, 0, 0},
    /* O of 20 ns a byte: a sender is busy longer than its message is under way, 2(p-1)(2o + (n/p-1)O). */
    {0, "ring", NULL, SUM, 4, 4096, LOGGP_O, 140760000, 24, 0, 0},
    {16, "ring", NULL, SUM, 64, MIB, LOGGP, UINT64_C(13078548000), 8064, 0, 0},
    {17, "halving_doubling", NULL, SUM, 16, MIB, LOGGP, UINT64_C(11840432000), 128, 0, 0},
    {17, "halving_doubling", NULL, SUM, 4096, MIB, LOGGP, UINT64_C(12711696000), 98304, 0, 0},
};

static sim_schedule_result run(const bs_ccl *ccl, const bs_coll_shape *shape, enum link link,
                               sim_schedule_config *more) {
  sim_schedule_config config = more != NULL ? *more : (sim_schedule_config){0};
  sim_schedule_result result = {0};
  bs_error err = BS_ERROR_INIT;
  config.algorithm = ccl->algorithm;
  config.state = ccl->state;
  config.shape = shape;
  config.link = links[link];
  config.route = link == CLASSES ? two_classes : NULL;
  ck_assert_msg(sim_schedule_run(&config, &result, &err) == BS_OK, "[%s] %s", err.id, err.message);
  return result;
}

static double formula(const bs_ccl *ccl, const bs_coll_shape *shape, double alpha_s, double rate) {
  const bs_link link = {.struct_size = sizeof link, .latency_s = alpha_s, .bytes_per_s = rate};
  bs_error err = BS_ERROR_INIT;
  double seconds = -1;
  ck_assert_msg(ccl->algorithm->cost(ccl->state, shape, &link, &seconds, &err) == BS_OK, "%s", err.message);
  return seconds;
}

START_TEST(messages_take_the_known_time) {
  bs_ccl ccl = opened(runs[_i].name, &runs[_i].option, runs[_i].option != NULL);
  const bs_coll_shape shape = shape_of(&ccl, runs[_i].kind, runs[_i].p, runs[_i].bytes);
  for (uint32_t order = SIM_ORDER_K; order <= SIM_ORDER_E; ++order) {
    sim_schedule_config how = {.order = order, .follow = 1};
    const sim_schedule_result r = run(&ccl, &shape, runs[_i].link, &how);
    const double off = fabs((double)r.ps - (double)runs[_i].ps);
    ck_assert_msg(off <= (double)runs[_i].slack, "row %d, %s p=%u order %u: %llu ps, not %llu", runs[_i].row,
                  runs[_i].name, runs[_i].p, order, (unsigned long long)r.ps,
                  (unsigned long long)runs[_i].ps);
    ck_assert_uint_eq(r.messages, runs[_i].messages);
    ck_assert_uint_le(r.latency_ps, r.ps);
  }
  if (runs[_i].closed) {
    const double rate = 50e9, alpha = runs[_i].link == ONE ? 1e-6 : .5e-6;
    ck_assert_double_eq_tol(formula(&ccl, &shape, alpha, rate) * 1e12, (double)runs[_i].ps, .5);
  }
  bs_ccl_free(&ccl);
}
END_TEST

/* Row 13: a flat ring on the slow links; row 3: sums that take time; and a window of few steps, which asks
 * for the schedule again and again, changes nothing. */
START_TEST(windows_and_sums) {
  bs_ccl ring = opened("ring", NULL, 0);
  bs_coll_shape shape = shape_of(&ring, SUM, 128, MIB);
  sim_schedule_config how = {.window = 16};
  const uint64_t whole = run(&ring, &shape, HALF, NULL).ps;
  ck_assert_uint_eq(run(&ring, &shape, HALF, &how).ps, whole);
  shape = shape_of(&ring, SUM, 8, MIB);
  how = (sim_schedule_config){.gamma_q32 = UINT64_C(1) << 32, .follow = 1};
  const sim_schedule_result sums = run(&ring, &shape, HALF, &how);
  ck_assert_uint_eq(sums.ps, 44617664);
  ck_assert_uint_eq(sums.latency_ps, 7000000);
  ck_assert_uint_eq(sums.reduce_ps, 917504);
  shape = shape_of(&ring, SUM, 1024, 64 * MIB);
  ck_assert_double_eq_tol(formula(&ring, &shape, 5e-6, 48e9) * 1e6, 13023.472, .0005);
  bs_ccl_free(&ring);
}
END_TEST

/* Elements that all blocks share evenly. The formula of doubling is a bound: where a rank of a pair that
 * folds meets one that does not, the message of the latter is under way during the fold. */
START_TEST(worlds_that_are_no_power_of_two) {
  static const uint32_t worlds[] = {3, 5, 6, 7, 12, 24};
  bs_ccl halving = opened("halving_doubling", NULL, 0), doubling = opened("doubling", NULL, 0);
  for (int i = 0; i < TEST_COUNT(worlds); ++i) {
    const bs_coll_shape shape = shape_of(&halving, SUM, worlds[i], 5040 * 4);
    const double halved = (double)run(&halving, &shape, HALF, NULL).ps;
    const double doubled = (double)run(&doubling, &shape, HALF, NULL).ps;
    const double bound = formula(&doubling, &shape, .5e-6, 50e9) * 1e12;
    ck_assert_double_eq_tol(halved, formula(&halving, &shape, .5e-6, 50e9) * 1e12, .5);
    ck_assert_double_le(doubled, bound + .5);
    ck_assert_double_ge(doubled, bound - 2 * 500000);
  }
  bs_ccl_free(&halving);
  bs_ccl_free(&doubling);
}
END_TEST

/* A schedule that goes on when it was told that no more steps fit: none is lost. */
static int32_t never_stops(void *state, const bs_coll_shape *shape, uint32_t rank,
                           int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  (void)state, (void)err;
  for (uint32_t round = 0; round < 100; ++round) {
    bs_coll_step step = {.struct_size = sizeof step,
                         .round = round,
                         .action = rank == 0 ? BS_STEP_SEND : BS_STEP_RECV,
                         .peer = 1 - rank,
                         .buffer = rank == 0 ? BS_BUFFER_IN : BS_BUFFER_OUT,
                         .count = shape->count};
    (void)emit(user, &step);
  }
  return BS_OK;
}
START_TEST(no_step_is_lost_behind_a_full_window) {
  const bs_algorithm endless = {
      .struct_size = sizeof endless, .name = "endless", .kinds = UINT64_C(1) << SUM, .schedule = never_stops};
  const bs_ccl ccl = {.algorithm = &endless};
  const bs_coll_shape shape = shape_of(&ccl, SUM, 2, 400);
  sim_schedule_config how = {.window = 16};
  ck_assert_uint_eq(run(&ccl, &shape, HALF, &how).messages, 100);
}
END_TEST

/* Row 15. */
START_TEST(one_rank_is_late) {
  uint64_t ends[64];
  sim_schedule_config how = {.late_rank = 3, .late_ps = 1000000000, .out_ends = ends};
  bs_ccl ring = opened("ring", NULL, 0), doubling = opened("doubling", NULL, 0);
  bs_coll_shape shape = shape_of(&ring, SUM, 8, MIB);
  ck_assert_uint_eq(run(&ring, &shape, HALF, &how).ps, 1043700160);
  shape = shape_of(&doubling, SUM, 64, MIB);
  ck_assert_uint_eq(run(&doubling, &shape, HALF, &how).ps, 1128829120);
  ck_assert_uint_eq(ends[3], 1000000000);
  bs_ccl_free(&ring);
  bs_ccl_free(&doubling);
}
END_TEST

/* Row 14: where one-shot and two-shot take the same time. */
START_TEST(one_shot_and_two_shot_cross) {
  bs_ccl one = opened("one_shot", NULL, 0), two = opened("two_shot", NULL, 0);
  double difference[2];
  for (int i = 0; i < 2; ++i) {
    const bs_coll_shape shape = shape_of(&one, SUM, 8, (uint64_t)i * 4000000);
    difference[i] = formula(&one, &shape, 3e-6, 370e9) - formula(&two, &shape, 3e-6, 370e9);
  }
  ck_assert_double_eq_tol(-difference[0] * 4e6 / (difference[1] - difference[0]), 211428.57, .01);
  bs_ccl_free(&one);
  bs_ccl_free(&two);
}
END_TEST

/* Rows 21 to 24. */
START_TEST(nccl_says_what_its_model_says) {
  static const struct {
    const char *algo, *proto, *nodes;
    uint32_t p;
    double latency_us, rate; /* GB/s of the vector, at a size where a tree reaches all of it */
  } models[] = {{"algo=ring", "proto=LL", "nodes=1", 8, 15.00, 80.571},
                {"algo=ring", "proto=LL128", "nodes=1", 8, 40.60, 189.257},
                {"algo=ring", "proto=Simple", "nodes=1", 8, 56.00, 205.714},
                {"algo=tree", "proto=LL", "nodes=1", 8, 15.20, 43.579},
                {"algo=tree", "proto=LL128", "nodes=1", 8, 31.50, 128.800},
                {"algo=tree", "proto=Simple", "nodes=1", 8, 64.40, 165.600},
                {"algo=tree", "proto=LL", "nodes=3", 24, 25.20, 43.579}};
  static const struct {
    uint64_t bytes;
    double us;
  } chosen[] = {{1024, 15.013}, {65536, 15.813}, {MIB, 28.014}, {16 * MIB, 129.248}, {1024 * MIB, 5275.578}};
  for (int i = 0; i < TEST_COUNT(models); ++i) {
    const char *options[] = {models[i].algo, models[i].proto, models[i].nodes};
    bs_ccl ccl = opened("nccl230", options, 3);
    const bs_coll_shape none = shape_of(&ccl, SUM, models[i].p, 0);
    const bs_coll_shape much = shape_of(&ccl, SUM, models[i].p, 4096 * MIB);
    const double latency = formula(&ccl, &none, 1, 1);
    const double rate = (double)(4096 * MIB) / (formula(&ccl, &much, 1, 1) - latency) * 1e-9;
    ck_assert_double_eq_tol(latency * 1e6, models[i].latency_us, .005);
    ck_assert_double_eq_tol(rate, models[i].rate, .0006);
    bs_ccl_free(&ccl);
  }
  for (int i = 0; i < TEST_COUNT(chosen); ++i) {
    bs_ccl ccl = opened("nccl230", NULL, 0);
    const bs_coll_shape shape = shape_of(&ccl, SUM, 8, chosen[i].bytes);
    ck_assert_double_eq_tol(formula(&ccl, &shape, 1, 1) * 1e6, chosen[i].us, .0006);
    bs_ccl_free(&ccl);
  }
}
END_TEST

/* Row 25: the bus bandwidth of nccl-tests. */
START_TEST(bus_bandwidth_is_that_of_nccl_tests) {
  const double algbw = 8589934592. / 20299e-6 * 1e-9;
  ck_assert_double_eq_tol(algbw, 423.17, .005);
  ck_assert_double_eq_tol(algbw * bs_bus_factor(SUM, 72), 834.59, .005);
  ck_assert_double_eq(bs_bus_factor(BS_COLL_ALL_GATHER, 4), .75);
  ck_assert_double_eq(bs_bus_factor(BS_COLL_BROADCAST, 4), 1);
}
END_TEST

/* Row 27: between the lower bound and that of the two trees. */
START_TEST(two_trees_keep_their_bound) {
  static const struct {
    uint32_t p;
    const char *chunks;
  } worlds[] = {{2, "chunks=8"}, {8, "chunks=8"}, {64, "chunks=32"}, {100, "chunks=16"}, {1000, "chunks=40"}};
  for (int i = 0; i < TEST_COUNT(worlds); ++i)
    for (uint32_t kind = SUM; kind <= BS_COLL_BROADCAST; kind += BS_COLL_BROADCAST) {
      bs_ccl ccl = opened("double_tree", &worlds[i].chunks, 1);
      const bs_coll_shape shape = shape_of(&ccl, kind, worlds[i].p, MIB);
      const double us = (double)run(&ccl, &shape, HALF, NULL).ps * 1e-6;
      ck_assert_double_le(us, formula(&ccl, &shape, .5e-6, 50e9) * 1e6);
      ck_assert_double_ge(us, MIB / 50e9 * 1e6);
      ck_assert_double_ge(us, .5 * ceil(log2(worlds[i].p)));
      bs_ccl_free(&ccl);
    }
}
END_TEST

/* A9, rows 5 and 6: time of the machine and memory are bounds of BS_TEST_BIG alone. */
START_TEST(many_ranks) {
  const int big = getenv("BS_TEST_BIG") != NULL;
  const uint32_t p = big ? 65536 : 4096, lg = big ? 16 : 12;
  bs_ccl ccl = opened("doubling", NULL, 0);
  const bs_coll_shape shape = shape_of(&ccl, SUM, p, MIB);
  const sim_schedule_result r = run(&ccl, &shape, HALF, NULL);
  struct rusage used;
  ck_assert_uint_eq(r.ps, lg * UINT64_C(21471520));
  ck_assert_uint_eq(r.messages, (uint64_t)lg * p);
  getrusage(RUSAGE_SELF, &used);
  if (big && !BS_SLOW) {
    const double cpu = (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec;
    ck_assert_double_le(cpu, 5);
    ck_assert_int_le(used.ru_maxrss, 1 << 20);
  }
  bs_ccl_free(&ccl);
  ccl = opened("halving_doubling", NULL, 0);
  if (big) ck_assert_uint_eq(run(&ccl, &shape, HALF, NULL).ps, 57942400);
  bs_ccl_free(&ccl);
}
END_TEST

int main(void) {
  const test_case tests[] = {{messages_take_the_known_time, TEST_COUNT(runs)},
                             {windows_and_sums},
                             {no_step_is_lost_behind_a_full_window},
                             {worlds_that_are_no_power_of_two},
                             {one_rank_is_late},
                             {one_shot_and_two_shot_cross},
                             {nccl_says_what_its_model_says},
                             {bus_bandwidth_is_that_of_nccl_tests},
                             {two_trees_keep_their_bound},
                             {many_ranks},
                             {0}};
  return run_tests("ccl_times", tests, (test_setup){open_context, close_context, 120});
}
