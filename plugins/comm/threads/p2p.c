/* SPDX-License-Identifier: MIT
 *
 * p2p.c - send and recv: a rendezvous on the channel of the two ranks. send returns when the data have
 * been taken. Sender and receiver settle with a compare-and-swap whether the message is taken or withdrawn
 * (abort, deadline), so that a sender never leaves while its memory is being read.
 */
#include <stdlib.h>

#include "threads.h"

thr_channel *thr_channel_of(thr_group *group, _Atomic(thr_channel *) *rows, uint32_t from, uint32_t to,
                            bs_error *err) {
  thr_channel *row = atomic_load(&rows[from]);
  if (row == NULL) {
    void *fresh = NULL;
    if (posix_memalign(&fresh, 64, group->n * sizeof *row) != 0) {
      bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the channels of rank %u", from);
      return NULL;
    }
    memset(fresh, 0, group->n * sizeof *row);
    if (atomic_compare_exchange_strong(&rows[from], &row, fresh))
      row = fresh;
    else
      free(fresh);
  }
  return &row[to];
}

static int32_t begin(thr_comm *comm, const bs_coll_call *call, const char **out_text, bs_error *err) {
  uint64_t key = comm_key(call) + call->kind; /* two texts for one key */
  const char *text = thr_site_text(comm, key, call);
  const int32_t rc = comm_check_peer(comm->me, comm->group->n, call, err);
  if (rc != BS_OK) return rc;
  if (atomic_load(&comm->world->failed) != 0) return thr_fail_aborted(comm, text, err);
  atomic_store(&comm->world->trace[comm->group->ranks[comm->me]].last, text);
  *out_text = text;
  return BS_OK;
}

int32_t thr_fail_alone(thr_comm *comm, int32_t rc, const char *text, uint32_t peer, int64_t timeout_ns,
                       bs_error *err) {
  if (rc == BS_ABORTED) return thr_fail_aborted(comm, text, err);
  const char *last = atomic_load(&comm->world->trace[peer].last);
  char why[400];
  comm_missing missing = {0};
  comm_miss(&missing, peer, last != NULL ? last : "none");
  comm_deadline_text(why, sizeof why, timeout_ns, text, missing.text);
  thr_fail_world(comm->world, BS_DEADLINE, comm->group->ranks[comm->me], NULL, 0, why);
  return comm_fail_deadline(why, text, err);
}

static int32_t mismatch(thr_comm *comm, const thr_channel *ch, uint32_t from, uint32_t to, bs_error *err) {
  return thr_fail_mismatch(comm, comm->group->ranks[from], ch->header.text, comm->group->ranks[to],
                           ch->recv_text, err);
}

int32_t thr_send(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  const char *text = NULL;
  int32_t rc = begin(comm, call, &text, err);
  if (rc != BS_OK) return rc;
  thr_channel *ch = thr_channel_of(comm->group, comm->group->rows, comm->me, call->root, err);
  if (ch == NULL) return BS_NO_MEMORY;
  uint32_t base = 4u * ch->send_k++;
  ch->header.key = comm_key(call);
  ch->header.text = text;
  ch->header.in = call->in;
  ch->header.in_stride = call->in_stride;
  comm_publish(&ch->header.flag, base + 1u, COMM_THREADS);
  thr_timer timer = {comm_timeout(call), 0, 0};
  rc = thr_wait(comm, &ch->header.flag, base + 4u, &timer);
  if (rc != BS_OK) {
    uint32_t posted = base + 1u;
    if (atomic_compare_exchange_strong(&ch->header.flag.pos, &posted, base + 3u)) /* withdrawn */
      return thr_fail_alone(comm, rc, text, comm->group->ranks[call->root], timer.timeout_ns, err);
    thr_timer copying = {INT64_C(10000000000), 0, 1};
    rc = thr_wait(comm, &ch->header.flag, base + 4u, &copying);
    if (rc != BS_OK)
      return thr_fail_alone(comm, rc, text, comm->group->ranks[call->root], copying.timeout_ns, err);
  }
  if (ch->status == BS_MISMATCH) return mismatch(comm, ch, comm->me, call->root, err);
  return comm_received(ch->status, text, err);
}

int32_t thr_recv(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  const char *text = NULL;
  int32_t rc = begin(comm, call, &text, err);
  if (rc != BS_OK) return rc;
  thr_channel *ch = thr_channel_of(comm->group, comm->group->rows, call->root, comm->me, err);
  if (ch == NULL) return BS_NO_MEMORY;
  uint32_t base = 4u * ch->recv_k++;
  thr_timer timer = {comm_timeout(call), 0, 0};
  rc = thr_wait(comm, &ch->header.flag, base + 1u, &timer);
  if (rc != BS_OK)
    return thr_fail_alone(comm, rc, text, comm->group->ranks[call->root], timer.timeout_ns, err);
  uint32_t posted = base + 1u;
  if (!atomic_compare_exchange_strong(&ch->header.flag.pos, &posted,
                                      base + 2u)) /* withdrawn: the world failed */
    return thr_fail_alone(comm, BS_ABORTED, text, comm->group->ranks[call->root], 0, err);
  int32_t status = BS_OK;
  ch->recv_text = text;
  if (ch->header.key != comm_key(call))
    status = BS_MISMATCH;
  else
    status = thr_copy_rows(comm->world, call->dtype_out, call->out, call->out_stride, call->dtype_in,
                           ch->header.in, ch->header.in_stride, call->rows, call->count);
  ch->status = status;
  if (status == BS_MISMATCH) rc = mismatch(comm, ch, call->root, comm->me, err);
  comm_publish(&ch->header.flag, base + 4u, COMM_THREADS);
  if (status != BS_OK && status != BS_MISMATCH)
    return bs_fail(err, status, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x at %s",
                   call->dtype_in, call->dtype_out, text);
  return rc;
}
