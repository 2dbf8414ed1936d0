/* SPDX-License-Identifier: MIT
 *
 * wire.c - messages between processes: MPI's nonblocking calls under one lock, and waiting for them with a
 * deadline of ours. Nothing here blocks inside MPI.
 */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "mpi_comm.h"

#define YIELDS 64u
#define NAP_NS 50000 /* between two looks, when a wait is slow */

int32_t mpic_isend(mpic_state *state, const void *data, uint64_t bytes, uint32_t rank, int tag,
                   MPI_Request *out, bs_error *err) {
  pthread_mutex_lock(&state->lock);
  int rc = MPI_Isend(data, (int)bytes, MPI_BYTE, (int)rank, tag, state->comm, out);
  pthread_mutex_unlock(&state->lock);
  return mpic_check(rc, "MPI_Isend", err);
}

int32_t mpic_irecv(mpic_state *state, void *data, uint64_t bytes, uint32_t rank, int tag, MPI_Request *out,
                   bs_error *err) {
  pthread_mutex_lock(&state->lock);
  int rc = MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)rank, tag, state->comm, out);
  pthread_mutex_unlock(&state->lock);
  return mpic_check(rc, "MPI_Irecv", err);
}

int mpic_test_one(mpic_state *state, MPI_Request *request) {
  int done = 0;
  pthread_mutex_lock(&state->lock);
  int rc = MPI_Test(request, &done, MPI_STATUS_IGNORE);
  pthread_mutex_unlock(&state->lock);
  return rc == MPI_SUCCESS && done;
}

int mpic_test_all(mpic_state *state, MPI_Request *requests, uint32_t n, int32_t *out_rc) {
  uint32_t left = 0;
  *out_rc = BS_OK;
  pthread_mutex_lock(&state->lock);
  for (uint32_t i = 0; i < n; ++i) {
    int done = 1;
    if (requests[i] != MPI_REQUEST_NULL && MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      *out_rc = BS_RANK_FAILED;
    if (!done) ++left;
  }
  pthread_mutex_unlock(&state->lock);
  return left == 0;
}

/* The members whose message has not come, with their last calls as far as this machine knows them. */
static void missing_peers(mpic_comm *comm, MPI_Request *requests, const uint32_t *peers, uint32_t n,
                          char *out, size_t size) {
  size_t used = 0;
  char last[MPIC_TEXT];
  for (uint32_t i = 0; i < n && used < size; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    uint32_t rank = comm->ranks[peers[i]];
    const char *text = mpic_trace_text(comm, rank, last, sizeof last);
    int w = snprintf(out + used, size - used, "%srank %u (%s%s)", used ? ", " : "", rank,
                     text != NULL ? "last call: " : "on another machine", text != NULL ? text : "");
    if (w > 0) used += (size_t)w;
  }
  if (used == 0) snprintf(out, size, "none");
}

static int32_t slow_wait(mpic_comm *comm, MPI_Request *requests, const uint32_t *peers, uint32_t n,
                         const char *text, mpic_timer *timer, bs_error *err) {
  mpic_state *state = comm->world->state;
  for (uint64_t turn = 0;; ++turn) {
    int32_t rc;
    if (mpic_test_all(state, requests, n, &rc) && rc == BS_OK) return BS_OK;
    comm->dirty = 1; /* until all are done */
    if (rc != BS_OK)
      mpic_fail_world(comm->world, BS_RANK_FAILED, comm->ranks[peers[0]], 1, "BS-COLL-MPI",
                      "MPI reports that a message was lost");
    mpic_listen(state);
    if (mpic_failed(comm->world)) return mpic_fail_told(comm, text, err);
    uint32_t dead = mpic_dead(state, 0, MPIC_NONE);
    if (dead != MPIC_NONE && !mpic_failed(comm->world)) return mpic_fail_dead(comm, dead, text, err);
    if (comm_now_ns() >= timer->deadline + MPIC_REMOTE_GRACE_NS) {
      char missing[320];
      missing_peers(comm, requests, peers, n, missing, sizeof missing);
      return mpic_fail_deadline(comm, text, missing, timer->timeout_ns, err);
    }
    if (turn < YIELDS) {
      sched_yield();
    } else {
      struct timespec nap = {0, NAP_NS};
      nanosleep(&nap, NULL);
    }
  }
}

int32_t mpic_wire_wait(mpic_comm *comm, MPI_Request *requests, const uint32_t *peers, uint32_t n,
                       const char *text, mpic_timer *timer, bs_error *err) {
  mpic_state *state = comm->world->state;
  int64_t now = comm_now_ns(),
          spin_end = now + (comm_caller_may_spin(&comm->caller) ? comm->world->spin_ns : 0);
  if (timer->deadline == 0) timer->deadline = now + timer->timeout_ns;
  do {
    int32_t rc;
    if (mpic_test_all(state, requests, n, &rc) && rc == BS_OK) return BS_OK;
    comm_relax();
  } while (comm_now_ns() < spin_end);
  int32_t rc = slow_wait(comm, requests, peers, n, text, timer, err);
  if (rc == BS_OK) comm->dirty = 0;
  return rc;
}

void mpic_line_fill(const mpic_comm *comm, const bs_coll_call *call, unsigned char *buf, uint64_t bytes) {
  mpic_line line;
  memset(&line, 0, sizeof line);
  line.key = comm_key(call);
  line.bytes = bytes;
  line.rank = comm->ranks[comm->me];
  snprintf(line.text, sizeof line.text, "%s", mpic_text(comm, call));
  memcpy(buf, &line, sizeof line);
}

int32_t mpic_line_check(mpic_comm *comm, const bs_coll_call *call, const unsigned char *buf, uint64_t bytes,
                        bs_error *err) {
  mpic_line line;
  memcpy(&line, buf, sizeof line);
  line.text[sizeof line.text - 1u] = '\0';
  if (line.key == comm_key(call) && line.bytes == bytes) return BS_OK;
  uint32_t mine = comm->ranks[comm->me];
  const char *text = mpic_text(comm, call);
  if (line.rank < mine) return mpic_fail_mismatch(comm, line.rank, line.text, mine, text, err);
  return mpic_fail_mismatch(comm, mine, text, line.rank, line.text, err);
}

int32_t mpic_send_to(mpic_comm *comm, const bs_coll_call *call, uint32_t member, unsigned char *buf,
                     uint64_t bytes, mpic_timer *timer, bs_error *err) {
  MPI_Request request;
  mpic_line_fill(comm, call, buf, bytes);
  int32_t rc = mpic_isend(comm->world->state, buf, MPIC_LINE + bytes, comm->ranks[member],
                          comm->tag + MPIC_COLLECTIVE, &request, err);
  if (rc != BS_OK) return rc;
  return mpic_wire_wait(comm, &request, &member, 1, mpic_text(comm, call), timer, err);
}

int32_t mpic_recv_from(mpic_comm *comm, const bs_coll_call *call, uint32_t member, unsigned char *buf,
                       uint64_t bytes, mpic_timer *timer, bs_error *err) {
  MPI_Request request; /* all that a peer could send is taken: what is not what we expect is then named */
  int32_t rc = mpic_irecv(comm->world->state, buf, MPIC_LINE + comm->half, comm->ranks[member],
                          comm->tag + MPIC_COLLECTIVE, &request, err);
  if (rc == BS_OK) rc = mpic_wire_wait(comm, &request, &member, 1, mpic_text(comm, call), timer, err);
  return rc != BS_OK ? rc : mpic_line_check(comm, call, buf, bytes, err);
}
