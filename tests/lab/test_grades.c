/* SPDX-License-Identifier: MIT
 * test_grades.c - the file of grades: what was given to a file is found again by its sum, here and under this
 * ABI only; damaged lines cost themselves; and what a record says of each plugin. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "blockshock/blockshock.h"
#include "lab/store/file_sum.h"
#include "lab/store/grade.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const char *dir;
static char path[700];
static void setup(void) {
  dir = scratch_dir();
  snprintf(path, sizeof path, "%s/a/b/grades.jsonl", dir);
}
static void teardown(void) {
  remove_dir(dir);
}

/* A grade line of this ABI. In a static buffer. */
static const char *said(const char *lead, const char *counts) {
  static char line[200];
  snprintf(line, sizeof line, "%sblockshock-conformant %u.%u: op (%s)", lead, BS_ABI_MAJOR, BS_ABI_MINOR,
           counts);
  return line;
}

static bs_grades opened(void) {
  bs_grades grades;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_grades_open(path, &grades, &err) == BS_OK, "%s", err.message);
  return grades;
}

static int32_t add(const char *sum, const char *line, const char *kit) {
  bs_grades grades = opened();
  bs_error err = BS_ERROR_INIT;
  const bs_grade grade = {.plugin = "acme", .sha256 = sum, .line = line, .kit = kit};
  const int32_t rc = bs_grades_add(&grades, &grade, &err);
  if (rc == BS_INPUT) ck_assert_str_eq(err.id, "BS-GRADE-LINE");
  bs_grades_close(&grades);
  return rc;
}

START_TEST(the_last_grade_of_a_file_counts) {
  ck_assert_int_eq(add("aa", said("", "20 pass, 1 unsupported, 0 xfail"), "quick"), BS_OK);
  ck_assert_int_eq(add("bb", said("", "9 pass, 0 unsupported, 0 xfail"), "quick"), BS_OK);
  ck_assert_int_eq(add("aa", said("NOT ", "2 FAIL, 18 pass, 1 unsupported, 3 xfail"), "full"), BS_OK);
  bs_grades grades = opened();
  const json_t *e = bs_grades_find(&grades, "aa"), *counts = json_object_get(e, "counts");
  ck_assert_ptr_nonnull(e);
  ck_assert(json_is_false(json_object_get(e, "conformant")));
  ck_assert_str_eq(json_string_value(json_object_get(e, "kit")), "full");
  ck_assert_int_eq(json_integer_value(json_object_get(counts, "fail")), 2);
  ck_assert_int_eq(json_integer_value(json_object_get(counts, "pass")), 18);
  ck_assert_int_eq(json_integer_value(json_object_get(counts, "unsupported")), 1);
  ck_assert_int_eq(json_integer_value(json_object_get(counts, "xfail")), 3);
  ck_assert_str_eq(json_string_value(json_object_get(e, "blockshock")), bs_version());
  ck_assert(json_is_true(json_object_get(bs_grades_find(&grades, "bb"), "conformant")));
  ck_assert_ptr_null(bs_grades_find(&grades, "cc"));
  ck_assert_uint_eq(grades.lines.broken + grades.lines.foreign, 0);
  bs_grades_close(&grades);
}
END_TEST

/* A graded file is known by its stamp and is not read. Other bytes of the same size and mtime are no graded
 * file: the kernel gave them another ctime. */
START_TEST(a_graded_file_is_not_read_again) {
  char file[700], stamp[BS_FILE_STAMP];
  bs_error err = BS_ERROR_INIT;
  struct stat st;
  snprintf(file, sizeof file, "%s/bs_acme.so", dir);
  write_text(dir, "bs_acme.so", "one");
  ck_assert(bs_file_stamp(file, stamp) && !bs_file_stamp("/nonexistent", (char[BS_FILE_STAMP]){0}));
  bs_grades grades = opened();
  const bs_grade grade = {.plugin = "acme",
                          .sha256 = "aa",
                          .stamp = stamp,
                          .line = said("", "20 pass, 1 unsupported, 0 xfail"),
                          .kit = "quick"};
  ck_assert_int_eq(bs_grades_add(&grades, &grade, &err), BS_OK);
  bs_grades_close(&grades);
  grades = opened();
  const uint64_t reads = bs_file_sum_reads();
  ck_assert_ptr_nonnull(bs_grades_of_file(&grades, "acme", file));
  ck_assert_ptr_null(bs_grades_of_file(&grades, "acme", "/nonexistent"));
  ck_assert_uint_eq(bs_file_sum_reads(), reads);
  ck_assert_int_eq(stat(file, &st), 0);
  do { /* the kernel's clock of files moves once in some milliseconds */
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    write_text(dir, "bs_acme.so", "two");
    ck_assert_int_eq(utimensat(AT_FDCWD, file, times, 0), 0);
  } while (bs_grades_of_file(&grades, "acme", file) != NULL);
  ck_assert_uint_eq(bs_file_sum_reads(), reads + 1);
  ck_assert_ptr_null(bs_grades_of_file(&grades, "other", file)); /* it has no grades at all */
  bs_grades_close(&grades);
}
END_TEST

static const char *const no_grades[] = {"",
                                        "blockshock-conformant",
                                        "blockshock-conformant 0.2: op",
                                        "blockshock-conformant 0.2: op (20 pass)",
                                        "conformant 0.2: op (20 pass, 1 unsupported, 0 xfail)",
                                        "blockshock-conformant 0.2: op (20 pass, 1 unsupported, 0 xfail",
                                        "ok 5 - abi.later_host"};

START_TEST(what_is_no_grade_is_not_kept) {
  ck_assert_int_eq(add("aa", no_grades[_i], "quick"), BS_INPUT);
  ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

static void append_text(const char *text) {
  FILE *f = fopen(path, "a");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
}

/* The only line, with one member set to another value. */
static void append_changed(const char *key, json_t *value) {
  bs_grades grades = opened();
  json_t *e = json_copy((json_t *)(uintptr_t)bs_grades_find(&grades, "aa"));
  json_object_set_new(e, key, value);
  json_object_set_new(e, "sha256", json_string("bb"));
  char *text = json_dumps(e, JSON_COMPACT);
  append_text(text);
  append_text("\n");
  free(text);
  json_decref(e);
  bs_grades_close(&grades);
}

START_TEST(damaged_and_foreign_lines_cost_themselves) {
  ck_assert_int_eq(add("aa", said("", "20 pass, 1 unsupported, 0 xfail"), "quick"), BS_OK);
  append_text("{\"format\":1,\"plugin\":\"acme\",\"sha256\":\"bb\"}\n\xff\xfe\n[]\n");
  append_changed("counts", json_integer(20));
  append_changed("abi", json_string("9.9"));
  append_changed("isa", json_pack("[s]", "none"));
  append_text("{\"torn");
  ck_assert_int_eq(add("cc", said("", "1 pass, 0 unsupported, 0 xfail"), "quick"), BS_OK);
  bs_grades grades = opened();
  ck_assert_uint_eq(grades.lines.broken, 5);
  ck_assert_uint_eq(grades.lines.foreign, 2);
  ck_assert_ptr_nonnull(bs_grades_find(&grades, "aa"));
  ck_assert_ptr_null(bs_grades_find(&grades, "bb"));
  ck_assert_ptr_nonnull(bs_grades_find(&grades, "cc")); /* not in the torn line */
  bs_grades_close(&grades);
}
END_TEST

START_TEST(a_file_that_cannot_be_used) {
  bs_grades grades;
  bs_error err = BS_ERROR_INIT;
  const char *line = said("", "20 pass, 1 unsupported, 0 xfail");
  const bs_grade grade = {.plugin = "acme", .sha256 = "aa", .line = line, .kit = "quick"};
  ck_assert_int_eq(bs_grades_open(dir, &grades, &err), BS_IO); /* a folder */
  ck_assert_str_eq(err.id, "BS-GRADE-IO");
  ck_assert_ptr_null(bs_grades_find(&grades, "aa"));
  ck_assert_int_eq(bs_grades_add(&grades, &grade, &err), BS_OK); /* nowhere */
  bs_grades_close(&grades);
  ck_assert_int_eq(add("aa", line, "quick"), BS_OK);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  ck_assert_int_eq(flock(fd, LOCK_EX), 0);
  grades = opened();
  ck_assert_int_eq(bs_grades_add(&grades, &grade, &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-GRADE-LOCK");
  bs_grades_close(&grades);
  close(fd);
}
END_TEST

/* In a record: the grade, or null. What the row or env.json says already is left out. */
START_TEST(rows_of_plugins_are_marked) {
  bs_error err = BS_ERROR_INIT;
  json_t *rows = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "id", "acme", "sha256", "aa", "id", "other",
                           "sha256", "bb", "id", "ref", "library_build_id", "cc");
  ck_assert_int_eq(add("aa", said("", "20 pass, 1 unsupported, 0 xfail"), "quick"), BS_OK);
  bs_grades grades = opened();
  ck_assert_int_eq(bs_grades_mark(&grades, rows, &err), BS_OK);
  const json_t *grade = json_object_get(json_array_get(rows, 0), "grade");
  ck_assert_str_eq(json_string_value(json_object_get(grade, "line")),
                   said("", "20 pass, 1 unsupported, 0 xfail"));
  ck_assert_uint_eq(json_object_size(grade), 8); /* docs/runs.md names them */
  ck_assert_ptr_null(json_object_get(grade, "isa"));
  for (size_t i = 1; i < 3; i++) ck_assert(json_is_null(json_object_get(json_array_get(rows, i), "grade")));
  ck_assert_ptr_nonnull(json_object_get(bs_grades_find(&grades, "aa"), "isa")); /* the entry is as it was */
  json_decref(rows);
  bs_grades_close(&grades);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_last_grade_of_a_file_counts},
                             {a_graded_file_is_not_read_again},
                             {what_is_no_grade_is_not_kept, TEST_COUNT(no_grades)},
                             {damaged_and_foreign_lines_cost_themselves},
                             {a_file_that_cannot_be_used},
                             {rows_of_plugins_are_marked},
                             {0}};
  return run_tests("grades", tests, (test_setup){setup, teardown});
}
