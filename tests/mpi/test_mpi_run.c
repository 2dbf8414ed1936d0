/* SPDX-License-Identifier: MIT
 * bsrun as ranks of an MPI job: under a bare mpirun and with --launch mpi, every method, all gates; one run
 * folder; other configurations, other launchers and no launcher are errors before any number.
 */
#include <sys/stat.h>

#include "spawn_mpi.h"
#include "tests/run_tests.h"

#define SMALL_RUN \
  " --plugin cpu --set model.B=8 --set model.N=128 --set model.K=128 --tune-cache off --timeout 20"

static ran s;

static const char *bsrun_line(const char *words) {
  static char line[2048];
  snprintf(line, sizeof line, "%s --set plugin_trust=any" SMALL_RUN " %s", getenv("BS_TEST_BSRUN"), words);
  return line;
}

static void run_as(const char *before, const char *words, int code, const char *says) {
  char line[4096];
  snprintf(line, sizeof line, "%s%s", before, bsrun_line(words));
  spawn(&s, "BS_PLUGIN_PATH=", line);
  must_end(&s, code, says, line);
}

static int count(const char *pattern) {
  char command[256];
  int n = -1;
  snprintf(command, sizeof command, "ls -d %s/%s 2>/dev/null | wc -l", dir, pattern);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  if (fscanf(f, "%d", &n) != 1) n = -1;
  pclose(f);
  return n;
}

START_TEST(test_bare) {
  for (int k = 0; k < n_kinds; k++) {
    const char *words = k == 0 ? "--phase numbers --method auto --set auto.seconds=0.1"
                               : "--phase numbers --method row_parallel";
    run_as(mpirun_of(&kinds[k], 2 + k), words, 0, "RIGHT");
    ck_assert_ptr_null(strstr(s.out, "NOT SHOWN RIGHT"));
    ck_assert_int_eq(count("results/raw/*/*/*/DONE"), k + 1); /* rank 0 alone writes */
  }
}
END_TEST

/* The host runs algorithms over this communicator as over the others. */
START_TEST(test_algorithms) {
  static const char *const words[] = {"-P 2 --method row_parallel --set hardware.algorithm=testring",
                                      "-P 3 --method column_parallel --set hardware.algorithm=testring",
                                      "-P 4 --method blockshock --set hardware.algorithm=testtwo:times=2",
                                      "-P 3 --method row_parallel --set hardware.algorithm=native",
                                      "-P 3 --method row_parallel --set hardware.algorithm=ring",
                                      "-P 4 --method blockshock --set hardware.algorithm=two_shot"};
  char line[1024];
  snprintf(line, sizeof line,
           "--launch mpi --phase numbers --plugin %.600s/tests/world_fixtures/bs_testalgorithm.so %s",
           getenv("BS_TEST_BINARY_DIR"), words[_i]);
  run_as("", line, 0, "RIGHT");
  ck_assert_ptr_null(strstr(s.out, "NOT SHOWN RIGHT"));
}
END_TEST

/* Each method and phase, with as many ranks as its masks allow. */
START_TEST(test_methods) {
  static const char *const words[] = {
      "--method blockshock --phase numbers", "--method row_parallel --phase backward",
      ("--method column_parallel --phase time --set phase.pairs_max=5 --set phase.pairs_min=5 --set "
       "phase.pairs_seconds=0.1"),
      "--method masked_split --phase numbers",
      "--method blockshock --mask magnitude --phase train --set phase.remask=1 --set method.bias=true"};
  char line[256];
  snprintf(line, sizeof line, "--launch mpi -P 2 %s", words[_i]);
  run_as("", line, 0, "run: results/raw/");
  ck_assert_ptr_null(strstr(s.out, "NOT SHOWN RIGHT"));
  ck_assert_int_eq(count("results/raw/*/*/*/DONE"), 1);
}
END_TEST

/* One of each sort; test_run_mismatch has every key, of processes. */
START_TEST(test_other_configuration) {
  static const char *const others[][2] = {{"workload.seed", "7"},
                                          {"model.N", "47"},
                                          {"method.reduce_dtype", "bf16"},
                                          {"mask.name", "interleave"}};
  char before[4096];
  if (!is_open_mpi(&kinds[0])) return;
  snprintf(before, sizeof before, "%s%s --set %s=%s : -n 1 ", mpirun_of(&kinds[0], 1),
           bsrun_line("--phase numbers --method blockshock -P 2"), others[_i][0], others[_i][1]);
  run_as(before, "--phase numbers --method blockshock -P 2", 9, others[_i][0]);
  ck_assert_int_eq(count("results/raw/*/*/*/DONE"), 0);
}
END_TEST

/* -P 1 in a job of two: an error of every rank, not a rank that waits for a leader. */
START_TEST(test_world_of_one) {
  if (!is_open_mpi(&kinds[0])) return;
  run_as(mpirun_of(&kinds[0], 2), "--phase numbers --method dense -P 1", 3, "BS-WORLD-SIZE");
  ck_assert_int_eq(count("results/raw/*/*/*/DONE"), 0);
}
END_TEST

START_TEST(test_wrong_launcher) {
  run_as("", "--phase numbers --method row_parallel -P 2 --comm mpi", 5, "BS-MPI-LAUNCHER");
  run_as("", "--phase numbers --method row_parallel -P 2 --launch mpi --set hardware.mpirun=false", 7,
         "BS-LAUNCH-MPIRUN");
  if (n_kinds < 2) return;
  char words[128];
  snprintf(words, sizeof words, "--phase numbers --method row_parallel -P 2 --comm %s", kinds[1].id);
  run_as(mpirun_of(&kinds[0], 2), words, 5, "was started by the launcher of");
}
END_TEST

/* A Slurm job as its environment and a srun that is mpirun in disguise show it: the words that it gets, the
 * original's hardware file, and the batch script. */
static void make_srun(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/srun", dir);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fprintf(f,
          "#!/bin/sh\necho \"srun: $*\" >&2\nwhile :; do case $1 in --*) shift ;; -n) n=$2; shift 2 ;; *) "
          "break ;; esac; done\n"
          "exec %s%s -n ${n:-4} \"$@\"\n",
          kinds[0].mpirun, is_open_mpi(&kinds[0]) ? " --oversubscribe --allow-run-as-root" : "");
  fclose(f);
  ck_assert_int_eq(chmod(path, 0700), 0);
}

START_TEST(test_slurm) {
  char env[512], line[4096];
  make_srun();
  snprintf(env, sizeof env, "BS_PLUGIN_PATH= SLURM_JOB_ID=7 PATH=%s:/usr/bin:/bin BSRUN=%s BSRUN_OUT=%s/out",
           dir, getenv("BS_TEST_BSRUN"), dir);
  spawn(&s, env, bsrun_line("--set hardware.launcher=slurm -P 2 --phase numbers --method row_parallel"));
  must_end(&s, 0, "srun: --kill-on-bad-exit=1 --mpi=pmix -n 2 ", "hardware.launcher=slurm");
  ck_assert_ptr_nonnull(strstr(s.out, "hardware.launcher slurm: --launch mpi"));
  ck_assert_int_eq(count("results/raw/*/*/*/DONE"), 1);
  snprintf(line, sizeof line,
           "%s/scripts/slurm/bsrun.sbatch --set plugin_trust=any" SMALL_RUN
           " --phase numbers --method row_parallel -o jsonl",
           getenv("BS_TEST_SOURCE_DIR"));
  spawn(&s, env, line);
  must_end(&s, 0, "srun: --kill-on-bad-exit=1 --mpi=pmix --cpus-per-task=1", "the batch script");
  ck_assert_int_eq(count("out/*/*/*/DONE"), 1);
  ck_assert_ptr_nonnull(strstr(s.out, "\"world_size\":4")); /* of the tasks, not the method's default of 2 */
}
END_TEST

/* srun without MPI's process manager: P tasks that know nothing of each other. */
START_TEST(test_srun_without_pmi) {
  spawn(&s, "BS_PLUGIN_PATH= SLURM_JOB_ID=7 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 SLURM_PROCID=0",
        bsrun_line("--phase numbers --method row_parallel"));
  must_end(&s, 5, "without MPI's process manager", "srun without PMI");
}
END_TEST

int main(void) {
  if (no_mpi()) return 77;
  const test_case tests[] = {{test_bare},
                             {test_methods, 5},
                             {test_algorithms, 6},
                             {test_other_configuration, 4},
                             {test_world_of_one},
                             {test_wrong_launcher},
                             {test_slurm},
                             {test_srun_without_pmi},
                             {0}};
  return run_tests("mpi run", tests, (test_setup){dir_make, dir_remove, .at_once = 3});
}
