/* SPDX-License-Identifier: MIT
 * The bsrun that has started an MPI job: a rank that hangs before a group is opened ends the others at their
 * deadline, and one that never joins ends the job.
 */
#include <sys/stat.h>

#include "spawn_mpi.h"
#include "tests/run_tests.h"

static ran s;

static const char *bsrun_line(const char *words) {
  static char line[2048];
  snprintf(line, sizeof line,
           "%s --launch mpi --set plugin_trust=any --plugin cpu --set model.B=8 --set model.N=64 --set "
           "model.K=64 --set model.dtype=f32 --tune-cache off --cache off --phase numbers %s",
           getenv("BS_TEST_BSRUN"), words);
  return line;
}

/* Rank 1 never comes to the group that the half of a layer is summed in. */
START_TEST(test_group_opened_late) {
  const char *line = bsrun_line(
      "-P 4 --method blockshock --mask magnitude --timeout 2 --plugin fault --backend "
      "fault:cpu --set plugins.fault.plan=rank=1,op=alloc,seq=1,do=hang");
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 8, "rank 1", line);
  ck_assert_msg(s.seconds < 50.0, "it took %g s, with a deadline of 2 s:\n%s", s.seconds, s.out);
}
END_TEST

/* Words for hardware.mpirun: rank 1 does `first` before it becomes a bsrun. */
static void write_mpirun(const char *first) {
  char path[128];
  snprintf(path, sizeof path, "%s/late", dir);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fprintf(f, "#!/bin/sh\nshift 2\nexec %s %s -n 1 \"$@\" : -n 1 sh -c '%s; exec \"$@\"' late \"$@\"\n",
          kinds[0].mpirun, is_open_mpi(&kinds[0]) ? "--quiet --oversubscribe --allow-run-as-root" : "",
          first);
  fclose(f);
  ck_assert_int_eq(chmod(path, 0700), 0);
}

/* The others wait in MPI_Init for a rank that was stopped, or hangs, before its first line. */
START_TEST(test_never_joins) {
  static const char *const first[] = {"kill -STOP $$", "sleep 1000"};
  static const char *const says[] = {"a signal has stopped it", "1 has not joined"};
  static const double most[] = {50.0, 50.0};
  char line[2300];
  if (_i == 1 && getenv("BS_TEST_BIG") == NULL) return; /* ten seconds */
  write_mpirun(first[_i]);
  snprintf(line, sizeof line, "%s --set hardware.mpirun=%s/late",
           bsrun_line("-P 2 --method row_parallel --timeout 0.5"), dir);
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 8, "BS-RANK-HELLO", line);
  ck_assert_msg(strstr(s.out, says[_i]) != NULL, "%s", s.out);
  ck_assert_msg(s.seconds < most[_i], "it took %g s:\n%s", s.seconds, s.out);
  ck_assert(!is_there("results/raw/*/*/*/DONE"));
}
END_TEST

/* A job of this machine has its own folder of mpirun's files, which is removed. A queue, or the user's words,
 * may lead to machines that have no such folder. */
START_TEST(test_session_folder) {
  static const char *const more[] = {"", "PBS_NODEFILE=/nowhere", ""};
  char path[128], env[512], line[2300], own[256];
  if (!is_open_mpi(&kinds[0])) return;
  snprintf(path, sizeof path, "%s/mpirun", dir);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fprintf(f,
          "#!/bin/sh\n[ \"$1\" = --version ] || ls -d \"$OMPI_MCA_orte_tmpdir_base\" >&2\nexec %s \"$@\"\n",
          kinds[0].mpirun);
  fclose(f);
  ck_assert_int_eq(chmod(path, 0700), 0);
  snprintf(env, sizeof env, "BS_PLUGIN_PATH= PATH=%s:/usr/bin:/bin %s", dir, more[_i]);
  snprintf(line, sizeof line, "%s%s%s", bsrun_line("-P 2 --method row_parallel"),
           _i == 2 ? " --set hardware.mpirun=" : "", _i == 2 ? path : "");
  snprintf(own, sizeof own, "%s/bs-mpi-", dir);
  spawn(&s, env, line);
  if (_i < 2) must_end(&s, 0, dir, line); /* words of one program lack --allow-run-as-root */
  ck_assert_msg((strstr(s.out, own) != NULL) == (_i == 0), "%s", s.out);
  ck_assert(!is_there("bs-mpi-*"));
}
END_TEST

/* The ranks that bsrun starts choose together; those that mpirun starts do in test_mpi_run. */
START_TEST(test_auto) {
  /* --wide: the head of the table is one line, whichever candidate is the fastest */
  const char *line = bsrun_line("-P 2 --method auto --set auto.seconds=0.1 --set auto.measure=3 --wide");
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 0, "auto: ", line);
  ck_assert_msg(strstr(s.out, "RIGHT") != NULL && strstr(s.out, " ms  PREDICTED ms") != NULL, "%s", s.out);
  ck_assert(is_there("results/raw/*/*/*/DONE"));
}
END_TEST

/* Ranks that mpirun has started split one model: one of them speaks, and the numbers are those of one rank.
 */
START_TEST(test_model) {
  static char line[2048];
  snprintf(
      line, sizeof line,
      "%s%s model run builtin:lm:1x64 --dim tokens=4 --dim batch=1 --method column_parallel+row_parallel "
      "--threads 1 --verify",
      mpirun_of(&kinds[0], 2), getenv("BS_TEST_BSRUN"));
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 0, "equal, within round-off, to the graph as written", line);
  const char *table = strstr(s.out, "logits");
  ck_assert_msg(table != NULL && strstr(table + 1, "logits") == NULL, "%s", s.out);
}
END_TEST

/* Ctrl-C while candidates are measured, when no run is open yet. */
START_TEST(test_interrupted_auto) {
  const char *line = bsrun_line(
      "-P 2 --method auto --timeout 20 --set auto.seconds=600 --set model.N=4096 --set model.K=4096 --set "
      "model.B=256");
  spawn_signal.number = SIGINT;
  spawn_signal.pattern = ".";
  spawn_signal.after = 3;
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 130, "interrupted", line);
  ck_assert_ptr_null(strstr(s.out, "error["));
  ck_assert(!is_there("results/raw/*/*/*"));
}
END_TEST

/* Ctrl-C and SIGTERM in a run: rank 0 ends it in good order, and the exit code says what was asked. */
START_TEST(test_interrupted) {
  static const int signals[] = {SIGINT, SIGTERM};
  const char *line = bsrun_line(
      "-P 2 --method row_parallel --timeout 20 --set model.N=512 --set model.K=512 --set "
      "phase.timed_iters=10000000");
  spawn_signal.number = signals[_i];
  spawn_signal.pattern = "results/raw/*/*/*/log.txt"; /* then a signal is the run's */
  spawn_signal.after = 0.5;
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, 128 + signals[_i], "interrupted", line);
  ck_assert(is_there("results/raw/*/*/*/INTERRUPTED"));
  ck_assert(!is_there("results/raw/*/*/*/DONE"));
}
END_TEST

int main(void) {
  if (no_mpi()) return 77;
  const test_case tests[] = {{test_group_opened_late},
                             {test_never_joins, 2},
                             {test_session_folder, 3},
                             {test_auto},
                             {test_model},
                             {test_interrupted_auto},
                             {test_interrupted, 2},
                             {0}};
  return run_tests("mpi launch", tests, (test_setup){dir_make, dir_remove, .at_once = 4});
}
