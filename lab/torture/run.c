/* SPDX-License-Identifier: MIT
 * run.c - the child processes: bsrun itself, each in a separate folder and process group. Several run at the
 * same time, because most of them wait for a deadline. A child that exceeds every deadline is killed, and its
 * case fails. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "lab/error.h"
#include "lab/process/marked.h"
#include "lab/stop.h"
#include "lab/torture/torture.h"

enum { MAX_JOBS = 64, LOOK_MS = 50 };
static const double CLEAN_S = 60.0;

typedef struct job {
  bs_process process; /* pid 0: free */
  size_t at;          /* of t->cases */
  char folder[96];
} job;

static void set_folder(void *user) {
  const char *folder = user;
  setenv("TMPDIR", folder, 1);
  setenv("XDG_CACHE_HOME", folder, 1);
}

/* The longest that anything here may take: a sign of life is due before. */
static double patience(const bs_torture *t, const bs_torture_case *c) {
  if (c->fault == BS_TORTURE_NONE) return CLEAN_S;
  return t->deadline + t->clean_seconds + 2.0 * bs_torture_grace(c);
}

static int32_t start(const bs_torture *t, job *j, size_t at, bs_error *err) {
  const bs_torture_case *c = &t->cases[at];
  char *w[BS_TORTURE_WORDS];
  j->at = at;
  snprintf(j->folder, sizeof j->folder, "%s/%zu", t->scratch, at);
  if (mkdir(j->folder, 0700) != 0)
    return bs_error_errno(err, BS_IO, "BS-TORTURE-FOLDER", errno, "cannot make %s", j->folder);
  const int made = bs_torture_words(t, c, j->folder, w);
  const bs_child child = {.program = "/proc/self/exe",
                          .words = w,
                          .run = set_folder,
                          .user = j->folder,
                          .stdio = {BS_CHILD_NULL, BS_CHILD_PIPE, BS_CHILD_PIPE},
                          .death = SIGKILL};
  const int failed = made ? bs_process_start(&child, &j->process) : 0;
  bs_torture_words_free(w);
  if (!made) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (failed != 0)
    return bs_error_errno(err, BS_NO_MEMORY, "BS-TORTURE-FORK", failed, "cannot start a child");
  j->process.whole = c->fault == BS_TORTURE_NONE;
  j->process.kill_at = j->process.started + patience(t, c);
  return BS_OK;
}

static void finish(bs_torture *t, job *j) {
  bs_torture_case *c = &t->cases[j->at];
  bs_process *p = &j->process;
  const pid_t pid = p->pid;
  c->seconds = bs_process_now() - p->started;
  const int status = bs_process_take(p);
  c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  c->code = p->killed ? -2 : WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
  bs_torture_judge(t, c, j->folder, p, pid);
  kill(-pid, SIGKILL); /* judge has reported its leftovers */
  if (c->fault == BS_TORTURE_NONE) {
    bs_text_free(&t->clean);
    bs_text_append(&t->clean, p->out.data, p->out.size);
    bs_text_append(&t->clean, p->err.data, p->err.size);
  }
  bs_process_free(p);
  if (t->ended != NULL) t->ended(t, c);
}

typedef struct left {
  unsigned n;
  int end; /* they are killed */
} left;

static void count_one(void *user, pid_t pid, const char *environment, size_t size) {
  left *l = user;
  (void)environment, (void)size;
  l->n++;
  if (l->end) kill(pid, SIGKILL);
}

/* A child's own folder is its TMPDIR, and that of all that it starts. */
unsigned bs_torture_end_left(const char *folder) {
  enum { TURNS = 50 };
  const struct timespec nap = {0, 10000000};
  char setting[128];
  left l = {.n = 1};
  snprintf(setting, sizeof setting, "TMPDIR=%s", folder);
  for (int turn = 0; turn <= TURNS && l.n > 0; turn++) {
    if (turn > 0) nanosleep(&nap, NULL);
    l = (left){.end = turn == TURNS};
    bs_marked_each(setting, count_one, &l);
  }
  return l.n;
}

static void stop_all(job *jobs, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (jobs[i].process.pid == 0) continue;
    bs_process_kill(&jobs[i].process);
    bs_process_finish(&jobs[i].process);
    bs_process_free(&jobs[i].process);
    bs_torture_end_left(jobs[i].folder);
  }
}

/* Checks the running children once: judges those that have ended, kills late ones. Returns how many ended. */
static size_t look(bs_torture *t, job *jobs) {
  size_t ended = 0;
  for (size_t i = 0; i < t->jobs; i++) {
    bs_process *p = &jobs[i].process;
    if (p->pid != 0 && p->ended) {
      finish(t, &jobs[i]);
      ended++;
    } else if (p->pid != 0 && p->kill_at > 0.0 && bs_process_now() > p->kill_at) {
      bs_process_kill(p);
    }
  }
  return ended;
}

int32_t bs_torture_run(bs_torture *t, size_t first, bs_error *err) {
  bs_process *of[MAX_JOBS];
  job *jobs = calloc(MAX_JOBS, sizeof *jobs);
  size_t next = first, running = 0;
  int32_t rc = jobs == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
  if (t->jobs > MAX_JOBS) t->jobs = MAX_JOBS;
  for (size_t i = 0; jobs != NULL && i < t->jobs; i++) of[i] = &jobs[i].process;
  while (rc == BS_OK && (next < t->n_cases || running > 0)) {
    rc = bs_stop_check(err);
    for (size_t i = 0; rc == BS_OK && next < t->n_cases && i < t->jobs; i++) {
      if (jobs[i].process.pid != 0) continue;
      rc = start(t, &jobs[i], next++, err);
      running += rc == BS_OK;
    }
    if (rc == BS_OK && !bs_process_wait(of, t->jobs, -1, LOOK_MS))
      rc = bs_error_errno(err, BS_INTERNAL, "BS-TORTURE-FORK", errno, "cannot wait for the children");
    if (rc == BS_OK) running -= look(t, jobs);
  }
  if (jobs != NULL) stop_all(jobs, t->jobs);
  free(jobs);
  return rc;
}
