/* SPDX-License-Identifier: MIT
 *
 * stage.c - see stage.h. Larger collectives go in pieces that fit a half; the number of pieces is the same on
 * every rank. This file has those that only move data, and stage_reduce.c those that reduce.
 */
#include "stage.h"

#include "matrix.h"
#include "stage_parts.h"

int32_t stage_share(const comm_stage *s, const bs_coll_call *call, uint64_t bytes, uint32_t root,
                    comm_shown *out, bs_error *err) {
  if (s->far != NULL) return s->far->share(s->comm, call, bytes, root, out, err);
  return s->meet(s->comm, call, out, err);
}

uint64_t stage_longest(const comm_stage *s, const bs_coll_call *call) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < s->n; ++r)
    if (call->counts[r] > most) most = call->counts[r];
  return call->rows * most;
}

void stage_show_areas(const comm_stage *s, const bs_coll_call *call, uint64_t begin, uint64_t end,
                      uint64_t area) {
  unsigned char *room = s->room(s->comm);
  uint64_t first = 0;
  for (uint32_t r = 0; r < s->n; first += call->counts[r++]) {
    const comm_matrix from = comm_in(call, first, call->counts[r]);
    const uint64_t all = call->rows * call->counts[r];
    if (begin < all) comm_pack(s->math, &from, begin, comm_min(end, all), room + r * area);
  }
}

static int32_t gather(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  const uint64_t size = BS_DTYPE_BYTES(call->dtype_in), piece = s->part / size, most = stage_longest(s, call);
  const uint64_t own = call->rows * call->counts[s->me];
  const comm_matrix mine = comm_in(call, 0, call->counts[s->me]);
  comm_shown shown;
  int32_t work = BS_OK;
  uint64_t begin = 0;
  do { /* once at least: a gather of nothing is still a meeting */
    const uint64_t end = comm_min(begin + piece, most);
    uint64_t first = 0;
    if (begin < own) comm_pack(s->math, &mine, begin, comm_min(end, own), s->room(s->comm));
    const int32_t rc = stage_share(s, call, (end - begin) * size, COMM_EVERY, &shown, err);
    if (rc != BS_OK) return rc;
    for (uint32_t r = 0; r < s->n && work == BS_OK; first += call->counts[r++]) {
      const comm_matrix to = comm_out(call, first, call->counts[r]);
      const uint64_t all = call->rows * call->counts[r];
      if (begin >= all || (r == s->me && call->in == (const void *)to.data)) continue;
      work = comm_unpack(s->math, &to, begin, comm_min(end, all), call->dtype_in, stage_of(&shown, r));
    }
    begin = end;
  } while (begin < most);
  return comm_converted(work, call, err);
}

static int32_t spread(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  const uint64_t size = BS_DTYPE_BYTES(call->dtype_in), all = call->rows * call->count;
  const comm_matrix from = comm_in(call, 0, call->count), to = comm_out(call, 0, call->count);
  const int root = call->root == s->me;
  comm_shown shown;
  int32_t work = BS_OK;
  uint64_t begin = 0;
  do {
    const uint64_t end = comm_min(begin + s->part / size, all);
    if (root) comm_pack(s->math, &from, begin, end, s->room(s->comm));
    const int32_t rc = stage_share(s, call, (end - begin) * size, call->root, &shown, err);
    if (rc != BS_OK) return rc;
    if (work == BS_OK && !(root && call->in == call->out))
      work = comm_unpack(s->math, &to, begin, end, call->dtype_in, stage_of(&shown, call->root));
    begin = end;
  } while (begin < all);
  return comm_converted(work, call, err);
}

/* ---- all_to_all ----------------------------------------------------------------------------- */

/* Every pair must agree: all see all counts, so that all come to the same answer. most: the largest block. */
static int32_t agree(const comm_stage *s, const bs_coll_call *call, uint64_t *most, bs_error *err) {
  const uint64_t bytes = 2u * (uint64_t)s->n * sizeof(uint64_t);
  comm_shown shown;
  if (bytes > s->part)
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-WORLD", "all_to_all of %u ranks needs a larger stage_kib",
                   s->n);
  unsigned char *room = s->room(s->comm);
  memcpy(room, call->counts, bytes / 2u);
  memcpy(room + bytes / 2u, call->recv_counts, bytes / 2u);
  const int32_t rc = stage_share(s, call, bytes, COMM_EVERY, &shown, err);
  *most = 0;
  for (uint32_t from = 0; rc == BS_OK && from < s->n; ++from) {
    for (uint32_t to = 0; to < s->n; ++to) {
      uint64_t sent, expected;
      memcpy(&sent, stage_of(&shown, from) + to * sizeof sent, sizeof sent);
      memcpy(&expected, stage_of(&shown, to) + (s->n + from) * sizeof expected, sizeof expected);
      if (sent > *most) *most = sent;
      if (sent == expected) continue;
      char a[COMM_PAIR_TEXT], b[COMM_PAIR_TEXT];
      comm_pair_texts(call, sent, expected, a, b);
      return s->mismatch(s->comm, from, a, to, b, err);
    }
  }
  return rc;
}

/* A piece of each block lies in its own area of the half. */
static int32_t exchange(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  const uint64_t area = stage_area(s), step = area / BS_DTYPE_BYTES(call->dtype_in);
  comm_shown shown;
  uint64_t most = 0;
  int32_t work = BS_OK, rc = agree(s, call, &most, err);
  for (uint64_t begin = 0; rc == BS_OK && begin < call->rows * most; begin += step) {
    stage_show_areas(s, call, begin, begin + step, area);
    rc = s->meet(s->comm, call, &shown, err);
    if (rc == BS_OK && s->far != NULL) rc = s->far->swap(s->comm, call, area, err);
    uint64_t first = 0;
    for (uint32_t r = 0; r < s->n && rc == BS_OK && work == BS_OK; first += call->recv_counts[r++]) {
      const comm_matrix to = comm_out(call, first, call->recv_counts[r]);
      const uint64_t all = call->rows * call->recv_counts[r];
      const unsigned char *from =
          s->far != NULL ? s->far->block(s->comm, r, area) : stage_of(&shown, r) + s->me * area;
      if (begin < all)
        work = comm_unpack(s->math, &to, begin, comm_min(begin + step, all), call->dtype_in, from);
    }
  }
  return rc != BS_OK ? rc : comm_converted(work, call, err);
}

/* ---- all of them ---------------------------------------------------------------------------- */

int32_t comm_stage_check(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  switch (call->kind) {
    case BS_COLL_BROADCAST:
      return comm_check_root(s->n, call, err);
    case BS_COLL_ALL_REDUCE:
    case BS_COLL_REDUCE_SCATTER:
      return thr_check_reduction(s->math, call, err);
    default:
      return BS_OK;
  }
}

int32_t comm_stage_run(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  comm_shown shown;
  switch (call->kind) {
    case BS_COLL_ALL_REDUCE:
      return stage_all_reduce(s, call, err);
    case BS_COLL_REDUCE_SCATTER:
      return stage_reduce_scatter(s, call, err);
    case BS_COLL_ALL_GATHER:
      return gather(s, call, err);
    case BS_COLL_BROADCAST:
      return spread(s, call, err);
    case BS_COLL_ALL_TO_ALL:
      return exchange(s, call, err);
    default: /* a barrier */
      return stage_share(s, call, 0, COMM_EVERY, &shown, err);
  }
}
