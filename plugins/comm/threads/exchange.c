/* SPDX-License-Identifier: MIT
 *
 * exchange.c - sends and receives that are in flight together. They have channels of their own, with the
 * rendezvous of p2p.c: a sender shows where its data lie, the receiver copies them. A rank looks at all of
 * its transfers again and again and moves those that can move, so it takes what has come for it whatever else
 * it waits for; when nothing moves it spins for a while, and sleeps then on its inbox, which whoever moves a
 * channel of it rings.
 */
#include <sched.h>
#include <stdlib.h>

#include "../common/site.h"
#include "threads.h"

#define WITHDRAW_NS INT64_C(10000000000) /* a peer that has taken a message only copies it */
#define LOOKS 64u                        /* at all transfers, between two looks at the clock */

enum { THR_NEW = 0, THR_POSTED = 1, THR_DONE = 2 };

struct thr_transfer {
  const bs_coll_call *call;
  thr_channel *channel;
  const char *text;
  uint64_t key;
  uint32_t base;   /* of a posted send: its position */
  uint32_t before; /* the transfer that has the channel before it, UINT32_MAX: none */
  uint32_t state;
};

typedef struct idle {
  int64_t began, deadline, timeout_ns; /* began 0: something has moved just now */
  uint32_t looks, yields;
  int patient;
} idle;

static const char *text_of(thr_comm *comm, const bs_coll_call *call) {
  const uint64_t key = comm_site_key(call), line = (key >> 7) % THR_CACHE;
  if (comm->cache[line].text != NULL && comm->cache[line].key == key) return comm->cache[line].text;
  return thr_site_text(comm, key, call);
}

/* Several messages to or from one rank have one channel, in turn. Its marks are those of this exchange where
 * they lie below `i` and name it. */
static uint32_t find_before(const thr_comm *comm, uint32_t i) {
  const thr_channel *ch = comm->transfers[i].channel;
  const int sends = comm->transfers[i].call->kind == BS_COLL_SEND;
  const uint32_t at = sends ? ch->send_mark : ch->recv_mark;
  return at < i && comm->transfers[at].channel == ch ? at : UINT32_MAX;
}

static int32_t open_transfer(thr_comm *comm, const bs_coll_call *call, uint32_t i, bs_error *err) {
  thr_transfer *t = &comm->transfers[i];
  thr_group *group = comm->group;
  const int sends = call->kind == BS_COLL_SEND;
  const int32_t rc = comm_check_message(comm->me, group->n, call, err);
  if (rc != BS_OK) return rc;
  t->call = call;
  t->text = text_of(comm, call);
  t->key = comm_message_key(call);
  t->state = THR_NEW;
  t->channel = thr_channel_of(group, group->exchange_rows, sends ? comm->me : call->root,
                              sends ? call->root : comm->me, err);
  if (t->channel == NULL) return BS_NO_MEMORY;
  t->before = find_before(comm, i);
  *(sends ? &t->channel->send_mark : &t->channel->recv_mark) = i;
  return BS_OK;
}

static int32_t mismatch(thr_comm *comm, const thr_transfer *t, bs_error *err) {
  const uint32_t *ranks = comm->group->ranks;
  const uint32_t me = ranks[comm->me], peer = ranks[t->call->root];
  const thr_channel *ch = t->channel;
  const int sends = t->call->kind == BS_COLL_SEND;
  return thr_fail_mismatch(comm, sends ? me : peer, ch->header.text, sends ? peer : me, ch->recv_text, err);
}

/* 1: it has moved; 0: it cannot now; else *rc. */
static int move_send(thr_comm *comm, thr_transfer *t, int32_t *rc, bs_error *err) {
  thr_channel *ch = t->channel;
  if (t->state == THR_NEW) {
    const uint32_t base = 4u * ch->send_k;
    if (atomic_load_explicit(&ch->header.flag.pos, memory_order_acquire) != base)
      return 0; /* an earlier one is on it */
    ch->send_k++;
    ch->header.key = t->key;
    ch->header.text = t->text;
    ch->header.in = t->call->in;
    ch->header.in_stride = t->call->in_stride;
    t->base = base;
    t->state = THR_POSTED;
    comm_publish(&ch->header.flag, base + 1u, COMM_THREADS);
    comm_ring_waiters(&comm->group->inboxes[t->call->root].flag, COMM_THREADS);
    return 1;
  }
  if (atomic_load_explicit(&ch->header.flag.pos, memory_order_acquire) != t->base + 4u) return 0;
  t->state = THR_DONE;
  *rc = ch->status == BS_MISMATCH ? mismatch(comm, t, err) : comm_received(ch->status, t->text, err);
  return 1;
}

static int move_recv(thr_comm *comm, thr_transfer *t, int32_t *rc, bs_error *err) {
  thr_channel *ch = t->channel;
  const bs_coll_call *c = t->call;
  const uint32_t base = 4u * ch->recv_k;
  uint32_t posted = base + 1u;
  if (atomic_load_explicit(&ch->header.flag.pos, memory_order_acquire) != posted) return 0;
  if (!atomic_compare_exchange_strong(&ch->header.flag.pos, &posted, base + 2u)) return 0; /* withdrawn */
  ch->recv_k++;
  ch->recv_text = t->text;
  t->state = THR_DONE;
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

/* Looks at all; *out_left: those that are not done. */
static int move_all(thr_comm *comm, uint32_t n, uint32_t *out_left, int32_t *rc, bs_error *err) {
  int moved = 0;
  *out_left = 0;
  for (uint32_t i = 0; i < n && *rc == BS_OK; ++i) {
    thr_transfer *t = &comm->transfers[i];
    if (t->state == THR_DONE) continue;
    *out_left += 1u;
    if (t->before != UINT32_MAX && comm->transfers[t->before].state != THR_DONE) continue;
    moved |= t->call->kind == BS_COLL_SEND ? move_send(comm, t, rc, err) : move_recv(comm, t, rc, err);
    *out_left -= t->state == THR_DONE;
  }
  return moved;
}

/* Nothing moves: BS_OK to look again, else why not. `bell` was read before the last look. */
static int32_t rest(thr_comm *comm, idle *w, uint32_t bell, int *sleepy) {
  const thr_world *world = comm->world;
  if (++w->looks < LOOKS) return BS_OK;
  const int64_t now = comm_now_ns();
  w->looks = 0;
  if (w->began == 0) w->began = now;
  if (w->deadline == 0) w->deadline = now + w->timeout_ns;
  if (atomic_load(&world->failed) != 0) return BS_ABORTED;
  if (now >= w->deadline) return BS_DEADLINE;
  if (w->patient && now - w->began < world->spin_ns) return BS_OK;
  w->looks = LOOKS;
  if (w->patient && w->yields++ < COMM_YIELDS) {
    sched_yield();
    return BS_OK;
  }
  if (*sleepy) comm_sleep(&comm->group->inboxes[comm->me].flag.bell, bell, w->deadline - now, COMM_THREADS);
  *sleepy = 1; /* and looks once more before it sleeps */
  return BS_OK;
}

static int32_t run(thr_comm *comm, uint32_t n, idle *w, bs_error *err) {
  comm_flag *inbox = &comm->group->inboxes[comm->me].flag;
  uint32_t left = n;
  int sleepy = 0;
  int32_t rc = BS_OK;
  for (;;) {
    const uint32_t bell = atomic_load(&inbox->bell);
    const int moved = move_all(comm, n, &left, &rc, err);
    if (rc != BS_OK || left == 0) break;
    if (moved) {
      w->began = 0;
      w->looks = w->yields = 0;
      continue;
    }
    const int was = sleepy;
    const int32_t why = rest(comm, w, bell, &sleepy);
    if (sleepy && !was) atomic_fetch_add(&inbox->waiters, 1u);
    if (why == BS_OK) continue;
    uint32_t i = 0;
    while (comm->transfers[i].state == THR_DONE) i++;
    const thr_transfer *t = &comm->transfers[i];
    rc = thr_fail_alone(comm, why, t->text, comm->group->ranks[t->call->root], w->timeout_ns, err);
    break;
  }
  if (sleepy) atomic_fetch_sub(&inbox->waiters, 1u);
  return rc;
}

/* What is shown is the caller's memory: nobody reads it any more. */
static void withdraw(thr_comm *comm, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    const thr_transfer *t = &comm->transfers[i];
    uint32_t posted = t->base + 1u;
    if (t->state != THR_POSTED) continue;
    if (atomic_compare_exchange_strong(&t->channel->header.flag.pos, &posted, t->base + 3u)) continue;
    thr_timer copying = {WITHDRAW_NS, 0, 1};
    (void)thr_wait(comm, &t->channel->header.flag, t->base + 4u, &copying);
  }
}

static int32_t grow(thr_comm *comm, uint32_t n, bs_error *err) {
  if (n <= comm->ntransfers) return BS_OK;
  thr_transfer *grown = realloc(comm->transfers, n * sizeof *grown);
  if (grown == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u transfers of rank %u", n, comm->me);
  comm->transfers = grown;
  comm->ntransfers = n;
  return BS_OK;
}

int32_t thr_exchange(void *comm_ptr, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  thr_comm *comm = comm_ptr;
  if (ncalls == 0) return BS_OK;
  int32_t rc = grow(comm, ncalls, err);
  for (uint32_t i = 0; rc == BS_OK && i < ncalls; ++i) rc = open_transfer(comm, calls[i], i, err);
  if (rc != BS_OK) return rc;
  const char *text = comm->transfers[0].text;
  if (atomic_load(&comm->world->failed) != 0) return thr_fail_aborted(comm, text, err);
  atomic_store(&comm->world->trace[comm->group->ranks[comm->me]].last, text);
  idle w = {.timeout_ns = comm_timeout(calls[0]), .patient = comm_caller_may_spin(&comm->caller)};
  rc = run(comm, ncalls, &w, err);
  if (rc != BS_OK) withdraw(comm, ncalls);
  return rc;
}
