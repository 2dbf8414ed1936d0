/* SPDX-License-Identifier: MIT
 * test_replay.c - a run held against its repetition: another state of a gate, a gate too few and a picosecond
 * of simulated time make another result; bits of an error and the environment are told only. */
#include "lab/compare/replay.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static bs_stored_run run_of(const char *record, const char *env) {
  json_t *one = json_loads(record, 0, NULL), *machine = json_loads(env, 0, NULL);
  ck_assert(one != NULL && machine != NULL);
  return (bs_stored_run){
      .records = json_pack("[o]", one), .env = machine, .samples = json_array(), .config = json_object()};
}

#define GATES(a, b)                                                                               \
  "{\"status\": \"ok\", \"relative_error\": 1e-7, \"gates\": [{\"name\": \"T1\", \"state\": \"" a \
  "\"}, {\"name\": \"T2\", \"state\": \"" b "\"}]}"

static const struct {
  const char *stored, *replay, *env; /* of the replay; the stored run's is {"cpu": "x"} */
  uint32_t unlike;
  const char *part, *what, *is; /* of a row that must be there */
} cases[] = {
    {GATES("pass", "pass"), GATES("pass", "pass"), "{\"cpu\": \"x\"}", 0, "verdict", "gates", "same"},
    {GATES("pass", "fail"), GATES("pass", "fail"), "{\"cpu\": \"x\"}", 0, "verdict", "gates", "same"},
    {GATES("pass", "pass"), GATES("pass", "pass"), "{\"cpu\": \"y\"}", 0, "env", "cpu", "differs"},
    {GATES("pass", "pass"), GATES("pass", "fail"), "{\"cpu\": \"x\"}", 1, "verdict", "T2", "differs"},
    {GATES("pass", "pass"), "{\"status\": \"ok\", \"gates\": [{\"name\": \"T1\", \"state\": \"pass\"}]}",
     "{\"cpu\": \"x\"}", 1, "verdict", "T2", "differs"},
    {GATES("pass", "pass"), "{\"status\": \"failed\", \"gates\": []}", "{\"cpu\": \"x\"}", 3, "verdict",
     "status", "differs"},
    {"{\"status\": \"ok\", \"relative_error\": 1e-7}",
     "{\"status\": \"ok\", \"relative_error\": 1.0000000001e-7}", "{\"cpu\": \"x\"}", 0, "numbers",
     "relative_error", "differs"},
    {"{\"simulated\": {\"us\": 2.355042}}",
     "{\"simulated\": {\"us\": 2.355042, \"trace\": {\"file\": \"f\"}}}", "{\"cpu\": \"x\"}", 0, "time",
     "simulated us", "same"},
    {"{\"simulated\": {\"us\": 2.355042}}", "{\"simulated\": {\"us\": 2.355043}}", "{\"cpu\": \"x\"}", 1,
     "time", "simulated us", "differs"},
    {"{\"simulated\": {\"us\": 2.355042}}", "{}", "{\"cpu\": \"x\"}", 1, "time", "simulated us", "differs"},
};

START_TEST(what_makes_another_result) {
  bs_error err = BS_ERROR_INIT;
  bs_stored_run a = run_of(cases[_i].stored, "{\"cpu\": \"x\"}"), b = run_of(cases[_i].replay, cases[_i].env);
  json_t *rows = NULL;
  uint32_t unlike = 99;
  int found = 0;
  ck_assert_int_eq(bs_replay_rows(&a, &b, &rows, &unlike, &err), BS_OK);
  ck_assert_uint_eq(unlike, cases[_i].unlike);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    found += strcmp(json_string_value(json_object_get(row, "part")), cases[_i].part) == 0 &&
             strcmp(json_string_value(json_object_get(row, "what")), cases[_i].what) == 0 &&
             strcmp(json_string_value(json_object_get(row, "is")), cases[_i].is) == 0;
  }
  ck_assert_int_eq(found, 1);
  json_decref(rows);
  bs_stored_close(&a);
  bs_stored_close(&b);
}
END_TEST

int main(void) {
  const test_case tests[] = {{what_makes_another_result, TEST_COUNT(cases)}, {0}};
  return run_tests("replay", tests, (test_setup){NULL, NULL});
}
