/* SPDX-License-Identifier: MIT
 * exit.c - group hygiene: a plugin leaves no code that runs when the process ends. A child uses and closes
 * it, makes its code untouchable and exits: what it registered with atexit since it was opened faults there,
 * and is named. What the loader and static objects of C++ registered when the file was opened is fine. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/kit.h"

enum { MAX_CODE = 8, FOUND = 7 };

static struct {
  uintptr_t inside; /* an address of the plugin */
  uintptr_t base;
  struct {
    uintptr_t at;
    size_t bytes;
  } code[MAX_CODE];
  int n;
} the;

static int find_code(struct dl_phdr_info *info, size_t size, void *opaque) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  int mine = 0;
  (void)size, (void)opaque;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    mine |= info->dlpi_phdr[i].p_type == PT_LOAD && the.inside >= begin &&
            the.inside < begin + info->dlpi_phdr[i].p_memsz;
  }
  for (int i = 0; mine && i < info->dlpi_phnum && the.n < MAX_CODE; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    const uintptr_t begin = (info->dlpi_addr + h->p_vaddr) / page * page;
    if (h->p_type != PT_LOAD || (h->p_flags & PF_X) == 0) continue;
    the.base = info->dlpi_addr;
    the.code[the.n].at = begin;
    the.code[the.n++].bytes = (size_t)(info->dlpi_addr + h->p_vaddr + h->p_memsz - begin);
  }
  return mine;
}

/* The instruction that could not be fetched is the first of the handler. */
static void on_fault(int number, siginfo_t *info, void *context) {
  const uintptr_t at = (uintptr_t)info->si_addr;
  (void)number, (void)context;
  for (int i = 0; i < the.n; i++)
    if (at >= the.code[i].at && at < the.code[i].at + the.code[i].bytes) {
      *(uintptr_t *)(void *)kit.notes[kit.current].text = at - the.base;
      _exit(FOUND);
    }
  _exit(1);
}

/* Handlers run in reverse: all that were registered later have run now. The inherited ones do not. */
static void last(void) {
  _exit(0);
}

static void leave(void) {
  static kit_plugin p;
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  bs_error err = BS_ERROR_INIT;
  if (kit_plugin_load(&p, kit.options, &err) != BS_OK || atexit(last) != 0) _exit(1);
  if (kit_plugin_activate(&p, &err) != BS_OK) _exit(1);
  kit_exercise(&p);
  kit_plugin_deactivate(&p);
  the.inside = (uintptr_t)p.desc;
  dl_iterate_phdr(find_code, NULL);
  sigaction(SIGSEGV, &action, NULL);
  for (int i = 0; i < the.n; i++)
    if (mprotect((void *)the.code[i].at, the.code[i].bytes, PROT_NONE) != 0) _exit(1);
  exit(0);
}

void kit_clean_exit(const kit_case *c) {
  struct kit_note *note = &kit.notes[kit.current];
  int status = 0;
  (void)c;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) leave();
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  uintptr_t at;
  memcpy(&at, note->text, sizeof at);
  memset(note->text, 0, sizeof note->text);
  kit_assert(pid > 0 && WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FOUND),
             "a process that used it and closed it does not come to its end");
  if (WEXITSTATUS(status) == 0) return;
  kit_fail("leaves a handler of exit behind, at 0x%llx of the file: it would run when the plugin is closed",
           (unsigned long long)at);
}
