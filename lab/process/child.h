/* SPDX-License-Identifier: MIT
 * child.h - starts a child process, waits for it, and kills it. process.h also reads its output. */
#ifndef BS_LAB_PROCESS_CHILD_H
#define BS_LAB_PROCESS_CHILD_H
#include <signal.h>
#include <sys/types.h>

/* BS_CHILD_KEEP, BS_CHILD_NULL: for a descriptor the parent's, or /dev/null; for a group the parent's. */
enum { BS_CHILD_KEEP = -1, BS_CHILD_NULL = -2, BS_CHILD_PIPE = -3 /* process.h */ };
enum { BS_CHILD_NOT_RUN = 127 }; /* the exit code if the program cannot be run, as in a shell */

typedef struct bs_child {
  const char *program;     /* its path; NULL: none, the child exits with 0 after `run` */
  char *const *words;      /* its command line, NULL at the end */
  void (*run)(void *user); /* the first function of the child; NULL: none */
  void *user;
  int stdio[3];         /* descriptors of its standard input, output and error */
  int death;            /* the signal that it gets when the parent's thread ends; 0: none */
  pid_t group;          /* the process group that it joins; 0: a new one */
  const sigset_t *mask; /* of its signals; NULL: the parent's */
  int not_run;          /* another exit code than BS_CHILD_NOT_RUN; 0: that one */
} bs_child;

/* Seconds of the monotonic clock. */
double bs_process_now(void);
/* Flushes all streams and forks. Returns the child's number; -1 and errno on failure. */
pid_t bs_child_start(const bs_child *child);
/* Waits at most `seconds` for its end; 0: checks once. 1: it has ended, with *out_status as of waitpid; 0: it
 * runs; -1: it is not a child, or was reaped before. */
int bs_child_ended(pid_t pid, double seconds, int *out_status);
/* Waits for its end. Returns the status of waitpid. */
int bs_child_wait(pid_t pid);
/* Kills it and its group. */
void bs_child_kill(pid_t pid);
/* Starts it, waits for at most `seconds`, and then kills it. Returns its exit code, or 128 + the signal that
 * ended it; -1: it could not be started. */
int bs_child_answer(const bs_child *child, double seconds);
/* Its exit code, or 128 + the signal that ended it. */
int bs_child_code(int status);
#endif
