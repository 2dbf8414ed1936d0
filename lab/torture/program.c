/* SPDX-License-Identifier: MIT
 * program.c - see program.h. Values are small whole numbers: every order of summation gives the same result.
 * Data are in host memory, so the ranks are those of the backend ref. */
#include "lab/torture/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plugin/registry.h"
#include "lab/case/joint.h"
#include "lab/error.h"

typedef struct job {
  bs_case_kept kept;
  uint32_t world_size;
  int has[BS_COLL_COUNT_]; /* kinds that the communicator lacks are not called */
  bs_torture_request request;
} job;

/* One call of one rank. */
typedef struct call {
  uint32_t kind, me, P, root; /* root: of a broadcast; of send and recv the peer */
  uint64_t rows, count, in_cols, out_cols;
  char site[48];
} call;

typedef struct size {
  const char *name;
  uint64_t rows, count;
} size;
static const size sizes[] = {{"small", 3, 5}, {"large", 17, 301}}; /* inside a slot; read in place */

static float value(uint32_t rank, uint64_t i) {
  return (float)((i * 7u + rank * 13u) % 21u) - 10.0f;
}

static float sum(uint32_t P, uint64_t i) {
  float total = 0.0f;
  for (uint32_t r = 0; r < P; ++r) total += value(r, i);
  return total;
}

/* Element [row, col] of this rank's result; *out_from: the rank it came from, P: all of them. */
static float expected(const call *c, uint64_t row, uint64_t col, uint32_t *out_from) {
  *out_from = c->P;
  switch (c->kind) {
    case BS_COLL_ALL_REDUCE:
      return sum(c->P, row * c->count + col);
    case BS_COLL_REDUCE_SCATTER:
      return sum(c->P, row * c->count * c->P + c->me * c->count + col);
    case BS_COLL_ALL_GATHER:
      *out_from = (uint32_t)(col / c->count);
      return value(*out_from, row * c->count + col % c->count);
    case BS_COLL_ALL_TO_ALL:
      *out_from = (uint32_t)(col / c->count);
      return value(*out_from, row * c->count * c->P + c->me * c->count + col % c->count);
    default: /* broadcast, recv */
      *out_from = c->root;
      return value(c->root, row * c->count + col);
  }
}

static void set_columns(call *c) {
  const uint64_t all = c->count * c->P;
  const int spread = c->kind == BS_COLL_REDUCE_SCATTER || c->kind == BS_COLL_ALL_TO_ALL;
  const int gather = c->kind == BS_COLL_ALL_GATHER || c->kind == BS_COLL_ALL_TO_ALL;
  c->in_cols = c->kind == BS_COLL_RECV || c->kind == BS_COLL_BARRIER ? 0 : spread ? all : c->count;
  c->out_cols = c->kind == BS_COLL_SEND || c->kind == BS_COLL_BARRIER ? 0 : gather ? all : c->count;
  if (c->kind == BS_COLL_BROADCAST && c->me != c->root) c->in_cols = 0;
}

static bs_tensor view(float *data, uint64_t rows, uint64_t cols) {
  return (bs_tensor){.struct_size = sizeof(bs_tensor),
                     .dtype = BS_F32,
                     .rank = 2,
                     .dims = {(int64_t)rows, (int64_t)cols},
                     .strides = {(int64_t)cols, 1},
                     .data = data,
                     .bytes = rows * cols * sizeof *data};
}

static int32_t compare(const call *c, const float *out, bs_error *err) {
  for (uint64_t row = 0; row < c->rows; ++row) {
    for (uint64_t col = 0; col < c->out_cols; ++col) {
      uint32_t from;
      char whom[32] = "";
      const float want = expected(c, row, col, &from), got = out[row * c->out_cols + col];
      if (got == want) continue;
      if (from < c->P) snprintf(whom, sizeof whom, " from rank %u", from);
      bs_error_set(err, BS_NUMERIC, "BS-TORTURE-NUMBERS",
                   "%s: element [%llu,%llu]%s is %.9g, alone it is %.9g", bs_name_of(BS_NAMES_COLL, c->kind),
                   (unsigned long long)row, (unsigned long long)col, whom, (double)got, (double)want);
      bs_error_where(err, "%s", c->site);
      if (err != NULL) err->rank = (int32_t)c->me;
      return BS_NUMERIC;
    }
  }
  return BS_OK;
}

static int32_t run_plan(bs_rank *rank, const call *c, bs_tensor *x, bs_tensor *y, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_coll_plan *plan = NULL;
  bs_collective desc = {.struct_size = sizeof desc, .kind = c->kind, .root = c->root, .site = c->site};
  if (c->kind != BS_COLL_BARRIER) {
    desc.dtype_in = desc.dtype_out = BS_F32;
    desc.rows = c->rows;
    desc.count = c->count;
  }
  int32_t rc = api->collective_prepare(rank, &desc, &plan, err);
  if (rc != BS_OK) return rc;
  rc = api->collective_run(plan, c->in_cols > 0 ? x : NULL, c->out_cols > 0 ? y : NULL, NULL, err);
  api->collective_release(plan);
  return rc;
}

static int32_t run_call(bs_rank *rank, call *c, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  set_columns(c);
  const uint64_t n_in = c->rows * c->in_cols, n_out = c->rows * c->out_cols;
  float *in = api->alloc(rank, (n_in + 1u) * sizeof *in), *out = api->alloc(rank, (n_out + 1u) * sizeof *out);
  int32_t rc = in == NULL || out == NULL ? bs_no_memory(err, "a message") : BS_OK;
  if (rc == BS_OK) {
    bs_tensor x = view(in, c->rows, c->in_cols), y = view(out, c->rows, c->out_cols);
    for (uint64_t i = 0; i < n_in; ++i) in[i] = value(c->me, i);
    memset(out, 0x7f, n_out * sizeof *out); /* no value of any rank */
    rc = run_plan(rank, c, &x, &y, err);
    if (rc == BS_OK) rc = compare(c, out, err);
  }
  api->free(rank, in);
  api->free(rank, out);
  return rc;
}

static int32_t one(bs_rank *rank, const job *j, const size *s, uint32_t kind, uint32_t root, bs_error *err) {
  if (!j->has[kind]) return BS_OK;
  call c = {.kind = kind,
            .me = bs_rank_get_api()->rank(rank),
            .P = j->world_size,
            .root = root,
            .rows = s->rows,
            .count = s->count};
  snprintf(c.site, sizeof c.site, "torture.%s.%s", bs_name_of(BS_NAMES_COLL, kind), s->name);
  if (kind == BS_COLL_SEND || kind == BS_COLL_RECV)
    snprintf(c.site, sizeof c.site, "torture.p2p.%s", s->name);
  return run_call(rank, &c, err);
}

/* Sends one message at a time, so that the waiting rank does not depend on timing. */
static int32_t messages(bs_rank *rank, const job *j, const size *s, bs_error *err) {
  const uint32_t me = bs_rank_get_api()->rank(rank), P = j->world_size;
  int32_t rc = BS_OK;
  if (!j->has[BS_COLL_SEND] || !j->has[BS_COLL_RECV]) return BS_OK;
  for (uint32_t from = 0; rc == BS_OK && from < P; ++from) {
    const uint32_t to = (from + 1) % P;
    if (me == from) rc = one(rank, j, s, BS_COLL_SEND, to, err);
    if (rc == BS_OK && me == to) rc = one(rank, j, s, BS_COLL_RECV, from, err);
    if (rc == BS_OK) rc = one(rank, j, s, BS_COLL_BARRIER, 0, err);
  }
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  static const uint32_t kinds[] = {BS_COLL_ALL_REDUCE, BS_COLL_ALL_GATHER, BS_COLL_REDUCE_SCATTER,
                                   BS_COLL_BROADCAST, BS_COLL_ALL_TO_ALL};
  const job *j = arg;
  int32_t rc = BS_OK;
  for (size_t s = 0; rc == BS_OK && s < sizeof sizes / sizeof sizes[0]; ++s) {
    for (size_t k = 0; rc == BS_OK && k < sizeof kinds / sizeof kinds[0]; ++k)
      rc = one(rank, j, &sizes[s], kinds[k], j->world_size - 1, err);
    if (rc == BS_OK && j->world_size > 1) rc = messages(rank, j, &sizes[s], err);
    if (rc == BS_OK) rc = one(rank, j, &sizes[s], BS_COLL_BARRIER, 0, err);
  }
  return rc;
}

static uint32_t count_call(void *user, uint32_t rank, const bs_coll_call *c) {
  const job *j = user;
  if (j->request.counts != NULL && c->kind < BS_COLL_COUNT_) j->request.counts[rank][c->kind]++;
  return 1;
}

static int32_t find_slots(bs_context *context, job *j, bs_error *err) {
  const bs_comm *c = NULL;
  void *state = NULL;
  const int32_t rc = bs_find_comm(context, j->request.comm, &c, &state, err);
  if (rc != BS_OK) return rc;
  const int has[BS_COLL_COUNT_] = {c->all_reduce != NULL, c->all_gather != NULL, c->reduce_scatter != NULL,
                                   c->broadcast != NULL,  c->all_to_all != NULL, c->send != NULL,
                                   c->recv != NULL,       c->barrier != NULL};
  memcpy(j->has, has, sizeof has);
  return BS_OK;
}

static int32_t get_counts(void *user, uint32_t rank, bs_parcel *p, bs_error *err) {
  const job *j = user;
  (void)err;
  bs_parcel_get(p, j->request.counts[rank], sizeof j->request.counts[rank]);
  return BS_OK;
}

/* Collects on rank 0 how often the ranks of other processes called each kind. */
static int32_t gather_counts(job *j, bs_world *world, bs_error *err) {
  bs_parcel mine = {0};
  if (j->request.counts == NULL || !bs_exchange_joint(world)) return BS_OK;
  const uint64_t *own = j->request.counts[bs_world_own_rank(world)];
  bs_parcel_put(&mine, own, BS_COLL_COUNT_ * sizeof *own);
  return bs_joint_gather(world, j->world_size, &mine, get_counts, j, err);
}

int32_t bs_torture_program(bs_context *context, const bs_torture_request *request, bs_error *err) {
  job *j = calloc(1, sizeof *j);
  bs_world *world = NULL;
  if (j == NULL) return bs_no_memory(err, "a program");
  j->world_size = request->world_size;
  j->request = *request;
  const bs_collective_hook hook = {.user = j, .before = count_call};
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = request->world_size,
                                    .backend = "ref",
                                    .comm = request->comm,
                                    .threads_per_rank = 1,
                                    .timeout_s = request->deadline_s,
                                    .hook = &hook};
  int32_t rc = find_slots(context, j, err);
  if (rc == BS_OK) rc = bs_world_create(context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, j, err);
  if (rc == BS_OK) rc = gather_counts(j, world, err);
  bs_world_destroy(world);
  if (bs_context_stuck(context) > 0)
    bs_case_keep(&j->kept);
  else
    free(j);
  return rc;
}
