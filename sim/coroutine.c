/* SPDX-License-Identifier: MIT
 * coroutine.c - see coroutine.h. The word at the low end of a stack must stay 0, as the system gave it: a
 * read of it takes no memory, a canary of another value would take a page a rank. */
#include "sim/coroutine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/switch.h"
#if defined(SIM_UCONTEXT)
#include <ucontext.h>
#endif
#if defined(SIM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(SIM_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#define PAINT UINT64_C(0x5ca1ab1e5ca1ab1e)
#define RAW __attribute__((noinline, no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

enum { GUARDED = 1024, NEW = 0, BEGUN = 1, ENDED = 2 };
#define OUTSIDE UINT32_MAX

typedef struct coroutine {
#if defined(SIM_UCONTEXT)
  ucontext_t context;
#else
  void *sp;
#endif
#if defined(SIM_ASAN)
  void *fake;
#elif defined(SIM_TSAN)
  void *fiber;
#endif
  uint32_t state;
  const unsigned char *marked; /* the frame of the last sim_stack_paint: the pattern fills the stack's end */
} coroutine;

struct sim_coroutines {
  uint32_t n, running;
  size_t page, stride, guard; /* a stack with its guard page, and that page */
  unsigned char *arena;
  coroutine *one;
  void (*body)(void *arg, uint32_t i);
  void *arg;
  void (*on_main)(void *arg); /* asked for by the one that gave way */
  void *on_main_arg;
#if defined(SIM_UCONTEXT)
  ucontext_t outside;
#else
  void *outside;
#endif
#if defined(SIM_ASAN)
  void *outer_fake;
  const void *outer_stack;
  size_t outer_bytes;
#elif defined(SIM_TSAN)
  void *outer_fiber;
#endif
};

static unsigned char *low_of(const sim_coroutines *c, uint32_t i) {
  return c->arena + (size_t)i * c->stride + c->guard;
}

/* Tops lie in different sets of the caches: with stacks of a power of two all would fall into one. */
static size_t bytes_of(const sim_coroutines *c, uint32_t i) {
  return c->stride - c->guard - (size_t)(i & 15) * 128;
}

#if defined(SIM_UCONTEXT)
typedef ucontext_t context;
#define CONTEXT(co) (&(co)->context)
#define OUTSIDE_OF(c) (&(c)->outside)
static void jump(context *from, context *to) {
  swapcontext(from, to);
}
#else
typedef void *context;
#define CONTEXT(co) (&(co)->sp)
#define OUTSIDE_OF(c) (&(c)->outside)
static void jump(context *from, context *to) {
  sim_switch(from, *to);
}
#endif

/* From inside to outside; returns when the coroutine is resumed. */
static void leave(sim_coroutines *c) {
  coroutine *me = &c->one[c->running];
#if defined(SIM_ASAN)
  __sanitizer_start_switch_fiber(me->state == ENDED ? NULL : &me->fake, c->outer_stack, c->outer_bytes);
#elif defined(SIM_TSAN)
  __tsan_switch_to_fiber(c->outer_fiber, 0);
#endif
  jump(CONTEXT(me), OUTSIDE_OF(c));
#if defined(SIM_ASAN)
  __sanitizer_finish_switch_fiber(me->fake, &c->outer_stack, &c->outer_bytes);
#endif
}

static void enter(void *opaque) {
  sim_coroutines *c = opaque;
#if defined(SIM_ASAN)
  __sanitizer_finish_switch_fiber(NULL, &c->outer_stack, &c->outer_bytes);
#endif
  c->body(c->arg, c->running);
  c->one[c->running].state = ENDED;
  leave(c);
}

#if defined(SIM_UCONTEXT)
/* makecontext passes ints. */
static void enter_halves(unsigned high, unsigned low) {
  enter((void *)(uintptr_t)((uint64_t)high << 32 | low)); /* NOLINT(performance-no-int-to-ptr) */
}

static void begin(sim_coroutines *c, uint32_t i) {
  ucontext_t *u = &c->one[i].context;
  const uint64_t self = (uint64_t)(uintptr_t)c;
  getcontext(u);
  u->uc_stack.ss_sp = low_of(c, i);
  u->uc_stack.ss_size = bytes_of(c, i);
  u->uc_link = NULL;
  makecontext(u, (void (*)(void))enter_halves, 2, (unsigned)(self >> 32), (unsigned)self);
#if defined(SIM_TSAN)
  c->one[i].fiber = __tsan_create_fiber(0);
#endif
}
#else
static void begin(sim_coroutines *c, uint32_t i) {
  c->one[i].sp = sim_switch_first(low_of(c, i) + bytes_of(c, i), enter, c);
}
#endif

sim_coroutines *sim_coroutines_new(uint32_t n, size_t stack_bytes, void (*body)(void *arg, uint32_t i),
                                   void *arg) {
  sim_coroutines *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  if (stack_bytes == 0) stack_bytes = SIM_STACK_BYTES;
  c->n = n;
  c->running = OUTSIDE;
  c->body = body;
  c->arg = arg;
  c->page = (size_t)sysconf(_SC_PAGESIZE);
  c->guard = n <= GUARDED ? c->page : 0;
  c->stride = c->guard + (stack_bytes + c->page - 1) / c->page * c->page;
  c->one = calloc(n > 0 ? n : 1, sizeof *c->one);
  c->arena = c->one == NULL || c->stride > (SIZE_MAX >> 1) / (n + (size_t)1)
                 ? MAP_FAILED
                 : mmap(NULL, c->stride * (n + (size_t)1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (c->arena == MAP_FAILED) {
    free(c->one);
    free(c);
    return NULL;
  }
  /* A huge page would take the memory of 32 stacks at the first touch of one. */
  (void)madvise(c->arena, c->stride * (n + (size_t)1), MADV_NOHUGEPAGE);
  for (uint32_t i = 0; i < n && c->guard > 0; i++)
    if (mprotect(c->arena + (size_t)i * c->stride, c->guard, PROT_NONE) != 0) {
      sim_coroutines_free(c);
      return NULL;
    }
  return c;
}

void sim_coroutines_free(sim_coroutines *c) {
  if (c == NULL) return;
#if defined(SIM_TSAN)
  for (uint32_t i = 0; i < c->n; i++)
    if (c->one[i].fiber != NULL) __tsan_destroy_fiber(c->one[i].fiber);
#endif
#if defined(SIM_ASAN) /* dropped coroutines leave poisoned memory */
  __asan_unpoison_memory_region(c->arena, c->stride * (c->n + (size_t)1));
#endif
  munmap(c->arena, c->stride * (c->n + (size_t)1));
  free(c->one);
  free(c);
}

/* From outside into coroutine i, until it leaves. */
static void go(sim_coroutines *c, uint32_t i) {
  coroutine *to = &c->one[i];
  c->running = i;
#if defined(SIM_ASAN)
  __sanitizer_start_switch_fiber(&c->outer_fake, low_of(c, i), bytes_of(c, i));
#elif defined(SIM_TSAN)
  c->outer_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->fiber, 0);
#endif
  jump(OUTSIDE_OF(c), CONTEXT(to));
#if defined(SIM_ASAN)
  __sanitizer_finish_switch_fiber(c->outer_fake, NULL, NULL);
#endif
  c->running = OUTSIDE;
}

RAW static int overflowed(const sim_coroutines *c, uint32_t i) {
  const volatile uint64_t *low = (const volatile uint64_t *)(const void *)low_of(c, i);
  return *low != (c->one[i].marked != NULL ? PAINT : 0);
}

int sim_coroutine_resume(sim_coroutines *c, uint32_t i) {
  coroutine *co = &c->one[i];
  if (co->state == ENDED) return SIM_CO_ENDED;
  if (co->state == NEW) {
    begin(c, i);
    co->state = BEGUN;
  }
  for (;;) {
    go(c, i);
    if (overflowed(c, i)) return SIM_CO_OVERFLOW;
    if (c->on_main == NULL) break;
    void (*fn)(void *) = c->on_main;
    c->on_main = NULL;
    fn(c->on_main_arg);
  }
  return co->state == ENDED ? SIM_CO_ENDED : SIM_CO_BLOCKED;
}

void sim_coroutine_yield(sim_coroutines *c) {
  leave(c);
}

void sim_on_main(sim_coroutines *c, void (*fn)(void *arg), void *arg) {
  if (c == NULL || c->running == OUTSIDE) {
    fn(arg);
    return;
  }
  c->on_main = fn;
  c->on_main_arg = arg;
  leave(c);
}

uint32_t sim_coroutine_running(const sim_coroutines *c) {
  return c->running;
}

void sim_coroutine_trim(sim_coroutines *c, uint32_t i) {
#if defined(SIM_UCONTEXT)
  (void)c;
  (void)i;
#else
  const coroutine *co = &c->one[i];
  if (co->state != BEGUN || i == c->running || co->marked != NULL) return;
  unsigned char *low = low_of(c, i);
  const size_t unused = (size_t)((unsigned char *)co->sp - low);
  /* The red zone of 128 bytes below the stack pointer holds nothing while the coroutine sleeps. */
  if (unused >= c->page) (void)madvise(low, unused / c->page * c->page, MADV_DONTNEED);
#endif
}

/* No call is made while the stack below is painted: there is nothing there. */
RAW void sim_stack_paint(sim_coroutines *c) {
  if (c->running == OUTSIDE) return;
  coroutine *me = &c->one[c->running];
  me->marked = __builtin_frame_address(0);
  volatile uint64_t *end = (volatile uint64_t *)(uintptr_t)(((uintptr_t)me->marked - 512) & ~(uintptr_t)7);
  for (volatile uint64_t *p = (volatile uint64_t *)(void *)low_of(c, c->running); p < end; p++) *p = PAINT;
}

RAW size_t sim_stack_used(const sim_coroutines *c) {
  if (c->running == OUTSIDE) return 0;
  const uintptr_t marked = (uintptr_t)c->one[c->running].marked;
  const volatile uint64_t *p = (const volatile uint64_t *)(const void *)low_of(c, c->running);
  while ((uintptr_t)p < marked && *p == PAINT) p++;
  return marked > (uintptr_t)p ? (size_t)(marked - (uintptr_t)p) : 0;
}
