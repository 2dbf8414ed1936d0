/* SPDX-License-Identifier: MIT
 * bsrun torture with ranks that mpirun starts: one that is killed, and one that stands still, at its calls of
 * every kind; in a layer also one that fails and one that hangs. The card says for each that the exit code
 * was 7 or 8, that the line named the rank and its op, and that no process was left; spawn_mpi.h looks once
 * more.
 */
#include "spawn_mpi.h"
#include "tests/run_tests.h"

static ran s;

static void torture(const char *words, const char *score) {
  char line[2048];
  snprintf(line, sizeof line, "%s torture --set plugin_trust=any %s", getenv("BS_TEST_BSRUN"), words);
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 0, score, words);
}

START_TEST(test_each_op) {
  torture("--launch mpi -P 2 --preset quick --fault kill --fault stop", "score: 16 of 16 as specified");
  ck_assert_ptr_nonnull(strstr(s.out, "OF comm mpi"));
}
END_TEST

/* Rank 0 too, which leads and prints; that mpirun starts the ranks follows from the communicator. */
START_TEST(test_each_rank) {
  torture("--comm mpi -P 3 --op all_reduce --fault kill --fault stop", "score: 12 of 12 as specified");
}
END_TEST

/* Each alone on its machine: guards see what nobody else does. */
START_TEST(test_each_machine) {
  char words[256];
  snprintf(words, sizeof words,
           "--launch mpi -P 3 --op all_reduce --fault kill --fault stop --set plugins.%s.ranks_per_machine=1",
           kinds[0].id);
  torture(words, "score: 12 of 12 as specified");
}
END_TEST

START_TEST(test_method) {
  torture("--launch mpi --method row_parallel -P 2 --fault kill --fault stop --fault err --fault hang",
          "score: 8 of 8 as specified");
}
END_TEST

int main(void) {
  if (no_mpi()) return 77;
  const test_case tests[] = {{test_each_op}, {test_each_rank}, {test_each_machine}, {test_method}, {0}};
  return run_tests("mpi torture", tests, (test_setup){dir_make, dir_remove, .at_once = 2});
}
