/* SPDX-License-Identifier: MIT
 * process.h - one child of the supervisor: in a process group of its own, killed by the kernel when the
 * supervisor dies, watched by a pidfd, its output read through pipes that never block. The supervisor has one
 * thread and loads no plugin: fork is safe. */
#ifndef BS_LAB_SWEEP_PROCESS_H
#define BS_LAB_SWEEP_PROCESS_H
#include <signal.h>
#include <sys/types.h>

#include "core/base/text.h"

typedef struct bs_process {
  pid_t pid; /* also its group; 0: none */
  int pid_fd, out_fd, err_fd, input_fd;
  double started;
  double ask_at, kill_at; /* by bs_process_now: when it is asked to end, and when it is ended; 0: never */
  int asked, killed;      /* signals that it was sent; killed: by SIGKILL */
  bs_text out, err;       /* the last part of what it said */
} bs_process;

/* Seconds of the monotonic clock. */
double bs_process_now(void);
/* Starts program with words (NULL-terminated, without the program's name in front of a path that is added as
 * the last word: of a file that holds `input`). mask: of the child's signals. BS_NO_MEMORY (BS-SWEEP-FORK),
 * BS_UNAVAILABLE when the system has no pidfd. */
int32_t bs_process_start(const char *program, const char *const *words, const char *input,
                         const sigset_t *mask, bs_process *out, bs_error *err);
/* Takes what stands in a pipe, at most 512 KiB a call; 0 at its end. */
int bs_process_read(int fd, bs_text *into);
/* Asks it to end by a signal; what has not ended `grace` seconds later is killed. */
void bs_process_ask(bs_process *process, int number, double grace);
void bs_process_kill(bs_process *process);
/* After its end: kills what is left of its group, takes its status and the rest of its output, closes.
 * Returns its exit code, or 128 + the signal that ended it. */
int bs_process_finish(bs_process *process);
void bs_process_free(bs_process *process);

/* leftover.c. Makes this process the parent of orphans below it. */
void bs_leftover_adopt(void);
/* Kills and takes all children that are none of `keep`: what an ended child has left behind, in whatever
 * group or session. Returns how many. */
size_t bs_leftover_end(const pid_t *keep, size_t n);
/* Removes segments of MPI libraries and NCCL from /dev/shm that are this user's, not older than `since` (of
 * the real clock), and mapped by no process. Returns how many. */
size_t bs_leftover_segments(double since);
#endif
