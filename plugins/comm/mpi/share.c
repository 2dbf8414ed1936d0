/* SPDX-License-Identifier: MIT
 *
 * share.c - every rank's small part made visible to all: within a machine by one round; between machines the
 * first rank of each sends what its machine has to the first of every other, and a second round shows it.
 */
#include "mpi_comm.h"

#define MAX_MACHINES 1024u /* requests on the stack: 8 KiB */

/* Bytes that a machine contributes. */
static uint64_t of_machine(const mpic_comm *comm, uint32_t machine, uint64_t bytes, uint32_t root) {
  if (root == MPIC_NONE) return (comm->starts[machine + 1u] - comm->starts[machine]) * bytes;
  return comm->machine[root] == machine ? bytes : 0;
}

/* Copies the data of my machine's ranks to their places in the next half; and packed to `out`. */
static void collect(const mpic_comm *comm, uint64_t bytes, uint32_t root, unsigned char *out) {
  unsigned char *far = mpic_far(comm, comm->pos + 1u);
  for (uint32_t i = 0; i < comm->nlocal; ++i) {
    uint32_t member = mpic_member(comm, comm->here, i);
    if (root != MPIC_NONE && member != root) continue;
    memcpy(far + member * bytes, mpic_half(comm, i), bytes);
    memcpy(out, mpic_half(comm, i), bytes);
    out += bytes;
  }
}

static void place(const mpic_comm *comm, uint32_t machine, uint64_t bytes, uint32_t root,
                  const unsigned char *in) {
  unsigned char *far = mpic_far(comm, comm->pos + 1u);
  for (uint32_t i = comm->starts[machine]; i < comm->starts[machine + 1u]; ++i) {
    uint32_t member = comm->members[i];
    if (root != MPIC_NONE && member != root) continue;
    memcpy(far + member * bytes, in, bytes);
    in += bytes;
  }
}

static unsigned char *in_of(const mpic_comm *comm, uint32_t machine) {
  return comm->in_buf + machine * (MPIC_LINE + comm->half);
}

/* The first rank of a machine: to and from the first of every other. */
static int32_t cross(mpic_comm *comm, const bs_coll_call *call, uint64_t bytes, uint32_t root,
                     mpic_timer *timer, bs_error *err) {
  MPI_Request requests[2u * MAX_MACHINES];
  uint32_t peers[2u * MAX_MACHINES], n = 0;
  mpic_state *state = comm->world->state;
  int tag = comm->tag + MPIC_COLLECTIVE;
  int32_t rc = BS_OK;
  uint64_t mine = of_machine(comm, comm->here, bytes, root);
  collect(comm, bytes, root, comm->out_buf + MPIC_LINE);
  mpic_line_fill(comm, call, comm->out_buf, mine);
  for (uint32_t m = 0; rc == BS_OK && m < comm->machines; ++m) {
    if (m == comm->here) continue;
    uint32_t peer = mpic_member(comm, m, 0);
    peers[n] = peer;
    rc = mpic_irecv(state, in_of(comm, m), MPIC_LINE + comm->half, comm->ranks[peer], tag, &requests[n], err);
    if (rc != BS_OK) break;
    peers[++n] = peer;
    rc = mpic_isend(state, comm->out_buf, MPIC_LINE + mine, comm->ranks[peer], tag, &requests[n], err);
    ++n;
  }
  if (rc == BS_OK) rc = mpic_wire_wait(comm, requests, peers, n, mpic_text(comm, call), timer, err);
  for (uint32_t m = 0; rc == BS_OK && m < comm->machines; ++m) {
    if (m == comm->here) continue;
    rc = mpic_line_check(comm, call, in_of(comm, m), of_machine(comm, m, bytes, root), err);
    if (rc == BS_OK) place(comm, m, bytes, root, in_of(comm, m) + MPIC_LINE);
  }
  return rc;
}

int32_t mpic_share(mpic_comm *comm, const bs_coll_call *call, uint64_t bytes, uint32_t root,
                   mpic_timer *timer, bs_error *err) {
  int32_t rc = mpic_meet(comm, call, timer, err);
  if (rc != BS_OK) return rc;
  if (comm->machines > MAX_MACHINES)
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-WORLD", "mpi serves up to %u machines, not %u", MAX_MACHINES,
                   comm->machines);
  if (comm->local[comm->me] == 0) rc = cross(comm, call, bytes, root, timer, err);
  return rc != BS_OK ? rc : mpic_meet(comm, call, timer, err);
}
