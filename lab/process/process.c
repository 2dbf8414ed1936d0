/* SPDX-License-Identifier: MIT
 * process.c - see process.h. */
#include "lab/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT_BYTES = 1 << 20, MAX_READS = 64, MAX_PROCESSES = 64, LOOK_MS = 50 };

static void close_one(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void close_all(bs_process *p) {
  close_one(&p->pid_fd);
  close_one(&p->out_fd);
  close_one(&p->err_fd);
}

/* *theirs: BS_CHILD_PIPE becomes the end that is written. */
static int open_pipe(int *ours, int *theirs) {
  int ends[2];
  if (*theirs != BS_CHILD_PIPE) return 0;
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  *ours = ends[0];
  *theirs = ends[1];
  return 0;
}

int bs_process_start(const bs_child *child, bs_process *p) {
  bs_child c = *child;
  *p = (bs_process){.pid_fd = -1, .out_fd = -1, .err_fd = -1};
  int failed = open_pipe(&p->out_fd, &c.stdio[1]);
  if (failed == 0) failed = open_pipe(&p->err_fd, &c.stdio[2]);
  p->started = bs_process_now();
  if (failed == 0) p->pid = bs_child_start(&c);
  if (p->pid < 0) failed = errno;
  if (child->stdio[1] == BS_CHILD_PIPE) close_one(&c.stdio[1]);
  if (child->stdio[2] == BS_CHILD_PIPE) close_one(&c.stdio[2]);
  if (failed != 0) {
    p->pid = 0;
    close_all(p);
    return failed;
  }
  p->pid_fd = (int)syscall(SYS_pidfd_open, p->pid, 0u);
  if (p->pid_fd < 0) p->pid_fd = -errno;
  return 0;
}

/* A long output keeps its last KEPT_BYTES: a program prints its error line last. */
static void keep_end(bs_text *text) {
  if (text->size <= KEPT_BYTES) return;
  const size_t cut = text->size - KEPT_BYTES / 2;
  memmove(text->data, text->data + cut, text->size - cut + 1);
  text->size -= cut;
}

static int read_part(int fd, bs_text *into, int whole) {
  char part[8192];
  if (fd < 0) return 0;
  for (int i = 0; i < MAX_READS; i++) { /* limits reads, so that a fast writer does not hold up the others */
    const ssize_t n = read(fd, part, sizeof part);
    if (n == 0) return 0;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    bs_text_append(into, part, (size_t)n);
    if (!whole) keep_end(into);
  }
  return 1;
}

int bs_process_read(int fd, bs_text *into) {
  return read_part(fd, into, 0);
}

/* Closed pipes are not watched any more: a child that has closed its stderr still runs. */
static void take_output(int *fd, bs_text *into, int whole) {
  if (!read_part(*fd, into, whole)) close_one(fd);
}

static int has_ended(const bs_process *p) {
  siginfo_t info = {.si_pid = 0};
  if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno == ECHILD;
  return info.si_pid == p->pid;
}

int bs_process_wait(bs_process *const *of, size_t n, int wake, int ms) {
  struct pollfd fds[1 + 3 * MAX_PROCESSES];
  if (n > MAX_PROCESSES) n = MAX_PROCESSES;
  fds[0] = (struct pollfd){.fd = wake, .events = POLLIN};
  for (size_t i = 0; i < n; i++) {
    const int its[] = {of[i]->pid_fd, of[i]->out_fd, of[i]->err_fd};
    for (size_t k = 0; k < 3; k++)
      fds[1 + 3 * i + k] = (struct pollfd){.fd = of[i]->pid > 0 ? its[k] : -1, .events = POLLIN};
    if (of[i]->pid > 0 && of[i]->pid_fd < 0 && (ms < 0 || ms > LOOK_MS)) ms = LOOK_MS;
  }
  const int failed = poll(fds, 1 + 3 * (nfds_t)n, ms) < 0 && errno != EINTR;
  for (size_t i = 0; !failed && i < n; i++) {
    if (of[i]->pid <= 0) continue;
    if (fds[2 + 3 * i].revents != 0) take_output(&of[i]->out_fd, &of[i]->out, of[i]->whole);
    if (fds[3 + 3 * i].revents != 0) take_output(&of[i]->err_fd, &of[i]->err, of[i]->whole);
    of[i]->ended = has_ended(of[i]);
  }
  return !failed;
}

int bs_process_watch(bs_process *p, double seconds) {
  double until = bs_process_now() + seconds;
  while (!p->ended) {
    const size_t said = p->out.size + p->err.size;
    const double left = until - bs_process_now();
    if (left <= 0 || !bs_process_wait(&p, 1, -1, (int)(left * 1e3) + 1)) return 0;
    if (p->out.size + p->err.size != said) until = bs_process_now() + seconds;
  }
  return 1;
}

void bs_process_ask(bs_process *p, int number, double grace) {
  const double at = bs_process_now() + grace;
  if (p->pid <= 0) return;
  p->asked++;
  p->ask_at = 0.0;
  if (p->kill_at == 0.0 || at < p->kill_at) p->kill_at = at;
  kill(p->pid, number);
  kill(p->pid, SIGCONT); /* a stopped process must receive it too */
}

void bs_process_kill(bs_process *p) {
  if (p->pid <= 0) return;
  p->killed = 1;
  p->ask_at = p->kill_at = 0.0;
  bs_child_kill(p->pid);
}

int bs_process_take(bs_process *p) {
  const int status = bs_child_wait(p->pid);
  read_part(p->out_fd, &p->out, p->whole);
  read_part(p->err_fd, &p->err, p->whole);
  close_all(p);
  p->pid = 0;
  return status;
}

int bs_process_finish(bs_process *p) {
  kill(-p->pid, SIGKILL); /* its number is its own until it is taken */
  return bs_child_code(bs_process_take(p));
}

void bs_process_free(bs_process *p) {
  bs_text_free(&p->out);
  bs_text_free(&p->err);
}
