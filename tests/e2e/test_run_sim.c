/* SPDX-License-Identifier: MIT
 * test_run_sim.c - thousands of ranks in virtual time, and the memory that they take. Other runs of the
 * simulator are in tests/cases/sim.case. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

#define SIM "--plugin sim --hardware sim-flat --out out -o jsonl --set model.dtype="
#define ENDLESS " --set plugins.sim.flops=0 --set plugins.sim.mem_Bps=0"

static void check(const json_t *row, const char *key, double want, const char *what) {
  ck_assert_msg(fabs(run_num(row, key) - want) < 1e-6, "%s: %s is %.6f, not %.6f", what, key,
                run_num(row, key), want);
}

/* Many ranks of one process. 65,536 of them, 2 GiB, where there is time (make verify). */
static const struct {
  const char *line;
  double us;
  long mib;
  int big;
} many[] = {
    {SIM "f32 --phase time --method column_parallel -P 4096" ENDLESS, 2068.466400, 128, 0},
    {SIM "f32 --phase time --method row_parallel -P 4096" ENDLESS, 4136.932800, 128, 0},
    {SIM "f32 --phase time --method blockshock -P 4096" ENDLESS, 4136.932800, 128, 0},
    {SIM "f32 --phase time --method row_parallel -P 65536 --n 65536 --set method.bias=false" ENDLESS,
     66206.078400, 2048, 1},
};

START_TEST(many_ranks) {
  ran r;
  struct rusage used;
  if (many[_i].big && getenv("BS_TEST_BIG") == NULL) return;
  run_bsrun(&r, dir, NULL, run_words(many[_i].line, NULL));
  run_expect(&r, 0, many[_i].line);
  json_t *rows = run_rows(r.out);
  check(json_array_get(rows, 0), "simulated_us", many[_i].us, many[_i].line);
  ck_assert_int_eq(getrusage(RUSAGE_CHILDREN, &used), 0);
  ck_assert_msg(BS_SLOW || used.ru_maxrss <= many[_i].mib * 1024, "%s: %ld KiB", many[_i].line,
                used.ru_maxrss);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{many_ranks, TEST_COUNT(many)}, {0}};
  return run_tests("run_sim", tests, (test_setup){dir_make, dir_remove, .timeout = 600, .at_once = 4});
}
