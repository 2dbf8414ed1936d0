/* SPDX-License-Identifier: MIT
 * driven_data.c - see driven_data.h. Element by element, as comm.h says it. */
#include "kit/driven_data.h"

#include "core/base/dtype.h"

static double get(const bs_coll_call *c, uint64_t row, uint64_t col) {
  return bs_load_f64(c->dtype_in, c->in, (int64_t)row * c->in_stride + (int64_t)col);
}

static void put(const bs_coll_call *c, uint64_t row, uint64_t col, double value) {
  bs_store_f64(c->dtype_out, c->out, (int64_t)row * c->out_stride + (int64_t)col, value);
}

static double rounded(uint32_t dtype, double value) {
  double room = 0.0;
  bs_store_f64(dtype, &room, 0, value);
  return bs_load_f64(dtype, &room, 0);
}

/* The reduction of one element in rank order, as the reduce dtype holds it. */
static double reduce(const bs_coll_call *const *calls, uint32_t n, uint64_t row, uint64_t col) {
  const uint32_t dtype = calls[0]->reduce_dtype;
  double sum = 0.0;
  for (uint32_t r = 0; r < n; r++) {
    const double v = rounded(dtype, get(calls[r], row, col));
    if (r == 0)
      sum = v;
    else if (calls[0]->reduce_op == BS_REDUCE_SUM)
      sum = rounded(dtype, sum + v);
    else if ((calls[0]->reduce_op == BS_REDUCE_MAX) == (v > sum))
      sum = v;
  }
  return sum;
}

static void all_reduce(const bs_coll_call *const *calls, uint32_t n) {
  for (uint64_t row = 0; row < calls[0]->rows; row++)
    for (uint64_t col = 0; col < calls[0]->count; col++) {
      const double sum = reduce(calls, n, row, col);
      for (uint32_t r = 0; r < n; r++) put(calls[r], row, col, sum);
    }
}

static void reduce_scatter(const bs_coll_call *const *calls, uint32_t n) {
  for (uint64_t row = 0; row < calls[0]->rows; row++)
    for (uint64_t r = 0, first = 0; r < n; first += calls[0]->counts[r++])
      for (uint64_t col = 0; col < calls[0]->counts[r]; col++)
        put(calls[r], row, col, reduce(calls, n, row, first + col));
}

static void all_gather(const bs_coll_call *const *calls, uint32_t n) {
  for (uint64_t row = 0; row < calls[0]->rows; row++)
    for (uint64_t r = 0, first = 0; r < n; first += calls[0]->counts[r++])
      for (uint64_t col = 0; col < calls[0]->counts[r]; col++) {
        const double value = get(calls[r], row, col);
        for (uint32_t to = 0; to < n; to++) put(calls[to], row, first + col, value);
      }
}

static void broadcast(const bs_coll_call *const *calls, uint32_t n) {
  for (uint64_t row = 0; row < calls[0]->rows; row++)
    for (uint64_t col = 0; col < calls[0]->count; col++) {
      const double value = get(calls[calls[0]->root], row, col);
      for (uint32_t r = 0; r < n; r++) put(calls[r], row, col, value);
    }
}

static void all_to_all(const bs_coll_call *const *calls, uint32_t n) {
  for (uint32_t from = 0; from < n; from++)
    for (uint64_t to = 0, first = 0; to < n; first += calls[from]->counts[to++]) {
      uint64_t at = 0;
      for (uint32_t r = 0; r < from; r++) at += calls[to]->recv_counts[r];
      for (uint64_t row = 0; row < calls[from]->rows; row++)
        for (uint64_t col = 0; col < calls[from]->counts[to] && col < calls[to]->recv_counts[from]; col++)
          put(calls[to], row, at + col, get(calls[from], row, first + col));
    }
}

void kit_driven_exchange(const bs_coll_call *const *calls, uint32_t n) {
  switch (calls[0]->kind) {
    case BS_COLL_ALL_REDUCE:
      all_reduce(calls, n);
      break;
    case BS_COLL_ALL_GATHER:
      all_gather(calls, n);
      break;
    case BS_COLL_REDUCE_SCATTER:
      reduce_scatter(calls, n);
      break;
    case BS_COLL_BROADCAST:
      broadcast(calls, n);
      break;
    case BS_COLL_ALL_TO_ALL:
      all_to_all(calls, n);
      break;
    default: /* a barrier moves nothing */
      break;
  }
}

void kit_driven_message(const bs_coll_call *send, const bs_coll_call *recv) {
  for (uint64_t row = 0; row < send->rows; row++)
    for (uint64_t col = 0; col < send->count; col++) put(recv, row, col, get(send, row, col));
}
