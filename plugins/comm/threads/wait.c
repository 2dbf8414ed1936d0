/* SPDX-License-Identifier: MIT
 *
 * wait.c - how ranks meet: publish a position, spin for a while, then sleep on a futex until a deadline;
 * compare the keys of all ranks; say who is missing or different. Called by every collective.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "threads.h"

#define SPIN_ROUND 64u                   /* checks between two looks at the clock */
#define COPY_NS 20000                    /* wait of any caller for peers that only copy, before it sleeps */
#define YIELDS 16u                       /* turns given away before sleeping */
#define SLEEP_SLICE_NS 500000000         /* a sleep is never longer: costs nothing, bounds surprises */
#define PART_TIMEOUT_NS 10000000000      /* least deadline of a second meeting: peers only copy */
#define DEFAULT_TIMEOUT_NS (60000000000) /* a call without a deadline of its own */

int64_t thr_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

uint64_t thr_key(const bs_coll_call *call) {
  uint64_t kind = call->kind == BS_COLL_RECV ? BS_COLL_SEND : call->kind;
  uint64_t mixed = call->fingerprint + (kind + 1u) * UINT64_C(0x9e3779b97f4a7c15);
  mixed ^= call->rows * UINT64_C(0xc2b2ae3d27d4eb4f);
  mixed += call->count * UINT64_C(0x165667b19e3779f9);
  return mixed ^ (mixed >> 29);
}

void thr_ring(thr_flag *flag) {
  atomic_fetch_add(&flag->bell, 1u);
  syscall(SYS_futex, (uint32_t *)(void *)&flag->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void thr_inbox_ring(thr_inbox *inbox) {
  if (atomic_load(&inbox->waiters) == 0) return;
  atomic_fetch_add(&inbox->bell, 1u);
  syscall(SYS_futex, (uint32_t *)(void *)&inbox->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void thr_publish(thr_flag *flag, uint32_t pos) {
  atomic_store(&flag->pos, pos); /* sequentially consistent: ordered before the look at waiters */
  if (atomic_load(&flag->waiters) != 0) thr_ring(flag);
}

static inline int reached(thr_flag *flag, uint32_t want) {
  return (int32_t)(atomic_load_explicit(&flag->pos, memory_order_acquire) - want) >= 0;
}

/* At most a slice: the caller looks again. */
void thr_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t ns) {
  if (ns > SLEEP_SLICE_NS) ns = SLEEP_SLICE_NS;
  struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAIT_PRIVATE, seen, &t, NULL, 0);
}

static int32_t wait_asleep(const thr_world *world, thr_flag *flag, uint32_t want, thr_timer *timer) {
  int32_t rc = BS_OK;
  atomic_fetch_add(&flag->waiters, 1u);
  for (;;) {
    /* The bell is read first: whatever happens after it makes the sleep return at once. */
    uint32_t bell = atomic_load(&flag->bell);
    int failed = !timer->keep && atomic_load(&world->failed) != 0;
    if (reached(flag, want)) break; /* after `failed`: who has arrived is seen (threads.h) */
    if (failed) {
      rc = BS_ABORTED;
      break;
    }
    int64_t left = timer->deadline - thr_now_ns();
    if (left <= 0) {
      rc = BS_DEADLINE;
      break;
    }
    thr_sleep(&flag->bell, bell, left);
  }
  atomic_fetch_sub(&flag->waiters, 1u);
  return rc;
}

int32_t thr_wait(thr_comm *comm, thr_flag *flag, uint32_t want, thr_timer *timer) {
  const thr_world *world = comm->world;
  for (uint32_t i = 0; i < SPIN_ROUND; ++i) {
    if (reached(flag, want)) return BS_OK;
    cpu_relax();
  }
  int64_t start = thr_now_ns();
  if (timer->deadline == 0) timer->deadline = start + timer->timeout_ns;
  const int patient = comm_caller_may_spin(&comm->caller);
  int64_t spin_end = start + (patient ? world->spin_ns : timer->keep ? COPY_NS : 0);
  while (thr_now_ns() < spin_end) {
    for (uint32_t i = 0; i < SPIN_ROUND; ++i) {
      if (reached(flag, want)) return BS_OK;
      cpu_relax();
    }
    if (!timer->keep && atomic_load_explicit(&world->failed, memory_order_relaxed) != 0) break;
  }
  for (uint32_t i = 0; patient && i < YIELDS; ++i) {
    if (reached(flag, want)) return BS_OK;
    sched_yield();
  }
  return wait_asleep(world, flag, want, timer);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* A peer may say "stopped" an instant before it has filled the record of the failure. */
static void await_record(const thr_world *world) {
  while (atomic_load(&world->failed) == 0) sched_yield();
}

int32_t thr_fail_aborted(const thr_comm *comm, const char *text, bs_error *err) {
  const thr_world *world = comm->world;
  await_record(world);
  bs_fail(err, BS_ABORTED, "BS-COLL-ABORTED", "stopped at %s: rank %u failed: %s", text, world->fail_rank,
          world->fail_text);
  if (err != NULL) snprintf(err->where, sizeof err->where, "%s", text);
  return BS_ABORTED;
}

int32_t thr_fail_mismatch(thr_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                          bs_error *err) {
  char text[448];
  snprintf(text, sizeof text, "rank %u called %s, rank %u called %s", rank_a, a, rank_b, b);
  thr_fail_world(comm->world, BS_MISMATCH, rank_b, NULL, 0, text);
  bs_fail(err, BS_MISMATCH, "BS-COLL-MISMATCH", "ranks disagree: %s", text);
  if (err == NULL) return BS_MISMATCH;
  snprintf(err->where, sizeof err->where, "%s", comm->group->ranks[comm->me] == rank_a ? a : b);
  return bs_fail_hint(err,
                      "every rank must make the same collective calls, in the same order, with equal "
                      "dtypes and counts");
}

/* Who has not come; and, when those who came differ, a mismatch rather than a deadline. */
static int32_t fail_deadline(thr_comm *comm, uint32_t pos, int64_t timeout_ns, bs_error *err) {
  thr_group *group = comm->group;
  thr_world *world = comm->world;
  const thr_header *mine = thr_peer(comm, comm->me);
  char text[480], missing[320];
  size_t used = 0;
  missing[0] = '\0';
  for (uint32_t r = 0; r < group->n; ++r) {
    if (reached(thr_flag_of(comm, r), pos)) {
      const thr_header *other = thr_peer(comm, r);
      if (other->key != mine->key)
        return thr_fail_mismatch(comm, group->ranks[comm->me], mine->text, group->ranks[r], other->text, err);
      continue;
    }
    const char *last = atomic_load(&world->trace[group->ranks[r]].last);
    int n = snprintf(missing + used, sizeof missing - used, "%srank %u (last call: %s)", used ? ", " : "",
                     group->ranks[r], last != NULL ? last : "none");
    if (n > 0) used += (size_t)n;
    if (used >= sizeof missing) used = sizeof missing - 1u;
  }
  snprintf(text, sizeof text, "%.3g s passed in %s; missing: %s", (double)timeout_ns * 1e-9, mine->text,
           missing);
  thr_fail_world(world, BS_DEADLINE, group->ranks[comm->me], group, pos, text);
  bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%s", text);
  if (err != NULL) snprintf(err->where, sizeof err->where, "%s", mine->text);
  bs_fail_hint(err, "a rank is late, stopped or in another call; raise the timeout if it is only slow");
  return BS_DEADLINE;
}

/* A wait ended by an abort: those who stood in the meeting that timed out report the deadline too. */
static int32_t fail_woken(thr_comm *comm, uint32_t pos, bs_error *err) {
  const thr_world *world = comm->world;
  const char *text = thr_peer(comm, comm->me)->text;
  await_record(world);
  if (world->fail_code == BS_DEADLINE && world->fail_group == comm->group && world->fail_pos == pos) {
    bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%s", world->fail_text);
    if (err != NULL) snprintf(err->where, sizeof err->where, "%s", text);
    return BS_DEADLINE;
  }
  return thr_fail_aborted(comm, text, err);
}

/* ---- meetings ------------------------------------------------------------------------------- */

int32_t thr_begin(thr_comm *comm, const bs_coll_call *call, thr_header **out_header, bs_error *err) {
  thr_world *world = comm->world;
  uint64_t key = thr_key(call);
  uint64_t line = (key >> 7) % THR_CACHE;
  const char *text = comm->cache[line].text;
  if (text == NULL || comm->cache[line].key != key) text = thr_site_text(comm, key, call);
  if (atomic_load_explicit(&world->failed, memory_order_acquire) != 0)
    return thr_fail_aborted(comm, text, err);
  atomic_store_explicit(&world->trace[comm->group->ranks[comm->me]].last, text, memory_order_release);
  comm->op++;
  thr_header *h = &comm->group->slots[comm->me].header[comm->op & 1u];
  h->key = key;
  h->text = text;
  *out_header = h;
  return BS_OK;
}

/* All ranks take the same way: the first to know decides, the others follow. 1: go. */
static int decide(thr_comm *comm, int stop) {
  _Atomic uint64_t *verdict = &comm->group->verdict;
  uint64_t mine = 2u * comm->op + (stop ? 1u : 0u);
  uint64_t seen = atomic_load(verdict);
  for (;;) {
    if (seen >> 1 == comm->op) return (seen & 1u) == 0;
    if (atomic_compare_exchange_weak(verdict, &seen, mine)) return !stop;
  }
}

static int32_t wait_all(thr_comm *comm, uint32_t pos, thr_timer *timer) {
  thr_group *group = comm->group;
  for (uint32_t i = 1; i < group->n; ++i) {
    uint32_t r = comm->me + i;
    if (r >= group->n) r -= group->n;
    int32_t rc = thr_wait(comm, thr_flag_of(comm, r), pos, timer);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int64_t timeout_of(const bs_coll_call *call) {
  return call->timeout_ns > 0 ? call->timeout_ns : DEFAULT_TIMEOUT_NS;
}

int32_t thr_meet(thr_comm *comm, const bs_coll_call *call, int in_place, bs_error *err) {
  const thr_group *group = comm->group;
  uint32_t pos = ++comm->pos;
  thr_timer timer = {timeout_of(call), 0, 0};
  thr_publish(thr_flag_of(comm, comm->me), pos);
  int32_t rc = wait_all(comm, pos, &timer);
  if (rc != BS_OK) {
    if (in_place && decide(comm, 1)) return BS_OK; /* another saw all arrive and reads my memory */
    return rc == BS_DEADLINE ? fail_deadline(comm, pos, timer.timeout_ns, err) : fail_woken(comm, pos, err);
  }
  const thr_header *first = thr_peer(comm, 0);
  for (uint32_t r = 1; r < group->n; ++r) {
    const thr_header *other = thr_peer(comm, r);
    if (other->key != first->key)
      return thr_fail_mismatch(comm, group->ranks[0], first->text, group->ranks[r], other->text, err);
  }
  if (in_place && !decide(comm, 0)) return fail_woken(comm, pos, err);
  return BS_OK;
}

int32_t thr_part(thr_comm *comm, const bs_coll_call *call, bs_error *err) {
  uint32_t pos = ++comm->pos;
  int64_t timeout = timeout_of(call);
  thr_timer timer = {timeout > PART_TIMEOUT_NS ? timeout : PART_TIMEOUT_NS, 0, 1};
  thr_publish(thr_flag_of(comm, comm->me), pos);
  int32_t rc = wait_all(comm, pos, &timer);
  return rc == BS_OK ? BS_OK : fail_deadline(comm, pos, timer.timeout_ns, err);
}
