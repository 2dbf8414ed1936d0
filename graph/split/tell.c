/* SPDX-License-Identifier: MIT
 * tell.c - what ranks that are processes tell each other around a call of a session: see tell.h. */
#include "graph/split/tell.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

/* Ranks above 0 wait for rank 0 as long as it lives: between two calls it does what its caller does. Rank 0
 * waits for them as long as for any collective. */
#define PATIENCE_NS (INT64_C(86400) * 1000000000)

static bs_collective control(bs_rank *rank, uint32_t kind, uint32_t dtype, uint64_t count, uint32_t root) {
  return (bs_collective){.struct_size = (uint32_t)sizeof(bs_collective),
                         .kind = kind,
                         .root = root,
                         .dtype_in = dtype,
                         .dtype_out = dtype,
                         .rows = kind != BS_COLL_BARRIER,
                         .count = count,
                         .timeout_ns = bs_rank_get_api()->rank(rank) == 0 ? 0 : PATIENCE_NS,
                         .site = "session.tell",
                         .flags = BS_COLL_CONTROL};
}

static int32_t broadcast(bs_rank *rank, uint32_t root, void *data, uint64_t bytes, bs_error *err) {
  if (bytes == 0) return BS_OK;
  const bs_collective what = control(rank, BS_COLL_BROADCAST, BS_U8, bytes, root);
  return bs_rank_collective_host(rank, &what, data, bytes, data, bytes, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

int32_t gtell_same(bs_rank *rank, const gsame *mine, bs_error *err) {
  static const char *const names[GSAME_COUNT] = {"another method, or other options of it,", "other options",
                                                 "other sizes of dimensions",
                                                 "another model, or other bytes of its files,"};
  gsame first = *mine;
  const int32_t rc = broadcast(rank, 0, &first, sizeof first, err);
  if (rc != BS_OK) return rc;
  int differs = 0;
  while (differs < GSAME_COUNT && first.sums[differs] == mine->sums[differs]) differs++;
  if (differs == GSAME_COUNT) {
    const bs_collective all = control(rank, BS_COLL_BARRIER, 0, 0, 0);
    return bs_rank_collective_host(rank, &all, NULL, 0, NULL, 0, err);
  }
  const uint32_t me = bs_rank_get_api()->rank(rank);
  bs_error_set(err, BS_MISMATCH, "BS-GRAPH-SAME", "rank %u opens its session with %s than rank 0", me,
               names[differs]);
  bs_error_hint(err, "start every rank with the same files and options");
  if (err != NULL) err->rank = (int32_t)me;
  return BS_MISMATCH;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the inputs of rank 0");
}

/* Memory of an input of a rank above 0; some for an input without elements, too: it is set. */
static int32_t input_room(gfront *f, uint32_t port, uint64_t bytes, bs_error *err) {
  if (f->inputs[port] != NULL && f->input_bytes[port] >= bytes) return BS_OK;
  const uint64_t room = (bytes + 64u) & ~(uint64_t)63u;
  free(f->inputs[port]);
  f->inputs[port] = aligned_alloc(64, (size_t)room);
  f->input_bytes[port] = f->inputs[port] != NULL ? room : 0;
  return f->inputs[port] != NULL ? BS_OK : no_memory(err);
}

static int32_t set_input(gfront *f, bs_session *s, uint32_t port, const bs_tensor_desc *d, uint64_t bytes,
                         bs_error *err) {
  if (s->memory[port] == f->inputs[port]) return BS_OK;
  bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                 .dtype = d->dtype,
                 .rank = d->rank,
                 .data = f->inputs[port],
                 .bytes = bytes};
  memcpy(t.dims, d->dims, sizeof t.dims);
  memcpy(t.strides, d->strides, sizeof t.strides);
  return bs_session_set(s, port, &t, err);
}

static int32_t tell_inputs(gfront *f, bs_rank *rank, bs_error *err) {
  bs_session *s = gfront_lead(f);
  int32_t rc = BS_OK;
  for (uint32_t port = 0; rc == BS_OK && port < f->n_inputs; port++) {
    bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d};
    rc = bs_session_port(s, port, NULL, &d, err);
    uint64_t bytes = BS_DTYPE_BYTES(d.dtype);
    for (uint32_t i = 0; i < d.rank; i++) bytes *= (uint64_t)d.dims[i];
    if (rc == BS_OK && f->first > 0) rc = input_room(f, port, bytes, err);
    if (rc == BS_OK) rc = broadcast(rank, 0, f->first > 0 ? f->inputs[port] : s->memory[port], bytes, err);
    if (rc == BS_OK && f->first > 0) rc = set_input(f, s, port, &d, bytes, err);
  }
  return rc;
}

/* The cache and the slot that rank 0 has before the call. */
static int32_t take_state(const gfront *f, bs_error *err) {
  bs_session *s = gfront_lead(f);
  int32_t rc = BS_OK;
  if (s->core->length != f->told.length) rc = bs_session_cache(s, f->told.length, err);
  if (rc == BS_OK && s->slot != f->told.slot) rc = bs_session_slot(s, f->told.slot, err);
  return rc;
}

int32_t gtell_call(gfront *f, bs_rank *rank, bs_error *err) {
  int32_t rc = broadcast(rank, 0, &f->told, sizeof f->told, err);
  if (rc != BS_OK || f->told.call == GTOLD_CLOSE) return rc;
  if (f->first > 0) rc = take_state(f, err);
  if (rc == BS_OK && f->told.call == GTOLD_BIND)
    rc = broadcast(rank, 0, f->sizes, gfront_lead(f)->graph->model->n_symbols * sizeof *f->sizes, err);
  if (rc == BS_OK && f->told.call >= GTOLD_RUN && f->told.call <= GTOLD_TRACE) rc = tell_inputs(f, rank, err);
  return rc;
}

int32_t gtell_outcome(gfront *f, bs_rank *rank, bs_error *err) {
  const int32_t mine = f->codes[f->first];
  const bs_collective all = control(rank, BS_COLL_ALL_GATHER, BS_I32, 1, 0);
  const int32_t rc = bs_rank_collective_host(rank, &all, &mine, 1, f->codes, f->size, err);
  uint32_t r = 0;
  if (rc != BS_OK) return rc;
  while (r < f->size && f->codes[r] == BS_OK) r++;
  return r < f->size ? broadcast(rank, r, &f->errors[r], sizeof f->errors[r], err) : BS_OK;
}
