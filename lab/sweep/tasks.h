/* SPDX-License-Identifier: MIT
 * tasks.h - the supervisor. It runs tasks as children, one after the other or several at the same time, each
 * with a deadline and all with a time budget, and leaves no files or processes of them. */
#ifndef BS_LAB_SWEEP_TASKS_H
#define BS_LAB_SWEEP_TASKS_H
#include <stddef.h>

#include "blockshock/blockshock.h"

enum bs_task_state {
  BS_TASK_LEFT = 0,  /* not begun, or stopped by a signal or the budget */
  BS_TASK_ENDED = 1, /* its exit code counts */
  BS_TASK_LATE = 2   /* its deadline passed */
};

typedef struct bs_task {
  char *input; /* the content of its file */
  int alone;   /* nothing else may run at the same time */
  int64_t id;  /* the caller's */
  int state, code;
  double seconds;
  char *out, *said; /* its stdout; the last error line of its stderr, else its last line; or NULL */
} bs_task;

typedef struct bs_tasks_options {
  const char *program;
  const char *const *words; /* of the command line, NULL at the end; the path of the input follows */
  uint32_t jobs;
  double deadline_s, budget_s;                                      /* 0: none */
  void (*began)(void *user, const bs_task *task);                   /* may be NULL */
  int32_t (*ended)(void *user, const bs_task *task, bs_error *err); /* not BS_OK: no further task starts */
  void *user;
} bs_tasks_options;

/* Runs all. *out_signal: the signal (SIGINT, SIGTERM, SIGHUP) that ended it, after the running tasks got it
 * and ended; a second signal kills them. BS_DEADLINE (BS-SWEEP-BUDGET): the budget is used up; or the error
 * of `ended`. Not thread-safe: the process must have one thread, and no other children. */
int32_t bs_tasks_run(bs_task *tasks, size_t n, const bs_tasks_options *options, int *out_signal,
                     bs_error *err);
void bs_tasks_free(bs_task *tasks, size_t n);
#endif
