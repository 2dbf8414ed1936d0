/* SPDX-License-Identifier: MIT
 * comm_case.h - one collective on every rank of a world on the cuda backend, over any communicator: data of a
 * seed go to the device, the result comes back with what lies between its rows. Two communicators that keep
 * comm.h's contract leave the same bytes. */
#ifndef BS_TESTS_CUDA_COMM_CASE_H
#define BS_TESTS_CUDA_COMM_CASE_H
#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/world/world.h"
#include "tests/cuda/backend.h"
#include "tests/lab/lab_test.h"

enum { CC_RANKS = 4, CC_BYTES = 1 << 17 };

typedef struct cc_case {
  uint32_t kind, dtype_in, dtype_out, reduce_dtype, op, root;
  uint32_t in_place; /* all_reduce and broadcast: in is out; all_gather: in is the own block of out */
  uint64_t rows, count, gap_in, gap_out;
  uint64_t counts[CC_RANKS][CC_RANKS],
      recv[CC_RANKS][CC_RANKS]; /* of each rank; used where counts[0][0] + .. > 0 */
  uint32_t has_counts;
  uint64_t seed;
  uint32_t repeat; /* calls: 0 is 1 */
  uint32_t start;  /* by collective_start and collective_wait */
  const char *site[CC_RANKS];
  int64_t timeout_ns;
  int32_t absent; /* 1 + a rank that does not call */
  uint32_t late;  /* rank 1's stream is busy: its data come late, and all overwrite theirs behind the call */
} cc_case;

typedef struct cc_run {
  const cc_case *c;
  unsigned char out[CC_RANKS][CC_BYTES];
  uint64_t bytes[CC_RANKS];
  char notes[256];
  int32_t rc;
  bs_error err;
} cc_run;

static inline uint64_t cc_sum(const uint64_t *counts, uint32_t n) {
  uint64_t sum = 0;
  for (uint32_t r = 0; r < n; r++) sum += counts[r];
  return sum;
}

/* Columns of a rank's in and out. */
static inline void cc_columns(const cc_case *c, uint32_t me, uint32_t n, uint64_t *in, uint64_t *out) {
  const int blocks =
      c->kind == BS_COLL_ALL_GATHER || c->kind == BS_COLL_REDUCE_SCATTER || c->kind == BS_COLL_ALL_TO_ALL;
  const uint64_t whole = blocks ? cc_sum(c->counts[me], n) : c->count;
  *in = c->kind == BS_COLL_ALL_GATHER ? c->counts[me][me] : whole;
  *out = c->kind == BS_COLL_REDUCE_SCATTER ? c->counts[me][me]
         : c->kind == BS_COLL_ALL_TO_ALL   ? cc_sum(c->recv[me], n)
                                           : whole;
}

static inline int32_t cc_tensor(bs_rank *rank, uint32_t dtype, uint64_t rows, uint64_t cols, uint64_t gap,
                                bs_tensor *out, bs_error *err) {
  const bs_tensor_desc d = bs_desc_2d(dtype, (int64_t)rows, (int64_t)(cols + gap));
  const int32_t rc = bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_SCRATCH, out, err);
  out->dims[1] = (int64_t)cols;
  return rc;
}

static inline int32_t cc_copy(bs_rank *rank, void *to, const void *from, uint64_t bytes, uint32_t kind,
                              bs_error *err) {
  const bs_backend *b = rank->world->backend;
  if (bytes == 0) return BS_OK;
  const int32_t rc = b->mem_copy(rank->device, to, from, bytes, kind, NULL, err);
  return rc == BS_OK ? b->stream_sync(rank->device, NULL, err) : rc;
}

static inline void cc_fill(unsigned char *to, uint32_t dtype, uint64_t n, uint64_t seed) {
  for (uint64_t i = 0; i < n; i++) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const double v = (double)(int64_t)(seed >> 11) * 0x1p-52 * 200.0 - 200.0;
    bs_store_f64(dtype, to, (int64_t)i, v);
  }
}

static inline int32_t cc_call(const cc_case *c, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out,
                              bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < (c->repeat > 0 ? c->repeat : 1u); i++) {
    if (!c->start) {
      rc = api->collective_run(plan, in, out, NULL, err);
    } else {
      rc = api->collective_start(plan, in, out, NULL, err);
      if (rc == BS_OK) rc = api->collective_wait(plan, err);
    }
  }
  return rc;
}

/* The device's stream is kept busy for some milliseconds; then `in`, zeros until then, gets its data. */
static inline int32_t cc_late(bs_rank *rank, bs_tensor *in, bs_tensor *spare, uint64_t bytes, bs_error *err) {
  enum { BUSY = 1 << 20 };
  const bs_backend *b = rank->world->backend;
  bs_tensor busy = {.struct_size = sizeof busy};
  int32_t rc = cc_tensor(rank, BS_U8, 2, BUSY, 0, &busy, err);
  if (rc == BS_OK) rc = cc_copy(rank, spare->data, in->data, bytes, BS_COPY_DEVICE_TO_DEVICE, err);
  if (rc == BS_OK) rc = cc_copy(rank, in->data, busy.data, bytes, BS_COPY_DEVICE_TO_DEVICE, err);
  for (int i = 0; rc == BS_OK && i < 30; i++)
    rc = b->mem_copy(rank->device, (char *)busy.data + BUSY, busy.data, BUSY, BS_COPY_DEVICE_TO_DEVICE, NULL,
                     err);
  if (rc == BS_OK)
    rc = b->mem_copy(rank->device, in->data, spare->data, bytes, BS_COPY_DEVICE_TO_DEVICE, NULL, err);
  bs_rank_get_api()->tensor_free(rank, &busy);
  return rc;
}

static inline int32_t cc_main(bs_rank *rank, void *arg, bs_error *err) {
  static unsigned char junk[CC_RANKS][CC_BYTES];
  const bs_rank_api *api = bs_rank_get_api();
  cc_run *run = arg;
  const cc_case *c = run->c;
  const uint32_t me = api->rank(rank), n = api->world_size(rank);
  const int pair = c->kind == BS_COLL_SEND; /* rank 0 to rank 1 */
  bs_tensor in = {.struct_size = sizeof in}, out = {.struct_size = sizeof out}, block;
  bs_tensor spare = {.struct_size = sizeof spare};
  uint64_t in_cols, out_cols;
  bs_coll_plan *plan = NULL;
  if ((pair && me > 1) || c->absent == (int32_t)me + 1) return BS_OK;
  cc_columns(c, me, n, &in_cols, &out_cols);
  const bs_collective what = {
      .struct_size = sizeof what,
      .kind = pair && me == 1 ? (uint32_t)BS_COLL_RECV : c->kind,
      .dtype_in = c->dtype_in,
      .dtype_out = c->dtype_out,
      .reduce_dtype = c->reduce_dtype,
      .reduce_op = c->op,
      .root = pair ? 1u - me : c->root,
      .rows = c->rows,
      .count = c->count,
      .counts = c->has_counts ? c->counts[me] : NULL,
      .recv_counts = c->has_counts && c->kind == BS_COLL_ALL_TO_ALL ? c->recv[me] : NULL,
      .ncounts = c->has_counts ? n : 0,
      .site = c->site[me] != NULL ? c->site[me] : "case",
      .timeout_ns = c->timeout_ns};
  const uint64_t in_bytes = c->rows * (in_cols + c->gap_in) * BS_DTYPE_BYTES(c->dtype_in);
  const uint64_t out_bytes = c->rows * (out_cols + c->gap_out) * BS_DTYPE_BYTES(c->dtype_out);
  ck_assert(in_bytes <= CC_BYTES && out_bytes <= CC_BYTES);
  int32_t rc = cc_tensor(rank, c->dtype_in, c->rows, in_cols, c->gap_in, &in, err);
  if (rc == BS_OK) rc = cc_tensor(rank, c->dtype_out, c->rows, out_cols, c->gap_out, &out, err);
  if (rc == BS_OK) {
    cc_fill(junk[me], c->dtype_in, c->rows * (in_cols + c->gap_in), c->seed + me);
    rc = cc_copy(rank, in.data, junk[me], in_bytes, BS_COPY_HOST_TO_DEVICE, err);
  }
  if (rc == BS_OK) {
    cc_fill(junk[me], c->dtype_out, c->rows * (out_cols + c->gap_out), c->seed + me + (c->in_place ? 0 : 77));
    rc = cc_copy(rank, out.data, junk[me], out_bytes, BS_COPY_HOST_TO_DEVICE, err);
  }
  block = c->in_place ? out : in;
  if (c->in_place && c->kind == BS_COLL_ALL_GATHER) {
    block.dims[1] = (int64_t)in_cols;
    block.data = (char *)out.data + cc_sum(c->counts[me], me) * BS_DTYPE_BYTES(c->dtype_in);
  }
  if (rc == BS_OK) rc = api->collective_prepare(rank, &what, &plan, err);
  if (rc == BS_OK && c->late) rc = cc_tensor(rank, c->dtype_in, c->rows, in_cols + c->gap_in, 0, &spare, err);
  if (rc == BS_OK && c->late && me == 1) rc = cc_late(rank, &in, &spare, in_bytes, err);
  if (rc == BS_OK) rc = cc_call(c, plan, &block, &out, err);
  if (rc == BS_OK && c->late && me != 1)
    rc = rank->world->backend->mem_copy(rank->device, in.data, spare.data, in_bytes, BS_COPY_DEVICE_TO_DEVICE,
                                        NULL, err);
  if (rc == BS_OK) rc = cc_copy(rank, run->out[me], out.data, out_bytes, BS_COPY_DEVICE_TO_HOST, err);
  run->bytes[me] = out_bytes;
  api->collective_release(plan);
  api->tensor_free(rank, &in);
  api->tensor_free(rank, &out);
  api->tensor_free(rank, &spare);
  return rc;
}

/* One world for all cases: worlds cost more than calls. Ends at the first case that fails. */
typedef struct cc_world {
  over o;
  bs_world *world;
} cc_world;

static inline cc_world cc_open(over o, const char *comm, uint32_t ranks, double timeout_s) {
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = ranks,
                                    .threads_per_rank = 1,
                                    .backend = "cuda",
                                    .comm = comm,
                                    .timeout_s = timeout_s};
  cc_world w = {o, NULL};
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_world_create(o.context, &options, &w.world, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  return w;
}

static inline void cc_do(cc_world *w, const cc_case *c, cc_run *run) {
  memset(run, 0, sizeof *run);
  run->c = c;
  run->err = (bs_error)BS_ERROR_INIT;
  run->rc = bs_world_run(w->world, cc_main, run, &run->err);
  snprintf(run->notes, sizeof run->notes, "%s", bs_world_algorithms(w->world));
}

/* The same bytes, rank by rank, from both. */
static inline void cc_same(cc_world *got, cc_world *want, const cc_case *c, const char *what) {
  static cc_run a, b;
  cc_do(got, c, &a);
  cc_do(want, c, &b);
  ck_assert_msg(a.rc == BS_OK, "%s: %s: %s", what, a.err.id, a.err.message);
  ck_assert_msg(b.rc == BS_OK, "%s: %s: %s", what, b.err.id, b.err.message);
  for (uint32_t r = 0; r < CC_RANKS; r++) {
    ck_assert_uint_eq(a.bytes[r], b.bytes[r]);
    for (uint64_t i = 0; i < a.bytes[r]; i++)
      if (a.out[r][i] != b.out[r][i])
        ck_abort_msg("%s: rank %u, byte %llu of %llu: %02x, want %02x", what, r, (unsigned long long)i,
                     (unsigned long long)a.bytes[r], a.out[r][i], b.out[r][i]);
  }
}

/* ---- cases that every communicator of device memory must serve ---------------------------------- */

static inline void cc_every_sum(cc_world *got, cc_world *want) {
  static const uint32_t of[][3] = {
      {BS_F32, BS_F32, BS_F32},    {BS_BF16, BS_F32, BS_BF16},     {BS_F16, BS_F32, BS_F32},
      {BS_BF16, BS_BF16, BS_BF16}, {BS_F32, BS_F16, BS_F16},       {BS_F64, BS_F64, BS_F64},
      {BS_F64, BS_BF16, BS_F32},   {BS_F8E4M3, BS_F32, BS_F8E4M3}, {BS_F8E5M2, BS_F16, BS_F32},
      {BS_I64, BS_I64, BS_I64},    {BS_I32, BS_I64, BS_I32},       {BS_I8, BS_I32, BS_F32},
      {BS_I8, BS_I8, BS_I8},       {BS_U8, BS_U8, BS_U8},          {BS_I32, BS_F32, BS_F32},
      {BS_F32, BS_I32, BS_F64},    {BS_F32, BS_F64, BS_BF16},      {BS_F8E4M3, BS_F8E4M3, BS_F16},
      {BS_I32, BS_I32, BS_BF16},
  };
  static const uint64_t sizes[][4] = {{1, 1, 0, 0}, {7, 33, 3, 5}, {2, 500, 0, 12}, {5, 64, 8, 0}};
  uint64_t seed = 1;
  for (size_t d = 0; d < sizeof of / sizeof of[0]; d++)
    for (uint32_t op = 0; op < 3; op++) {
      const uint64_t *s = sizes[(d + op) % 4];
      char what[80];
      cc_case c = {.kind = BS_COLL_ALL_REDUCE,
                   .dtype_in = of[d][0],
                   .reduce_dtype = of[d][1],
                   .dtype_out = of[d][2],
                   .op = op,
                   .rows = s[0],
                   .count = s[1],
                   .gap_in = s[2],
                   .gap_out = s[3],
                   .seed = ++seed * 100};
      snprintf(what, sizeof what, "dtypes %zu, op %u, %llux%llu", d, op, (unsigned long long)s[0],
               (unsigned long long)s[1]);
      cc_same(got, want, &c, what);
    }
}

static inline void cc_every_kind(cc_world *got, cc_world *want, uint32_t n) {
  static const uint64_t shares[CC_RANKS] = {5, 0, 19, 8};
  for (uint32_t place = 0; place < 2; place++) {
    cc_case c = {.kind = BS_COLL_ALL_REDUCE,
                 .dtype_in = BS_F32,
                 .dtype_out = BS_F32,
                 .reduce_dtype = BS_F32,
                 .rows = 6,
                 .count = 40,
                 .gap_in = 3,
                 .gap_out = 3,
                 .in_place = place,
                 .seed = 3,
                 .repeat = 3};
    if (!place) c.dtype_out = BS_BF16;
    cc_same(got, want, &c, "all_reduce");
    c.start = 1;
    cc_same(got, want, &c, "all_reduce, started");
    c.start = 0;
    c.repeat = 1;
    c.late = !place;
    if (c.late) cc_same(got, want, &c, "all_reduce of late data");
    c.start = c.late;
    if (c.late) cc_same(got, want, &c, "all_reduce of late data, started");
    c.late = c.start = 0;
    c.kind = BS_COLL_BROADCAST;
    c.root = n - 1;
    cc_same(got, want, &c, "broadcast");
    c.kind = BS_COLL_ALL_GATHER;
    c.has_counts = 1;
    for (uint32_t r = 0; r < n; r++) memcpy(c.counts[r], shares, sizeof shares);
    cc_same(got, want, &c, "all_gather");
    if (place) continue;
    c.kind = BS_COLL_REDUCE_SCATTER;
    cc_same(got, want, &c, "reduce_scatter");
    c.kind = BS_COLL_SEND;
    c.has_counts = 0;
    c.dtype_out = c.dtype_in; /* the receiver's is the sender's */
    cc_same(got, want, &c, "send");
    c.kind = BS_COLL_ALL_TO_ALL;
    c.dtype_out = BS_F16;
    c.has_counts = 1;
    for (uint32_t r = 0; r < n; r++)
      for (uint32_t q = 0; q < n; q++) {
        c.counts[r][q] = (3 * r + 5 * q) % 7;
        c.recv[r][q] = (3 * q + 5 * r) % 7;
      }
    cc_same(got, want, &c, "all_to_all");
  }
}

static inline void cc_close(cc_world *w) {
  bs_world_destroy(w->world);
}
#endif
