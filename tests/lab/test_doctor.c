/* SPDX-License-Identifier: MIT
 * test_doctor.c - the doctor's judgements that need no machine: the sleep, the self-test's trials, rows, and
 * results folders. */
#include <sys/stat.h>

#include "lab/doctor/doctor.h"
#include "lab/measure/stats.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

START_TEST(the_sleep) {
  ck_assert_uint_eq(bs_doctor_judge_sleep(50.0), BS_CHECK_OK);
  ck_assert_uint_eq(bs_doctor_judge_sleep(60.0), BS_CHECK_OK);
  ck_assert_uint_eq(bs_doctor_judge_sleep(49.99), BS_CHECK_WARN);
  ck_assert_uint_eq(bs_doctor_judge_sleep(60.01), BS_CHECK_WARN);
  ck_assert_uint_eq(bs_doctor_judge_sleep(0.0), BS_CHECK_WARN);
}
END_TEST

START_TEST(the_self_test) {
  const uint32_t same[] = {BS_WORD_SAME}, unclear[] = {BS_WORD_UNCLEAR},
                 once[] = {BS_WORD_FASTER, BS_WORD_UNCLEAR},
                 twice[] = {BS_WORD_SLOWER, BS_WORD_FASTER, BS_WORD_SAME},
                 always[] = {BS_WORD_FASTER, BS_WORD_FASTER, BS_WORD_SLOWER};
  ck_assert_uint_eq(bs_doctor_judge_self_test(same, 1), BS_CHECK_OK);
  ck_assert_uint_eq(bs_doctor_judge_self_test(unclear, 1), BS_CHECK_OK);
  ck_assert_uint_eq(bs_doctor_judge_self_test(once, 2), BS_CHECK_WARN);
  ck_assert_uint_eq(bs_doctor_judge_self_test(twice, 3), BS_CHECK_WARN);
  ck_assert_uint_eq(bs_doctor_judge_self_test(always, 3), BS_CHECK_FAIL);
}
END_TEST

static const char *text(const bs_doctor *d, size_t i, const char *key) {
  return json_string_value(json_object_get(json_array_get(d->rows, i), key));
}

START_TEST(rows) {
  bs_doctor d = {.rows = json_array()};
  bs_error err = BS_ERROR_INIT;
  bs_doctor_add(&d, "a", BS_CHECK_OK, "not shown", "%d of %s", 3, "four");
  bs_doctor_add(&d, "b", BS_CHECK_WARN, "do this", "\xff");
  bs_error_set(&err, BS_NUMERIC, "BS-X-Y", "off by one");
  bs_error_hint(&err, "count again");
  bs_doctor_error(&d, "c", &err);
  ck_assert_str_eq(text(&d, 0, "found"), "3 of four");
  ck_assert_str_eq(text(&d, 0, "fix"), "");
  ck_assert_str_eq(text(&d, 1, "found"), "(not UTF-8)");
  ck_assert_str_eq(text(&d, 1, "fix"), "do this");
  ck_assert_str_eq(text(&d, 1, "state"), "warn");
  ck_assert_str_eq(text(&d, 2, "found"), "[BS-X-Y] off by one");
  ck_assert_str_eq(text(&d, 2, "fix"), "count again");
  ck_assert_uint_eq(d.counts[0], 1);
  ck_assert_uint_eq(d.counts[1], 1);
  ck_assert_uint_eq(d.counts[2], 1);
  ck_assert_uint_eq(d.wrong, 1);
  json_decref(d.rows);
}
END_TEST

START_TEST(results_folders) {
  const char *dir = scratch_dir();
  char path[700];
  bs_doctor d = {.rows = json_array()};
  snprintf(path, sizeof path, "%s/new/folder", dir);
  bs_doctor_results(&d, path);
  ck_assert_uint_eq(d.counts[BS_CHECK_FAIL], 0);
  ck_assert_int_ne(access(path, F_OK), 0); /* nothing was made */
  snprintf(path, sizeof path, "test -z \"$(ls -A '%s')\"", dir);
  ck_assert_int_eq(system(path), 0);
  write_text(dir, "file", "");
  snprintf(path, sizeof path, "%s/file", dir);
  bs_doctor_results(&d, path);
  ck_assert_uint_eq(d.counts[BS_CHECK_FAIL], 1);
  bs_doctor_results(&d, "/proc/results");
  ck_assert_uint_eq(d.counts[BS_CHECK_FAIL], 2);
  ck_assert_ptr_nonnull(strstr(text(&d, 2, "fix"), "--out"));
  json_decref(d.rows);
  remove_dir(dir);
}
END_TEST

START_TEST(the_host_tells_something) {
  bs_doctor d = {.rows = json_array(), .ranks = 1u << 20};
  bs_doctor_host(&d);
  ck_assert_uint_ge(json_array_size(d.rows), 7);
  ck_assert_uint_eq(d.counts[BS_CHECK_FAIL], 0);
  ck_assert_str_eq(text(&d, 2, "what"), "cores");
  ck_assert_str_eq(text(&d, 2, "state"), "warn"); /* a million ranks are more than there are cores */
  json_decref(d.rows);
}
END_TEST

/* What was measured is in the rows before; a file that cannot be written is a failure of its own. */
START_TEST(constants_that_cannot_be_kept) {
  const char *dir = scratch_dir();
  char path[700];
  bs_doctor d = {.rows = json_array()};
  json_t *constants = json_object();
  write_text(dir, "file", "");
  snprintf(path, sizeof path, "%s/file/below/machine.json", dir);
  bs_doctor_keep(&d, path, constants);
  ck_assert_uint_eq(d.counts[BS_CHECK_FAIL], 1);
  ck_assert_ptr_nonnull(strstr(text(&d, 0, "found"), "measured, but not kept: [BS-CONSTANTS-IO]"));
  ck_assert_ptr_nonnull(strstr(text(&d, 0, "fix"), "--cache FILE chooses another place"));
  bs_doctor_keep(&d, NULL, constants); /* --cache off */
  ck_assert_uint_eq(d.counts[BS_CHECK_FAIL], 1);
  json_decref(constants);
  json_decref(d.rows);
  remove_dir(dir);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_sleep},
                             {the_self_test},
                             {rows},
                             {results_folders},
                             {constants_that_cannot_be_kept},
                             {the_host_tells_something},
                             {0}};
  return run_tests("doctor", tests, (test_setup){0});
}
