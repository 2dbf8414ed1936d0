/* SPDX-License-Identifier: MIT
 * comm.c - group communicator: every collective against the serial oracle of tests/comm/ranks.h, over dtypes,
 * sizes, row strides and in place; ranks that disagree, come late or give up. Worlds of threads. */
#include <stdio.h>
#include <unistd.h>

#include "tests/comm/ranks.h"
#include "tests/kit/kit.h"

static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_I64, BS_I32, BS_I8};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0], TAIL = 64 };

typedef int32_t (*collective_fn)(void *comm, const bs_coll_call *call, bs_error *err);

/* What a point of one collective is made of. */
typedef struct point {
  uint32_t kind, dtype;
  uint64_t rows, count;
  int64_t pad;
  int in_place;
} point;

typedef struct work {
  uint32_t kind;
  _Atomic uint32_t served;
} work;

static collective_fn slot_of(const bs_comm *c, uint32_t kind) {
  const collective_fn slots[BS_COLL_COUNT_] = {c->all_reduce, c->all_gather, c->reduce_scatter, c->broadcast,
                                               c->all_to_all, c->send,       c->recv,           c->barrier};
  return slots[kind];
}

/* A buffer with a tail that must stay. */
static unsigned char *buffer(uint64_t bytes) {
  unsigned char *p = malloc(bytes + TAIL);
  ck_assert_ptr_nonnull(p);
  memset(p, 0xA5, bytes + TAIL);
  return p;
}
static void check_tail(const unsigned char *p, uint64_t bytes, const test_rank *t, const point *q) {
  for (int i = 0; i < TAIL; i++)
    kit_assert(p[bytes + (uint64_t)i] == 0xA5, "kind %u %s: rank %u: writes behind its output", q->kind,
               bs_dtype_name(q->dtype), t->rank);
}

/* OK, or UNSUPPORTED with a reason; anything else fails. 1: served. */
static int served(test_rank *t, const point *q, int32_t rc) {
  work *w = t->arg;
  if (rc == BS_OK) {
    w->served++;
    return 1;
  }
  kit_assert(rc == BS_UNSUPPORTED, "kind %u %s, %llu rows of %llu: rank %u gets %s: %s", q->kind,
             bs_dtype_name(q->dtype), (unsigned long long)q->rows, (unsigned long long)q->count, t->rank,
             bs_status_name(rc), t->err.message);
  kit_assert(t->err.message[0] != '\0', "kind %u %s is refused without a reason", q->kind,
             bs_dtype_name(q->dtype));
  return 0;
}

static void same(const test_rank *t, const point *q, uint64_t row, uint64_t col, double got, double want) {
  kit_assert(got == want || (got != got && want != want),
             "kind %u %s, %llu rows of %llu%s: rank %u of %u: element [%llu,%llu] is %.9g, the serial oracle "
             "says %.9g",
             q->kind, bs_dtype_name(q->dtype), (unsigned long long)q->rows, (unsigned long long)q->count,
             q->in_place ? " in place" : "", t->rank, t->size, (unsigned long long)row,
             (unsigned long long)col, got, want);
}

static uint64_t own_count(const point *q, uint32_t rank) {
  return q->count == 0 ? 0 : (q->count + rank * 3u) % (2u * q->count + 1u); /* uneven */
}

/* What rank `from` has at element i of its input, as the dtype holds it. */
static double input(const point *q, uint32_t from, uint64_t i) {
  return rounded(q->dtype, value_of(q->dtype, from, i));
}

static void one_reduce_or_broadcast(test_rank *t, const point *q) {
  bs_coll_call c = make_call(q->kind, q->dtype, q->rows, q->count, "kit");
  const uint64_t size = BS_DTYPE_BYTES(q->dtype);
  c.root = t->size - 1;
  c.in_stride = c.out_stride = (int64_t)q->count + q->pad;
  const uint64_t bytes = q->rows * (uint64_t)c.in_stride * size;
  unsigned char *x = buffer(bytes), *y = q->in_place ? x : buffer(bytes);
  fill(q->dtype, x, t->rank, q->rows, q->count, c.in_stride);
  c.in = x;
  c.out = y;
  if (served(t, q, slot_of(t->comm, q->kind)(t->handle, &c, &t->err))) {
    const uint64_t n = q->rows * q->count;
    for (uint64_t i = 0; i < n; i += step_for(n)) {
      const uint64_t row = i / q->count, col = i % q->count;
      const double want = q->kind == BS_COLL_BROADCAST ? input(q, c.root, i)
                                                       : reduced(q->dtype, q->dtype, q->dtype, t->size, i);
      same(t, q, row, col, bs_load_f64(q->dtype, y, (int64_t)row * c.out_stride + (int64_t)col), want);
    }
    check_tail(y, bytes, t, q);
  }
  if (y != x) free(y);
  free(x);
}

static void one_gather(test_rank *t, const point *q) {
  uint64_t counts[16], total = 0, first = 0;
  for (uint32_t r = 0; r < t->size; r++) {
    counts[r] = own_count(q, r);
    if (r < t->rank) first += counts[r];
    total += counts[r];
  }
  bs_coll_call c = make_call(q->kind, q->dtype, q->rows, 0, "kit");
  const uint64_t size = BS_DTYPE_BYTES(q->dtype), mine = counts[t->rank];
  c.counts = counts;
  c.out_stride = (int64_t)total + q->pad;
  c.in_stride = q->in_place ? c.out_stride : (int64_t)mine + q->pad;
  const uint64_t bytes = q->rows * (uint64_t)c.out_stride * size;
  unsigned char *y = buffer(bytes),
                *x = q->in_place ? y + first * size : buffer(q->rows * (mine + 64) * size);
  fill(q->dtype, x, t->rank, q->rows, mine, c.in_stride);
  c.in = x;
  c.out = y;
  if (served(t, q, t->comm->all_gather(t->handle, &c, &t->err))) {
    for (uint64_t row = 0; row < q->rows; row++)
      for (uint64_t col = 0, r = 0, from = 0; col < total; col++) {
        while (col >= from + counts[r]) from += counts[r++];
        same(t, q, row, col, bs_load_f64(q->dtype, y, (int64_t)row * c.out_stride + (int64_t)col),
             input(q, (uint32_t)r, row * counts[r] + col - from));
      }
    check_tail(y, bytes, t, q);
  }
  if (!q->in_place) free(x);
  free(y);
}

static void one_scatter(test_rank *t, const point *q) {
  uint64_t counts[16], total = 0, first = 0;
  for (uint32_t r = 0; r < t->size; r++) {
    counts[r] = own_count(q, r);
    if (r < t->rank) first += counts[r];
    total += counts[r];
  }
  bs_coll_call c = make_call(q->kind, q->dtype, q->rows, 0, "kit");
  const uint64_t size = BS_DTYPE_BYTES(q->dtype), mine = counts[t->rank];
  c.counts = counts;
  c.in_stride = (int64_t)total + q->pad;
  c.out_stride = (int64_t)mine + q->pad;
  const uint64_t bytes = q->rows * (uint64_t)c.out_stride * size;
  unsigned char *x = buffer(q->rows * (uint64_t)c.in_stride * size), *y = buffer(bytes);
  fill(q->dtype, x, t->rank, q->rows, total, c.in_stride);
  c.in = x;
  c.out = y;
  if (served(t, q, t->comm->reduce_scatter(t->handle, &c, &t->err))) {
    for (uint64_t row = 0; row < q->rows; row++)
      for (uint64_t col = 0; col < mine; col++)
        same(t, q, row, col, bs_load_f64(q->dtype, y, (int64_t)row * c.out_stride + (int64_t)col),
             reduced(q->dtype, q->dtype, q->dtype, t->size, row * total + first + col));
    check_tail(y, bytes, t, q);
  }
  free(x);
  free(y);
}

/* Every rank sends `count + its rank` elements to each; recv_counts follow from who sends. */
static void one_exchange(test_rank *t, const point *q) {
  uint64_t counts[16], recv[16], in = 0, out = 0, at = 0;
  for (uint32_t r = 0; r < t->size; r++) {
    counts[r] = q->count == 0 ? 0 : q->count + t->rank;
    recv[r] = q->count == 0 ? 0 : q->count + r;
    in += counts[r];
    out += recv[r];
  }
  bs_coll_call c = make_call(q->kind, q->dtype, q->rows, 0, "kit");
  const uint64_t size = BS_DTYPE_BYTES(q->dtype);
  c.counts = counts;
  c.recv_counts = recv;
  c.in_stride = (int64_t)in + q->pad;
  c.out_stride = (int64_t)out + q->pad;
  const uint64_t bytes = q->rows * (uint64_t)c.out_stride * size;
  unsigned char *x = buffer(q->rows * (uint64_t)c.in_stride * size), *y = buffer(bytes);
  fill(q->dtype, x, t->rank, q->rows, in, c.in_stride);
  c.in = x;
  c.out = y;
  if (served(t, q, t->comm->all_to_all(t->handle, &c, &t->err))) {
    for (uint32_t r = 0; r < t->size; at += recv[r++])
      for (uint64_t row = 0; row < q->rows; row++)
        for (uint64_t k = 0; k < recv[r]; k++) {
          const uint64_t theirs = recv[r] * t->size; /* of the sender, a row */
          same(t, q, row, at + k, bs_load_f64(q->dtype, y, (int64_t)row * c.out_stride + (int64_t)(at + k)),
               input(q, r, row * theirs + t->rank * recv[r] + k));
        }
    check_tail(y, bytes, t, q);
  }
  free(x);
  free(y);
}

/* Around the ring, even ranks send first. */
static void one_message(test_rank *t, const point *q) {
  bs_coll_call s = make_call(BS_COLL_SEND, q->dtype, q->rows, q->count, "kit"), r = s;
  const uint64_t size = BS_DTYPE_BYTES(q->dtype), bytes = q->rows * q->count * size;
  const uint32_t next = (t->rank + 1) % t->size, last = (t->rank + t->size - 1) % t->size;
  if (t->size < 2) return;
  unsigned char *x = buffer(bytes), *y = buffer(bytes);
  fill(q->dtype, x, t->rank, q->rows, q->count, s.in_stride);
  s.in = x;
  s.root = next;
  r.kind = BS_COLL_RECV;
  r.out = y;
  r.root = last;
  int32_t rc = BS_OK;
  for (uint32_t turn = 0; turn < 2 && rc == BS_OK; turn++)
    rc = t->rank % 2 == turn ? t->comm->send(t->handle, &s, &t->err) : t->comm->recv(t->handle, &r, &t->err);
  if (served(t, q, rc)) {
    for (uint64_t i = 0; i < q->rows * q->count; i++)
      same(t, q, 0, i, bs_load_f64(q->dtype, y, (int64_t)i), input(q, last, i));
    check_tail(y, bytes, t, q);
  }
  free(x);
  free(y);
}

static void one_barrier(test_rank *t, const point *q) {
  bs_coll_call c = make_call(BS_COLL_BARRIER, 0, 0, 0, "kit");
  (void)served(t, q, t->comm->barrier(t->handle, &c, &t->err));
}

static void one(test_rank *t, const point *q) {
  switch (q->kind) {
    case BS_COLL_ALL_GATHER:
      one_gather(t, q);
      break;
    case BS_COLL_REDUCE_SCATTER:
      one_scatter(t, q);
      break;
    case BS_COLL_ALL_TO_ALL:
      one_exchange(t, q);
      break;
    case BS_COLL_SEND:
      one_message(t, q);
      break;
    case BS_COLL_BARRIER:
      one_barrier(t, q);
      break;
    default:
      one_reduce_or_broadcast(t, q);
      break;
  }
}

static void values_body(test_rank *t) {
  static const uint64_t counts[] = {0, 1, 7, 333, 20011};
  work *w = t->arg;
  const int may_be_in_place =
      w->kind == BS_COLL_ALL_REDUCE || w->kind == BS_COLL_BROADCAST || w->kind == BS_COLL_ALL_GATHER;
  for (size_t d = 0; d < N_DTYPES; d++)
    for (size_t s = 0; s < sizeof counts / sizeof counts[0]; s++)
      for (int in_place = 0; in_place <= may_be_in_place; in_place++) {
        const point flat = {w->kind, dtypes[d], 1, counts[s], 0, in_place};
        const point rows = {w->kind, dtypes[d], 5, counts[s] % 100, 3, in_place};
        one(t, &flat);
        if (w->kind != BS_COLL_SEND) one(t, &rows);
      }
}

static const bs_comm *open_plugin(const kit_case *c, kit_plugin *p) {
  kit_plugin_open(p);
  test_comm = kit_comm_of(&p->host.things[c->thing], &test_state);
  if (test_comm->launch == BS_LAUNCH_THREADS) return test_comm;
  kit_unsupported("launch %u: the kit starts worlds of threads", test_comm->launch);
  return NULL;
}

void kit_comm_collective(const kit_case *c) {
  static const uint32_t kinds[] = {BS_COLL_ALL_REDUCE, BS_COLL_ALL_GATHER, BS_COLL_REDUCE_SCATTER,
                                   BS_COLL_BROADCAST,  BS_COLL_ALL_TO_ALL, BS_COLL_SEND,
                                   BS_COLL_BARRIER};
  static kit_plugin p;
  work w = {.kind = kinds[c->arg]};
  const bs_comm *comm = open_plugin(c, &p);
  if (comm == NULL) return;
  const int least = w.kind == BS_COLL_ALL_REDUCE || w.kind == BS_COLL_BARRIER;
  if (slot_of(comm, w.kind) == NULL || (w.kind == BS_COLL_SEND && comm->recv == NULL)) {
    kit_assert(!least, "has no %s, which every communicator must have",
               w.kind == BS_COLL_BARRIER ? "barrier" : "all_reduce");
    kit_unsupported("the slot is NULL");
    return;
  }
  for (uint32_t size = 1; size <= (kit_full() ? 5u : 3u); size++) {
    test_rank ranks[16];
    run_ranks(size, values_body, &w, ranks);
  }
  kit_assert(!least || w.served > 0, "serves no dtype of %s",
             w.kind == BS_COLL_BARRIER ? "barrier" : "all_reduce");
  kit_unwrap();
  kit_plugin_deactivate(&p);
  if (w.served == 0) kit_unsupported("no dtype of it is served");
}

/* ---- ranks that disagree, come late, or give up --------------------------------------------- */

static int32_t barrier(test_rank *t, const char *site, int64_t timeout_ns) {
  bs_coll_call c = make_call(BS_COLL_BARRIER, 0, 0, 0, site);
  c.timeout_ns = timeout_ns;
  return t->comm->barrier(t->handle, &c, &t->err);
}

static void mismatch_body(test_rank *t) {
  t->rc = barrier(t, t->rank == 0 ? "here" : "there", INT64_C(10000000000));
}
static void late_body(test_rank *t) {
  if (t->rank == 1) return; /* never comes */
  t->rc = barrier(t, "late", INT64_C(200000000));
}
static void abort_body(test_rank *t) {
  if (t->rank == 1) {
    usleep(50000);
    t->comm->abort(t->world, 1, BS_INTERNAL, "the kit says so");
    return;
  }
  t->rc = barrier(t, "abort", INT64_C(20000000000));
}

void kit_comm_faults(const kit_case *c) {
  static void (*const bodies[])(test_rank *) = {mismatch_body, late_body, abort_body};
  static const int32_t wanted[] = {BS_MISMATCH, BS_DEADLINE, BS_ABORTED};
  static const char *const what[] = {"ranks are at different call sites", "a rank does not come",
                                     "a rank aborts the world"};
  static kit_plugin p;
  test_rank ranks[16];
  const bs_comm *comm = open_plugin(c, &p);
  if (comm == NULL) return;
  if (comm->barrier == NULL) {
    kit_unsupported("the slot barrier is NULL");
    return;
  }
  run_ranks(3, bodies[c->arg], NULL, ranks);
  for (uint32_t r = 0; r < 3; r++) {
    if (c->arg > 0 && r == 1) continue;
    kit_assert(ranks[r].rc == wanted[c->arg], "%s: rank %u gets %s, it must be %s", what[c->arg], r,
               bs_status_name(ranks[r].rc), bs_status_name(wanted[c->arg]));
    kit_assert(ranks[r].err.message[0] != '\0', "%s: rank %u gets no reason", what[c->arg], r);
  }
  kit_unwrap();
  kit_plugin_deactivate(&p);
}
