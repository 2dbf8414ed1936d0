/* SPDX-License-Identifier: MIT
 * test_run_bad_store.c - results folders that are full or shared: the right exit, one error line, nothing
 * half written; several bsrun at once; and Ctrl-C. tests/cases/store.case has folders that are in the way. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

#define SMALL_RUN                                                                                         \
  "--method", "row_parallel", "--phase", "0", "-q", "--set", "model.N=16", "--set", "model.B=4", "--set", \
      "phase.fault_gate=false"
static const char *const common[] = {SMALL_RUN, NULL};
static const char *const out_args[] = {"--out", "out", NULL};

/* `first` may be NULL. */
static pid_t start_words(const char *const *first, const char *const *args, rlim_t file_limit) {
  const char *argv[32] = {run_env("BS_TEST_BSRUN")};
  size_t n = 1;
  for (size_t i = 0; first != NULL && first[i] != NULL; i++) argv[n++] = first[i];
  for (size_t i = 0; args[i] != NULL; i++) argv[n++] = args[i];
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (chdir(dir) != 0 || freopen("said.out", "a", stdout) == NULL || freopen("said.err", "a", stderr) == NULL)
    _exit(125);
  if (file_limit != RLIM_INFINITY) {
    const struct rlimit limit = {file_limit, file_limit};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(125);
  }
  execv(argv[0], (char *const *)(size_t)argv);
  _exit(126);
}

static pid_t start(const char *const *args, rlim_t file_limit) {
  return start_words(common, args, file_limit);
}

/* A disk that takes no more than so many bytes a file: exit 10, and no run without its record. */
START_TEST(full_disk) {
  const rlim_t limits[] = {0, 10, 700};
  int status;
  ck_assert_int_eq(waitpid(start(out_args, limits[_i]), &status, 0) > 0, 1);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 10, "limit %lu: status %x",
                (unsigned long)limits[_i], status);
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
  ck_assert_uint_eq(run_count_files(dir, "metrics.jsonl"), 0);
}
END_TEST

/* ---- a file system that is full ---------------------------------------------------------------- */

static int write_map(const char *file, const char *text) {
  FILE *f = fopen(file, "we");
  if (f == NULL) return 0;
  const int said = fputs(text, f) >= 0;
  return fclose(f) == 0 && said;
}

/* Mounts a file system of `kib` KiB for this test's process and those that it starts. 0, and it is said: the
 * machine does not let it. */
static int mount_small(const char *path, int kib) {
  char uid[64], gid[64], options[32];
  const char *failed = NULL;
  snprintf(uid, sizeof uid, "0 %u 1\n", (unsigned)geteuid());
  snprintf(gid, sizeof gid, "0 %u 1\n", (unsigned)getegid());
  snprintf(options, sizeof options, "size=%dk", kib);
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    failed = "unshare";
  else if (!write_map("/proc/self/setgroups", "deny") || !write_map("/proc/self/uid_map", uid) ||
           !write_map("/proc/self/gid_map", gid))
    failed = "/proc/self/uid_map";
  else if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
           mount("none", path, "tmpfs", 0, options) != 0)
    failed = "mount";
  if (failed != NULL)
    fprintf(stderr, "skipped: no file system can be mounted here: %s: %s\n", failed, strerror(errno));
  return failed == NULL;
}

/* Writes until nothing fits. */
static void fill(const char *path) {
  static char block[4096];
  memset(block, 'x', sizeof block);
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ck_assert_int_ge(fd, 0);
  while (write(fd, block, sizeof block) > 0) {
  }
  ck_assert_int_eq(errno, ENOSPC);
  close(fd);
}

static void expect(const char *line, int code, const char *id) {
  ran r;
  char said[64] = "";
  run_bsrun(&r, dir, NULL, run_words(line, NULL));
  run_expect(&r, code, line);
  if (id != NULL) run_expect_error(&r, 0, said, line);
  ck_assert_msg(id == NULL || strcmp(said, id) == 0, "%s: %s", line, said);
  ran_free(&r);
}

/* A run and a sweep on a full file system end with one error line; what was committed before stays, and both
 * go on when there is room again. */
START_TEST(full_file_system) {
#define TINY " --method row_parallel -q --phase numbers --b 4 --set phase.fault_gate=false --out out "
  char out[96], filler[128];
  snprintf(out, sizeof out, "%s/out", dir);
  snprintf(filler, sizeof filler, "%s/filler", out);
  ck_assert_int_eq(mkdir(out, 0700), 0);
  if (!mount_small(out, 2048)) return;
  expect("run --run-id first --n 16" TINY, 0, NULL);
  fill(filler);
  expect("run --run-id second --n 16" TINY, 10, "BS-STO-IO");
  expect("sweep --run-id s -x N=16,32" TINY, 10, "BS-SWEEP-IO");
  ck_assert_uint_eq(run_count_files(out, "DONE"), 1);
  expect("runs fsck out", 0, NULL);
  ck_assert_int_eq(unlink(filler), 0);
  expect("run --run-id second --n 16" TINY, 0, NULL);
  expect("sweep --run-id s -x N=16,32" TINY, 0, NULL);
  ck_assert_uint_eq(run_count_files(out, "DONE"), 4);
  expect("runs fsck out", 0, NULL);
  ck_assert_int_eq(umount(out), 0);
}
END_TEST

/* Eight at once, with one id and one folder: eight whole runs, with names of their own. */
START_TEST(eight_at_once) {
  static const char *const args[] = {"--out", "out", "--run-id", "it", NULL};
  pid_t pids[8];
  for (size_t i = 0; i < 8; i++) pids[i] = start(args, RLIM_INFINITY);
  for (size_t i = 0; i < 8; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    char *said = read_text(dir, "said.err");
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", status, said);
    free(said);
  }
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 8);
  ck_assert_uint_eq(run_count_files(dir, "metrics.jsonl"), 8);
  shell(
      "cd out/phase0_correctness/row_parallel && for n in '' -2 -3 -4 -5 -6 -7 -8; do test -e it$n/DONE || "
      "exit 1; done");
}
END_TEST

/* Until a signal is the run's: its log is begun after that. */
static void await_run(const struct timespec *pause) {
  for (int i = 0; i < 3000 && run_count_files(dir, "log.txt") == 0; i++) nanosleep(pause, NULL);
}

#define PROVED "--phase=0", "--set=phase.fault_gate=false", "--set=phase.timed_iters=10000000"
#define TIMED \
  "--phase=1", "--set=phase.pairs_seconds=60", "--set=phase.pairs_max=100000", "--set=phase.pairs_min=100000"
static const struct {
  int number;
  const char *said, *words[8];
} signals[] = {{SIGINT, "error[BS-STOPPED] interrupted by SIGINT", {PROVED}},
               {SIGTERM, "error[BS-STOPPED] interrupted by SIGTERM", {PROVED}},
               {SIGINT, "error[BS-STOPPED] interrupted by SIGINT", {TIMED}},
               {SIGTERM, "error[BS-STOPPED] interrupted by SIGTERM", {TIMED}}};

/* SIGINT and SIGTERM in the middle of a phase: the sample is finished, then 130 and 143, INTERRUPTED in the
 * folder with the log, no DONE, no temporary folder; the second phase is not begun. */
START_TEST(interrupted) {
  const struct timespec pause = {0, 20000000};
  const char *args[16] = {"--method=row_parallel", "--out=out", "--set=model.N=16", "--set=model.B=4"};
  int status;
  memcpy(args + 4, signals[_i].words, sizeof signals[_i].words);
  const pid_t pid = start_words(NULL, args, RLIM_INFINITY);
  await_run(&pause);
  ck_assert_uint_eq(run_count_files(dir, "lock"), 1);
  for (int i = 0; i < 10; i++) nanosleep(&pause, NULL);
  ck_assert_int_eq(kill(pid, signals[_i].number), 0);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signals[_i].number, "status %x", status);
  ck_assert_uint_eq(run_count_files(dir, "INTERRUPTED"), 1);
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
  ck_assert_uint_eq(run_count_files(dir, "config.yaml"), 1);
  ck_assert_uint_eq(run_count_files(dir, "log.txt"), 1);
  shell("test -z \"$(find out -name '.?*')\"");
  char *said = read_text(dir, "said.err");
  ck_assert_ptr_nonnull(strstr(said, "the sample in progress is finished"));
  ck_assert_ptr_nonnull(strstr(said, signals[_i].said));
  free(said);
}
END_TEST

/* Two of them while a rank sleeps within its sample: the second is not kept waiting. */
START_TEST(interrupted_twice) {
  static const char *const args[] = {"--out",    "out",
                                     "--plugin", BS_TEST_E2E_DIR "/bs_faulty.so",
                                     "--method", "faulty",
                                     "--set",    "method.fault=late",
                                     "--set",    "method.at=0",
                                     "--set",    "model.N=24",
                                     "--set",    "model.dtype=f32",
                                     NULL};
  const struct timespec pause = {0, 20000000};
  int status;
  const pid_t pid = start_words(NULL, args, RLIM_INFINITY);
  await_run(&pause);
  for (int i = 0; i < 5; i++) nanosleep(&pause, NULL);
  ck_assert_int_eq(kill(pid, SIGSTOP), 0); /* both are pending when it goes on */
  kill(pid, SIGINT);
  kill(pid, SIGTERM);
  ck_assert_int_eq(kill(pid, SIGCONT), 0);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 143 || WEXITSTATUS(status) == 130), "status %x",
                status);
  ck_assert_uint_eq(run_count_files(dir, "INTERRUPTED"), 1);
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
  char *said = read_text(dir, "said.err");
  ck_assert_ptr_nonnull(
      strstr(said, "bsrun: interrupted: what was open is not kept; the same command begins it again\n"));
  ck_assert_ptr_null(strstr(said, "BS-STOPPED"));
  free(said);
}
END_TEST

int main(void) {
  const test_case tests[] = {{full_disk, 3},      {full_file_system},
                             {eight_at_once},     {interrupted, TEST_COUNT(signals)},
                             {interrupted_twice}, {0}};
  return run_tests("run_bad_store", tests, (test_setup){dir_make, dir_remove, 120});
}
