/* SPDX-License-Identifier: MIT
 *
 * fail.c - the failure of a world. The first failure is written to the memory that a machine's ranks share
 * and sent to the other machines; every wait of every rank then ends with it. A late rank is named with its
 * last call from the shared record; its pidfd shows whether a rank has ended. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "mpi_comm.h"

#define RECORD_NS 100000000 /* the longest that filling a record takes; after it, the filler has died */

int32_t mpic_failed(const mpic_world *world) {
  return atomic_load_explicit(&world->all->seg.failure->failed, memory_order_acquire) != 0;
}

static void ring_all(const mpic_comm *comm) {
  for (uint32_t i = 0; i < comm->nlocal; ++i) {
    comm_ring(&comm->seg.slots[i].header[0].flag, COMM_PROCESSES);
    comm_ring(&comm->seg.slots[i].header[1].flag, COMM_PROCESSES);
  }
}

/* 1: this is the world's first failure, as far as this machine knows. */
static int record(mpic_world *world, int32_t code, uint32_t rank, uint32_t common, const char *id,
                  const char *text) {
  mpic_failure *f = world->all->seg.failure;
  uint32_t none = 0;
  world->state->broken = 1;
  if (!atomic_compare_exchange_strong(&f->claimed, &none, 1u)) {
    for (int64_t end = comm_now_ns() + RECORD_NS; atomic_load(&f->failed) == 0 && comm_now_ns() < end;)
      sched_yield();
    if (atomic_load(&f->failed) != 0) return 0;
  }
  world->state->hurry |= common;
  f->code = code;
  f->rank = rank;
  f->common = common;
  snprintf(f->id, sizeof f->id, "%s", id);
  snprintf(f->text, sizeof f->text, "%s", text);
  atomic_store(&f->failed, 1u);
  ring_all(world->all);
  return 1;
}

/* Sends it to every rank of another machine; the messages are small and are not waited for. */
static void tell(mpic_world *world) {
  mpic_state *state = world->state;
  const mpic_failure *f = world->all->seg.failure;
  mpic_notice *notice = state->host->alloc(state->host->ctx, sizeof *notice, 64); /* MPI keeps it */
  if (notice == NULL) return;
  notice->world = world->number;
  notice->code = f->code;
  notice->rank = f->rank;
  notice->common = f->common;
  memcpy(notice->id, f->id, sizeof notice->id);
  memcpy(notice->text, f->text, sizeof notice->text);
  for (uint32_t r = 0; r < world->size; ++r) {
    if (world->all->machine[r] == world->all->here) continue;
    MPI_Request request;
    if (mpic_isend(state, notice, sizeof *notice, r, MPIC_TAG_FAIL, &request, NULL) != BS_OK) continue;
    for (int i = 0; i < 16 && !mpic_test_one(state, &request); ++i) sched_yield();
  }
}

void mpic_fail_world(mpic_world *world, int32_t code, uint32_t rank, uint32_t common, const char *id,
                     const char *text) {
  if (record(world, code, rank, common, id, text) && world->all->machines > 1) tell(world);
}

void mpic_abort(void *world_ptr, uint32_t rank, int32_t code, const char *why) {
  mpic_world *world = world_ptr;
  mpic_fail_world(world, code, rank, 0, "BS-COLL-ABORTED", why);
}

typedef struct mpic_kept {
  struct mpic_kept *next;
  void *memory;
} mpic_kept;

void mpic_keep(mpic_state *state, void *memory) {
  mpic_kept *kept = memory != NULL ? malloc(sizeof *kept) : NULL;
  if (kept == NULL) return;
  kept->memory = memory;
  kept->next = state->kept;
  state->kept = kept;
}

void mpic_listen(mpic_state *state) {
  if (state->fail_request == MPI_REQUEST_NULL || !mpic_test_one(state, &state->fail_request)) return;
  mpic_notice *n = state->notice;
  n->id[sizeof n->id - 1u] = '\0';
  n->text[sizeof n->text - 1u] = '\0';
  state->broken = 1;
  mpic_world *world = state->open;
  while (world != NULL && world->number != n->world) world = world->next;
  if (world != NULL) {
    record(world, n->code, n->rank, n->common, n->id, n->text);
    return;
  }
  for (world = state->open; world != NULL;
       world = world->next) /* a world that I am not in: the job is over */
    record(world, n->code, n->rank, n->common, n->id, n->text);
}

int32_t mpic_fail_told(mpic_comm *comm, const char *text, bs_error *err) {
  const mpic_failure *f = comm->world->all->seg.failure;
  comm->world->state->broken = 1;
  if (f->common) {
    comm->world->state->hurry = 1;
    bs_fail(err, f->code, f->id, "%s", f->text);
    if (err != NULL && f->code == BS_RANK_FAILED) err->rank = (int32_t)f->rank;
    comm_where(err, text);
    return f->code;
  }
  bs_fail(err, BS_ABORTED, "BS-COLL-ABORTED", "stopped at %s: rank %u failed: %s", text, f->rank, f->text);
  if (err != NULL) {
    snprintf(err->where, sizeof err->where, "%s", text);
    err->native_code = f->code;
    err->rank = (int32_t)f->rank;
  }
  return BS_ABORTED;
}

int32_t mpic_fail_mismatch(mpic_comm *comm, uint32_t rank_a, const char *a, uint32_t rank_b, const char *b,
                           bs_error *err) {
  char text[MPIC_FAIL_TEXT];
  snprintf(text, sizeof text, "ranks disagree: rank %u called %s, rank %u called %s", rank_a, a, rank_b, b);
  mpic_fail_world(comm->world, BS_MISMATCH, rank_b, 1, "BS-COLL-MISMATCH", text);
  int32_t rc = mpic_fail_told(comm, comm->world->all->me == rank_a ? a : b, err);
  if (rc == BS_MISMATCH && err != NULL) comm_hint_mismatch(err);
  return rc;
}

int32_t mpic_fail_deadline(mpic_comm *comm, const char *text, const char *missing, int64_t timeout_ns,
                           bs_error *err) {
  char why[MPIC_FAIL_TEXT];
  comm_deadline_text(why, sizeof why, timeout_ns, text, missing);
  mpic_fail_world(comm->world, BS_DEADLINE, comm->world->all->me, 1, "BS-COLL-DEADLINE", why);
  int32_t rc = mpic_fail_told(comm, text, err);
  if (rc == BS_DEADLINE && err != NULL) comm_hint_deadline(err);
  return rc;
}

uint32_t mpic_dead(mpic_state *state, uint32_t first, uint32_t only) {
  for (uint32_t r = first; state->processes != NULL && r < state->size; ++r) {
    if (state->processes[r].pidfd < 0 || (only != MPIC_NONE && r != only)) continue;
    struct pollfd fd = {state->processes[r].pidfd, POLLIN, 0};
    if (poll(&fd, 1, 0) > 0) return r;
  }
  return MPIC_NONE;
}

int32_t mpic_fail_dead(mpic_comm *comm, uint32_t world_rank, const char *text, bs_error *err) {
  char why[MPIC_FAIL_TEXT], last[MPIC_TEXT + 32u];
  const char *theirs = mpic_trace_text(comm, world_rank, last, sizeof last);
  snprintf(why, sizeof why, "the process of rank %u (pid %lld) has ended; its last call: %s", world_rank,
           (long long)comm->world->state->processes[world_rank].pid, theirs != NULL ? theirs : "not known");
  mpic_fail_world(comm->world, BS_RANK_FAILED, world_rank, 1, "BS-COLL-DEAD", why);
  return mpic_fail_told(comm, text, err);
}
