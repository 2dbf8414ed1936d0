/* SPDX-License-Identifier: MIT
 * Ranks that are processes, over "shm": rank 0 enters and leaves its world many times while the others run,
 * with the collectives of all ranks in one order; what rank 0 fails with ends the others. */
#include "core/world/executor.h"
#include "processes.h"
#include "tests/run_tests.h"

#define SIZE 3u
#define PAIRS 200

static bs_world *world;
static bs_coll_plan *plan; /* stays from one pair to the next */
static uint64_t right;     /* sums */

/* Sums the numbers rank + i: every second time by start and wait, which have a thread of their own. */
static int32_t add_up(bs_rank *rank, int i, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_collective d = {.struct_size = sizeof d,
                           .kind = BS_COLL_ALL_REDUCE,
                           .dtype_in = BS_F32,
                           .rows = 1,
                           .count = 1,
                           .site = "sum"};
  float x = (float)((int)api->rank(rank) + i), y = -1.0f;
  bs_tensor in = {.struct_size = sizeof in,
                  .dtype = BS_F32,
                  .rank = 2,
                  .dims = {1, 1},
                  .strides = {1, 1},
                  .data = &x,
                  .bytes = sizeof x};
  bs_tensor out = in;
  out.data = &y;
  int32_t rc = plan == NULL ? api->collective_prepare(rank, &d, &plan, err) : BS_OK;
  if (rc == BS_OK && i % 2 == 0) rc = api->collective_run(plan, &in, &out, NULL, err);
  if (rc == BS_OK && i % 2 != 0) {
    rc = api->collective_start(plan, &in, &out, NULL, err);
    if (rc == BS_OK) rc = api->collective_wait(plan, err);
  }
  right += y == (float)(3 + 3 * i);
  return rc == BS_OK && i % 5 == 0 ? bs_rank_barrier(rank, "fifth", err) : rc;
}

static int32_t one_main(bs_rank *rank, void *arg, bs_error *err) {
  return add_up(rank, *(const int *)arg, err);
}
static int32_t all_main(bs_rank *rank, void *arg, bs_error *err) {
  int32_t rc = BS_OK;
  (void)arg;
  for (int i = 0; rc == BS_OK && i < PAIRS; ++i) rc = add_up(rank, i, err);
  return rc;
}

/* Rank 0 enters, and runs each seventh time; rank 1 runs once; rank 2 runs each time. */
static int32_t add_all(uint32_t rank, bs_error *err) {
  bs_rank *me = NULL;
  int32_t rc = rank == 1 ? bs_world_run(world, all_main, NULL, err) : BS_OK;
  for (int i = 0; rank != 1 && rc == BS_OK && i < PAIRS; ++i) {
    if (rank == 2 || i % 7 == 6) {
      rc = bs_world_run(world, one_main, &i, err);
      continue;
    }
    rc = bs_world_enter(world, &me, err);
    if (rc != BS_OK) break;
    rc = add_up(me, i, err);
    const int32_t left = bs_world_leave(world, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = left;
  }
  return rc;
}

static int32_t wait_main(bs_rank *rank, void *arg, bs_error *err) {
  (void)arg;
  return bs_rank_barrier(rank, "never", err);
}
/* Rank 0 fails its world while the others wait for it. */
static int32_t fail_there(uint32_t rank, bs_error *err) {
  bs_rank *me = NULL;
  bs_error mine = BS_ERROR_INIT;
  if (rank != 0) return bs_world_run(world, wait_main, NULL, err);
  int32_t rc = bs_world_enter(world, &me, err);
  if (rc != BS_OK) return rc;
  bs_error_set(&mine, BS_NUMERIC, "BS-TEST-NAN", "y[3] is NaN");
  bs_world_fail(world, BS_NUMERIC, &mine);
  return bs_world_leave(world, err);
}
/* Rank 0 leaves with a collective that it has started and that no other rank comes to. */
static int32_t leave_unwaited(uint32_t rank, bs_error *err) {
  static float x[1];
  bs_rank *me = NULL;
  const bs_collective d = {.struct_size = sizeof d,
                           .kind = BS_COLL_ALL_REDUCE,
                           .dtype_in = BS_F32,
                           .rows = 1,
                           .count = 1,
                           .site = "left"};
  bs_tensor t = {.struct_size = sizeof t,
                 .dtype = BS_F32,
                 .rank = 2,
                 .dims = {1, 1},
                 .strides = {1, 1},
                 .data = x,
                 .bytes = sizeof x};
  if (rank != 0) return BS_OK;
  int32_t rc = bs_world_enter(world, &me, err);
  if (rc == BS_OK) rc = bs_rank_get_api()->collective_prepare(me, &d, &plan, err);
  if (rc == BS_OK) rc = bs_rank_get_api()->collective_start(plan, &t, &t, NULL, err);
  return rc == BS_OK ? bs_world_leave(world, err) : rc;
}

static void rank_process_of_world(uint32_t rank, int fd, int32_t (*body)(uint32_t rank, bs_error *err)) {
  outcome *out = &outcomes[rank];
  bs_error err = BS_ERROR_INIT;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  set("BLOCKSHOCK_RANK", rank);
  set("BLOCKSHOCK_WORLD_SIZE", SIZE);
  set("BLOCKSHOCK_SHM_FD", (uint32_t)fd);
  const bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY};
  const bs_world_options w = {.struct_size = sizeof w,
                              .world_size = SIZE,
                              .backend = "ref",
                              .comm = "shm",
                              .threads_per_rank = 1,
                              .timeout_s = 60};
  if (bs_context_open(&o, &test_context, &err) != BS_OK) die("context", &err);
  if (bs_world_create(test_context, &w, &world, &err) != BS_OK) die("world", &err);
  out->rc = body(rank, &err);
  out->err = err;
  out->bits = right;
  out->finished = 1;
  if (plan != NULL && out->rc == BS_OK) bs_rank_get_api()->collective_release(plan);
  bs_world_destroy(world);
  bs_context_close(test_context);
}

static void run_worlds(int32_t (*body)(uint32_t rank, bs_error *err)) {
  pid_t pids[SIZE];
  const int fd = (int)syscall(SYS_memfd_create, "test", 0u);
  ck_assert_int_ge(fd, 0);
  memset(outcomes, 0, MOST * sizeof *outcomes);
  fflush(NULL);
  for (uint32_t r = 0; r < SIZE; ++r) {
    pids[r] = fork();
    ck_assert_int_ge(pids[r], 0);
    if (pids[r] != 0) continue;
    rank_process_of_world(r, fd, body);
    _exit(0);
  }
  for (uint32_t r = 0; r < SIZE; ++r) {
    int status = -1;
    ck_assert_int_eq(waitpid(pids[r], &status, 0), pids[r]);
    ck_assert_int_eq(status, 0);
  }
  close(fd);
}

START_TEST(rank_0_comes_and_goes) {
  run_worlds(add_all);
  for (uint32_t r = 0; r < SIZE; ++r) {
    ck_assert_msg(outcomes[r].rc == BS_OK, "rank %u: %s %s", r, outcomes[r].err.id, outcomes[r].err.message);
    ck_assert_uint_eq(outcomes[r].bits, PAIRS);
  }
}
END_TEST

START_TEST(a_failure_of_rank_0_ends_the_others) {
  run_worlds(fail_there);
  says(0, BS_NUMERIC, "BS-TEST-NAN", "y[3] is NaN", "");
  for (uint32_t r = 1; r < SIZE; ++r) {
    says(r, BS_NUMERIC, "BS-COLL-ABORTED", "rank 0", "y[3] is NaN");
    ck_assert_int_eq(outcomes[r].err.rank, 0);
  }
}
END_TEST

START_TEST(what_was_started_is_waited_for) {
  run_worlds(leave_unwaited);
  says(0, BS_INVALID_ARGUMENT, "BS-COLL-UNWAITED", "rank 0", "1 collectives");
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {rank_0_comes_and_goes}, {a_failure_of_rank_0_ends_the_others}, {what_was_started_is_waited_for}, {0}};
  return run_tests("shm_enter", tests, (test_setup){setup, teardown, 60});
}
