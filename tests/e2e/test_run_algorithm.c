/* SPDX-License-Identifier: MIT
 * test_run_algorithm.c - hardware.algorithm from the command line: phase 0 passes on threads and processes
 * with every algorithm, the record names what ran and what is promised of the bits, and wrong names are
 * refused. */
#include <stdio.h>
#include <string.h>

#include "run_help.h"
#include "tests/run_tests.h"

static char cwd[64], plugin[512];

static void setup(void) {
  run_make_folder(cwd);
  snprintf(plugin, sizeof plugin, "%.400s/tests/world_fixtures/bs_testalgorithm.so",
           getenv("BS_TEST_BINARY_DIR"));
}
static void teardown(void) {
  run_remove(cwd);
}

typedef struct point {
  const char *launch, *method, *ranks, *algorithm, *dtype, *note, *repro;
} point;
static const point points[] = {
    {"threads", "row_parallel", "2", "testring", "float32", "all_reduce@algorithm/testring", "R1"},
    {"threads", "blockshock", "4", "testtwo:times=2", "bf16", "all_reduce@algorithm/testtwo", "R1"},
    {"threads", "column_parallel", "3", "testring", "bf16", "all_gather@algorithm/testring", "R1"},
    {"threads", "blockshock", "2", "native", "float32", "all_reduce@threads/any order", "R0"},
    {"threads", "row_parallel", "2", "two_shot", "float32", "all_reduce@algorithm/two_shot", "R1"},
    {"threads", "blockshock", "4", "ring", "bf16", "all_reduce@algorithm/ring", "R1"},
    {"processes", "row_parallel", "3", "ring", "float32", "all_reduce@algorithm/ring", "R1"},
    {"processes", "blockshock", "2", "two_shot", "float32", "all_reduce@algorithm/two_shot", "R1"},
    {"processes", "row_parallel", "3", "testring", "bf16", "all_reduce@algorithm/testring", "R1"},
    {"processes", "blockshock", "4", "testtwo", "float32", "all_reduce@algorithm/testtwo", "R1"},
    {"processes", "column_parallel", "2", "testring", "float32", "all_gather@algorithm/testring", "R1"},
};
enum { POINTS = sizeof points / sizeof points[0] };

START_TEST(every_gate_passes) {
  const point *p = &points[_i];
  char algorithm[64], dtype[64];
  run_result r;
  snprintf(algorithm, sizeof algorithm, "hardware.algorithm=%s", p->algorithm);
  snprintf(dtype, sizeof dtype, "model.dtype=%s", p->dtype);
  run_bsrun(
      &r, cwd, NULL,
      run_words("run --plugin cpu --plugin %s --launch %s --method %s -P %s --phase 0 --set %s --set %s "
                "--set plugin_trust=any --set model.N=72 --set model.K=128 --set model.B=13 "
                "--set hardware.threads_per_rank=1 --timeout 20 --out out -o jsonl",
                plugin, p->launch, p->method, p->ranks, algorithm, dtype));
  run_expect(&r, 0, p->algorithm);
  json_t *rows = run_rows(r.out);
  json_t *record = run_record(cwd, run_str(json_array_get(rows, 0), "run_dir"));
  ck_assert(json_is_true(json_object_get(record, "passed")));
  ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
  ck_assert_str_eq(run_str(record, "repro"), p->repro);
  char *text = json_dumps(record, 0);
  ck_assert_msg(p->note == NULL || strstr(text, p->note) != NULL, "%s", text);
  free(text);
  json_decref(record);
  json_decref(rows);
  run_free(&r);
}
END_TEST

START_TEST(wrong_names_are_refused) {
  static const run_bad bad[] = {
      {"unknown", 3, "BS-PLG-NOTFOUND", "testring", {"--set", "hardware.algorithm=testrig"}},
      {"a cost alone", 3, "BS-COLL-ALGORITHM", "cost alone", {"--set", "hardware.algorithm=testcost"}},
      {"an option", 3, "BS-NAME-OPTIONS", "'times'", {"--set", "hardware.algorithm=testtwo:tims=1"}},
      {"no topology", 3, "BS-PLG-NOTFOUND", "topology", {"--set", "hardware.topology=nowhere"}},
      {"a wrong schedule", 5, "BS-COLL-STEP", "testoutside", {"--set", "hardware.algorithm=testoutside"}},
  };
  const char *const common[] = {"run",
                                "--plugin",
                                "cpu",
                                "--plugin",
                                plugin,
                                "--method",
                                "row_parallel",
                                "-P",
                                "2",
                                "--phase",
                                "0",
                                "--set",
                                "model.N=16",
                                "--set",
                                "model.K=16",
                                "--set",
                                "model.B=2",
                                "--set",
                                "plugin_trust=any",
                                "--out",
                                "out",
                                NULL};
  run_check_bad(cwd, NULL, common, &bad[_i]);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_gate_passes, POINTS}, {wrong_names_are_refused, 5}, {0}};
  return run_tests("algorithm", tests, (test_setup){setup, teardown, 60, 2});
}
