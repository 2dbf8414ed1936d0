/* SPDX-License-Identifier: MIT
 * meet.h - the parts of a wait in every communicator: a published position with its futex word, the busy
 * rounds, the sleep after them, and the key that distinguishes calls. The path of a small call with all ranks
 * on time is inline; the rest is in meet.c. Used by threads, shm and mpi. */
#ifndef BS_COMM_MEET_H
#define BS_COMM_MEET_H
#include <stdatomic.h>
#include <time.h>

#include "blockshock/comm.h"

#define COMM_SPIN_ROUND 64u /* checks between two looks at the clock */
#define COMM_YIELDS 16u     /* yields before sleeping */

/* A flag is for the threads of one process, or for processes. */
enum { COMM_THREADS = 0, COMM_PROCESSES = 1 };

/* A published position. `bell` is the futex word: it moves when `pos` changed and a thread sleeps, or on
 * abort. */
typedef struct comm_flag {
  _Atomic uint32_t pos;
  _Atomic uint32_t waiters;
  _Atomic uint32_t bell;
} comm_flag;

static inline uint64_t comm_min(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static inline int64_t comm_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void comm_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* The fingerprint mixed with kind, rows and count. */
static inline uint64_t comm_key(const bs_coll_call *call) {
  uint64_t kind = call->kind == BS_COLL_RECV ? BS_COLL_SEND : call->kind;
  uint64_t mixed = call->fingerprint + (kind + 1u) * UINT64_C(0x9e3779b97f4a7c15);
  mixed ^= call->rows * UINT64_C(0xc2b2ae3d27d4eb4f);
  mixed += call->count * UINT64_C(0x165667b19e3779f9);
  return mixed ^ (mixed >> 29);
}

/* The key of an exchanged message includes its dtype. */
static inline uint64_t comm_message_key(const bs_coll_call *call) {
  return comm_key(call) + call->dtype_in * UINT64_C(0x27d4eb2f165667c5);
}

static inline int64_t comm_timeout(const bs_coll_call *call) {
  return call->timeout_ns > 0 ? call->timeout_ns : INT64_C(60000000000);
}

/* Wakes the threads that sleep on the flag. */
void comm_ring(comm_flag *flag, int sleepers);
/* Sleeps until the word is not `seen`, for at most ns; it may return earlier. */
void comm_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t ns, int sleepers);

static inline void comm_ring_waiters(comm_flag *flag, int sleepers) {
  if (atomic_load(&flag->waiters) != 0) comm_ring(flag, sleepers);
}

static inline void comm_publish(comm_flag *flag, uint32_t pos, int sleepers) {
  atomic_store(&flag->pos, pos); /* sequentially consistent: ordered before the look at waiters */
  comm_ring_waiters(flag, sleepers);
}

static inline int comm_reached(comm_flag *flag, uint32_t want) {
  return (int32_t)(atomic_load_explicit(&flag->pos, memory_order_acquire) - want) >= 0;
}

/* One busy round. 1: the position is reached. */
static inline int comm_spin_round(comm_flag *flag, uint32_t want) {
  for (uint32_t i = 0; i < COMM_SPIN_ROUND; ++i) {
    if (comm_reached(flag, want)) return 1;
    comm_relax();
  }
  return 0;
}

/* Spins until `end`, or until `failed` (NULL: none) is set; then yields so many times. 1: reached. */
int comm_spin(comm_flag *flag, uint32_t want, int64_t end, uint32_t yields, const _Atomic uint32_t *failed);

/* A sleep ends when the position is reached, or for one of these reasons. */
typedef struct comm_sleeper {
  const _Atomic uint32_t *failed; /* the world's; NULL: an abort does not end it */
  int64_t deadline;
  int sleepers;
  /* Do the others still live? BS_OK, or why the wait ends. It may shorten *ns, the sleep that follows. NULL:
   * no check is made. */
  int32_t (*look)(void *of, int64_t *ns);
  void *of;
} comm_sleeper;

/* BS_OK: reached; BS_ABORTED: failed; BS_DEADLINE; or the result of `look`. */
int32_t comm_wait_asleep(comm_flag *flag, uint32_t want, const comm_sleeper *sleeper);
#endif
