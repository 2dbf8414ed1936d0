/* SPDX-License-Identifier: MIT
 *
 * wait.c - how the ranks of one machine meet: publish a round in shared memory, spin, then sleep on a futex
 * in slices; between slices look for a failure, for a process that has ended and for the deadline.
 */
#include "mpi_comm.h"

#define FIRST_SLICE_NS 1000000 /* a dead neighbour is seen after this */
#define SLICE_NS 10000000      /* or, when the wait is long, this */
#define HURRY_NS 1000000000    /* after a failure of all: for rank 0 to announce the end */

mpic_timer mpic_timer_of(const mpic_comm *comm, const bs_coll_call *call) {
  mpic_timer timer = {comm_timeout(call), 0};
  if (comm->world->state->hurry && timer.timeout_ns > HURRY_NS) timer.timeout_ns = HURRY_NS;
  return timer;
}

/* ---- what a rank is in ---------------------------------------------------------------------- */

const char *mpic_describe(mpic_comm *comm, const bs_coll_call *call) {
  const uint64_t key = comm_key(call), line = (key >> 7) % THR_CACHE;
  char *text = comm->cache[line].text;
  if (text[0] == '\0' || comm->cache[line].key != key) {
    bs_coll_describe(call, text, MPIC_TEXT);
    comm->cache[line].key = key;
  }
  return text;
}

int32_t mpic_enter(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  const mpic_comm *all = comm->world->all;
  const char *text = mpic_describe(comm, call);
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

static inline mpic_header *header_of(const mpic_comm *comm, uint32_t local) {
  return &comm->seg.slots[local].header[comm->pos & 1u];
}

/* Reports the missing ranks; if the ranks that came differ, a mismatch and not a deadline. */
static int32_t fail_late(mpic_comm *comm, const char *text, const mpic_timer *timer, bs_error *err) {
  const mpic_header *mine = header_of(comm, comm->local[comm->me]);
  comm_missing missing = {0};
  char last[MPIC_TEXT + 32u];
  for (uint32_t i = 0; i < comm->nlocal; ++i) {
    uint32_t rank = comm->ranks[mpic_member(comm, comm->here, i)];
    mpic_header *other = header_of(comm, i);
    const char *theirs = mpic_trace_text(comm, rank, last, sizeof last);
    if (comm_reached(&other->flag, comm->pos)) {
      if (other->key == mine->key) continue;
      return mpic_fail_mismatch(comm, comm->ranks[comm->me], text, rank, theirs, err);
    }
    comm_miss(&missing, rank, theirs);
  }
  return mpic_fail_deadline(comm, text, missing.text, timer->timeout_ns, err);
}

/* A wait for one neighbour that has not come in the time of a spin. */
typedef struct waiting {
  mpic_world *world;
  uint32_t dead;
  int slept;
} waiting;

static int32_t look(void *of, int64_t *ns) {
  waiting *w = of;
  *ns = w->slept ? SLICE_NS : FIRST_SLICE_NS;
  if (!w->slept++) return BS_OK;
  if (w->world->all->machines > 1) mpic_listen(w->world->state);
  w->dead = mpic_dead(w->world->state, 0, MPIC_NONE);
  if (!mpic_failed(w->world)) return w->dead == MPIC_NONE ? BS_OK : BS_RANK_FAILED;
  *ns = 0; /* mpic_listen() has just reported a failure */
  return BS_OK;
}

static int32_t wait_one(mpic_comm *comm, uint32_t local, const char *text, mpic_timer *timer, bs_error *err) {
  comm_flag *flag = &header_of(comm, local)->flag;
  const _Atomic uint32_t *failed = &comm->world->all->seg.failure->failed;
  if (comm_spin_round(flag, comm->pos)) return BS_OK;
  int64_t start = comm_now_ns();
  if (timer->deadline == 0) timer->deadline = start + timer->timeout_ns;
  if (comm_caller_may_spin(&comm->caller) &&
      comm_spin(flag, comm->pos, start + comm->world->spin_ns, COMM_YIELDS, failed))
    return BS_OK;
  waiting w = {comm->world, MPIC_NONE, 0};
  const comm_sleeper sleeper = {
      .failed = failed, .deadline = timer->deadline, .sleepers = COMM_PROCESSES, .look = look, .of = &w};
  const int32_t rc = comm_wait_asleep(flag, comm->pos, &sleeper);
  if (rc == BS_ABORTED) return mpic_fail_told(comm, text, err);
  if (rc == BS_DEADLINE) return fail_late(comm, text, timer, err);
  return rc == BS_OK ? BS_OK : mpic_fail_dead(comm, w.dead, text, err);
}

int32_t mpic_meet(mpic_comm *comm, const bs_coll_call *call, mpic_timer *timer, bs_error *err) {
  uint32_t me = comm->local[comm->me];
  const char *text = mpic_text(comm, call);
  comm->pos++;
  mpic_header *mine = header_of(comm, me);
  mine->key = comm_key(call);
  comm_publish(&mine->flag, comm->pos, COMM_PROCESSES);
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
