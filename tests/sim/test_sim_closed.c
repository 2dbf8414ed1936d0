/* SPDX-License-Identifier: MIT
 * test_sim_closed.c - closed forms of collectives and the cost of ops, to the picosecond: rows 1 to 4, 10 and
 * 26 of the known answers, and what is at the edges. */
#include <string.h>

#include "blockshock/comm.h"
#include "sim/closed.h"
#include "sim/cost.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

#define U UINT64_C(262144) /* f32: 1 MiB */

static const struct {
  const char *what;
  sim_closed_call call;
  double alpha_us, GBps, gamma_s;
  sim_closed want; /* ps */
} rows[] = {
    {"row 1, P=2", {BS_COLL_ALL_REDUCE, 2, 4, U, 0, 0}, 0.5, 50, 0, {1000000, 20971520, 0, 4}},
    {"row 1, P=8", {BS_COLL_ALL_REDUCE, 8, 4, U, 0, 0}, 0.5, 50, 0, {7000000, 36700160, 0, 112}},
    {"row 1, P=64", {BS_COLL_ALL_REDUCE, 64, 4, U, 0, 0}, 0.5, 50, 0, {63000000, 41287680, 0, 8064}},
    {"row 2, P=1024", {BS_COLL_ALL_REDUCE, 1024, 4, U, 0, 0}, 0.5, 50, 0, {1023000000, 41902080, 0, 2095104}},
    {"row 2, P=4096",
     {BS_COLL_ALL_REDUCE, 4096, 4, U, 0, 0},
     0.5,
     50,
     0,
     {4095000000, 41932800, 0, 33546240}},
    {"row 3, gamma", {BS_COLL_ALL_REDUCE, 8, 4, U, 0, 0}, 0.5, 50, 1e-12, {7000000, 36700160, 917504, 112}},
    {"row 4, alpha", {BS_COLL_ALL_REDUCE, 8, 4, U, 0, 0}, 1.0, 50, 0, {14000000, 36700160, 0, 112}},
    {"row 10, all_gather",
     {BS_COLL_ALL_GATHER, 64, 4, 0, U / 64, 0},
     0.5,
     50,
     0,
     {31500000, 20643840, 0, 4032}},
    {"row 10, all_to_all",
     {BS_COLL_ALL_TO_ALL, 64, 4, 0, 0, UINT64_C(63) * 16384 * 20},
     0.5,
     50,
     0,
     {31500000, 20643840, 0, 4032}},
    {"reduce_scatter",
     {BS_COLL_REDUCE_SCATTER, 8, 4, 0, U / 8, 0},
     0.5,
     50,
     1e-12,
     {3500000, 18350080, 917504, 56}},
    {"blocks that are not even: the largest",
     {BS_COLL_ALL_REDUCE, 3, 4, 10, 0, 0},
     0,
     1,
     0,
     {0, 64000, 0, 12}},
    {"fewer elements than ranks", {BS_COLL_ALL_REDUCE, 8, 4, 1, 0, 0}, 0, 1, 0, {0, 56000, 0, 112}},
    {"broadcast", {BS_COLL_BROADCAST, 5, 1, 1000, 0, 0}, 1, 1, 0, {3000000, 3000000, 0, 4}},
    {"barrier", {BS_COLL_BARRIER, 5, 1, 0, 0, 0}, 1, 1, 0, {3000000, 0, 0, 15}},
    {"send", {BS_COLL_SEND, 5, 2, 1000, 0, 0}, 1, 1, 0, {1000000, 2000000, 0, 1}},
    {"one rank", {BS_COLL_ALL_REDUCE, 1, 4, U, 0, 0}, 1, 1, 0, {0, 0, 0, 0}},
    {"no elements", {BS_COLL_ALL_REDUCE, 2, 4, 0, 0, 0}, 1, 1, 0, {2000000, 0, 0, 4}},
    {"more than there is time",
     {BS_COLL_ALL_REDUCE, 2, 8, UINT64_MAX / 4, 0, 0},
     1,
     1,
     0,
     {2000000, SIM_NEVER, 0, 4}},
};

START_TEST(closed_forms) {
  const sim_wire wire = {.alpha = sim_seconds_ps(rows[_i].alpha_us * 1e-6),
                         .beta_q32 = sim_rate_q32(rows[_i].GBps * 1e9),
                         .gamma_q32 = rows[_i].gamma_s > 0 ? sim_rate_q32(1.0 / rows[_i].gamma_s) : 0};
  sim_closed got;
  const sim_closed *want = &rows[_i].want;
  sim_closed_of(&wire, &rows[_i].call, &got);
  ck_assert_msg(got.latency == want->latency && got.wire == want->wire && got.reduce == want->reduce &&
                    got.messages == want->messages,
                "%s: %llu %llu %llu, %llu messages", rows[_i].what, (unsigned long long)got.latency,
                (unsigned long long)got.wire, (unsigned long long)got.reduce,
                (unsigned long long)got.messages);
}
END_TEST

static const struct {
  sim_roof roof;
  uint64_t flops, bytes, compute, memory, run;
} ops[] = {
    /* row 26: 8192^3 bf16 on 989.4 TFLOP/s and 3.35 TB/s */
    {{989400000000000, 3350000000000, 0, SIM_ROOFLINE_MAX, 0},
     UINT64_C(1099511627776),
     UINT64_C(402653184),
     1111291316,
     120194980,
     1111291316},
    {{1000000000000, 1000000000000, 0, SIM_ROOFLINE_MAX, 0}, 5, 7, 5, 7, 7},
    {{0, 0, 0, SIM_ROOFLINE_MAX, 0}, 5, 7, 0, 0, 0},
    {{1000000000000, 1000000000000, 0, SIM_ROOFLINE_P6, 0}, 1000000, 1000000, 1000000, 1000000, 1122462},
    {{1000000000000, 1000000000000, 0, SIM_ROOFLINE_P6, 0}, 1000000, 0, 1000000, 0, 1000000},
    /* 4 ranks have 2 bytes a ps together, one of them has 1: 32 bytes in 16 ps. Alone 8 in 8. */
    {{1000000000000, 1000000000000, 0, SIM_ROOFLINE_MAX, 4, 2000000000000}, 5, 8, 5, 16, 16},
    {{1000000000000, 1000000000000, 0, SIM_ROOFLINE_MAX, 0, 2000000000000}, 5, 8, 5, 8, 8},
    {{0, 0, 0, SIM_ROOFLINE_MAX, 3, 1000000000000}, 5, 7, 0, 21, 21},
    {{1, 1, 0, SIM_ROOFLINE_MAX, 2, 1}, 0, UINT64_MAX, 0, SIM_NEVER, SIM_NEVER},
    {{1, 1, 0, SIM_ROOFLINE_MAX, 0}, UINT64_MAX, 1, SIM_NEVER, 1000000000000, SIM_NEVER},
};

START_TEST(costs_of_ops) {
  sim_op_time t;
  sim_op_cost(&ops[_i].roof, ops[_i].flops, ops[_i].bytes, &t);
  ck_assert_uint_eq(t.compute, ops[_i].compute);
  ck_assert_uint_eq(t.memory, ops[_i].memory);
  ck_assert_uint_eq(t.run, ops[_i].run);
}
END_TEST

/* Terms add up to the time, whatever follows whatever. */
START_TEST(clocks_know_what_they_were_spent_on) {
  sim_time a = {.now = 100}, b = {.now = 100};
  sim_time_spend(&a, SIM_COMPUTE, 30);
  sim_time_spend(&b, SIM_WIRE, 50);
  sim_time_follow(&a, &b); /* a stream waits for another: its time is that one's */
  ck_assert(a.now == 150 && a.own[SIM_COMPUTE] == 0 && a.own[SIM_WIRE] == 50);
  sim_time c = {.now = 120};
  c.own[SIM_MEMORY] = c.path[SIM_MEMORY] = 20;
  sim_time_await(&c, &a); /* a rank waits for another one: its own time is a wait, the path is the other's */
  ck_assert(c.now == 150 && c.own[SIM_MEMORY] == 20 && c.own[SIM_WAIT] == 30);
  ck_assert(c.path[SIM_MEMORY] == 0 && c.path[SIM_WIRE] == 50 && c.path[SIM_WAIT] == 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{closed_forms, TEST_COUNT(rows)},
                             {costs_of_ops, TEST_COUNT(ops)},
                             {clocks_know_what_they_were_spent_on},
                             {0}};
  return run_tests("sim_closed", tests, (test_setup){.timeout = 60});
}
