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
  run_example("", "-P 2 --backend ref", threads);
  run_example("", "-P 4 --comm sim --backend virtual:ref", ranks);
  ck_assert_str_eq(threads, ranks);
  run_example("", "-P 2", threads);
  for (int i = 0; i < n_kinds; ++i) {
    snprintf(words, sizeof words, "--comm %.31s -P 2", kinds[i].id);
    run_example(mpirun_of(&kinds[i], 2), words, ranks);
    ck_assert_str_eq(threads, ranks);
  }
}
END_TEST

/* What goes wrong is told with ranks, and the exit code is that of the error. */
START_TEST(test_wrong) {
  char line[512];
  snprintf(line, sizeof line, "%s/tests/tp_mlp -P 3 --tensor 2", getenv("BS_TEST_BINARY_DIR"));
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 3, "tp-mlp: rank 2: [BS-TP-SIZE] tensor groups of 2 ranks in a world of 3", line);
  snprintf(line, sizeof line, "%s/tests/tp_mlp -P 3 --tensor 1", getenv("BS_TEST_BINARY_DIR"));
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 3, "tp-mlp: rank 2: [TP-MLP-BATCH] 16 tokens cannot be divided evenly among 3 data ranks",
           line);
}
END_TEST

/* The options are those of bsrun, and one that is unknown ends the program. */
START_TEST(test_words) {
  static const struct {
    const char *words, *says;
    int code;
  } rows[] = {{"--help", "-P, --world-size N  number of ranks", 0},
              {"--ranks 4", "tp-mlp: error[TP-MLP-OPTION] unknown option --ranks; hint: tp-mlp --help", 2},
              {"-P two", "--world-size: 'two' is not a whole number from 0", 2},
              {"--tensor 2 --seed", "--seed needs a value", 2},
              {"--foo=3", "unknown option --foo=3", 2},
              {"--method=nosuch", "no method 'nosuch'", 5}};
  char line[1024], first[64], other[64];
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    snprintf(line, sizeof line, "%s/tests/tp_mlp %s", getenv("BS_TEST_BINARY_DIR"), rows[i].words);
    spawn(&s, "BS_PLUGIN_PATH=", line);
    must_end(&s, rows[i].code, rows[i].says, line);
  }
  run_example("", "-P 2", first);
  run_example("", "--world-size=2 --threads 1 --seed 0", other);
  ck_assert_str_eq(first, other);
  run_example("", "-P 2 --seed 1", other);
  ck_assert_str_ne(first, other);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_example}, {test_wrong}, {test_words}, {0}};
  find_kinds();
  return run_tests("tp_example", tests,
                   (test_setup){.before = dir_make, .after = dir_remove, .timeout = 100});
}
