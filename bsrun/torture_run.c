/* SPDX-License-Identifier: MIT
 * torture_run.c - the child processes: bsrun itself, each in a folder and a process group of its own, several
 * at once (most of them wait for a deadline). One that outlives every deadline is killed and told. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bsrun/torture.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/stop.h"

double torture_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- words ---------------------------------------------------------------------------------- */

typedef struct words {
  char **w;
  size_t n;
  int failed;
} words;

static void put(words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(words *w, const char *fmt, ...) {
  char *text = NULL;
  va_list ap;
  va_start(ap, fmt);
  if (w->n + 1 >= TORTURE_WORDS || vasprintf(&text, fmt, ap) < 0)
    w->failed = 1;
  else
    w->w[w->n++] = text;
  va_end(ap);
}

/* --plugin, --config and --set as this command was given. */
static void put_given(const torture *t, words *w) {
  static const char *const names[] = {"plugin", "config", "set"};
  for (size_t i = 0; i < t->a->n_given; i++) {
    const char *name = t->a->options[t->a->given[i].option].name;
    for (size_t k = 0; k < 3; k++) {
      if (strcmp(name, names[k]) != 0) continue;
      put(w, "--%s", name);
      put(w, "%s", t->a->given[i].value);
    }
  }
}

static void put_run(const torture *t, const torture_case *c, const char *plan, const char *folder, words *w) {
  static const char *const sets[] = {"model.dtype=f32",
                                     "model.N=64",
                                     "model.K=64",
                                     "model.B=8",
                                     "phase.timed_iters=1",
                                     "phase.warmup_iters=0",
                                     "phase.fault_gate=false",
                                     "phase.integer_gate=false",
                                     "tune.measure=false"};
  const int backend = c->subject->kind == TORTURE_BACKEND;
  const char *inner = backend ? c->subject->name : args_value(t->a, "comm");
  put(w, "run");
  put_given(t, w);
  put(w, "--method");
  put(w, "%s", backend ? "row_parallel" : c->subject->name);
  put(w, "-P");
  put(w, "%u", c->world_size);
  if (backend && args_has(t->a, "comm")) {
    put(w, "--comm");
    put(w, "%s", args_value(t->a, "comm"));
  }
  put(w, backend ? "--backend" : "--comm");
  put(w, "fault:%s", inner != NULL ? inner : c->subject->launch == TORTURE_PROCESSES ? "shm" : "threads");
  if (c->subject->launch != TORTURE_THREADS) put(w, "--launch=%s", torture_launch_names[c->subject->launch]);
  put(w, "--phase");
  put(w, "0");
  put(w, "--timeout");
  put(w, "%g", t->deadline);
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
    put(w, "--set");
    put(w, "%s", sets[i]);
  }
  put(w, "--set");
  if (plan[0] != '\0')
    put(w, "plugins.fault.plan=%s", plan);
  else
    put(w, "plugins.fault.count=true");
  if (plan[0] == '\0') put(w, "-v");
  put(w, "--out");
  put(w, "%s/out", folder);
  put(w, "--run-id");
  put(w, "it");
  put(w, "-o");
  put(w, "jsonl");
}

int torture_words(const torture *t, const torture_case *c, const char *folder, char *out[TORTURE_WORDS]) {
  char plan[160];
  words w = {out, 0, 0};
  memset(out, 0, TORTURE_WORDS * sizeof *out);
  torture_plan_text(t, c, plan, sizeof plan);
  put(&w, "bsrun");
  if (c->subject->kind == TORTURE_COMM) {
    put(&w, "torture");
    put_given(t, &w);
    put(&w, "--comm");
    put(&w, "%s", c->subject->name);
    put(&w, "--ranks");
    put(&w, "%u", c->world_size);
    put(&w, "--deadline");
    put(&w, "%g", t->deadline);
    if (c->subject->launch != TORTURE_THREADS)
      put(&w, "--launch=%s", torture_launch_names[c->subject->launch]);
    put(&w, "--plan=%s", plan);
  } else {
    put_run(t, c, plan, folder, &w);
  }
  return !w.failed;
}

void torture_words_free(char *words_of[TORTURE_WORDS]) {
  for (size_t i = 0; i < TORTURE_WORDS && words_of[i] != NULL; i++) free(words_of[i]);
}

char *torture_command(const torture *t, const torture_case *c) {
  char *w[TORTURE_WORDS];
  bs_text text = {0};
  const int ok = torture_words(t, c, ".", w);
  for (size_t i = 0; i < TORTURE_WORDS && w[i] != NULL; i++) {
    const int quote = w[i][strcspn(w[i], " ;*'\"$&|<>()")] != '\0' || w[i][0] == '\0';
    bs_text_printf(&text, "%s%s%s%s", i > 0 ? " " : "", quote ? "'" : "", w[i], quote ? "'" : "");
  }
  torture_words_free(w);
  if (!ok || text.failed) {
    bs_text_free(&text);
    return NULL;
  }
  return text.data;
}

/* ---- children ------------------------------------------------------------------------------- */

typedef struct child {
  pid_t pid; /* 0: none */
  size_t at; /* of t->cases */
  double began;
  int killed;
  char folder[96], out[160], errors[160];
} child;

static void in_child(const child *k, char *words_of[TORTURE_WORDS]) {
  const int out = open(k->out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int errors = open(k->errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int null = open("/dev/null", O_RDONLY);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("TMPDIR", k->folder, 1);
  setenv("XDG_CACHE_HOME", k->folder, 1);
  if (out < 0 || errors < 0 || null < 0) _exit(126);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execv("/proc/self/exe", words_of);
  _exit(127);
}

static int32_t start(torture *t, child *k, size_t at, bs_error *err) {
  const torture_case *c = &t->cases[at];
  const char *base = c->fault == TORTURE_NONE ? "clean" : "case";
  char *w[TORTURE_WORDS];
  memset(k, 0, sizeof *k);
  k->at = at;
  snprintf(k->folder, sizeof k->folder, "%s/%zu", t->scratch, at);
  if (c->fault == TORTURE_NONE) {
    snprintf(k->out, sizeof k->out, "%s/%s.out", t->scratch, base);
    snprintf(k->errors, sizeof k->errors, "%s/%s.err", t->scratch, base);
  } else {
    snprintf(k->out, sizeof k->out, "%s/%s%zu.out", t->scratch, base, at);
    snprintf(k->errors, sizeof k->errors, "%s/%s%zu.err", t->scratch, base, at);
  }
  if (mkdir(k->folder, 0700) != 0)
    return bs_error_errno(err, BS_IO, "BS-TORTURE-FOLDER", errno, "cannot make %s", k->folder);
  if (!torture_words(t, c, k->folder, w)) {
    torture_words_free(w);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  fflush(NULL);
  k->began = torture_now();
  k->pid = fork();
  if (k->pid == 0) in_child(k, w);
  torture_words_free(w);
  if (k->pid > 0) return BS_OK;
  k->pid = 0;
  return bs_error_errno(err, BS_NO_MEMORY, "BS-TORTURE-FORK", errno, "cannot start a child");
}

static void finish(torture *t, child *k, int status) {
  torture_case *c = &t->cases[k->at];
  c->seconds = torture_now() - k->began;
  c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  c->code = k->killed ? -2 : WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
  torture_judge(t, c, k->folder, k->out, k->errors, k->pid);
  kill(-k->pid, SIGKILL); /* what it left running was told */
  if (c->fault != TORTURE_NONE) {
    unlink(k->out);
    unlink(k->errors);
  }
  k->pid = 0;
  if (t->ended != NULL) t->ended(t, c);
}

/* 1: the process has this setting in its environment. One that is gone has none to be read. */
static int has_setting(const char *pid, const char *setting) {
  char path[300], text[32768];
  snprintf(path, sizeof path, "/proc/%.200s/environ", pid);
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  const size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = '\0';
  for (size_t at = 0; at < n; at += strlen(text + at) + 1)
    if (strcmp(text + at, setting) == 0) return 1;
  return 0;
}

/* A child's own folder is its TMPDIR, and that of all that it starts. */
static unsigned count_left(const char *folder, int end) {
  char setting[128];
  unsigned n = 0;
  snprintf(setting, sizeof setting, "TMPDIR=%s", folder);
  DIR *dir = opendir("/proc");
  for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
    const long pid = strtol(e->d_name, NULL, 10);
    if (pid <= 0 || !has_setting(e->d_name, setting)) continue;
    n++;
    if (end) kill((pid_t)pid, SIGKILL);
  }
  if (dir != NULL) closedir(dir);
  return n;
}

unsigned torture_end_left(const char *folder) {
  const struct timespec nap = {0, 10000000};
  for (int turn = 0; turn < 50; turn++) {
    if (count_left(folder, 0) == 0) return 0;
    nanosleep(&nap, NULL);
  }
  return count_left(folder, 1);
}

/* The longest that anything here may take: a sign of life is due before. */
static double patience(const torture *t, const torture_case *c) {
  return t->deadline + t->clean_seconds + 2.0 * torture_grace(c);
}

/* Looks at one running child; 1: it has ended. */
static int look(torture *t, child *k) {
  int status = 0;
  const pid_t got = waitpid(k->pid, &status, WNOHANG);
  if (got == k->pid) {
    finish(t, k, status);
    return 1;
  }
  const torture_case *c = &t->cases[k->at];
  const double most = c->fault == TORTURE_NONE ? 60.0 : patience(t, c);
  if (!k->killed && torture_now() - k->began > most) {
    k->killed = 1;
    kill(-k->pid, SIGKILL);
    kill(k->pid, SIGKILL);
  }
  return 0;
}

static void stop_all(child *children, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (children[i].pid == 0) continue;
    kill(-children[i].pid, SIGKILL);
    kill(children[i].pid, SIGKILL);
    while (waitpid(children[i].pid, NULL, 0) < 0 && errno == EINTR) continue;
    torture_end_left(children[i].folder);
    children[i].pid = 0;
  }
}

int32_t torture_run(torture *t, size_t first, bs_error *err) {
  const struct timespec nap = {0, 2000000};
  child *children = calloc(t->jobs, sizeof *children);
  size_t next = first, running = 0;
  int32_t rc = children == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
  while (rc == BS_OK && (next < t->n_cases || running > 0)) {
    int moved = 0;
    rc = bs_stop_check(err);
    for (size_t i = 0; rc == BS_OK && i < t->jobs; i++) {
      if (children[i].pid != 0 && look(t, &children[i])) {
        running--;
        moved = 1;
      }
      if (children[i].pid != 0 || next >= t->n_cases) continue;
      rc = start(t, &children[i], next, err);
      if (rc == BS_OK) {
        running++;
        next++;
        moved = 1;
      }
    }
    if (!moved) nanosleep(&nap, NULL);
  }
  if (children != NULL) stop_all(children, t->jobs);
  free(children);
  return rc;
}
