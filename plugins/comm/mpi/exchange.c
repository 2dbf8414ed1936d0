/* SPDX-License-Identifier: MIT
 *
 * exchange.c - sends and receives that are in flight together. A sender starts two messages at the same time:
 * a line that describes the call, and the data. The receiver has posted receives for all lines. When a line
 * has arrived and matches the call, it posts the receive for the data. All messages use this plugin's memory.
 * While nothing moves, a rank checks for failures of other ranks and for processes that have ended. */
#include <stdlib.h>

#include "../common/site.h"
#include "mpi_comm.h"

#define NAP_NS 50000
#define MOST_BYTES (UINT64_C(1) << 30) /* of a message: MPI counts in int */

/* State of a transfer: its line comes first (COMM_NEW), then its data (COMM_MOVES). */
typedef struct parcel {
  _Alignas(64) MPI_Request line;
  MPI_Request data;
  uint64_t bytes;
  _Alignas(64) unsigned char at[]; /* MPIC_LINE bytes, then the data */
} parcel;

static bs_coll_call nameless(const bs_coll_call *call) {
  bs_coll_call c = *call;
  c.fingerprint = comm_site_key(call);
  return c;
}
static const char *text_of(mpic_comm *comm, const bs_coll_call *call) {
  const bs_coll_call c = nameless(call);
  return mpic_describe(comm, &c);
}

int32_t mpic_keep_room(mpic_comm *comm, uint64_t bytes, bs_error *err) {
  if (bytes > comm->exchange_bytes) { /* no request is open */
    free(comm->exchange_buf);
    comm->exchange_buf = aligned_alloc(64, (bytes + 63u) & ~UINT64_C(63));
    comm->exchange_bytes = comm->exchange_buf != NULL ? bytes : 0;
  }
  if (comm->exchange_buf != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %llu bytes of messages",
                 (unsigned long long)bytes);
}

void mpic_leave_room(mpic_comm *comm) {
  mpic_keep(comm->world->state, comm->exchange_buf);
  comm->exchange_buf = NULL;
  comm->exchange_bytes = 0;
}

static uint64_t bytes_of(const bs_coll_call *call) {
  return call->rows * call->count * BS_DTYPE_BYTES(call->dtype_in);
}

static uint64_t room_of(const bs_coll_call *call) {
  return sizeof(parcel) + MPIC_LINE + ((bytes_of(call) + 63u) & ~UINT64_C(63));
}

/* Room for all, and which call is where. */
static int32_t open_all(mpic_comm *comm, const bs_coll_call *const *calls, uint32_t n, bs_error *err) {
  uint64_t total = 0;
  int32_t rc = comm_transfers_open(&comm->transfers, calls, n, comm->me, comm->n, err);
  for (uint32_t i = 0; i < n && rc == BS_OK; total += room_of(calls[i++]))
    if (bytes_of(calls[i]) > MOST_BYTES)
      rc =
          bs_fail(err, BS_UNSUPPORTED, "BS-COLL-SIZE", "a message of %llu bytes; exchange sends %llu at most",
                  (unsigned long long)bytes_of(calls[i]), (unsigned long long)MOST_BYTES);
  if (rc == BS_OK) rc = mpic_keep_room(comm, total, err);
  if (rc != BS_OK) return rc;
  unsigned char *at = comm->exchange_buf;
  for (uint32_t i = 0; i < n; at += room_of(calls[i++])) {
    parcel *p = (parcel *)(void *)at;
    p->line = p->data = MPI_REQUEST_NULL;
    p->bytes = bytes_of(calls[i]);
    comm->transfers.all[i].link = p;
  }
  return BS_OK;
}

static int32_t start_send(mpic_comm *comm, comm_transfer *t, bs_error *err) {
  mpic_state *state = comm->world->state;
  const bs_coll_call *c = t->call;
  const uint32_t peer = comm->ranks[c->root];
  const comm_matrix from = comm_in(c, 0, c->count);
  parcel *p = t->link;
  mpic_line line;
  memset(&line, 0, sizeof line);
  line.key = t->key;
  line.bytes = p->bytes;
  line.rank = comm->ranks[comm->me];
  snprintf(line.text, sizeof line.text, "%s", text_of(comm, c));
  memcpy(p->at, &line, sizeof line);
  comm_pack(&comm->world->math, &from, 0, c->rows * c->count, p->at + MPIC_LINE);
  t->state = COMM_MOVES;
  int32_t rc = mpic_isend(state, p->at, MPIC_LINE, peer, comm->tag + MPIC_XLINE, &p->line, err);
  if (rc == BS_OK && p->bytes > 0)
    rc = mpic_isend(state, p->at + MPIC_LINE, p->bytes, peer, comm->tag + MPIC_XDATA, &p->data, err);
  return rc;
}

static int32_t start_all(mpic_comm *comm, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < comm->transfers.n && rc == BS_OK; ++i) {
    comm_transfer *t = &comm->transfers.all[i];
    parcel *p = t->link;
    if (t->call->kind == BS_COLL_SEND)
      rc = start_send(comm, t, err);
    else
      rc = mpic_irecv(comm->world->state, p->at, MPIC_LINE, comm->ranks[t->call->root],
                      comm->tag + MPIC_XLINE, &p->line, err);
  }
  return rc;
}

/* Data are asked for in the order in which they were sent. */
static int32_t take_line(mpic_comm *comm, comm_transfer *t, bs_error *err) {
  mpic_line line;
  parcel *p = t->link;
  const uint32_t me = comm->ranks[comm->me], peer = comm->ranks[t->call->root];
  memcpy(&line, p->at, sizeof line);
  line.text[sizeof line.text - 1u] = '\0';
  if (line.key != t->key || line.bytes != p->bytes)
    return mpic_fail_mismatch(comm, peer, line.text, me, text_of(comm, t->call), err);
  t->state = COMM_MOVES;
  if (p->bytes == 0) return BS_OK;
  return mpic_irecv(comm->world->state, p->at + MPIC_LINE, p->bytes, peer, comm->tag + MPIC_XDATA, &p->data,
                    err);
}

static int32_t finish(mpic_comm *comm, comm_transfer *t, bs_error *err) {
  const bs_coll_call *c = t->call;
  const parcel *p = t->link;
  t->state = COMM_DONE;
  if (c->kind == BS_COLL_SEND) return BS_OK;
  const comm_matrix to = comm_out(c, 0, c->count);
  const int32_t work =
      comm_unpack(&comm->world->math, &to, 0, c->rows * c->count, c->dtype_in, p->at + MPIC_LINE);
  return comm_converted(work, c, err);
}

static int move(void *comm_ptr, comm_transfer *t, int32_t *rc, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  mpic_state *state = comm->world->state;
  parcel *p = t->link;
  const int lined = t->state == COMM_NEW && mpic_test_one(state, &p->line);
  if (lined) *rc = take_line(comm, t, err);
  const int sends = t->call->kind == BS_COLL_SEND;
  if (*rc != BS_OK || t->state != COMM_MOVES || !mpic_test_one(state, &p->data) ||
      (sends && !mpic_test_one(state, &p->line)))
    return lined;
  *rc = finish(comm, t, err);
  return 1;
}

static int32_t look(void *comm_ptr, int64_t *ns) {
  mpic_comm *comm = comm_ptr;
  *ns = NAP_NS;
  mpic_listen(comm->world->state);
  if (mpic_failed(comm->world)) return BS_ABORTED;
  comm->dead = mpic_dead(comm->world->state, 0, MPIC_NONE);
  return comm->dead != MPIC_NONE && !mpic_failed(comm->world) ? BS_RANK_FAILED : BS_OK;
}

static int32_t fail(void *comm_ptr, const comm_transfer *t, int32_t why, int64_t timeout_ns, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  char last[MPIC_TEXT + 32u], missing[320];
  const char *text = text_of(comm, comm->transfers.all[0].call);
  if (why == BS_ABORTED) return mpic_fail_told(comm, text, err);
  if (why == BS_RANK_FAILED) return mpic_fail_dead(comm, comm->dead, text, err);
  const uint32_t rank = comm->ranks[t->call->root];
  const char *theirs = mpic_trace_text(comm, rank, last, sizeof last);
  snprintf(missing, sizeof missing, "rank %u (%s%s)", rank,
           theirs != NULL ? "last call: " : "on another machine", theirs != NULL ? theirs : "");
  return mpic_fail_deadline(comm, text, missing, timeout_ns, err);
}

int32_t mpic_exchange(void *comm_ptr, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  if (ncalls == 0) return BS_OK;
  int32_t rc = open_all(comm, calls, ncalls, err);
  if (rc != BS_OK) return rc;
  const bs_coll_call first = nameless(calls[0]);
  rc = mpic_enter(comm, &first, err);
  if (rc != BS_OK) return rc;
  const comm_mover mover = {.comm = comm,
                            .move = move,
                            .look = look,
                            .fail = fail,
                            .passes = COMM_MOVES,
                            .failed = &comm->world->all->seg.failure->failed,
                            .patient = comm_caller_may_spin(&comm->caller),
                            .spin_ns = comm->world->spin_ns,
                            .timeout_ns = mpic_timer_of(comm, calls[0]).timeout_ns};
  rc = start_all(comm, err);
  if (rc == BS_OK) rc = comm_transfers_run(&comm->transfers, &mover, err);
  if (rc != BS_OK) mpic_leave_room(comm); /* MPI may still touch it */
  return mpic_exit(comm, rc);
}
