/* SPDX-License-Identifier: MIT
 *
 * stage_reduce.c - all_reduce and reduce_scatter. Small all_reduce: all ranks show all they have and each
 * reduces it. Large: in pieces; a rank shows what others reduce, reduces its own slice and shows the result.
 */
#include "matrix.h"
#include "stage_parts.h"

/* The inputs of a reduction, dense, from element `first` on; if `own` is not NULL, my input is there, from
 * element 0 on. */
typedef struct source {
  comm_shown shown;
  uint64_t first;
  const char *own;
} source;

static inline const unsigned char *input(const comm_stage *s, const source *from, uint32_t r, uint64_t at,
                                         uint64_t size) {
  if (r == s->me && from->own != NULL) return (const unsigned char *)from->own + at * size;
  return stage_of(&from->shown, r) + (at - from->first) * size;
}

static inline const float *input_f32(const comm_stage *s, const source *from, uint32_t r, uint64_t at) {
  return (const float *)(const void *)input(s, from, r, at, 4u);
}

static int is_dense(const comm_matrix *matrix, uint64_t rows) {
  return rows <= 1 || matrix->stride == (int64_t)matrix->cols;
}

/* Elements [begin, end) of all inputs, reduced in rank order into my output; and into dense `to`, where that
 * is not NULL. */
static int32_t reduce_range(const comm_stage *s, const bs_coll_call *call, const source *from,
                            const comm_matrix *out, uint64_t begin, uint64_t end, unsigned char *to) {
  const uint64_t in_size = BS_DTYPE_BYTES(call->dtype_in), out_size = BS_DTYPE_BYTES(call->dtype_out);
  const thr_kernels *k = &s->math->kernels;
  const int fast = s->n > 1 && thr_sums_f32(call), in_place = to == NULL && is_dense(out, call->rows);
  thr_buffer room;
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, s->math, call, NULL);
  for (uint64_t at = begin; rc == BS_OK && at < end; at += THR_CHUNK) {
    const uint64_t n = comm_min(end - at, THR_CHUNK);
    void *sum = &room;
    if (in_place) sum = out->data + at * out_size;
    if (to != NULL) sum = to + (at - begin) * out_size;
    if (fast) {
      k->add2_f32(sum, input_f32(s, from, 0, at), input_f32(s, from, 1, at), n);
      for (uint32_t r = 2; r < s->n; ++r) k->add_f32(sum, input_f32(s, from, r, at), n);
    } else {
      rc = thr_reduction_first(&red, input(s, from, 0, at, in_size), n);
      for (uint32_t r = 1; rc == BS_OK && r < s->n; ++r)
        rc = thr_reduction_add(&red, input(s, from, r, at, in_size), n);
      if (rc == BS_OK) rc = thr_reduction_store(&red, sum, n);
    }
    if (rc == BS_OK && !in_place) rc = comm_unpack(s->math, out, at, at + n, call->dtype_out, sum);
  }
  return rc;
}

static int32_t one_shot(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  const uint64_t n = call->rows * call->count;
  const comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  source from = {.first = 0};
  comm_pack(s->math, &in, 0, n, s->room(s->comm));
  const int32_t rc = stage_share(s, call, n * BS_DTYPE_BYTES(call->dtype_in), COMM_EVERY, &from.shown, err);
  return rc != BS_OK ? rc : comm_reduced(reduce_range(s, call, &from, &out, 0, n, NULL), err);
}

/* ---- large ---------------------------------------------------------------------------------- */

/* A piece of a large all_reduce: [begin, end) of the matrix, cut into a slice for each of `lanes` ranks. */
typedef struct piece {
  const bs_coll_call *call;
  comm_matrix in, out;
  uint64_t begin, end;
  uint64_t slice;
  uint32_t lanes, lane;
} piece;

static uint64_t slice_begin(const piece *p, uint32_t lane) {
  return comm_min(p->begin + lane * p->slice, p->end);
}

/* Shows the parts that others reduce; also my own slice if it cannot be read in place. */
static void show_inputs(const comm_stage *s, const piece *p, uint32_t own) {
  const uint64_t size = BS_DTYPE_BYTES(p->call->dtype_in);
  unsigned char *room = s->room(s->comm);
  for (uint32_t lane = 0; lane < p->lanes; ++lane) {
    const uint64_t b = slice_begin(p, lane), e = slice_begin(p, lane + 1u);
    if (b < e && lane != own) comm_pack(s->math, &p->in, b, e, room + (b - p->begin) * size);
  }
}

/* The slices that others have reduced. */
static int32_t take_results(const comm_stage *s, const piece *p, const comm_shown *shown, uint32_t own) {
  int32_t rc = BS_OK;
  for (uint32_t i = 1; rc == BS_OK && i <= p->lanes; ++i) {
    const uint32_t lane = (p->lane + i) % p->lanes;
    const uint64_t b = slice_begin(p, lane), e = slice_begin(p, lane + 1u);
    if (b < e && lane != own)
      rc = comm_unpack(s->math, &p->out, b, e, p->call->dtype_out, stage_of(shown, lane));
  }
  return rc;
}

static int32_t one_piece(const comm_stage *s, const piece *p, int32_t *work, bs_error *err) {
  const uint64_t b = slice_begin(p, p->lane), e = slice_begin(p, p->lane + 1u);
  const int near = s->far == NULL, direct = near && is_dense(&p->in, p->call->rows);
  source from = {.first = p->begin, .own = direct ? p->in.data : NULL};
  show_inputs(s, p, direct ? p->lane : COMM_EVERY);
  int32_t rc = s->meet(s->comm, p->call, &from.shown, err);
  if (rc != BS_OK) return rc;
  unsigned char *result = s->room(s->comm);
  if (near) {
    const int32_t mine = reduce_range(s, p->call, &from, &p->out, b, e, result);
    if (*work == BS_OK) *work = mine;
  } else if (p->lane < p->lanes && b < e) {
    const uint64_t offset = (b - p->begin) * BS_DTYPE_BYTES(p->call->dtype_in);
    rc = s->far->chain(s->comm, p->call, offset, e - b, result, err);
  }
  if (rc == BS_OK) rc = s->meet(s->comm, p->call, &from.shown, err);
  if (rc != BS_OK) return rc;
  const int32_t taken = take_results(s, p, &from.shown, near ? p->lane : COMM_EVERY);
  if (*work == BS_OK) *work = taken;
  return BS_OK;
}

/* Bytes of the largest element that goes into a half; between machines partial sums do. */
static uint64_t widest(const comm_stage *s, const bs_coll_call *call) {
  const uint64_t in = BS_DTYPE_BYTES(call->dtype_in), out = BS_DTYPE_BYTES(call->dtype_out);
  const uint64_t sum = s->far != NULL ? BS_DTYPE_BYTES(call->reduce_dtype) : 0, most = in > out ? in : out;
  return sum > most ? sum : most;
}

static int32_t in_pieces(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  piece p = {.call = call, .in = comm_in(call, 0, call->count), .out = comm_out(call, 0, call->count)};
  const uint64_t n = call->rows * call->count, most = s->half / widest(s, call);
  p.lanes = s->far != NULL ? s->far->lanes : s->n;
  p.lane = s->far != NULL ? s->far->lane : s->me;
  int32_t work = BS_OK;
  for (p.begin = 0; p.begin < n; p.begin = p.end) {
    p.end = comm_min(p.begin + most, n);
    p.slice = ((p.end - p.begin + p.lanes - 1u) / p.lanes + 63u) & ~(uint64_t)63u;
    const int32_t rc = one_piece(s, &p, &work, err);
    if (rc != BS_OK) return rc;
  }
  return comm_reduced(work, err);
}

/* ---- two ranks ------------------------------------------------------------------------------ */

/* Does the two-rank form serve? Each rank shows the slice that the other reduces, and the other writes the
 * sums over it; nothing else is shown. The reason is the caches. A line that both have read must be
 * invalidated in both before a write, line by line, which takes longer than all other work. Here the rank
 * that has just read a line writes it; then its owner reads and writes it. Sums replace inputs, so both must
 * have the same size. */
static int pair_serves(const comm_stage *s, const bs_coll_call *call) {
  return s->n == 2 && s->far == NULL && BS_DTYPE_BYTES(call->dtype_in) == BS_DTYPE_BYTES(call->dtype_out);
}

/* The slice of rank `me` of the two, within the elements [begin, end); whole cache lines. */
typedef struct pair_slice {
  uint64_t begin, end;
} pair_slice;
static pair_slice pair_slice_of(uint64_t begin, uint64_t end, uint32_t me) {
  const uint64_t half = ((end - begin + 1u) / 2u + 63u) & ~(uint64_t)63u;
  const uint64_t middle = half < end - begin ? begin + half : end;
  return me == 0 ? (pair_slice){begin, middle} : (pair_slice){middle, end};
}

/* Elements without gaps, of ranks 0 and 1. `out` may be my input; `over` is the other's. */
static int32_t pair_run(thr_reduction *red, const bs_coll_call *call, const char *zero, const char *one,
                        char *out, char *over, uint64_t n) {
  const uint64_t size = BS_DTYPE_BYTES(call->dtype_in);
  if (thr_sums_f32(call)) {
    red->world->kernels.add2_both_f32((float *)(void *)out, (float *)(void *)over,
                                      (const float *)(const void *)zero, (const float *)(const void *)one, n);
    return BS_OK;
  }
  int32_t rc = BS_OK;
  for (uint64_t at = 0; rc == BS_OK && at < n; at += THR_CHUNK) {
    const uint64_t part = comm_min(n - at, THR_CHUNK);
    rc = thr_reduction_first(red, zero + at * size, part);
    if (rc == BS_OK) rc = thr_reduction_add(red, one + at * size, part);
    if (rc == BS_OK) rc = thr_reduction_store(red, out + at * size, part);
    if (rc == BS_OK) memcpy(over + at * size, out + at * size, part * size);
  }
  return rc;
}

/* My slice: my input, where it lies, and the other's, dense, reduced into my output and over the other's. */
static int32_t pair_reduce(const comm_stage *s, const bs_coll_call *call, pair_slice slice, char *other) {
  const comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  const int dense = in.stride == (int64_t)call->count && out.stride == (int64_t)call->count;
  const uint64_t cols = dense ? call->rows * call->count : call->count, size = BS_DTYPE_BYTES(call->dtype_in);
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, s->math, call, NULL);
  for (uint64_t at = slice.begin; rc == BS_OK && at < slice.end;) {
    const int64_t row = (int64_t)(at / cols), col = (int64_t)(at % cols);
    const uint64_t part = comm_min(cols - (uint64_t)col, slice.end - at);
    const char *mine = in.data + (row * in.stride + col) * (int64_t)size;
    char *sums = out.data + (row * out.stride + col) * (int64_t)size;
    rc = pair_run(&red, call, s->me == 0 ? mine : other, s->me == 0 ? other : mine, sums, other, part);
    other += part * size;
    at += part;
  }
  return rc;
}

/* The half that is written before the first meeting of a piece is this rank's again after the second: it
 * alone reads what the other has put there. */
static int32_t in_pair(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  const comm_matrix in = comm_in(call, 0, call->count), out = comm_out(call, 0, call->count);
  const uint64_t n = call->rows * call->count;
  const uint64_t most = 2u * (s->half / BS_DTYPE_BYTES(call->dtype_in) & ~(uint64_t)63u);
  comm_shown shown;
  int32_t work = BS_OK;
  for (uint64_t begin = 0, end; begin < n; begin = end) {
    end = comm_min(begin + most, n);
    const pair_slice mine = pair_slice_of(begin, end, s->me), theirs = pair_slice_of(begin, end, 1u - s->me);
    unsigned char *room = s->room(s->comm);
    comm_pack(s->math, &in, theirs.begin, theirs.end, room);
    int32_t rc = s->meet(s->comm, call, &shown, err);
    if (rc != BS_OK) return rc;
    char *other = (char *)(uintptr_t)stage_of(&shown, 1u - s->me); /* this rank alone writes there now */
    const int32_t sums = pair_reduce(s, call, mine, other);
    rc = s->meet(s->comm, call, &shown, err);
    if (rc != BS_OK) return rc;
    if (work == BS_OK) work = sums;
    if (work == BS_OK) work = comm_unpack(s->math, &out, theirs.begin, theirs.end, call->dtype_out, room);
  }
  return comm_reduced(work, err);
}

int32_t stage_all_reduce(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  const uint64_t bytes = call->rows * call->count * BS_DTYPE_BYTES(call->dtype_in);
  if (bytes <= comm_min(s->inline_max, s->part)) return one_shot(s, call, err);
  return pair_serves(s, call) ? in_pair(s, call, err) : in_pieces(s, call, err);
}

/* ---- reduce_scatter ------------------------------------------------------------------------- */

int32_t stage_reduce_scatter(const comm_stage *s, const bs_coll_call *call, bs_error *err) {
  const uint64_t most = stage_longest(s, call), area = stage_area(s), step = area / widest(s, call);
  const comm_far *far = s->far;
  const uint64_t own = call->rows * call->counts[s->me];
  const comm_matrix out = comm_out(call, 0, call->counts[s->me]);
  int32_t work = BS_OK;
  uint64_t begin = 0;
  do {
    const uint64_t end = comm_min(begin + step, most), last = comm_min(end, own);
    source from = {.first = begin};
    stage_show_areas(s, call, begin, end, area);
    int32_t rc = s->meet(s->comm, call, &from.shown, err);
    if (rc == BS_OK && far != NULL) rc = far->chain_areas(s->comm, call, begin, end, area, err);
    if (rc == BS_OK && far != NULL) rc = s->meet(s->comm, call, &from.shown, err);
    if (rc != BS_OK) return rc;
    from.shown.base += s->me * area;
    if (work == BS_OK && begin < last && far == NULL)
      work = reduce_range(s, call, &from, &out, begin, last, NULL);
    else if (work == BS_OK && begin < last)
      work =
          comm_unpack(s->math, &out, begin, last, call->dtype_out, stage_of(&from.shown, s->me % far->lanes));
    begin = end;
  } while (begin < most);
  return comm_reduced(work, err);
}
