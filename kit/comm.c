/* SPDX-License-Identifier: MIT
 * comm.c - group communicator: every collective against the serial oracle of tests/comm/ranks.h, over dtypes,
 * sizes, row strides, operations and in place, in the world and in groups of it. */
#include "kit/comm.h"

#include <stdio.h>

static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_I64, BS_I32, BS_I8};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0], BIG = 100033 };

typedef int32_t (*collective_fn)(void *comm, const bs_coll_call *call, bs_error *err);

static collective_fn slot_of(const bs_comm *c, uint32_t kind) {
  const collective_fn slots[BS_COLL_COUNT_] = {c->all_reduce, c->all_gather, c->reduce_scatter, c->broadcast,
                                               c->all_to_all, c->send,       c->recv,           c->barrier};
  return slots[kind];
}

/* OK, or UNSUPPORTED with a reason; anything else fails. 1: served. */
static int served(test_rank *t, const kit_point *q, int32_t rc) {
  char text[160];
  if (rc == BS_OK) {
    kit_mine(t)->served++;
    return 1;
  }
  kit_assert(rc == BS_UNSUPPORTED, "%s: rank %u gets %s: %s", kit_point_text(q, text, sizeof text), t->rank,
             bs_status_name(rc), t->err.message);
  kit_assert(t->err.message[0] != '\0', "%s is refused without a reason",
             kit_point_text(q, text, sizeof text));
  return 0;
}

static void same(const test_rank *t, const kit_point *q, uint64_t row, uint64_t col, double got,
                 double want) {
  char text[160];
  kit_assert(got == want || (got != got && want != want),
             "%s: rank %u of %u: element [%llu,%llu] is %.9g, the serial oracle says %.9g",
             kit_point_text(q, text, sizeof text), t->rank, t->size, (unsigned long long)row,
             (unsigned long long)col, got, want);
}

/* Records the bytes, row by row, of a result that every rank of the world gets alike. */
static void keep_bits(const test_rank *t, const kit_point *q, const kit_buffer *b, uint64_t cols,
                      int64_t stride, uint64_t size) {
  uint64_t *bits = &kit_mine(t)->bits;
  if (q->where[0] != '\0') return; /* not all are in the group */
  for (uint64_t row = 0; row < q->rows; row++) {
    const unsigned char *from = b->data + row * (uint64_t)stride * size;
    for (uint64_t i = 0; i < cols * size; i++) *bits = (*bits ^ from[i]) * UINT64_C(1099511628211);
  }
}

static uint64_t own_count(const kit_point *q, uint32_t rank) {
  return q->count == 0 ? 0 : (q->count + rank * 3u) % (2u * q->count + 1u); /* uneven */
}

/* The value of element i in the input of rank `from`, rounded to the dtype. */
static double input(const kit_point *q, uint32_t from, uint64_t i) {
  return rounded(q->dtype, value_of(q->dtype, from, i));
}

static bs_coll_call call_of(const kit_point *q, uint64_t count) {
  bs_coll_call c = make_call(q->kind, q->dtype, q->rows, count, "kit");
  c.dtype_out = kit_point_out(q);
  c.reduce_dtype = kit_point_reduce(q);
  c.reduce_op = q->op;
  c.flags = q->any_order ? (uint32_t)BS_COLL_ANY_ORDER : 0;
  c.fingerprint += (uint64_t)q->op * 7919u + c.dtype_out * 104729u;
  return c;
}

static void one_reduce_or_broadcast(test_rank *t, const kit_point *q) {
  bs_coll_call c = call_of(q, q->count);
  const uint64_t size = BS_DTYPE_BYTES(c.dtype_out);
  kit_buffer x, own, *y = q->in_place ? &x : &own;
  c.root = t->size - 1;
  c.in_stride = c.out_stride = (int64_t)q->count + q->pad;
  kit_buffer_make(&x, q->rows * (uint64_t)c.in_stride * BS_DTYPE_BYTES(q->dtype));
  if (!q->in_place) kit_buffer_make(&own, q->rows * (uint64_t)c.out_stride * size);
  fill(q->dtype, x.data, t->rank, q->rows, q->count, c.in_stride);
  for (uint64_t i = 0; i < q->count; i++) {
    const double special = kit_point_special(q, t->rank, t->size, i);
    if (special != 0.0) bs_store_f64(q->dtype, x.data, (int64_t)i, special);
  }
  kit_buffer_keep(&x);
  if (!q->in_place) kit_buffer_keep(&own);
  c.in = x.data;
  c.out = y->data;
  if (served(t, q, slot_of(t->comm, q->kind)(t->handle, &c, &t->err))) {
    const uint64_t n = q->rows * q->count;
    for (uint64_t i = 0; i < n; i += q->count == BIG ? 1 : step_for(n)) {
      const uint64_t row = i / q->count, col = i % q->count;
      const double want =
          q->kind == BS_COLL_BROADCAST ? input(q, c.root, i) : kit_point_reduced(q, t->size, i);
      same(t, q, row, col, bs_load_f64(c.dtype_out, y->data, (int64_t)row * c.out_stride + (int64_t)col),
           want);
    }
    keep_bits(t, q, y, q->count, c.out_stride, size);
    kit_buffer_check(y, q, t->rank, q->rows, q->count, c.out_stride, size);
  }
  if (!q->in_place) {
    kit_buffer_check(&x, q, t->rank, 0, 0, 0, 1);
    kit_buffer_free(&own);
  }
  kit_buffer_free(&x);
}

static void one_gather(test_rank *t, const kit_point *q) {
  uint64_t counts[16], total = 0, first = 0;
  for (uint32_t r = 0; r < t->size; r++) {
    counts[r] = own_count(q, r);
    if (r < t->rank) first += counts[r];
    total += counts[r];
  }
  bs_coll_call c = call_of(q, 0);
  const uint64_t size = BS_DTYPE_BYTES(q->dtype), mine = counts[t->rank];
  kit_buffer x = {0}, y;
  c.counts = counts;
  c.out_stride = (int64_t)total + q->pad;
  c.in_stride = q->in_place ? c.out_stride : (int64_t)mine + q->pad;
  kit_buffer_make(&y, q->rows * (uint64_t)c.out_stride * size);
  if (!q->in_place) kit_buffer_make(&x, q->rows * (uint64_t)c.in_stride * size);
  unsigned char *in = q->in_place ? y.data + first * size : x.data;
  fill(q->dtype, in, t->rank, q->rows, mine, c.in_stride);
  kit_buffer_keep(&y);
  if (!q->in_place) kit_buffer_keep(&x);
  c.in = in;
  c.out = y.data;
  if (served(t, q, t->comm->all_gather(t->handle, &c, &t->err))) {
    for (uint64_t row = 0; row < q->rows; row++)
      for (uint64_t col = 0, r = 0, from = 0; col < total; col++) {
        while (col >= from + counts[r]) from += counts[r++];
        same(t, q, row, col, bs_load_f64(q->dtype, y.data, (int64_t)row * c.out_stride + (int64_t)col),
             input(q, (uint32_t)r, row * counts[r] + col - from));
      }
    keep_bits(t, q, &y, total, c.out_stride, size);
    kit_buffer_check(&y, q, t->rank, q->rows, total, c.out_stride, size);
  }
  if (!q->in_place) kit_buffer_check(&x, q, t->rank, 0, 0, 0, 1);
  kit_buffer_free(&x);
  kit_buffer_free(&y);
}

static void one_scatter(test_rank *t, const kit_point *q) {
  uint64_t counts[16], total = 0, first = 0;
  for (uint32_t r = 0; r < t->size; r++) {
    counts[r] = own_count(q, r);
    if (r < t->rank) first += counts[r];
    total += counts[r];
  }
  bs_coll_call c = call_of(q, 0);
  const uint64_t size = BS_DTYPE_BYTES(c.dtype_out), mine = counts[t->rank];
  kit_buffer x, y;
  c.counts = counts;
  c.in_stride = (int64_t)total + q->pad;
  c.out_stride = (int64_t)mine + q->pad;
  kit_buffer_make(&x, q->rows * (uint64_t)c.in_stride * BS_DTYPE_BYTES(q->dtype));
  kit_buffer_make(&y, q->rows * (uint64_t)c.out_stride * size);
  fill(q->dtype, x.data, t->rank, q->rows, total, c.in_stride);
  kit_buffer_keep(&x);
  kit_buffer_keep(&y);
  c.in = x.data;
  c.out = y.data;
  if (served(t, q, t->comm->reduce_scatter(t->handle, &c, &t->err))) {
    for (uint64_t row = 0; row < q->rows; row++)
      for (uint64_t col = 0; col < mine; col++)
        same(t, q, row, col, bs_load_f64(c.dtype_out, y.data, (int64_t)row * c.out_stride + (int64_t)col),
             kit_point_reduced(q, t->size, row * total + first + col));
    kit_buffer_check(&y, q, t->rank, q->rows, mine, c.out_stride, size);
  }
  kit_buffer_check(&x, q, t->rank, 0, 0, 0, 1);
  kit_buffer_free(&x);
  kit_buffer_free(&y);
}

/* Every rank sends `count + its rank` elements to each; recv_counts follow from who sends. */
static void one_exchange(test_rank *t, const kit_point *q) {
  uint64_t counts[16], recv[16], in = 0, out = 0, at = 0;
  for (uint32_t r = 0; r < t->size; r++) {
    counts[r] = q->count == 0 ? 0 : q->count + t->rank;
    recv[r] = q->count == 0 ? 0 : q->count + r;
    in += counts[r];
    out += recv[r];
  }
  bs_coll_call c = call_of(q, 0);
  const uint64_t size = BS_DTYPE_BYTES(q->dtype);
  kit_buffer x, y;
  c.counts = counts;
  c.recv_counts = recv;
  c.in_stride = (int64_t)in + q->pad;
  c.out_stride = (int64_t)out + q->pad;
  kit_buffer_make(&x, q->rows * (uint64_t)c.in_stride * size);
  kit_buffer_make(&y, q->rows * (uint64_t)c.out_stride * size);
  fill(q->dtype, x.data, t->rank, q->rows, in, c.in_stride);
  kit_buffer_keep(&x);
  kit_buffer_keep(&y);
  c.in = x.data;
  c.out = y.data;
  if (served(t, q, t->comm->all_to_all(t->handle, &c, &t->err))) {
    for (uint32_t r = 0; r < t->size; at += recv[r++])
      for (uint64_t row = 0; row < q->rows; row++)
        for (uint64_t k = 0; k < recv[r]; k++) {
          const uint64_t theirs = recv[r] * t->size; /* of the sender, a row */
          same(t, q, row, at + k,
               bs_load_f64(q->dtype, y.data, (int64_t)row * c.out_stride + (int64_t)(at + k)),
               input(q, r, row * theirs + t->rank * recv[r] + k));
        }
    kit_buffer_check(&y, q, t->rank, q->rows, out, c.out_stride, size);
  }
  kit_buffer_check(&x, q, t->rank, 0, 0, 0, 1);
  kit_buffer_free(&x);
  kit_buffer_free(&y);
}

/* Around the ring, even ranks send first. */
static void one_message(test_rank *t, const kit_point *q) {
  bs_coll_call s = call_of(q, q->count), r = s;
  const uint64_t size = BS_DTYPE_BYTES(q->dtype);
  const uint32_t next = (t->rank + 1) % t->size, last = (t->rank + t->size - 1) % t->size;
  kit_buffer x, y;
  if (t->size < 2) return;
  s.in_stride += q->pad;
  r.out_stride += q->pad;
  kit_buffer_make(&x, q->rows * (uint64_t)s.in_stride * size);
  kit_buffer_make(&y, q->rows * (uint64_t)r.out_stride * size);
  fill(q->dtype, x.data, t->rank, q->rows, q->count, s.in_stride);
  kit_buffer_keep(&x);
  kit_buffer_keep(&y);
  s.in = x.data;
  s.root = next;
  r.kind = BS_COLL_RECV;
  r.out = y.data;
  r.root = last;
  int32_t rc = BS_OK;
  for (uint32_t turn = 0; turn < 2 && rc == BS_OK; turn++)
    rc = t->rank % 2 == turn ? t->comm->send(t->handle, &s, &t->err) : t->comm->recv(t->handle, &r, &t->err);
  if (served(t, q, rc)) {
    for (uint64_t i = 0; i < q->rows * q->count; i++)
      same(t, q, i / q->count, i % q->count,
           bs_load_f64(q->dtype, y.data, (int64_t)(i / q->count) * r.out_stride + (int64_t)(i % q->count)),
           input(q, last, i));
    kit_buffer_check(&y, q, t->rank, q->rows, q->count, r.out_stride, size);
  }
  kit_buffer_check(&x, q, t->rank, 0, 0, 0, 1);
  kit_buffer_free(&x);
  kit_buffer_free(&y);
}

static void one_barrier(test_rank *t, const kit_point *q) {
  bs_coll_call c = make_call(BS_COLL_BARRIER, 0, 0, 0, "kit");
  (void)served(t, q, t->comm->barrier(t->handle, &c, &t->err));
}

static void one(test_rank *t, const kit_point *q) {
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

/* Other operations and dtypes of a reduction: sums of f32 in bf16 storage and the reverse are what methods
 * ask for. */
static void reductions(test_rank *t, const kit_point *base) {
  static const uint32_t mixed[][3] = {{BS_BF16, BS_F32, BS_F32},
                                      {BS_F32, BS_F32, BS_BF16},
                                      {BS_BF16, BS_F32, BS_BF16},
                                      {BS_F16, BS_F32, BS_F16}};
  for (size_t d = 0; d < N_DTYPES; d++)
    for (uint32_t op = BS_REDUCE_MAX; op <= BS_REDUCE_MIN; op++) {
      kit_point q = *base;
      q.dtype = dtypes[d];
      q.op = op;
      one(t, &q);
    }
  for (size_t m = 0; m < sizeof mixed / sizeof mixed[0]; m++) {
    kit_point q = *base;
    q.dtype = mixed[m][0];
    q.reduce_dtype = mixed[m][1];
    q.dtype_out = mixed[m][2];
    one(t, &q);
  }
}

/* Reductions whose result is the same in any order: of two ranks, of integers, and of the largest one, where
 * a NaN stays. */
static void any_order(test_rank *t, const kit_point *base) {
  static const kit_point points[] = {{.dtype = BS_I64},
                                     {.dtype = BS_I32, .op = BS_REDUCE_MIN},
                                     {.dtype = BS_F32, .op = BS_REDUCE_MAX, .special = 2},
                                     {.dtype = BS_F64, .op = BS_REDUCE_MIN, .special = 2},
                                     {.dtype = BS_F32},
                                     {.dtype = BS_BF16},
                                     {.dtype = BS_BF16, .reduce_dtype = BS_F32, .dtype_out = BS_F32}};
  const size_t n = t->size > 2 ? 4 : sizeof points / sizeof points[0];
  for (size_t i = 0; i < n; i++) {
    kit_point q = points[i];
    q.kind = base->kind;
    q.rows = q.special ? 1 : base->rows;
    q.count = base->count;
    q.pad = q.special ? 0 : base->pad;
    q.where = base->where;
    q.any_order = 1;
    one(t, &q);
  }
}

static void values_of(test_rank *t, const uint64_t *counts, size_t n, const char *where) {
  const kit_work *w = t->arg;
  const int reduces = w->kind == BS_COLL_ALL_REDUCE || w->kind == BS_COLL_REDUCE_SCATTER;
  const int may_be_in_place =
      w->kind == BS_COLL_ALL_REDUCE || w->kind == BS_COLL_BROADCAST || w->kind == BS_COLL_ALL_GATHER;
  for (size_t s = 0; s < n; s++) {
    const kit_point base = {.kind = w->kind, .rows = 1, .count = counts[s], .where = where};
    for (size_t d = 0; d < N_DTYPES; d++)
      for (int in_place = 0; in_place <= may_be_in_place; in_place++) {
        kit_point q = base;
        q.dtype = dtypes[d];
        q.in_place = in_place;
        one(t, &q);
        q.rows = 5;
        q.count %= 100;
        q.pad = 3;
        one(t, &q);
      }
    for (size_t d = 0; d < 4 && w->kind == BS_COLL_ALL_REDUCE && counts[s] == 63; d++) {
      kit_point q = base;
      q.dtype = dtypes[d];
      q.special = 1;
      one(t, &q);
    }
    kit_point rows = base;
    rows.rows = 4;
    rows.pad = 2;
    rows.count %= 1000;
    if (reduces) reductions(t, &rows);
    if (w->kind == BS_COLL_ALL_REDUCE) any_order(t, &rows);
  }
}

/* Checks values in a group of the first and the last rank, by their numbers in it. */
static void values_of_group(test_rank *t) {
  static const uint64_t counts[] = {7, 20011};
  const uint32_t members[2] = {0, t->size - 1};
  test_rank in_group = *t;
  kit_work own = *(const kit_work *)t->arg;
  own.alone = kit_mine(t); /* by the rank in the group it would be another's */
  in_group.arg = &own;
  if (t->rank != members[0] && t->rank != members[1]) return;
  const int32_t rc = t->comm->group_open(t->handle, members, 2, &in_group.handle, &t->err);
  kit_assert(rc == BS_OK, "group_open of ranks 0 and %u of %u fails: %s: %s", members[1], t->size, t->err.id,
             t->err.message);
  in_group.rank = t->rank == 0 ? 0 : 1;
  in_group.size = 2;
  values_of(&in_group, counts, sizeof counts / sizeof counts[0], " of a group");
  t->comm->rank_close(in_group.handle);
}

void kit_body_values(test_rank *t) {
  static const uint64_t counts[] = {0, 1, 7, 63, 333, 20011}; /* 63 of 64, or of any vector */
  const kit_work *w = t->arg;
  const kit_point big = {.kind = w->kind, .dtype = BS_F32, .rows = 1, .count = BIG, .where = ""};
  values_of(t, counts, sizeof counts / sizeof counts[0], "");
  if (w->kind == BS_COLL_ALL_REDUCE || w->kind == BS_COLL_BROADCAST) one(t, &big);
  if (t->size > 2 && t->comm->group_open != NULL) values_of_group(t);
}

/* Two ranks whose results are right by value, and differ by a bit: signs of zero, and what is not sampled. */
static void check_bits(const kit_outcome *ranks, uint32_t size, uint32_t kind) {
  static const char *const names[] = {[BS_COLL_ALL_REDUCE] = "all_reduce",
                                      [BS_COLL_ALL_GATHER] = "all_gather",
                                      [BS_COLL_BROADCAST] = "broadcast"};
  for (uint32_t r = 1; r < size; r++)
    kit_assert(ranks[r].bits == ranks[0].bits, "%s: ranks 0 and %u of %u get other bits", names[kind], r,
               size);
}

void kit_comm_collective(const kit_case *c) {
  static const uint32_t kinds[] = {BS_COLL_ALL_REDUCE, BS_COLL_ALL_GATHER, BS_COLL_REDUCE_SCATTER,
                                   BS_COLL_BROADCAST,  BS_COLL_ALL_TO_ALL, BS_COLL_SEND,
                                   BS_COLL_BARRIER};
  static kit_plugin p;
  const uint32_t kind = kinds[c->arg];
  uint32_t n_served = 0;
  const bs_comm *comm = kit_comm_open(c, &p);
  if (comm == NULL) return;
  const int least = kind == BS_COLL_ALL_REDUCE || kind == BS_COLL_BARRIER;
  if (slot_of(comm, kind) == NULL || (kind == BS_COLL_SEND && comm->recv == NULL)) {
    kit_assert(!least, "has no %s, which every communicator must have",
               kind == BS_COLL_BARRIER ? "barrier" : "all_reduce");
    kit_unsupported("the slot is NULL");
    return;
  }
  const uint32_t most = comm->launch == BS_LAUNCH_ATTACHED ? 4 : kit_full() ? 5 : 3;
  for (uint32_t size = 1; size <= most; size++) {
    const kit_outcome *ranks = kit_comm_run(comm, KIT_VALUES, kind, size);
    if (ranks == NULL) return;
    for (uint32_t r = 0; r < size; r++) n_served += ranks[r].served;
    check_bits(ranks, size, kind);
  }
  kit_assert(!least || n_served > 0, "serves no dtype of %s",
             kind == BS_COLL_BARRIER ? "barrier" : "all_reduce");
  kit_comm_close(&p);
  if (n_served == 0) kit_unsupported("no dtype of it is served");
}
