/* SPDX-License-Identifier: MIT
 * test_stop.c - a request to stop: seen, explained, taken back; and of two askers at once, on two threads,
 * exactly one is the first, as the second of two signals must end the process. */
#include "lab/stop.h"

#include <pthread.h>
#include <signal.h>

#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

START_TEST(seen_and_taken_back) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_stop_check(&err), BS_OK);
  ck_assert_int_eq(bs_stop_ask(SIGTERM), 1);
  ck_assert_int_eq(bs_stop_ask(SIGINT), 0);
  ck_assert_int_eq(bs_stop_asked(), SIGTERM); /* the first one counts */
  ck_assert_int_eq(bs_stop_check(&err), BS_ABORTED);
  ck_assert_str_eq(err.id, "BS-STOPPED");
  ck_assert_ptr_nonnull(strstr(err.message, "SIGTERM"));
  bs_stop_ask(0);
  ck_assert_int_eq(bs_stop_asked(), 0);
  ck_assert_int_eq(bs_stop_ask(SIGINT), 1);
  bs_stop_ask(0);
}
END_TEST

enum { ROUNDS = 2000 };
static pthread_barrier_t barrier;

static void *ask(void *opaque) {
  unsigned char *first = opaque;
  for (int i = 0; i < ROUNDS; i++) {
    pthread_barrier_wait(&barrier);
    first[i] = (unsigned char)bs_stop_ask(SIGINT);
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) bs_stop_ask(0);
  }
  return NULL;
}

START_TEST(one_is_first) {
  static unsigned char here[ROUNDS], there[ROUNDS];
  pthread_t other;
  ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
  ck_assert_int_eq(pthread_create(&other, NULL, ask, there), 0);
  ask(here);
  pthread_join(other, NULL);
  pthread_barrier_destroy(&barrier);
  for (int i = 0; i < ROUNDS; i++) ck_assert_msg(here[i] + there[i] == 1, "round %d", i);
}
END_TEST

int main(void) {
  const test_case tests[] = {{seen_and_taken_back}, {one_is_first}, {0}};
  return run_tests("stop", tests, (test_setup){0});
}
