/* SPDX-License-Identifier: MIT
 *
 * exchange.c - sends and receives that are in flight together, through the mailboxes of p2p.c. A rank looks
 * at all of its transfers again and again and moves each by the pieces that can move: it puts a piece where
 * the mailbox has room, and takes one that has come, whatever else it waits for. When nothing moves it spins
 * for a while and then sleeps, for a slice, on its inbox, which whoever moves a mailbox of it rings.
 */
#include <sched.h>
#include <stdlib.h>

#include "../common/site.h"
#include "shm.h"

#define LOOKS 64u         /* at all transfers, between two looks at the clock */
#define SLICE_NS 10000000 /* a dead or failed peer is seen after this */

enum { SHM_NEW = 0, SHM_MOVES = 1, SHM_DONE = 2 };

struct shm_transfer {
  const bs_coll_call *call;
  shm_mail *mail;
  uint64_t key, n, room, done; /* elements */
  uint32_t state;
};

typedef struct idle {
  int64_t began, deadline, timeout_ns; /* began 0: something has moved just now */
  uint32_t looks, yields, sleepy;
  int patient;
} idle;

static shm_mail *mail_of(const shm_comm *comm, uint32_t from, uint32_t to) {
  shm_mail *mail = shm_at(comm->world->job, comm->area->mail);
  return &mail[(uint64_t)from * comm->area->n + to];
}

static const char *text_of(shm_comm *comm, const bs_coll_call *call) {
  return shm_text(comm, call, comm_site_key(call));
}

static int32_t open_transfer(shm_comm *comm, const bs_coll_call *call, shm_transfer *t, bs_error *err) {
  const int sends = call->kind == BS_COLL_SEND;
  const int32_t rc = comm_check_message(comm->me, comm->area->n, call, err);
  if (rc != BS_OK) return rc;
  *t = (shm_transfer){
      .call = call,
      .mail = sends ? mail_of(comm, comm->me, call->root) : mail_of(comm, call->root, comm->me),
      .key = comm_message_key(call),
      .n = call->rows * call->count,
      .room = SHM_MAIL / BS_DTYPE_BYTES(call->dtype_in)};
  return BS_OK;
}

static void ring(const shm_comm *comm, uint32_t member) {
  comm_ring_waiters(&shm_slot_of(comm, member)->inbox, COMM_PROCESSES);
}

static int32_t mismatch(shm_comm *comm, const shm_transfer *t, bs_error *err) {
  const uint32_t me = comm->area->ranks[comm->me], peer = comm->area->ranks[t->call->root];
  const int sends = t->call->kind == BS_COLL_SEND;
  return shm_fail_mismatch(comm, sends ? me : peer, t->mail->send_text, sends ? peer : me, t->mail->recv_text,
                           err);
}

/* 1: it has moved; 0: it cannot now; else *rc. */
static int move_send(shm_comm *comm, shm_transfer *t, int32_t *rc, bs_error *err) {
  shm_mail *mail = t->mail;
  const bs_coll_call *c = t->call;
  const uint32_t posted = atomic_load_explicit(&mail->posted.pos, memory_order_relaxed);
  const uint32_t taken = atomic_load_explicit(&mail->taken.pos, memory_order_acquire);
  int moved = 0;
  if (t->state == SHM_NEW) {
    if (posted != taken) return 0; /* an earlier message is in it */
    mail->key = t->key;
    memcpy(mail->send_text, text_of(comm, c), SHM_TEXT);
    t->state = SHM_MOVES;
  } else if (t->done >= t->n && posted == taken) {
    t->state = SHM_DONE;
    *rc = mail->status == BS_MISMATCH ? mismatch(comm, t, err)
                                      : comm_received(mail->status, mail->send_text, err);
    return 1;
  } else if (t->done >= t->n) {
    return 0;
  }
  const comm_matrix from = comm_in(c, 0, c->count);
  for (uint32_t at = posted; at - taken < 2u && (t->done < t->n || at == posted);) {
    const uint64_t end = comm_min(t->done + t->room, t->n);
    comm_pack(shm_math(comm), &from, t->done, end, mail->data[at & 1u]);
    comm_publish(&mail->posted, ++at, COMM_PROCESSES);
    t->done = end;
    moved = 1;
    if (end >= t->n) break;
  }
  if (moved) ring(comm, c->root);
  return moved;
}

static int move_recv(shm_comm *comm, shm_transfer *t, int32_t *rc, bs_error *err) {
  shm_mail *mail = t->mail;
  const bs_coll_call *c = t->call;
  uint32_t at = atomic_load_explicit(&mail->taken.pos, memory_order_relaxed);
  if (atomic_load_explicit(&mail->posted.pos, memory_order_acquire) == at) return 0;
  if (t->state == SHM_NEW) {
    memcpy(mail->recv_text, text_of(comm, c), SHM_TEXT);
    mail->status = mail->key == t->key ? BS_OK : BS_MISMATCH;
    t->state = SHM_MOVES;
  }
  if (mail->status == BS_MISMATCH) { /* what else is on its way does not matter */
    *rc = mismatch(comm, t, err);
    comm_publish(&mail->taken, atomic_load(&mail->posted.pos), COMM_PROCESSES);
    return 1;
  }
  const uint64_t end = comm_min(t->done + t->room, t->n);
  const comm_matrix to = comm_out(c, 0, c->count);
  const int32_t work = comm_unpack(shm_math(comm), &to, t->done, end, c->dtype_in, mail->data[at & 1u]);
  if (mail->status == BS_OK) mail->status = work;
  t->done = end;
  if (end >= t->n) t->state = SHM_DONE;
  if (end >= t->n) *rc = comm_converted(mail->status, c, err);
  comm_publish(&mail->taken, ++at, COMM_PROCESSES);
  ring(comm, c->root);
  return 1;
}

/* Of several messages to or from one rank the first goes on alone: they share a mailbox. */
static int behind_another(const shm_transfer *all, uint32_t i) {
  for (uint32_t k = 0; k < i; ++k)
    if (all[k].state != SHM_DONE && all[k].mail == all[i].mail) return 1;
  return 0;
}

static int move_all(shm_comm *comm, uint32_t n, uint32_t *out_left, int32_t *rc, bs_error *err) {
  int moved = 0;
  *out_left = 0;
  for (uint32_t i = 0; i < n && *rc == BS_OK; ++i) {
    shm_transfer *t = &comm->transfers[i];
    if (t->state == SHM_DONE) continue;
    if (t->state != SHM_NEW || !behind_another(comm->transfers, i))
      moved |= t->call->kind == BS_COLL_SEND ? move_send(comm, t, rc, err) : move_recv(comm, t, rc, err);
    *out_left += t->state != SHM_DONE;
  }
  return moved;
}

/* The first member that has died, or one that a transfer waits for and that has left. */
static uint32_t find_dead(const shm_comm *comm, uint32_t n) {
  shm_job *job = comm->world->job;
  for (uint32_t i = 0; i < comm->area->n; ++i)
    if (shm_job_dead(job, comm->area->ranks[i]) == SHM_DIED) return comm->area->ranks[i];
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t rank = comm->area->ranks[comm->transfers[i].call->root];
    if (comm->transfers[i].state != SHM_DONE && shm_job_dead(job, rank) == SHM_LEFT) return rank;
  }
  return UINT32_MAX;
}

/* Nothing moves: BS_OK to look again, else why not. `bell` was read before the last look. */
static int32_t rest(shm_comm *comm, idle *w, uint32_t bell, uint32_t n, uint32_t *out_dead) {
  comm_flag *inbox = &shm_slot_of(comm, comm->me)->inbox;
  const shm_area *world = shm_at(comm->world->job, comm->area->world);
  if (++w->looks < LOOKS) return BS_OK;
  const int64_t now = comm_now_ns();
  w->looks = 0;
  if (w->began == 0) w->began = now;
  if (w->deadline == 0) w->deadline = now + w->timeout_ns;
  if (atomic_load(&world->failure.failed) != 0) return BS_ABORTED;
  if (w->patient && now - w->began < comm->world->spin_ns) return BS_OK;
  w->looks = LOOKS;
  if (w->patient && w->yields++ < COMM_YIELDS) {
    sched_yield();
    return BS_OK;
  }
  if (!w->sleepy) { /* looks once more before it sleeps */
    atomic_fetch_add(&inbox->waiters, 1u);
    w->sleepy = 1;
    return BS_OK;
  }
  *out_dead = find_dead(comm, n);
  if (*out_dead != UINT32_MAX) return BS_RANK_FAILED;
  if (now >= w->deadline) return BS_DEADLINE;
  const int64_t left = w->deadline - now;
  comm_sleep(&inbox->bell, bell, left < SLICE_NS ? left : SLICE_NS, COMM_PROCESSES);
  return BS_OK;
}

static int32_t fail(shm_comm *comm, int32_t why, uint32_t dead, int64_t timeout_ns, bs_error *err) {
  uint32_t i = 0;
  while (comm->transfers[i].state == SHM_DONE) i++;
  const bs_coll_call *call = comm->transfers[i].call;
  const char *mine = text_of(comm, call);
  if (why == BS_ABORTED) return shm_fail_woken(comm, 0, mine, err);
  if (why == BS_RANK_FAILED) return shm_fail_dead(comm, dead, mine, err);
  return shm_fail_late(comm, comm->area->ranks[call->root], timeout_ns, mine, err);
}

static int32_t run(shm_comm *comm, uint32_t n, idle *w, bs_error *err) {
  comm_flag *inbox = &shm_slot_of(comm, comm->me)->inbox;
  uint32_t left = n, dead = UINT32_MAX;
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
    const int32_t why = rest(comm, w, bell, n, &dead);
    if (why == BS_OK) continue;
    (void)move_all(comm, n, &left, &rc, err); /* it came before its sender died */
    if (rc == BS_OK && left > 0) rc = fail(comm, why, dead, w->timeout_ns, err);
    break;
  }
  if (w->sleepy) atomic_fetch_sub(&inbox->waiters, 1u);
  return rc;
}

static int32_t grow(shm_comm *comm, uint32_t n, bs_error *err) {
  if (n <= comm->ntransfers) return BS_OK;
  shm_transfer *grown = realloc(comm->transfers, n * sizeof *grown);
  if (grown == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u transfers of rank %u", n, comm->me);
  comm->transfers = grown;
  comm->ntransfers = n;
  return BS_OK;
}

/* What the others are told of the call: a text in the mapping, which the next exchange writes again. */
static int32_t tell(shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  const shm_job *job = comm->world->job;
  const shm_area *world = shm_at(job, comm->area->world);
  const char *text = text_of(comm, call);
  if (atomic_load(&world->failure.claimed) != 0) return shm_fail_woken(comm, 0, text, err);
  char *shown = shm_slot_of(comm, comm->me)->exchanges;
  memcpy(shown, text, SHM_TEXT);
  shm_process *me = &job->head->process[job->rank];
  atomic_store(&me->last, shm_offset(job, shown));
  atomic_store(&me->inside, 1u);
  return BS_OK;
}

int32_t shm_exchange(void *comm_ptr, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  shm_comm *comm = comm_ptr;
  if (ncalls == 0) return BS_OK;
  int32_t rc = grow(comm, ncalls, err);
  for (uint32_t i = 0; rc == BS_OK && i < ncalls; ++i)
    rc = open_transfer(comm, calls[i], &comm->transfers[i], err);
  if (rc == BS_OK) rc = tell(comm, calls[0], err);
  if (rc != BS_OK) return rc;
  idle w = {.timeout_ns = comm_timeout(calls[0]), .patient = comm_caller_may_spin(&comm->caller)};
  rc = run(comm, ncalls, &w, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}
