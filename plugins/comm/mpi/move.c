/* SPDX-License-Identifier: MIT
 *
 * move.c - collectives that only move data: all_gather, broadcast, all_to_all, barrier. Larger ones go in
 * pieces that fit a half of the staging; the number of pieces is the same on every rank.
 */
#include "mpi_comm.h"

mpic_matrix mpic_in(const bs_coll_call *call, uint64_t first, uint64_t cols) {
  const char *data = (const char *)call->in + (call->in != NULL ? first * BS_DTYPE_BYTES(call->dtype_in) : 0);
  mpic_matrix m = {(char *)(uintptr_t)data, call->in_stride, cols, call->dtype_in};
  return m;
}
mpic_matrix mpic_out(const bs_coll_call *call, uint64_t first, uint64_t cols) {
  mpic_matrix m = {(char *)call->out + (call->out != NULL ? first * BS_DTYPE_BYTES(call->dtype_out) : 0),
                   call->out_stride, cols, call->dtype_out};
  return m;
}

int mpic_dense(const mpic_matrix *matrix, uint64_t rows) {
  return rows <= 1 || matrix->stride == (int64_t)matrix->cols;
}

static char *element(const mpic_matrix *m, uint64_t at) {
  int64_t row = (int64_t)(at / m->cols), col = (int64_t)(at % m->cols);
  return m->data + (row * m->stride + col) * (int64_t)BS_DTYPE_BYTES(m->dtype);
}

void mpic_pack(const mpic_world *world, const mpic_matrix *from, uint64_t begin, uint64_t end, void *dense) {
  uint64_t size = BS_DTYPE_BYTES(from->dtype);
  char *to = dense;
  for (uint64_t at = begin; at < end;) {
    uint64_t n =
        from->stride == (int64_t)from->cols ? end - at : mpic_min(end - at, from->cols - at % from->cols);
    world->math.kernels.copy(to, element(from, at), n * size);
    to += n * size;
    at += n;
  }
}

int32_t mpic_unpack(const mpic_world *world, const mpic_matrix *to, uint64_t begin, uint64_t end,
                    uint32_t src_dtype, const void *dense) {
  const char *from = dense;
  for (uint64_t at = begin; at < end;) {
    uint64_t n = to->stride == (int64_t)to->cols ? end - at : mpic_min(end - at, to->cols - at % to->cols);
    int32_t rc = thr_convert(&world->math, to->dtype, element(to, at), src_dtype, from, n);
    if (rc != BS_OK) return rc;
    from += n * BS_DTYPE_BYTES(src_dtype);
    at += n;
  }
  return BS_OK;
}

static int32_t done(int32_t work, const bs_coll_call *call, bs_error *err) {
  if (work == BS_OK) return BS_OK;
  return bs_fail(err, work, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x", call->dtype_in,
                 call->dtype_out);
}

static int32_t gather(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), most = 0, piece = mpic_share_max(comm) / size;
  mpic_timer timer = mpic_timer_of(comm, call);
  int32_t work = BS_OK;
  for (uint32_t r = 0; r < comm->n; ++r)
    if (call->rows * call->counts[r] > most) most = call->rows * call->counts[r];
  mpic_matrix mine = mpic_in(call, 0, call->counts[comm->me]);
  uint64_t own = call->rows * call->counts[comm->me];
  uint64_t begin = 0;
  do { /* once at least: a gather of nothing is still a meeting */
    uint64_t end = mpic_min(begin + piece, most), first = 0;
    if (begin < own) mpic_pack(comm->world, &mine, begin, mpic_min(end, own), mpic_room(comm));
    int32_t rc = mpic_share(comm, call, (end - begin) * size, MPIC_NONE, &timer, err);
    if (rc != BS_OK) return rc;
    for (uint32_t r = 0; r < comm->n && work == BS_OK; first += call->counts[r++]) {
      mpic_matrix to = mpic_out(call, first, call->counts[r]);
      uint64_t all = call->rows * call->counts[r];
      if (begin >= all || (r == comm->me && call->in == (const void *)to.data)) continue;
      work = mpic_unpack(comm->world, &to, begin, mpic_min(end, all), call->dtype_in,
                         mpic_shared(comm, r, (end - begin) * size));
    }
    begin = end;
  } while (begin < most);
  return done(work, call, err);
}

static int32_t spread(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), all = call->rows * call->count;
  uint64_t piece = mpic_share_max(comm) / size, begin = 0;
  mpic_timer timer = mpic_timer_of(comm, call);
  mpic_matrix from = mpic_in(call, 0, call->count), to = mpic_out(call, 0, call->count);
  int root = call->root == comm->me;
  int32_t work = BS_OK;
  do {
    uint64_t end = mpic_min(begin + piece, all);
    if (root) mpic_pack(comm->world, &from, begin, end, mpic_room(comm));
    int32_t rc = mpic_share(comm, call, (end - begin) * size, call->root, &timer, err);
    if (rc != BS_OK) return rc;
    if (work == BS_OK && !(root && call->in == call->out))
      work = mpic_unpack(comm->world, &to, begin, end, call->dtype_in,
                         mpic_shared(comm, call->root, (end - begin) * size));
    begin = end;
  } while (begin < all);
  return done(work, call, err);
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
      char a[96], b[96];
      snprintf(a, sizeof a, "all_to_all at '%.40s' sending it %llu", call->site ? call->site : "",
               (unsigned long long)sent);
      snprintf(b, sizeof b, "all_to_all at '%.40s' expecting %llu", call->site ? call->site : "",
               (unsigned long long)expected);
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
      mpic_matrix from = mpic_in(call, first, call->counts[r]);
      uint64_t all = call->rows * call->counts[r];
      if (begin < all) mpic_pack(comm->world, &from, begin, mpic_min(end, all), room + r * area);
    }
    rc = mpic_meet(comm, call, &timer, err);
    if (rc == BS_OK && comm->machines > 1) rc = swap_far(comm, call, area, &timer, err);
    if (rc != BS_OK) return rc;
    first = 0;
    for (uint32_t r = 0; r < comm->n && work == BS_OK; first += call->recv_counts[r++]) {
      mpic_matrix to = mpic_out(call, first, call->recv_counts[r]);
      uint64_t all = call->rows * call->recv_counts[r];
      const unsigned char *from = comm->machine[r] == comm->here
                                      ? mpic_half(comm, comm->local[r]) + comm->me * area
                                      : far_in(comm, r, area) + MPIC_LINE;
      if (begin < all) work = mpic_unpack(comm->world, &to, begin, mpic_min(end, all), call->dtype_in, from);
    }
  }
  return done(work, call, err);
}

int32_t mpic_all_gather(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = mpic_enter(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, gather(comm, call, err));
}

int32_t mpic_broadcast(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  if (call->root >= comm->n)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-ROOT", "root %u of %u ranks", call->root, comm->n);
  int32_t rc = mpic_enter(comm, call, err);
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
