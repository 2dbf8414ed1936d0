/* SPDX-License-Identifier: MIT
 *
 * move.c - collectives that only move data: all_gather, broadcast, all_to_all, barrier. Each piece is put
 * into the buffers of those who have something to give; after one meeting all take what is theirs.
 */
#include "shm.h"

static char *column(const bs_coll_call *call, uint64_t first) {
  return (char *)call->out + first * BS_DTYPE_BYTES(call->dtype_out);
}

/* One piece of everybody's block: elements from `begin` on, at most `room`. */
static int32_t gather_piece(shm_comm *comm, const bs_coll_call *call, uint64_t begin, uint64_t room) {
  int32_t work = BS_OK;
  uint64_t first = 0;
  for (uint32_t r = 0; r < comm->area->n && work == BS_OK; ++r) {
    const uint64_t n = call->counts[r], end = comm_min(begin + room, call->rows * n);
    const comm_matrix to = comm_out(call, first, n);
    const int own = r == comm->me && call->in == (const void *)to.data;
    if (!own && begin < end)
      work = comm_unpack(shm_math(comm), &to, begin, end, call->dtype_in, shm_buffer(comm, r, 0));
    first += n;
  }
  return work;
}

int32_t shm_all_gather(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const uint64_t room = SHM_PIECE / BS_DTYPE_BYTES(call->dtype_in), mine = call->counts[comm->me];
  const comm_matrix from = comm_in(call, 0, mine);
  uint64_t largest = 0, begin = 0;
  int32_t rc = shm_begin(comm, call, err), work = BS_OK;
  for (uint32_t r = 0; r < comm->area->n; ++r)
    if (call->counts[r] > largest) largest = call->counts[r];
  if (rc != BS_OK) return rc;
  do {
    const uint64_t end = comm_min(begin + room, call->rows * mine);
    if (begin < end) comm_pack(shm_math(comm), &from, begin, end, shm_buffer(comm, comm->me, 0));
    rc = shm_meet(comm, call, begin == 0, err);
    if (rc == BS_OK && work == BS_OK) work = gather_piece(comm, call, begin, room);
    comm->piece++;
    begin += room;
  } while (rc == BS_OK && begin < call->rows * largest);
  if (rc != BS_OK) return rc;
  shm_end(comm);
  return comm_converted(work, call, err);
}

int32_t shm_broadcast(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const uint64_t room = SHM_PIECE / BS_DTYPE_BYTES(call->dtype_in), n = call->rows * call->count;
  const comm_matrix from = comm_in(call, 0, call->count), to = comm_out(call, 0, call->count);
  const int root = call->root == comm->me;
  uint64_t begin = 0;
  int32_t rc = comm_check_root(comm->area->n, call, err), work = BS_OK;
  if (rc == BS_OK) rc = shm_begin(comm, call, err);
  if (rc != BS_OK) return rc;
  do {
    const uint64_t end = comm_min(begin + room, n);
    if (root && begin < end) comm_pack(shm_math(comm), &from, begin, end, shm_buffer(comm, comm->me, 0));
    rc = shm_meet(comm, call, begin == 0, err);
    if (rc == BS_OK && work == BS_OK && begin < end && !(root && call->in == call->out))
      work = comm_unpack(shm_math(comm), &to, begin, end, call->dtype_in, shm_buffer(comm, call->root, 0));
    comm->piece++;
    begin += room;
  } while (rc == BS_OK && begin < n);
  if (rc != BS_OK) return rc;
  shm_end(comm);
  return comm_converted(work, call, err);
}

/* ---- all_to_all ----------------------------------------------------------------------------- */

static uint64_t *counts_of(const shm_comm *comm, uint32_t r) {
  return shm_slot_of(comm, r)->counts[comm->op & 1u];
}

/* Every pair must agree; each rank looks at all pairs, so all come to the same answer. */
static int32_t check_pairs(shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  const shm_area *area = comm->area;
  for (uint32_t from = 0; from < area->n; ++from) {
    for (uint32_t to = 0; to < area->n; ++to) {
      const uint64_t sent = counts_of(comm, from)[to], expected = counts_of(comm, to)[SHM_MAX_RANKS + from];
      if (sent == expected) continue;
      char a[COMM_PAIR_TEXT], b[COMM_PAIR_TEXT];
      comm_pair_texts(call, sent, expected, a, b);
      return shm_fail_mismatch(comm, area->ranks[from], a, area->ranks[to], b, err);
    }
  }
  return BS_OK;
}

/* Of rank r's input, elements [begin, end) of the flattened matrix lie in its buffer: take those of my block.
 */
static int32_t take_block(shm_comm *comm, const bs_coll_call *call, uint32_t r, uint64_t begin, uint64_t end,
                          uint64_t out_col) {
  const uint64_t *counts = counts_of(comm, r), size = BS_DTYPE_BYTES(call->dtype_in);
  uint64_t first = 0, width = 0;
  int32_t work = BS_OK;
  for (uint32_t to = 0; to < comm->area->n; ++to) {
    if (to < comm->me) first += counts[to];
    width += counts[to];
  }
  const uint64_t n = counts[comm->me];
  if (n == 0 || begin >= end) return BS_OK;
  for (uint64_t row = begin / width; work == BS_OK && row * width < end; ++row) {
    const uint64_t from = row * width + first, to = from + n;
    const uint64_t a = from > begin ? from : begin, b = comm_min(to, end);
    if (a >= b) continue;
    char *out = column(call, out_col + (a - from)) +
                (int64_t)row * call->out_stride * (int64_t)BS_DTYPE_BYTES(call->dtype_out);
    work = thr_convert(shm_math(comm), call->dtype_out, out, call->dtype_in,
                       shm_buffer(comm, r, 0) + (a - begin) * size, b - a);
  }
  return work;
}

static int32_t exchange(shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  const uint64_t room = SHM_PIECE / BS_DTYPE_BYTES(call->dtype_in);
  uint64_t widest = 0, width = 0, own = 0, total[SHM_MAX_RANKS] = {0};
  int32_t rc = BS_OK, work = BS_OK;
  for (uint32_t r = 0; r < comm->area->n; ++r) {
    total[r] = 0;
    for (uint32_t to = 0; to < comm->area->n; ++to) total[r] += counts_of(comm, r)[to];
    if (r == comm->me) width = total[r];
    total[r] *= call->rows;
    if (r == comm->me) own = total[r];
    if (total[r] > widest) widest = total[r];
  }
  const comm_matrix from = comm_in(call, 0, width);
  for (uint64_t begin = 0; rc == BS_OK && begin < widest; begin += room) {
    const uint64_t mine = comm_min(begin + room, own);
    if (begin < mine) comm_pack(shm_math(comm), &from, begin, mine, shm_buffer(comm, comm->me, 0));
    rc = shm_meet(comm, call, 0, err);
    uint64_t out_col = 0;
    for (uint32_t r = 0; rc == BS_OK && work == BS_OK && r < comm->area->n; ++r) {
      work = take_block(comm, call, r, begin, comm_min(begin + room, total[r]), out_col);
      out_col += call->recv_counts[r];
    }
    comm->piece++;
  }
  return rc != BS_OK ? rc : comm_converted(work, call, err);
}

int32_t shm_all_to_all(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  int32_t rc = shm_begin(comm, call, err);
  if (rc != BS_OK) return rc;
  memcpy(counts_of(comm, comm->me), call->counts, comm->area->n * sizeof *call->counts);
  memcpy(counts_of(comm, comm->me) + SHM_MAX_RANKS, call->recv_counts,
         comm->area->n * sizeof *call->recv_counts);
  rc = shm_meet(comm, call, 1, err);
  if (rc == BS_OK) rc = check_pairs(comm, call, err);
  if (rc == BS_OK) rc = exchange(comm, call, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}

int32_t shm_barrier(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  int32_t rc = shm_begin(comm, call, err);
  if (rc == BS_OK) rc = shm_meet(comm, call, 1, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}
