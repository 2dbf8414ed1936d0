/* SPDX-License-Identifier: MIT
 *
 * wait.c - the meeting of ranks: publish a position, spin for a while, then sleep on a futex of the mapping
 * until a deadline, and check from time to time whether the others still live; compare the keys of all ranks;
 * report which rank is missing, dead or different. Every collective calls it. */
#include <time.h>

#include "shm.h"

#define SLEEP_SLICE_NS 20000000 /* between two looks at whether the others live */

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

typedef struct waiting {
  const shm_comm *comm;
  uint32_t awaited, dead;
} waiting;

static int32_t look(void *of, int64_t *ns) {
  waiting *w = of;
  *ns = SLEEP_SLICE_NS;
  w->dead = find_dead(w->comm, w->awaited);
  return w->dead == UINT32_MAX ? BS_OK : BS_RANK_FAILED;
}

int32_t shm_wait(shm_comm *comm, uint32_t awaited, comm_flag *flag, uint32_t want, int64_t timeout_ns,
                 uint32_t *out_dead) {
  if (comm_spin_round(flag, want)) return BS_OK;
  const int64_t start = comm_now_ns();
  if (comm_caller_may_spin(&comm->caller) &&
      comm_spin(flag, want, start + comm->world->spin_ns, COMM_YIELDS, NULL))
    return BS_OK;
  waiting w = {comm, awaited, UINT32_MAX};
  const comm_sleeper sleeper = {.failed = &failure_of(comm)->failed,
                                .deadline = start + timeout_ns,
                                .sleepers = COMM_PROCESSES,
                                .look = look,
                                .of = &w};
  const int32_t rc = comm_wait_asleep(flag, want, &sleeper);
  *out_dead = w.dead;
  return rc;
}

/* ---- failures ------------------------------------------------------------------------------- */

static void ring_area(const shm_job *job, const shm_area *area) {
  shm_slot *slots = shm_at(job, area->slots);
  for (uint32_t r = 0; r < area->n; ++r) {
    comm_ring(&slots[r].flag, COMM_PROCESSES);
    comm_ring(&slots[r].inbox, COMM_PROCESSES);
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

/* Waits for a record that a rank has claimed. If its claimer died before it was complete, it stays open, and
 * the claimer's death is reported. */
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
    bs_fail(err, BS_RANK_FAILED, "BS-RANK-DEAD", "stopped at %s: a rank died while it reported a failure",
            text);
  } else if (f->code == BS_RANK_FAILED && f->pos == 0 && f->area != 0) {
    code = bs_fail(err, BS_RANK_FAILED, "BS-RANK-DEAD", "%s", f->text);
  } else if (f->code == BS_DEADLINE && pos != 0 && f->area == shm_offset(job, comm->area) && f->pos == pos) {
    code = bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%s", f->text);
  } else {
    bs_fail(err, BS_ABORTED, "BS-COLL-ABORTED", "stopped at %s: rank %u failed: %s", text, f->rank, f->text);
    if (err != NULL) err->native_code = f->code;
  }
  comm_where(err, text);
  if (err != NULL && code != BS_DEADLINE && await_record(f)) err->rank = (int32_t)f->rank;
  return code;
}

int32_t shm_fail_mismatch(shm_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                          bs_error *err) {
  char text[448];
  comm_mismatch_text(text, sizeof text, rank_a, a, rank_b, b);
  shm_fail_world(comm, BS_MISMATCH, rank_b, 0, text);
  return comm_fail_mismatch(text, comm->area->ranks[comm->me] == rank_a ? a : b, err);
}

int32_t shm_fail_late(const shm_comm *comm, uint32_t peer, int64_t timeout_ns, const char *text,
                      bs_error *err) {
  char last[SHM_TEXT], why[480];
  comm_missing missing = {0};
  shm_last_call(comm->world->job, peer, last, sizeof last);
  comm_miss(&missing, peer, last);
  comm_deadline_text(why, sizeof why, timeout_ns, text, missing.text);
  shm_fail_world(comm, BS_DEADLINE, comm->area->ranks[comm->me], 0, why);
  return comm_fail_deadline(why, text, err);
}

/* Reports the missing ranks; if the ranks that came differ, a mismatch and not a deadline. */
static int32_t fail_deadline(shm_comm *comm, uint32_t pos, int64_t timeout_ns, bs_error *err) {
  const shm_area *area = comm->area;
  const shm_header *mine = shm_peer(comm, comm->me);
  comm_missing missing = {0};
  char text[480];
  for (uint32_t r = 0; r < area->n; ++r) {
    char last[SHM_TEXT];
    if (comm_reached(&shm_slot_of(comm, r)->flag, pos)) {
      const shm_header *other = shm_peer(comm, r);
      if (other->key != mine->key)
        return shm_fail_mismatch(comm, area->ranks[comm->me], mine->text, area->ranks[r], other->text, err);
      continue;
    }
    shm_last_call(comm->world->job, area->ranks[r], last, sizeof last);
    comm_miss(&missing, area->ranks[r], last);
  }
  comm_deadline_text(text, sizeof text, timeout_ns, mine->text, missing.text);
  shm_fail_world(comm, BS_DEADLINE, area->ranks[comm->me], pos, text);
  comm_fail_deadline(text, mine->text, err);
  comm_hint_deadline(err);
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
  const uint64_t key = comm_key(call);
  const char *text = shm_text(comm, call, key);
  if (atomic_load_explicit(&failure_of(comm)->claimed, memory_order_acquire) != 0)
    return shm_fail_woken(comm, 0, text, err);
  comm->op++;
  comm->fresh = 1;
  shm_header *h = &shm_slot_of(comm, comm->me)->header[comm->op & 1u];
  h->key = key;
  memcpy(h->text, text, SHM_TEXT);
  atomic_store_explicit(&myself(comm)->last, shm_offset(comm->world->job, h->text), memory_order_release);
  atomic_store_explicit(&myself(comm)->inside, 1u, memory_order_release);
  return BS_OK;
}

int32_t shm_meet(shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  const shm_area *area = comm->area;
  const int64_t timeout = comm_timeout(call);
  const uint32_t pos = ++comm->pos;
  uint32_t dead = UINT32_MAX;
  int32_t rc = BS_OK;
  comm_publish(&shm_slot_of(comm, comm->me)->flag, pos, COMM_PROCESSES);
  for (uint32_t i = 1; rc == BS_OK && i < area->n; ++i) {
    const uint32_t r = (comm->me + i) % area->n;
    rc = shm_wait(comm, r, &shm_slot_of(comm, r)->flag, pos, timeout, &dead);
  }
  const char *text = shm_peer(comm, comm->me)->text;
  if (rc == BS_DEADLINE) return fail_deadline(comm, pos, timeout, err);
  if (rc == BS_RANK_FAILED) return shm_fail_dead(comm, dead, text, err);
  if (rc != BS_OK) return shm_fail_woken(comm, pos, text, err);
  const shm_header *one = shm_peer(comm, 0);
  for (uint32_t r = 1; comm->fresh && r < area->n; ++r) {
    const shm_header *other = shm_peer(comm, r);
    if (other->key != one->key)
      return shm_fail_mismatch(comm, area->ranks[0], one->text, area->ranks[r], other->text, err);
  }
  comm->fresh = 0;
  return BS_OK;
}
