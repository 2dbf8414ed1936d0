/* SPDX-License-Identifier: MIT
 *
 * exchange.c - messages between two ranks, alone (send, recv) or several in flight together (exchange),
 * through the mailbox of the two, in pieces, two of them on their way at most. A sender is done when all has
 * been taken.
 */
#include "../common/site.h"
#include "shm.h"

#define SLICE_NS 10000000 /* a dead or failed peer is seen after this */

static shm_mail *mail_of(const shm_comm *comm, uint32_t from, uint32_t to) {
  shm_mail *mail = shm_at(comm->world->job, comm->area->mail);
  return &mail[(uint64_t)from * comm->area->n + to];
}

static const char *text_of(shm_comm *comm, const bs_coll_call *call) {
  return shm_text(comm, call, comm_site_key(call));
}

static void ring(const shm_comm *comm, uint32_t member) {
  comm_ring_waiters(&shm_slot_of(comm, member)->inbox, COMM_PROCESSES);
}

static int32_t mismatch(shm_comm *comm, const comm_transfer *t, bs_error *err) {
  const uint32_t me = comm->area->ranks[comm->me], peer = comm->area->ranks[t->call->root];
  const shm_mail *mail = t->link;
  const int sends = t->call->kind == BS_COLL_SEND;
  return shm_fail_mismatch(comm, sends ? me : peer, mail->send_text, sends ? peer : me, mail->recv_text, err);
}

/* The end of the piece that begins with the first element not yet moved. */
static uint64_t end_of_piece(const comm_transfer *t) {
  const uint64_t room = SHM_MAIL / BS_DTYPE_BYTES(t->call->dtype_in);
  return comm_min(t->done + room, t->call->rows * t->call->count);
}

static int move_send(shm_comm *comm, comm_transfer *t, int32_t *rc, bs_error *err) {
  shm_mail *mail = t->link;
  const bs_coll_call *c = t->call;
  const uint64_t n = c->rows * c->count;
  const uint32_t posted = atomic_load_explicit(&mail->posted.pos, memory_order_relaxed);
  const uint32_t taken = atomic_load_explicit(&mail->taken.pos, memory_order_acquire);
  int moved = 0;
  if (t->state == COMM_NEW) {
    if (posted != taken) return 0; /* an earlier message is in it */
    memcpy(mail->send_text, text_of(comm, c), SHM_TEXT);
    t->state = COMM_MOVES;
  } else if (t->done >= n && posted == taken) {
    t->state = COMM_DONE;
    *rc = mail->status == BS_MISMATCH ? mismatch(comm, t, err)
                                      : comm_received(mail->status, mail->send_text, err);
    return 1;
  } else if (t->done >= n) {
    return 0;
  }
  const comm_matrix from = comm_in(c, 0, c->count);
  for (uint32_t at = posted; at - taken < 2u && (t->done < n || at == posted);) {
    const uint64_t end = end_of_piece(t);
    comm_pack(shm_math(comm), &from, t->done, end, mail->data[at & 1u]);
    mail->key = t->key; /* last: the receiver watches this line */
    comm_publish(&mail->posted, ++at, COMM_PROCESSES);
    t->done = end;
    moved = 1;
    if (end >= n) break;
  }
  if (moved) ring(comm, c->root);
  return moved;
}

static int move_recv(shm_comm *comm, comm_transfer *t, int32_t *rc, bs_error *err) {
  shm_mail *mail = t->link;
  const bs_coll_call *c = t->call;
  uint32_t at = atomic_load_explicit(&mail->taken.pos, memory_order_relaxed);
  if (atomic_load_explicit(&mail->posted.pos, memory_order_acquire) == at) return 0;
  if (t->state == COMM_NEW) {
    mail->status = mail->key == t->key ? BS_OK : BS_MISMATCH;
    t->state = COMM_MOVES;
  }
  if (mail->status == BS_MISMATCH) { /* other transfers in progress do not matter */
    memcpy(mail->recv_text, text_of(comm, c), SHM_TEXT);
    *rc = mismatch(comm, t, err);
    comm_publish(&mail->taken, atomic_load(&mail->posted.pos), COMM_PROCESSES);
    return 1;
  }
  const uint64_t end = end_of_piece(t);
  const comm_matrix to = comm_out(c, 0, c->count);
  const int32_t work = comm_unpack(shm_math(comm), &to, t->done, end, c->dtype_in, mail->data[at & 1u]);
  if (mail->status == BS_OK) mail->status = work;
  t->done = end;
  if (end >= c->rows * c->count) {
    t->state = COMM_DONE;
    *rc = comm_converted(mail->status, c, err);
  }
  comm_publish(&mail->taken, ++at, COMM_PROCESSES);
  ring(comm, c->root);
  return 1;
}

static int move(void *comm, comm_transfer *t, int32_t *rc, bs_error *err) {
  return t->call->kind == BS_COLL_SEND ? move_send(comm, t, rc, err) : move_recv(comm, t, rc, err);
}

/* The first member that has died, or one that a transfer waits for and that has left. */
static int32_t look(void *comm_ptr, int64_t *ns) {
  shm_comm *comm = comm_ptr;
  shm_job *job = comm->world->job;
  *ns = SLICE_NS;
  for (uint32_t i = 0; i < comm->area->n; ++i) {
    comm->dead = comm->area->ranks[i];
    if (shm_job_dead(job, comm->dead) == SHM_DIED) return BS_RANK_FAILED;
  }
  for (uint32_t i = 0; i < comm->transfers.n; ++i) {
    comm->dead = comm->area->ranks[comm->transfers.all[i].call->root];
    if (comm->transfers.all[i].state != COMM_DONE && shm_job_dead(job, comm->dead) == SHM_LEFT)
      return BS_RANK_FAILED;
  }
  return BS_OK;
}

/* The receiver may have found a mismatch: the world has failed then, and the pieces that were to follow are
 * not taken. */
static int32_t fail(void *comm_ptr, const comm_transfer *t, int32_t why, int64_t timeout_ns, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const shm_mail *mail = t->link;
  const char *mine = text_of(comm, t->call);
  const int refused = t->call->kind == BS_COLL_SEND && t->state == COMM_MOVES && mail->status == BS_MISMATCH;
  if (why == BS_ABORTED && refused) return mismatch(comm, t, err);
  if (why == BS_ABORTED) return shm_fail_woken(comm, 0, mine, err);
  if (why == BS_RANK_FAILED) return shm_fail_dead(comm, comm->dead, mine, err);
  return shm_fail_late(comm, comm->area->ranks[t->call->root], timeout_ns, mine, err);
}

/* Publishes the call for the others: a text in the mapping, which the next exchange overwrites. */
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
  const shm_area *world = shm_at(comm->world->job, comm->area->world);
  if (ncalls == 0) return BS_OK;
  int32_t rc = comm_transfers_open(&comm->transfers, calls, ncalls, comm->me, comm->area->n, err);
  if (rc == BS_OK) rc = tell(comm, calls[0], err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < ncalls; ++i) {
    const int sends = calls[i]->kind == BS_COLL_SEND;
    comm->transfers.all[i].link =
        mail_of(comm, sends ? comm->me : calls[i]->root, sends ? calls[i]->root : comm->me);
  }
  const comm_mover mover = {.comm = comm,
                            .move = move,
                            .look = look,
                            .fail = fail,
                            .passes = COMM_DONE,
                            .inbox = &shm_slot_of(comm, comm->me)->inbox,
                            .sleepers = COMM_PROCESSES,
                            .failed = &world->failure.failed,
                            .patient = comm_caller_may_spin(&comm->caller),
                            .spin_ns = comm->world->spin_ns,
                            .timeout_ns = comm_timeout(calls[0])};
  rc = comm_transfers_run(&comm->transfers, &mover, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}

int32_t shm_message(void *comm, const bs_coll_call *call, bs_error *err) {
  return shm_exchange(comm, &call, 1, err);
}
