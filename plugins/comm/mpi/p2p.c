/* SPDX-License-Identifier: MIT
 *
 * p2p.c - send and recv by messages: the sender announces the call, the receiver answers whether it is in the
 * same, and the data follow in pieces.
 */
#include "mpi_comm.h"

enum { TAKE = 1, REFUSE = 2 };

static int32_t wait_for(mpic_comm *comm, MPI_Request *request, const bs_coll_call *call, mpic_timer *timer,
                        bs_error *err) {
  return mpic_wire_wait(comm, request, &call->root, 1, mpic_text(comm, call), timer, err);
}

static int32_t put(mpic_comm *comm, const bs_coll_call *call, unsigned char *buf, uint64_t bytes, int stream,
                   mpic_timer *timer, bs_error *err) {
  MPI_Request request;
  int32_t rc =
      mpic_isend(comm->world->state, buf, bytes, comm->ranks[call->root], comm->tag + stream, &request, err);
  return rc != BS_OK ? rc : wait_for(comm, &request, call, timer, err);
}

static int32_t get(mpic_comm *comm, const bs_coll_call *call, unsigned char *buf, uint64_t bytes, int stream,
                   mpic_timer *timer, bs_error *err) {
  MPI_Request request;
  int32_t rc =
      mpic_irecv(comm->world->state, buf, bytes, comm->ranks[call->root], comm->tag + stream, &request, err);
  return rc != BS_OK ? rc : wait_for(comm, &request, call, timer, err);
}

/* Both texts, the sender's first, whoever finds it. */
static int32_t refuse(mpic_comm *comm, const bs_coll_call *call, const mpic_line *other, int sending,
                      bs_error *err) {
  uint32_t me = comm->ranks[comm->me], peer = comm->ranks[call->root];
  const char *mine = mpic_text(comm, call);
  if (sending) return mpic_fail_mismatch(comm, me, mine, peer, other->text, err);
  return mpic_fail_mismatch(comm, peer, other->text, me, mine, err);
}

static mpic_line line_of(unsigned char *buf) {
  mpic_line line;
  memcpy(&line, buf, sizeof line);
  line.text[sizeof line.text - 1u] = '\0';
  return line;
}

static int32_t begin(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  const int32_t rc = comm_check_peer(comm->me, comm->n, call, err);
  return rc != BS_OK ? rc : mpic_enter(comm, call, err);
}

static int32_t deliver(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  mpic_timer timer = mpic_timer_of(comm, call);
  comm_matrix from = comm_in(call, 0, call->count);
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), n = call->rows * call->count, piece = comm->half / size;
  mpic_line_fill(comm, call, comm->out_buf, n * size);
  int32_t rc = put(comm, call, comm->out_buf, MPIC_LINE, MPIC_PAIR, &timer, err);
  if (rc == BS_OK) rc = get(comm, call, comm->in_buf, MPIC_LINE, MPIC_ANSWER, &timer, err);
  if (rc != BS_OK) return rc;
  mpic_line answer = line_of(comm->in_buf);
  if (answer.status != TAKE) return refuse(comm, call, &answer, 1, err);
  for (uint64_t at = 0; rc == BS_OK && at < n; at += piece) {
    uint64_t end = comm_min(at + piece, n);
    comm_pack(&comm->world->math, &from, at, end, comm->out_buf);
    rc = put(comm, call, comm->out_buf, (end - at) * size, MPIC_PAIR, &timer, err);
  }
  return rc;
}

static int32_t receive(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  mpic_timer timer = mpic_timer_of(comm, call);
  comm_matrix to = comm_out(call, 0, call->count);
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), n = call->rows * call->count, piece = comm->half / size;
  int32_t rc = get(comm, call, comm->in_buf, MPIC_LINE, MPIC_PAIR, &timer, err), work = BS_OK;
  if (rc != BS_OK) return rc;
  mpic_line theirs = line_of(comm->in_buf), mine;
  mpic_line_fill(comm, call, comm->out_buf, n * size);
  mine = line_of(comm->out_buf);
  mine.status = theirs.key == mine.key && theirs.bytes == mine.bytes ? TAKE : REFUSE;
  memcpy(comm->out_buf, &mine, sizeof mine);
  rc = put(comm, call, comm->out_buf, MPIC_LINE, MPIC_ANSWER, &timer, err);
  if (rc != BS_OK) return rc;
  if (mine.status != TAKE) return refuse(comm, call, &theirs, 0, err);
  for (uint64_t at = 0; rc == BS_OK && at < n; at += piece) {
    uint64_t end = comm_min(at + piece, n);
    rc = get(comm, call, comm->in_buf, (end - at) * size, MPIC_PAIR, &timer, err);
    if (rc == BS_OK && work == BS_OK)
      work = comm_unpack(&comm->world->math, &to, at, end, call->dtype_in, comm->in_buf);
  }
  return rc != BS_OK ? rc : comm_converted(work, call, err);
}

int32_t mpic_send(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = begin(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, deliver(comm, call, err));
}

int32_t mpic_recv(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = begin(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, receive(comm, call, err));
}
