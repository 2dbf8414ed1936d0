/* SPDX-License-Identifier: MIT
 * test_bsrun_doctor.c - the doctor's rows, states and exit codes: a sound machine, a missing backend, a
 * folder that cannot be written, plugins that misbehave, a communicator that adds wrongly. */
#include <jansson.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
  ck_assert_int_eq(chmod(dir, 0700), 0);
}
static void teardown(void) {
  remove_dir(dir);
}

/* A plugin of the fixtures in a folder whose mode is ours. Its path, in a static buffer. */
static const char *fixture(const char *file) {
  static char path[700];
  char command[1500];
  snprintf(command, sizeof command, "mkdir -p '%s/p' && cp '%s/%s' '%s/p/' && chmod 0644 '%s/p/%s'", dir,
           BS_TEST_RUDE_DIR, file, dir, dir, file);
  ck_assert_int_eq(system(command), 0);
  snprintf(path, sizeof path, "%s/p/%s", dir, file);
  return path;
}

static json_t *rows_of(const ran *r) {
  json_error_t why;
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(json_is_array(rows), "%s: %s", why.text, r->out);
  return rows;
}

static const json_t *find(const json_t *rows, const char *what) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(json_string_value(json_object_get(row, "what")), what) == 0) return row;
  }
  return NULL;
}

static const char *field(const json_t *rows, const char *what, const char *key) {
  const char *text = json_string_value(json_object_get(find(rows, what), key));
  ck_assert_msg(text != NULL, "no %s of '%s'", key, what);
  return text;
}

START_TEST(a_sound_machine_has_every_row) {
  static const char *const wanted[] = {"processor",
                                       "instruction sets",
                                       "cores",
                                       "cgroup limits",
                                       "frequency governor",
                                       "load",
                                       "memory",
                                       "huge pages",
                                       "hwloc",
                                       "MPI",
                                       "CUDA driver",
                                       "results folder",
                                       "plugin ref",
                                       "plugin threads",
                                       "plugin blockshock",
                                       "backend ref",
                                       "rank 0",
                                       "rank 1",
                                       "region timer",
                                       "all-reduce",
                                       "GEMM",
                                       "timer self-test",
                                       "machine constants",
                                       "matmul@ref/portable"};
  ran r = bsrun(dir, "doctor", "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    ck_assert_msg(find(rows, wanted[i]) != NULL, "no row '%s' in %s", wanted[i], r.out);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *state = json_string_value(json_object_get(row, "state"));
    const int ok = strcmp(state, "ok") == 0;
    ck_assert(ok || strcmp(state, "warn") == 0);
    ck_assert_uint_eq(json_object_size(row), 4);
    ck_assert_msg(json_string_length(json_object_get(row, "found")) > 0, "%s", r.out);
    ck_assert_msg(ok == (json_string_length(json_object_get(row, "fix")) == 0),
                  "a fix that is not needed, or none");
  }
  ck_assert_ptr_nonnull(strstr(field(rows, "all-reduce", "found"), "add up to 1 on all of 2 ranks"));
  ck_assert_ptr_nonnull(strstr(field(rows, "GEMM", "found"), ", right; matmul@ref/"));
  double least = 0, most = 0;
  ck_assert_int_eq(
      sscanf(field(rows, "region timer", "found"), "a sleep of 50 ms took %lf to %lf", &least, &most), 2);
  ck_assert(least >= 49.9 && most >= least);
  ck_assert_str_eq(field(rows, "region timer", "state"), most <= 60.0 ? "ok" : "warn");
  ck_assert_ptr_nonnull(strstr(r.err, " ok, "));
  ck_assert_int_eq(result_files(dir), 0);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(three_ranks_say_hello) {
  ran r = bsrun(dir, "doctor", "--backend", "ref", "-P", "3", "-q", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_ptr_nonnull(strstr(field(rows, "rank 2", "found"), "hello from cpu "));
  ck_assert_ptr_null(find(rows, "rank 3"));
  ck_assert_ptr_nonnull(strstr(field(rows, "all-reduce", "found"), "add up to 3 on all of 3 ranks"));
  ck_assert_str_eq(r.err, "");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(every_format) {
  static const char *const formats[] = {"md", "csv", "jsonl"}; /* the others: in the other tests */
  ran r = bsrun(dir, "doctor", "--backend", "ref", "-P", "1", "-o", formats[_i], NULL);
  must_be(&r, 0);
  ck_assert(strstr(r.out, "processor") != NULL && strstr(r.out, "timer self-test") != NULL);
  ran_free(&r);
}
END_TEST

START_TEST(a_missing_backend_fails_and_the_rest_is_told) {
  ran r = bsrun(dir, "doctor", "--backend", "nosuch", "-o", "json", NULL);
  must_be(&r, 5);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(field(rows, "backend nosuch", "state"), "fail");
  ck_assert_uint_gt(strlen(field(rows, "backend nosuch", "fix")), 0);
  ck_assert_str_eq(field(rows, "backend ref", "state"), "ok");
  ck_assert_str_eq(field(rows, "all-reduce", "state"), "ok");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(a_results_folder_that_cannot_be) {
  write_text(dir, "file", "");
  ran r = bsrun(dir, "doctor", "--backend", "ref", "--out", "file/below", "-o", "json", NULL);
  must_be(&r, 5);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(field(rows, "results folder", "state"), "fail");
  ck_assert_ptr_nonnull(strstr(field(rows, "results folder", "fix"), "--out"));
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(wrong_sums_are_exit_6) {
  ran r = bsrun(dir, "doctor", "--plugin", fixture("bs_liar.so"), "--backend", "ref", "--set",
                "plugin_trust=any", "-o", "json", NULL);
  must_be(&r, 6);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(field(rows, "all-reduce", "state"), "fail");
  ck_assert_ptr_nonnull(strstr(field(rows, "all-reduce", "found"), "1 is right"));
  ck_assert_str_eq(field(rows, "GEMM", "state"), "ok");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(rude_plugins_cost_a_row) {
  fixture("bs_rude1.so");
  fixture("bs_rude5.so");
  char path[700];
  snprintf(path, sizeof path, "%s/p", dir);
  setenv("BS_PLUGIN_PATH", path, 1);
  ran r = bsrun(dir, "doctor", "--backend", "ref", "--set", "plugin_trust=any", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(field(rows, "plugin rude1", "state"), "warn");
  ck_assert_str_eq(field(rows, "plugin rude5", "state"), "warn");
  ck_assert_ptr_nonnull(strstr(field(rows, "plugin rude5", "found"), "asleep"));
  json_decref(rows);
  ran_free(&r);
  /* Asked for, it is a failure, and nothing opens it outside a child. */
  r = bsrun(dir, "doctor", "--plugin", "rude1", "--backend", "ref", "--set", "plugin_trust=any", "-o", "json",
            NULL);
  must_be(&r, 5);
  rows = rows_of(&r);
  ck_assert_str_eq(field(rows, "plugin rude1", "state"), "fail");
  ck_assert_ptr_null(find(rows, "rank 0"));
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(wrong_use) {
  static const char *const uses[][4] = {
      {"word"},    {"-P", "0"},   {"--timeout", "x"}, {"--timeout", "0"}, {"--cache", ""},       {"--measur"},
      {"--force"}, {"-o", "xml"}, {"--measure=1"},    {"--plugin"},       {"-P", "2", "-P", "3"}};
  char *argv[8] = {(char *)(uintptr_t) "bsrun", (char *)(uintptr_t) "doctor"};
  for (int i = 0; i < 4; i++) argv[i + 2] = (char *)(uintptr_t)uses[_i][i];
  ran r = finish_bsrun(dir, start_bsrun(dir, argv));
  must_be(&r, 2);
  ck_assert(strstr(r.err, "bsrun: error[BS-USE-") == r.err);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

START_TEST(help) {
  ran a = bsrun(dir, "doctor", "--help", NULL), b = bsrun(dir, "help", "doctor", NULL);
  must_be(&a, 0);
  must_be(&b, 0);
  ck_assert_str_eq(a.out, b.out);
  ck_assert(strstr(a.out, "usage: bsrun doctor") != NULL && strstr(a.out, "--measure") != NULL &&
            strstr(a.out, "examples:") != NULL);
  ran_free(&a);
  ran_free(&b);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_sound_machine_has_every_row},
                             {three_ranks_say_hello},
                             {every_format, 3},
                             {a_missing_backend_fails_and_the_rest_is_told},
                             {a_results_folder_that_cannot_be},
                             {wrong_sums_are_exit_6},
                             {rude_plugins_cost_a_row},
                             {wrong_use, 11},
                             {help},
                             {0}};
  return run_tests("bsrun_doctor", tests, (test_setup){setup, teardown});
}
