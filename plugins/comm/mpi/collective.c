/* SPDX-License-Identifier: MIT
 *
 * collective.c - the collectives: those of ../common/stage.h, over the halves of a machine's ranks, and what
 * crosses machines.
 */
#include "mpi_comm.h"

static unsigned char *room(void *comm) {
  return mpic_room(comm);
}

static int32_t meet(void *comm_ptr, const bs_coll_call *call, comm_shown *out, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  const int32_t rc = mpic_meet(comm, call, &comm->timer, err);
  *out = (comm_shown){mpic_half(comm, 0), 2u * comm->half};
  return rc;
}

static int32_t mismatch(void *comm_ptr, uint32_t member_a, const char *a, uint32_t member_b, const char *b,
                        bs_error *err) {
  mpic_comm *comm = comm_ptr;
  return mpic_fail_mismatch(comm, comm->ranks[member_a], a, comm->ranks[member_b], b, err);
}

/* ---- between machines ----------------------------------------------------------------------- */

static int32_t share(void *comm_ptr, const bs_coll_call *call, uint64_t bytes, uint32_t root, comm_shown *out,
                     bs_error *err) {
  mpic_comm *comm = comm_ptr;
  const int32_t rc = mpic_share(comm, call, bytes, root, &comm->timer, err);
  *out = (comm_shown){mpic_far(comm, comm->pos), bytes};
  return rc;
}

static int32_t chain(void *comm_ptr, const bs_coll_call *call, uint64_t offset, uint64_t n, void *result,
                     bs_error *err) {
  mpic_comm *comm = comm_ptr;
  return mpic_chain(comm, call, offset, n, result, MPIC_NONE, &comm->timer, err);
}

/* Each lane of a machine has the blocks of the ranks whose number it is. */
static int32_t chain_areas(void *comm_ptr, const bs_coll_call *call, uint64_t begin, uint64_t end,
                           uint64_t area, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  uint32_t lane = comm->local[comm->me];
  unsigned char *to = mpic_room(comm);
  int32_t rc = BS_OK;
  for (uint32_t r = lane; rc == BS_OK && lane < comm->leaders && r < comm->n; r += comm->leaders) {
    uint64_t all = call->rows * call->counts[r];
    if (begin >= all) continue;
    uint64_t n = comm_min(end, all) - begin;
    rc = mpic_chain(comm, call, r * area, n, to + r * area, comm->machine[r], &comm->timer, err);
  }
  return rc;
}

static unsigned char *far_in(const mpic_comm *comm, uint32_t member, uint64_t area) {
  return comm->in_buf + member * (MPIC_LINE + area);
}

/* My blocks for ranks of other machines, and theirs for me. */
static int32_t swap(void *comm_ptr, const bs_coll_call *call, uint64_t area, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  mpic_state *state = comm->world->state;
  for (uint32_t step = 1; step < comm->n; ++step) { /* in step i exchange with the ranks i after and i before
                                                     * me */
    uint32_t to = (comm->me + step) % comm->n, from = (comm->me + comm->n - step) % comm->n, n = 0, peers[2];
    MPI_Request requests[2];
    int32_t rc = BS_OK;
    int receives = comm->machine[from] != comm->here;
    if (receives) {
      peers[n] = from;
      rc = mpic_irecv(state, far_in(comm, from, area), MPIC_LINE + area, comm->ranks[from],
                      comm->tag + MPIC_COLLECTIVE, &requests[n++], err);
    }
    if (rc == BS_OK && comm->machine[to] != comm->here) {
      mpic_line_fill(comm, call, comm->out_buf, area);
      memcpy(comm->out_buf + MPIC_LINE, mpic_half(comm, comm->local[comm->me]) + to * area, area);
      peers[n] = to;
      rc = mpic_isend(state, comm->out_buf, MPIC_LINE + area, comm->ranks[to], comm->tag + MPIC_COLLECTIVE,
                      &requests[n++], err);
    }
    if (rc == BS_OK && n > 0)
      rc = mpic_wire_wait(comm, requests, peers, n, mpic_text(comm, call), &comm->timer, err);
    if (rc == BS_OK && receives) rc = mpic_line_check(comm, call, far_in(comm, from, area), area, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static const unsigned char *block(void *comm_ptr, uint32_t r, uint64_t area) {
  const mpic_comm *comm = comm_ptr;
  if (comm->machine[r] == comm->here) return mpic_half(comm, comm->local[r]) + comm->me * area;
  return far_in(comm, r, area) + MPIC_LINE;
}

/* ---- all of them ---------------------------------------------------------------------------- */

int32_t mpic_collective(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  const comm_far far = {.lanes = comm->leaders,
                        .lane = comm->local[comm->me],
                        .share = share,
                        .chain = chain,
                        .chain_areas = chain_areas,
                        .swap = swap,
                        .block = block};
  const comm_stage stage = {
      .comm = comm,
      .math = &comm->world->math,
      .n = comm->n,
      .me = comm->me,
      .half = comm->half,
      .part = comm->machines == 1 ? comm->half : comm->half / comm->n / 64u * 64u,
      .inline_max = comm->world->inline_max,
      .room = room,
      .meet = meet,
      .mismatch = mismatch,
      .far = comm->machines == 1 ? NULL : &far,
  };
  int32_t rc = comm_stage_check(&stage, call, err);
  if (rc == BS_OK) rc = mpic_enter(comm, call, err);
  if (rc != BS_OK) return rc;
  comm->timer = mpic_timer_of(comm, call);
  if (call->kind == BS_COLL_ALL_REDUCE && mpic_native_serves(comm, call))
    return mpic_exit(comm, mpic_native_all_reduce(comm, call, err));
  return mpic_exit(comm, comm_stage_run(&stage, call, err));
}
