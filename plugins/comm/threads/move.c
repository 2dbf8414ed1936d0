/* SPDX-License-Identifier: MIT
 *
 * move.c - collectives that only move data: all_gather, broadcast, all_to_all, barrier. Each rank reads
 * what it wants from where it lies; small gathers and broadcasts travel in the slots.
 */
#include "threads.h"

static char *column(const bs_coll_call *call, uint64_t first) {
  return (char *)call->out + first * BS_DTYPE_BYTES(call->dtype_out);
}

int32_t thr_all_gather(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  const thr_world *world = comm->world;
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), largest = 0, first = 0;
  thr_header *h;
  int32_t rc = thr_begin(comm, call, &h, err), work = BS_OK;
  if (rc != BS_OK) return rc;
  for (uint32_t r = 0; r < comm->group->n; ++r)
    if (call->counts[r] > largest) largest = call->counts[r];
  uint64_t bytes = call->rows * largest * size;
  int small = bytes <= world->inline_max;
  uint64_t mine = call->counts[comm->me];
  if (small)
    thr_copy_rows(world, call->dtype_in, thr_inline(comm, comm->me, bytes), (int64_t)mine, call->dtype_in,
                  call->in, call->in_stride, call->rows, mine);
  else
    thr_set_data(h, call);
  rc = thr_meet(comm, call, !small, err);
  if (rc != BS_OK) return rc;
  for (uint32_t r = 0; r < comm->group->n && work == BS_OK; ++r) {
    uint64_t n = call->counts[r];
    if (n == 0) continue;
    const void *from = small ? thr_inline(comm, r, bytes) : thr_peer(comm, r)->in;
    int64_t stride = small ? (int64_t)n : thr_peer(comm, r)->in_stride;
    int own = r == comm->me && call->in == (const void *)column(call, first);
    if (!own)
      work = thr_copy_rows(world, call->dtype_out, column(call, first), call->out_stride, call->dtype_in,
                           from, stride, call->rows, n);
    first += n;
  }
  if (!small) rc = thr_part(comm, call, err);
  return rc != BS_OK ? rc : comm_converted(work, call, err);
}

int32_t thr_broadcast(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  const thr_world *world = comm->world;
  uint64_t bytes = call->rows * call->count * BS_DTYPE_BYTES(call->dtype_in);
  int small = bytes <= world->inline_max;
  thr_header *h;
  int32_t rc = comm_check_root(comm->group->n, call, err), work = BS_OK;
  if (rc == BS_OK) rc = thr_begin(comm, call, &h, err);
  if (rc != BS_OK) return rc;
  int root = call->root == comm->me;
  if (small && root)
    thr_copy_rows(world, call->dtype_in, thr_inline(comm, comm->me, bytes), (int64_t)call->count,
                  call->dtype_in, call->in, call->in_stride, call->rows, call->count);
  if (!small) thr_set_data(h, call);
  rc = thr_meet(comm, call, !small, err);
  if (rc != BS_OK) return rc;
  const void *from = small ? thr_inline(comm, call->root, bytes) : thr_peer(comm, call->root)->in;
  int64_t stride = small ? (int64_t)call->count : thr_peer(comm, call->root)->in_stride;
  if (!(root && call->in == call->out))
    work = thr_copy_rows(world, call->dtype_out, call->out, call->out_stride, call->dtype_in, from, stride,
                         call->rows, call->count);
  if (!small) rc = thr_part(comm, call, err);
  return rc != BS_OK ? rc : comm_converted(work, call, err);
}

/* Every pair must agree; each rank looks at all pairs, so all come to the same answer. */
static int32_t check_pairs(thr_comm *comm, const bs_coll_call *call, bs_error *err) {
  const thr_group *group = comm->group;
  for (uint32_t from = 0; from < group->n; ++from) {
    for (uint32_t to = 0; to < group->n; ++to) {
      uint64_t sent = thr_peer(comm, from)->counts[to];
      uint64_t expected = thr_peer(comm, to)->recv_counts[from];
      if (sent == expected) continue;
      char a[COMM_PAIR_TEXT], b[COMM_PAIR_TEXT];
      comm_pair_texts(call, sent, expected, a, b);
      return thr_fail_mismatch(comm, group->ranks[from], a, group->ranks[to], b, err);
    }
  }
  return BS_OK;
}

int32_t thr_all_to_all(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in), first = 0;
  thr_header *h;
  int32_t rc = thr_begin(comm, call, &h, err), work = BS_OK, pairs = BS_OK;
  if (rc != BS_OK) return rc;
  thr_set_data(h, call);
  rc = thr_meet(comm, call, 1, err);
  if (rc != BS_OK) return rc;
  pairs = check_pairs(comm, call, err);
  for (uint32_t r = 0; r < comm->group->n && work == BS_OK && pairs == BS_OK; ++r) {
    const thr_header *peer = thr_peer(comm, r);
    uint64_t at = 0;
    if (call->recv_counts[r] == 0) continue;
    for (uint32_t to = 0; to < comm->me; ++to) at += peer->counts[to];
    work = thr_copy_rows(comm->world, call->dtype_out, column(call, first), call->out_stride, call->dtype_in,
                         (const char *)peer->in + at * size, peer->in_stride, call->rows,
                         peer->counts[comm->me]);
    first += call->recv_counts[r];
  }
  rc = thr_part(comm, call, pairs == BS_OK ? err : NULL);
  if (pairs != BS_OK) return pairs;
  return rc != BS_OK ? rc : comm_converted(work, call, err);
}

int32_t thr_barrier(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  thr_header *h;
  int32_t rc = thr_begin(comm, call, &h, err);
  return rc != BS_OK ? rc : thr_meet(comm, call, 0, err);
}
