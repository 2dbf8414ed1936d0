/* SPDX-License-Identifier: MIT */
/* The end of every test program: its tests as a table, run by libcheck. */
#ifndef TESTS_RUN_TESTS_H
#define TESTS_RUN_TESTS_H
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* A row of a table names what it needs. (An option of the command line would stand before clang's -Wextra.)
 */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define TEST_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* A test of START_TEST. A loop test gets the numbers begin to end - 1; with end 0 the test runs once. */
typedef struct test_case {
  const TTest *test;
  int end, begin;
} test_case;

/* What runs before and after each test, and the seconds that a test may take; all may be left out. */
typedef struct test_setup {
  void (*before)(void), (*after)(void);
  double timeout;
} test_setup;

static inline int run_suite(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int ok = srunner_ntests_failed(runner) == 0 && srunner_ntests_run(runner) > 0;
  srunner_free(runner);
  return !ok;
}

/* The rows end with {0}. The answer is the exit status of the program. BS_TEST_PART=1/2 and 2/2 run every
 * second row each: a program that takes long is two tests of ctest. */
static inline int run_tests(const char *name, const test_case *rows, test_setup setup) {
  Suite *suite = suite_create(name);
  TCase *tcase = tcase_create(name);
  if (setup.timeout > 0) tcase_set_timeout(tcase, setup.timeout);
  if (setup.before != NULL || setup.after != NULL) {
    tcase_add_checked_fixture(tcase, setup.before, setup.after);
  }
  const char *text = getenv("BS_TEST_PART");
  unsigned part = 1, parts = 1;
  if (text != NULL && sscanf(text, "%u/%u", &part, &parts) != 2) return 1;
  for (const test_case *row = rows; row->test != NULL; ++row) {
    if ((unsigned)(row - rows) % parts != part - 1) continue;
    if (row->end != 0) {
      tcase_add_loop_test(tcase, row->test, row->begin, row->end);
    } else {
      tcase_add_test(tcase, row->test);
    }
  }
  suite_add_tcase(suite, tcase);
  return run_suite(suite);
}
#endif
