/* SPDX-License-Identifier: MIT
 * Every collective between the ranks of an MPI job, in many shapes and dtypes: the bytes are those of
 * `threads` (mpi_collectives.c), for 2, 3 and 4 ranks and with each MPI that is installed.
 */
#include "spawn_mpi.h"
#include "tests/run_tests.h"

static void same_bits(const mpi_kind *k, int ranks, const char *param) {
  char line[1024], env[256], says[64];
  static ran s;
  snprintf(line, sizeof line, "%s%s/tests/mpi_collectives", mpirun_of(k, ranks),
           getenv("BS_TEST_BINARY_DIR"));
  snprintf(env, sizeof env, "JOB_COMM=%s%s%s%s%s", k->id, param != NULL ? " JOB_PARAM=" : "",
           param != NULL ? k->id : "", param != NULL ? "." : "", param != NULL ? param : "");
  snprintf(says, sizeof says, "cases of %d ranks: the same bits", ranks);
  spawn(&s, env, line);
  must_end(&s, 0, says, line);
}

START_TEST(test_ranks) {
  same_bits(&kinds[0], 2 + _i, NULL);
}
END_TEST

/* The other MPI, where there is one. */
START_TEST(test_other) {
  if (n_kinds > 1) same_bits(&kinds[1], 3, NULL);
}
END_TEST

/* Ranks of one machine that take it for several: what crosses machines goes by messages, and the bits are
 * still those of `threads`. Machines of 1, 2 and 2, and of 3 ranks and 1. */
START_TEST(test_machines) {
  static const char *const params[] = {"ranks_per_machine=1", "ranks_per_machine=2", "ranks_per_machine=3"};
  same_bits(&kinds[_i % n_kinds], 4 - (_i == 0), params[_i]);
}
END_TEST

int main(void) {
  if (no_mpi()) return 77;
  const test_case tests[] = {{test_ranks, 3}, {test_other}, {test_machines, 3}, {0}};
  return run_tests("mpi collectives", tests, (test_setup){dir_make, dir_remove});
}
