/* SPDX-License-Identifier: MIT
 * hear.c - see hear.h. */
#include "lab/process/hear.h"

#include <fcntl.h>
#include <unistd.h>

#include "lab/process/process.h"

/* Runs in the child. Standard output is the pipe, which other code must not use. Everything that is opened is
 * released with the process. */
static void speak(void *user) {
  const bs_hearing *h = user;
  const int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) _exit(BS_CHILD_NOT_RUN);
  h->say(h->user, fd);
}

int bs_hear(bs_hearing *h, bs_text *out) {
  const bs_child child = {.run = speak,
                          .user = h,
                          .stdio = {BS_CHILD_KEEP, BS_CHILD_PIPE, h->quiet ? BS_CHILD_NULL : BS_CHILD_KEEP},
                          .death = SIGKILL,
                          .group = BS_CHILD_KEEP};
  bs_process p;
  const int failed = bs_process_start(&child, &p);
  if (failed != 0) return failed;
  p.whole = 1;
  h->late = !bs_process_watch(&p, h->silence_s);
  if (h->late) bs_process_kill(&p);
  h->status = bs_process_take(&p);
  *out = p.out;
  return 0;
}
