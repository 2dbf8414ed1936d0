/* SPDX-License-Identifier: MIT
 * process.h - a child whose output and end are waited for: it is watched by a pidfd, and its output is read
 * through pipes that never block. */
#ifndef BS_LAB_PROCESS_PROCESS_H
#define BS_LAB_PROCESS_PROCESS_H
#include "core/base/text.h"
#include "lab/process/child.h"

typedef struct bs_process {
  pid_t pid;                  /* 0: none */
  int pid_fd, out_fd, err_fd; /* pid_fd: minus the errno where it cannot be opened (Linux 5.3 has it) */
  int ended;                  /* it was seen to have ended, and waits to be taken */
  double started;
  double ask_at, kill_at; /* by bs_process_now: when it is asked to end, and when it is ended; 0: never */
  int asked, killed;      /* signals that it was sent; killed: by SIGKILL */
  int whole;              /* all that it said is kept; 0: the last part */
  bs_text out, err;       /* what it said */
} bs_process;

/* Starts a child; where stdio is BS_CHILD_PIPE, its output is read. Returns 0 or an errno. */
int bs_process_start(const bs_child *child, bs_process *out);
/* Takes what stands in a pipe, at most 512 KiB a call; 0 at its end. */
int bs_process_read(int fd, bs_text *into);
/* Waits until one of the n processes (pid 0: none) writes something or ends, until `wake` can be read (-1:
 * none), or `ms` have passed (-1: no limit), and reads their output. 0: failed, by errno. */
int bs_process_wait(bs_process *const *processes, size_t n, int wake, int ms);
/* Waits until the process has ended, or has written nothing for `seconds`. 1: it has ended. */
int bs_process_watch(bs_process *process, double seconds);
/* Asks it to end by a signal; what has not ended `grace` seconds later is killed. */
void bs_process_ask(bs_process *process, int number, double grace);
void bs_process_kill(bs_process *process);
/* After its end, or its kill: takes its status (as of waitpid) and the rest of its output, and closes. What
 * is left of its group runs on. */
int bs_process_take(bs_process *process);
/* Takes it as bs_process_take does, and kills what is left of its group. Returns its exit code, or 128 + the
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
