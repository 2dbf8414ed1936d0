/* SPDX-License-Identifier: MIT
 *
 * reduce.c - all_reduce and reduce_scatter. Small all_reduce: one shot, every rank reduces everything from
 * copies in the slots (one meeting). Large: each rank reduces its slice from where the inputs lie and writes
 * the result into every rank's output (two meetings). The order of additions is the rank order in both, so
 * the bits do not depend on the size, and are equal on every rank.
 */
#include "threads.h"

static inline const char *in_at(const thr_header *h, uint64_t row, uint64_t col, uint64_t size) {
  return (const char *)h->in + ((int64_t)row * h->in_stride + (int64_t)col) * (int64_t)size;
}
static inline char *out_at(const thr_header *h, uint64_t row, uint64_t col, uint64_t size) {
  return (char *)h->out + ((int64_t)row * h->out_stride + (int64_t)col) * (int64_t)size;
}
/* The sum of f32 in f32 over copies that lie dense: the hot small case. */
static void one_shot_f32(thr_comm *comm, uint64_t bytes, float *out, uint64_t n) {
  const thr_kernels *k = &comm->world->kernels;
  const float *a = (const float *)(const void *)thr_inline(comm, 0, bytes);
  const float *b = (const float *)(const void *)thr_inline(comm, 1, bytes);
  k->add2_f32(out, a, b, n);
  for (uint32_t r = 2; r < comm->group->n; ++r)
    k->add_f32(out, (const float *)(const void *)thr_inline(comm, r, bytes), n);
}

static int32_t one_shot(thr_comm *comm, const bs_coll_call *call, uint64_t bytes, bs_error *err) {
  const thr_world *world = comm->world;
  uint64_t n = call->rows * call->count;
  thr_copy_rows(world, call->dtype_in, thr_inline(comm, comm->me, bytes), (int64_t)call->count,
                call->dtype_in, call->in, call->in_stride, call->rows, call->count);
  int32_t rc = thr_meet(comm, call, 0, err);
  if (rc != BS_OK || n == 0) return rc;
  int dense = call->rows == 1 || call->out_stride == (int64_t)call->count;
  if (dense && comm->group->n > 1 && thr_sums_f32(call)) {
    one_shot_f32(comm, bytes, call->out, n);
    return BS_OK;
  }
  thr_reduction red;
  rc = thr_reduction_init(&red, world, call, err);
  uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  uint64_t span = dense ? n : call->count;
  for (uint64_t at = 0; rc == BS_OK && at < n;) {
    uint64_t row = at / span, col = at % span;
    uint64_t part = comm_min(span - col, THR_CHUNK);
    rc = thr_reduction_first(&red, thr_inline(comm, 0, bytes) + at * in_size, part);
    for (uint32_t r = 1; rc == BS_OK && r < comm->group->n; ++r)
      rc = thr_reduction_add(&red, thr_inline(comm, r, bytes) + at * in_size, part);
    char *out = (char *)call->out + ((int64_t)row * call->out_stride + (int64_t)col) * (int64_t)out_size;
    if (rc == BS_OK) rc = thr_reduction_store(&red, out, part);
    at += part;
  }
  return rc;
}

/* For two ranks: sums a run of f32 and writes both outputs. */
static void sum_pair_f32(const thr_comm *comm, uint64_t row, uint64_t col, uint64_t n) {
  const thr_header *zero = thr_peer(comm, 0), *one = thr_peer(comm, 1);
  comm->world->kernels.add2_both_f32((float *)(void *)out_at(thr_peer(comm, comm->me), row, col, 4),
                                     (float *)(void *)out_at(thr_peer(comm, 1u - comm->me), row, col, 4),
                                     (const float *)(const void *)in_at(zero, row, col, 4),
                                     (const float *)(const void *)in_at(one, row, col, 4), n);
}

/* Reduce elements [begin, end) of the flattened matrix and give them to every rank. */
static int32_t reduce_slice(thr_comm *comm, const bs_coll_call *call, uint64_t begin, uint64_t end,
                            uint64_t span) {
  const thr_group *group = comm->group;
  uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  const thr_kernels *k = &comm->world->kernels;
  int f32_sum = group->n > 1 && thr_sums_f32(call);
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, comm->world, call, NULL);
  for (uint64_t at = begin; rc == BS_OK && at < end;) {
    uint64_t row = at / span, col = at % span;
    uint64_t part = comm_min(comm_min(span - col, THR_CHUNK), end - at);
    if (f32_sum && group->n == 2) {
      sum_pair_f32(comm, row, col, part);
      at += part;
      continue;
    }
    if (f32_sum) {
      k->add2_f32(red.acc.f32, (const float *)(const void *)in_at(thr_peer(comm, 0), row, col, 4),
                  (const float *)(const void *)in_at(thr_peer(comm, 1), row, col, 4), part);
      for (uint32_t r = 2; r < group->n; ++r)
        k->add_f32(red.acc.f32, (const float *)(const void *)in_at(thr_peer(comm, r), row, col, 4), part);
    } else {
      rc = thr_reduction_first(&red, in_at(thr_peer(comm, 0), row, col, in_size), part);
      for (uint32_t r = 1; rc == BS_OK && r < group->n; ++r)
        rc = thr_reduction_add(&red, in_at(thr_peer(comm, r), row, col, in_size), part);
    }
    char *mine = out_at(thr_peer(comm, comm->me), row, col, out_size);
    if (rc == BS_OK) rc = thr_reduction_store(&red, mine, part);
    for (uint32_t r = 0; rc == BS_OK && r < group->n; ++r)
      if (r != comm->me) k->copy(out_at(thr_peer(comm, r), row, col, out_size), mine, part * out_size);
    at += part;
  }
  return rc;
}

/* 1: every rank's matrices are without gaps between rows, so they are one row. */
static int all_dense(const thr_comm *comm, const bs_coll_call *call) {
  if (call->rows == 1) return 1;
  for (uint32_t r = 0; r < comm->group->n; ++r) {
    const thr_header *h = thr_peer(comm, r);
    if (h->in_stride != (int64_t)call->count || h->out_stride != (int64_t)call->count) return 0;
  }
  return 1;
}

static int32_t two_shot(thr_comm *comm, const bs_coll_call *call, thr_header *h, bs_error *err) {
  uint64_t n = call->rows * call->count;
  thr_set_data(h, call);
  int32_t rc = thr_meet(comm, call, 1, err);
  if (rc != BS_OK) return rc;
  /* Slices of whole cache lines, so that ranks do not write the same one. */
  uint64_t slice = (n + comm->group->n - 1u) / comm->group->n;
  slice = (slice + 63u) & ~(uint64_t)63u;
  uint64_t begin = comm_min((uint64_t)comm->me * slice, n), end = comm_min(begin + slice, n);
  int32_t work = reduce_slice(comm, call, begin, end, all_dense(comm, call) ? n : call->count);
  rc = thr_part(comm, call, err);
  if (rc != BS_OK) return rc;
  return comm_reduced(work, err);
}

int32_t thr_all_reduce(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  thr_header *h;
  int32_t rc = thr_check_reduction(comm->world, call, err);
  if (rc != BS_OK) return rc;
  rc = thr_begin(comm, call, &h, err);
  if (rc != BS_OK) return rc;
  uint64_t bytes = call->rows * call->count * BS_DTYPE_BYTES(call->dtype_in);
  if (bytes <= comm->world->inline_max) return one_shot(comm, call, bytes, err);
  return two_shot(comm, call, h, err);
}

/* My block of every rank's input, reduced into my output. */
static int32_t reduce_block(thr_comm *comm, const bs_coll_call *call, uint64_t first_col) {
  uint64_t mine = call->counts[comm->me];
  uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, comm->world, call, NULL);
  for (uint64_t row = 0; row < call->rows; ++row) {
    for (uint64_t col = 0; rc == BS_OK && col < mine; col += THR_CHUNK) {
      uint64_t part = comm_min(mine - col, THR_CHUNK);
      rc = thr_reduction_first(&red, in_at(thr_peer(comm, 0), row, first_col + col, in_size), part);
      for (uint32_t r = 1; rc == BS_OK && r < comm->group->n; ++r)
        rc = thr_reduction_add(&red, in_at(thr_peer(comm, r), row, first_col + col, in_size), part);
      if (rc == BS_OK)
        rc = thr_reduction_store(&red, out_at(thr_peer(comm, comm->me), row, col, out_size), part);
    }
  }
  return rc;
}

int32_t thr_reduce_scatter(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  thr_comm *comm = comm_ptr;
  thr_header *h;
  int32_t rc = thr_check_reduction(comm->world, call, err);
  if (rc != BS_OK) return rc;
  rc = thr_begin(comm, call, &h, err);
  if (rc != BS_OK) return rc;
  thr_set_data(h, call);
  uint64_t first_col = 0;
  for (uint32_t r = 0; r < comm->me; ++r) first_col += call->counts[r];
  rc = thr_meet(comm, call, 1, err);
  if (rc != BS_OK) return rc;
  int32_t work = reduce_block(comm, call, first_col);
  rc = thr_part(comm, call, err);
  if (rc != BS_OK) return rc;
  return comm_reduced(work, err);
}
