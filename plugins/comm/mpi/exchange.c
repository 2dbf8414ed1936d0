/* SPDX-License-Identifier: MIT
 *
 * exchange.c - sends and receives that are in flight together. A sender starts two messages at once: a line
 * that says what the call is, and the data. The receiver has asked for all lines; when one has come and is
 * the call's own it asks for the data. All of it is on memory of ours. A rank looks at all requests again and
 * again, and while nothing moves at what other ranks tell, at processes that have ended, and at the clock.
 */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "../common/site.h"
#include "mpi_comm.h"

#define YIELDS 64u
#define NAP_NS 50000
#define MOST_BYTES (UINT64_C(1) << 30) /* of a message: MPI counts in int */

enum { LINE = 0, DATA = 1, DONE = 2 };

struct mpic_transfer {
  const bs_coll_call *call;
  MPI_Request line, data;
  uint64_t key, bytes;
  unsigned char *at; /* MPIC_LINE bytes, then the data */
  uint32_t state;
};

static bs_coll_call nameless(const bs_coll_call *call) {
  bs_coll_call c = *call;
  c.fingerprint = comm_site_key(call);
  return c;
}
static const char *text_of(mpic_comm *comm, const bs_coll_call *call) {
  const bs_coll_call c = nameless(call);
  const uint64_t key = comm_key(&c), line = (key >> 7) % THR_CACHE;
  char *text = comm->cache[line].text;
  if (text[0] == '\0' || comm->cache[line].key != key) {
    bs_coll_describe(call, text, MPIC_TEXT);
    comm->cache[line].key = key;
  }
  return text;
}

static int32_t check(const mpic_comm *comm, const bs_coll_call *call, uint64_t *out_bytes, bs_error *err) {
  const int32_t rc = comm_check_message(comm->me, comm->n, call, err);
  if (rc != BS_OK) return rc;
  *out_bytes = call->rows * call->count * BS_DTYPE_BYTES(call->dtype_in);
  if (*out_bytes <= MOST_BYTES) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-SIZE", "a message of %llu bytes; exchange sends %llu at most",
                 (unsigned long long)*out_bytes, (unsigned long long)MOST_BYTES);
}

static uint64_t room_of(uint64_t bytes) {
  return MPIC_LINE + ((bytes + 63u) & ~UINT64_C(63));
}

/* Room for all, and which call is where. */
static int32_t open_all(mpic_comm *comm, const bs_coll_call *const *calls, uint32_t n, bs_error *err) {
  uint64_t total = 0, bytes = 0;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < n && rc == BS_OK; ++i) {
    rc = check(comm, calls[i], &bytes, err);
    total += room_of(bytes);
  }
  if (rc != BS_OK) return rc;
  if (n > comm->ntransfers) {
    mpic_transfer *grown = realloc(comm->transfers, n * sizeof *grown);
    if (grown == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u transfers", n);
    comm->transfers = grown;
    comm->ntransfers = n;
  }
  if (total > comm->exchange_bytes) { /* no request is open */
    free(comm->exchange_buf);
    comm->exchange_buf = malloc(total);
    comm->exchange_bytes = comm->exchange_buf != NULL ? total : 0;
  }
  if (comm->exchange_buf == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %llu bytes of messages",
                   (unsigned long long)total);
  unsigned char *at = comm->exchange_buf;
  for (uint32_t i = 0; i < n; ++i) {
    mpic_transfer *t = &comm->transfers[i];
    (void)check(comm, calls[i], &bytes, NULL);
    *t = (mpic_transfer){.call = calls[i],
                         .line = MPI_REQUEST_NULL,
                         .data = MPI_REQUEST_NULL,
                         .key = comm_message_key(calls[i]),
                         .bytes = bytes,
                         .at = at};
    at += room_of(bytes);
  }
  return BS_OK;
}

static int32_t start_send(mpic_comm *comm, mpic_transfer *t, bs_error *err) {
  const bs_coll_call *c = t->call;
  const uint32_t peer = comm->ranks[c->root];
  const comm_matrix from = comm_in(c, 0, c->count);
  mpic_line line;
  memset(&line, 0, sizeof line);
  line.key = t->key;
  line.bytes = t->bytes;
  line.rank = comm->ranks[comm->me];
  snprintf(line.text, sizeof line.text, "%s", text_of(comm, c));
  memcpy(t->at, &line, sizeof line);
  comm_pack(&comm->world->math, &from, 0, c->rows * c->count, t->at + MPIC_LINE);
  t->state = DATA;
  int32_t rc = mpic_isend(comm->world->state, t->at, MPIC_LINE, peer, comm->tag + MPIC_XLINE, &t->line, err);
  if (rc == BS_OK && t->bytes > 0)
    rc = mpic_isend(comm->world->state, t->at + MPIC_LINE, t->bytes, peer, comm->tag + MPIC_XDATA, &t->data,
                    err);
  return rc;
}

static int32_t start_all(mpic_comm *comm, uint32_t n, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < n && rc == BS_OK; ++i) {
    mpic_transfer *t = &comm->transfers[i];
    if (t->call->kind == BS_COLL_SEND)
      rc = start_send(comm, t, err);
    else
      rc = mpic_irecv(comm->world->state, t->at, MPIC_LINE, comm->ranks[t->call->root],
                      comm->tag + MPIC_XLINE, &t->line, err);
  }
  return rc;
}

/* Data are asked for in the order in which they were sent. */
static int behind_another(const mpic_transfer *all, uint32_t i) {
  for (uint32_t k = 0; k < i; ++k)
    if (all[k].state == LINE && all[k].call->root == all[i].call->root) return 1;
  return 0;
}

static int32_t take_line(mpic_comm *comm, mpic_transfer *t, bs_error *err) {
  mpic_line line;
  const uint32_t me = comm->ranks[comm->me];
  memcpy(&line, t->at, sizeof line);
  line.text[sizeof line.text - 1u] = '\0';
  if (line.key != t->key || line.bytes != t->bytes)
    return mpic_fail_mismatch(comm, comm->ranks[t->call->root], line.text, me, text_of(comm, t->call), err);
  t->state = DATA;
  if (t->bytes == 0) return BS_OK;
  return mpic_irecv(comm->world->state, t->at + MPIC_LINE, t->bytes, comm->ranks[t->call->root],
                    comm->tag + MPIC_XDATA, &t->data, err);
}

static int32_t finish(mpic_comm *comm, mpic_transfer *t, bs_error *err) {
  const bs_coll_call *c = t->call;
  t->state = DONE;
  if (c->kind == BS_COLL_SEND) return BS_OK;
  const comm_matrix to = comm_out(c, 0, c->count);
  const int32_t work =
      comm_unpack(&comm->world->math, &to, 0, c->rows * c->count, c->dtype_in, t->at + MPIC_LINE);
  return comm_converted(work, c, err);
}

/* Looks at all; *out_left: those that are not done. 1: something has moved. */
static int move_all(mpic_comm *comm, uint32_t n, uint32_t *out_left, int32_t *rc, bs_error *err) {
  mpic_state *state = comm->world->state;
  int moved = 0;
  *out_left = 0;
  for (uint32_t i = 0; i < n && *rc == BS_OK; ++i) {
    mpic_transfer *t = &comm->transfers[i];
    const int gets = t->call->kind == BS_COLL_RECV;
    if (t->state == LINE && !behind_another(comm->transfers, i) && mpic_test_one(state, &t->line)) {
      *rc = take_line(comm, t, err);
      moved = 1;
    }
    if (*rc == BS_OK && t->state == DATA && mpic_test_one(state, &t->data) &&
        (gets || mpic_test_one(state, &t->line))) {
      *rc = finish(comm, t, err);
      moved = 1;
    }
    *out_left += t->state != DONE;
  }
  return moved;
}

static int32_t fail_late(mpic_comm *comm, const char *text, const mpic_timer *timer, bs_error *err) {
  char last[MPIC_TEXT + 32u], missing[320];
  uint32_t i = 0;
  while (comm->transfers[i].state == DONE) i++;
  const uint32_t rank = comm->ranks[comm->transfers[i].call->root];
  const char *theirs = mpic_trace_text(comm, rank, last, sizeof last);
  snprintf(missing, sizeof missing, "rank %u (%s%s)", rank,
           theirs != NULL ? "last call: " : "on another machine", theirs != NULL ? theirs : "");
  return mpic_fail_deadline(comm, text, missing, timer->timeout_ns, err);
}

/* Nothing moves: BS_OK to look again. */
static int32_t rest(mpic_comm *comm, const char *text, const mpic_timer *timer, int64_t spin_end,
                    uint64_t *turn, bs_error *err) {
  mpic_state *state = comm->world->state;
  if (comm_now_ns() < spin_end) {
    comm_relax();
    return BS_OK;
  }
  mpic_listen(state);
  if (mpic_failed(comm->world)) return mpic_fail_told(comm, text, err);
  const uint32_t dead = mpic_dead(state, 0, MPIC_NONE);
  if (dead != MPIC_NONE && !mpic_failed(comm->world)) return mpic_fail_dead(comm, dead, text, err);
  if (comm_now_ns() >= timer->deadline) return fail_late(comm, text, timer, err);
  if ((*turn)++ < YIELDS) {
    sched_yield();
  } else {
    const struct timespec nap = {0, NAP_NS};
    nanosleep(&nap, NULL);
  }
  return BS_OK;
}

static int32_t run(mpic_comm *comm, uint32_t n, const char *text, mpic_timer *timer, bs_error *err) {
  const int64_t spin = comm_caller_may_spin(&comm->caller) ? comm->world->spin_ns : 0;
  int64_t spin_end = comm_now_ns() + spin;
  uint64_t turn = 0;
  uint32_t left = n;
  int32_t rc = BS_OK;
  timer->deadline = comm_now_ns() + timer->timeout_ns;
  for (;;) {
    const int moved = move_all(comm, n, &left, &rc, err);
    if (rc != BS_OK || left == 0) return rc;
    if (moved) {
      spin_end = comm_now_ns() + spin;
      turn = 0;
      continue;
    }
    rc = rest(comm, text, timer, spin_end, &turn, err);
    if (rc != BS_OK) return rc;
  }
}

int32_t mpic_exchange(void *comm_ptr, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  if (ncalls == 0) return BS_OK;
  int32_t rc = open_all(comm, calls, ncalls, err);
  if (rc != BS_OK) return rc;
  const bs_coll_call first = nameless(calls[0]);
  rc = mpic_enter(comm, &first, err);
  if (rc != BS_OK) return rc;
  char text[MPIC_TEXT];
  snprintf(text, sizeof text, "%s", mpic_text(comm, &first));
  mpic_timer timer = mpic_timer_of(comm, calls[0]);
  rc = start_all(comm, ncalls, err);
  if (rc == BS_OK) rc = run(comm, ncalls, text, &timer, err);
  if (rc != BS_OK) { /* MPI may still touch it */
    mpic_keep(comm->world->state, comm->exchange_buf);
    comm->exchange_buf = NULL;
    comm->exchange_bytes = 0;
  }
  return mpic_exit(comm, rc);
}
