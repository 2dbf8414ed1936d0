/* SPDX-License-Identifier: MIT
 *
 * mpi_collectives.c - started by mpirun: every collective, many shapes and dtypes, through the MPI
 * communicator; then the same cases through `threads` in this process. Every byte of every result must be the
 * same.
 */
#include <pthread.h>

#include "job.h"

#define MAX_RANKS 16u

static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_I64, BS_I32, BS_I8};
#define N_DTYPES (sizeof dtypes / sizeof dtypes[0])

static void keep(job_rank *r, const void *data, size_t n) {
  const unsigned char *p = data;
  uint64_t h = 7;
  for (size_t i = 0; i < n; ++i) h = (h ^ p[i]) * 1099511628211u;
  r->bits[r->cases++ % JOB_CASES] = h;
}

static void *filled(uint32_t dtype, uint32_t rank, uint64_t rows, uint64_t cols, int64_t stride) {
  void *data = calloc(1, rows * (uint64_t)stride * BS_DTYPE_BYTES(dtype) + 8u);
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t col = 0; col < cols; ++col)
      bs_store_f64(dtype, data, (int64_t)row * stride + (int64_t)col,
                   value_of(dtype, rank, row * cols + col));
  return data;
}

static void must(job_rank *r, int32_t rc, const char *what) {
  if (rc != BS_OK) die(r, what);
}

static void all_reduce(job_rank *r, const uint32_t *three, uint64_t rows, uint64_t count, int64_t pad,
                       int in_place, uint32_t op) {
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, three[0], rows, count, "reduce");
  c.reduce_dtype = three[1];
  c.dtype_out = three[2];
  c.reduce_op = op;
  c.in_stride = (int64_t)count + pad;
  c.out_stride = in_place ? c.in_stride : (int64_t)count + 2 * pad;
  size_t bytes = (size_t)(rows * (uint64_t)c.out_stride) * BS_DTYPE_BYTES(three[2]);
  void *x = filled(three[0], r->rank, rows, count, c.in_stride), *y = in_place ? x : calloc(1, bytes + 8u);
  c.in = x;
  c.out = y;
  must(r, r->comm->all_reduce(r->handle, &c, &r->err), "all_reduce");
  keep(r, y, in_place ? rows * (uint64_t)c.in_stride * BS_DTYPE_BYTES(three[0]) : bytes);
  if (y != x) free(y);
  free(x);
}

static void reduces(job_rank *r) {
  static const uint64_t sizes[] = {0, 1, 7, 333, 1025, 20011};
  static const uint32_t mixed[][3] = {
      {BS_F32, BS_BF16, BS_F32}, {BS_BF16, BS_F32, BS_BF16}, {BS_F16, BS_F32, BS_F16},
      {BS_BF16, BS_F32, BS_F32}, {BS_F32, BS_F64, BS_F32},   {BS_F32, BS_F16, BS_BF16},
      {BS_I8, BS_I32, BS_I32},   {BS_F64, BS_F32, BS_F64},   {BS_F32, BS_F8E5M2, BS_F32}};
  for (size_t d = 0; d < N_DTYPES; ++d) {
    uint32_t same[3] = {dtypes[d], dtypes[d], dtypes[d]};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
      all_reduce(r, same, 1, sizes[s], 0, s % 2 == 0, BS_REDUCE_SUM);
    all_reduce(r, same, 5, 13, 3, 0, BS_REDUCE_SUM);
    all_reduce(r, same, 5, 13, 3, 1, BS_REDUCE_MAX);
    all_reduce(r, same, 67, 129, 5, 0, BS_REDUCE_SUM);
    all_reduce(r, same, 67, 129, 5, 1, BS_REDUCE_SUM);
    all_reduce(r, same, 67, 129, 0, 0, BS_REDUCE_MIN);
  }
  const uint32_t f32[3] = {BS_F32, BS_F32, BS_F32}, f64[3] = {BS_F64, BS_F64, BS_F64};
  all_reduce(r, f32, 1, 300007, 0, 0, BS_REDUCE_SUM);
  all_reduce(r, f64, 1, 200003, 0, 1, BS_REDUCE_SUM);
  for (size_t m = 0; m < sizeof mixed / sizeof mixed[0]; ++m) {
    all_reduce(r, mixed[m], 1, 37, 0, 0, BS_REDUCE_SUM);
    all_reduce(r, mixed[m], 3, 3001, 1, 0, BS_REDUCE_SUM);
    all_reduce(r, mixed[m], 1, 200003, 0, 0, BS_REDUCE_SUM);
  }
}

/* Uneven blocks, some of them empty. */
static uint64_t fill_counts(uint64_t *counts, uint32_t size, uint64_t base) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < size; ++i) {
    counts[i] = base == 0 ? 0 : (base + i * 3u) % (2u * base + 1u);
    total += counts[i];
  }
  return total;
}

static void blocks(job_rank *r, uint32_t kind, uint32_t dtype, uint64_t rows, uint64_t base, int64_t pad) {
  uint64_t counts[MAX_RANKS], recv[MAX_RANKS], size = BS_DTYPE_BYTES(dtype), in_cols, out_cols;
  uint64_t total = fill_counts(counts, r->size, base), received = 0;
  bs_coll_call c = make_call(kind, dtype, rows, 0, "blocks");
  in_cols = kind == BS_COLL_ALL_GATHER ? counts[r->rank] : total;
  out_cols = kind == BS_COLL_ALL_GATHER ? total : counts[r->rank];
  c.counts = counts;
  if (kind == BS_COLL_ALL_TO_ALL) { /* what rank a sends to rank b: (a + 2 b) % 5 times base */
    in_cols = 0;
    for (uint32_t p = 0; p < r->size; ++p) {
      counts[p] = (r->rank + 2u * p) % 5u * base;
      recv[p] = (p + 2u * r->rank) % 5u * base;
      in_cols += counts[p];
      received += recv[p];
    }
    out_cols = received;
    c.recv_counts = recv;
  }
  c.in_stride = (int64_t)in_cols + pad;
  c.out_stride = (int64_t)out_cols + 2 * pad;
  void *x = filled(dtype, r->rank, rows, in_cols, c.in_stride);
  void *y = calloc(1, rows * (uint64_t)c.out_stride * size + 8u);
  c.in = x;
  c.out = y;
  int32_t rc = kind == BS_COLL_ALL_GATHER       ? r->comm->all_gather(r->handle, &c, &r->err)
               : kind == BS_COLL_REDUCE_SCATTER ? r->comm->reduce_scatter(r->handle, &c, &r->err)
                                                : r->comm->all_to_all(r->handle, &c, &r->err);
  must(r, rc, "blocks");
  keep(r, y, rows * (uint64_t)c.out_stride * size);
  free(x);
  free(y);
}

static void moves(job_rank *r) {
  static const uint32_t kinds[] = {BS_COLL_ALL_GATHER, BS_COLL_REDUCE_SCATTER, BS_COLL_ALL_TO_ALL};
  for (size_t k = 0; k < 3; ++k) {
    for (size_t d = 0; d < N_DTYPES; ++d) {
      blocks(r, kinds[k], dtypes[d], 1, 0, 0);
      blocks(r, kinds[k], dtypes[d], 1, 1, 0);
      blocks(r, kinds[k], dtypes[d], 4, 11, 2);
      blocks(r, kinds[k], dtypes[d], 3, 2050, 0);
    }
    blocks(r, kinds[k], BS_F32, 7, 60011, 5);
  }
}

static void broadcasts(job_rank *r) {
  static const uint64_t sizes[] = {0, 1, 333, 300007};
  for (uint32_t root = 0; root < r->size; ++root) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
      bs_coll_call c = make_call(BS_COLL_BROADCAST, BS_F32, 1, sizes[s], "broadcast");
      c.root = root;
      c.dtype_out = s == 2 ? BS_BF16 : BS_F32;
      void *x = filled(BS_F32, r->rank, 1, sizes[s], (int64_t)sizes[s]);
      void *y = calloc(1, sizes[s] * 4u + 8u);
      c.in = r->rank == root ? x : NULL;
      c.out = y;
      must(r, r->comm->broadcast(r->handle, &c, &r->err), "broadcast");
      keep(r, y, sizes[s] * 4u);
      free(x);
      free(y);
    }
  }
}

/* Round the ring: even ranks send first. */
static void ring(job_rank *r, uint64_t rows, uint64_t count, int64_t pad) {
  if (r->size < 2) return;
  uint32_t next = (r->rank + 1u) % r->size, before = (r->rank + r->size - 1u) % r->size;
  bs_coll_call s = make_call(BS_COLL_SEND, BS_F32, rows, count, "ring");
  s.in_stride = s.out_stride = (int64_t)count + pad;
  bs_coll_call g = s;
  g.kind = BS_COLL_RECV;
  g.dtype_out = BS_BF16;
  s.dtype_out = BS_BF16;
  void *x = filled(BS_F32, r->rank, rows, count, s.in_stride);
  void *y = calloc(1, rows * (uint64_t)s.in_stride * 2u + 8u);
  s.in = x;
  g.out = y;
  s.root = next;
  g.root = before;
  for (int turn = 0; turn < 2; ++turn) {
    if ((r->rank % 2 == 0) == (turn == 0))
      must(r, r->comm->send(r->handle, &s, &r->err), "send");
    else
      must(r, r->comm->recv(r->handle, &g, &r->err), "recv");
  }
  keep(r, y, rows * (uint64_t)s.in_stride * 2u);
  free(x);
  free(y);
}

static void barrier(job_rank *r) {
  bs_coll_call c = make_call(BS_COLL_BARRIER, BS_F32, 0, 0, "barrier");
  must(r, r->comm->barrier(r->handle, &c, &r->err), "barrier");
}

static void in_group(job_rank *r, const uint32_t *ranks, uint32_t n) {
  job_rank sub = *r;
  uint32_t three[3] = {BS_F32, BS_F32, BS_F32};
  sub.size = n;
  sub.rank = 0;
  while (ranks[sub.rank] != r->rank) sub.rank++;
  must(r, r->comm->group_open(r->handle, ranks, n, &sub.handle, &r->err), "group_open");
  all_reduce(&sub, three, 1, 20011, 0, 0, BS_REDUCE_SUM);
  blocks(&sub, BS_COLL_ALL_GATHER, BS_F32, 3, 17, 1);
  blocks(&sub, BS_COLL_REDUCE_SCATTER, BS_BF16, 3, 17, 1);
  barrier(&sub);
  r->comm->rank_close(sub.handle);
  memcpy(r->bits, sub.bits, sizeof sub.bits);
  r->cases = sub.cases;
}

static void groups(job_rank *r) {
  uint32_t ranks[2][MAX_RANKS], n[2] = {0, 0};
  for (uint32_t p = 0; p < r->size; ++p) {
    uint32_t odd = p % 2u;
    ranks[odd][n[odd]++] = p;
  }
  in_group(r, ranks[r->rank % 2u], n[r->rank % 2u]);
  for (uint32_t p = 0; p < r->size; ++p) ranks[0][p] = p;
  in_group(r, ranks[0], r->size);
}

static void cases(job_rank *r) {
  barrier(r);
  reduces(r);
  moves(r);
  broadcasts(r);
  ring(r, 3, 1001, 2);
  ring(r, 1, 300007, 0);
  groups(r);
  barrier(r);
}

static void *thread_main(void *arg) {
  cases(arg);
  return NULL;
}

/* What every rank has got, on all of them. */
static uint64_t *gather_bits(job_rank *r) {
  uint64_t counts[MAX_RANKS];
  uint64_t *all = calloc((size_t)r->size * JOB_CASES, sizeof *all);
  for (uint32_t p = 0; p < r->size; ++p) counts[p] = JOB_CASES;
  bs_coll_call c = make_call(BS_COLL_ALL_GATHER, BS_I64, 1, 0, "bits");
  c.counts = counts;
  c.in_stride = JOB_CASES;
  c.out_stride = (int64_t)r->size * JOB_CASES;
  c.in = r->bits;
  c.out = all;
  must(r, r->comm->all_gather(r->handle, &c, &r->err), "bits");
  return all;
}

/* What `threads` makes of the same. */
static void compare(const job *j, const uint64_t *bits) {
  job_rank ranks[MAX_RANKS];
  pthread_t threads[MAX_RANKS];
  const bs_comm *comm;
  void *state, *world;
  bs_world_request request = {.struct_size = sizeof request, .world_size = j->me.size};
  if (bs_find_comm(j->context, "threads", &comm, &state, NULL) != BS_OK ||
      comm->world_open(state, &request, &world, NULL) != BS_OK)
    die(&j->me, "threads");
  memset(ranks, 0, sizeof ranks);
  for (uint32_t r = 0; r < j->me.size; ++r) {
    ranks[r].comm = comm;
    ranks[r].rank = r;
    ranks[r].size = j->me.size;
    must(&ranks[r], comm->rank_open(world, r, &ranks[r].handle, &ranks[r].err), "rank_open");
  }
  for (uint32_t r = 0; r < j->me.size; ++r) pthread_create(&threads[r], NULL, thread_main, &ranks[r]);
  for (uint32_t r = 0; r < j->me.size; ++r) pthread_join(threads[r], NULL);
  for (uint32_t r = 0; r < j->me.size; ++r) comm->rank_close(ranks[r].handle);
  comm->world_close(world);
  if (ranks[0].cases != j->me.cases) die(&j->me, "another number of cases");
  for (uint32_t r = 0; r < j->me.size; ++r) {
    for (uint32_t i = 0; i < ranks[r].cases; ++i) {
      if (ranks[r].bits[i] == bits[r * JOB_CASES + i]) continue;
      fprintf(stderr, "rank %u case %u: other bits than of threads\n", r, i);
      _exit(1);
    }
  }
}

int main(void) {
  job j;
  uint64_t *bits = NULL;
  if (job_join(&j) != BS_OK) die(&j.me, "join");
  if (j.me.size > MAX_RANKS) die(&j.me, "too many ranks");
  for (int world = 0; world < 2; ++world) { /* one after the other */
    if (job_open(&j, 0x5eed, 20.0) != BS_OK) die(&j.me, "open");
    if (world == 0) barrier(&j.me);
    if (world == 1) cases(&j.me);
    if (world == 1) bits = gather_bits(&j.me);
    job_close(&j);
  }
  if (j.me.rank == 0) compare(&j, bits);
  free(bits);
  if (j.me.rank == 0) printf("%u cases of %u ranks: the same bits\n", j.me.cases, j.me.size);
  fflush(NULL);
  bs_context_close(j.context);
  return 0;
}
