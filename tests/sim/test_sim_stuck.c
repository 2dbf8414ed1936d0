/* SPDX-License-Identifier: MIT
 * test_sim_stuck.c - worlds that cannot go on, and ranks that disagree: the code and the whole text. */
#include "tests/run_tests.h"
#include "tests/sim/programs.h"

static const sim_link half_50 = {.a_wire = 500000, .beta_q32 = UINT64_C(20) << 32};

/* Row 28. */
static program_step both_receive_first(const program *p, uint32_t rank, uint32_t i) {
  (void)p;
  return (program_step){i == 0 ? PROGRAM_RECV : i == 1 ? PROGRAM_SEND : PROGRAM_END, rank ^ 1, 4096};
}

/* A ring in which the rank of `chunks` ends before its last round. */
static program_step one_ends_early(const program *p, uint32_t rank, uint32_t i) {
  if (rank == p->chunks && i / 3 == p->ranks - 2) return (program_step){PROGRAM_END, 0, 0};
  return program_ring(p, rank, i);
}

static program_step all_wait_for_0(const program *p, uint32_t rank, uint32_t i) {
  (void)p;
  if (rank == 0 || i > 0) return (program_step){PROGRAM_END, 0, 0};
  return (program_step){PROGRAM_RECV, 0, 8};
}

static program_step next_first(const program *p, uint32_t rank, uint32_t i) {
  return (program_step){i == 0 ? PROGRAM_RECV : PROGRAM_END, (rank + 1) % p->ranks, 8};
}

static program_step sizes_differ(const program *p, uint32_t rank, uint32_t i) {
  (void)p;
  return (program_step){i > 0       ? PROGRAM_END
                        : rank == 0 ? PROGRAM_SEND
                                    : PROGRAM_RECV,
                        1 - rank, rank == 0 ? 8 : 12};
}

static program_step nobody(const program *p, uint32_t rank, uint32_t i) {
  (void)i;
  return (program_step){PROGRAM_SEND, p->ranks + rank, 1};
}

/* Row 29: each sends to the next before it receives. */
static program_step all_send_first(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t n = p->ranks;
  if (i > 1) return (program_step){PROGRAM_END, 0, 0};
  return (program_step){i == 0 ? PROGRAM_SEND : PROGRAM_RECV, (rank + (i == 0 ? 1 : n - 1)) % n, 8};
}

/* Each sends twice before it receives. */
static program_step two_ahead(const program *p, uint32_t rank, uint32_t i) {
  const uint32_t n = p->ranks;
  if (i > 3) return (program_step){PROGRAM_END, 0, 0};
  return (program_step){i < 2 ? PROGRAM_SEND : PROGRAM_RECV, (rank + (i < 2 ? 1 : n - 1)) % n, 8};
}

static const struct {
  program_step (*step)(const program *p, uint32_t rank, uint32_t i);
  uint32_t ranks, who;
  int32_t code;
  const char *id, *text;
  uint32_t buffering;
} rows[] = {
    {both_receive_first, 2, 0, BS_DEADLINE, "BS-SIM-STUCK",
     "no rank can go on: 2 of 2 wait; cycle 0 -> 1 -> 0; rank 0 waits for a message of rank 1 (4096 bytes) "
     "at here.c:7; "
     "rank 1 waits for a message of rank 0 (4096 bytes) at here.c:7"},
    {both_receive_first, 6, 0, BS_DEADLINE, "BS-SIM-STUCK",
     "no rank can go on: 6 of 6 wait; cycle 0 -> 1 -> 0; ranks 0, 2, 4 wait for a message of rank r+1 (4096 "
     "bytes) at "
     "here.c:7; ranks 1, 3, 5 wait for a message of rank r-1 (4096 bytes) at here.c:7"},
    {one_ends_early, 256, 100, BS_DEADLINE, "BS-SIM-STUCK",
     "no rank can go on: 255 of 256 wait; rank 100, which the others wait for, has ended; ranks 0-99, "
     "101-255 wait for "
     "a message of rank r-1 (mod 256) (1 bytes) at here.c:7; rank 100 has ended"},
    {all_wait_for_0, 100, 0, BS_DEADLINE, "BS-SIM-STUCK",
     "no rank can go on: 99 of 100 wait; rank 0, which the others wait for, has ended; ranks 1-99 wait for a "
     "message of "
     "rank 0 (8 bytes) at here.c:7; rank 0 has ended"},
    {next_first, 4096, 0, BS_DEADLINE, "BS-SIM-STUCK",
     "no rank can go on: 4096 of 4096 wait; cycle 0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> ... -> 0 (4096 "
     "ranks); ranks "
     "0-4095 wait for a message of rank r+1 (mod 4096) (8 bytes) at here.c:7"},
    {sizes_differ, 2, 0, BS_MISMATCH, "BS-SIM-MISMATCH",
     "rank 0 sends 8 bytes at here.c:7, rank 1 receives 12 bytes at here.c:7: the sizes differ"},
    {nobody, 2, 0, BS_INVALID_ARGUMENT, "BS-SIM-PEER",
     "a message of rank 0 to rank 2 in a world of 2 at here.c:7"},
    {all_send_first, 4, 0, BS_DEADLINE, "BS-SIM-STUCK",
     "no rank can go on: 4 of 4 wait; cycle 0 -> 1 -> 2 -> 3 -> 0; ranks 0-3 wait to send to rank r+1 (mod "
     "4) "
     "(8 bytes) at here.c:7",
     SIM_RENDEZVOUS},
    {two_ahead, 3, 0, BS_DEADLINE, "BS-SIM-STUCK",
     "no rank can go on: 3 of 3 wait; cycle 0 -> 1 -> 2 -> 0; ranks 0-2 wait to send to rank r+1 (mod 3) (8 "
     "bytes) at here.c:7",
     SIM_ONE_SLOT},
};

START_TEST(a_world_that_cannot_go_on_says_why) {
  program p = {.step = rows[_i].step,
               .ranks = rows[_i].ranks,
               .bytes = rows[_i].ranks,
               .chunks = rows[_i].who,
               .buffering = rows[_i].buffering};
  p.call.site = "here.c:7";
  for (uint32_t order = SIM_ORDER_K; order <= SIM_ORDER_E; order++) {
    bs_error err = BS_ERROR_INIT;
    program_open(&p, order, half_50);
    ck_assert_int_eq(sim_run(p.engine, &err), rows[_i].code);
    ck_assert_str_eq(err.id, rows[_i].id);
    ck_assert_str_eq(err.message, rows[_i].text);
    ck_assert_int_eq(sim_failure(p.engine)->code, rows[_i].code);
    program_close(&p);
  }
}
END_TEST

/* ---- buffers --------------------------------------------------------------------------------- */

/* Rank 0 sends U twice; rank 1 receives from 1 ms on. */
static program_step late_receiver(const program *p, uint32_t rank, uint32_t i) {
  if (i == (rank == 0 ? 2 : 3)) return (program_step){PROGRAM_END, 0, 0};
  if (rank == 0) return (program_step){PROGRAM_SEND, 1, p->bytes};
  return i == 0 ? (program_step){PROGRAM_COMPUTE, 0, UINT64_C(1000000000)}
                : (program_step){PROGRAM_RECV, 0, p->bytes};
}

/* Rank 0 gives a message of an exchange, and sends twice; rank 1 takes one a ms. */
static program_step exchange_before_sends(const program *p, uint32_t rank, uint32_t i) {
  if (i == (rank == 0 ? 3 : 5)) return (program_step){PROGRAM_END, 0, 0};
  if (rank == 0) return (program_step){i == 0 ? PROGRAM_EXCHANGE : PROGRAM_SEND, 1, p->bytes};
  return i == 0 || i == 2 ? (program_step){PROGRAM_COMPUTE, 0, UINT64_C(1000000000)}
                          : (program_step){PROGRAM_RECV, 0, p->bytes};
}

/* U takes 0.5 us and 20.97152 us of the port. */
START_TEST(a_send_lasts_as_long_as_the_buffers_say) {
  static const struct {
    program_step (*step)(const program *p, uint32_t rank, uint32_t i);
    uint32_t buffering, ranks;
    uint64_t bytes, sent, received; /* when ranks 0 and 1 end */
  } known[] = {
      {late_receiver, SIM_EAGER, 2, 1048576, 0, 1000000000},
      {late_receiver, SIM_ONE_SLOT, 2, 1048576, 1000000000, 1021471520},
      {late_receiver, SIM_RENDEZVOUS, 2, 1048576, 1021471520, 1042943040},
      {all_send_first, SIM_EAGER, 4, 8, 500160, 500160},
      {all_send_first, SIM_ONE_SLOT, 4, 8, 500160, 500160},
      {two_ahead, SIM_EAGER, 3, 8, 500320, 500320},
      {exchange_before_sends, SIM_ONE_SLOT, 2, 8, 2000000000, 2000500160},
      {program_doubling, SIM_EAGER, 2, 1048576, 21471520, 21471520},
  };
  program p = {.step = known[_i].step,
               .ranks = known[_i].ranks,
               .bytes = known[_i].bytes,
               .buffering = known[_i].buffering};
  for (uint32_t order = SIM_ORDER_K; order <= SIM_ORDER_E; order++) {
    bs_error err = BS_ERROR_INIT;
    program_open(&p, order, half_50);
    ck_assert_msg(sim_run(p.engine, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_eq(sim_clock(p.engine, 0), known[_i].sent);
    ck_assert_uint_eq(sim_clock(p.engine, 1), known[_i].received);
    program_close(&p);
  }
}
END_TEST

/* ---- meetings -------------------------------------------------------------------------------- */

typedef struct meeting_world {
  sim_engine *e;
  sim_meeting *all;
  sim_call calls[8];
  uint32_t ranks, absent, fails;
  uint32_t told[8], at[8];
} meeting_world;

static int32_t latest(void *user, sim_arrival *arrivals, uint32_t n, bs_error *err) {
  (void)user;
  (void)err;
  uint64_t last = 0;
  for (uint32_t i = 0; i < n; i++) last = sim_max(last, arrivals[i].ready);
  for (uint32_t i = 0; i < n; i++) arrivals[i].done = last + 1000;
  return BS_OK;
}

static int32_t meet_twice(void *user, uint32_t rank) {
  meeting_world *w = user;
  if (rank == w->absent) return SIM_DONE;
  if (rank == w->fails) {
    bs_error why = BS_ERROR_INIT;
    bs_error_set(&why, BS_NUMERIC, "BS-X", "rank %u is wrong", rank);
    sim_abort(w->e, rank, BS_NUMERIC, &why);
    return SIM_DONE;
  }
  for (; w->at[rank] < 2; w->at[rank]++) {
    uint64_t done = 0;
    const int32_t rc = sim_meet(w->e, w->all, rank, sim_clock(w->e, rank), &w->calls[rank], NULL, &done);
    if (rc == SIM_BLOCKED) return SIM_BLOCKED;
    if (rc < 0) {
      w->told[rank] = (uint32_t)-rc;
      return SIM_DONE;
    }
    sim_set_clock(w->e, rank, done);
  }
  return SIM_DONE;
}

static void open_meeting(meeting_world *w, uint32_t ranks) {
  bs_error err = BS_ERROR_INIT;
  const sim_config config = {.ranks = ranks, .link = half_50, .resume = meet_twice, .user = w};
  *w = (meeting_world){.ranks = ranks, .absent = UINT32_MAX, .fails = UINT32_MAX};
  ck_assert_int_eq(sim_engine_new(&config, &w->e, &err), BS_OK);
  ck_assert_int_eq(sim_meeting_new(w->e, NULL, ranks, latest, NULL, &w->all, &err), BS_OK);
  for (uint32_t r = 0; r < ranks; r++)
    w->calls[r] = (sim_call){"all_reduce", "layer", "f32", "sum", 0, 1024, 7};
}

START_TEST(ranks_meet_at_the_latest_arrival) {
  meeting_world w;
  open_meeting(&w, 8);
  sim_set_clock(w.e, 5, 500);
  ck_assert_int_eq(sim_run(w.e, NULL), BS_OK);
  for (uint32_t r = 0; r < 8; r++) ck_assert_uint_eq(sim_clock(w.e, r), 2500);
  ck_assert_uint_eq(sim_count(w.e).meetings, 2);
  sim_engine_free(w.e);
}
END_TEST

START_TEST(ranks_that_call_other_things_are_a_mismatch) {
  static const struct {
    sim_call call;
    const char *text;
  } wrong[] = {
      {{"all_reduce", "layer", "f32", "sum", 0, 1025, 8}, "of 1025 f32 (sum) at layer: the count differs"},
      {{"all_gather", "layer", "f32", "sum", 0, 1024, 8},
       "calls all_gather of 1024 f32 (sum) at layer: the kind differs"},
      {{"all_reduce", "layer", "bf16", "sum", 0, 1024, 8}, "of 1024 bf16 (sum) at layer: the dtype differs"},
      {{"all_reduce", "layer", "f32", "max", 0, 1024, 8},
       "of 1024 f32 (max) at layer: the operation differs"},
      {{"all_reduce", "other", "f32", "sum", 0, 1024, 8},
       "of 1024 f32 (sum) at other: the call sites differ"},
      {{"all_reduce", "layer", "f32", "sum", 0, 1024, 8},
       "of 1024 f32 (sum) at layer: the shapes or roots differ"},
  };
  char text[300];
  for (int i = 0; i < TEST_COUNT(wrong); i++) {
    meeting_world w;
    bs_error err = BS_ERROR_INIT;
    open_meeting(&w, 8);
    w.calls[3] = wrong[i].call;
    ck_assert_int_eq(sim_run(w.e, &err), BS_MISMATCH);
    snprintf(text, sizeof text, "rank 0 calls all_reduce of 1024 f32 (sum) at layer, rank 3 ");
    ck_assert_int_eq(strncmp(err.message, text, strlen(text)), 0);
    ck_assert_str_eq(err.message + strlen(err.message) - strlen(wrong[i].text), wrong[i].text);
    for (uint32_t r = 0; r < 8; r++) ck_assert_uint_eq(w.told[r], BS_MISMATCH);
    sim_engine_free(w.e);
  }
}
END_TEST

START_TEST(a_rank_that_never_comes_is_named) {
  meeting_world w;
  bs_error err = BS_ERROR_INIT;
  open_meeting(&w, 8);
  w.absent = 6;
  ck_assert_int_eq(sim_run(w.e, &err), BS_DEADLINE);
  ck_assert_str_eq(err.message,
                   "no rank can go on: 7 of 8 wait; rank 6, which the others wait for, has ended; ranks "
                   "0-5, 7 wait in all_reduce for rank 6 (ended) at layer; rank 6 has ended");
  for (uint32_t r = 0; r < 8; r++) ck_assert_uint_eq(w.told[r], r == 6 ? 0 : BS_DEADLINE);
  sim_engine_free(w.e);
}
END_TEST

START_TEST(the_first_failure_of_a_rank_is_the_worlds) {
  meeting_world w;
  bs_error err = BS_ERROR_INIT;
  open_meeting(&w, 8);
  w.fails = 4;
  ck_assert_int_eq(sim_run(w.e, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-X");
  ck_assert_int_eq(err.rank, 4);
  for (uint32_t r = 0; r < 8; r++) ck_assert_uint_eq(w.told[r], r == 4 ? 0 : BS_ABORTED);
  sim_engine_free(w.e);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_world_that_cannot_go_on_says_why, TEST_COUNT(rows)},
                             {a_send_lasts_as_long_as_the_buffers_say, 8},
                             {ranks_meet_at_the_latest_arrival},
                             {ranks_that_call_other_things_are_a_mismatch},
                             {a_rank_that_never_comes_is_named},
                             {the_first_failure_of_a_rank_is_the_worlds},
                             {0}};
  return run_tests("sim_stuck", tests, (test_setup){0});
}
