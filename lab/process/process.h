/* SPDX-License-Identifier: MIT
 * process.h - a child whose output and end are waited for: a pidfd watches it, and its output is read through
 * pipes that never block. */
#ifndef BS_LAB_PROCESS_PROCESS_H
#define BS_LAB_PROCESS_PROCESS_H
#include "core/base/text.h"
#include "lab/process/child.h"

typedef struct bs_process {
  pid_t pid;                  /* 0: none */
  int pid_fd, out_fd, err_fd; /* pid_fd: minus the errno if it cannot be opened (Linux 5.3 has it) */
  int ended;                  /* it has ended, and is not reaped yet */
  double started;
  double ask_at, kill_at; /* by bs_process_now: the time of the request to end, and of the kill; 0: never */
  int asked, killed;      /* signals that it was sent; killed: by SIGKILL */
  int whole;              /* keep its whole output; 0: only the last part */
  bs_text out, err;       /* its output */
} bs_process;

/* Starts a child; for stdio BS_CHILD_PIPE its output is read. Returns 0 or an errno. */
int bs_process_start(const bs_child *child, bs_process *out);
/* Reads the content of a pipe, at most 512 KiB a call; 0 at its end. */
int bs_process_read(int fd, bs_text *into);
/* Waits until one of the n processes (pid 0: none) writes something or ends, until `wake` can be read (-1:
 * none), or `ms` have passed (-1: no limit), and reads their output. 0: failed, by errno. */
int bs_process_wait(bs_process *const *processes, size_t n, int wake, int ms);
/* Waits until the process has ended, or has written nothing for `seconds`. 1: it has ended. */
int bs_process_watch(bs_process *process, double seconds);
/* Requests its end by a signal; if it has not ended `grace` seconds later it is killed. */
void bs_process_ask(bs_process *process, int number, double grace);
void bs_process_kill(bs_process *process);
/* Reaps it after its end, or its kill: reads its status (as of waitpid) and the rest of its output, and
 * closes. Other processes of its group continue. */
int bs_process_take(bs_process *process);
/* Reaps it as bs_process_take does, and kills the rest of its group. Returns its exit code, or 128 + the
 * signal that ended it. */
int bs_process_finish(bs_process *process);
void bs_process_free(bs_process *process);

/* leftover.c. Makes this process the parent of orphans below it. */
void bs_leftover_adopt(void);
/* Kills and reaps all children that are not in `keep`: processes that an ended child left, in any group or
 * session. Returns their number. */
size_t bs_leftover_end(const pid_t *keep, size_t n);
/* Removes segments of MPI libraries and NCCL from /dev/shm that are this user's, not older than `since` (of
 * the real clock), and mapped by no process. Returns how many. */
size_t bs_leftover_segments(double since);
#endif
