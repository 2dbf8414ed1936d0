/* SPDX-License-Identifier: MIT
 *
 * p2p.c - send and recv through the mailbox of the two ranks, in pieces, two of them on their way at most.
 * send returns when all has been taken.
 */
#include "shm.h"

static shm_mail *mail_of(const shm_comm *comm, uint32_t from, uint32_t to) {
  shm_mail *mail = shm_at(comm->world->job, comm->area->mail);
  return &mail[(uint64_t)from * comm->area->n + to];
}

/* My words of the message, and the key; `text` is mine in the mailbox. */
static int32_t begin(shm_comm *comm, const bs_coll_call *call, char *text, bs_error *err) {
  const shm_job *job = comm->world->job;
  const shm_area *world = shm_at(job, comm->area->world);
  const char *mine = shm_text(comm, call, shm_key(call) + call->kind); /* two texts for one key */
  memcpy(text, mine, SHM_TEXT);
  if (atomic_load(&world->failure.claimed) != 0) return shm_fail_woken(comm, 0, text, err);
  shm_process *me = &job->head->process[job->rank];
  atomic_store(&me->last, shm_offset(job, text));
  atomic_store(&me->inside, 1u);
  return BS_OK;
}

static int32_t peer_of(const shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  if (call->root < comm->area->n && call->root != comm->me) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-ROOT", "rank %u cannot exchange with rank %u of %u",
                 comm->me, call->root, comm->area->n);
}

static int32_t fail_alone(shm_comm *comm, int32_t rc, const bs_coll_call *call, const char *text,
                          uint32_t dead, bs_error *err) {
  const uint32_t peer = comm->area->ranks[call->root];
  char last[SHM_TEXT], why[480];
  if (rc == BS_ABORTED) return shm_fail_woken(comm, 0, text, err);
  if (rc == BS_RANK_FAILED) return shm_fail_dead(comm, dead, text, err);
  shm_last_call(comm->world->job, peer, last, sizeof last);
  snprintf(why, sizeof why, "%.3g s passed in %s; missing: rank %u (last call: %s)",
           (double)shm_timeout(call) * 1e-9, text, peer, last);
  shm_fail_world(comm, BS_DEADLINE, comm->area->ranks[comm->me], 0, why);
  bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%s", why);
  if (err != NULL) snprintf(err->where, sizeof err->where, "%s", text);
  return BS_DEADLINE;
}

/* The receiver may have found a mismatch: the world has failed then, and pieces that were to follow are not
 * taken. */
static int32_t fail_sender(shm_comm *comm, int32_t rc, const bs_coll_call *call, const shm_mail *mail,
                           uint32_t dead, bs_error *err) {
  if ((rc == BS_OK || rc == BS_ABORTED) && mail->status == BS_MISMATCH)
    return shm_fail_mismatch(comm, comm->area->ranks[comm->me], mail->send_text,
                             comm->area->ranks[call->root], mail->recv_text, err);
  return rc == BS_OK ? BS_OK : fail_alone(comm, rc, call, mail->send_text, dead, err);
}

int32_t shm_send(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  int32_t rc = peer_of(comm, call, err);
  if (rc != BS_OK) return rc;
  shm_mail *mail = mail_of(comm, comm->me, call->root);
  rc = begin(comm, call, mail->send_text, err);
  if (rc != BS_OK) return rc;
  const uint64_t n = call->rows * call->count, room = SHM_MAIL / BS_DTYPE_BYTES(call->dtype_in);
  uint32_t at = atomic_load(&mail->posted.pos), dead = UINT32_MAX;
  uint64_t done = 0;
  mail->key = shm_key(call);
  do {
    const uint64_t end = shm_min(done + room, n);
    rc = shm_wait(comm, call->root, &mail->taken, at - 1u, shm_timeout(call),
                  &dead); /* one of the two is free */
    if (rc != BS_OK) return fail_sender(comm, rc, call, mail, dead, err);
    shm_put(comm, call->dtype_in, mail->data[at & 1u], call->dtype_in, call->in, call->in_stride, call->count,
            done, end);
    shm_publish(&mail->posted, ++at);
    done = end;
  } while (done < n);
  rc = shm_wait(comm, call->root, &mail->taken, at, shm_timeout(call), &dead);
  rc = fail_sender(comm, rc, call, mail, dead, err);
  if (rc != BS_OK) return rc;
  shm_end(comm);
  if (mail->status == BS_OK) return BS_OK;
  return bs_fail(err, mail->status, "BS-COLL-DTYPE", "the receiver failed at %s", mail->send_text);
}

int32_t shm_recv(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  int32_t rc = peer_of(comm, call, err), work = BS_OK;
  if (rc != BS_OK) return rc;
  shm_mail *mail = mail_of(comm, call->root, comm->me);
  rc = begin(comm, call, mail->recv_text, err);
  if (rc != BS_OK) return rc;
  const uint64_t n = call->rows * call->count, room = SHM_MAIL / BS_DTYPE_BYTES(call->dtype_in);
  uint32_t at = atomic_load(&mail->taken.pos), dead = UINT32_MAX;
  uint64_t done = 0;
  do {
    const uint64_t end = shm_min(done + room, n);
    rc = shm_wait(comm, call->root, &mail->posted, at + 1u, shm_timeout(call), &dead);
    if (rc != BS_OK) return fail_alone(comm, rc, call, mail->recv_text, dead, err);
    if (mail->key != shm_key(call)) { /* the world has failed: what else is on its way does not matter */
      mail->status = BS_MISMATCH;
      rc = shm_fail_mismatch(comm, comm->area->ranks[call->root], mail->send_text,
                             comm->area->ranks[comm->me], mail->recv_text, err);
      shm_publish(&mail->taken, atomic_load(&mail->posted.pos));
      return rc;
    }
    if (work == BS_OK)
      work = shm_take(comm, call->dtype_out, call->out, call->out_stride, call->count, done, end,
                      call->dtype_in, mail->data[at & 1u]);
    done = end;
    if (done >= n) mail->status = work;
    shm_publish(&mail->taken, ++at);
  } while (done < n);
  shm_end(comm);
  return shm_converted(work, call, err);
}
