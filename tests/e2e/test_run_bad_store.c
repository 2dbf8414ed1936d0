/* SPDX-License-Identifier: MIT
 * test_run_bad_store.c - results folders that are in the way, full, linked elsewhere, shared or taken: the
 * right exit, one error line, nothing half written, nothing of others touched; several bsrun at once; and
 * Ctrl-C. */
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

#include "run_help.h"
#include "tests/run_tests.h"

static char folder[64];
static void setup(void) {
  run_make_folder(folder);
}
static void teardown(void) {
  run_remove(folder);
}

#define SMALL                                                                                             \
  "--method", "row_parallel", "--phase", "0", "-q", "--set", "model.N=16", "--set", "model.B=4", "--set", \
      "phase.fault_gate=false"
static const char *const common[] = {SMALL, NULL};
static const char *const out_args[] = {"--out", "out", NULL};

START_TEST(in_the_way) {
  static const run_bad rows[] = {
      {"the root is a file", 10, "BS-STO-IO", "file", {"--out", "file", NULL}},
      {"a file on the way", 10, "BS-STO-IO", "file", {"--out", "file/results", NULL}},
      {"nothing can be made there", 10, "BS-STO-IO", "/proc", {"--out", "/proc/results", NULL}},
      {"the phase's folder is a file", 10, "BS-STO-IO", NULL, {"--out", "taken", NULL}},
      {"the phase's folder is a link", 10, "BS-STO-IO", NULL, {"--out", "linked", NULL}},
      {"a dump into a file", 10, "BS-DUMP-DIR", "file", {"--dump", "file", "--out", "out", NULL}},
      {"a dump below nothing", 10, "BS-DUMP-DIR", NULL, {"--dump", "no/such/parent", "--out", "out", NULL}},
  };
  char path[160], target[96];
  run_write(folder, "file", "mine\n", 5);
  snprintf(path, sizeof path, "%s/taken", folder);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  run_write(path, "phase0_correctness", "mine\n", 5);
  snprintf(target, sizeof target, "%s/elsewhere", folder);
  ck_assert_int_eq(mkdir(target, 0700), 0);
  snprintf(path, sizeof path, "%s/linked", folder);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  snprintf(path, sizeof path, "%s/linked/phase0_correctness", folder);
  ck_assert_int_eq(symlink(target, path), 0);
  run_check_bad(folder, NULL, common, &rows[_i]);
  char *kept = run_read(folder, "file", NULL);
  ck_assert_str_eq(kept, "mine\n");
  free(kept);
  ck_assert_uint_eq(run_count_files(target, NULL), 0);
  ck_assert_uint_eq(run_count_files(folder, "config.yaml"), 0);
}
END_TEST

/* Foreign files beside runs are none of our business; they stay, and the run is made. */
START_TEST(foreign_files) {
  char dir[96];
  snprintf(dir, sizeof dir, "%s/out", folder);
  ck_assert_int_eq(mkdir(dir, 0700), 0);
  run_write(dir, "notes.txt", "mine\n", 5);
  run_check_good(folder, NULL, common, out_args);
  ck_assert_int_eq(run_exists(dir, "notes.txt"), 1);
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 1);
}
END_TEST

/* A second run of one id gets -2, and the first is as it was. */
START_TEST(one_id_twice) {
  static const char *const args[] = {"--out", "out", "--run-id", "it", NULL};
  char dir[128];
  size_t size, again;
  snprintf(dir, sizeof dir, "%s/out/phase0_correctness/row_parallel", folder);
  run_check_good(folder, NULL, common, args);
  char *first = run_read(dir, "it/metrics.jsonl", &size);
  ck_assert_ptr_nonnull(first);
  run_check_good(folder, NULL, common, args);
  char *second = run_read(dir, "it/metrics.jsonl", &again);
  ck_assert_uint_eq(size, again);
  ck_assert_int_eq(memcmp(first, second, size), 0);
  ck_assert_int_eq(run_exists(dir, "it-2/DONE"), 1);
  free(first);
  free(second);
}
END_TEST

/* `first` may be NULL. */
static pid_t start_words(const char *const *first, const char *const *args, rlim_t file_limit) {
  const char *argv[32] = {run_env("BS_TEST_BSRUN")};
  size_t n = 1;
  for (size_t i = 0; first != NULL && first[i] != NULL; i++) argv[n++] = first[i];
  for (size_t i = 0; args[i] != NULL; i++) argv[n++] = args[i];
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (chdir(folder) != 0 || freopen("said.out", "a", stdout) == NULL ||
      freopen("said.err", "a", stderr) == NULL)
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
  ck_assert_uint_eq(run_count_files(folder, "DONE"), 0);
  ck_assert_uint_eq(run_count_files(folder, "metrics.jsonl"), 0);
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
  run_result r;
  char said[64] = "";
  run_bsrun(&r, folder, NULL, run_words(line, NULL));
  run_expect(&r, code, line);
  if (id != NULL) run_expect_error(&r, 0, said, line);
  ck_assert_msg(id == NULL || strcmp(said, id) == 0, "%s: %s", line, said);
  run_free(&r);
}

/* A run and a sweep on a full file system end with one error line; what was committed before stays, and both
 * go on when there is room again. */
START_TEST(full_file_system) {
#define TINY " --method row_parallel -q --phase 0 --b 4 --set phase.fault_gate=false --out out "
  char out[96], filler[128];
  snprintf(out, sizeof out, "%s/out", folder);
  snprintf(filler, sizeof filler, "%s/filler", out);
  ck_assert_int_eq(mkdir(out, 0700), 0);
  if (!mount_small(out, 2048)) return;
  expect("run --run-id first --n 16" TINY, 0, NULL);
  fill(filler);
  expect("run --run-id second --n 16" TINY, 10, "BS-STO-IO");
  expect("sweep --id s -x N=16,32" TINY, 10, "BS-SWEEP-IO");
  ck_assert_uint_eq(run_count_files(out, "DONE"), 1);
  expect("fsck out", 0, NULL);
  ck_assert_int_eq(unlink(filler), 0);
  expect("run --run-id second --n 16" TINY, 0, NULL);
  expect("sweep --id s -x N=16,32" TINY, 0, NULL);
  ck_assert_uint_eq(run_count_files(out, "DONE"), 4);
  expect("fsck out", 0, NULL);
}
END_TEST

/* Eight at once, with one id and one folder: eight whole runs. */
START_TEST(eight_at_once) {
  static const char *const args[] = {"--out", "out", "--run-id", "it", NULL};
  pid_t pids[8];
  for (size_t i = 0; i < 8; i++) pids[i] = start(args, RLIM_INFINITY);
  for (size_t i = 0; i < 8; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    char *said = run_read(folder, "said.err", NULL);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", status, said);
    free(said);
  }
  ck_assert_uint_eq(run_count_files(folder, "DONE"), 8);
  ck_assert_uint_eq(run_count_files(folder, "metrics.jsonl"), 8);
}
END_TEST

/* Until a signal is the run's: its log is begun after that. */
static void await_run(const struct timespec *pause) {
  for (int i = 0; i < 3000 && run_count_files(folder, "log.txt") == 0; i++) nanosleep(pause, NULL);
}

/* SIGINT and SIGTERM in the middle: the sample is finished, then 130 and 143, INTERRUPTED in the folder with
 * the log, no DONE; the second phase is not begun. */
START_TEST(interrupted) {
  static const char *const args[] = {"--out", "out", "--set", "phase.timed_iters=10000000", NULL};
  const struct timespec pause = {0, 20000000};
  const int number = _i == 0 ? SIGINT : SIGTERM;
  int status;
  const pid_t pid = start(args, RLIM_INFINITY);
  await_run(&pause);
  for (int i = 0; i < 10; i++) nanosleep(&pause, NULL);
  ck_assert_int_eq(kill(pid, number), 0);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 128 + number, "status %x", status);
  ck_assert_uint_eq(run_count_files(folder, "INTERRUPTED"), 1);
  ck_assert_uint_eq(run_count_files(folder, "DONE"), 0);
  ck_assert_uint_eq(run_count_files(folder, "config.yaml"), 1);
  ck_assert_uint_eq(run_count_files(folder, "log.txt"), 1);
  char *said = run_read(folder, "said.err", NULL);
  ck_assert_ptr_nonnull(strstr(said, "the sample in progress is finished"));
  ck_assert_ptr_nonnull(strstr(said, _i == 0 ? "error[BS-STOPPED] interrupted by SIGINT"
                                             : "error[BS-STOPPED] interrupted by SIGTERM"));
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
  ck_assert_uint_eq(run_count_files(folder, "INTERRUPTED"), 1);
  ck_assert_uint_eq(run_count_files(folder, "DONE"), 0);
  char *said = run_read(folder, "said.err", NULL);
  ck_assert_ptr_nonnull(strstr(said, "bsrun: interrupted\n"));
  ck_assert_ptr_null(strstr(said, "BS-STOPPED"));
  free(said);
}
END_TEST

/* log.txt of a point of a sweep has the notes of that point alone. */
START_TEST(log_of_a_point) {
  static const char *const masks[] = {"contiguous", "interleave"};
  const char *args[] = {"--method", "row_parallel",
                        "--phase",  "0",
                        "--set",    "model={N: 16, B: 4}",
                        "--set",    "phase.fault_gate=false",
                        "--set",    "mask.shares=[1, 1]",
                        "--set",    "sweep={param: mask.name, values: [contiguous, interleave]}",
                        "-o",       "jsonl",
                        NULL};
  run_result r;
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 0, "points");
  json_t *rows = run_rows(r.out);
  for (size_t i = 0; i < 2; i++) {
    char path[512], own[64], other[64];
    snprintf(path, sizeof path, "%s/%s", folder, run_str(json_array_get(rows, i), "run_dir"));
    snprintf(own, sizeof own, "no effect on the mask %s", masks[i]);
    snprintf(other, sizeof other, "no effect on the mask %s", masks[1 - i]);
    char *log = run_read(path, "log.txt", NULL);
    ck_assert_msg(strstr(log, own) != NULL && strstr(log, other) == NULL, "%s", log);
    free(log);
  }
  json_decref(rows);
  run_free(&r);
}
END_TEST

/* What went to stderr as notes is in log.txt with its time; -q keeps it from stderr alone. */
START_TEST(log_of_a_run) {
  for (int quiet = 0; quiet < 2; quiet++) {
    const char **args = run_words(
        "run --method row_parallel --phase 0 --set model.N=16 --set model.B=4 --set phase.fault_gate=false "
        "--out %s --set phase.sync_mode=cuda_events -o jsonl %s",
        quiet ? "quiet" : "loud", quiet ? "-q" : NULL);
    run_result r;
    run_bsrun(&r, folder, NULL, args);
    run_expect(&r, 0, "log");
    ck_assert_int_eq(strstr(r.err, "note: phase.sync_mode") != NULL, !quiet);
    json_t *rows = run_rows(r.out);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, run_str(json_array_get(rows, 0), "run_dir"));
    char *log = run_read(path, "log.txt", NULL);
    char *note =
        log == NULL ? NULL : strstr(log, "Z note: phase.sync_mode cuda_events is an older name of events");
    ck_assert_ptr_nonnull(note);
    ck_assert(note - log >= 23 && strspn(note - 23, "0123456789-T:.") == 23); /* 2026-01-02T03:04:05.678 */
    ck_assert_ptr_null(strstr(log, "\x1b"));
    free(log);
    json_decref(rows);
    run_free(&r);
  }
}
END_TEST

/* stdout that takes nothing: the run is made and kept, and the loss is told. */
START_TEST(closed_stdout) {
  const pid_t pid = fork();
  int status;
  if (pid == 0) {
    if (chdir(folder) != 0 || freopen("/dev/full", "w", stdout) == NULL ||
        freopen("said.err", "a", stderr) == NULL)
      _exit(125);
    execl(run_env("BS_TEST_BSRUN"), "bsrun", SMALL, "--out", "out", (char *)NULL);
    _exit(126);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 10, "status %x", status);
  char *said = run_read(folder, "said.err", NULL);
  ck_assert_ptr_nonnull(strstr(said, "bsrun: error[BS-OUT-WRITE]"));
  ck_assert_uint_eq(run_count_files(folder, "DONE"), 1);
  free(said);
}
END_TEST

int main(void) {
  const test_case tests[] = {{in_the_way, 7},    {foreign_files},  {one_id_twice},   {full_disk, 3},
                             {full_file_system}, {eight_at_once},  {interrupted, 2}, {interrupted_twice},
                             {log_of_a_run},     {log_of_a_point}, {closed_stdout},  {0}};
  return run_tests("run_bad_store", tests, (test_setup){setup, teardown, 120});
}
