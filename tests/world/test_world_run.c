/* SPDX-License-Identifier: MIT
 * Making and running worlds: what is refused and how it is said, every rank runs once, errors of one rank end
 * the run, teams, driven worlds. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/run_tests.h"
#include "world_help.h"

static void refused(bs_world_options o, int32_t code, const char *id, const char *text) {
  bs_world *world = NULL;
  memset(&err, 0, sizeof err);
  int32_t rc = bs_world_create(context, &o, &world, &err);
  ck_assert_msg(rc == code && err.code == code, "status %d (%s), not %d", rc, err.message, code);
  if (id != NULL) ck_assert_str_eq(err.id, id);
  ck_assert_msg(strstr(err.message, text) != NULL, "'%s' lacks '%s'", err.message, text);
  ck_assert_ptr_null(world);
}

START_TEST(test_refused) {
  bs_world_options o = options(0, "ref");
  refused(o, BS_CONFIG, "BS-WORLD-SIZE", "0 ranks");
  o.world_size = 1025;
  refused(o, BS_CONFIG, "BS-WORLD-SIZE", "1025 ranks");
  o = options(2, "reff");
  refused(o, BS_NOT_FOUND, NULL, "reff");
  o = options(2, "ref");
  o.comm = "thread";
  refused(o, BS_NOT_FOUND, NULL, "thread");
  o.comm = "attached";
  refused(o, BS_PLUGIN, "BS-WORLD-LAUNCH", "attached lacks attach");
  o.comm = "joined";
  refused(o, BS_CONFIG, "BS-WORLD-SIZE", "3 processes");
  refused(options(1, "nodev"), BS_UNAVAILABLE, "BS-WORLD-DEVICE", "nodev");
  o = options(2, "ref");
  o.threads_per_rank = 1u << 20;
  refused(o, BS_CONFIG, "BS-WORLD-THREADS", "1048576");
  o = options(2, "ref");
  o.timeout_s = -1.0;
  refused(o, BS_CONFIG, "BS-WORLD-TIMEOUT", "-1");
  o = options(2, "ref");
  o.sync_mode = 9;
  refused(o, BS_CONFIG, "BS-WORLD-SYNC", "9");
}
END_TEST

typedef struct tally {
  _Atomic uint32_t calls[16];
  _Atomic uint32_t threads;
} tally;

static int32_t count_main(bs_rank *rank, void *arg, bs_error *e) {
  tally *t = arg;
  atomic_fetch_add(&t->calls[rank_of(rank)], 1u);
  ck_assert_uint_ge(bs_rank_clock_ns(rank), 1);
  int32_t rc = bs_rank_barrier(rank, "all here", e);
  if (rc != BS_OK) return rc;
  for (uint32_t r = 0; r < bs_rank_get_api()->world_size(rank); ++r)
    if (atomic_load(&t->calls[r]) == 0) return BS_INTERNAL;
  return bs_rank_barrier(rank, "all seen", e);
}
START_TEST(test_every_rank_runs) {
  static const uint32_t sizes[] = {1, 2, 3, 8};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    tally t;
    memset(&t, 0, sizeof t);
    bs_world_options o = options(sizes[i], "ref");
    o.bind = 1;
    bs_world *world = world_of(&o);
    ck_assert_uint_eq(bs_world_size(world), sizes[i]);
    ck_assert_uint_eq(bs_world_threads_per_rank(world), 1);
    for (uint32_t k = 1; k <= 3; ++k) { /* a world that did not fail runs again */
      run(world, count_main, &t, BS_OK);
      for (uint32_t r = 0; r < sizes[i]; ++r) ck_assert_uint_eq(atomic_load(&t.calls[r]), k);
    }
    ck_assert_ptr_null(bs_world_rank(world, sizes[i]));
    ck_assert_ptr_nonnull(bs_world_rank(world, sizes[i] - 1));
    bs_world_destroy(world);
  }
}
END_TEST

/* Of a world of processes this one has rank 1 alone; the failure of another comes with its code and rank. */
static int32_t note_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)e;
  atomic_fetch_add(&((tally *)arg)->calls[rank_of(rank)], 1u);
  return BS_OK;
}
static int32_t meet_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)arg;
  return bs_rank_barrier(rank, "meet", e);
}
START_TEST(test_rank_of_processes) {
  tally t;
  bs_attachment here = {.struct_size = sizeof here};
  memset(&t, 0, sizeof t);
  bs_world_options o = options(3, "ref");
  o.bind = 1;
  o.comm = "threads";
  ck_assert_int_eq(bs_context_attach(context, "threads", &here, &err), BS_OK);
  ck_assert_uint_eq(here.world_size, 0);
  ck_assert_uint_eq(bs_context_rank(context), 0);
  o.comm = "joined";
  o.config_hash = 76;
  refused(o, BS_MISMATCH, "BS-TEST-ASKED", "rank 1, hash 76");
  o.config_hash = 77;
  bs_world *world = world_of(&o);
  ck_assert_int_eq(bs_context_attach(context, "joined", &here, &err), BS_OK);
  ck_assert_uint_eq(here.rank * 10 + here.world_size, 13);
  ck_assert_uint_eq(bs_context_rank(context), 1);
  ck_assert_uint_eq(bs_world_own_rank(world), 1);
  ck_assert_uint_eq(bs_world_size(world), 3);
  ck_assert_ptr_null(bs_world_rank(world, 0));
  ck_assert_ptr_nonnull(bs_world_rank(world, 1));
  ck_assert_ptr_null(bs_world_rank(world, 2));
  run(world, note_main, &t, BS_OK);
  for (uint32_t r = 0; r < 3; ++r) ck_assert_uint_eq(atomic_load(&t.calls[r]), r == 1);
  run(world, meet_main, &t, BS_NUMERIC);
  ck_assert_int_eq(err.rank, 2);
  bs_world_destroy(world);
  o = options(1, "ref"); /* one rank is at home: nobody is asked */
  o.comm = "joined";
  world = world_of(&o);
  ck_assert_uint_eq(bs_world_own_rank(world), BS_WORLD_ALL_RANKS);
  run(world, note_main, &t, BS_OK);
  bs_world_destroy(world);
}
END_TEST

/* ---- errors --------------------------------------------------------------------------------- */

static int32_t failing_main(bs_rank *rank, void *arg, bs_error *e) {
  int mode = *(const int *)arg;
  if (rank_of(rank) != 1) return bs_rank_barrier(rank, "wait.here", e);
  if (mode == 1) return BS_NUMERIC; /* without a message */
  memset(e, 0, sizeof *e);
  e->struct_size = sizeof *e;
  e->code = BS_NUMERIC;
  snprintf(e->id, sizeof e->id, "BS-TEST-NAN");
  snprintf(e->message, sizeof e->message, "y[3] is NaN");
  return BS_NUMERIC;
}
START_TEST(test_first_error) {
  for (int i = 0; i < 200; ++i) {
    int mode = i % 2;
    bs_world_options o = options(4, "ref");
    bs_world *world = world_of(&o);
    run(world, failing_main, &mode, BS_NUMERIC); /* not ABORTED, which the others got */
    ck_assert_int_eq(err.rank, 1);
    ck_assert_str_eq(err.id, mode == 0 ? "BS-TEST-NAN" : "BS-RANK-FAILED");
    ck_assert_msg(strstr(err.message, mode == 0 ? "y[3] is NaN" : "NUMERIC") != NULL, "%s", err.message);
    run(world, failing_main, &mode, BS_INVALID_ARGUMENT); /* a failed world stays failed */
    ck_assert_str_eq(err.id, "BS-WORLD-FAILED");
    bs_world_destroy(world);
  }
}
END_TEST

static int32_t late_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)arg;
  if (rank_of(rank) == 0) return bs_rank_barrier(rank, "late.site", e);
  struct timespec t = {0, 500000000};
  nanosleep(&t, NULL);
  return BS_OK;
}
START_TEST(test_deadline) {
  bs_world_options o = options(2, "ref");
  o.timeout_s = 0.2;
  run_by(&o, late_main, NULL, BS_DEADLINE);
  ck_assert_int_eq(err.rank, 0);
  ck_assert_int_eq(bs_status_exit_code(err.code), 8);
  ck_assert_msg(strstr(err.message, "late.site") && strstr(err.message, "missing: rank 1"), "%s",
                err.message);
}
END_TEST

static int32_t disagree_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)arg;
  return bs_rank_barrier(rank, rank_of(rank) == 0 ? "site.a" : "site.b", e);
}
static int32_t nothing_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)e;
  (void)rank;
  atomic_fetch_add((_Atomic uint32_t *)arg, 1u);
  return BS_OK;
}
START_TEST(test_disagree) {
  run_once(2, "ref", disagree_main, NULL, BS_MISMATCH);
  ck_assert_int_eq(bs_status_exit_code(err.code), 9);
  ck_assert_msg(strstr(err.message, "site.a") && strstr(err.message, "site.b"), "%s", err.message);
}
END_TEST
START_TEST(test_device_fails) {
  _Atomic uint32_t ran = 0;
  bs_world_options o = options(2, "halfdev");
  bs_world *world = world_of(&o);
  ck_assert_uint_eq(bs_world_shared_device(world), 0);
  run(world, nothing_main, (void *)&ran, BS_UNAVAILABLE);
  ck_assert_int_eq(err.rank, 1);
  ck_assert_str_eq(err.id, "BS-TEST-OPEN");
  ck_assert_uint_le(atomic_load(&ran), 1);
  bs_world_destroy(world);
  o = options(3, "halfdev");
  world = world_of(&o);
  ck_assert_uint_eq(bs_world_shared_device(world), 1);
  bs_world_destroy(world);
}
END_TEST

/* ---- driven --------------------------------------------------------------------------------- */

static int32_t driven_main(bs_rank *rank, void *arg, bs_error *e) {
  uint32_t *next = arg;
  bs_collective d = {.struct_size = sizeof d, .dtype_in = BS_F32, .rows = 1, .count = 1, .site = "driven.y"};
  bs_coll_plan *plan = NULL;
  if (rank_of(rank) != (*next)++) return BS_INTERNAL;
  int32_t rc = bs_rank_get_api()->collective_prepare(rank, &d, &plan, e);
  return rc == BS_UNSUPPORTED ? BS_OK : BS_INTERNAL; /* it has no all_reduce */
}
START_TEST(test_driven) {
  uint32_t next = 0;
  bs_world_options o = options(100, "ref");
  o.comm = "driven";
  o.threads_per_rank = 0;
  bs_world *world = world_of(&o);
  ck_assert_uint_eq(bs_world_threads_per_rank(world), 1);
  run(world, driven_main, &next, BS_OK);
  ck_assert_uint_eq(next, 100);
  bs_world_destroy(world);
}
END_TEST

/* ---- teams ---------------------------------------------------------------------------------- */

typedef struct team_check {
  bs_rank *rank;
  _Atomic uint32_t seen[8];
  _Atomic uint32_t nested;
  uint32_t width;
} team_check;

static void nested_body(void *arg, uint32_t member, uint32_t width) {
  (void)arg, (void)member, (void)width;
}
static void team_body(void *arg, uint32_t member, uint32_t width) {
  team_check *c = arg;
  if (width != c->width || member >= width) return;
  atomic_fetch_add(&c->seen[member], 1u);
  if (bs_rank_get_api()->parallel_for(c->rank, nested_body, NULL) == BS_INVALID_ARGUMENT)
    atomic_fetch_add(&c->nested, 1u);
}
static int32_t team_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)e;
  team_check c;
  memset(&c, 0, sizeof c);
  c.rank = rank;
  c.width = *(const uint32_t *)arg;
  for (uint32_t k = 1; k <= 500; ++k) {
    if (bs_rank_get_api()->parallel_for(rank, team_body, &c) != BS_OK) return BS_INTERNAL;
    for (uint32_t m = 0; m < 8; ++m)
      if (atomic_load(&c.seen[m]) != (m < c.width ? k : 0)) return BS_INTERNAL;
    if (atomic_load(&c.nested) != k * c.width) return BS_INTERNAL;
    if (k % 100 == 0) { /* let members fall asleep */
      struct timespec t = {0, 2000000};
      nanosleep(&t, NULL);
    }
  }
  return BS_OK;
}
START_TEST(test_team) {
  static uint32_t widths[] = {1, 2, 3, 8};
  for (size_t i = 0; i < sizeof widths / sizeof widths[0]; ++i) {
    bs_world_options o = options(2, "ref");
    o.threads_per_rank = widths[i];
    o.bind = 1;
    bs_world *world = world_of(&o);
    ck_assert_uint_eq(bs_world_threads_per_rank(world), widths[i]);
    run(world, team_main, &widths[i], BS_OK);
    bs_world_destroy(world);
  }
}
END_TEST

/* Pinned ranks run on cores of their own, unpinned ones where they may. */
static int32_t pinned_main(bs_rank *rank, void *arg, bs_error *e) {
  cpu_set_t *sets = arg;
  (void)e;
  return pthread_getaffinity_np(pthread_self(), sizeof(cpu_set_t), &sets[rank_of(rank)]) == 0 ? BS_OK
                                                                                              : BS_INTERNAL;
}
START_TEST(test_pinning) {
  cpu_set_t all, sets[2], both;
  ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
  for (int bind = 0; bind < 2; ++bind) {
    bs_world_options o = options(2, "ref");
    o.bind = (uint32_t)bind;
    run_by(&o, pinned_main, sets, BS_OK);
    CPU_AND(&both, &sets[0], &sets[1]);
    if (bind && CPU_COUNT(&all) >= 2) {
      ck_assert_int_eq(CPU_COUNT(&sets[0]), 1);
      ck_assert_int_eq(CPU_COUNT(&sets[1]), 1);
      ck_assert_int_eq(CPU_COUNT(&both), 0);
    } else {
      ck_assert(CPU_EQUAL(&sets[0], &all) && CPU_EQUAL(&sets[1], &all));
    }
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("world run");
  TCase *c = tcase_create("run");
  tcase_add_unchecked_fixture(c, open_context, close_context);
  tcase_add_test(c, test_refused);
  tcase_add_test(c, test_every_rank_runs);
  tcase_add_test(c, test_rank_of_processes);
  tcase_add_test(c, test_first_error);
  tcase_add_test(c, test_deadline);
  tcase_add_test(c, test_disagree);
  tcase_add_test(c, test_device_fails);
  tcase_add_test(c, test_driven);
  tcase_add_test(c, test_team);
  tcase_add_test(c, test_pinning);
  suite_add_tcase(s, c);
  return run_suite(s);
}
