/* SPDX-License-Identifier: MIT
 * tasks.c - see tasks.h. */
#include "lab/sweep/tasks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/process/process.h"
#include "lab/store/store.h"

enum { MAX_JOBS = 64, MAX_WORDS = 64 };
#define GRACE_S 5.0 /* from the request to end until the kill */

typedef struct job {
  bs_process process; /* pid 0: free */
  int input_fd;       /* a file in memory that holds the input of the task */
  bs_task *task;
  double began; /* by the real clock */
} job;

typedef struct tasks {
  const bs_tasks_options *o;
  bs_task *of;
  size_t n, next;
  uint32_t jobs, running;
  job job[MAX_JOBS];
  int signal_fd, signal;
  sigset_t mask; /* the previous mask */
  double ends_at;
  int32_t rc; /* not BS_OK: no further task starts */
  bs_error *err;
} tasks;

static double real_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The last line that is an error line, else the last one. */
static char *last_line(const bs_text *text) {
  const char *found = NULL, *data = text->data == NULL ? "" : text->data;
  size_t size = 0;
  int is_error = 0;
  for (const char *line = data; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    const int error = strstr(line, "error[") != NULL && (size_t)(strstr(line, "error[") - line) < length;
    if (length > 0 && (error || !is_error)) {
      found = line;
      size = length;
      is_error = error;
    }
    line += length + (line[length] == '\n');
  }
  return found == NULL ? NULL : strndup(found, size);
}

static int stopping(const tasks *t) {
  return t->signal != 0 || t->rc != BS_OK;
}

static void stop(tasks *t, int32_t rc) {
  if (t->rc == BS_OK) t->rc = rc;
}

static int open_input(job *j, const char *input) {
  j->input_fd = memfd_create("point", MFD_CLOEXEC);
  if (j->input_fd < 0) return errno;
  return bs_store_write_all(j->input_fd, input, strlen(input));
}

/* The words, then the file as any process of this user can open it, those of mpirun too. */
static int start(const tasks *t, job *j) {
  char path[64], *words[MAX_WORDS];
  size_t n = 0;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), j->input_fd);
  for (; t->o->words[n] != NULL && n + 2 < MAX_WORDS; n++) words[n] = (char *)(uintptr_t)t->o->words[n];
  words[n++] = path;
  words[n] = NULL;
  const bs_child child = {.program = t->o->program,
                          .words = words,
                          .stdio = {BS_CHILD_NULL, BS_CHILD_PIPE, BS_CHILD_PIPE},
                          .death = SIGKILL,
                          .mask = &t->mask};
  return bs_process_start(&child, &j->process);
}

static void close_job(job *j) {
  bs_process_free(&j->process);
  if (j->input_fd >= 0) close(j->input_fd);
  memset(j, 0, sizeof *j);
}

/* Without a pidfd the end of a point cannot be waited for, so no point starts. */
static int32_t start_task(const tasks *t, job *j, const bs_task *task, bs_error *err) {
  int failed = open_input(j, task->input);
  if (failed == 0) failed = start(t, j);
  if (failed != 0) return bs_error_errno(err, BS_NO_MEMORY, "BS-SWEEP-FORK", failed, "cannot start a point");
  if (j->process.pid_fd >= 0) return BS_OK;
  const int why = -j->process.pid_fd;
  bs_process_kill(&j->process);
  bs_process_finish(&j->process);
  return bs_error_errno(err, BS_UNAVAILABLE, "BS-SWEEP-PIDFD", why, "cannot open a pidfd (Linux 5.3 has it)");
}

static void begin(tasks *t, job *j, bs_task *task) {
  const double now = bs_process_now();
  j->task = task;
  j->began = real_now();
  const int32_t rc = start_task(t, j, task, t->err);
  if (rc != BS_OK) {
    close_job(j);
    stop(t, rc);
    return;
  }
  if (t->o->deadline_s > 0) j->process.ask_at = now + t->o->deadline_s;
  t->running++;
  if (t->o->began != NULL) t->o->began(t->o->user, task);
}

/* Starts as many tasks, in order, as may run at the same time. */
static void begin_next(tasks *t) {
  while (!stopping(t) && t->next < t->n && t->running < t->jobs) {
    bs_task *task = &t->of[t->next];
    for (uint32_t i = 0; i < t->jobs; i++)
      if (t->running > 0 && t->job[i].process.pid > 0 && (task->alone || t->job[i].task->alone)) return;
    job *j = t->job;
    while (j->process.pid > 0) j++;
    t->next++;
    begin(t, j, task);
  }
}

static void end_leftovers(const tasks *t, int badly, double since) {
  pid_t keep[MAX_JOBS];
  size_t n = 0;
  for (uint32_t i = 0; i < t->jobs; i++)
    if (t->job[i].process.pid > 0) keep[n++] = t->job[i].process.pid;
  if (n == 0) bs_leftover_end(keep, 0); /* else an orphan may be of one that runs */
  if (n == 0 && badly) bs_leftover_segments(since);
}

static void end(tasks *t, job *j) {
  bs_task *task = j->task;
  const int late = task->state == BS_TASK_LATE;
  const double since = j->began;
  task->seconds = bs_process_now() - j->process.started;
  task->code = bs_process_finish(&j->process);
  task->said = last_line(&j->process.err);
  if (j->process.out.data != NULL) task->out = strdup(j->process.out.data);
  if (!late) task->state = stopping(t) && j->process.asked ? BS_TASK_LEFT : BS_TASK_ENDED;
  const int badly = j->process.asked || j->process.killed || task->code > 128;
  close_job(j);
  t->running--;
  end_leftovers(t, badly, since);
  if (task->state != BS_TASK_LEFT && t->o->ended != NULL) stop(t, t->o->ended(t->o->user, task, t->err));
}

static void hear_signal(tasks *t) {
  struct signalfd_siginfo info;
  while (read(t->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
    const int again = t->signal != 0;
    if (!again) t->signal = (int)info.ssi_signo;
    for (uint32_t i = 0; i < t->jobs; i++) {
      bs_process *p = &t->job[i].process;
      if (p->pid <= 0) continue;
      if (again)
        bs_process_kill(p);
      else
        bs_process_ask(p, t->signal == SIGHUP ? SIGTERM : t->signal, 2 * GRACE_S);
    }
  }
}

static void use_up_budget(tasks *t) {
  if (t->ends_at == 0.0 || bs_process_now() < t->ends_at || t->rc != BS_OK || t->signal != 0) return;
  if (t->running == 0 && t->next == t->n) return;
  stop(t,
       bs_error_set(t->err, BS_DEADLINE, "BS-SWEEP-BUDGET", "the budget of %g s is used up", t->o->budget_s));
  for (uint32_t i = 0; i < t->jobs; i++)
    if (t->job[i].process.pid > 0) bs_process_ask(&t->job[i].process, SIGTERM, GRACE_S);
}

static void look_at_clocks(tasks *t) {
  const double now = bs_process_now();
  use_up_budget(t);
  for (uint32_t i = 0; i < t->jobs; i++) {
    bs_process *p = &t->job[i].process;
    if (p->pid <= 0) continue;
    if (p->ask_at > 0 && now >= p->ask_at) {
      t->job[i].task->state = BS_TASK_LATE;
      bs_process_ask(p, SIGTERM, GRACE_S);
    } else if (p->kill_at > 0 && now >= p->kill_at) {
      bs_process_kill(p);
    }
  }
}

/* Milliseconds until the next deadline; -1: there is none. */
static int wait_ms(const tasks *t) {
  double at = t->rc == BS_OK && t->signal == 0 ? t->ends_at : 0.0;
  for (uint32_t i = 0; i < t->jobs; i++) {
    const bs_process *p = &t->job[i].process;
    const double times[] = {p->ask_at, p->kill_at};
    for (size_t k = 0; k < 2 && p->pid > 0; k++)
      if (times[k] > 0 && (at == 0.0 || times[k] < at)) at = times[k];
  }
  if (at == 0.0) return -1;
  const double ms = (at - bs_process_now()) * 1e3 + 1.0;
  return ms < 0 ? 0 : ms > 60000 ? 60000 : (int)ms;
}

static void wait_once(tasks *t) {
  bs_process *of[MAX_JOBS];
  for (uint32_t i = 0; i < t->jobs; i++) of[i] = &t->job[i].process;
  if (!bs_process_wait(of, t->jobs, t->signal_fd, wait_ms(t))) {
    stop(t, bs_error_errno(t->err, BS_INTERNAL, "BS-SWEEP-POLL", errno, "cannot wait for points"));
    for (uint32_t i = 0; i < t->jobs; i++) bs_process_kill(of[i]);
  }
  hear_signal(t);
  for (uint32_t i = 0; i < t->jobs; i++)
    if (of[i]->pid > 0 && of[i]->ended) end(t, &t->job[i]);
  look_at_clocks(t);
}

static int32_t watch_signals(tasks *t, bs_error *err) {
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, SIGINT);
  sigaddset(&ours, SIGTERM);
  sigaddset(&ours, SIGHUP);
  sigprocmask(SIG_BLOCK, &ours, &t->mask);
  t->signal_fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
  if (t->signal_fd >= 0) return BS_OK;
  const int saved = errno;
  sigprocmask(SIG_SETMASK, &t->mask, NULL);
  return bs_error_errno(err, BS_NO_MEMORY, "BS-SWEEP-FORK", saved, "cannot watch signals");
}

int32_t bs_tasks_run(bs_task *of, size_t n, const bs_tasks_options *o, int *out_signal, bs_error *err) {
  tasks *t = calloc(1, sizeof *t);
  if (t == NULL) return bs_no_memory(err, "a sweep");
  *t = (tasks){.o = o,
               .of = of,
               .n = n,
               .jobs = o->jobs < 1          ? 1
                       : o->jobs > MAX_JOBS ? MAX_JOBS
                                            : o->jobs,
               .err = err};
  if (o->budget_s > 0) t->ends_at = bs_process_now() + o->budget_s;
  int32_t rc = watch_signals(t, err);
  if (rc == BS_OK) {
    bs_leftover_adopt();
    for (begin_next(t); t->running > 0; begin_next(t)) wait_once(t);
    if (t->next < t->n) use_up_budget(t);
    close(t->signal_fd);
    sigprocmask(SIG_SETMASK, &t->mask, NULL);
    *out_signal = t->signal;
    rc = t->rc;
  }
  free(t);
  return rc;
}

void bs_tasks_free(bs_task *of, size_t n) {
  for (size_t i = 0; of != NULL && i < n; i++) {
    free(of[i].input);
    free(of[i].out);
    free(of[i].said);
  }
  free(of);
}
