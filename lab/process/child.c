/* SPDX-License-Identifier: MIT
 * child.c - see child.h. */
#include "lab/process/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double bs_process_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void redirect(const int stdio[3]) {
  for (int i = 0; i < 3; i++) {
    if (stdio[i] == BS_CHILD_KEEP) continue;
    const int fd = stdio[i] == BS_CHILD_NULL ? open("/dev/null", O_RDWR | O_CLOEXEC) : stdio[i];
    const int here = fd == i ? fcntl(fd, F_SETFD, 0) : dup2(fd, i); /* the parent may lack one of the three */
    if (fd < 0 || here < 0) _exit(BS_CHILD_NOT_RUN);
  }
}

/* Runs in the child. The parent's number was read before the fork, so the child notices a parent that has
 * died since. */
static _Noreturn void become(const bs_child *c, pid_t parent) {
  if (c->death != 0) prctl(PR_SET_PDEATHSIG, c->death);
  const int not_run = c->not_run != 0 ? c->not_run : BS_CHILD_NOT_RUN;
  if (c->death != 0 && getppid() != parent) _exit(not_run);
  if (c->group != BS_CHILD_KEEP) setpgid(0, c->group);
  redirect(c->stdio);
  if (c->mask != NULL) sigprocmask(SIG_SETMASK, c->mask, NULL);
  if (c->run != NULL) c->run(c->user);
  if (c->program == NULL) _exit(0);
  execv(c->program, c->words);
  _exit(not_run);
}

pid_t bs_child_start(const bs_child *c) {
  const pid_t parent = getpid();
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) become(c, parent);
  /* both processes call it, because either may run first */
  if (pid > 0 && c->group != BS_CHILD_KEEP) setpgid(pid, c->group > 0 ? c->group : pid);
  return pid;
}

int bs_child_ended(pid_t pid, double seconds, int *out_status) {
  const struct timespec nap = {0, 1000000};
  const double until = bs_process_now() + seconds;
  for (;;) {
    const pid_t got = waitpid(pid, out_status, WNOHANG);
    if (got == pid) return 1;
    if (got < 0 && errno != EINTR) return -1;
    if (bs_process_now() >= until) return 0;
    nanosleep(&nap, NULL);
  }
}

int bs_child_wait(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

void bs_child_kill(pid_t pid) {
  kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
}

int bs_child_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int bs_child_answer(const bs_child *child, double seconds) {
  int status = 0;
  const pid_t pid = bs_child_start(child);
  if (pid < 0) return -1;
  if (bs_child_ended(pid, seconds, &status) == 0) {
    bs_child_kill(pid);
    status = bs_child_wait(pid);
  }
  return bs_child_code(status);
}
