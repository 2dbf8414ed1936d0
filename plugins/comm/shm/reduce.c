/* SPDX-License-Identifier: MIT
 *
 * reduce.c - all_reduce and reduce_scatter. Small all_reduce: every rank reduces everything from the buffers
 * (one meeting). Large: of each piece a rank reduces its slice, and all take the slices from each other (two
 * meetings a piece). The order of additions is the rank order in both, as in threads, so the bits depend on
 * neither the size nor the communicator.
 */
#include "../common/pair.h"
#include "shm.h"

/* Elements [begin, end) of the buffers of all ranks, reduced into dense `out`. */
static int32_t reduce_range(const shm_comm *comm, const bs_coll_call *call, uint64_t begin, uint64_t end,
                            void *out) {
  const uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  const thr_world *a = shm_math(comm);
  const uint32_t n = comm->area->n;
  if (n > 1 && thr_sums_f32(call)) {
    float *sum = out;
    for (uint64_t at = begin; at < end; at += THR_CHUNK, sum += THR_CHUNK) { /* a chunk stays in the cache */
      const uint64_t part = comm_min(THR_CHUNK, end - at);
      const float *x = (const float *)(const void *)shm_buffer(comm, 0, 0) + at;
      const float *y = (const float *)(const void *)shm_buffer(comm, 1, 0) + at;
      a->kernels.add2_f32(sum, x, y, part);
      for (uint32_t r = 2; r < n; ++r)
        a->kernels.add_f32(sum, (const float *)(const void *)shm_buffer(comm, r, 0) + at, part);
    }
    return BS_OK;
  }
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, a, call, NULL);
  for (uint64_t at = begin; rc == BS_OK && at < end; at += THR_CHUNK) {
    const uint64_t part = comm_min(THR_CHUNK, end - at);
    rc = thr_reduction_first(&red, shm_buffer(comm, 0, 0) + at * in_size, part);
    for (uint32_t r = 1; rc == BS_OK && r < n; ++r)
      rc = thr_reduction_add(&red, shm_buffer(comm, r, 0) + at * in_size, part);
    if (rc == BS_OK) rc = thr_reduction_store(&red, (char *)out + (at - begin) * out_size, part);
  }
  return rc;
}

static int32_t one_shot(shm_comm *comm, const bs_coll_call *call, uint64_t n, bs_error *err) {
  uint64_t
      room[SHM_PIECE / 64 / sizeof(uint64_t)]; /* results: inline_max elements of one byte become eight */
  const uint64_t most = sizeof room / BS_DTYPE_BYTES(call->dtype_out);
  int32_t work = BS_OK;
  const comm_matrix in = comm_in(call, 0, call->count), to = comm_out(call, 0, call->count);
  comm_pack(shm_math(comm), &in, 0, n, shm_buffer(comm, comm->me, 0));
  const int32_t rc = shm_meet(comm, call, 1, err);
  if (rc != BS_OK) return rc;
  for (uint64_t at = 0; work == BS_OK && at < n; at += most) {
    const uint64_t end = comm_min(at + most, n);
    work = reduce_range(comm, call, at, end, room);
    if (work == BS_OK) work = comm_unpack(shm_math(comm), &to, at, end, call->dtype_out, room);
  }
  comm->piece++;
  return comm_reduced(work, err);
}

/* Of a piece of n elements, where rank r's slice begins: whole cache lines of results. */
static uint64_t slice_of(const shm_comm *comm, uint64_t n, uint32_t r) {
  const uint64_t each = ((n + comm->area->n - 1u) / comm->area->n + 63u) & ~(uint64_t)63u;
  return comm_min(r * each, n);
}

static int32_t two_shot(shm_comm *comm, const bs_coll_call *call, uint64_t n, bs_error *err) {
  const uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  const uint64_t room = SHM_PIECE / (in_size > out_size ? in_size : out_size);
  const comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  int32_t rc = BS_OK, work = BS_OK;
  for (uint64_t begin = 0; rc == BS_OK && begin < n; begin += room) {
    const uint64_t part = comm_min(room, n - begin);
    comm_pack(shm_math(comm), &in, begin, begin + part, shm_buffer(comm, comm->me, 0));
    rc = shm_meet(comm, call, begin == 0, err);
    if (rc != BS_OK) break;
    const uint64_t mine = slice_of(comm, part, comm->me), next = slice_of(comm, part, comm->me + 1u);
    work |= reduce_range(comm, call, mine, next, shm_buffer(comm, comm->me, 1) + mine * out_size);
    rc = shm_meet(comm, call, 0, err);
    for (uint32_t r = 0; rc == BS_OK && r < comm->area->n; ++r) {
      const uint64_t from = slice_of(comm, part, r), to = slice_of(comm, part, r + 1u);
      if (from < to)
        comm_unpack(shm_math(comm), &out, begin + from, begin + to, call->dtype_out,
                    shm_buffer(comm, r, 1) + from * out_size);
    }
    comm->piece++;
  }
  return rc != BS_OK ? rc : comm_reduced(work, err);
}

/* Two ranks: nobody but me reads what the other has put into my buffer. */
static int32_t in_pair(shm_comm *comm, const bs_coll_call *call, uint64_t n, bs_error *err) {
  const uint64_t most = pair_most(call, SHM_PIECE);
  const comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  int32_t rc = BS_OK, work = BS_OK;
  for (uint64_t begin = 0, end; rc == BS_OK && begin < n; begin = end) {
    end = comm_min(begin + most, n);
    const pair_slice mine = pair_slice_of(begin, end, comm->me);
    const pair_slice theirs = pair_slice_of(begin, end, 1u - comm->me);
    unsigned char *room = shm_buffer(comm, comm->me, 0);
    comm_pack(shm_math(comm), &in, theirs.begin, theirs.end, room);
    rc = shm_meet(comm, call, begin == 0, err);
    if (rc != BS_OK) break;
    const int32_t sums =
        pair_reduce(shm_math(comm), call, comm->me, mine, shm_buffer(comm, 1u - comm->me, 0));
    rc = shm_meet(comm, call, 0, err);
    if (work == BS_OK) work = sums;
    if (rc == BS_OK && work == BS_OK)
      work = comm_unpack(shm_math(comm), &out, theirs.begin, theirs.end, call->dtype_out, room);
    comm->piece++;
  }
  return rc != BS_OK ? rc : comm_reduced(work, err);
}

int32_t shm_all_reduce(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const uint64_t n = call->rows * call->count;
  int32_t rc = thr_check_reduction(shm_math(comm), call, err);
  if (rc == BS_OK) rc = shm_begin(comm, call, err);
  if (rc != BS_OK) return rc;
  if (n * BS_DTYPE_BYTES(call->dtype_in) <= comm->world->inline_max)
    rc = one_shot(comm, call, n, err);
  else
    rc = comm->area->n == 2 && pair_serves(call) ? in_pair(comm, call, n, err) : two_shot(comm, call, n, err);
  if (rc == BS_OK) shm_end(comm);
  return rc;
}

/* The part of my block that lies in elements [begin, end) of the inputs. */
static int32_t reduce_block(shm_comm *comm, const bs_coll_call *call, uint64_t first, uint64_t width,
                            uint64_t begin, uint64_t end) {
  const uint64_t mine = call->counts[comm->me], out_size = BS_DTYPE_BYTES(call->dtype_out);
  int32_t work = BS_OK;
  if (mine == 0 || begin >= end) return BS_OK;
  for (uint64_t row = begin / width; work == BS_OK && row * width < end; ++row) {
    const uint64_t from = row * width + first;
    const uint64_t a = from > begin ? from : begin, b = comm_min(from + mine, end);
    if (a < b)
      work = reduce_range(
          comm, call, a - begin, b - begin,
          (char *)call->out + ((int64_t)row * call->out_stride + (int64_t)(a - from)) * (int64_t)out_size);
  }
  return work;
}

int32_t shm_reduce_scatter(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  shm_comm *comm = comm_ptr;
  const uint64_t room = SHM_PIECE / BS_DTYPE_BYTES(call->dtype_in);
  uint64_t first = 0, width = 0, begin = 0;
  int32_t work = BS_OK, rc = thr_check_reduction(shm_math(comm), call, err);
  if (rc == BS_OK) rc = shm_begin(comm, call, err);
  if (rc != BS_OK) return rc;
  for (uint32_t r = 0; r < comm->area->n; ++r) {
    if (r < comm->me) first += call->counts[r];
    width += call->counts[r];
  }
  const uint64_t n = call->rows * width;
  const comm_matrix in = comm_in(call, 0, width);
  do {
    const uint64_t end = comm_min(begin + room, n);
    if (begin < end) comm_pack(shm_math(comm), &in, begin, end, shm_buffer(comm, comm->me, 0));
    rc = shm_meet(comm, call, begin == 0, err);
    if (rc == BS_OK && work == BS_OK) work = reduce_block(comm, call, first, width, begin, end);
    comm->piece++;
    begin += room;
  } while (rc == BS_OK && begin < n);
  if (rc != BS_OK) return rc;
  shm_end(comm);
  return comm_reduced(work, err);
}
