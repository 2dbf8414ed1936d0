/* SPDX-License-Identifier: MIT
 * coroutine.c - see coroutine.h. The sanitizers are told of each switch: they keep books on every stack. */
#include "tests/kit/coroutine.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#if defined(KIT_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(KIT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#define PAINT UINT64_C(0x5ca1ab1e5ca1ab1e)
#define RAW __attribute__((noinline, no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

struct kit_coroutine {
  ucontext_t inside, outside;
  void (*body)(void *arg);
  void *arg;
  unsigned char *map; /* guard page, then the stack */
  size_t guard;
  int ended;
  uint64_t *low;               /* of the stack */
  const unsigned char *marked; /* the frame of the last kit_stack_paint */
#if defined(KIT_ASAN)
  void *own_fake, *outer_fake;
  const void *outer_stack;
  size_t outer_bytes;
#elif defined(KIT_TSAN)
  void *own_fiber, *outer_fiber;
#endif
};

static kit_coroutine *running; /* coroutines run on one thread of the check's process */

static void leave(kit_coroutine *c) {
#if defined(KIT_ASAN)
  __sanitizer_start_switch_fiber(c->ended ? NULL : &c->own_fake, c->outer_stack, c->outer_bytes);
#elif defined(KIT_TSAN)
  __tsan_switch_to_fiber(c->outer_fiber, 0);
#endif
  swapcontext(&c->inside, &c->outside);
#if defined(KIT_ASAN)
  __sanitizer_finish_switch_fiber(c->own_fake, &c->outer_stack, &c->outer_bytes);
#endif
}

static void begin(void) {
  kit_coroutine *c = running;
#if defined(KIT_ASAN)
  __sanitizer_finish_switch_fiber(NULL, &c->outer_stack, &c->outer_bytes);
#endif
  c->body(c->arg);
  c->ended = 1;
  leave(c);
}

static void make_context(kit_coroutine *c) {
  getcontext(&c->inside);
  c->inside.uc_stack.ss_sp = c->low;
  c->inside.uc_stack.ss_size = KIT_STACK_BYTES;
  c->inside.uc_link = NULL;
  makecontext(&c->inside, begin, 0);
}

kit_coroutine *kit_coroutine_new(void (*body)(void *arg), void *arg) {
  kit_coroutine *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->guard = (size_t)sysconf(_SC_PAGESIZE);
  c->body = body;
  c->arg = arg;
  c->map = mmap(NULL, c->guard + KIT_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (c->map == MAP_FAILED || mprotect(c->map, c->guard, PROT_NONE) != 0) {
    if (c->map != MAP_FAILED) munmap(c->map, c->guard + KIT_STACK_BYTES);
    free(c);
    return NULL;
  }
  c->low = (uint64_t *)(void *)(c->map + c->guard);
  make_context(c);
#if defined(KIT_TSAN)
  c->own_fiber = __tsan_create_fiber(0);
#endif
  return c;
}

void kit_coroutine_free(kit_coroutine *c) {
  if (c == NULL) return;
#if defined(KIT_TSAN)
  __tsan_destroy_fiber(c->own_fiber);
#endif
  munmap(c->map, c->guard + KIT_STACK_BYTES);
  free(c);
}

int kit_coroutine_resume(kit_coroutine *c) {
  kit_coroutine *before = running;
  running = c;
#if defined(KIT_ASAN)
  __sanitizer_start_switch_fiber(&c->outer_fake, c->low, KIT_STACK_BYTES);
#elif defined(KIT_TSAN)
  c->outer_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(c->own_fiber, 0);
#endif
  swapcontext(&c->outside, &c->inside);
#if defined(KIT_ASAN)
  __sanitizer_finish_switch_fiber(c->outer_fake, NULL, NULL);
#endif
  running = before;
  return c->ended;
}

void kit_coroutine_yield(kit_coroutine *c) {
  leave(c);
}

/* No call is made while the stack below is painted: there is nothing there. */
RAW void kit_stack_paint(void) {
  kit_coroutine *c = running;
  if (c == NULL) return;
  c->marked = __builtin_frame_address(0);
  volatile uint64_t *end = (volatile uint64_t *)(uintptr_t)(((uintptr_t)c->marked - 512) & ~(uintptr_t)7);
  for (volatile uint64_t *p = c->low; p < end; p++) *p = PAINT;
}

RAW size_t kit_stack_used(void) {
  const kit_coroutine *c = running;
  if (c == NULL || c->marked == NULL) return 0;
  const volatile uint64_t *p = c->low;
  while ((uintptr_t)p < (uintptr_t)c->marked && *p == PAINT) p++;
  return (size_t)((uintptr_t)c->marked - (uintptr_t)p);
}
