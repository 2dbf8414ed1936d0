/* SPDX-License-Identifier: MIT
 * process.c - see process.h. */
#include "lab/sweep/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/store/store.h"

enum { KEPT_BYTES = 1 << 20, MAX_WORDS = 64, MAX_READS = 64 };

double bs_process_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void close_all(bs_process *p) {
  int *const fds[] = {&p->pid_fd, &p->out_fd, &p->err_fd, &p->input_fd};
  for (size_t i = 0; i < 4; i++) {
    if (*fds[i] >= 0) close(*fds[i]);
    *fds[i] = -1;
  }
}

static int open_input(bs_process *p, const char *input) {
  p->input_fd = memfd_create("point", MFD_CLOEXEC);
  if (p->input_fd < 0) return errno;
  return bs_store_write_all(p->input_fd, input, strlen(input));
}

/* In the child. The number of the parent is known before the fork: one that has died meanwhile is seen. */
static void become(const char *program, char **argv, const int ends[2], pid_t parent, const sigset_t *mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, 0) < 0 || dup2(ends[0], 1) < 0 || dup2(ends[1], 2) < 0) _exit(127);
  sigprocmask(SIG_SETMASK, mask, NULL);
  execv(program, argv);
  _exit(127);
}

/* The words, then the file as any process of this user can open it, those of mpirun too. */
static void make_words(const char *const *words, char *path, size_t size, int fd, char **out) {
  size_t n = 0;
  snprintf(path, size, "/proc/%d/fd/%d", (int)getpid(), fd);
  while (words[n] != NULL && n + 2 < MAX_WORDS) {
    out[n] = (char *)(uintptr_t)words[n];
    n++;
  }
  out[n++] = path;
  out[n] = NULL;
}

static int start(bs_process *p, const char *program, const char *const *words, const sigset_t *mask) {
  char path[64], *argv[MAX_WORDS];
  int out[2], err[2];
  const pid_t parent = getpid();
  if (pipe2(out, O_CLOEXEC) != 0) return errno;
  if (pipe2(err, O_CLOEXEC) != 0) {
    const int saved = errno;
    close(out[0]);
    close(out[1]);
    return saved;
  }
  p->out_fd = out[0];
  p->err_fd = err[0];
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  fcntl(err[0], F_SETFL, O_NONBLOCK);
  make_words(words, path, sizeof path, p->input_fd, argv);
  fflush(NULL);
  p->pid = fork();
  const int failed = p->pid < 0 ? errno : 0;
  if (p->pid == 0) become(program, argv, (const int[2]){out[1], err[1]}, parent, mask);
  close(out[1]);
  close(err[1]);
  if (failed != 0) p->pid = 0;
  return failed;
}

int32_t bs_process_start(const char *program, const char *const *words, const char *input,
                         const sigset_t *mask, bs_process *p, bs_error *err) {
  *p = (bs_process){.pid_fd = -1, .out_fd = -1, .err_fd = -1, .input_fd = -1};
  int failed = open_input(p, input);
  if (failed == 0) failed = start(p, program, words, mask);
  if (failed != 0) {
    close_all(p);
    return bs_error_errno(err, BS_NO_MEMORY, "BS-SWEEP-FORK", failed, "cannot start a point");
  }
  setpgid(p->pid, p->pid); /* here and there: whoever is first */
  p->started = bs_process_now();
  p->pid_fd = (int)syscall(SYS_pidfd_open, p->pid, 0u);
  if (p->pid_fd >= 0) return BS_OK;
  failed = errno;
  bs_process_kill(p);
  bs_process_finish(p);
  return bs_error_errno(err, BS_UNAVAILABLE, "BS-SWEEP-PIDFD", failed,
                        "this system has no pidfd (Linux 5.3 has)");
}

/* Of more than KEPT_BYTES the later part counts: the error line comes last. */
static void keep_end(bs_text *text) {
  if (text->size <= KEPT_BYTES) return;
  const size_t cut = text->size - KEPT_BYTES / 2;
  memmove(text->data, text->data + cut, text->size - cut + 1);
  text->size -= cut;
}

int bs_process_read(int fd, bs_text *into) {
  char part[8192];
  if (fd < 0) return 0;
  for (int i = 0; i < MAX_READS; i++) { /* who writes faster than this reads must not hold up the others */
    const ssize_t n = read(fd, part, sizeof part);
    if (n == 0) return 0;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    bs_text_append(into, part, (size_t)n);
    keep_end(into);
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
  kill(p->pid, SIGCONT); /* one that is stopped hears it too */
}

void bs_process_kill(bs_process *p) {
  if (p->pid <= 0) return;
  p->killed = 1;
  p->ask_at = p->kill_at = 0.0;
  kill(p->pid, SIGKILL);
  kill(-p->pid, SIGKILL);
}

int bs_process_finish(bs_process *p) {
  int status = 0;
  kill(-p->pid, SIGKILL); /* its number is its own until it is taken */
  while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
  }
  bs_process_read(p->out_fd, &p->out);
  bs_process_read(p->err_fd, &p->err);
  close_all(p);
  p->pid = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void bs_process_free(bs_process *p) {
  bs_text_free(&p->out);
  bs_text_free(&p->err);
}
