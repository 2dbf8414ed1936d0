/* SPDX-License-Identifier: MIT
 * test_run_progress.c - the line that tells what a run is doing: each step of both phases and the point of a
 * sweep on a terminal; nothing of it into files, with -q, on stdout, or into what is kept. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

#define ARGS                                                                                                 \
  "run", "--plugin", "cpu", "--method", "row_parallel", "--out", "out", "-o", "jsonl", "--set", "model.B=4", \
      "--set", "phase.pairs_min=5", "--set", "phase.pairs_max=5", "--set", "phase.warmup_iters=1"

/* bsrun with a terminal as stderr and the file `stdout`; all that the terminal was sent. */
static char *on_terminal(const char *const *args) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  const size_t room = 1u << 20;
  char *said = calloc(1, room), name[128], out[96];
  size_t used = 0;
  int status;
  ck_assert(said != NULL && master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  ck_assert_int_eq(ptsname_r(master, name, sizeof name), 0);
  const int tty = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  snprintf(out, sizeof out, "%s/stdout", dir);
  const int file = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ck_assert(tty >= 0 && file >= 0);
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    if (dup2(file, 1) < 0 || dup2(tty, 2) < 0 || chdir(dir) != 0) _exit(125);
    execv(run_env("BS_TEST_BSRUN"), (char *const *)(size_t)args);
    _exit(126);
  }
  close(file);
  close(tty); /* the child's is the last: reading ends with it (EIO) */
  for (ssize_t n; (n = read(master, said + used, room - 1 - used)) > 0 || (n < 0 && errno == EINTR);)
    used += n > 0 ? (size_t)n : 0;
  close(master);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", status, said);
  return said;
}

/* Nothing rewritten in place: neither an escape nor a step. */
static void check_none(const char *text, const char *what) {
  ck_assert_ptr_nonnull(text);
  ck_assert_msg(strchr(text, '\033') == NULL && strstr(text, ": reference") == NULL, "%s: %s", what, text);
}

static void check_kept(const json_t *row) {
  static const char *const names[] = {"log.txt", "metrics.jsonl"};
  for (int i = 0; i < 2; i++) {
    char run_dir[512];
    snprintf(run_dir, sizeof run_dir, "%s/%s", dir, run_str(row, "run_dir"));
    char *kept = read_text(run_dir, names[i]);
    check_none(kept, names[i]);
    free(kept);
  }
}

START_TEST(each_step) {
  static const char *const args[] = {"bsrun", ARGS, "-P", "2", "--set", "model.N=24", NULL};
  static const char *const steps[] = {
      "\r\033[Kphase0_correctness: build 0/24",
      "\r\033[Kphase0_correctness: warm-up 1/",
      "\r\033[Kphase0_correctness: forward 1/",
      "\r\033[Kphase0_correctness: reference 0/24",
      "\r\033[Kphase0_correctness: judge 1/2",
      "\r\033[Kphase0_correctness: T5 build 0/24",
      "\r\033[Kphase0_correctness: T5 forward 1/1",
      "\r\033[Kphase0_correctness: T5 reference 0/24",
      "\r\033[Kphase0_correctness: T6 fault 1/",
      "\r\033[Kphase1_forward: build dense, all cores 1/3", /* the order is the seed's */
      "\r\033[Kphase1_forward: build dense, one rank's cores 2/3",
      "\r\033[Kphase1_forward: build method 3/3",
      "\r\033[Kphase1_forward: warm-up ",
      "\r\033[Kphase1_forward: pairs ",
      "\r\033[Kphase1_forward: machine constants\r",
      "\r\033[Kphase1_forward: predict 1/3",
  };
  char *said = on_terminal(args), *out = read_text(dir, "stdout");
  const char *from = said;
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    const char *at = strstr(from, steps[i]);
    ck_assert_msg(at != NULL, "no '%s' in its place: %s", steps[i] + 4, said);
    from = at + 1;
  }
  ck_assert_ptr_null(strstr(said, "point "));
  check_none(out, "stdout");
  json_t *rows = run_rows(out);
  ck_assert_uint_ge(json_array_size(rows), 2);
  check_kept(json_array_get(rows, 0));
  check_kept(json_array_get(rows, json_array_size(rows) - 1));
  json_decref(rows);
  free(out);
  free(said);
}
END_TEST

START_TEST(points_of_a_sweep) {
  static const char *const args[] = {
      "bsrun", ARGS, "--phase", "0", "--set", "sweep.param=model.N", "--set", "sweep.values=[16,24]", NULL};
  char *said = on_terminal(args);
  const char *first = strstr(said, "\r\033[Kpoint 1/2, phase0_correctness: build 0/16");
  ck_assert_msg(first != NULL, "%s", said);
  ck_assert_msg(strstr(first, "\r\033[Kpoint 2/2, phase0_correctness: build 0/24") != NULL, "%s", said);
  free(said);
}
END_TEST

START_TEST(nowhere_else) {
  static const char *const quiet[] = {"bsrun", ARGS, "--phase", "0", "-q", "--set", "model.N=24", NULL};
  static const char *const plain[] = {ARGS, "--phase", "0", "--set", "model.N=24", NULL};
  ran r;
  char *said = on_terminal(quiet);
  check_none(said, "-q");
  free(said);
  run_bsrun(&r, dir, NULL, plain);
  run_expect(&r, 0, "into a file");
  check_none(r.err, "into a file");
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_step}, {points_of_a_sweep}, {nowhere_else}, {0}};
  return run_tests("progress", tests, (test_setup){dir_make, dir_remove, 120});
}
