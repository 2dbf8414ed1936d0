/* SPDX-License-Identifier: MIT
 * test_bsrun_doctor.c - the doctor's rows on a sound machine. tests/cases/doctor.case has what it says of
 * others. */
#include <jansson.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

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

int main(void) {
  const test_case tests[] = {{a_sound_machine_has_every_row}, {0}};
  return run_tests("bsrun_doctor", tests, (test_setup){dir_make, dir_remove});
}
