/* SPDX-License-Identifier: MIT
 *
 * test_tp_mpi.c - libblockshock-tp under each MPI that is installed: T1 to T6 on ranks that are processes
 * (tp_ranks).
 */
#include "tests/mpi/spawn_mpi.h"
#include "tests/run_tests.h"

static ran s;

static void run_ranks(const mpi_kind *k, int ranks, const char *body) {
  char line[1024];
  snprintf(line, sizeof line, "%s%s/tests/tp_ranks %s %s", mpirun_of(k, ranks), getenv("BS_TEST_BINARY_DIR"),
           k->id, body);
  spawn(&s, "BS_PLUGIN_PATH=", line);
}

/* T1, T2, T3, T5, T6 and the first of T4: on four processes of each MPI, on two of the first. */
START_TEST(test_bodies) {
  const int ranks = _i == 0 ? 2 : 4, kind = _i == 0 ? 0 : _i - 1;
  const mpi_kind *k = &kinds[kind];
  char want[32];
  if (kind >= n_kinds) return;
  run_ranks(k, ranks, "");
  must_end(&s, 0, NULL, k->name);
  for (int r = 0; r < ranks; ++r) {
    snprintf(want, sizeof want, "rank %d: ", r);
    ck_assert_msg(strstr(s.out, want) != NULL, "%s", s.out);
  }
}
END_TEST

/* T4 and T3: the processes that are root causes tell of themselves, and the others of them. */
START_TEST(test_root_causes) {
  static const struct {
    const char *body, *says[2], *never[2];
  } rows[] = {{"t4_roots", {"root 1: the first cause", "root 3: the second cause"}, {"root 0:", "root 2:"}},
              {"t3_exception", {"root 1: on purpose", "on purpose"}, {"root 0:", "root 3:"}}};
  run_ranks(&kinds[0], 4, rows[_i].body);
  ck_assert_msg(s.code != 0, "%s", s.out);
  for (int i = 0; i < 2; ++i) {
    ck_assert_msg(strstr(s.out, rows[_i].says[i]) != NULL, "no '%s':\n%s", rows[_i].says[i], s.out);
    ck_assert_msg(strstr(s.out, rows[_i].never[i]) == NULL, "'%s':\n%s", rows[_i].never[i], s.out);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_bodies, 3}, {test_root_causes, 2}, {0}};
  if (no_mpi()) return 77;
  return run_tests("tp_mpi", tests,
                   (test_setup){.before = dir_make, .after = dir_remove, .timeout = 100, .at_once = 2});
}
