/* SPDX-License-Identifier: MIT
 * The threads of ranks stay from one run to the next and end with their world: which threads run, what they
 * keep, and when they end after failures, a rank that hangs, and a fork. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "core/base/log.h"
#include "tests/run_tests.h"
#include "world_help.h"

#if BS_SLOW
#define RUNS 200
#else
#define RUNS 1000
#endif
#define MOST 5

static _Thread_local uint32_t runs_here;
static pthread_key_t end_key;
static _Atomic uint32_t begun, ended; /* threads that were a rank */
static sem_t go, gone;

static void count_end(void *unused) {
  (void)unused;
  atomic_fetch_add(&ended, 1u);
  sem_post(&gone);
}
static void open_all(void) {
  open_context();
  ck_assert_int_eq(pthread_key_create(&end_key, count_end), 0);
  sem_init(&go, 0, 0);
  sem_init(&gone, 0, 0);
}

/* A rank's runs fill this. */
typedef struct seat {
  pthread_t thread;
  uint32_t runs; /* the thread's own count */
  uint32_t strangers;
  int32_t log_rank;
} seat;

static void sit(seat *mine) {
  if (runs_here++ == 0) {
    atomic_fetch_add(&begun, 1u);
    pthread_setspecific(end_key, &begun);
    mine->thread = pthread_self();
  }
  mine->strangers += !pthread_equal(mine->thread, pthread_self());
  mine->runs = runs_here;
  mine->log_rank = bs_log_rank();
}
static int32_t sit_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)e;
  sit((seat *)arg + rank_of(rank));
  return BS_OK;
}

static const struct {
  uint32_t size, bind;
} worlds[] = {{1, 0}, {1, 1}, {2, 0}, {2, 1}, {MOST, 0}, {MOST, 1}};

START_TEST(runs_take_the_same_threads) {
  const uint32_t size = worlds[_i].size;
  bs_world_options o = options(size, "ref");
  o.bind = worlds[_i].bind;
  for (uint32_t turn = 1; turn <= 2; ++turn) {
    seat seats[MOST] = {0};
    bs_world *world = world_of(&o);
    for (int i = 0; i < RUNS; ++i) run(world, sit_main, seats, BS_OK);
    ck_assert_uint_eq(begun, turn * size);
    ck_assert_uint_eq(ended, (turn - 1) * size);
    for (uint32_t r = 0; r < size; ++r) {
      ck_assert_uint_eq(seats[r].runs, RUNS);
      ck_assert_uint_eq(seats[r].strangers, 0);
      ck_assert_int_eq(seats[r].log_rank, (int32_t)r);
    }
    bs_world_destroy(world);
    ck_assert_uint_eq(ended, turn * size); /* the world waits for their end */
  }
  bs_world_destroy(world_of(&o)); /* no run, no threads */
  ck_assert_uint_eq(begun, 2 * size);
}
END_TEST

/* The ranks of a run wait for each other twice. */
static int32_t meet_main(bs_rank *rank, void *arg, bs_error *e) {
  sit((seat *)arg + rank_of(rank));
  const int32_t rc = bs_rank_barrier(rank, "first", e);
  return rc == BS_OK ? bs_rank_barrier(rank, "second", e) : rc;
}
START_TEST(ranks_meet_in_every_run) {
  seat seats[MOST] = {0};
  bs_world_options o = options((uint32_t)_i, "ref");
  bs_world *world = world_of(&o);
  for (int i = 0; i < RUNS / 4; ++i) run(world, meet_main, seats, BS_OK);
  for (int i = 0; i < _i; ++i) ck_assert_uint_eq(seats[i].runs, RUNS / 4);
  bs_world_destroy(world);
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------- */

static int32_t failing_main(bs_rank *rank, void *arg, bs_error *e) {
  sit((seat *)arg + rank_of(rank));
  if (rank_of(rank) != 1) return bs_rank_barrier(rank, "never", e);
  snprintf(e->message, sizeof e->message, "y[3] is NaN");
  return e->code = BS_NUMERIC;
}
START_TEST(threads_of_a_failed_world_end) {
  const uint32_t size = worlds[_i].size;
  seat seats[MOST] = {0};
  bs_world_options o = options(size, "ref");
  bs_world *world = world_of(&o);
  for (int i = 0; i < 3; ++i) run(world, sit_main, seats, BS_OK);
  run(world, failing_main, seats, BS_NUMERIC);
  ck_assert_int_eq(err.rank, 1);
  for (uint32_t r = 0; r < size; ++r) ck_assert_uint_eq(seats[r].runs, 4);
  ck_assert_uint_eq(ended, size);
  run(world, sit_main, seats, BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-WORLD-FAILED");
  ck_assert_uint_eq(begun, size);
  bs_world_destroy(world);
}
END_TEST

static int32_t hanging_main(bs_rank *rank, void *arg, bs_error *e) {
  sit((seat *)arg + rank_of(rank));
  if (rank_of(rank) != 1) return bs_rank_barrier(rank, "hangs", e);
  while (sem_wait(&go) != 0) continue;
  return BS_OK;
}
START_TEST(a_rank_that_hangs_is_left_behind) {
  static seat seats[3]; /* the rank may write there still */
  bs_world_options o = options(3, "ref");
  o.timeout_s = 0.1;
  bs_world *world = world_of(&o);
  for (int i = 0; i < 3; ++i) run(world, sit_main, seats, BS_OK);
  run(world, hanging_main, seats, BS_DEADLINE);
  ck_assert_uint_eq(bs_world_left_behind(world), 1);
  ck_assert_uint_eq(ended, 2);
  bs_world_destroy(world); /* frees nothing */
  for (int i = 0; i < 2; ++i) sem_wait(&gone);
  sem_post(&go);
  sem_wait(&gone); /* back from its call, it ends too */
  ck_assert_uint_eq(ended, 3);
}
END_TEST

/* ---- fork ----------------------------------------------------------------------------------- */

START_TEST(a_child_starts_threads_of_its_own) {
  seat seats[2] = {0};
  int status = 1;
  bs_world_options o = options(2, "ref");
  bs_world *world = world_of(&o);
  for (int i = 0; i < 50; ++i) run(world, sit_main, seats, BS_OK);
#if !BS_SLOW /* ThreadSanitizer ends a child that starts a thread */
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    for (int i = 0; _i == 0 && i < 3; ++i) run(world, sit_main, seats, BS_OK);
    const uint32_t want = _i == 0 ? 4 : 2;
    bs_world_destroy(world);
    _exit(begun == want && ended == want - 2 ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
#else
  (void)status;
#endif
  run(world, sit_main, seats, BS_OK);
  ck_assert_uint_eq(seats[0].strangers + seats[1].strangers, 0);
  ck_assert_uint_eq(begun, 2);
  bs_world_destroy(world);
  ck_assert_uint_eq(ended, 2);
}
END_TEST

int main(void) {
  const test_case tests[] = {{runs_take_the_same_threads, TEST_COUNT(worlds)},
                             {ranks_meet_in_every_run, MOST + 1, 2},
                             {threads_of_a_failed_world_end, 5, 3},
                             {a_rank_that_hangs_is_left_behind},
                             {a_child_starts_threads_of_its_own, 2},
                             {0}};
  return run_tests("world_park", tests, (test_setup){open_all, close_context, 30});
}
