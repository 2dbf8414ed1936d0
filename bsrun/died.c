/* SPDX-License-Identifier: MIT
 * died.c - see died.h. The signal handler calls only what is async-signal-safe. It exits with 7 (a plugin
 * died), as `--launch processes` does; where a core is wanted, a copy of the process leaves it. */
#include "bsrun/died.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "bsrun/bsrun.h"
#include "bsrun/launch.h"
#include "bsrun/run.h"
#include "core/base/error.h"
#include "core/base/log.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DIED_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DIED_SANITIZED 1
#endif
#endif
#ifndef DIED_SANITIZED
#define DIED_SANITIZED 0
#endif

enum { DIED = 7, STACK = 1 << 16, TELLING_SECONDS = 10 };

static const struct {
  int number;
  const char *name;
} deaths[] = {{SIGSEGV, "segmentation fault"},      {SIGBUS, "bus error"}, {SIGILL, "illegal instruction"},
              {SIGFPE, "floating-point exception"}, {SIGABRT, "abort"},    {SIGSYS, "bad system call"}};
enum { N_DEATHS = sizeof deaths / sizeof deaths[0] };

static struct {
  pid_t pid; /* of bsrun: a child that it forks has another */
  _Atomic int ended, code;
  _Atomic pid_t teller; /* the thread that tells of the death; 0: none */
  int follows;          /* a rank, not 0, that bsrun has started */
  char verb[64], what[400];
} self;

static const char *what_runs(void) {
  return self.what[0] != '\0' ? self.what : self.verb;
}

/* ---- a line without stdio -------------------------------------------------------------------- */

typedef struct line {
  char text[1024];
  size_t n;
} line;

static void put(line *l, const char *text) {
  while (*text != '\0' && l->n + 2 < sizeof l->text) l->text[l->n++] = *text++;
}

static void put_number(line *l, unsigned long value) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = '\0';
  do {
    digits[--at] = (char)('0' + value % 10);
    value /= 10;
  } while (value > 0);
  put(l, digits + at);
}

/* ---- where it happened ----------------------------------------------------------------------- */

static uintptr_t instruction(const void *context) {
  const ucontext_t *u = context;
#if defined(__x86_64__)
  return (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (uintptr_t)u->uc_mcontext.pc;
#else
  (void)u;
  return 0;
#endif
}

static uintptr_t hex(const char **text) {
  uintptr_t value = 0;
  for (;; (*text)++) {
    const char c = **text;
    if (c >= '0' && c <= '9')
      value = value << 4 | (uintptr_t)(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value << 4 | (uintptr_t)(c - 'a' + 10);
    else
      return value;
  }
}

/* "start-end ... path": the name of the file that is mapped there. */
static const char *name_of(const char *row, uintptr_t at) {
  const uintptr_t start = hex(&row);
  if (*row++ != '-' || at < start || at >= hex(&row)) return NULL;
  const char *slash = strrchr(row, '/');
  return slash != NULL ? slash + 1 : NULL;
}

static void put_file(line *l, uintptr_t at) {
  char block[1024], row[600];
  size_t used = 0;
  const int fd = at != 0 ? open("/proc/self/maps", O_RDONLY | O_CLOEXEC) : -1;
  for (ssize_t n; fd >= 0 && (n = read(fd, block, sizeof block)) > 0;) {
    for (ssize_t i = 0; i < n; i++) {
      if (block[i] != '\n') {
        if (used + 1 < sizeof row) row[used++] = block[i];
        continue;
      }
      row[used] = '\0';
      used = 0;
      const char *name = name_of(row, at);
      if (name == NULL) continue;
      put(l, " in ");
      put(l, name);
      close(fd);
      return;
    }
  }
  if (fd >= 0) close(fd);
}

/* ---- a signal -------------------------------------------------------------------------------- */

static void say(line *l, const char *hint) {
  if (self.ended) put(l, ", while it ended");
  put(l, "; hint: ");
  put(l, hint);
  l->text[l->n++] = '\n';
  if (write(STDERR_FILENO, l->text, l->n) < 0) return; /* stderr is closed */
}

static void begin(line *l) {
  l->n = 0;
  if (isatty(STDERR_FILENO)) put(l, "\r\033[K"); /* the progress */
  put(l, "bsrun: error[BS-RUN-DIED] ");
  put(l, what_runs());
}

/* A copy of this thread dies as it would have, and leaves what the limits and the machine allow. */
static void leave_core(int number) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_CORE, &limit) != 0 || limit.rlim_cur == 0) return;
  const long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid > 0) waitpid((pid_t)pid, NULL, 0);
  if (pid != 0) return;
  sigset_t all;
  sigfillset(&all);
  signal(number, SIG_DFL);
  kill((pid_t)syscall(SYS_getpid), number);
  sigprocmask(SIG_UNBLOCK, &all, NULL);
}

static _Noreturn void leave(int code) {
  for (;;) syscall(SYS_exit_group, code);
}

/* The first thread that dies tells of it and ends the process. Any other waits for that end: its own status
 * must not overtake the first one's. */
static void take_the_word(void) {
  const pid_t me = (pid_t)syscall(SYS_gettid);
  pid_t teller = 0;
  if (atomic_compare_exchange_strong(&self.teller, &teller, me)) return;
  for (int s = 0; teller != me && s < TELLING_SECONDS * 10; s++) {
    const struct timespec rest = {0, 100000000};
    nanosleep(&rest, NULL);
  }
  leave(DIED); /* it died while it reported, or the reporting thread is stuck */
}

static void on_signal(int number, siginfo_t *info, void *context) {
  const pid_t pid = getpid();
  if (pid != self.pid || (info->si_code == SI_USER && info->si_pid != pid)) { /* not a mistake made here */
    signal(number, SIG_DFL);
    kill(pid, number);
    return;
  }
  take_the_word();
  const char *name = "";
  for (size_t i = 0; i < N_DEATHS; i++)
    if (deaths[i].number == number) name = deaths[i].name;
  line l;
  begin(&l);
  put(&l, ": signal ");
  put_number(&l, (unsigned long)number);
  put(&l, " (");
  put(&l, name);
  put(&l, ")");
  put_file(&l, instruction(context));
  if (bs_log_rank() >= 0) {
    put(&l, ", rank ");
    put_number(&l, (unsigned long)bs_log_rank());
  }
  say(&l, "bsrun plugins check grades a plugin; after `ulimit -c unlimited` a core is left for a debugger");
  run_signals_mark(number);
  leave_core(number);
  leave(self.ended && self.code != 0 ? self.code : DIED);
}

/* ---- exit() and _exit() ---------------------------------------------------------------------- */

/* Is this the end of bsrun that bsrun did not ask for? Ranks that are processes are missed by rank 0. */
static int unasked(void) {
  return self.pid != 0 && getpid() == self.pid && !self.ended && !self.follows && !bsrun_following();
}

static void on_exit_called(int status, void *unused) {
  (void)unused;
  if (!unasked()) return;
  take_the_word();
  bs_error err = BS_ERROR_INIT;
  bs_error_set(&err, BS_RANK_FAILED, "BS-RUN-DIED", "%s: a plugin, or a library of it, called exit(%d)",
               what_runs(), status);
  bs_error_hint(&err, "a breakpoint at exit in a debugger shows who calls it");
  run_signals_mark(0);
  leave(bsrun_fail(&err));
}

#if !DIED_SANITIZED /* a sanitizer has its own, which reports */
static struct { void (*exit)(int status), (*quick_exit)(int status); } ends; /* those of the C library */

static void find_ends(void) {
  *(void **)&ends.exit = dlsym(RTLD_NEXT, "exit");
  *(void **)&ends.quick_exit = dlsym(RTLD_NEXT, "quick_exit");
}

static _Noreturn void tell_end(const char *function, int status, const void *caller) {
  take_the_word();
  line l;
  begin(&l);
  put(&l, ": ");
  put(&l, function);
  put(&l, "(");
  put_number(&l, (unsigned long)(status & 0xff));
  put(&l, ") was called");
  put_file(&l, (uintptr_t)caller);
  say(&l, "a plugin returns its errors");
  run_signals_mark(0);
  leave(DIED);
}

/* The program's own definitions come before the C library's, for plugins too: an _exit(0) in one would end
 * bsrun with the status of success. In exit() of the C library a second thread runs the handlers that the
 * first has left, and ends the process before the first has reported. */
__attribute__((visibility("default"))) void _exit(int status) {
  if (unasked()) tell_end("_exit", status, __builtin_return_address(0));
  leave(self.ended && getpid() == self.pid ? self.code : status);
}
__attribute__((visibility("default"))) void _Exit(int status) {
  if (unasked()) tell_end("_Exit", status, __builtin_return_address(0));
  leave(self.ended && getpid() == self.pid ? self.code : status);
}
__attribute__((visibility("default"))) void exit(int status) {
  if (unasked()) tell_end("exit", status, __builtin_return_address(0));
  if (ends.exit != NULL) ends.exit(status);
  leave(status);
}
__attribute__((visibility("default"))) void quick_exit(int status) {
  if (unasked()) tell_end("quick_exit", status, __builtin_return_address(0));
  if (ends.quick_exit != NULL) ends.quick_exit(status);
  leave(status);
}
#endif

/* ---------------------------------------------------------------------------------------------- */

static pthread_key_t stack_key;

static void take_stack(void *stack) {
  const stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  munmap(stack, STACK);
}

/* A thread that has used up its stack has no room for the handler: each has another for that. */
static void give_stack(void) {
  stack_t now;
  if (sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return; /* a sanitizer's */
  void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return;
  const stack_t other = {.ss_sp = stack, .ss_size = STACK};
  if (pthread_setspecific(stack_key, stack) == 0)
    sigaltstack(&other, NULL);
  else
    munmap(stack, STACK);
}

void bsrun_died_install(const char *verb) {
  struct sigaction action, before;
  self.pid = getpid();
  self.follows = bsrun_rank_launched() && bsrun_rank_follows();
  snprintf(self.verb, sizeof self.verb, "bsrun %.50s", verb);
  on_exit(on_exit_called, NULL);
#if !DIED_SANITIZED
  find_ends();
#endif
  if (bsrun_rank_found()) return; /* the launcher sees the signal itself */
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  if (pthread_key_create(&stack_key, take_stack) == 0) {
    give_stack();
    bs_log_on_rank_thread(give_stack);
  }
  for (size_t i = 0; i < N_DEATHS; i++)
    if (sigaction(deaths[i].number, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
      sigaction(deaths[i].number, &action, NULL);
}

void bsrun_died_watch(const char *what) {
  snprintf(self.what, sizeof self.what, "%s", what != NULL ? what : "");
}

int bsrun_end(int code) {
  self.code = code;
  self.ended = 1;
  return code;
}

void bsrun_leave(int code) {
  bsrun_end(code);
  _exit(code);
}
