/* SPDX-License-Identifier: MIT */
/* The end of every test program: its tests as a table, run by libcheck. */
#ifndef TESTS_RUN_TESTS_H
#define TESTS_RUN_TESTS_H
#include <check.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/slow.h"

/* A row of a table names what it needs. (An option of the command line would stand before clang's -Wextra.)
 */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define TEST_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* A test of START_TEST. A loop test gets the numbers begin to end - 1; with end 0 the test runs once. */
typedef struct test_case {
  const TTest *test;
  int end, begin;
} test_case;

/* What runs before and after each test, the seconds that a test may take, and how many tests run at once,
 * each in a process of its own, where tests mostly wait. All may be left out. */
typedef struct test_setup {
  void (*before)(void), (*after)(void);
  double timeout;
  unsigned at_once;
} test_setup;

static inline int run_suite(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int ok = srunner_ntests_failed(runner) == 0 && srunner_ntests_run(runner) > 0;
  srunner_free(runner);
  return !ok;
}

/* Of all tests every one whose number has the remainder part - 1. */
static inline int run_part(const char *name, const test_case *rows, test_setup setup, unsigned part,
                           unsigned parts) {
  unsigned number = 0;
  Suite *suite = suite_create(name);
  TCase *tcase = tcase_create(name);
  if (setup.timeout > 0) tcase_set_timeout(tcase, setup.timeout);
  if (setup.before != NULL || setup.after != NULL) {
    tcase_add_checked_fixture(tcase, setup.before, setup.after);
  }
  for (const test_case *row = rows; row->test != NULL; ++row) {
    const int end = row->end != 0 ? row->end : row->begin + 1;
    for (int i = row->begin; i < end; ++i) {
      if (number++ % parts == part - 1) tcase_add_loop_test(tcase, row->test, i, i + 1);
    }
  }
  suite_add_tcase(suite, tcase);
  return run_suite(suite);
}

/* The rows end with {0}. The answer is the exit status of the program. BS_TEST_PART=1/2 and 2/2 run every
 * second test each: a program that takes long is two tests of ctest. */
static inline int run_tests(const char *name, const test_case *rows, test_setup setup) {
  const char *text = getenv("BS_TEST_PART");
  unsigned part = 1, parts = 1, at_once = setup.at_once > 1 ? setup.at_once : 1;
  int failed = 0, status = 0;
  if (text != NULL && sscanf(text, "%u/%u", &part, &parts) != 2) return 1;
  if (BS_SLOW && at_once > 2) at_once = 2;
  if (at_once == 1) return run_part(name, rows, setup, part, parts);
  fflush(stdout);
  for (unsigned i = 0; i < at_once; ++i) {
    const pid_t pid = fork();
    if (pid < 0) return 1;
    if (pid > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    exit(run_part(name, rows, setup, part + parts * i, parts * at_once));
  }
  while (wait(&status) > 0) failed |= status != 0;
  return failed;
}
#endif
