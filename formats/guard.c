/* SPDX-License-Identifier: MIT
 * guard.c - reading a mapped file that is cut short meanwhile (bs_map_guard of map.h). The pages after the
 * new end are gone, and touching one is SIGBUS. A handler that is installed with the first guarded map puts
 * zero pages there and marks the map, so that its reader goes on and bs_map_unchanged then fails. Faults at
 * other places go to the handler that was there before. Called by map.c. */
#include "formats/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 4096 };

/* A slot is free while claimed is 0. The handler reads begin and end, and may run at any time. */
static struct {
  atomic_uint claimed, lost;
  atomic_uintptr_t begin, end;
  atomic_int fd;
} slots[SLOTS];
static struct sigaction before;
static uintptr_t page = 4096;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int mend(uintptr_t at) {
  for (int i = 0; i < SLOTS; i++) {
    uintptr_t begin = atomic_load(&slots[i].begin), end = atomic_load(&slots[i].end);
    if (at < begin || at >= end) continue;
    uintptr_t first = at & ~(page - 1);
    void *zeros = mmap((void *)first, end - first, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) return 0;
    atomic_store(&slots[i].lost, 1);
    return 1;
  }
  return 0;
}

static void on_fault(int number, siginfo_t *info, void *context) {
  if (info->si_code == BUS_ADRERR && mend((uintptr_t)info->si_addr)) return;
  if (before.sa_flags & SA_SIGINFO)
    before.sa_sigaction(number, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    before.sa_handler(number);
  else
    sigaction(SIGBUS, &before, NULL); /* the fault comes again, and ends the process */
}

static void install(void) {
  struct sigaction action = {0};
  long size = sysconf(_SC_PAGESIZE);
  if (size > 0) page = (uintptr_t)size;
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

uint32_t bs_guard_add(const void *data, uint64_t bytes, int fd) {
  pthread_once(&once, install);
  for (uint32_t i = 0; i < SLOTS; i++) {
    unsigned unclaimed = 0;
    if (!atomic_compare_exchange_strong(&slots[i].claimed, &unclaimed, 1)) continue;
    atomic_store(&slots[i].lost, 0);
    atomic_store(&slots[i].fd, fd);
    atomic_store(&slots[i].end, (uintptr_t)data + (uintptr_t)bytes);
    atomic_store(&slots[i].begin, (uintptr_t)data);
    return i + 1;
  }
  return 0;
}

int bs_guard_file(const void *data, uint64_t bytes, uint64_t *out_at) {
  const uintptr_t first = (uintptr_t)data;
  for (uint32_t i = 0; i < SLOTS; i++) {
    const uintptr_t begin = atomic_load(&slots[i].begin), end = atomic_load(&slots[i].end);
    if (first < begin || first >= end || bytes > end - first) continue;
    *out_at = first - begin;
    return atomic_load(&slots[i].fd);
  }
  return -1;
}

int bs_guard_lost(uint32_t guard) {
  return guard != 0 && atomic_load(&slots[guard - 1].lost) != 0;
}

void bs_guard_remove(uint32_t guard) {
  if (guard == 0) return;
  atomic_store(&slots[guard - 1].end, 0);
  atomic_store(&slots[guard - 1].begin, 0);
  atomic_store(&slots[guard - 1].claimed, 0);
}
