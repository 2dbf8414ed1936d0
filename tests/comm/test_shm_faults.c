/* SPDX-License-Identifier: MIT
 * What the communicator "shm" says when ranks disagree, are late, stand still or die; worlds opened and
 * closed again and again; the environments that it knows. */
#include "processes.h"
#include "tests/run_tests.h"

static int32_t reduce(test_rank *t, uint64_t n, const char *site, int64_t timeout_ns) {
  float *room = calloc(n + 200, 4);
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, n, site);
  c.in = c.out = room;
  c.timeout_ns = timeout_ns;
  const int32_t rc = t->comm->all_reduce(t->handle, &c, &t->err);
  free(room);
  return rc;
}

static const uint64_t few_or_many[] = {100, 200000};
static uint64_t count_now;

static void counts_body(test_rank *t) {
  for (int i = 0; i < 3 && t->rc == BS_OK; ++i) t->rc = reduce(t, count_now, "layer0.y", 0);
  if (t->rc == BS_OK) t->rc = reduce(t, t->rank + 1 == t->size ? count_now + 100 : count_now, "layer1.y", 0);
}
START_TEST(test_counts_differ) {
  int status[MOST];
  test_job j = job(3, counts_body);
  count_now = few_or_many[_i];
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r) {
    says(r, BS_MISMATCH, "BS-COLL-MISMATCH", "rank 0", "rank 2");
    says(r, BS_MISMATCH, "BS-COLL-MISMATCH", "layer1.y", "all_reduce f32");
  }
}
END_TEST

static void pairs_body(test_rank *t) {
  uint64_t counts[2] = {4, 4}, recv[2] = {4, 4};
  float x[16] = {0};
  if (t->rank == 1) recv[0] = 5;
  bs_coll_call c = make_call(BS_COLL_ALL_TO_ALL, BS_F32, 1, 0, "pairs");
  c.counts = counts;
  c.recv_counts = recv;
  c.in = x;
  c.out = x + 8;
  t->rc = t->comm->all_to_all(t->handle, &c, &t->err);
}
/* Of a message in pieces the sender still has some to send when the receiver knows. */
static void p2p_body(test_rank *t) {
  float *x = calloc(count_now + 1, sizeof *x);
  bs_coll_call c =
      make_call(t->rank == 0 ? BS_COLL_SEND : BS_COLL_RECV, BS_F32, 1, count_now + t->rank, "p2p");
  c.root = 1u - t->rank;
  c.in = c.out = x;
  t->rc = t->rank == 0 ? t->comm->send(t->handle, &c, &t->err) : t->comm->recv(t->handle, &c, &t->err);
  free(x);
}
START_TEST(test_pairs_differ) {
  static const char *const said[][2] = {{"'pairs'", "expecting 5"},
                                        {"send f32 1x100 ", "recv f32 1x101 "},
                                        {"send f32 1x200000 ", "recv f32 1x200001 "}};
  int status[MOST];
  test_job j = job(2, _i == 0 ? pairs_body : p2p_body);
  count_now = few_or_many[_i == 2];
  run_job(&j, status);
  for (uint32_t r = 0; r < 2; ++r) says(r, BS_MISMATCH, "BS-COLL-MISMATCH", said[_i][0], said[_i][1]);
}
END_TEST

/* Rank 1 dies, or stands still, on its way to a call; or between the pieces of a large one. */
static int signal_now;
static void gone_body(test_rank *t) {
  t->rc = reduce(t, count_now, "early", 0);
  if (t->rank == 1) kill(getpid(), signal_now);
  while (t->rank == 1) pause(); /* a stop may reach the process a little later */
  outcomes[t->rank].begun_ns = clock_ns();
  if (t->rc == BS_OK) t->rc = reduce(t, count_now, "late.site", signal_now == SIGSTOP ? LATE_NS : 0);
}
START_TEST(test_dead) {
  int status[MOST];
  test_job j = job(3, gone_body);
  count_now = few_or_many[_i];
  signal_now = SIGKILL;
  run_job(&j, status);
  ck_assert_int_eq(WTERMSIG(status[1]), SIGKILL);
  for (uint32_t r = 0; r < 3; r += 2) {
    says(r, BS_RANK_FAILED, "BS-RANK-DEAD", "rank 1", "'early'");
    ck_assert_int_eq(outcomes[r].err.rank, 1);
    ck_assert_msg(outcomes[r].seconds < 30.0, "it took %g s", outcomes[r].seconds);
  }
}
END_TEST
START_TEST(test_stopped) {
  int status[MOST];
  test_job j = job(3, gone_body);
  int turn = 0;
  count_now = few_or_many[_i];
  signal_now = SIGSTOP;
  do {
    ck_assert_int_lt(turn++, FAIR_TURNS);
    run_job(&j, status);
  } while (!together(outcomes[0].begun_ns, outcomes[2].begun_ns, LATE_NS));
  for (uint32_t r = 0; r < 3; r += 2)
    says(r, BS_DEADLINE, "BS-COLL-DEADLINE", "missing: rank 1", "late.site");
}
END_TEST

/* Who is done leaves; the others have messages for each other yet. */
static void leave_body(test_rank *t) {
  float x[4] = {0};
  bs_coll_call c = make_call(t->rank == 0 ? BS_COLL_SEND : BS_COLL_RECV, BS_F32, 1, 4, "after");
  c.root = 1u - t->rank;
  c.in = c.out = x;
  t->rc = reduce(t, 10, "all", 0);
  if (t->rank == 2 || t->rc != BS_OK) return;
  if (t->rank == 0) usleep(200000); /* rank 1 waits while rank 2 ends */
  t->rc = t->rank == 0 ? t->comm->send(t->handle, &c, &t->err) : t->comm->recv(t->handle, &c, &t->err);
}
START_TEST(test_left_in_good_order) {
  int status[MOST];
  test_job j = job(3, leave_body);
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r)
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s", r, outcomes[r].err.message);
}
END_TEST

static void abort_body(test_rank *t) {
  if (t->rank == 2) {
    usleep(50000);
    t->comm->abort(t->world, 2, BS_NUMERIC, "[BS-X] it went wrong");
    t->rc = BS_NUMERIC;
    return;
  }
  t->rc = reduce(t, 10, "waits", 0);
}
START_TEST(test_abort) {
  int status[MOST];
  test_job j = job(3, abort_body);
  run_job(&j, status);
  for (uint32_t r = 0; r < 2; ++r) {
    says(r, BS_ABORTED, "BS-COLL-ABORTED", "rank 2 failed", "[BS-X] it went wrong");
    ck_assert_int_eq(outcomes[r].err.native_code, BS_NUMERIC);
  }
}
END_TEST

static void no_body(test_rank *t) {
  (void)t;
}
START_TEST(test_configured_otherwise) {
  int status[MOST];
  test_job j = job(3, no_body);
  j.hash[1] = 7;
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r) ck_assert_int_eq(outcomes[r].rc, BS_MISMATCH);
  says(1, BS_MISMATCH, "BS-RANK-CONFIG", "rank 0", "rank 1");
}
END_TEST
START_TEST(test_absent) {
  int status[MOST];
  test_job j = job(3, no_body);
  const uint32_t other = _i == 0 ? 1 : 0;
  int turn = 0;
  j.absent = (uint32_t)_i;
  j.timeout_ns = LATE_NS;
  do {
    ck_assert_int_lt(turn++, FAIR_TURNS);
    run_job(&j, status);
  } while (!together(outcomes[other].begun_ns, outcomes[2].begun_ns, LATE_NS));
  for (uint32_t r = 0; r < 3; ++r)
    if (r != j.absent)
      says(r, BS_DEADLINE, "BS-COLL-DEADLINE", _i == 0 ? "rank 0" : "rank 1", "has not come");
}
END_TEST

/* Sixty worlds one after another, more than the mapping has room for at once; of two at a time each is its
 * own. */
static void worlds_body(test_rank *t) {
  void *state = NULL;
  const bs_comm *comm = NULL;
  bs_world_request q = {
      .struct_size = sizeof q, .world_size = t->size, .rank = t->rank, .timeout_ns = 60000000000};
  if (bs_find_comm(test_context, "shm", &comm, &state, &t->err) != BS_OK) t->rc = BS_INTERNAL;
  for (int i = 0; i < 60 && t->rc == BS_OK; ++i) {
    test_rank other = *t;
    t->rc = comm->world_open(state, &q, &other.world, &t->err);
    if (t->rc == BS_OK) t->rc = comm->rank_open(other.world, t->rank, &other.handle, &t->err);
    if (t->rc != BS_OK) return;
    float x[5000];
    bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, 5000, "inner");
    for (uint32_t k = 0; k < 5000; ++k) x[k] = (float)(t->rank + (uint32_t)i);
    c.in = c.out = x;
    t->rc = comm->all_reduce(other.handle, &c, &t->err);
    for (uint32_t k = 0; k < 5000 && t->rc == BS_OK; ++k)
      if (x[k] != (float)(3 + 3 * i))
        t->rc = bs_error_set(&t->err, BS_NUMERIC, "TEST", "world %d: %g", i, (double)x[k]);
    if (t->rc == BS_OK) t->rc = reduce(t, 5000, "outer", 0);
    comm->rank_close(other.handle);
    comm->world_close(other.world);
  }
}
START_TEST(test_many_worlds) {
  int status[MOST];
  test_job j = job(3, worlds_body);
  run_job(&j, status);
  for (uint32_t r = 0; r < 3; ++r) {
    ck_assert_int_eq(status[r], 0);
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s", r, outcomes[r].err.message);
  }
}
END_TEST

/* What torchrun sets, and no file that a launcher gives. */
static void attach_only(const char *const *env, int32_t code, const char *id) {
  const bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY};
  const bs_comm *comm = NULL;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_attachment here = {.struct_size = sizeof here};
  ck_assert_int_eq(bs_context_open(&o, &test_context, &err), BS_OK);
  ck_assert_int_eq(bs_find_comm(test_context, "shm", &comm, &state, &err), BS_OK);
  const int32_t rc = comm->attach(state, env, &here, &err);
  ck_assert_int_eq(rc, code);
  if (code != BS_OK) ck_assert_str_eq(err.id, id);
  if (code == BS_OK) ck_assert_uint_eq(here.rank + here.world_size * 10u, 21u);
  bs_context_close(test_context);
}
START_TEST(test_environments) {
  const char *const none[] = {"PATH=/bin", NULL};
  const char *const torch[] = {"RANK=1",
                               "WORLD_SIZE=2",
                               "LOCAL_RANK=1",
                               "LOCAL_WORLD_SIZE=2",
                               "MASTER_ADDR=localhost",
                               "MASTER_PORT=29500",
                               NULL};
  const char *const spread[] = {"RANK=1",
                                "WORLD_SIZE=4",
                                "LOCAL_RANK=1",
                                "LOCAL_WORLD_SIZE=2",
                                "MASTER_ADDR=localhost",
                                "MASTER_PORT=29500",
                                NULL};
  const char *const wrong_rank[] = {"RANK=2",        "WORLD_SIZE=2",  "LOCAL_RANK=2",
                                    "MASTER_ADDR=h", "MASTER_PORT=1", NULL};
  attach_only(none, BS_UNAVAILABLE, "BS-SHM-NOJOB");
  attach_only(torch, BS_OK, "");
  attach_only(spread, BS_UNSUPPORTED, "BS-SHM-MACHINES");
  attach_only(wrong_rank, BS_CONFIG, "BS-SHM-RANK");
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_counts_differ, 2},
                             {test_pairs_differ, 3},
                             {test_dead, 2},
                             {test_stopped, 2},
                             {test_left_in_good_order},
                             {test_abort},
                             {test_configured_otherwise},
                             {test_absent, 2},
                             {test_many_worlds},
                             {test_environments},
                             {0}};
  return run_tests("shm_faults", tests, (test_setup){setup, teardown});
}
