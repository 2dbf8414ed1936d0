/* SPDX-License-Identifier: MIT
 * comm_exchange.c - group communicator: exchange. Values of messages of every dtype between all ranks at
 * once, several to one rank, with gaps between rows and of no elements; chains of rounds in which ranks wait
 * for each other; and messages that do not fit together. */
#include <stdio.h>

#include "kit/comm.h"

static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F64, BS_I64, BS_I8};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0], EACH = 3, MOST = 2 * EACH * 5 };

/* The size of message k of a round, from one rank to another; BIG ones are sent in pieces. */
static uint64_t columns_of(uint32_t round, uint32_t from, uint32_t to, uint32_t k) {
  static const uint64_t sizes[] = {5, 0, 17, 3000, 1};
  return sizes[(round + from + 2u * to + k) % 5u];
}
static uint32_t value_rank(uint32_t from, uint32_t k) {
  return from * EACH + k;
}

typedef struct message {
  bs_coll_call call;
  kit_buffer buffer;
  kit_point point;
  uint32_t from, k;
} message;

static void make(message *m, uint32_t kind, uint32_t round, uint32_t me, uint32_t peer, uint32_t k,
                 uint32_t dtype) {
  const uint32_t from = kind == BS_COLL_SEND ? me : peer, to = kind == BS_COLL_SEND ? peer : me;
  const uint64_t cols = columns_of(round, from, to, k), rows = 1 + (round + k) % 3u;
  m->from = from;
  m->k = k;
  m->point = (kit_point){
      .kind = kind, .dtype = dtype, .rows = rows, .count = cols, .pad = 2, .where = " of exchange"};
  m->call = make_call(kind, dtype, rows, cols, "kit");
  m->call.fingerprint += 1009u * (from * 64u + to) + 31u * round + k;
  m->call.root = peer;
  m->call.in_stride = m->call.out_stride = (int64_t)cols + m->point.pad;
  kit_buffer_make(&m->buffer, rows * (uint64_t)m->call.in_stride * BS_DTYPE_BYTES(dtype));
  if (kind == BS_COLL_SEND) fill(dtype, m->buffer.data, value_rank(from, k), rows, cols, m->call.in_stride);
  kit_buffer_keep(&m->buffer);
  m->call.in = kind == BS_COLL_SEND ? m->buffer.data : NULL;
  m->call.out = kind == BS_COLL_SEND ? NULL : m->buffer.data;
}

static void check(const test_rank *t, const message *m) {
  const kit_point *q = &m->point;
  const int got = q->kind == BS_COLL_RECV;
  char text[160];
  for (uint64_t i = 0; got && i < q->rows * q->count; i++) {
    const double is = bs_load_f64(q->dtype, m->buffer.data,
                                  (int64_t)(i / q->count) * m->call.out_stride + (int64_t)(i % q->count));
    const double want = rounded(q->dtype, value_of(q->dtype, value_rank(m->from, m->k), i));
    kit_assert(is == want,
               "%s: rank %u of %u: element %llu of message %u from rank %u is %.9g, it was sent %.9g",
               kit_point_text(q, text, sizeof text), t->rank, t->size, (unsigned long long)i, m->k, m->from,
               is, want);
  }
  kit_buffer_check(&m->buffer, q, t->rank, got ? q->rows : 0, got ? q->count : 0, m->call.out_stride,
                   BS_DTYPE_BYTES(q->dtype));
}

/* All ranks with all, EACH messages a pair; in odd rounds receives come first in the list. */
static void round_of_all(test_rank *t, uint32_t round) {
  static message messages[KIT_RANKS][MOST];
  message *mine = messages[t->rank];
  const bs_coll_call *calls[MOST];
  uint32_t n = 0;
  for (uint32_t half = 0; half < 2; half++)
    for (uint32_t i = 1; i < t->size; i++)
      for (uint32_t k = 0; k < EACH; k++) {
        const uint32_t kind = (half + round) % 2u == 0 ? BS_COLL_SEND : BS_COLL_RECV;
        const uint32_t peer = (t->rank + (kind == BS_COLL_SEND ? i : t->size - i)) % t->size;
        make(&mine[n], kind, round, t->rank, peer, k, dtypes[round % N_DTYPES]);
        calls[n] = &mine[n].call;
        n++;
      }
  t->rc = t->comm->exchange(t->handle, calls, n, &t->err);
  kit_assert(t->rc == BS_OK, "exchange of %u messages: rank %u of %u gets %s: %s", n, t->rank, t->size,
             bs_status_name(t->rc), t->err.message);
  for (uint32_t i = 0; i < n; i++) {
    check(t, &mine[i]);
    kit_buffer_free(&mine[i].buffer);
  }
}

/* Rank r's message of a round is the one that it has got in the round before: it goes round and comes home. A
 * rank is up to size - 1 rounds ahead of another. */
static void chain(test_rank *t) {
  int64_t token[4] = {t->rank, 1, 2, 3}, next[4] = {0};
  for (uint32_t round = 0; round < t->size && t->rc == BS_OK; round++) {
    bs_coll_call send = make_call(BS_COLL_SEND, BS_I64, 1, 4, "kit.chain"), recv = send;
    const bs_coll_call *const calls[2] = {&recv, &send};
    recv.kind = BS_COLL_RECV;
    send.root = (t->rank + 1) % t->size;
    recv.root = (t->rank + t->size - 1) % t->size;
    send.in = token;
    recv.out = next;
    t->rc = t->comm->exchange(t->handle, calls, 2, &t->err);
    memcpy(token, next, sizeof token);
  }
  kit_assert(t->rc == BS_OK && token[0] == (int64_t)t->rank && token[3] == 3,
             "exchange in a chain: rank %u of %u gets %s, and back %lld: %s", t->rank, t->size,
             bs_status_name(t->rc), (long long)token[0], t->err.message);
}

void kit_body_exchange(test_rank *t) {
  t->rc = t->comm->exchange(t->handle, NULL, 0, &t->err);
  kit_assert(t->rc == BS_OK, "exchange of nothing: rank %u gets %s", t->rank, bs_status_name(t->rc));
  if (t->size < 2) return;
  for (uint32_t round = 0; round < 2u * N_DTYPES; round++) round_of_all(t, round);
  chain(t);
  kit_mine(t)->served++;
}

static int32_t swap(test_rank *t, uint64_t n, const char *site, int64_t timeout_ns) {
  float x[8] = {0}, y[8] = {0};
  bs_coll_call send = make_call(BS_COLL_SEND, BS_F32, 1, n, site),
               recv = make_call(BS_COLL_RECV, BS_F32, 1, 8, site);
  const bs_coll_call *const calls[2] = {&send, &recv};
  send.root = recv.root = 1 - t->rank;
  send.in = x;
  recv.out = y;
  send.timeout_ns = recv.timeout_ns = timeout_ns;
  return t->comm->exchange(t->handle, calls, 2, &t->err);
}

/* Rank 0 and rank 1, which does not send what rank 0 waits for, or nothing. The memory of the call site has
 * the name of another one before. */
void kit_body_exchange_fault(test_rank *t) {
  const uint32_t body = ((const kit_work *)t->arg)->body;
  const int64_t long_ns = INT64_C(10000000000), late_ns = INT64_C(1000000) * KIT_LATE_MS;
  char site[16] = "kit.before";
  t->rc = swap(t, 8, site, long_ns);
  snprintf(site, sizeof site, "kit.behind");
  if (t->rc != BS_OK || (body == KIT_EXCHANGE_LATE && t->rank == 1)) return;
  if (body == KIT_EXCHANGE_ABORT && t->rank == 1)
    t->comm->abort(t->world, t->rank, BS_INTERNAL, "the kit says so");
  else
    t->rc = swap(t, body == KIT_EXCHANGE_OTHER && t->rank == 1 ? 7 : 8, site,
                 body == KIT_EXCHANGE_LATE ? late_ns : long_ns);
}

static const bs_comm *open_exchange(const kit_case *c, kit_plugin *p) {
  const bs_comm *comm = kit_comm_open(c, p);
  if (comm == NULL || comm->exchange != NULL) return comm;
  kit_unsupported("the slot exchange is NULL");
  return NULL;
}

void kit_comm_exchange(const kit_case *c) {
  static kit_plugin p;
  const bs_comm *comm = open_exchange(c, &p);
  if (comm == NULL) return;
  const int processes = comm->launch == BS_LAUNCH_ATTACHED; /* they take long to start */
  const uint32_t most = processes ? 3 : kit_full() ? 5 : 4;
  for (uint32_t size = processes && !kit_full() ? 3 : 1; size <= most; size++)
    if (kit_comm_run(comm, KIT_EXCHANGE, BS_COLL_SEND, size) == NULL) return;
  kit_comm_close(&p);
}

void kit_comm_exchange_faults(const kit_case *c) {
  static const struct {
    uint32_t body;
    int32_t code;
    const char *what;
  } faults[] = {{KIT_EXCHANGE_OTHER, BS_MISMATCH, "of messages of other sizes"},
                {KIT_EXCHANGE_LATE, BS_DEADLINE, "with a rank that does not come"},
                {KIT_EXCHANGE_ABORT, BS_ABORTED, "with a rank that aborts the world"}};
  static kit_plugin p;
  const bs_comm *comm = open_exchange(c, &p);
  const char *what = faults[c->arg].what;
  if (comm == NULL) return;
  const kit_outcome *ranks = kit_comm_run(comm, faults[c->arg].body, BS_COLL_SEND, 2);
  if (ranks == NULL) return;
  /* Rank 1 gets what it waits for: its message may have left before rank 0 looks at it. */
  kit_assert(ranks[0].rc == faults[c->arg].code, "exchange %s: rank 0 gets %s, it must be %s%s%s", what,
             bs_status_name(ranks[0].rc), bs_status_name(faults[c->arg].code),
             ranks[0].rc != BS_OK ? ": " : "", ranks[0].rc != BS_OK ? ranks[0].err.message : "");
  kit_assert(ranks[0].err.message[0] != '\0', "exchange: rank 0 gets no reason");
  kit_assert(faults[c->arg].body != KIT_EXCHANGE_OTHER || strstr(ranks[0].err.message, "kit.before") == NULL,
             "exchange %s: rank 0 gets an error for a call site that it has left: %.300s", what,
             ranks[0].err.message);
  kit_comm_close(&p);
}
