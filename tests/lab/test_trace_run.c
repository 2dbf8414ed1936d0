/* SPDX-License-Identifier: MIT
 * test_trace_run.c - traces on a simulated machine: known answers to the picosecond, the order of nodes on a
 * processor and a port, and traces that cannot go on, with the whole text. */
#include "core/base/error.h"
#include "formats/goal.h"
#include "lab/sim/trace_machine.h"
#include "tests/formats/files.h"
#include "tests/run_tests.h"

#define MIB (UINT64_C(1) << 20)

/* 0.5 us and 50 GB/s; 1e12 FLOP/s, 1e11 B/s and 1 us an op. */
static const bs_trace_machine flat = {
    .roof = {.flops = UINT64_C(1000000000000), .mem_Bps = UINT64_C(100000000000), .launch = 1000000},
    .wire = {500000, UINT64_C(20) << 32, 0},
    .link = {.a_wire = 500000, .beta_q32 = UINT64_C(20) << 32}};

static bs_trace_rank ranks[4096];
static bs_trace_result result;
static bs_error err = BS_ERROR_INIT;

static uint32_t add(bs_et *et, bs_et_node n, int64_t need) {
  uint32_t index = 0;
  n.name = "";
  n.id = et->n_nodes;
  if (n.kind != BS_ET_CALC) n.ps = BS_ET_NO_TIME;
  ck_assert_int_eq(bs_et_add(et, &n, &index, &err), BS_OK);
  if (need >= 0) ck_assert_int_eq(bs_et_need_add(et, index, (uint32_t)need, 0, &err), BS_OK);
  return index;
}

/* ---- schedules of messages ---------------------------------------------------------------------- */

/* A ring's all-reduce; halving and doubling; a binomial broadcast: the step s of a rank. 0: it has ended. */
typedef int step_fn(uint32_t p, uint64_t bytes, uint32_t rank, uint32_t s, bs_et_node *send,
                    bs_et_node *recv);

static int ring(uint32_t p, uint64_t bytes, uint32_t rank, uint32_t s, bs_et_node *send, bs_et_node *recv) {
  *send = (bs_et_node){.kind = BS_ET_SEND, .peer = (rank + 1) % p, .bytes = bytes / p};
  *recv = (bs_et_node){.kind = BS_ET_RECV, .peer = (rank + p - 1) % p, .bytes = bytes / p};
  return s < 2 * (p - 1);
}

static int halving(uint32_t p, uint64_t bytes, uint32_t rank, uint32_t s, bs_et_node *send,
                   bs_et_node *recv) {
  uint32_t lg = 0;
  while (UINT32_C(1) << lg < p) lg++;
  const uint32_t level = s < lg ? s : 2 * lg - 1 - s, peer = rank ^ (p >> (level + 1));
  *send = (bs_et_node){.kind = BS_ET_SEND, .peer = peer, .tag = s, .bytes = bytes >> (level + 1)};
  *recv = *send;
  recv->kind = BS_ET_RECV;
  return s < 2 * lg;
}

static void make_steps(bs_et *et, step_fn *step, uint32_t p, uint64_t bytes) {
  bs_et_node send, recv;
  ck_assert_int_eq(bs_et_begin(et, p, &err), BS_OK);
  for (uint32_t r = 0; r < p; r++) {
    int64_t last = -1;
    for (uint32_t s = 0; step(p, bytes, r, s, &send, &recv); s++) {
      send.rank = recv.rank = r;
      add(et, send, last);
      last = add(et, recv, last);
    }
  }
  ck_assert_int_eq(bs_et_end(et, &err), BS_OK);
}

/* L 2500, o 1500, g 1000, G 6 ns. Rows 16 and 17 of the known answers; and rows 1 and 6 by alpha and beta. */
static const struct {
  step_fn *step;
  uint32_t p;
  uint64_t bytes, ps;
  int loggp;
} rows[] = {{ring, 4, 4096, 69828000, 1},
            {ring, 4, MIB, UINT64_C(9470148000), 1},
            {ring, 8, MIB, UINT64_C(11086964000), 1},
            {ring, 16, MIB, UINT64_C(11961300000), 1},
            {ring, 64, MIB, UINT64_C(13078548000), 1},
            {ring, 256, MIB, UINT64_C(15335700000), 1},
            {ring, 1024, MIB, UINT64_C(23811348000), 1},
            {halving, 16, MIB, UINT64_C(11840432000), 1},
            {halving, 64, MIB, UINT64_C(12452232000), 1},
            {halving, 4096, MIB, UINT64_C(12711696000), 1},
            {ring, 8, MIB, 43700160, 0},
            {halving, 64, MIB, 47287680, 0}};

START_TEST(schedules_take_their_known_times) {
  bs_et et, back;
  uint64_t rounded = 0;
  bs_trace_machine m = flat;
  if (rows[_i].p > 255 && getenv("BS_TEST_BIG") == NULL) return;
  if (rows[_i].loggp) ck_assert_int_eq(bs_trace_loggp("2500:1500:1000:6", &m, &err), BS_OK);
  make_steps(&et, rows[_i].step, rows[_i].p, rows[_i].bytes);
  /* The trace goes through a GOAL file. */
  ck_assert_int_eq(bs_goal_write(&et, files_path("a.goal"), &rounded, &err), BS_OK);
  ck_assert_int_eq(bs_goal_read(files_path("a.goal"), &back, &err), BS_OK);
  ck_assert_int_eq(bs_et_end(&back, &err), BS_OK);
  ck_assert_msg(bs_trace_run(&back, &m, BS_TRACE_MODEL, ranks, &result, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(result.ps, rows[_i].ps);
  ck_assert_uint_eq(result.messages, back.n_nodes / 2);
  for (uint32_t r = 0; r < back.n_ranks; r++)
    ck_assert(ranks[r].end == ranks[r].exposed && ranks[r].compute == 0 && ranks[r].comm == ranks[r].end);
  bs_et_free(&et);
  bs_et_free(&back);
}
END_TEST

/* 1 B to 32 ranks, as LogGOPSim's binary_tree_32.goal: rank r sends to r + 2^k for each 2^k above r. */
START_TEST(a_broadcast_to_32) {
  bs_et et;
  bs_trace_machine m = flat;
  ck_assert_int_eq(bs_trace_loggp("2500:1500:1000:6", &m, &err), BS_OK);
  ck_assert_int_eq(bs_et_begin(&et, 32, &err), BS_OK);
  for (uint32_t r = 0; r < 32; r++) {
    uint32_t top = 1;
    int64_t got = -1;
    while (top <= r) top *= 2;
    if (r > 0)
      got = add(&et, (bs_et_node){.rank = r, .kind = BS_ET_RECV, .peer = r - top / 2, .bytes = 1}, -1);
    for (; r + top < 32; top *= 2)
      add(&et, (bs_et_node){.rank = r, .kind = BS_ET_SEND, .peer = r + top, .bytes = 1}, got);
  }
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert_msg(bs_trace_run(&et, &m, BS_TRACE_MODEL, ranks, &result, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(result.ps, 27500000);
  ck_assert(result.last_rank == 31 && ranks[0].end == 7500000 && result.messages == 31);
  bs_et_free(&et);
}
END_TEST

/* ---- collectives -------------------------------------------------------------------------------- */

/* The closed form of each for 1 MiB on four ranks, 5.24288 us a quarter; K15. */
static const struct {
  uint32_t coll;
  uint64_t ps;
} colls[] = {{BS_ET_ALL_REDUCE, 34457280},    {BS_ET_ALL_GATHER, 3 * (500000 + 20971520)},
             {BS_ET_ALL_TO_ALL, 17228640},    {BS_ET_REDUCE_SCATTER, 17228640},
             {BS_ET_BROADCAST, 2 * 21471520}, {BS_ET_REDUCE, 2 * 21471520},
             {BS_ET_BARRIER, 2 * 500000},     {BS_ET_REDUCE_SCATTER_BLOCK, 17228640}};

START_TEST(collectives_take_their_closed_form) {
  bs_et et;
  ck_assert_int_eq(bs_et_begin(&et, 4, &err), BS_OK);
  for (uint32_t r = 0; r < 4; r++)
    add(&et, (bs_et_node){.rank = r, .kind = BS_ET_COLL, .coll = colls[_i].coll, .bytes = MIB}, -1);
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert_msg(bs_trace_run(&et, &flat, BS_TRACE_MODEL, ranks, &result, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(result.ps, colls[_i].ps);
  ck_assert(result.collectives == 1 && et.nodes[3].ps == colls[_i].ps);
  bs_et_free(&et);
}
END_TEST

/* Ranks 0 and 1 are a group, 2 and 3 another; then all meet. Rank 3 works 7 us first. Nodes of a rank that
 * need nothing come together, and take the wire one after another. */
START_TEST(groups_meet_apart_and_one_after_another) {
  bs_et et;
  uint32_t group[4];
  ck_assert_int_eq(bs_et_begin(&et, 4, &err), BS_OK);
  for (uint32_t r = 0; r < 4; r++)
    ck_assert_int_eq(bs_et_group_of(&et, r < 2 ? "a" : "b", 1, &group[r], &err), BS_OK);
  for (uint32_t r = 0; r < 4; r++) {
    int64_t need = -1;
    if (r == 3) need = add(&et, (bs_et_node){.rank = r, .ps = 7000000}, -1);
    add(&et, (bs_et_node){.rank = r, .kind = BS_ET_COLL, .group = group[r], .bytes = 2 * 50000}, need);
    add(&et, (bs_et_node){.rank = r, .kind = BS_ET_COLL, .coll = BS_ET_BARRIER}, -1);
  }
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert_msg(bs_trace_run(&et, &flat, BS_TRACE_MODEL, ranks, &result, &err) == BS_OK, "%s", err.message);
  /* 2 (0.5 + 1 us) in each group. The barrier of all comes at 0, after the group of 0 and 1: 3 to 4 us. */
  ck_assert_uint_eq(et.nodes[0].start + et.nodes[0].ps, 3000000);
  ck_assert_uint_eq(et.nodes[1].start + et.nodes[1].ps, 4000000);
  ck_assert_uint_eq(result.ps, 10000000);
  ck_assert(ranks[3].compute == 7000000 && ranks[3].exposed == 3000000 && ranks[3].comm == 7000000);
  bs_et_free(&et);
}
END_TEST

/* ---- order -------------------------------------------------------------------------------------- */

/* A text of GOAL on `flat`, or with LogGP; the last node of each case ends at `ps`. */
static const struct {
  const char *text;
  const char *loggp;
  uint64_t ps;
} orders[] = {
    /* One processor takes its work one after another, two take it together. */
    {"num_ranks 1\nrank 0 {\na: calc 100\nb: calc 100\nc: calc 100 cpu 1\n}\n", NULL, 200000},
    /* irequires: c begins with b, which begins when a has ended. */
    {"num_ranks 1\nrank 0 {\na: calc 100\nb: calc 100\nc: calc 500 cpu 1\nb requires a\nc irequires b\n}\n",
     NULL, 600000},
    /* The port takes 1000 B in 20 ns; the second message comes 20 ns after the first. */
    {"num_ranks 2\nrank 0 {\nsend 1000b to 1\nsend 1000b to 1\n}\nrank 1 {\nrecv 1000b from 0\nrecv 1000b "
     "from 0\n}\n",
     NULL, 540000},
    /* A tag chooses the message; work goes on while it is waited for. */
    {"num_ranks 2\nrank 0 {\na: calc 900\nb: send 0b to 1 tag 1\nc: send 0b to 1 tag 2\nb requires a\n}\n"
     "rank 1 {\nd: recv 0b from 0 tag 1\ne: recv 0b from 0 tag 2\nf: calc 2000\nf requires e\n}\n",
     NULL, 2500000},
    /* The node that was ready first has the processor first, although it stands last. */
    {"num_ranks 1\nrank 0 {\nb: calc 30 cpu 0\nx: calc 1 cpu 1\na: calc 50 cpu 0\nd: calc 7 cpu 2\n"
     "b requires x\nd requires b\n}\n",
     NULL, 87000},
    /* LogGP: o on the processor of the sender and of the receiver, which works until 9000. */
    {"num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\ncalc 9000\n}\n", "2500:1500:1000:6",
     10500000},
    {"num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\ncalc 9000 cpu 1\n}\n",
     "2500:1500:1000:6:1", 9000000},
    /* The gap of the port is longer than o: while the second send waits for it, the processor works. */
    {"num_ranks 2\nrank 0 {\na: send 1b to 1\nb: send 1b to 1\nc: calc 100\nc requires a\n}\n"
     "rank 1 {\nrecv 1b from 0\nrecv 1b from 0\n}\n",
     "0:100:1000:0", 1200000},
};

START_TEST(nodes_begin_in_their_order) {
  bs_et et;
  bs_trace_machine m = flat;
  if (orders[_i].loggp != NULL) ck_assert_int_eq(bs_trace_loggp(orders[_i].loggp, &m, &err), BS_OK);
  const char *path = files_write("o.goal", orders[_i].text, strlen(orders[_i].text));
  ck_assert_msg(bs_goal_read(path, &et, &err) == BS_OK, "%s: %s", err.where, err.message);
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert_msg(bs_trace_run(&et, &m, BS_TRACE_MODEL, ranks, &result, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(result.ps, orders[_i].ps);
  bs_et_free(&et);
}
END_TEST

/* 1 us of launch and the slower side: 4e6 FLOP are 4 us, 8e5 bytes are 8 us. */
START_TEST(work_by_the_model_or_as_recorded) {
  bs_et et;
  for (uint32_t calc = BS_TRACE_MODEL; calc <= BS_TRACE_RECORDED; calc++) {
    ck_assert_int_eq(bs_et_begin(&et, 1, &err), BS_OK);
    add(&et, (bs_et_node){.ps = 50000, .flops = 4000000, .bytes = 100}, -1);
    add(&et, (bs_et_node){.ps = BS_ET_NO_TIME, .flops = 1, .bytes = 800000}, 0);
    add(&et, (bs_et_node){.ps = 70000}, 1);
    add(&et, (bs_et_node){.ps = BS_ET_NO_TIME}, 2);
    add(&et, (bs_et_node){.kind = BS_ET_MEMORY, .bytes = 800000}, 3);
    ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
    ck_assert_int_eq(bs_trace_run(&et, &flat, calc, ranks, &result, &err), BS_OK);
    ck_assert_uint_eq(result.ps, (calc == BS_TRACE_MODEL ? 5000000 : 50000) + 9000000 + 70000 + 9000000);
    ck_assert(result.modelled == (calc == BS_TRACE_MODEL ? 3 : 2) && result.unknown == 1);
    ck_assert_uint_eq(result.recorded, calc == BS_TRACE_MODEL ? 1 : 2);
    ck_assert(ranks[0].compute == result.ps && ranks[0].exposed == 0);
    bs_et_free(&et);
  }
}
END_TEST

/* ---- what cannot go on -------------------------------------------------------------------------- */

static const struct {
  const char *text;
  int32_t code;
  const char *id, *said;
} stuck[] = {
    {"num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\n"
     "rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n",
     BS_DEADLINE, "BS-TRACE-STUCK",
     "rank 0, node 3 (recv of 8 bytes from rank 1, tag 0) waits for rank 1, node 9 (send of 8 bytes to rank "
     "0, tag 0) "
     "waits for rank 1, node 8 (recv of 8 bytes from rank 0, tag 0) waits for rank 0, node 4 (send of 8 "
     "bytes to rank "
     "1, tag 0) waits for the first, in a circle of 4 nodes; 0 of 4 nodes are done"},
    {"num_ranks 1\nrank 0 {\nz: calc 1\na: calc 1\nb: calc 2\na requires b\nb irequires a\n}\n", BS_DEADLINE,
     "BS-TRACE-STUCK",
     "rank 0, node 4 (calc) waits for rank 0, node 5 (calc) waits for the first, in a circle of 2 nodes; 1 "
     "of 3 nodes "
     "are done"},
    {"num_ranks 1\nrank 0 {\na: calc 1\na requires a\n}\n", BS_DEADLINE, "BS-TRACE-STUCK",
     "rank 0, node 3 (calc) waits for itself, in a circle of 1 nodes; 0 of 1 nodes are done"},
    {"num_ranks 2\nrank 1 {\nrecv 8b from 0 tag 3\n}\n", BS_DEADLINE, "BS-TRACE-STUCK",
     "rank 1, node 3 (recv of 8 bytes from rank 0, tag 3) waits for a send that no rank makes: rank 0 has 0 "
     "sends to "
     "rank 1 with tag 3, and rank 1 has 1 receive"},
    {"num_ranks 2\nrank 0 {\nsend 8b to 1\nsend 9b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n", BS_MISMATCH,
     "BS-TRACE-MATCH",
     "rank 0, node 4 (send of 9 bytes to rank 1, tag 0) has no receive: rank 0 has 2 sends to rank 1 with "
     "tag 0, and "
     "rank 1 has 1 receive"},
    {"num_ranks 2\nrank 0 {\nsend 9b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n", BS_MISMATCH, "BS-TRACE-MATCH",
     "rank 0, node 3 (send of 9 bytes to rank 1, tag 0) comes to rank 1, node 6 (recv of 8 bytes from rank "
     "0, tag 0): "
     "the sizes differ"},
    {"num_ranks 2\nrank 0 {\nsend 9b to 1 nic 1\n}\nrank 1 {\nrecv 9b from 0\n}\n", BS_UNSUPPORTED,
     "BS-TRACE-NODE",
     "rank 0, node 3 (send of 9 bytes to rank 1, tag 0): a simulated rank has one port (nic 0)"},
};

START_TEST(what_cannot_go_on_is_named) {
  bs_et et;
  const char *path = files_write("s.goal", stuck[_i].text, strlen(stuck[_i].text));
  ck_assert_msg(bs_goal_read(path, &et, &err) == BS_OK, "%s: %s", err.where, err.message);
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  files_expect(&err, bs_trace_run(&et, &flat, BS_TRACE_MODEL, ranks, &result, &err), stuck[_i].code,
               stuck[_i].id, stuck[_i].text);
  ck_assert_str_eq(err.message, stuck[_i].said);
  /* The line of the node that the message begins with. */
  char where[200];
  snprintf(where, sizeof where, "%s:%ld", path, strtol(strstr(err.message, "node ") + 5, NULL, 10));
  ck_assert_str_eq(err.where, where);
  bs_et_free(&et);
}
END_TEST

/* Rank 1 joins once less; ranks join other collectives; a rank is not in the group; a need goes round. */
static const struct {
  uint32_t coll[2];
  uint64_t bytes[2];
  int32_t code;
  const char *said;
} meets[] = {
    {{BS_ET_ALL_REDUCE, BS_ET_COLLS},
     {8, 8},
     BS_DEADLINE,
     "rank 0, node 0 (all_reduce of 8 bytes) waits for rank 1, which has no such node"},
    {{BS_ET_ALL_REDUCE, BS_ET_ALL_GATHER},
     {8, 8},
     BS_MISMATCH,
     "rank 0, node 0 (all_reduce of 8 bytes) meets rank 1, node 1 (all_gather of 8 bytes): they differ"},
    {{BS_ET_ALL_REDUCE, BS_ET_ALL_REDUCE},
     {8, 9},
     BS_MISMATCH,
     "rank 0, node 0 (all_reduce of 8 bytes) meets rank 1, node 1 (all_reduce of 9 bytes): they differ"},
    {{BS_ET_GATHER, BS_ET_GATHER},
     {8, 8},
     BS_UNSUPPORTED,
     "rank 0, node 0 (gather of 8 bytes): this collective has no closed form here"},
};

START_TEST(collectives_that_do_not_meet_are_named) {
  bs_et et;
  ck_assert_int_eq(bs_et_begin(&et, 2, &err), BS_OK);
  for (uint32_t r = 0; r < 2; r++)
    if (meets[_i].coll[r] < BS_ET_COLLS)
      add(&et,
          (bs_et_node){.rank = r, .kind = BS_ET_COLL, .coll = meets[_i].coll[r], .bytes = meets[_i].bytes[r]},
          -1);
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert_int_eq(bs_trace_run(&et, &flat, BS_TRACE_MODEL, ranks, &result, &err), meets[_i].code);
  ck_assert_str_eq(err.message, meets[_i].said);
  bs_et_free(&et);
}
END_TEST

START_TEST(a_circle_through_a_collective) {
  bs_et et;
  ck_assert_int_eq(bs_et_begin(&et, 2, &err), BS_OK);
  add(&et, (bs_et_node){.kind = BS_ET_COLL, .bytes = 8}, -1);
  add(&et, (bs_et_node){.kind = BS_ET_SEND, .peer = 1, .bytes = 4}, 0);
  const uint32_t got = add(&et, (bs_et_node){.rank = 1, .kind = BS_ET_RECV, .peer = 0, .bytes = 4}, -1);
  add(&et, (bs_et_node){.rank = 1, .kind = BS_ET_COLL, .bytes = 8}, got);
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert_int_eq(bs_trace_run(&et, &flat, BS_TRACE_MODEL, ranks, &result, &err), BS_DEADLINE);
  ck_assert_str_eq(
      err.message,
      "rank 0, node 0 (all_reduce of 8 bytes) waits for rank 1, node 3 (all_reduce of 8 bytes) waits for "
      "rank 1, node 2 (recv of 4 bytes from rank 0, tag 0) waits for rank 0, node 1 (send of 4 bytes to "
      "rank 1, tag 0) waits for the first, in a circle of 4 nodes; 0 of 4 nodes are done");
  bs_et_free(&et);
}
END_TEST

START_TEST(loggp_is_four_or_five_numbers) {
  static const char *const wrong[] = {"",         "1:2:3",   "1:2:3:",     "1:2:3:4:5:6",
                                      "1:2:3:-4", "a:2:3:4", "1:2:3:1e13", "1,2,3,4"};
  bs_trace_machine m = flat;
  for (int i = 0; i < TEST_COUNT(wrong); i++)
    files_expect(&err, bs_trace_loggp(wrong[i], &m, &err), BS_USAGE, "BS-USE-NUMBER", wrong[i]);
  ck_assert_int_eq(bs_trace_loggp("0.5:2:3:0.04", &m, &err), BS_OK);
  ck_assert(m.link.L == 500 && m.link.o == 2000 && m.link.g == 3000 && m.link.G_q32 == UINT64_C(40) << 32);
}
END_TEST

int main(void) {
  const test_case tests[] = {{schedules_take_their_known_times, TEST_COUNT(rows)},
                             {a_broadcast_to_32},
                             {collectives_take_their_closed_form, TEST_COUNT(colls)},
                             {groups_meet_apart_and_one_after_another},
                             {nodes_begin_in_their_order, TEST_COUNT(orders)},
                             {work_by_the_model_or_as_recorded},
                             {what_cannot_go_on_is_named, TEST_COUNT(stuck)},
                             {collectives_that_do_not_meet_are_named, TEST_COUNT(meets)},
                             {a_circle_through_a_collective},
                             {loggp_is_four_or_five_numbers},
                             {0}};
  return run_tests("trace_run", tests, (test_setup){files_begin, files_end});
}
