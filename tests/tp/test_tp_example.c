/* SPDX-License-Identifier: MIT
 *
 * test_tp_example.c - examples/tp-mlp as it is built here: it prints one loss, however its ranks run.
 */
#include "tests/mpi/spawn_mpi.h"
#include "tests/run_tests.h"

static ran s;

static void run_example(const char *before, const char *words, char *out_loss) {
  char line[1024];
  snprintf(line, sizeof line, "%s%s/tests/tp_mlp %s", before, getenv("BS_TEST_BINARY_DIR"), words);
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 0, "step 19  loss ", line);
  const char *at = strstr(s.out, "step 19  loss ");
  snprintf(out_loss, 64, "%.21s", at != NULL ? at : "");
}

/* One source: the same loss on threads, on processes of each MPI that is installed, and on simulated ranks.
 */
START_TEST(test_example) {
  char threads[64], ranks[64], words[64];
  run_example("", "--ranks 2 --backend ref", threads);
  run_example("", "--ranks 4 --comm sim --backend virtual:ref", ranks);
  ck_assert_str_eq(threads, ranks);
  run_example("", "--ranks 2", threads);
  for (int i = 0; i < n_kinds; ++i) {
    snprintf(words, sizeof words, "--comm %.31s --ranks 2", kinds[i].id);
    run_example(mpirun_of(&kinds[i], 2), words, ranks);
    ck_assert_str_eq(threads, ranks);
  }
}
END_TEST

/* What goes wrong is told with ranks, and the exit code is that of the error. */
START_TEST(test_wrong) {
  char line[512];
  snprintf(line, sizeof line, "%s/tests/tp_mlp --ranks 3 --tensor 2", getenv("BS_TEST_BINARY_DIR"));
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 3, "tp-mlp: rank 2: [BS-TP-SIZE] tensor groups of 2 ranks in a world of 3", line);
  snprintf(line, sizeof line, "%s/tests/tp_mlp --ranks 3 --tensor 1", getenv("BS_TEST_BINARY_DIR"));
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 3, "tp-mlp: rank 2: [TP-MLP-BATCH] 16 tokens cannot be divided evenly among 3 data ranks",
           line);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_example}, {test_wrong}, {0}};
  find_kinds();
  return run_tests("tp_example", tests,
                   (test_setup){.before = dir_make, .after = dir_remove, .timeout = 100});
}
