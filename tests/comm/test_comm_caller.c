/* SPDX-License-Identifier: MIT
 * test_comm_caller.c - who may wait busily: the thread that opened, and another that has a core of its own;
 * not one that shares the opener's. */
#include <stdlib.h>

#include "plugins/comm/common/caller.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

typedef struct other {
  comm_caller *caller;
  const cpu_set_t *cores;
  int may[2];
} other;

static void *ask(void *arg) {
  other *o = arg;
  ck_assert_int_eq(pthread_setaffinity_np(pthread_self(), sizeof *o->cores, o->cores), 0);
  for (int i = 0; i < 2; ++i) o->may[i] = comm_caller_may_spin(o->caller);
  return NULL;
}

static int from_thread(const comm_caller *opened, const cpu_set_t *cores) {
  comm_caller caller = *opened; /* a thread that has ended may leave its name to the next */
  other o = {&caller, cores, {-1, -2}};
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, ask, &o), 0);
  pthread_join(thread, NULL);
  ck_assert_int_eq(o.may[0], o.may[1]); /* remembered as it was found */
  return o.may[0];
}

START_TEST(test_who) {
  cpu_set_t all, first, second;
  comm_caller caller;
  ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&first);
  CPU_ZERO(&second);
  for (int c = 0; c < CPU_SETSIZE; ++c) {
    if (!CPU_ISSET(c, &all)) continue;
    cpu_set_t *to = CPU_COUNT(&first) == 0 ? &first : &second;
    if (CPU_COUNT(to) == 0) CPU_SET(c, to);
  }
  ck_assert_int_eq(pthread_setaffinity_np(pthread_self(), sizeof first, &first), 0);
  comm_caller_open(&caller);
  ck_assert_int_eq(comm_caller_may_spin(&caller), 1);
  ck_assert_int_eq(from_thread(&caller, &first), 0);
  ck_assert_int_eq(from_thread(&caller, &all), 0);
  if (CPU_COUNT(&second) == 1) ck_assert_int_eq(from_thread(&caller, &second), 1);
  ck_assert_int_eq(comm_caller_may_spin(&caller), 1);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_who}, {0}};
  return run_tests("comm caller", tests, (test_setup){0});
}
