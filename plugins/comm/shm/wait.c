/* SPDX-License-Identifier: MIT
 *
 * wait.c - how ranks meet: publish a position, spin for a while, then sleep on a futex of the mapping until a
 * deadline, looking now and then whether the others still live; compare the keys of all ranks; say who is
 * missing, dead or different. Called by every collective.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

#define SPIN_ROUND 64u
#define YIELDS 16u
#define SLEEP_SLICE_NS 20000000 /* between two looks at whether the others live */

int64_t shm_now_ns(void) {
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

uint64_t shm_key(const bs_coll_call *call) {
  uint64_t kind = call->kind == BS_COLL_RECV ? BS_COLL_SEND : call->kind;
  uint64_t mixed = call->fingerprint + (kind + 1u) * UINT64_C(0x9e3779b97f4a7c15);
  mixed ^= call->rows * UINT64_C(0xc2b2ae3d27d4eb4f);
  mixed += call->count * UINT64_C(0x165667b19e3779f9);
  return mixed ^ (mixed >> 29);
}

int64_t shm_timeout(const bs_coll_call *call) {
  return call->timeout_ns > 0 ? call->timeout_ns : INT64_C(60000000000);
}

void shm_ring(shm_flag *flag) {
  atomic_fetch_add(&flag->bell, 1u);
  syscall(SYS_futex, (uint32_t *)(void *)&flag->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void shm_publish(shm_flag *flag, uint32_t pos) {
  atomic_store(&flag->pos, pos); /* sequentially consistent: ordered before the look at waiters */
  if (atomic_load(&flag->waiters) != 0) shm_ring(flag);
}

static inline int reached(shm_flag *flag, uint32_t want) {
  return (int32_t)(atomic_load_explicit(&flag->pos, memory_order_acquire) - want) >= 0;
}

static shm_failure *failure_of(const shm_comm *comm) {
  return &((shm_area *)shm_at(comm->world->job, comm->area->world))->failure;
}

/* The first member that has died, or the awaited one when it has left; UINT32_MAX: none. */
static uint32_t find_dead(const shm_comm *comm, uint32_t awaited) {
  for (uint32_t i = 0; i < comm->area->n; ++i) {
    const int is = shm_job_dead(comm->world->job, comm->area->ranks[i]);
    if (is == SHM_DIED || (is == SHM_LEFT && i == awaited)) return comm->area->ranks[i];
  }
  return UINT32_MAX;
}

static int32_t wait_asleep(const shm_comm *comm, uint32_t awaited, shm_flag *flag, uint32_t want,
                           int64_t deadline, uint32_t *out_dead) {
  const shm_failure *failure = failure_of(comm);
  int32_t rc = BS_OK;
  atomic_fetch_add(&flag->waiters, 1u);
  for (;;) {
    const uint32_t bell = atomic_load(&flag->bell); /* first: what happens after it ends the sleep at once */
    const int failed = atomic_load(&failure->failed) != 0;
    if (reached(flag, want)) break;
    if (failed) {
      rc = BS_ABORTED;
      break;
    }
    *out_dead = find_dead(comm, awaited);
    if (*out_dead != UINT32_MAX) {
      if (reached(flag, want)) break; /* it came before it died */
      rc = BS_RANK_FAILED;
      break;
    }
    int64_t left = deadline - shm_now_ns();
    if (left <= 0) {
      rc = BS_DEADLINE;
      break;
    }
    if (left > SLEEP_SLICE_NS) left = SLEEP_SLICE_NS;
    const struct timespec t = {0, (long)left};
    syscall(SYS_futex, (uint32_t *)(void *)&flag->bell, FUTEX_WAIT, bell, &t, NULL, 0);
  }
  atomic_fetch_sub(&flag->waiters, 1u);
  return rc;
}

int32_t shm_wait(shm_comm *comm, uint32_t awaited, shm_flag *flag, uint32_t want, int64_t timeout_ns,
                 uint32_t *out_dead) {
  for (uint32_t i = 0; i < SPIN_ROUND; ++i) {
    if (reached(flag, want)) return BS_OK;
    cpu_relax();
  }
  const int64_t start = shm_now_ns(), spin_end = start + comm->world->spin_ns;
  if (!comm_caller_may_spin(&comm->caller))
    return wait_asleep(comm, awaited, flag, want, start + timeout_ns, out_dead);
  while (shm_now_ns() < spin_end) {
    for (uint32_t i = 0; i < SPIN_ROUND; ++i) {
      if (reached(flag, want)) return BS_OK;
      cpu_relax();
    }
  }
  for (uint32_t i = 0; i < YIELDS; ++i) {
    if (reached(flag, want)) return BS_OK;
    sched_yield();
  }
  return wait_asleep(comm, awaited, flag, want, start + timeout_ns, out_dead);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void ring_area(const shm_job *job, const shm_area *area) {
  shm_slot *slots = shm_at(job, area->slots);
  shm_mail *mail = shm_at(job, area->mail);
  for (uint32_t r = 0; r < area->n; ++r) {
    shm_ring(&slots[r].flag);
    shm_ring(&slots[r].inbox);
  }
  for (uint32_t i = 0; i < area->n * area->n; ++i) { /* pages that nobody touched are left alone */
    if (atomic_load(&mail[i].posted.waiters) != 0) shm_ring(&mail[i].posted);
    if (atomic_load(&mail[i].taken.waiters) != 0) shm_ring(&mail[i].taken);
  }
}

/* Groups are not rung: their members look every slice. */
static void fail_at(const shm_job *job, shm_area *world, uint64_t area, int32_t code, uint32_t rank,
                    uint32_t pos, const char *text) {
  shm_failure *f = &world->failure;
  if (atomic_exchange(&f->claimed, 1u) != 0) return;
  f->code = code;
  f->rank = rank;
  f->area = area;
  f->pos = pos;
  snprintf(f->text, sizeof f->text, "%s", text != NULL ? text : "");
  atomic_store(&f->failed, 1u);
  ring_area(job, world);
}

void shm_fail_world(const shm_comm *comm, int32_t code, uint32_t rank, uint32_t pos, const char *text) {
  const shm_job *job = comm->world->job;
  fail_at(job, shm_at(job, comm->area->world), shm_offset(job, comm->area), code, rank, pos, text);
}

void shm_abort(void *world_ptr, uint32_t rank, int32_t code, const char *why) {
  const shm_world *world = world_ptr;
  fail_at(world->job, world->area, 0, code, rank, 0, why);
}

void shm_last_call(const shm_job *job, uint32_t rank, char *out, size_t size) {
  const shm_process *p = &job->head->process[rank];
  const uint64_t last = atomic_load(&p->last);
  if (last == 0)
    snprintf(out, size, "none");
  else
    snprintf(out, size, "%.*s", (int)SHM_TEXT - 1, (const char *)shm_at(job, last));
}

static void set_where(bs_error *err, const char *text) {
  if (err != NULL) snprintf(err->where, sizeof err->where, "%s", text);
}

int32_t shm_fail_dead(const shm_comm *comm, uint32_t rank, const char *text, bs_error *err) {
  const shm_job *job = comm->world->job;
  const shm_process *p = &job->head->process[rank];
  char last[SHM_TEXT], why[400];
  shm_last_call(job, rank, last, sizeof last);
  snprintf(why, sizeof why, "rank %u (process %d) has ended %s %s", rank, (int)atomic_load(&p->pid),
           atomic_load(&p->inside) ? "in" : "after", last);
  shm_fail_world(comm, BS_RANK_FAILED, rank, 0, why);
  return shm_fail_woken(comm, 0, text, err);
}

/* A record that was claimed by one who died before it was complete stays open: its claimer's death says it.
 */
static int await_record(const shm_failure *f) {
  for (int i = 0; i < 2000 && atomic_load(&f->failed) == 0; ++i) {
    const struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
  }
  return atomic_load(&f->failed) != 0;
}

int32_t shm_fail_woken(const shm_comm *comm, uint32_t pos, const char *text, bs_error *err) {
  const shm_failure *f = failure_of(comm);
  const shm_job *job = comm->world->job;
  int32_t code = BS_ABORTED;
  if (!await_record(f)) {
    bs_fail(err, BS_RANK_FAILED, "BS-RANK-DEAD", "stopped at %s: a rank died while it told of a failure",
            text);
  } else if (f->code == BS_RANK_FAILED && f->pos == 0 && f->area != 0) {
    code = bs_fail(err, BS_RANK_FAILED, "BS-RANK-DEAD", "%s", f->text);
  } else if (f->code == BS_DEADLINE && pos != 0 && f->area == shm_offset(job, comm->area) && f->pos == pos) {
    code = bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%s", f->text);
  } else {
    bs_fail(err, BS_ABORTED, "BS-COLL-ABORTED", "stopped at %s: rank %u failed: %s", text, f->rank, f->text);
    if (err != NULL) err->native_code = f->code;
  }
  set_where(err, text);
  if (err != NULL && code != BS_DEADLINE && await_record(f)) err->rank = (int32_t)f->rank;
  return code;
}

int32_t shm_fail_mismatch(shm_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                          bs_error *err) {
  char text[448];
  snprintf(text, sizeof text, "rank %u called %s, rank %u called %s", rank_a, a, rank_b, b);
  shm_fail_world(comm, BS_MISMATCH, rank_b, 0, text);
  bs_fail(err, BS_MISMATCH, "BS-COLL-MISMATCH", "ranks disagree: %s", text);
  set_where(err, comm->area->ranks[comm->me] == rank_a ? a : b);
  bs_fail_hint(
      err, "every rank must make the same collective calls, in the same order, with equal dtypes and counts");
  return BS_MISMATCH;
}

/* Who has not come; and, when those who came differ, a mismatch rather than a deadline. */
static int32_t fail_deadline(shm_comm *comm, uint32_t pos, int64_t timeout_ns, bs_error *err) {
  const shm_area *area = comm->area;
  const shm_header *mine = shm_peer(comm, comm->me);
  char text[480], missing[320];
  size_t used = 0;
  missing[0] = '\0';
  for (uint32_t r = 0; r < area->n; ++r) {
    char last[SHM_TEXT];
    if (reached(&shm_slot_of(comm, r)->flag, pos)) {
      const shm_header *other = shm_peer(comm, r);
      if (other->key != mine->key)
        return shm_fail_mismatch(comm, area->ranks[comm->me], mine->text, area->ranks[r], other->text, err);
      continue;
    }
    shm_last_call(comm->world->job, area->ranks[r], last, sizeof last);
    const int n = snprintf(missing + used, sizeof missing - used, "%srank %u (last call: %s)",
                           used ? ", " : "", area->ranks[r], last);
    if (n > 0) used += (size_t)n;
    if (used >= sizeof missing) used = sizeof missing - 1u;
  }
  snprintf(text, sizeof text, "%.3g s passed in %s; missing: %s", (double)timeout_ns * 1e-9, mine->text,
           missing);
  shm_fail_world(comm, BS_DEADLINE, area->ranks[comm->me], pos, text);
  bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%s", text);
  set_where(err, mine->text);
  bs_fail_hint(err, "a rank is late, stopped or in another call; raise the timeout if it is only slow");
  return BS_DEADLINE;
}

/* ---- meetings ------------------------------------------------------------------------------- */

const char *shm_text(shm_comm *comm, const bs_coll_call *call, uint64_t key) {
  const uint64_t line = (key >> 7) % THR_CACHE;
  if (comm->cache[line].known && comm->cache[line].key == key) return comm->cache[line].text;
  char *out = comm->cache[line].text;
  comm->cache[line].key = key;
  comm->cache[line].known = 1;
  bs_coll_describe(call, out, SHM_TEXT);
  return out;
}

static shm_process *myself(const shm_comm *comm) {
  return &comm->world->job->head->process[comm->world->job->rank];
}

void shm_end(const shm_comm *comm) {
  atomic_store_explicit(&myself(comm)->inside, 0u, memory_order_release);
}

int32_t shm_begin(shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  const uint64_t key = shm_key(call);
  const char *text = shm_text(comm, call, key);
  if (atomic_load_explicit(&failure_of(comm)->claimed, memory_order_acquire) != 0)
    return shm_fail_woken(comm, 0, text, err);
  comm->op++;
  shm_header *h = &shm_slot_of(comm, comm->me)->header[comm->op & 1u];
  h->key = key;
  memcpy(h->text, text, SHM_TEXT);
  atomic_store_explicit(&myself(comm)->last, shm_offset(comm->world->job, h->text), memory_order_release);
  atomic_store_explicit(&myself(comm)->inside, 1u, memory_order_release);
  return BS_OK;
}

int32_t shm_meet(shm_comm *comm, const bs_coll_call *call, int first, bs_error *err) {
  const shm_area *area = comm->area;
  const int64_t timeout = shm_timeout(call);
  const uint32_t pos = ++comm->pos;
  uint32_t dead = UINT32_MAX;
  int32_t rc = BS_OK;
  shm_publish(&shm_slot_of(comm, comm->me)->flag, pos);
  for (uint32_t i = 1; rc == BS_OK && i < area->n; ++i) {
    const uint32_t r = (comm->me + i) % area->n;
    rc = shm_wait(comm, r, &shm_slot_of(comm, r)->flag, pos, timeout, &dead);
  }
  const char *text = shm_peer(comm, comm->me)->text;
  if (rc == BS_DEADLINE) return fail_deadline(comm, pos, timeout, err);
  if (rc == BS_RANK_FAILED) return shm_fail_dead(comm, dead, text, err);
  if (rc != BS_OK) return shm_fail_woken(comm, pos, text, err);
  const shm_header *one = shm_peer(comm, 0);
  for (uint32_t r = 1; first && r < area->n; ++r) {
    const shm_header *other = shm_peer(comm, r);
    if (other->key != one->key)
      return shm_fail_mismatch(comm, area->ranks[0], one->text, area->ranks[r], other->text, err);
  }
  return BS_OK;
}
