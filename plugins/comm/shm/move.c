/* SPDX-License-Identifier: MIT
 *
 * move.c - collectives that only move data: all_gather, broadcast, all_to_all, barrier. Each piece is put
 * into the buffers of those who have something to give; after one meeting all take what is theirs.
 */
#include "shm.h"

int32_t shm_put(const shm_comm *comm, uint32_t dst_dtype, void *dst, uint32_t src_dtype, const void *src,
                int64_t src_stride, uint64_t cols, uint64_t begin, uint64_t end) {
  const thr_world *a = &comm->world->job->arithmetic;
  const uint64_t in = BS_DTYPE_BYTES(src_dtype), out = BS_DTYPE_BYTES(dst_dtype);
  int32_t rc = BS_OK;
  if (src_stride == (int64_t)cols) { /* without gaps it is one row */
    return thr_convert(a, dst_dtype, dst, src_dtype, (const char *)src + begin * in, end - begin);
  }
  for (uint64_t at = begin; rc == BS_OK && cols > 0 && at < end;) {
    const uint64_t row = at / cols, col = at % cols, part = shm_min(cols - col, end - at);
    rc = thr_convert(a, dst_dtype, (char *)dst + (at - begin) * out, src_dtype,
                     (const char *)src + ((int64_t)row * src_stride + (int64_t)col) * (int64_t)in, part);
    at += part;
  }
  return rc;
}

int32_t shm_take(const shm_comm *comm, uint32_t dst_dtype, void *dst, int64_t dst_stride, uint64_t cols,
                 uint64_t begin, uint64_t end, uint32_t src_dtype, const void *src) {
  const thr_world *a = &comm->world->job->arithmetic;
  const uint64_t in = BS_DTYPE_BYTES(src_dtype), out = BS_DTYPE_BYTES(dst_dtype);
  int32_t rc = BS_OK;
  if (dst_stride == (int64_t)cols)
    return thr_convert(a, dst_dtype, (char *)dst + begin * out, src_dtype, src, end - begin);
  for (uint64_t at = begin; rc == BS_OK && at < end;) {
    const uint64_t row = at / cols, col = at % cols, part = shm_min(cols - col, end - at);
    rc = thr_convert(a, dst_dtype, (char *)dst + ((int64_t)row * dst_stride + (int64_t)col) * (int64_t)out,
                     src_dtype, (const char *)src + (at - begin) * in, part);
    at += part;
  }
  return rc;
}

int32_t shm_converted(int32_t work, const bs_coll_call *call, bs_error *err) {
  if (work == BS_OK) return BS_OK;
  return bs_fail(err, work, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x", call->dtype_in,
                 call->dtype_out);
}

static char *column(const bs_coll_call *call, uint64_t first) {
  return (char *)call->out + first * BS_DTYPE_BYTES(call->dtype_out);
}

/* One piece of everybody's block: elements from `begin` on, at most `room`. */
static int32_t gather_piece(shm_comm *comm, const bs_coll_call *call, uint64_t begin, uint64_t room) {
  int32_t work = BS_OK;
  uint64_t first = 0;
  for (uint32_t r = 0; r < comm->area->n && work == BS_OK; ++r) {
    const uint64_t n = call->counts[r], end = shm_min(begin + room, call->rows * n);
    const int own = r == comm->me && call->in == (const void *)column(call, first);
    if (!own && begin < end)
      work = shm_take(comm, call->dtype_out, column(call, first), call->out_stride, n, begin, end,
                      call->dtype_in, shm_buffer(comm, r, 0));
    first += n;
  }
  return work;
}

int32_t shm_all_gather(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const uint64_t room = SHM_PIECE / BS_DTYPE_BYTES(call->dtype_in), mine = call->counts[comm->me];
  uint64_t largest = 0, begin = 0;
  int32_t rc = shm_begin(comm, call, err), work = BS_OK;
  for (uint32_t r = 0; r < comm->area->n; ++r)
    if (call->counts[r] > largest) largest = call->counts[r];
  if (rc != BS_OK) return rc;
  do {
    const uint64_t end = shm_min(begin + room, call->rows * mine);
    if (begin < end)
      shm_put(comm, call->dtype_in, shm_buffer(comm, comm->me, 0), call->dtype_in, call->in, call->in_stride,
              mine, begin, end);
    rc = shm_meet(comm, call, begin == 0, err);
    if (rc == BS_OK && work == BS_OK) work = gather_piece(comm, call, begin, room);
    comm->piece++;
    begin += room;
  } while (rc == BS_OK && begin < call->rows * largest);
  if (rc != BS_OK) return rc;
  shm_end(comm);
  return shm_converted(work, call, err);
}

int32_t shm_broadcast(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const uint64_t room = SHM_PIECE / BS_DTYPE_BYTES(call->dtype_in), n = call->rows * call->count;
  const int root = call->root == comm->me;
  uint64_t begin = 0;
  if (call->root >= comm->area->n)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-ROOT", "root %u of %u ranks", call->root,
                   comm->area->n);
  int32_t rc = shm_begin(comm, call, err), work = BS_OK;
  if (rc != BS_OK) return rc;
  do {
    const uint64_t end = shm_min(begin + room, n);
    if (root && begin < end)
      shm_put(comm, call->dtype_in, shm_buffer(comm, comm->me, 0), call->dtype_in, call->in, call->in_stride,
              call->count, begin, end);
    rc = shm_meet(comm, call, begin == 0, err);
    if (rc == BS_OK && work == BS_OK && begin < end && !(root && call->in == call->out))
      work = shm_take(comm, call->dtype_out, call->out, call->out_stride, call->count, begin, end,
                      call->dtype_in, shm_buffer(comm, call->root, 0));
    comm->piece++;
    begin += room;
  } while (rc == BS_OK && begin < n);
  if (rc != BS_OK) return rc;
  shm_end(comm);
  return shm_converted(work, call, err);
}

/* ---- all_to_all ----------------------------------------------------------------------------- */

static uint64_t *counts_of(const shm_comm *comm, uint32_t r) {
  return shm_slot_of(comm, r)->counts[comm->op & 1u];
}

/* Every pair must agree; each rank looks at all pairs, so all come to the same answer. */
static int32_t check_pairs(shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  const shm_area *area = comm->area;
  for (uint32_t from = 0; from < area->n; ++from) {
    for (uint32_t to = 0; to < area->n; ++to) {
      const uint64_t sent = counts_of(comm, from)[to], expected = counts_of(comm, to)[SHM_MAX_RANKS + from];
      if (sent == expected) continue;
      char a[96], b[96];
      snprintf(a, sizeof a, "all_to_all at '%.40s' sending it %llu", call->site ? call->site : "",
               (unsigned long long)sent);
      snprintf(b, sizeof b, "all_to_all at '%.40s' expecting %llu", call->site ? call->site : "",
               (unsigned long long)expected);
      return shm_fail_mismatch(comm, area->ranks[from], a, area->ranks[to], b, err);
    }
  }
  return BS_OK;
}

/* Of rank r's input, elements [begin, end) of the flattened matrix lie in its buffer: take those of my block.
 */
static int32_t take_block(shm_comm *comm, const bs_coll_call *call, uint32_t r, uint64_t begin, uint64_t end,
                          uint64_t out_col) {
  const uint64_t *counts = counts_of(comm, r), size = BS_DTYPE_BYTES(call->dtype_in);
  uint64_t first = 0, width = 0;
  int32_t work = BS_OK;
  for (uint32_t to = 0; to < comm->area->n; ++to) {
    if (to < comm->me) first += counts[to];
    width += counts[to];
  }
  const uint64_t n = counts[comm->me];
  if (n == 0 || begin >= end) return BS_OK;
  for (uint64_t row = begin / width; work == BS_OK && row * width < end; ++row) {
    const uint64_t from = row * width + first, to = from + n;
    const uint64_t a = from > begin ? from : begin, b = shm_min(to, end);
    if (a >= b) continue;
    char *out = column(call, out_col + (a - from)) +
                (int64_t)row * call->out_stride * (int64_t)BS_DTYPE_BYTES(call->dtype_out);
    work = thr_convert(&comm->world->job->arithmetic, call->dtype_out, out, call->dtype_in,
                       shm_buffer(comm, r, 0) + (a - begin) * size, b - a);
  }
  return work;
}

static int32_t exchange(shm_comm *comm, const bs_coll_call *call, bs_error *err) {
  const uint64_t room = SHM_PIECE / BS_DTYPE_BYTES(call->dtype_in);
  uint64_t widest = 0, width = 0, own = 0, total[SHM_MAX_RANKS] = {0};
  int32_t rc = BS_OK, work = BS_OK;
  for (uint32_t r = 0; r < comm->area->n; ++r) {
    total[r] = 0;
    for (uint32_t to = 0; to < comm->area->n; ++to) total[r] += counts_of(comm, r)[to];
    if (r == comm->me) width = total[r];
    total[r] *= call->rows;
    if (r == comm->me) own = total[r];
    if (total[r] > widest) widest = total[r];
  }
  for (uint64_t begin = 0; rc == BS_OK && begin < widest; begin += room) {
    const uint64_t mine = shm_min(begin + room, own);
    if (begin < mine)
      shm_put(comm, call->dtype_in, shm_buffer(comm, comm->me, 0), call->dtype_in, call->in, call->in_stride,
              width, begin, mine);
    rc = shm_meet(comm, call, 0, err);
    uint64_t out_col = 0;
    for (uint32_t r = 0; rc == BS_OK && work == BS_OK && r < comm->area->n; ++r) {
      work = take_block(comm, call, r, begin, shm_min(begin + room, total[r]), out_col);
      out_col += call->recv_counts[r];
    }
    comm->piece++;
  }
  return rc != BS_OK ? rc : shm_converted(work, call, err);
}

int32_t shm_all_to_all(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  int32_t rc = shm_begin(comm, call, err);
  if (rc != BS_OK) return rc;
  memcpy(counts_of(comm, comm->me), call->counts, comm->area->n * sizeof *call->counts);
  memcpy(counts_of(comm, comm->me) + SHM_MAX_RANKS, call->recv_counts,
         comm->area->n * sizeof *call->recv_counts);
  rc = shm_meet(comm, call, 1, err);
  if (rc == BS_OK) rc = check_pairs(comm, call, err);
  if (rc == BS_OK) rc = exchange(comm, call, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}

int32_t shm_barrier(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  int32_t rc = shm_begin(comm, call, err);
  if (rc == BS_OK) rc = shm_meet(comm, call, 1, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}
