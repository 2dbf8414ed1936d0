/* SPDX-License-Identifier: MIT
 *
 * wait.c - how the ranks of one machine meet: publish a round in shared memory, spin, then sleep on a futex
 * in slices; between slices look for a failure, for a process that has ended and for the deadline.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mpi_comm.h"

#define SPIN_ROUND 64u
#define YIELDS 16u
#define FIRST_SLICE_NS 1000000           /* a dead neighbour is seen after this */
#define SLICE_NS 10000000                /* or, when the wait is long, this */
#define HURRY_NS 1000000000              /* after a failure of all: for rank 0 to say that it is over */
#define DEFAULT_TIMEOUT_NS (60000000000) /* a call without a deadline of its own */

int64_t mpic_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void mpic_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

uint64_t mpic_key(const bs_coll_call *call) {
  uint64_t kind = call->kind == BS_COLL_RECV ? BS_COLL_SEND : call->kind;
  uint64_t mixed = call->fingerprint + (kind + 1u) * UINT64_C(0x9e3779b97f4a7c15);
  mixed ^= call->rows * UINT64_C(0xc2b2ae3d27d4eb4f);
  mixed += call->count * UINT64_C(0x165667b19e3779f9);
  return mixed ^ (mixed >> 29);
}

mpic_timer mpic_timer_of(const mpic_comm *comm, const bs_coll_call *call) {
  mpic_timer timer = {call->timeout_ns > 0 ? call->timeout_ns : DEFAULT_TIMEOUT_NS, 0};
  if (comm->world->state->hurry && timer.timeout_ns > HURRY_NS) timer.timeout_ns = HURRY_NS;
  return timer;
}

void mpic_ring(mpic_flag *flag) {
  atomic_fetch_add(&flag->bell, 1u);
  syscall(SYS_futex, (uint32_t *)(void *)&flag->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- what a rank is in ---------------------------------------------------------------------- */

int32_t mpic_enter(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  const mpic_comm *all = comm->world->all;
  uint64_t key = mpic_key(call);
  uint64_t line = (key >> 7) % THR_CACHE;
  char *text = comm->cache[line].text;
  if (text[0] == '\0' || comm->cache[line].key != key) {
    bs_coll_describe(call, text, MPIC_TEXT);
    comm->cache[line].key = key;
  }
  if (mpic_failed(comm->world)) return mpic_fail_told(comm, text, err);
  mpic_trace *trace = &all->seg.traces[all->local[all->me]];
  uint64_t op = atomic_load_explicit(&trace->op, memory_order_relaxed) + 1u;
  memcpy(trace->text[op & 1u], text, strlen(text) + 1u);
  atomic_store_explicit(&trace->op, op, memory_order_release);
  atomic_store_explicit(&trace->inside, 1u, memory_order_relaxed);
  comm->op++;
  return BS_OK;
}

int32_t mpic_exit(mpic_comm *comm, int32_t rc) {
  const mpic_comm *all = comm->world->all;
  if (rc == BS_OK)
    atomic_store_explicit(&all->seg.traces[all->local[all->me]].inside, 0u, memory_order_relaxed);
  return rc;
}

const char *mpic_trace_text(const mpic_comm *comm, uint32_t world_rank, char *out, size_t size) {
  const mpic_comm *all = comm->world->all;
  if (world_rank >= all->n || all->machine[world_rank] != all->here) return NULL;
  const mpic_trace *trace = &all->seg.traces[all->local[world_rank]];
  uint64_t op = atomic_load_explicit(&trace->op, memory_order_acquire);
  if (op == 0) {
    snprintf(out, size, "none");
    return out;
  }
  char text[MPIC_TEXT];
  memcpy(text, trace->text[op & 1u], sizeof text);
  text[sizeof text - 1u] = '\0';
  snprintf(out, size, "%s, op %llu%s", text, (unsigned long long)op,
           atomic_load(&trace->inside) != 0 ? "" : ", done");
  return out;
}

/* ---- meetings ------------------------------------------------------------------------------- */

static inline int reached(mpic_flag *flag, uint32_t want) {
  return (int32_t)(atomic_load_explicit(&flag->pos, memory_order_acquire) - want) >= 0;
}

static inline mpic_header *header_of(const mpic_comm *comm, uint32_t local) {
  return &comm->seg.slots[local].header[comm->pos & 1u];
}

static void sleep_on(mpic_flag *flag, uint32_t bell, int64_t ns) {
  struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  syscall(SYS_futex, (uint32_t *)(void *)&flag->bell, FUTEX_WAIT, bell, &t, NULL, 0);
}

/* Who has not come; and, when those who came differ, a mismatch rather than a deadline. */
static int32_t fail_late(mpic_comm *comm, const char *text, const mpic_timer *timer, bs_error *err) {
  const mpic_header *mine = header_of(comm, comm->local[comm->me]);
  char missing[320], last[MPIC_TEXT + 32u];
  size_t used = 0;
  missing[0] = '\0';
  for (uint32_t i = 0; i < comm->nlocal; ++i) {
    uint32_t rank = comm->ranks[mpic_member(comm, comm->here, i)];
    mpic_header *other = header_of(comm, i);
    const char *theirs = mpic_trace_text(comm, rank, last, sizeof last);
    if (reached(&other->flag, comm->pos)) {
      if (other->key == mine->key) continue;
      return mpic_fail_mismatch(comm, comm->ranks[comm->me], text, rank, theirs, err);
    }
    int n = snprintf(missing + used, sizeof missing - used, "%srank %u (last call: %s)", used ? ", " : "",
                     rank, theirs);
    if (n > 0) used += (size_t)n;
    if (used >= sizeof missing) used = sizeof missing - 1u;
  }
  return mpic_fail_deadline(comm, text, missing, timer->timeout_ns, err);
}

/* One neighbour has not come in the time of a spin. */
static int32_t wait_asleep(mpic_comm *comm, uint32_t local, const char *text, mpic_timer *timer,
                           bs_error *err) {
  mpic_world *world = comm->world;
  mpic_flag *flag = &header_of(comm, local)->flag;
  int32_t rc = BS_OK;
  int64_t slice = FIRST_SLICE_NS;
  atomic_fetch_add(&flag->waiters, 1u);
  for (;;) {
    uint32_t bell = atomic_load(&flag->bell); /* first: whatever happens after it ends the sleep */
    int failed = mpic_failed(world);
    if (reached(flag, comm->pos)) break;
    if (failed) {
      rc = mpic_fail_told(comm, text, err);
      break;
    }
    int64_t left = timer->deadline - mpic_now();
    if (left <= 0) {
      rc = fail_late(comm, text, timer, err);
      break;
    }
    sleep_on(flag, bell, left < slice ? left : slice);
    slice = SLICE_NS;
    if (comm->world->all->machines > 1) mpic_listen(world->state);
    uint32_t dead = mpic_dead(world->state, 0, MPIC_NONE);
    if (dead == MPIC_NONE || reached(flag, comm->pos) || mpic_failed(world)) continue;
    rc = mpic_fail_dead(comm, dead, text, err);
    break;
  }
  atomic_fetch_sub(&flag->waiters, 1u);
  return rc;
}

static int32_t wait_one(mpic_comm *comm, uint32_t local, const char *text, mpic_timer *timer, bs_error *err) {
  mpic_flag *flag = &header_of(comm, local)->flag;
  for (uint32_t i = 0; i < SPIN_ROUND; ++i) {
    if (reached(flag, comm->pos)) return BS_OK;
    mpic_relax();
  }
  int64_t start = mpic_now();
  if (timer->deadline == 0) timer->deadline = start + timer->timeout_ns;
  if (!comm_caller_may_spin(&comm->caller)) return wait_asleep(comm, local, text, timer, err);
  int64_t spin_end = start + comm->world->spin_ns;
  while (mpic_now() < spin_end) {
    for (uint32_t i = 0; i < SPIN_ROUND; ++i) {
      if (reached(flag, comm->pos)) return BS_OK;
      mpic_relax();
    }
    if (mpic_failed(comm->world)) break;
  }
  for (uint32_t i = 0; i < YIELDS; ++i) {
    if (reached(flag, comm->pos)) return BS_OK;
    sched_yield();
  }
  return wait_asleep(comm, local, text, timer, err);
}

int32_t mpic_meet(mpic_comm *comm, const bs_coll_call *call, mpic_timer *timer, bs_error *err) {
  uint32_t me = comm->local[comm->me];
  const char *text = mpic_text(comm, call);
  comm->pos++;
  mpic_header *mine = header_of(comm, me);
  mine->key = mpic_key(call);
  atomic_store(&mine->flag.pos, comm->pos); /* sequentially consistent: before the look at waiters */
  if (atomic_load(&mine->flag.waiters) != 0) mpic_ring(&mine->flag);
  for (uint32_t i = 1; i < comm->nlocal; ++i) {
    uint32_t local = me + i < comm->nlocal ? me + i : me + i - comm->nlocal;
    int32_t rc = wait_one(comm, local, text, timer, err);
    if (rc != BS_OK) return rc;
  }
  const mpic_header *first = header_of(comm, 0);
  for (uint32_t i = 1; i < comm->nlocal; ++i) {
    if (header_of(comm, i)->key == first->key) continue;
    char a[MPIC_TEXT + 32u], b[MPIC_TEXT + 32u];
    uint32_t rank_a = comm->ranks[mpic_member(comm, comm->here, 0)];
    uint32_t rank_b = comm->ranks[mpic_member(comm, comm->here, i)];
    mpic_trace_text(comm, rank_a, a, sizeof a);
    mpic_trace_text(comm, rank_b, b, sizeof b);
    return mpic_fail_mismatch(comm, rank_a, a, rank_b, b, err);
  }
  return BS_OK;
}
