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
  const char *mine = shm_text(comm, call, comm_key(call) + call->kind); /* two texts for one key */
  memcpy(text, mine, SHM_TEXT);
  if (atomic_load(&world->failure.claimed) != 0) return shm_fail_woken(comm, 0, text, err);
  shm_process *me = &job->head->process[job->rank];
  atomic_store(&me->last, shm_offset(job, text));
  atomic_store(&me->inside, 1u);
  return BS_OK;
}

static int32_t fail_alone(shm_comm *comm, int32_t rc, const bs_coll_call *call, const char *text,
                          uint32_t dead, bs_error *err) {
  if (rc == BS_ABORTED) return shm_fail_woken(comm, 0, text, err);
  if (rc == BS_RANK_FAILED) return shm_fail_dead(comm, dead, text, err);
  return shm_fail_late(comm, comm->area->ranks[call->root], comm_timeout(call), text, err);
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
  int32_t rc = comm_check_peer(comm->me, comm->area->n, call, err);
  if (rc != BS_OK) return rc;
  shm_mail *mail = mail_of(comm, comm->me, call->root);
  rc = begin(comm, call, mail->send_text, err);
  if (rc != BS_OK) return rc;
  const uint64_t n = call->rows * call->count, room = SHM_MAIL / BS_DTYPE_BYTES(call->dtype_in);
  const comm_matrix from = comm_in(call, 0, call->count);
  uint32_t at = atomic_load(&mail->posted.pos), dead = UINT32_MAX;
  uint64_t done = 0;
  mail->key = comm_key(call);
  do {
    const uint64_t end = comm_min(done + room, n);
    rc = shm_wait(comm, call->root, &mail->taken, at - 1u, comm_timeout(call),
                  &dead); /* one of the two is free */
    if (rc != BS_OK) return fail_sender(comm, rc, call, mail, dead, err);
    comm_pack(shm_math(comm), &from, done, end, mail->data[at & 1u]);
    comm_publish(&mail->posted, ++at, COMM_PROCESSES);
    done = end;
  } while (done < n);
  rc = shm_wait(comm, call->root, &mail->taken, at, comm_timeout(call), &dead);
  rc = fail_sender(comm, rc, call, mail, dead, err);
  if (rc != BS_OK) return rc;
  shm_end(comm);
  return comm_received(mail->status, mail->send_text, err);
}

int32_t shm_recv(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  int32_t rc = comm_check_peer(comm->me, comm->area->n, call, err), work = BS_OK;
  if (rc != BS_OK) return rc;
  shm_mail *mail = mail_of(comm, call->root, comm->me);
  rc = begin(comm, call, mail->recv_text, err);
  if (rc != BS_OK) return rc;
  const uint64_t n = call->rows * call->count, room = SHM_MAIL / BS_DTYPE_BYTES(call->dtype_in);
  const comm_matrix to = comm_out(call, 0, call->count);
  uint32_t at = atomic_load(&mail->taken.pos), dead = UINT32_MAX;
  uint64_t done = 0;
  do {
    const uint64_t end = comm_min(done + room, n);
    rc = shm_wait(comm, call->root, &mail->posted, at + 1u, comm_timeout(call), &dead);
    if (rc != BS_OK) return fail_alone(comm, rc, call, mail->recv_text, dead, err);
    if (mail->key != comm_key(call)) { /* the world has failed: other messages do not matter */
      mail->status = BS_MISMATCH;
      rc = shm_fail_mismatch(comm, comm->area->ranks[call->root], mail->send_text,
                             comm->area->ranks[comm->me], mail->recv_text, err);
      comm_publish(&mail->taken, atomic_load(&mail->posted.pos), COMM_PROCESSES);
      return rc;
    }
    if (work == BS_OK)
      work = comm_unpack(shm_math(comm), &to, done, end, call->dtype_in, mail->data[at & 1u]);
    done = end;
    if (done >= n) mail->status = work;
    comm_publish(&mail->taken, ++at, COMM_PROCESSES);
  } while (done < n);
  shm_end(comm);
  return comm_converted(work, call, err);
}
