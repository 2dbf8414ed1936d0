/* SPDX-License-Identifier: MIT
 * spawn.h - runs the built bsrun as a user would and keeps its status, stdout and stderr. */
#ifndef TESTS_BSRUN_SPAWN_H
#define TESTS_BSRUN_SPAWN_H
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/lab/lab_test.h"

extern char **environ;

typedef struct ran {
  int code;   /* exit code, or 128 + signal */
  int killed; /* ended by a signal that bsrun did not turn into an exit */
  char *out, *err;
} ran;

static inline const char *bsrun_path(void) {
  const char *path = getenv("BS_TEST_BSRUN");
  return path != NULL ? path : "bin/bsrun";
}

/* Starts bsrun in `cwd` with its output in files there; returns the process id. */
static inline pid_t start_bsrun(const char *cwd, char *const argv[]) {
  char out[4096], err[4096];
  snprintf(out, sizeof out, "%s/.stdout", cwd);
  snprintf(err, sizeof err, "%s/.stderr", cwd);
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    const int o = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600),
              e = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int null = open("/dev/null", O_RDONLY);
    if (chdir(cwd) != 0 || o < 0 || e < 0) _exit(98);
    dup2(null, 0);
    dup2(o, 1);
    dup2(e, 2);
    execv(bsrun_path(), argv);
    _exit(99);
  }
  return pid;
}

static inline ran finish_bsrun(const char *cwd, pid_t pid) {
  ran r = {0};
  int status;
  while (waitpid(pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  r.killed = WIFSIGNALED(status);
  r.code = r.killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  r.out = read_text(cwd, ".stdout");
  r.err = read_text(cwd, ".stderr");
  ck_assert_int_ne(r.code, 99);
  return r;
}

/* bsrun with the given words, NULL at the end. */
static inline ran bsrun(const char *cwd, ...) {
  char *argv[64] = {(char *)(uintptr_t) "bsrun"};
  va_list ap;
  int n = 1;
  va_start(ap, cwd);
  for (const char *word = va_arg(ap, const char *); word != NULL && n < 63; word = va_arg(ap, const char *)) {
    argv[n++] = (char *)(uintptr_t)word;
  }
  va_end(ap);
  return finish_bsrun(cwd, start_bsrun(cwd, argv));
}

static inline void ran_free(ran *r) {
  free(r->out);
  free(r->err);
}

static inline void must_be(const ran *r, int code) {
  ck_assert_msg(r->code == code, "exit %d, wanted %d\nstderr: %s\nstdout: %s", r->code, code, r->err, r->out);
}

/* Files below `dir`/results, hidden ones too. */
static inline int result_files(const char *dir) {
  char command[700];
  int n = -1;
  snprintf(command, sizeof command, "find '%s/results' -type f 2>/dev/null | wc -l", dir);
  FILE *f = popen(command, "r");
  ck_assert_int_eq(fscanf(f, "%d", &n), 1);
  pclose(f);
  return n;
}

/* The path after "run: " number `index` in a table's last lines, in a static buffer. */
static inline const char *run_folder(const ran *r, const char *cwd, int index) {
  static char path[1200];
  const char *p = r->out;
  for (int i = 0; i <= index; i++) {
    p = strstr(p, "\nrun: ");
    ck_assert_ptr_nonnull(p);
    p += 6;
  }
  snprintf(path, sizeof path, "%s/%.*s", cwd, (int)strcspn(p, "\n"), p);
  return path;
}
#define SMALL                                                                                            \
  "--set", "model.N=64", "--set", "model.B=8", "--set", "phase.timed_iters=2", "--set",                  \
      "phase.warmup_iters=1", "--set", "phase.pairs_seconds=0.2", "--set", "phase.pairs_min=5", "--set", \
      "phase.pairs_max=10"
#endif
