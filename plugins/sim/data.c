/* SPDX-License-Identifier: MIT
 * data.c - the values of collectives of host memory, by the rules of comm.h: reductions in rank order, each
 * partial sum rounded to the reduce dtype. One thread does it for all ranks when the last one has come. */
#include "world.h"

enum { PIECE = 512 }; /* elements at a time */

typedef struct pieces {
  const bs_host *host;
  const bs_coll_call *call; /* of the first rank: dtypes, op */
  union {
    float f32[PIECE];
    double f64[PIECE];
    int64_t i64[PIECE];
  } sum, next;
  uint64_t room[PIECE]; /* as the reduce dtype */
} pieces;

static const char *in_at(const bs_coll_call *c, uint64_t row, uint64_t col) {
  return (const char *)c->in +
         ((int64_t)row * c->in_stride + (int64_t)col) * (int64_t)BS_DTYPE_BYTES(c->dtype_in);
}
static char *out_at(const bs_coll_call *c, uint64_t row, uint64_t col) {
  return (char *)c->out +
         ((int64_t)row * c->out_stride + (int64_t)col) * (int64_t)BS_DTYPE_BYTES(c->dtype_out);
}

/* The type of sums: f64 for f64, f32 for narrower floats, i64 for integers. */
static uint32_t held_in(uint32_t reduce_dtype) {
  switch (reduce_dtype) {
    case BS_F64:
      return BS_F64;
    case BS_I64:
    case BS_I32:
    case BS_I8:
    case BS_U8:
    case BS_BOOL:
      return BS_I64;
    default:
      return BS_F32;
  }
}

/* dst as `held` <- src, rounded to the reduce dtype on the way. */
static int32_t take(pieces *p, void *dst, uint32_t held, uint32_t src_dtype, const void *src, uint64_t n) {
  const uint32_t reduce = p->call->reduce_dtype;
  if (src_dtype == reduce) return p->host->convert(held, dst, src_dtype, src, n);
  const int32_t rc = p->host->convert(reduce, p->room, src_dtype, src, n);
  return rc == BS_OK ? p->host->convert(held, dst, reduce, p->room, n) : rc;
}

static int64_t wrapped(uint32_t dtype, uint64_t value) {
  switch (dtype) {
    case BS_I32:
      return (int32_t)(uint32_t)value;
    case BS_I8:
      return (int8_t)(uint8_t)value;
    case BS_U8:
      return (uint8_t)value;
    default:
      return (int64_t)value;
  }
}

/* max and min keep a NaN. */
static double pick(uint32_t op, double a, double b) {
  if (a != a || b != b) return a != a ? a : b;
  return (op == BS_REDUCE_MAX) == (b > a) ? b : a;
}

static void add_f32(pieces *p, uint64_t n) {
  const uint32_t op = p->call->reduce_op, reduce = p->call->reduce_dtype;
  for (uint64_t i = 0; i < n; i++)
    p->sum.f32[i] = op == BS_REDUCE_SUM ? p->sum.f32[i] + p->next.f32[i]
                                        : (float)pick(op, (double)p->sum.f32[i], (double)p->next.f32[i]);
  if (reduce == BS_F32) return;
  (void)p->host->convert(reduce, p->room, BS_F32, p->sum.f32, n);
  (void)p->host->convert(BS_F32, p->sum.f32, reduce, p->room, n);
}

static void add_f64(pieces *p, uint64_t n) {
  const uint32_t op = p->call->reduce_op;
  for (uint64_t i = 0; i < n; i++)
    p->sum.f64[i] =
        op == BS_REDUCE_SUM ? p->sum.f64[i] + p->next.f64[i] : pick(op, p->sum.f64[i], p->next.f64[i]);
}

static void add_i64(pieces *p, uint64_t n) {
  const uint32_t op = p->call->reduce_op;
  for (uint64_t i = 0; i < n; i++) {
    const int64_t a = p->sum.i64[i], b = p->next.i64[i];
    if (op == BS_REDUCE_SUM)
      p->sum.i64[i] = wrapped(p->call->reduce_dtype, (uint64_t)a + (uint64_t)b);
    else
      p->sum.i64[i] = (op == BS_REDUCE_MAX) == (b > a) ? b : a;
  }
}

/* The reduction of n elements of a row, into p->sum. */
static int32_t reduce(pieces *p, const sim_arrival *arrivals, uint32_t ranks, uint64_t row, uint64_t col,
                      uint64_t n) {
  const uint32_t held = held_in(p->call->reduce_dtype);
  for (uint32_t r = 0; r < ranks; r++) {
    const bs_coll_call *c = sim_call_at(arrivals, r);
    const int32_t rc =
        take(p, r == 0 ? (void *)&p->sum : (void *)&p->next, held, c->dtype_in, in_at(c, row, col), n);
    if (rc != BS_OK) return rc;
    if (r == 0) continue;
    if (held == BS_F32) add_f32(p, n);
    if (held == BS_F64) add_f64(p, n);
    if (held == BS_I64) add_i64(p, n);
  }
  return BS_OK;
}

static int32_t store(pieces *p, const bs_coll_call *c, uint64_t row, uint64_t col, uint64_t n) {
  return p->host->convert(c->dtype_out, out_at(c, row, col), held_in(p->call->reduce_dtype), &p->sum, n);
}

/* Elements col .. end - 1 of a row, in pieces: to one rank (its column `to`), or to all. */
static int32_t reduce_row(pieces *p, const sim_arrival *arrivals, uint32_t ranks, uint64_t row, uint64_t col,
                          uint64_t end, uint32_t only) {
  int32_t rc = BS_OK;
  const uint64_t first = col;
  for (; rc == BS_OK && col < end; col += PIECE) {
    const uint64_t n = end - col < PIECE ? end - col : PIECE;
    rc = reduce(p, arrivals, ranks, row, col, n);
    for (uint32_t r = 0; rc == BS_OK && r < ranks; r++) {
      if (only != UINT32_MAX && only != r) continue;
      rc = store(p, sim_call_at(arrivals, r), row, only == r ? col - first : col, n);
    }
  }
  return rc;
}

static int32_t reductions(const bs_host *host, const sim_arrival *arrivals, uint32_t ranks) {
  const bs_coll_call *c = sim_call_at(arrivals, 0);
  pieces p = {.host = host, .call = c};
  int32_t rc = BS_OK;
  for (uint64_t row = 0; rc == BS_OK && row < c->rows; row++) {
    if (c->kind == BS_COLL_ALL_REDUCE) {
      rc = reduce_row(&p, arrivals, ranks, row, 0, c->count, UINT32_MAX);
      continue;
    }
    uint64_t first = 0;
    for (uint32_t r = 0; rc == BS_OK && r < ranks; first += c->counts[r++])
      rc = reduce_row(&p, arrivals, ranks, row, first, first + c->counts[r], r);
  }
  return rc;
}

/* n elements of a row of one rank to a row of another. */
static int32_t move(const bs_host *host, const bs_coll_call *from, uint64_t at, const bs_coll_call *to,
                    uint64_t to_at, uint64_t row, uint64_t n) {
  const char *src = in_at(from, row, at);
  char *dst = out_at(to, row, to_at);
  if (n == 0 || src == dst) return BS_OK;
  if (from->dtype_in != to->dtype_out) return host->convert(to->dtype_out, dst, from->dtype_in, src, n);
  memmove(dst, src, n * BS_DTYPE_BYTES(to->dtype_out));
  return BS_OK;
}

static int32_t gather(const bs_host *host, const sim_arrival *arrivals, uint32_t ranks) {
  const bs_coll_call *c = sim_call_at(arrivals, 0);
  int32_t rc = BS_OK;
  for (uint64_t row = 0; row < c->rows; row++) {
    uint64_t first = 0;
    for (uint32_t r = 0; r < ranks; first += c->counts[r++])
      for (uint32_t to = 0; rc == BS_OK && to < ranks; to++)
        rc = move(host, sim_call_at(arrivals, r), 0, sim_call_at(arrivals, to), first, row, c->counts[r]);
  }
  return rc;
}

static int32_t broadcast(const bs_host *host, const sim_arrival *arrivals, uint32_t ranks) {
  const bs_coll_call *from = sim_call_at(arrivals, sim_call_at(arrivals, 0)->root);
  int32_t rc = BS_OK;
  for (uint64_t row = 0; row < from->rows; row++)
    for (uint32_t to = 0; rc == BS_OK && to < ranks; to++)
      rc = move(host, from, 0, sim_call_at(arrivals, to), 0, row, from->count);
  return rc;
}

/* Counts of each pair agree: sim_data has looked. */
static int32_t exchange(const bs_host *host, const sim_arrival *arrivals, uint32_t ranks) {
  uint64_t *firsts = host->alloc(host->ctx, ranks * sizeof *firsts, 64); /* of each sender, its next block */
  int32_t rc = firsts != NULL ? BS_OK : BS_NO_MEMORY;
  for (uint32_t to = 0; rc == BS_OK && to < ranks; to++) {
    const bs_coll_call *t = sim_call_at(arrivals, to);
    uint64_t at = 0;
    for (uint32_t from = 0; rc == BS_OK && from < ranks; at += t->recv_counts[from++]) {
      const bs_coll_call *f = sim_call_at(arrivals, from);
      for (uint64_t row = 0; rc == BS_OK && row < f->rows; row++)
        rc = move(host, f, firsts[from], t, at, row, f->counts[to]);
      firsts[from] += f->counts[to];
    }
  }
  host->free(host->ctx, firsts);
  return rc;
}

int32_t sim_data_check(const sim_arrival *arrivals, uint32_t ranks, bs_error *err) {
  const bs_coll_call *c = sim_call_at(arrivals, 0);
  if (c->kind == BS_COLL_BROADCAST && c->root >= ranks)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-ROOT", "the root is rank %u of %u", c->root, ranks);
  for (uint32_t from = 0; c->kind == BS_COLL_ALL_TO_ALL && from < ranks; from++) {
    const bs_coll_call *f = sim_call_at(arrivals, from);
    for (uint32_t to = 0; to < ranks; to++) {
      const bs_coll_call *t = sim_call_at(arrivals, to);
      if (f->counts == t->recv_counts || f->counts[to] == t->recv_counts[from]) continue;
      return bs_fail(err, BS_MISMATCH, "BS-SIM-MISMATCH",
                     "all_to_all: rank %u sends %llu elements a row to rank %u, which expects %llu (%s)",
                     arrivals[from].rank, (unsigned long long)f->counts[to], arrivals[to].rank,
                     (unsigned long long)t->recv_counts[from], f->site != NULL ? f->site : "");
    }
  }
  return BS_OK;
}

int32_t sim_data_move(const bs_host *host, const sim_arrival *arrivals, uint32_t ranks) {
  switch (sim_call_at(arrivals, 0)->kind) {
    case BS_COLL_ALL_REDUCE:
    case BS_COLL_REDUCE_SCATTER:
      return reductions(host, arrivals, ranks);
    case BS_COLL_ALL_GATHER:
      return gather(host, arrivals, ranks);
    case BS_COLL_BROADCAST:
      return broadcast(host, arrivals, ranks);
    case BS_COLL_ALL_TO_ALL:
      return exchange(host, arrivals, ranks);
    default: /* a barrier moves nothing */
      return BS_OK;
  }
}
