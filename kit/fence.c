/* SPDX-License-Identifier: MIT
 * fence.c - memory between pages that may not be touched: of tensors (tensor.c), and of exec where the
 * backend's memory is the host's (actor.c). A block's first or last byte is at such a page, by turns. Who
 * touches one has read or written outside of an argument: the check fails with one line that names it. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "kit/graph.h"

enum { MOST = 4096, FENCE = 64 << 10, SPARE = 256 /* bytes that a block may grow by when it moves */ };

typedef struct fence {
  unsigned char *map; /* FENCE bytes, room, FENCE bytes */
  uint64_t room;
  unsigned char *data; /* the block */
  uint64_t bytes;
} fence;

static fence fences[MOST];
static uint32_t n_fences; /* used so far: places of blocks that were freed are used again */
static uint32_t turns;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const kit_data *running;
static int telling;      /* a thread of the team has touched such a page, and fails the check */
static pthread_t teller; /* that one */

int kit_fence_turn(void) {
  return (int)(__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED) * 2654435761u >> 16 & 1u);
}

/* The index of a block; of NULL a free one. MOST: not found. */
static uint32_t find(const unsigned char *data) {
  uint32_t i = 0;
  while (i < n_fences && fences[i].data != data) i++;
  if (i == n_fences && data == NULL && n_fences < MOST) n_fences++;
  return i < n_fences ? i : MOST;
}

void *kit_fence_alloc(uint64_t bytes, int at_end) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), room = (bytes + SPARE + page) / page * page;
  if (bytes > PTRDIFF_MAX / 2) return NULL;
  unsigned char *map =
      mmap(NULL, room + 2u * FENCE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return NULL;
  if (mprotect(map + FENCE, room, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, room + 2u * FENCE);
    return NULL;
  }
  pthread_mutex_lock(&lock);
  const uint32_t i = find(NULL);
  unsigned char *data = map + FENCE + (at_end ? room - bytes : 0);
  if (i < MOST) fences[i] = (fence){map, room, data, bytes};
  pthread_mutex_unlock(&lock);
  kit_assert(i < MOST, "the kit holds %d blocks of memory at once", MOST);
  return data;
}

void *kit_fence_move(void *data, uint64_t bytes, int at_end) {
  pthread_mutex_lock(&lock);
  fence *f = &fences[find(data)];
  f->bytes = bytes;
  f->data = f->map + FENCE + (at_end ? f->room - bytes : 0);
  data = f->data;
  pthread_mutex_unlock(&lock);
  return data;
}

int kit_fence_free(void *data) {
  fence f = {0};
  if (data == NULL) return 1;
  pthread_mutex_lock(&lock);
  const uint32_t i = find(data);
  if (i < MOST) {
    f = fences[i];
    fences[i] = (fence){0};
  }
  pthread_mutex_unlock(&lock);
  if (f.map != NULL) munmap(f.map, f.room + 2u * FENCE);
  return f.map != NULL;
}

void kit_fence_run(const kit_data *d) {
  running = d;
}

/* The argument of the running op that begins or ends at this fence. -1: none. */
static int argument_of(const fence *f) {
  for (uint32_t i = 0; running != NULL && i < running->nargs; i++)
    if (running->a[i].block == f->data) return (int)i;
  return -1;
}

static void tell(const fence *f, const unsigned char *at, int write) {
  const int arg = argument_of(f);
  const unsigned char *data = f->data;
  uint64_t bytes = f->bytes;
  char what[64] = "memory that the kit gave";
  if (arg >= 0) {
    data = running->a[arg].block + running->a[arg].lead;
    bytes = running->a[arg].t.bytes;
    snprintf(what, sizeof what, "argument %d", arg);
  }
  kit_fail("%s: %s outside of %s%s, at byte %lld from its start: it has %llu",
           running != NULL ? kit_data_text(running) : "an op", write ? "writes" : "reads",
           arg >= 0 && write ? "its output, " : "", what, (long long)(at - data), (unsigned long long)bytes);
}

static void on_fault(int number, siginfo_t *info, void *context) {
  const unsigned char *at = info->si_addr;
  int write = 0;
#ifdef __x86_64__
  write = (int)(((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] >> 1 & 1);
#endif
  (void)context;
  for (uint32_t i = 0; i < n_fences; i++)
    if (fences[i].map != NULL && at >= fences[i].map && at < fences[i].map + fences[i].room + 2u * FENCE) {
      if (__atomic_exchange_n(&telling, 1, __ATOMIC_ACQ_REL) == 0) {
        teller = pthread_self();
        tell(&fences[i], at, write);
      }
      while (!pthread_equal(teller, pthread_self())) pause(); /* the first one's line is what is told */
    }
  signal(number, SIG_DFL); /* a fault of another kind: it happens again, and ends the process */
}

void kit_fence_watch(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
}
