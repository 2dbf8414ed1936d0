/* SPDX-License-Identifier: MIT
 *
 * exchange.c - messages between two ranks, single (send, recv) or several in flight together (exchange). A
 * message is a rendezvous on the channel of the two: the sender shows the address of its data, the receiver
 * copies them. A compare-and-swap decides whether the message is taken or withdrawn (abort, deadline), so a
 * sender never leaves while its memory is being read. */
#include <stdlib.h>

#include "../common/site.h"
#include "threads.h"

#define WITHDRAW_NS INT64_C(10000000000) /* a peer that has taken a message only copies it */

/* The channel from one member to another, made on first use; NULL: no memory. */
static thr_channel *channel_of(thr_group *group, uint32_t from, uint32_t to, bs_error *err) {
  thr_channel *row = atomic_load(&group->rows[from]);
  if (row == NULL) {
    void *fresh = NULL;
    if (posix_memalign(&fresh, 64, group->n * sizeof *row) != 0) {
      bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the channels of rank %u", from);
      return NULL;
    }
    memset(fresh, 0, group->n * sizeof *row);
    if (atomic_compare_exchange_strong(&group->rows[from], &row, fresh))
      row = fresh;
    else
      free(fresh);
  }
  return &row[to];
}

static const char *text_of(thr_comm *comm, const bs_coll_call *call) {
  const uint64_t key = comm_site_key(call), line = (key >> 7) % THR_CACHE;
  if (comm->cache[line].text != NULL && comm->cache[line].key == key) return comm->cache[line].text;
  return thr_site_text(comm, key, call);
}

static int32_t mismatch(thr_comm *comm, const comm_transfer *t, bs_error *err) {
  const uint32_t *ranks = comm->group->ranks;
  const uint32_t me = ranks[comm->me], peer = ranks[t->call->root];
  const thr_channel *ch = t->link;
  const int sends = t->call->kind == BS_COLL_SEND;
  return thr_fail_mismatch(comm, sends ? me : peer, ch->header.text, sends ? peer : me, ch->recv_text, err);
}

static int move_send(thr_comm *comm, comm_transfer *t, int32_t *rc, bs_error *err) {
  thr_channel *ch = t->link;
  if (t->state == COMM_NEW) {
    const uint32_t base = 4u * ch->send_k;
    if (atomic_load_explicit(&ch->header.flag.pos, memory_order_acquire) != base)
      return 0; /* an earlier one is on it */
    ch->send_k++;
    ch->header.key = t->key;
    ch->header.text = t->text;
    ch->header.in = t->call->in;
    ch->header.in_stride = t->call->in_stride;
    t->base = base;
    t->state = COMM_MOVES;
    comm_publish(&ch->header.flag, base + 1u, COMM_THREADS);
    comm_ring_waiters(&comm->group->inboxes[t->call->root].flag, COMM_THREADS);
    return 1;
  }
  if (atomic_load_explicit(&ch->header.flag.pos, memory_order_acquire) != t->base + 4u) return 0;
  t->state = COMM_DONE;
  *rc = ch->status == BS_MISMATCH ? mismatch(comm, t, err) : comm_received(ch->status, t->text, err);
  return 1;
}

static int move_recv(thr_comm *comm, comm_transfer *t, int32_t *rc, bs_error *err) {
  thr_channel *ch = t->link;
  const bs_coll_call *c = t->call;
  const uint32_t base = 4u * ch->recv_k;
  uint32_t posted = base + 1u;
  if (atomic_load_explicit(&ch->header.flag.pos, memory_order_acquire) != posted) return 0;
  if (!atomic_compare_exchange_strong(&ch->header.flag.pos, &posted, base + 2u)) return 0; /* withdrawn */
  ch->recv_k++;
  ch->recv_text = t->text;
  t->state = COMM_DONE;
  int32_t status = BS_MISMATCH;
  if (ch->header.key == t->key)
    status = thr_copy_rows(comm->world, c->dtype_out, c->out, c->out_stride, c->dtype_in, ch->header.in,
                           ch->header.in_stride, c->rows, c->count);
  ch->status = status;
  if (status == BS_MISMATCH) *rc = mismatch(comm, t, err);
  if (status != BS_OK && status != BS_MISMATCH)
    *rc = bs_fail(err, status, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x at %s", c->dtype_in,
                  c->dtype_out, t->text);
  comm_publish(&ch->header.flag, base + 4u, COMM_THREADS);
  comm_ring_waiters(&comm->group->inboxes[c->root].flag, COMM_THREADS);
  return 1;
}

static int move(void *comm, comm_transfer *t, int32_t *rc, bs_error *err) {
  return t->call->kind == BS_COLL_SEND ? move_send(comm, t, rc, err) : move_recv(comm, t, rc, err);
}

/* BS_DEADLINE that names the peer, and the end of the world; or what ended it before. */
static int32_t fail(void *comm_ptr, const comm_transfer *t, int32_t why, int64_t timeout_ns, bs_error *err) {
  thr_comm *comm = comm_ptr;
  const uint32_t peer = comm->group->ranks[t->call->root];
  if (why == BS_ABORTED) return thr_fail_aborted(comm, t->text, err);
  const char *last = atomic_load(&comm->world->trace[peer].last);
  char text[400];
  comm_missing missing = {0};
  comm_miss(&missing, peer, last != NULL ? last : "none");
  comm_deadline_text(text, sizeof text, timeout_ns, t->text, missing.text);
  thr_fail_world(comm->world, BS_DEADLINE, comm->group->ranks[comm->me], NULL, 0, text);
  return comm_fail_deadline(text, t->text, err);
}

/* Withdraws the caller's memory from the peers: none of them reads it after this call. */
static void withdraw(void *comm_ptr) {
  thr_comm *comm = comm_ptr;
  for (uint32_t i = 0; i < comm->transfers.n; ++i) {
    const comm_transfer *t = &comm->transfers.all[i];
    comm_flag *flag = &((thr_channel *)t->link)->header.flag;
    uint32_t pos = t->base + 1u;
    if (t->state != COMM_MOVES || atomic_compare_exchange_strong(&flag->pos, &pos, t->base + 3u)) continue;
    thr_timer copying = {WITHDRAW_NS, 0, 1};
    if (pos != t->base + 3u) (void)thr_wait(comm, flag, t->base + 4u, &copying);
  }
}

int32_t thr_exchange(void *comm_ptr, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  thr_comm *comm = comm_ptr;
  thr_world *world = comm->world;
  thr_group *group = comm->group;
  if (ncalls == 0) return BS_OK;
  int32_t rc = comm_transfers_open(&comm->transfers, calls, ncalls, comm->me, group->n, err);
  for (uint32_t i = 0; rc == BS_OK && i < ncalls; ++i) {
    const int sends = calls[i]->kind == BS_COLL_SEND;
    comm_transfer *t = &comm->transfers.all[i];
    t->text = text_of(comm, calls[i]);
    t->link = channel_of(group, sends ? comm->me : calls[i]->root, sends ? calls[i]->root : comm->me, err);
    if (t->link == NULL) rc = BS_NO_MEMORY;
  }
  if (rc != BS_OK) return rc;
  const char *text = comm->transfers.all[0].text;
  if (atomic_load(&world->failed) != 0) return thr_fail_aborted(comm, text, err);
  atomic_store(&world->trace[group->ranks[comm->me]].last, text);
  const comm_mover mover = {.comm = comm,
                            .move = move,
                            .settle = withdraw,
                            .fail = fail,
                            .passes = COMM_DONE,
                            .inbox = &group->inboxes[comm->me].flag,
                            .sleepers = COMM_THREADS,
                            .failed = &world->failed,
                            .patient = comm_caller_may_spin(&comm->caller),
                            .spin_ns = world->spin_ns,
                            .timeout_ns = comm_timeout(calls[0])};
  rc = comm_transfers_run(&comm->transfers, &mover, err);
  if (rc != BS_OK) withdraw(comm);
  return rc;
}

int32_t thr_message(void *comm, const bs_coll_call *call, bs_error *err) {
  return thr_exchange(comm, &call, 1, err);
}
