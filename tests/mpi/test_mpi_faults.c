/* SPDX-License-Identifier: MIT
 * A rank of an MPI job that is killed, stopped, fails or hangs: the others name it and its call, the job ends
 * with 7 or 8 within the deadline and the time that mpirun takes, and no process is left (spawn_mpi.h looks).
 */
#include "spawn_mpi.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

static spawned s;

static const struct {
  const char *what;
  int code;
} faults[] = {{"kill", 7}, {"stop", 8}, {"err", 7}, {"hang", 8}};

/* Only who stands still is missed by a deadline; the others must be told of long before theirs. */
static const char *faulty(int which, int rank, const char *words) {
  const char *deadline = faults[which].code == 7 ? "60" : BS_SLOW ? "3" : "1";
  static char line[2048];
  snprintf(
      line, sizeof line,
      "%s --set plugin_trust=any --plugin cpu --plugin fault --set model.B=8 --set model.N=128 --set "
      "model.K=128 --tune-cache off --timeout %s --method row_parallel --phase 0 --comm fault:threads --set "
      "plugins.fault.plan=rank=%d,op=all_reduce,seq=3,do=%s %s",
      getenv("BS_TEST_BSRUN"), deadline, rank, faults[which].what, words);
  return line;
}

static void must_blame(int rank, const char *what) {
  char blamed[3][48];
  snprintf(blamed[0], sizeof blamed[0], "process of rank %d", rank);
  snprintf(blamed[1], sizeof blamed[1], "missing: rank %d", rank);
  snprintf(blamed[2], sizeof blamed[2], "call 3 of rank %d", rank);
  ck_assert_msg(strstr(s.text, blamed[0]) || strstr(s.text, blamed[1]) || strstr(s.text, blamed[2]),
                "%s of rank %d: not blamed:\n%s", what, rank, s.text);
  ck_assert_ptr_nonnull(strstr(s.text, "all_reduce"));
}

START_TEST(test_launched) { /* kill and stop of each, an error of rank 1 */
  const int rank = _i < 4 ? _i % 2 : 1;
  spawn(&s, "BS_PLUGIN_PATH=", faulty(_i / 2, rank, "--launch mpi -P 2"));
  must_end(&s, faults[_i / 2].code, "bsrun: error[BS-", faults[_i / 2].what);
  must_blame(rank, faults[_i / 2].what);
}
END_TEST

int main(void) {
  if (no_mpi()) return 77;
  const test_case tests[] = {{test_launched, 5}, {0}};
  return run_tests("mpi faults", tests, (test_setup){make_folder, remove_folder});
}
