/* SPDX-License-Identifier: MIT
 *
 * meet.c - see meet.h: the part of a wait in which somebody is late.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "meet.h"

#define SLEEP_SLICE_NS 500000000 /* a sleep is never longer: costs nothing, bounds surprises */

static int private_flag(int sleepers) {
  return sleepers == COMM_THREADS ? FUTEX_PRIVATE_FLAG : 0;
}

void comm_ring(comm_flag *flag, int sleepers) {
  atomic_fetch_add(&flag->bell, 1u);
  syscall(SYS_futex, (uint32_t *)(void *)&flag->bell, FUTEX_WAKE | private_flag(sleepers), INT_MAX, NULL,
          NULL, 0);
}

void comm_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t ns, int sleepers) {
  if (ns > SLEEP_SLICE_NS) ns = SLEEP_SLICE_NS;
  const struct timespec t = {0, (long)ns};
  syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAIT | private_flag(sleepers), seen, &t, NULL, 0);
}

int comm_spin(comm_flag *flag, uint32_t want, int64_t end, uint32_t yields, const _Atomic uint32_t *failed) {
  while (comm_now_ns() < end) {
    if (comm_spin_round(flag, want)) return 1;
    if (failed != NULL && atomic_load_explicit(failed, memory_order_relaxed) != 0) break;
  }
  for (uint32_t i = 0; i < yields; ++i) {
    if (comm_reached(flag, want)) return 1;
    sched_yield();
  }
  return 0;
}

int32_t comm_wait_asleep(comm_flag *flag, uint32_t want, const comm_sleeper *s) {
  int32_t rc = BS_OK;
  atomic_fetch_add(&flag->waiters, 1u);
  for (;;) {
    /* The bell is read first: what happens after it makes the sleep return immediately. */
    const uint32_t bell = atomic_load(&flag->bell);
    const int failed = s->failed != NULL && atomic_load(s->failed) != 0;
    if (comm_reached(flag, want)) break; /* after `failed`: who has arrived is seen */
    if (failed) {
      rc = BS_ABORTED;
      break;
    }
    int64_t ns = SLEEP_SLICE_NS;
    if (s->look != NULL) rc = s->look(s->of, &ns);
    if (rc != BS_OK) {
      if (comm_reached(flag, want)) rc = BS_OK; /* it came before it died */
      break;
    }
    const int64_t left = s->deadline - comm_now_ns();
    if (left <= 0) {
      rc = BS_DEADLINE;
      break;
    }
    comm_sleep(&flag->bell, bell, left < ns ? left : ns, s->sleepers);
  }
  atomic_fetch_sub(&flag->waiters, 1u);
  return rc;
}
