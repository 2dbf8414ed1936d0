/* SPDX-License-Identifier: MIT
 * hear.c - see hear.h. */
#include "lab/sweep/hear.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/error.h"

enum { SILENCE_MS = 60000 }; /* that is opening what one point names */

/* Waits for more; a signal, or a stop and its end, are no reason to give up. */
static int is_more(int fd) {
  struct pollfd wait_for = {.fd = fd, .events = POLLIN};
  int n;
  while ((n = poll(&wait_for, 1, SILENCE_MS)) < 0 && errno == EINTR) {
  }
  return n > 0;
}

static void take_all(int fd, pid_t child, bs_text *out) {
  char part[4096];
  ssize_t n = 1;
  while (n > 0 && is_more(fd)) {
    do n = read(fd, part, sizeof part);
    while (n < 0 && errno == EINTR);
    if (n > 0) bs_text_append(out, part, (size_t)n);
  }
  if (n > 0) kill(child, SIGKILL);
}

int32_t bs_hear_child(void (*say)(void *user, int fd), void *user, bs_text *out, bs_error *err) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return bs_error_errno(err, BS_NO_MEMORY, "BS-SWEEP-FORK", errno, "cannot check the points");
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    say(user, ends[1]);
    _exit(0); /* what was opened ends with the process */
  }
  const int failed = errno;
  close(ends[1]);
  if (child > 0) take_all(ends[0], child, out);
  close(ends[0]);
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
  if (child < 0) return bs_error_errno(err, BS_NO_MEMORY, "BS-SWEEP-FORK", failed, "cannot check the points");
  return out->failed ? bs_no_memory(err, "a sweep") : BS_OK;
}
