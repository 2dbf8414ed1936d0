/* SPDX-License-Identifier: MIT
 * repro_slots.c - a sequence that is decoded beside others, as generate.h does it: each has a slot, and a run
 * has a row of tokens for each. The sequence has the slot in the middle. See repro_inside.h. */
#include <stdlib.h>

#include "core/base/error.h"
#include "lab/model/repro_inside.h"
#include "lab/stop.h"

enum { IDS, LENGTHS, ROWS, PORTS };

/* The other sequences are longer by this many tokens, where the cache has room. */
static const int64_t ahead[] = {11, 0, 5};
enum { OWN = 1, MOST = sizeof ahead / sizeof ahead[0] };

typedef struct batch {
  repro *r;
  int64_t *ports[PORTS];
  int64_t begins[MOST]; /* tokens that a slot holds when the sequence begins */
} batch;

int32_t repro_slots_start(repro *r, bs_context *context, const bs_model_request *request, bs_error *err) {
  static const char *const sizes[] = {"batch=1", "sequence=1", "rows=1"};
  bs_graph_info info = {.struct_size = sizeof info};
  bs_model_request q = *request;
  const int64_t enough = (int64_t)r->rows + ahead[0]; /* caches of all slots may be more than the memory */
  q.slots = r->beside + 1;
  q.cache_tokens = enough < r->cache_tokens ? enough : r->cache_tokens;
  q.dims = (bs_model_words){sizes, PORTS};
  q.inputs = q.constants = (bs_model_words){NULL, 0};
  q.note = NULL;
  int32_t rc = bs_model_open(context, &q, &r->model, err);
  if (rc == BS_OK) rc = bs_graph_info_get(r->model.graph, &info, err);
  if (rc == BS_OK && (info.slots != q.slots || q.slots != MOST || r->n_outputs != 1))
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-GEN-MODEL", "it takes one sequence");
  return rc == BS_OK ? bs_model_start(context, &q, &r->model, err) : rc;
}

/* Runs `count` slots from `first` on, `n` tokens each; the ports are filled. */
static int32_t run(const batch *b, int64_t first, int64_t count, int64_t n, bs_error *err) {
  const bs_dim dims[PORTS] = {{sizeof(bs_dim), 0, "batch", count},
                              {sizeof(bs_dim), 0, "sequence", n},
                              {sizeof(bs_dim), 0, "rows", count * n}};
  const bs_dim *const list[PORTS] = {&dims[0], &dims[1], &dims[2]};
  bs_session *s = b->r->model.session;
  int32_t rc = bs_stop_check(err);
  for (int64_t i = 0; i < count * n; i++) b->ports[ROWS][i] = i;
  if (rc == BS_OK) rc = bs_session_bind(s, list, PORTS, err);
  for (uint32_t i = 0; rc == BS_OK && i < PORTS; i++) {
    bs_tensor t = {.struct_size = sizeof t, .dtype = BS_I64, .rank = i == IDS ? 2 : 1, .data = b->ports[i]};
    t.dims[0] = i == ROWS ? count * n : count;
    t.dims[1] = i == IDS ? n : 0;
    t.strides[0] = i == IDS ? n : 1;
    t.strides[1] = i == IDS ? 1 : 0;
    t.bytes = (uint64_t)(i == LENGTHS ? count : count * n) * sizeof(int64_t);
    rc = bs_session_set(s, i, &t, err);
  }
  if (rc == BS_OK) rc = bs_session_slot(s, first, err);
  return rc == BS_OK ? repro_ran(b->r, bs_session_run(s, err), err) : rc;
}

/* Tokens `at`..`at + n` of a slot; the others' are those of the sequence, turned. */
static void put_ids(const batch *b, int64_t slot, int64_t at, int64_t n, int64_t *out) {
  const int64_t rows = (int64_t)b->r->rows;
  for (int64_t i = 0; i < n; i++)
    out[i] = b->r->ids[slot == OWN ? at + i : (rows - 1 - (at + i) % rows + 37 * (slot + 1)) % rows];
}

static int32_t begin(batch *b, bs_error *err) {
  const int64_t room = bs_session_cache_limit(b->r->model.session) - (int64_t)b->r->rows;
  int32_t rc = BS_OK;
  for (int64_t slot = 0; rc == BS_OK && slot < MOST; slot++) {
    b->begins[slot] = ahead[slot] < room ? ahead[slot] : room > 0 ? room : 0;
    put_ids(b, slot, 0, b->begins[slot], b->ports[IDS]);
    b->ports[LENGTHS][0] = 0;
    if (b->begins[slot] > 0) rc = run(b, slot, 1, b->begins[slot], err);
  }
  return rc;
}

int32_t repro_slots_run(repro *r, int64_t each, bs_error *err) {
  const int64_t end = (int64_t)r->rows, count = MOST;
  const int64_t most = count * (each > ahead[0] ? each : ahead[0]);
  int64_t *ports = calloc((size_t)(PORTS * most), sizeof *ports);
  if (ports == NULL) return repro_no_memory(err);
  batch b = {.r = r, .ports = {ports, ports + most, ports + 2 * most}};
  int32_t rc = begin(&b, err);
  for (int64_t at = 0; rc == BS_OK && at < end; at += each) {
    const int64_t n = end - at < each ? end - at : each;
    for (int64_t slot = 0; slot < count; slot++) {
      put_ids(&b, slot, b.begins[slot] + at, n, b.ports[IDS] + slot * n);
      b.ports[LENGTHS][slot] = b.begins[slot] + at;
    }
    rc = run(&b, 0, count, n, err);
    if (rc == BS_OK)
      rc = repro_take(r, (uint64_t)at, (uint64_t)(OWN * n), (uint64_t)n, (uint64_t)(count * n), err);
  }
  free(ports);
  return rc;
}
