/* SPDX-License-Identifier: MIT
 * test_bsrun_measure.c - `doctor --measure` measures the machine's constants and keeps them in a file, which
 * phase 1 then takes; a broken file is warned of and replaced, and a busy machine is not measured. */
#include <sched.h>

#include "tests/bsrun/constants_run.h"
#include "tests/run_tests.h"

/* The rates of the 2:4 product are stored beside those of the dense one, and used for it alone. */
static void check_halves(void) {
  ran r = bsrun(dir, "explain", "mask", "random_2of4", "-P", "2", "--n", "256", "--dtype", "f32", "--plugin",
                "ref", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL), *row;
  size_t i, seen = 0;
  json_array_foreach(rows, i, row) {
    const char *form = json_string_value(json_object_get(row, "form"));
    const int sparse = strcmp(form, "2:4") == 0;
    ck_assert_msg(json_is_number(json_object_get(row, "predicted_ms")) == sparse, "%s: %s", form, r.out);
    seen += (size_t)sparse;
  }
  ck_assert_uint_eq(seen, 2);
  json_decref(rows);
  ran_free(&r);
}

START_TEST(a_corrupt_file_is_warned_of_and_rewritten) {
  ran r;
  json_t *none = json_object();
  store(none);
  write_text(cache, "machine.json", "{\"format\": 2, \"key\"");
  json_t *machine = phase1(NULL, NULL, &r);
  must_say(machine, "measured");
  ck_assert_ptr_nonnull(strstr(r.err, "bsrun: warning: [BS-CONSTANTS-FILE]"));
  json_decref(machine);
  ran_free(&r);
  /* The machine that runs the tests is not a quiet one. */
  r = bsrun(dir, "doctor", "--measure", "--force", "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.err, "bsrun: warning: [BS-CONSTANTS-FILE]"));
  ck_assert_ptr_nonnull(strstr(r.out, "memory bandwidth"));
  ck_assert_ptr_nonnull(strstr(r.out, "all-reduce cost"));
  ck_assert_ptr_nonnull(strstr(r.out, "ref f32"));
  ran_free(&r);
  json_t *fresh = load(cache, "machine.json"), *own = bs_constants_key();
  ck_assert(json_equal(json_object_get(fresh, "key"), own));
  ck_assert_int_eq((int)json_integer_value(json_object_get(fresh, "format")), BS_CONSTANTS_FORMAT);
  ck_assert_uint_eq(json_array_size(json_object_get(fresh, "arithmetic")), 5);
  ck_assert(json_is_number(json_object_get(json_object_get(fresh, "conditions"), "load_before")));
  ck_assert_uint_ge(json_array_size(json_object_get(fresh, "host")), 1);
  ck_assert_uint_ge(json_array_size(json_object_get(fresh, "kernels")), 3); /* dtypes of ref */
  machine = phase1(NULL, NULL, &r);
  must_say(machine, "stored");
  check_halves();
  json_decref(machine);
  ran_free(&r);
  json_decref(own);
  json_decref(fresh);
  json_decref(none);
  char command[800];
  snprintf(command, sizeof command, "test \"$(ls -A '%s')\" = machine.json",
           cache); /* no temporary is left */
  ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Beside a process that takes the only core there is nothing to measure, and the old file stays. */
START_TEST(a_busy_machine_is_refused) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
  json_t *constants = round_constants("ref");
  store(constants);
  const pid_t busy = fork();
  if (busy == 0)
    for (volatile unsigned i = 0;; i++) continue;
  ran r = bsrun(dir, "doctor", "--measure", "--backend", "ref", "-P", "1", NULL);
  kill(busy, SIGKILL);
  waitpid(busy, NULL, 0);
  must_be(&r, 5);
  ck_assert_msg(strstr(r.out, "not measured: others took ") != NULL && strstr(r.out, "--force") != NULL, "%s",
                r.out);
  ran_free(&r);
  json_t *left = load(cache, "machine.json");
  ck_assert(json_equal(left, constants));
  json_decref(left);
  json_decref(constants);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_corrupt_file_is_warned_of_and_rewritten}, {a_busy_machine_is_refused}, {0}};
  return run_tests("bsrun_measure", tests, (test_setup){setup, dir_remove});
}
