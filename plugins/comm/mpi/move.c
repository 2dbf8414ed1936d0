/* SPDX-License-Identifier: MIT
 *
 * move.c - collectives that only move data: all_gather, broadcast, all_to_all, barrier. Larger ones go in
 * pieces that fit a half of the staging; the number of pieces is the same on every rank.
 */
#include "mpi_comm.h"

int mpic_dense(const comm_matrix *matrix, uint64_t rows) {
  return rows <= 1 || matrix->stride == (int64_t)matrix->cols;
}

static int32_t gather(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), most = 0, piece = mpic_share_max(comm) / size;
  mpic_timer timer = mpic_timer_of(comm, call);
  int32_t work = BS_OK;
  for (uint32_t r = 0; r < comm->n; ++r)
    if (call->rows * call->counts[r] > most) most = call->rows * call->counts[r];
  comm_matrix mine = comm_in(call, 0, call->counts[comm->me]);
  uint64_t own = call->rows * call->counts[comm->me];
  uint64_t begin = 0;
  do { /* once at least: a gather of nothing is still a meeting */
    uint64_t end = comm_min(begin + piece, most), first = 0;
    if (begin < own) comm_pack(&comm->world->math, &mine, begin, comm_min(end, own), mpic_room(comm));
    int32_t rc = mpic_share(comm, call, (end - begin) * size, MPIC_NONE, &timer, err);
    if (rc != BS_OK) return rc;
    for (uint32_t r = 0; r < comm->n && work == BS_OK; first += call->counts[r++]) {
      comm_matrix to = comm_out(call, first, call->counts[r]);
      uint64_t all = call->rows * call->counts[r];
      if (begin >= all || (r == comm->me && call->in == (const void *)to.data)) continue;
      work = comm_unpack(&comm->world->math, &to, begin, comm_min(end, all), call->dtype_in,
                         mpic_shared(comm, r, (end - begin) * size));
    }
    begin = end;
  } while (begin < most);
  return comm_converted(work, call, err);
}

static int32_t spread(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), all = call->rows * call->count;
  uint64_t piece = mpic_share_max(comm) / size, begin = 0;
  mpic_timer timer = mpic_timer_of(comm, call);
  comm_matrix from = comm_in(call, 0, call->count), to = comm_out(call, 0, call->count);
  int root = call->root == comm->me;
  int32_t work = BS_OK;
  do {
    uint64_t end = comm_min(begin + piece, all);
    if (root) comm_pack(&comm->world->math, &from, begin, end, mpic_room(comm));
    int32_t rc = mpic_share(comm, call, (end - begin) * size, call->root, &timer, err);
    if (rc != BS_OK) return rc;
    if (work == BS_OK && !(root && call->in == call->out))
      work = comm_unpack(&comm->world->math, &to, begin, end, call->dtype_in,
                         mpic_shared(comm, call->root, (end - begin) * size));
    begin = end;
  } while (begin < all);
  return comm_converted(work, call, err);
}

/* Every pair must agree: all see all counts, so that all come to the same answer. most: the largest block. */
static int32_t agree(mpic_comm *comm, const bs_coll_call *call, mpic_timer *timer, uint64_t *most,
                     bs_error *err) {
  uint64_t bytes = 2u * (uint64_t)comm->n * sizeof(uint64_t);
  if (bytes > mpic_share_max(comm))
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-WORLD", "all_to_all of %u ranks needs a larger stage_kib",
                   comm->n);
  unsigned char *room = mpic_room(comm);
  memcpy(room, call->counts, bytes / 2u);
  memcpy(room + bytes / 2u, call->recv_counts, bytes / 2u);
  int32_t rc = mpic_share(comm, call, bytes, MPIC_NONE, timer, err);
  *most = 0;
  for (uint32_t from = 0; rc == BS_OK && from < comm->n; ++from) {
    for (uint32_t to = 0; to < comm->n; ++to) {
      uint64_t sent, expected;
      memcpy(&sent, mpic_shared(comm, from, bytes) + to * sizeof sent, sizeof sent);
      memcpy(&expected, mpic_shared(comm, to, bytes) + (comm->n + from) * sizeof expected, sizeof expected);
      if (sent > *most) *most = sent;
      if (sent == expected) continue;
      char a[COMM_PAIR_TEXT], b[COMM_PAIR_TEXT];
      comm_pair_texts(call, sent, expected, a, b);
      return mpic_fail_mismatch(comm, comm->ranks[from], a, comm->ranks[to], b, err);
    }
  }
  return rc;
}

static unsigned char *far_in(const mpic_comm *comm, uint32_t member, uint64_t area) {
  return comm->in_buf + member * (MPIC_LINE + area);
}

/* My blocks for ranks of other machines, and theirs for me. */
static int32_t swap_far(mpic_comm *comm, const bs_coll_call *call, uint64_t area, mpic_timer *timer,
                        bs_error *err) {
  mpic_state *state = comm->world->state;
  for (uint32_t step = 1; step < comm->n; ++step) { /* in step i with the ranks i before and behind me */
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
      rc = mpic_wire_wait(comm, requests, peers, n, mpic_text(comm, call), timer, err);
    if (rc == BS_OK && receives) rc = mpic_line_check(comm, call, far_in(comm, from, area), area, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* A piece of each block lies in its own area of the half. */
static int32_t exchange(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), most = 0;
  uint64_t area = comm->half / comm->n / 64u * 64u;
  mpic_timer timer = mpic_timer_of(comm, call);
  int32_t work = BS_OK, rc = agree(comm, call, &timer, &most, err);
  if (rc != BS_OK) return rc;
  for (uint64_t begin = 0; begin < call->rows * most; begin += area / size) {
    uint64_t end = begin + area / size, first = 0;
    unsigned char *room = mpic_room(comm);
    for (uint32_t r = 0; r < comm->n; first += call->counts[r++]) {
      comm_matrix from = comm_in(call, first, call->counts[r]);
      uint64_t all = call->rows * call->counts[r];
      if (begin < all) comm_pack(&comm->world->math, &from, begin, comm_min(end, all), room + r * area);
    }
    rc = mpic_meet(comm, call, &timer, err);
    if (rc == BS_OK && comm->machines > 1) rc = swap_far(comm, call, area, &timer, err);
    if (rc != BS_OK) return rc;
    first = 0;
    for (uint32_t r = 0; r < comm->n && work == BS_OK; first += call->recv_counts[r++]) {
      comm_matrix to = comm_out(call, first, call->recv_counts[r]);
      uint64_t all = call->rows * call->recv_counts[r];
      const unsigned char *from = comm->machine[r] == comm->here
                                      ? mpic_half(comm, comm->local[r]) + comm->me * area
                                      : far_in(comm, r, area) + MPIC_LINE;
      if (begin < all)
        work = comm_unpack(&comm->world->math, &to, begin, comm_min(end, all), call->dtype_in, from);
    }
  }
  return comm_converted(work, call, err);
}

int32_t mpic_all_gather(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = mpic_enter(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, gather(comm, call, err));
}

int32_t mpic_broadcast(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = comm_check_root(comm->n, call, err);
  if (rc == BS_OK) rc = mpic_enter(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, spread(comm, call, err));
}

int32_t mpic_all_to_all(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = mpic_enter(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, exchange(comm, call, err));
}

int32_t mpic_barrier(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  mpic_timer timer = mpic_timer_of(comm, call);
  int32_t rc = mpic_enter(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, mpic_share(comm, call, 0, MPIC_NONE, &timer, err));
}
