/* SPDX-License-Identifier: MIT
 * wait.h - how threads of a rank wait for a word that another moves: spinning for a bounded while, then
 * asleep on it as a futex of this process. Used by the team (team.c), by the threads of ranks
 * between runs (park.c) and by started collectives (coll_start.c). */
#ifndef BS_CORE_WORLD_WAIT_H
#define BS_CORE_WORLD_WAIT_H
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BS_SPIN_ROUND 64

static inline int64_t bs_wait_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void bs_wait_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Looks that often whether *word differs from value; 1 when it does. */
static inline int bs_wait_look(_Atomic uint32_t *word, uint32_t value, uint32_t looks) {
  for (uint32_t i = 0; i < looks; ++i) {
    if (atomic_load_explicit(word, memory_order_acquire) != value) return 1;
    bs_wait_relax();
  }
  return 0;
}

/* Spin until *word differs from value; 1 when it does, 0 when the time is over. */
static inline int bs_wait_spin(_Atomic uint32_t *word, uint32_t value, int64_t spin_ns) {
  int64_t end = 0;
  for (;;) {
    if (bs_wait_look(word, value, BS_SPIN_ROUND)) return 1;
    if (spin_ns == 0) return 0;
    const int64_t now = bs_wait_now_ns();
    if (end == 0) end = now + spin_ns;
    if (now >= end) return 0;
  }
}

/* Asleep while *word is value; may return early. Who moves the word looks afterwards whether anybody sleeps.
 */
static inline void bs_wait_sleep(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void bs_wait_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
#endif
