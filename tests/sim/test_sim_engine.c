/* SPDX-License-Identifier: MIT
 * test_sim_engine.c - known answers of collectives that are written as sends and receives: the time of the
 * last rank to the picosecond, beside the closed form that it must equal, and the number of messages. */
#include "tests/run_tests.h"
#include "tests/sim/programs.h"

#define MIB (UINT64_C(1) << 20)

typedef program_step (*program_fn)(const program *p, uint32_t rank, uint32_t i);

static const sim_link half_50 = {.a_wire = 500000, .beta_q32 = UINT64_C(20) << 32};
static const sim_link one_50 = {.a_wire = 1000000, .beta_q32 = UINT64_C(20) << 32};
static const sim_link port_50 = {.a_port = 500000, .beta_q32 = UINT64_C(20) << 32};
/* L = 2500 ns, o = 1500 ns, g = 1000 ns, G = 6 ns per byte. */
static const sim_link loggp = {
    .model = SIM_LOGGP, .L = 2500000, .o = 1500000, .g = 1000000, .G_q32 = UINT64_C(6000) << 32};

static const struct {
  program_fn step;
  uint32_t ranks;
  uint64_t bytes;
  const sim_link *link;
  uint64_t ps, messages;
  uint64_t gamma_q32;
  uint32_t chunks;
} rows[] = {
    /* 1, 2: ring all-reduce */
    {program_ring, 2, MIB, &half_50, 21971520, 4},
    {program_ring, 8, MIB, &half_50, 43700160, 112},
    {program_ring, 64, MIB, &half_50, 104287680, 8064},
    {program_ring, 1024, MIB, &half_50, 1064902080, 2095104},
    /* 3: with 1e-12 s a byte of sum; 4: another alpha */
    {program_ring, 8, MIB, &half_50, 44617664, 112, UINT64_C(1) << 32},
    {program_ring, 8, MIB, &one_50, 50700160, 112},
    /* 5: recursive doubling; 6: halving and doubling */
    {program_doubling, 8, MIB, &half_50, 64414560, 24},
    {program_doubling, 64, MIB, &half_50, 128829120, 384},
    {program_doubling, 65536, MIB, &half_50, 343544320, 1048576},
    {program_halving, 8, MIB, &half_50, 39700160, 48},
    {program_halving, 64, MIB, &half_50, 47287680, 768},
    {program_halving, 65536, MIB, &half_50, 57942400, 2097152},
    /* 7: one-shot and two-shot; 8: binomial reduction and broadcast */
    {program_one_shot, 8, MIB, &half_50, 147300640, 56},
    {program_two_shot, 8, MIB, &half_50, 37700160, 112},
    {program_binomial, 8, MIB, &half_50, 128829120, 14},
    {program_binomial, 64, MIB, &half_50, 257658240, 126},
    /* 9: chain of 16 chunks: the latency overlaps, or holds the port */
    {program_chain, 8, MIB, &half_50, 32335840, 112, 0, 16},
    {program_chain, 8, MIB, &port_50, 39835840, 112, 0, 16},
    /* 10: all-gather along the ring, and pairwise exchange */
    {program_gather, 64, MIB, &half_50, 52143840, 4032},
    {program_pairwise, 64, MIB, &half_50, 52143840, 4032},
    /* 16, 17: LogGP */
    {program_ring, 4, 4096, &loggp, 69828000, 24},
    {program_ring, 4, MIB, &loggp, UINT64_C(9470148000), 24},
    {program_ring, 8, MIB, &loggp, UINT64_C(11086964000), 112},
    {program_ring, 16, MIB, &loggp, UINT64_C(11961300000), 480},
    {program_ring, 64, MIB, &loggp, UINT64_C(13078548000), 8064},
    {program_ring, 256, MIB, &loggp, UINT64_C(15335700000), 130560},
    {program_ring, 1024, MIB, &loggp, UINT64_C(23811348000), 2095104},
    {program_halving, 16, MIB, &loggp, UINT64_C(11840432000), 128},
    {program_halving, 64, MIB, &loggp, UINT64_C(12452232000), 768},
    {program_halving, 4096, MIB, &loggp, UINT64_C(12711696000), 98304},
    {program_halving, 65536, MIB, &loggp, UINT64_C(12758528000), 2097152},
};

static void run_row(int row, uint32_t order) {
  program p = {.step = rows[row].step,
               .ranks = rows[row].ranks,
               .bytes = rows[row].bytes,
               .chunks = rows[row].chunks,
               .gamma_q32 = rows[row].gamma_q32};
  bs_error err = BS_ERROR_INIT;
  program_open(&p, order, *rows[row].link);
  ck_assert_msg(sim_run(p.engine, &err) == BS_OK, "row %d: %s", row, err.message);
  ck_assert_uint_eq(sim_latest(p.engine), rows[row].ps);
  ck_assert_uint_eq(sim_count(p.engine).messages, rows[row].messages);
  program_close(&p);
}

/* Rows of more than a million messages but row 2 itself are for BS_TEST_BIG. */
START_TEST(collectives_take_the_time_of_their_closed_form) {
  if (rows[_i].messages < 1000000 || _i == 3 || getenv("BS_TEST_BIG") != NULL) run_row(_i, SIM_ORDER_K);
}
END_TEST

/* No link is shared in these: the order of time changes nothing. The big ones take long in order E. */
START_TEST(order_e_gives_the_same_times) {
  if (rows[_i].messages < 50000 || getenv("BS_TEST_BIG") != NULL) run_row(_i, SIM_ORDER_E);
}
END_TEST

START_TEST(a_ring_of_4096_is_exact_as_well) { /* row 2; 33.5 million messages */
  if (getenv("BS_TEST_BIG") == NULL) return;
  program p = {.step = program_ring, .ranks = 4096, .bytes = MIB};
  bs_error err = BS_ERROR_INIT;
  program_open(&p, SIM_ORDER_K, half_50);
  ck_assert_int_eq(sim_run(p.engine, &err), BS_OK);
  ck_assert_uint_eq(sim_latest(p.engine), UINT64_C(4136932800));
  ck_assert_uint_eq(sim_count(p.engine).messages, 33546240);
  program_close(&p);
}
END_TEST

/* Row 15. */
START_TEST(a_late_rank_delays_the_last_finish_by_as_much) {
  static const struct {
    program_fn step;
    uint32_t ranks;
    uint64_t latest, own;
  } late[] = {{program_ring, 8, 1043700160, 0}, {program_doubling, 64, 1128829120, 1000000000}};
  for (int i = 0; i < TEST_COUNT(late); i++) {
    program p = {.step = late[i].step, .ranks = late[i].ranks, .bytes = MIB};
    program_open(&p, SIM_ORDER_K, half_50);
    sim_set_clock(p.engine, 3, 1000000000);
    ck_assert_int_eq(sim_run(p.engine, NULL), BS_OK);
    ck_assert_uint_eq(sim_latest(p.engine), late[i].latest);
    if (late[i].own > 0) ck_assert_uint_eq(sim_clock(p.engine, 3), late[i].own);
    program_close(&p);
  }
}
END_TEST

START_TEST(units_round_half_up_once) {
  ck_assert_uint_eq(sim_rate_q32(50e9), UINT64_C(20) << 32);
  ck_assert_uint_eq(sim_seconds_ps(0.5e-6), 500000);
  ck_assert_uint_eq(sim_bytes_ps(1, UINT64_C(1) << 31), 1); /* half a picosecond */
  ck_assert_uint_eq(sim_bytes_ps(1, (UINT64_C(1) << 31) - 1), 0);
  ck_assert_uint_eq(sim_bytes_ps(64 * MIB, sim_rate_q32(370e9)), 181375308);
  ck_assert_uint_eq(sim_bytes_ps(UINT64_MAX, UINT64_MAX), SIM_NEVER);
  ck_assert_uint_eq(sim_add(SIM_NEVER, 1), SIM_NEVER);
  ck_assert_uint_eq(sim_rate_q32(0), SIM_NEVER);
  ck_assert_uint_eq(sim_seconds_ps(-1), SIM_NEVER);
  ck_assert_uint_eq(sim_rate_q32(__builtin_inf()), 0);
}
END_TEST

/* ---- payloads -------------------------------------------------------------------------------- */

static program_step two_messages(const program *p, uint32_t rank, uint32_t i) {
  (void)p;
  return (program_step){i < 2 ? (rank == 0 ? PROGRAM_SEND : PROGRAM_RECV) : PROGRAM_END, 1 - rank, 8};
}

static int dropped;
static void drop(void *user, void *payload) {
  (void)user;
  dropped++;
  free(payload);
}

static int32_t send_value(void *user, uint32_t rank) {
  program *p = user;
  sim_message m = {.from = 0, .to = 1, .bytes = 4};
  if (rank == 1) {
    const int32_t rc = sim_recv_now(p->engine, &m);
    if (rc != SIM_DONE) return rc == SIM_BLOCKED ? SIM_BLOCKED : SIM_DONE;
    ck_assert_int_eq(*(int *)m.payload, 41);
    free(m.payload);
    return SIM_DONE;
  }
  for (int i = 0; i < 2; i++) {
    m.payload = malloc(sizeof(int));
    ck_assert_ptr_nonnull(m.payload);
    *(int *)m.payload = 41 + i;
    ck_assert_int_eq(sim_send_now(p->engine, &m), SIM_DONE);
  }
  return SIM_DONE;
}

START_TEST(a_payload_travels_and_one_that_nobody_received_is_an_error) {
  program p = {.ranks = 2};
  bs_error err = BS_ERROR_INIT;
  const sim_config config = {.ranks = 2, .link = half_50, .resume = send_value, .drop = drop, .user = &p};
  ck_assert_int_eq(sim_engine_new(&config, &p.engine, &err), BS_OK);
  ck_assert_int_eq(sim_run(p.engine, &err), BS_MISMATCH);
  ck_assert_str_eq(err.id, "BS-SIM-LEFTOVER");
  ck_assert_str_eq(err.message,
                   "all ranks have ended, and 1 message was not received: the first is of rank 0 to rank "
                   "1, 4 bytes");
  ck_assert_int_eq(dropped, 0);
  sim_engine_free(p.engine);
  ck_assert_int_eq(dropped, 1);
}
END_TEST

START_TEST(a_time_that_does_not_fit_is_an_error) {
  program p = {.step = two_messages, .ranks = 2, .bytes = 8};
  bs_error err = BS_ERROR_INIT;
  program_open(&p, SIM_ORDER_K, sim_link_of(1, 1));
  ck_assert_int_eq(sim_run(p.engine, &err), BS_OVERFLOW);
  ck_assert_str_eq(err.id, "BS-SIM-TIME");
  program_close(&p);
}
END_TEST

/* ---- the mailbox ----------------------------------------------------------------------------- */

START_TEST(a_thousand_ranks_exchange_with_all_others) {
  program p = {.step = program_one_shot, .ranks = 400, .bytes = 4096};
  program_open(&p, SIM_ORDER_K, half_50);
  ck_assert_int_eq(sim_run(p.engine, NULL), BS_OK);
  ck_assert_uint_eq(sim_latest(p.engine), 500000 + 399 * UINT64_C(4096) * 20);
  ck_assert_uint_eq(sim_count(p.engine).messages, 400 * 399);
  uint64_t messages, bytes;
  sim_count_rank(p.engine, 17, &messages, &bytes);
  ck_assert_uint_eq(messages, 399);
  ck_assert_uint_eq(bytes, 399 * 4096);
  program_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{collectives_take_the_time_of_their_closed_form, TEST_COUNT(rows)},
                             {order_e_gives_the_same_times, TEST_COUNT(rows)},
                             {a_ring_of_4096_is_exact_as_well},
                             {a_late_rank_delays_the_last_finish_by_as_much},
                             {units_round_half_up_once},
                             {a_payload_travels_and_one_that_nobody_received_is_an_error},
                             {a_time_that_does_not_fit_is_an_error},
                             {a_thousand_ranks_exchange_with_all_others},
                             {0}};
  return run_tests("sim_engine", tests, (test_setup){0});
}
