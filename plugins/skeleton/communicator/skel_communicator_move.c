/* SPDX-License-Identifier: MIT
 * skel_communicator_move.c - the collectives of skel_communicator once all calls are there: plain loops over
 * all ranks' memory, run by one of them. */
#include "skel_communicator.h"

enum { CHUNK = 256 }; /* elements reduced at a time: 2 KiB of stack a buffer */

static int is_float(uint32_t dtype) {
  return dtype == BS_F64 || dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F8E4M3 ||
         dtype == BS_F8E5M2;
}

static int converts(const bs_host *host, uint32_t to, uint32_t from) {
  const double zero = 0.0; /* one element of any dtype */
  double out;
  return host->convert(to, &out, from, &zero, 1) == BS_OK;
}

int32_t skel_communicator_check(const bs_host *host, const bs_coll_call *call, bs_error *err) {
  if (call->kind == BS_COLL_BARRIER) return BS_OK;
  if (call->kind == BS_COLL_ALL_REDUCE &&
      !(is_float(call->dtype_in) && is_float(call->reduce_dtype) && is_float(call->dtype_out)))
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-COMMUNICATOR-DTYPE",
                   "reduces floats only, not 0x%04x in 0x%04x to 0x%04x", call->dtype_in, call->reduce_dtype,
                   call->dtype_out);
  if (!converts(host, call->dtype_out, call->dtype_in))
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-COMMUNICATOR-DTYPE", "no conversion from 0x%04x to 0x%04x",
                   call->dtype_in, call->dtype_out);
  return BS_OK;
}

static const char *in_at(const bs_coll_call *c, uint64_t row, uint64_t col) {
  const int64_t place = (int64_t)row * c->in_stride + (int64_t)col;
  return (const char *)c->in + place * (int64_t)BS_DTYPE_BYTES(c->dtype_in);
}

static char *out_at(const bs_coll_call *c, uint64_t row, uint64_t col) {
  const int64_t place = (int64_t)row * c->out_stride + (int64_t)col;
  return (char *)c->out + place * (int64_t)BS_DTYPE_BYTES(c->dtype_out);
}

/* n columns of every row of `from` into columns col.. of `to`; they may be the same memory. */
static int32_t copy_block(const bs_host *host, const bs_coll_call *from, const bs_coll_call *to, uint64_t col,
                          uint64_t n) {
  for (uint64_t row = 0; n > 0 && row < to->rows; row++) {
    const char *src = in_at(from, row, 0);
    char *dst = out_at(to, row, col);
    if (dst == src && from->dtype_in == to->dtype_out) continue;
    const int32_t rc = host->convert(to->dtype_out, dst, from->dtype_in, src, n);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t all_gather(const bs_host *host, const bs_coll_call *const *calls, uint32_t size) {
  for (uint32_t to = 0; to < size; to++) {
    uint64_t col = 0;
    for (uint32_t from = 0; from < size; from++) {
      const uint64_t n = calls[to]->counts[from];
      const int32_t rc = copy_block(host, calls[from], calls[to], col, n);
      if (rc != BS_OK) return rc;
      col += n;
    }
  }
  return BS_OK;
}

static int32_t broadcast(const bs_host *host, const bs_coll_call *const *calls, uint32_t size) {
  const bs_coll_call *root = calls[calls[0]->root];
  int32_t rc = BS_OK;
  for (uint32_t to = 0; rc == BS_OK && to < size; to++) /* first to the others: root's in may be its out */
    if (calls[to] != root) rc = copy_block(host, root, calls[to], 0, root->count);
  return rc == BS_OK ? copy_block(host, root, root, 0, root->count) : rc;
}

/* Values of `dtype` rounded to the reduce dtype, as f64: every float has room there. */
static int32_t load(const bs_host *host, uint32_t reduce, uint32_t dtype, const void *src, uint64_t n,
                    double *out) {
  double rounded[CHUNK];
  const int32_t rc = host->convert(reduce, rounded, dtype, src, n);
  return rc == BS_OK ? host->convert(BS_F64, out, reduce, rounded, n) : rc;
}

static double combine(uint32_t op, double a, double b) {
  if (op == BS_REDUCE_MAX) return a > b || a != a ? a : b; /* NaN stays */
  if (op == BS_REDUCE_MIN) return a < b || a != a ? a : b;
  return a + b;
}

/* n elements of every rank, in rank order, each partial result rounded to the reduce dtype. The sum of two
 * values of a narrower float made in f64 and rounded once is the correctly rounded sum. */
static int32_t reduce_piece(const bs_host *host, const bs_coll_call *const *calls, uint32_t size,
                            uint64_t row, uint64_t col, uint64_t n) {
  const uint32_t reduce = calls[0]->reduce_dtype, in = calls[0]->dtype_in;
  double sum[CHUNK], next[CHUNK];
  int32_t rc = load(host, reduce, in, in_at(calls[0], row, col), n, sum);
  for (uint32_t r = 1; rc == BS_OK && r < size; r++) {
    rc = load(host, reduce, in, in_at(calls[r], row, col), n, next);
    if (rc != BS_OK) return rc;
    for (uint64_t i = 0; i < n; i++) next[i] = combine(calls[0]->reduce_op, sum[i], next[i]);
    rc = load(host, reduce, BS_F64, next, n, sum);
  }
  for (uint32_t r = 0; rc == BS_OK && r < size; r++)
    rc = host->convert(calls[r]->dtype_out, out_at(calls[r], row, col), BS_F64, sum, n);
  return rc;
}

/* Piece by piece over all ranks, so that an input may be its rank's output. */
static int32_t all_reduce(const bs_host *host, const bs_coll_call *const *calls, uint32_t size) {
  const uint64_t rows = calls[0]->rows, count = calls[0]->count;
  for (uint64_t row = 0; row < rows; row++)
    for (uint64_t col = 0; col < count; col += CHUNK) {
      const uint64_t left = count - col, n = left < CHUNK ? left : (uint64_t)CHUNK;
      const int32_t rc = reduce_piece(host, calls, size, row, col, n);
      if (rc != BS_OK) return rc;
    }
  return BS_OK;
}

int32_t skel_communicator_move(const bs_host *host, const bs_coll_call *const *calls, uint32_t size) {
  switch (calls[0]->kind) {
    case BS_COLL_ALL_REDUCE:
      return all_reduce(host, calls, size);
    case BS_COLL_ALL_GATHER:
      return all_gather(host, calls, size);
    case BS_COLL_BROADCAST:
      return broadcast(host, calls, size);
    default: /* a barrier moves nothing */
      return BS_OK;
  }
}
