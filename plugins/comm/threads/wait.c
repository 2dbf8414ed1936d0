/* SPDX-License-Identifier: MIT
 *
 * wait.c - the meeting of ranks: publish a position, spin for a while, then sleep on a futex until a
 * deadline; compare the keys of all ranks; report which rank is missing or different. Every collective calls
 * it. */
#include <sched.h>

#include "threads.h"

#define COPY_NS 20000               /* wait of any caller for peers that only copy, before it sleeps */
#define PART_TIMEOUT_NS 10000000000 /* least deadline of a second meeting: peers only copy */

int32_t thr_wait(thr_comm *comm, comm_flag *flag, uint32_t want, thr_timer *timer) {
  const thr_world *world = comm->world;
  if (comm_spin_round(flag, want)) return BS_OK;
  int64_t start = comm_now_ns();
  if (timer->deadline == 0) timer->deadline = start + timer->timeout_ns;
  const int patient = comm_caller_may_spin(&comm->caller);
  const int64_t spin_ns = patient ? world->spin_ns : timer->keep ? COPY_NS : 0;
  const comm_sleeper sleeper = {.failed = timer->keep ? NULL : &world->failed, .deadline = timer->deadline};
  if (comm_spin(flag, want, start + spin_ns, patient ? COMM_YIELDS : 0, sleeper.failed)) return BS_OK;
  return comm_wait_asleep(flag, want, &sleeper);
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
  comm_where(err, text);
  return BS_ABORTED;
}

int32_t thr_fail_mismatch(thr_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                          bs_error *err) {
  char text[448];
  comm_mismatch_text(text, sizeof text, rank_a, a, rank_b, b);
  thr_fail_world(comm->world, BS_MISMATCH, rank_b, NULL, 0, text);
  return comm_fail_mismatch(text, comm->group->ranks[comm->me] == rank_a ? a : b, err);
}

/* Reports the missing ranks; if the ranks that came differ, a mismatch and not a deadline. */
static int32_t fail_deadline(thr_comm *comm, uint32_t pos, int64_t timeout_ns, bs_error *err) {
  thr_group *group = comm->group;
  thr_world *world = comm->world;
  const thr_header *mine = thr_peer(comm, comm->me);
  comm_missing missing = {0};
  char text[480];
  for (uint32_t r = 0; r < group->n; ++r) {
    if (comm_reached(thr_flag_of(comm, r), pos)) {
      const thr_header *other = thr_peer(comm, r);
      if (other->key != mine->key)
        return thr_fail_mismatch(comm, group->ranks[comm->me], mine->text, group->ranks[r], other->text, err);
      continue;
    }
    const char *last = atomic_load(&world->trace[group->ranks[r]].last);
    comm_miss(&missing, group->ranks[r], last != NULL ? last : "none");
  }
  comm_deadline_text(text, sizeof text, timeout_ns, mine->text, missing.text);
  thr_fail_world(world, BS_DEADLINE, group->ranks[comm->me], group, pos, text);
  comm_fail_deadline(text, mine->text, err);
  comm_hint_deadline(err);
  return BS_DEADLINE;
}

/* A wait ended by an abort: those who stood in the meeting that timed out report the deadline too. */
static int32_t fail_woken(thr_comm *comm, uint32_t pos, bs_error *err) {
  const thr_world *world = comm->world;
  const char *text = thr_peer(comm, comm->me)->text;
  await_record(world);
  if (world->fail_code == BS_DEADLINE && world->fail_group == comm->group && world->fail_pos == pos)
    return comm_fail_deadline(world->fail_text, text, err);
  return thr_fail_aborted(comm, text, err);
}

/* ---- meetings ------------------------------------------------------------------------------- */

int32_t thr_begin(thr_comm *comm, const bs_coll_call *call, thr_header **out_header, bs_error *err) {
  thr_world *world = comm->world;
  uint64_t key = comm_key(call);
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

int32_t thr_meet(thr_comm *comm, const bs_coll_call *call, int in_place, bs_error *err) {
  const thr_group *group = comm->group;
  uint32_t pos = ++comm->pos;
  thr_timer timer = {comm_timeout(call), 0, 0};
  comm_publish(thr_flag_of(comm, comm->me), pos, COMM_THREADS);
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
  int64_t timeout = comm_timeout(call);
  thr_timer timer = {timeout > PART_TIMEOUT_NS ? timeout : PART_TIMEOUT_NS, 0, 1};
  comm_publish(thr_flag_of(comm, comm->me), pos, COMM_THREADS);
  int32_t rc = wait_all(comm, pos, &timer);
  return rc == BS_OK ? BS_OK : fail_deadline(comm, pos, timer.timeout_ns, err);
}
