/* SPDX-License-Identifier: MIT
 *
 * mapping.c - the borders of the tensor-parallel region. Each mapping is a copy in one direction and a
 * collective in the other: a table says which. The copy is the op gather_columns (of all columns, or of the
 * rank's part), so that it runs on any backend.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "tp/state.h"

typedef struct kind_row {
  const char *site;
  uint32_t collective;  /* enum bs_coll_kind */
  uint32_t forward_is;  /* 1: the collective is the forward direction */
  uint32_t copies_part; /* the copy keeps the rank's part; 0: everything */
} kind_row;

static const kind_row kinds[] = {
    [BS_TP_COPY_TO] = {"tp.copy_to", BS_COLL_ALL_REDUCE, 0, 0},
    [BS_TP_REDUCE_FROM] = {"tp.reduce_from", BS_COLL_ALL_REDUCE, 1, 0},
    [BS_TP_SCATTER_TO] = {"tp.scatter_to", BS_COLL_ALL_GATHER, 0, 1},
    [BS_TP_GATHER_FROM] = {"tp.gather_from", BS_COLL_ALL_GATHER, 1, 1},
};

struct bs_tp_mapping {
  tp_state *state;
  const kind_row *kind;
  uint32_t dtype;
  int64_t max_rows, features;
  bs_partition part; /* what the copy keeps */
  int64_t begin, count;
  bs_plan *copy; /* NULL: the rank's part is empty */
  bs_coll_plan *collective;
};

static int32_t prepare_copy(bs_tp_mapping *m, bs_error *err) {
  const int64_t kept = m->kind->copies_part ? m->count : m->features;
  const bs_tensor_desc in = {.struct_size = (uint32_t)sizeof in,
                             .dtype = m->dtype,
                             .rank = 2,
                             .dims = {m->max_rows, m->features},
                             .strides = {m->features, 1}};
  const bs_tensor_desc out = {.struct_size = (uint32_t)sizeof out,
                              .dtype = m->dtype,
                              .rank = 2,
                              .dims = {m->max_rows, kept},
                              .strides = {kept, 1}};
  const bs_tensor_desc *args[2] = {&in, &out};
  if (kept == 0) return BS_OK;
  m->part = (bs_partition){.struct_size = (uint32_t)sizeof m->part,
                           .kind = BS_PARTITION_CONTIGUOUS,
                           .total = m->features,
                           .begin = m->kind->copies_part ? m->begin : 0,
                           .count = kept};
  const bs_op_query query = {.struct_size = (uint32_t)sizeof query,
                             .op = "gather_columns",
                             .nargs = 2,
                             .args = args,
                             .partition = &m->part};
  return bs_rank_get_api()->op_prepare(m->state->rank, &query, NULL, &m->copy, err);
}

static int32_t prepare_collective(bs_tp_mapping *m, bs_error *err) {
  const bs_tp_place *p = &m->state->place;
  const int gathers = m->kind->collective == BS_COLL_ALL_GATHER;
  uint64_t *counts = gathers ? calloc(p->tensor_size, sizeof *counts) : NULL;
  if (gathers && counts == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for a mapping");
  for (uint32_t r = 0; counts != NULL && r < p->tensor_size; ++r) {
    int64_t begin, count;
    tp_share(m->features, r, p->tensor_size, &begin, &count);
    counts[r] = (uint64_t)count;
  }
  const bs_collective what = {.struct_size = (uint32_t)sizeof what,
                              .kind = m->kind->collective,
                              .dtype_in = m->dtype,
                              .ncounts = gathers ? p->tensor_size : 0,
                              .rows = (uint64_t)m->max_rows,
                              .count = gathers ? 0 : (uint64_t)m->features,
                              .counts = counts,
                              .site = m->kind->site,
                              .group = p->tensor_group};
  const int32_t rc = bs_rank_get_api()->collective_prepare(m->state->rank, &what, &m->collective, err);
  free(counts);
  return rc;
}

int32_t bs_tp_mapping_make(bs_rank *rank, uint32_t kind, uint32_t dtype, int64_t max_rows, int64_t features,
                           bs_tp_mapping **out_mapping, bs_error *err) {
  tp_state *state;
  int32_t rc = tp_state_of(rank, &state, err);
  if (rc == BS_OK && out_mapping == NULL) rc = tp_null("bs_tp_mapping_make", "out_mapping", err);
  if (rc != BS_OK) return rc;
  if (kind > BS_TP_GATHER_FROM || !bs_dtype_known(dtype) || max_rows < 1 || features < 1 ||
      features > (int64_t)UINT32_MAX)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-MAPPING",
                        "no mapping has kind %u, dtype 0x%04x and [%lld, %lld]", kind, dtype,
                        (long long)max_rows, (long long)features);
  bs_tp_mapping *m = calloc(1, sizeof *m);
  if (m == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for a mapping");
  state->users++;
  m->state = state;
  m->kind = &kinds[kind];
  m->dtype = dtype;
  m->max_rows = max_rows;
  m->features = features;
  tp_share(features, state->place.tensor_rank, state->place.tensor_size, &m->begin, &m->count);
  rc = prepare_copy(m, err);
  if (rc == BS_OK) rc = prepare_collective(m, err);
  if (rc == BS_OK)
    *out_mapping = m;
  else
    tp_mapping_end(m);
  return rc;
}

void tp_mapping_end(bs_tp_mapping *m) {
  const bs_rank_api *api = bs_rank_get_api();
  if (m->copy != NULL) api->op_release(m->copy);
  if (m->collective != NULL) api->collective_release(m->collective);
  tp_state_release(m->state);
  free(m);
}

void bs_tp_mapping_free(bs_tp_mapping *m) {
  if (m == NULL) return;
  tp_state *state = m->state;
  const int pending = tp_is_started(state, m->collective);
  tp_pending *later =
      pending && tp_state_active(state->rank) == state ? tp_pending_add(state, TP_FREE_MAPPING) : NULL;
  if (later != NULL) {
    later->mapping = m;
    return;
  }
  if (pending) (void)tp_await_all(state, NULL);
  tp_mapping_end(m);
}

void bs_tp_mapping_part(const bs_tp_mapping *m, int64_t *out_begin, int64_t *out_count) {
  if (out_begin != NULL) *out_begin = m != NULL ? m->begin : 0;
  if (out_count != NULL) *out_count = m != NULL ? m->count : 0;
}

/* ---- run ------------------------------------------------------------------------------------- */

static int fits(const bs_tp_mapping *m, const bs_tensor *t, int64_t rows, int64_t cols) {
  return t != NULL && t->rank == 2 && t->dtype == m->dtype && t->dims[0] == rows && t->dims[1] == cols &&
         (rows <= 1 || t->strides[0] == cols) && (cols <= 1 || t->strides[1] == 1);
}

static int32_t check(const bs_tp_mapping *m, const bs_tensor *in, const bs_tensor *out, int moves,
                     bs_error *err) {
  const int64_t inside = m->kind->copies_part ? m->count : m->features;
  const int64_t rows = in != NULL && in->rank == 2 ? in->dims[0] : -1;
  const int64_t from = moves ? inside : m->features, to = moves ? m->features : inside;
  if (rows >= 0 && rows <= m->max_rows && fits(m, in, rows, from) && fits(m, out, rows, to)) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-MAPPING",
                      "%s needs dense %s tensors, [rows, %lld] to [rows, %lld], of at most %lld rows",
                      m->kind->site, bs_dtype_name(m->dtype), (long long)from, (long long)to,
                      (long long)m->max_rows);
}

static int32_t copy(bs_tp_mapping *m, const bs_tensor *in, bs_tensor *out, bs_error *err) {
  if (m->copy == NULL || in->data == out->data || in->dims[0] == 0) return BS_OK;
  bs_tensor from = *in;
  bs_tensor *args[2] = {&from, out};
  return bs_rank_get_api()->op_run(m->copy, args, 2, NULL, err);
}

/* forward: the pass. start: leave a collective pending. */
static int32_t run(bs_tp_mapping *m, int forward, int start, const bs_tensor *in, bs_tensor *out,
                   bs_error *err) {
  if (m == NULL) return tp_null("a pass of a mapping", "mapping", err);
  const int moves = (m->kind->forward_is != 0) == forward; /* the collective direction */
  tp_state *state = m->state;
  if (tp_state_active(state->rank) != state) start = 0; /* no one would drain it */
  int32_t rc = check(m, in, out, moves, err);
  if (rc == BS_OK && !(moves && start)) rc = tp_await_pass(state, in, out, err);
  if (rc != BS_OK) return rc;
  if (!moves) return copy(m, in, out, err);
  if (start) return tp_start(state, m->collective, in, out, err);
  if (state->first == NULL) return bs_rank_get_api()->collective_run(m->collective, in, out, NULL, err);
  rc = tp_start(state, m->collective, in, out, err);
  return rc == BS_OK ? tp_await_all(state, err) : rc;
}

int32_t bs_tp_mapping_forward(bs_tp_mapping *m, const bs_tensor *x, bs_tensor *y, bs_error *err) {
  return run(m, 1, 0, x, y, err);
}
int32_t bs_tp_mapping_backward(bs_tp_mapping *m, const bs_tensor *dy, bs_tensor *dx, bs_error *err) {
  return run(m, 0, 0, dy, dx, err);
}
int32_t bs_tp_mapping_forward_start(bs_tp_mapping *m, const bs_tensor *x, bs_tensor *y, bs_error *err) {
  return run(m, 1, 1, x, y, err);
}
int32_t bs_tp_mapping_backward_start(bs_tp_mapping *m, const bs_tensor *dy, bs_tensor *dx, bs_error *err) {
  return run(m, 0, 1, dy, dx, err);
}
