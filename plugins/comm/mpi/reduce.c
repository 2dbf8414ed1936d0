/* SPDX-License-Identifier: MIT
 *
 * reduce.c - all_reduce and reduce_scatter. Small all_reduce: all ranks show all they have and each reduces
 * it. Large: in pieces; a rank shows what others reduce, reduces its own slice and shows the result. The
 * order of additions is the rank order always, so the bits depend neither on the size nor on the machines,
 * and are those of the communicator "threads".
 */
#include "../common/pair.h"
#include "mpi_comm.h"

static int plain_f32(const mpic_comm *comm, const bs_coll_call *call) {
  return comm->n > 1 && thr_sums_f32(call);
}

/* ---- small ---------------------------------------------------------------------------------- */

static int32_t one_shot(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  mpic_timer timer = mpic_timer_of(comm, call);
  uint64_t n = call->rows * call->count, size = BS_DTYPE_BYTES(call->dtype_in);
  comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  comm_pack(&comm->world->math, &in, 0, n, mpic_room(comm));
  int32_t rc = mpic_share(comm, call, n * size, MPIC_NONE, &timer, err), work = BS_OK;
  if (rc != BS_OK || n == 0) return rc;
  const thr_kernels *k = &comm->world->math.kernels;
  if (plain_f32(comm, call) && mpic_dense(&out, call->rows)) {
    float *sum = call->out;
    k->add2_f32(sum, (const float *)(const void *)mpic_shared(comm, 0, n * 4u),
                (const float *)(const void *)mpic_shared(comm, 1, n * 4u), n);
    for (uint32_t r = 2; r < comm->n; ++r)
      k->add_f32(sum, (const float *)(const void *)mpic_shared(comm, r, n * 4u), n);
    return BS_OK;
  }
  thr_reduction red;
  thr_buffer sum;
  work = thr_reduction_init(&red, &comm->world->math, call, NULL);
  for (uint64_t at = 0; work == BS_OK && at < n; at += THR_CHUNK) {
    uint64_t part = comm_min(n - at, THR_CHUNK);
    work = thr_reduction_first(&red, mpic_shared(comm, 0, n * size) + at * size, part);
    for (uint32_t r = 1; work == BS_OK && r < comm->n; ++r)
      work = thr_reduction_add(&red, mpic_shared(comm, r, n * size) + at * size, part);
    if (work == BS_OK) work = thr_reduction_store(&red, &sum, part);
    if (work == BS_OK) work = comm_unpack(&comm->world->math, &out, at, at + part, call->dtype_out, &sum);
  }
  return comm_reduced(work, err);
}

/* ---- large, one machine --------------------------------------------------------------------- */

/* A piece of a large all_reduce: [begin, end) of the matrix, cut into a slice for each of `lanes` ranks. */
typedef struct piece {
  const bs_coll_call *call;
  comm_matrix in, out;
  uint64_t begin, end;
  uint64_t slice;
  uint32_t lanes;
  int in_dense, out_dense;
} piece;

static uint64_t slice_begin(const piece *p, uint32_t lane) {
  return comm_min(p->begin + lane * p->slice, p->end);
}

/* What others reduce; my own slice too where it cannot be read where it lies. */
static void show_inputs(const mpic_comm *comm, const piece *p, uint32_t own) {
  uint64_t size = BS_DTYPE_BYTES(p->call->dtype_in);
  unsigned char *room = mpic_room(comm);
  for (uint32_t lane = 0; lane < p->lanes; ++lane) {
    uint64_t b = slice_begin(p, lane), e = slice_begin(p, lane + 1u);
    if (b < e && lane != own) comm_pack(&comm->world->math, &p->in, b, e, room + (b - p->begin) * size);
  }
}

/* Where the input of a rank lies. */
static const unsigned char *input(const mpic_comm *comm, const piece *p, uint32_t r, uint64_t at,
                                  int direct) {
  uint64_t size = BS_DTYPE_BYTES(p->call->dtype_in);
  if (r == comm->me && direct) return (const unsigned char *)p->in.data + at * size;
  return mpic_half(comm, comm->local[r]) + (at - p->begin) * size;
}

static int32_t reduce_slice(const mpic_comm *comm, const piece *p, uint32_t lane, int direct,
                            unsigned char *to) {
  const bs_coll_call *call = p->call;
  uint64_t b = slice_begin(p, lane), e = slice_begin(p, lane + 1u), size = BS_DTYPE_BYTES(call->dtype_out);
  const thr_kernels *k = &comm->world->math.kernels;
  int fast = plain_f32(comm, call);
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, &comm->world->math, call, NULL);
  for (uint64_t at = b; rc == BS_OK && at < e; at += THR_CHUNK) {
    uint64_t n = comm_min(e - at, THR_CHUNK);
    unsigned char *sum = to + (at - b) * size;
    if (fast) {
      float *values = (float *)(void *)sum;
      k->add2_f32(values, (const float *)(const void *)input(comm, p, 0, at, direct),
                  (const float *)(const void *)input(comm, p, 1, at, direct), n);
      for (uint32_t r = 2; r < comm->n; ++r)
        k->add_f32(values, (const float *)(const void *)input(comm, p, r, at, direct), n);
    } else {
      rc = thr_reduction_first(&red, input(comm, p, 0, at, direct), n);
      for (uint32_t r = 1; rc == BS_OK && r < comm->n; ++r)
        rc = thr_reduction_add(&red, input(comm, p, r, at, direct), n);
      if (rc == BS_OK) rc = thr_reduction_store(&red, sum, n);
    }
    if (rc == BS_OK) rc = comm_unpack(&comm->world->math, &p->out, at, at + n, call->dtype_out, sum);
  }
  return rc;
}

/* The slices that others have reduced. */
static int32_t take_results(const mpic_comm *comm, const piece *p, uint32_t own) {
  int32_t rc = BS_OK;
  for (uint32_t i = 1; rc == BS_OK && i <= p->lanes; ++i) {
    uint32_t lane = (comm->local[comm->me] + i) % p->lanes;
    uint64_t b = slice_begin(p, lane), e = slice_begin(p, lane + 1u);
    if (b < e && lane != own)
      rc = comm_unpack(&comm->world->math, &p->out, b, e, p->call->dtype_out, mpic_half(comm, lane));
  }
  return rc;
}

static int32_t one_piece(mpic_comm *comm, piece *p, mpic_timer *timer, int32_t *work, bs_error *err) {
  uint32_t lane = comm->local[comm->me];
  int direct = comm->machines == 1 && p->in_dense;
  show_inputs(comm, p, direct ? lane : MPIC_NONE);
  int32_t rc = mpic_meet(comm, p->call, timer, err);
  if (rc != BS_OK) return rc;
  uint64_t b = slice_begin(p, lane), e = slice_begin(p, lane + 1u);
  unsigned char *result = mpic_room(comm);
  if (comm->machines == 1) {
    int32_t mine = reduce_slice(comm, p, lane, direct, result);
    if (*work == BS_OK) *work = mine;
  } else if (lane < p->lanes && b < e) {
    uint64_t offset = (b - p->begin) * BS_DTYPE_BYTES(p->call->dtype_in);
    rc = mpic_chain(comm, p->call, offset, e - b, result, MPIC_NONE, timer, err);
  }
  if (rc == BS_OK) rc = mpic_meet(comm, p->call, timer, err);
  if (rc != BS_OK) return rc;
  int32_t taken = take_results(comm, p, comm->machines == 1 ? lane : MPIC_NONE);
  if (*work == BS_OK) *work = taken;
  return BS_OK;
}

static uint64_t widest(const bs_coll_call *call) {
  uint64_t in = BS_DTYPE_BYTES(call->dtype_in), out = BS_DTYPE_BYTES(call->dtype_out);
  uint64_t sum = BS_DTYPE_BYTES(call->reduce_dtype), most = in > out ? in : out;
  return sum > most ? sum : most;
}

static int32_t in_pieces(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  mpic_timer timer = mpic_timer_of(comm, call);
  piece p = {.call = call, .in = comm_in(call, 0, call->count), .out = comm_out(call, 0, call->count)};
  uint64_t n = call->rows * call->count, most = comm->half / widest(call);
  p.lanes = comm->machines == 1 ? comm->n : comm->leaders;
  p.in_dense = mpic_dense(&p.in, call->rows);
  int32_t work = BS_OK;
  for (p.begin = 0; p.begin < n; p.begin = p.end) {
    p.end = comm_min(p.begin + most, n);
    p.slice = ((p.end - p.begin + p.lanes - 1u) / p.lanes + 63u) & ~(uint64_t)63u;
    int32_t rc = one_piece(comm, &p, &timer, &work, err);
    if (rc != BS_OK) return rc;
  }
  return comm_reduced(work, err);
}

/* Two ranks, all that there are. The half that is written before the first meeting of a piece is mine again
 * after the second: nobody but me reads what the other has put there. */
static int32_t in_pair(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  mpic_timer timer = mpic_timer_of(comm, call);
  comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  const uint64_t n = call->rows * call->count, most = pair_most(call, comm->half);
  int32_t work = BS_OK;
  for (uint64_t begin = 0, end; begin < n; begin = end) {
    end = comm_min(begin + most, n);
    const pair_slice mine = pair_slice_of(begin, end, comm->me);
    const pair_slice theirs = pair_slice_of(begin, end, 1u - comm->me);
    unsigned char *room = mpic_room(comm);
    comm_pack(&comm->world->math, &in, theirs.begin, theirs.end, room);
    int32_t rc = mpic_meet(comm, call, &timer, err);
    if (rc != BS_OK) return rc;
    const int32_t sums =
        pair_reduce(&comm->world->math, call, comm->me, mine, mpic_half(comm, 1u - comm->me));
    rc = mpic_meet(comm, call, &timer, err);
    if (rc != BS_OK) return rc;
    if (work == BS_OK)
      work = sums != BS_OK
                 ? sums
                 : comm_unpack(&comm->world->math, &out, theirs.begin, theirs.end, call->dtype_out, room);
  }
  return comm_reduced(work, err);
}

int32_t mpic_all_reduce(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = thr_check_reduction(&comm->world->math, call, err);
  if (rc == BS_OK) rc = mpic_enter(comm, call, err);
  if (rc != BS_OK) return rc;
  if (mpic_native_serves(comm, call)) return mpic_exit(comm, mpic_native_all_reduce(comm, call, err));
  uint64_t bytes = call->rows * call->count * BS_DTYPE_BYTES(call->dtype_in);
  int small = bytes <= comm_min(comm->world->inline_max, mpic_share_max(comm));
  if (small) return mpic_exit(comm, one_shot(comm, call, err));
  const int pair = comm->n == 2 && comm->machines == 1 && pair_serves(call);
  return mpic_exit(comm, pair ? in_pair(comm, call, err) : in_pieces(comm, call, err));
}

/* ---- reduce_scatter ------------------------------------------------------------------------- */

/* [begin, end) of my block, from the areas of all ranks of this machine. */
static int32_t reduce_area(const mpic_comm *comm, const bs_coll_call *call, uint64_t begin, uint64_t end,
                           uint64_t area) {
  comm_matrix out = comm_out(call, 0, call->counts[comm->me]);
  uint64_t size = BS_DTYPE_BYTES(call->dtype_in);
  thr_reduction red;
  thr_buffer sum;
  int32_t rc = thr_reduction_init(&red, &comm->world->math, call, NULL);
  for (uint64_t at = begin; rc == BS_OK && at < end; at += THR_CHUNK) {
    uint64_t n = comm_min(end - at, THR_CHUNK), offset = comm->me * area + (at - begin) * size;
    rc = thr_reduction_first(&red, mpic_half(comm, 0) + offset, n);
    for (uint32_t r = 1; rc == BS_OK && r < comm->n; ++r)
      rc = thr_reduction_add(&red, mpic_half(comm, comm->local[r]) + offset, n);
    if (rc == BS_OK) rc = thr_reduction_store(&red, &sum, n);
    if (rc == BS_OK) rc = comm_unpack(&comm->world->math, &out, at, at + n, call->dtype_out, &sum);
  }
  return rc;
}

/* Each lane of a machine has the blocks of the ranks whose number it is; results lie in their areas. */
static int32_t chain_areas(mpic_comm *comm, const bs_coll_call *call, uint64_t begin, uint64_t end,
                           uint64_t area, mpic_timer *timer, bs_error *err) {
  uint32_t lane = comm->local[comm->me];
  unsigned char *room = mpic_room(comm);
  int32_t rc = BS_OK;
  for (uint32_t r = lane; rc == BS_OK && lane < comm->leaders && r < comm->n; r += comm->leaders) {
    uint64_t all = call->rows * call->counts[r];
    if (begin >= all) continue;
    uint64_t n = comm_min(end, all) - begin;
    rc = mpic_chain(comm, call, r * area, n, room + r * area, comm->machine[r], timer, err);
  }
  return rc;
}

static int32_t scatter(mpic_comm *comm, const bs_coll_call *call, bs_error *err) {
  mpic_timer timer = mpic_timer_of(comm, call);
  uint64_t most = 0, area = comm->half / comm->n / 64u * 64u, step = area / widest(call), begin = 0;
  uint64_t own = call->rows * call->counts[comm->me];
  comm_matrix out = comm_out(call, 0, call->counts[comm->me]);
  int32_t work = BS_OK;
  for (uint32_t r = 0; r < comm->n; ++r)
    if (call->rows * call->counts[r] > most) most = call->rows * call->counts[r];
  do {
    uint64_t end = comm_min(begin + step, most), first = 0;
    unsigned char *room = mpic_room(comm);
    for (uint32_t r = 0; r < comm->n; first += call->counts[r++]) {
      comm_matrix in = comm_in(call, first, call->counts[r]);
      uint64_t all = call->rows * call->counts[r];
      if (begin < all) comm_pack(&comm->world->math, &in, begin, comm_min(end, all), room + r * area);
    }
    int32_t rc = mpic_meet(comm, call, &timer, err);
    uint64_t last = comm_min(end, own);
    if (rc == BS_OK && comm->machines == 1) {
      if (work == BS_OK && begin < own) work = reduce_area(comm, call, begin, last, area);
    } else if (rc == BS_OK) {
      rc = chain_areas(comm, call, begin, end, area, &timer, err);
      if (rc == BS_OK) rc = mpic_meet(comm, call, &timer, err);
      uint32_t lane = comm->me % comm->leaders;
      if (rc == BS_OK && work == BS_OK && begin < own)
        work = comm_unpack(&comm->world->math, &out, begin, last, call->dtype_out,
                           mpic_half(comm, lane) + comm->me * area);
    }
    if (rc != BS_OK) return rc;
    begin = end;
  } while (begin < most);
  return comm_reduced(work, err);
}

int32_t mpic_reduce_scatter(void *comm_ptr, const bs_coll_call *call, bs_error *err) {
  mpic_comm *comm = comm_ptr;
  int32_t rc = thr_check_reduction(&comm->world->math, call, err);
  if (rc == BS_OK) rc = mpic_enter(comm, call, err);
  return rc != BS_OK ? rc : mpic_exit(comm, scatter(comm, call, err));
}
