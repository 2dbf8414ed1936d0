/* SPDX-License-Identifier: MIT
 * A rank of an MPI job that is killed, stopped, fails or hangs: the others name it and its call, the job ends
 * with 7 or 8 within the deadline and the time that mpirun takes, and no process is left (spawn_mpi.h looks).
 */
#include <sys/stat.h>

#include "spawn_mpi.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

static ran s;
static const char *deadline = BS_SLOW ? "3" : "2", *method = "row_parallel";

static const char *faulty(const char *what, int rank, const char *words) {
  static char line[2048];
  snprintf(line, sizeof line,
           "%s --set plugin_trust=any --plugin cpu --plugin fault --set model.B=8 --set model.N=128 --set "
           "model.K=128 --tune-cache off --timeout %s --method %s --phase numbers --comm fault:threads --set "
           "plugins.fault.plan=rank=%d,op=all_reduce,seq=3,do=%s %s",
           getenv("BS_TEST_BSRUN"), deadline, method, rank, what, words);
  return line;
}

static void must_blame(int rank, const char *what) {
  char blamed[3][48];
  snprintf(blamed[0], sizeof blamed[0], "process of rank %d", rank);
  snprintf(blamed[1], sizeof blamed[1], "missing: rank %d", rank);
  snprintf(blamed[2], sizeof blamed[2], "call 3 of rank %d", rank);
  ck_assert_msg(strstr(s.out, blamed[0]) || strstr(s.out, blamed[1]) || strstr(s.out, blamed[2]),
                "%s of rank %d: not blamed:\n%s", what, rank, s.out);
  ck_assert_ptr_nonnull(strstr(s.out, "all_reduce"));
}

/* mpirun makes the exit status: it is not 0. MPICH's kills the others at once unless told not to. */
static const struct {
  const char *what, *method, *words;
  int ranks;
} bare[] = {{"kill", "row_parallel", "--mask interleave", 3},
            {"kill", "blockshock", "", 2},
            {"stop", "blockshock", "", 2}};

START_TEST(test_bare) {
  method = bare[_i].method;
  for (int k = 0; k < n_kinds; k++) {
    char line[4096];
    const char *patient = is_open_mpi(&kinds[k]) ? "" : "-disable-auto-cleanup ";
    snprintf(line, sizeof line, "%s%s%s", mpirun_of(&kinds[k], bare[_i].ranks), patient,
             faulty(bare[_i].what, 1, bare[_i].words));
    spawn(&s, "BS_PLUGIN_PATH=", line);
    ck_assert_int_ne(s.code, 0);
    /* DEAD, DEADLINE. MPICH's mpirun at times ends the others' output before they have said it. */
    if (!is_open_mpi(&kinds[k]) && strstr(s.out, "bsrun: error[") == NULL) continue;
    ck_assert_msg(strstr(s.out, "bsrun: error[BS-COLL-DE") != NULL, "%s\n%s", line, s.out);
    must_blame(1, bare[_i].what);
    /* the record says the same */
    snprintf(line, sizeof line,
             "grep -q '\"failed\"' %s/results/raw/*/*/*/DONE && grep -q BS-COLL-DE "
             "%s/results/raw/*/*/*/metrics.jsonl",
             dir, dir);
    ck_assert_msg(system(line) == 0, "%s", line);
  }
}
END_TEST

/* Each rank takes itself for a machine: what is told by messages, and who says nothing. */
START_TEST(test_between_machines) {
  char words[128];
  snprintf(words, sizeof words, "--launch mpi -P 2 --set plugins.%s.ranks_per_machine=1", kinds[0].id);
  spawn(&s, "BS_PLUGIN_PATH=", faulty(_i == 0 ? "err" : "hang", 1, words));
  must_end(&s, _i == 0 ? 7 : 8, "bsrun: error[BS-", "between machines");
  must_blame(1, "between machines");
}
END_TEST

/* One that a signal ends is alone on its machine: nobody there sees it, and mpirun ends the others at once.
 * With a deadline that passes before that, rank 0 has missed it and says the same. The board out of reach, as
 * from another machine: its guard says it. */
static const struct {
  int rank, far;
  const char *deadline;
} alone[] = {{0, 0, "20"}, {1, 0, "20"}, {2, 0, "20"}, {1, 0, BS_SLOW ? "1" : "0.5"}, {1, 1, "20"}};

START_TEST(test_killed_alone) {
  char words[512], far[128] = "", dead[64];
  if (alone[_i].far) { /* a script: words of hardware.mpirun have no quotes */
    snprintf(far, sizeof far, "--set hardware.mpirun=%s/far", dir);
    FILE *f = fopen(strchr(far, '/'), "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\nshift 2\nexec %s env BLOCKSHOCK_MPI_BOARD=/nowhere \"$@\"\n",
            mpirun_of(&kinds[0], 3));
    fclose(f);
    ck_assert_int_eq(chmod(strchr(far, '/'), 0700), 0);
  }
  snprintf(words, sizeof words, "--launch mpi -P 3 --mask interleave --set plugins.%s.ranks_per_machine=1 %s",
           kinds[0].id, far);
  deadline = alone[_i].deadline;
  spawn(&s, "BS_PLUGIN_PATH=", faulty("kill", alone[_i].rank, words));
  snprintf(dead, sizeof dead, "rank %d (process ", alone[_i].rank);
  must_end(&s, 7, "bsrun: error[BS-RANK-DEAD]", words);
  ck_assert_msg(strstr(s.out, dead) != NULL && strstr(s.out, "was killed by signal 9") != NULL, "%s", s.out);
  const char *first = strstr(s.out, "bsrun: error[");
  ck_assert_msg(strstr(first + 1, "bsrun: error[") == NULL, "more than one error line:\n%s", s.out);
}
END_TEST

int main(void) {
  if (no_mpi()) return 77;
  const test_case tests[] = {
      {test_bare, TEST_COUNT(bare)}, {test_between_machines, 2}, {test_killed_alone, TEST_COUNT(alone)}, {0}};
  return run_tests("mpi blame", tests, (test_setup){dir_make, dir_remove, .at_once = 4});
}
