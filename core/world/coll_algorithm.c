/* SPDX-License-Identifier: MIT
 *
 * coll_algorithm.c - collectives that the host runs by a named algorithm, over one slot of any communicator:
 * exchange. The plan's call goes to bs_rounds_run in the place of the communicator. A run copies, exchanges
 * and reduces round after round as the schedule says (coll_rounds.c); it allocates nothing.
 *
 * Elements in transfer have one dtype: reduce_dtype where there is a reduction, so that partial sums are
 * rounded as the communicators round them, else dtype_in. Input and output of another dtype are converted
 * into dense memory of the host. The vector of an all_reduce or broadcast is all rows; where these do not lie
 * one after the other, they are copied there, too. In the other kinds an element is a column of all rows.
 *
 * On a backend that holds no values (BS_BACKEND_PHANTOM) the transfers are those of the device's memory, in
 * dtype_in, and nothing is copied or reduced here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/world/coll_rounds.h"

/* The place of a buffer's elements in this run. */
typedef struct place {
  char *data;
  uint64_t stride; /* elements from row to row */
} place;

typedef struct round_run {
  bs_coll_rounds *r;
  const bs_coll_call *call;
  place at[BS_ROUNDS_BUFFERS];
  uint64_t rows; /* of an element */
  uint64_t key;  /* what both ends of a transfer compare, but their ranks */
} round_run;

/* ---- memory --------------------------------------------------------------------------------- */

static void room_free(const bs_coll_rounds *r, bs_rounds_room *room) {
  if (r->phantom)
    bs_memory_exec_free(r->plan->rank, room->data);
  else
    free(room->data);
  room->data = NULL;
  room->bytes = 0;
}

int32_t bs_rounds_grow(const bs_coll_rounds *r, bs_rounds_room *room, uint64_t bytes, bs_error *err) {
  void *fresh = NULL;
  if (bytes <= room->bytes) return BS_OK;
  room_free(r, room);
  if (r->phantom)
    fresh = bs_memory_exec_alloc(r->plan->rank, bytes);
  else if (posix_memalign(&fresh, 64, (size_t)bytes) != 0)
    fresh = NULL;
  if (fresh == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory of %llu bytes for algorithm %s",
                        (unsigned long long)bytes, r->algorithm->name);
  room->data = fresh;
  room->bytes = bytes;
  return BS_OK;
}

void bs_rounds_free(bs_coll_rounds *r) {
  if (r == NULL) return;
  for (uint32_t b = 0; b < BS_ROUNDS_BUFFERS; ++b) room_free(r, &r->work[b]);
  room_free(r, &r->landing);
  free(r->firsts);
  free(r->steps);
  free(r->calls);
  free(r->pointers);
  free(r);
}

/* ---- input and output ------------------------------------------------------------------------ */

/* Rows of `cols` elements from one place to another, converted. */
static int32_t move_rows(uint32_t dst_dtype, place dst, uint32_t src_dtype, place src, uint64_t rows,
                         uint64_t cols) {
  const uint64_t dst_size = BS_DTYPE_BYTES(dst_dtype), src_size = BS_DTYPE_BYTES(src_dtype);
  int32_t rc = BS_OK;
  if (cols == 0 || dst.data == NULL || src.data == NULL)
    return BS_OK; /* no elements: there may be no memory */
  for (uint64_t row = 0; row < rows && rc == BS_OK; ++row) {
    char *to = dst.data + row * dst.stride * dst_size;
    const char *from = src.data + row * src.stride * src_size;
    if (dst_dtype == src_dtype)
      memmove(to, from, cols * dst_size);
    else
      rc = bs_convert(dst_dtype, to, src_dtype, from, cols);
  }
  return rc;
}

/* 0: the buffer is used where it lies in the call's memory; 1: it has its place in `work`. */
static int bring(round_run *run, uint32_t buffer, void *data, int64_t stride, uint64_t cols, uint32_t dtype) {
  const bs_coll_rounds *r = run->r;
  const uint64_t rows = run->call->rows;
  const int dense = rows <= 1 || stride == (int64_t)cols;
  place *at = &run->at[buffer];
  *at = (place){data, r->flat ? r->shape.count : (uint64_t)stride};
  if (r->phantom || (dtype == r->dtype && (!r->flat || dense))) return 0;
  *at = (place){r->work[buffer].data, cols};
  return 1;
}

static int32_t begin(round_run *run, int *out_stored) {
  const bs_coll_rounds *r = run->r;
  const bs_coll_plan *p = r->plan;
  const bs_coll_call *c = run->call;
  int loaded = 0;
  if (p->has_in)
    loaded = bring(run, BS_BUFFER_IN, (void *)(uintptr_t)c->in, c->in_stride, p->in_cols, c->dtype_in);
  *out_stored = bring(run, BS_BUFFER_OUT, c->out, c->out_stride, p->out_cols, c->dtype_out);
  run->at[BS_BUFFER_SCRATCH] = (place){r->work[BS_BUFFER_SCRATCH].data, r->elements[BS_BUFFER_SCRATCH]};
  if (!loaded) return BS_OK;
  const place given = {(char *)(uintptr_t)c->in, (uint64_t)c->in_stride};
  return move_rows(r->dtype, run->at[BS_BUFFER_IN], c->dtype_in, given, c->rows, p->in_cols);
}

static int32_t store(const round_run *run) {
  const bs_coll_rounds *r = run->r;
  const bs_coll_call *c = run->call;
  const place wanted = {c->out, (uint64_t)c->out_stride};
  return move_rows(c->dtype_out, wanted, r->dtype, run->at[BS_BUFFER_OUT], c->rows, r->plan->out_cols);
}

/* ---- rounds --------------------------------------------------------------------------------- */

static char *element(const round_run *run, uint32_t buffer, uint64_t first) {
  return run->at[buffer].data + first * run->r->size;
}

static void fill_call(const round_run *run, const bs_coll_step *step, bs_coll_call *c, char *landing) {
  const bs_coll_rounds *r = run->r;
  const uint32_t me = r->plan->me;
  const int sends = step->action == BS_STEP_SEND;
  c->struct_size = (uint32_t)sizeof *c;
  c->kind = sends ? BS_COLL_SEND : BS_COLL_RECV;
  c->dtype_in = c->dtype_out = r->dtype;
  c->reduce_dtype = step->action == BS_STEP_REDUCE ? r->dtype : 0;
  c->reduce_op = run->call->reduce_op;
  c->root = step->peer;
  c->flags = run->call->flags & (uint32_t)BS_COLL_DEVICE;
  c->rows = run->rows;
  c->count = step->count;
  c->in = sends ? element(run, step->buffer, step->first) : NULL;
  c->out = sends ? NULL : landing != NULL ? landing : element(run, step->buffer, step->first);
  c->in_stride = c->out_stride = (int64_t)(landing != NULL ? step->count : run->at[step->buffer].stride);
  c->fingerprint =
      bs_world_mix(run->key, sends ? (uint64_t)me << 32 | step->peer : (uint64_t)step->peer << 32 | me);
  c->site = run->call->site;
  c->timeout_ns = run->call->timeout_ns;
  c->stream = run->call->stream;
}

/* Sends and receives everything of a round. Elements to be reduced are received one after the other. */
static int32_t exchange(const round_run *run, const bs_coll_step *steps, uint32_t n, bs_error *err) {
  const bs_coll_rounds *r = run->r;
  const uint64_t row = r->size * run->rows;
  uint64_t landed = 0;
  uint32_t calls = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const bs_coll_step *s = &steps[i];
    if (s->action == BS_STEP_COPY || s->peer == r->plan->me) continue;
    const int reduces = s->action == BS_STEP_REDUCE;
    if (calls == r->ncalls || (reduces && landed + s->count > r->landing_elements))
      return bs_error_set(err, BS_PLUGIN, "BS-COLL-STEP",
                          "algorithm %s gives other steps of round %u than it gave before",
                          r->algorithm->name, s->round);
    fill_call(run, s, &r->calls[calls++], reduces ? r->landing.data + landed * row : NULL);
    if (reduces) landed += s->count;
  }
  return calls > 0 ? r->plan->rank->world->comm->exchange(r->comm, r->pointers, calls, err) : BS_OK;
}

static void copy(const round_run *run, const bs_coll_step *s) {
  const place to = {element(run, s->buffer, s->first), run->at[s->buffer].stride};
  const place from = {element(run, s->from_buffer, s->from_first), run->at[s->from_buffer].stride};
  (void)move_rows(run->r->dtype, to, run->r->dtype, from, run->rows, s->count);
}

static int32_t reduce(const round_run *run, const bs_coll_step *s, place from) {
  const bs_coll_rounds *r = run->r;
  char *acc = element(run, s->buffer, s->first);
  const uint64_t stride = run->at[s->buffer].stride;
  int32_t rc = BS_OK;
  for (uint64_t row = 0; row < run->rows && rc == BS_OK; ++row)
    rc = bs_coll_reduce(r->dtype, run->call->reduce_op, acc + row * stride * r->size,
                        from.data + row * from.stride * r->size, s->count);
  return rc;
}

static int32_t do_round(const round_run *run, const bs_coll_step *steps, uint32_t n, bs_error *err) {
  const bs_coll_rounds *r = run->r;
  uint64_t landed = 0;
  for (uint32_t i = 0; i < n && !r->phantom; ++i)
    if (steps[i].action == BS_STEP_COPY) copy(run, &steps[i]);
  int32_t rc = exchange(run, steps, n, err);
  for (uint32_t i = 0; i < n && !r->phantom && rc == BS_OK; ++i) {
    const bs_coll_step *s = &steps[i];
    if (s->action != BS_STEP_REDUCE) continue;
    if (s->peer == r->plan->me) {
      const place own = {element(run, s->from_buffer, s->from_first), run->at[s->from_buffer].stride};
      rc = reduce(run, s, own);
      continue;
    }
    const place come = {r->landing.data + landed * r->size * run->rows, s->count};
    landed += s->count;
    rc = reduce(run, s, come);
  }
  return rc;
}

static int32_t do_rounds(const round_run *run, bs_error *err) {
  bs_coll_rounds *r = run->r;
  int32_t rc = r->from == 0 ? BS_OK : bs_rounds_load(r, 0, err);
  for (uint32_t at = 0; rc == BS_OK;) {
    uint32_t n = 0;
    while (at + n < r->nsteps && r->steps[at + n].round == r->steps[at].round) n++;
    if (n > 0) {
      rc = do_round(run, &r->steps[at], n, err);
      at += n;
    } else if (r->next == UINT32_MAX) {
      break;
    } else {
      rc = bs_rounds_load(r, r->next, err);
      at = 0;
    }
  }
  return rc;
}

static int32_t rounds_run(void *opaque, const bs_coll_call *call, bs_error *err) {
  bs_coll_rounds *r = opaque;
  round_run run = {.r = r, .call = call, .rows = r->flat ? 1 : call->rows};
  int stored = 0;
  int32_t rc = BS_OK;
  if (call->rows == 0) return BS_OK;
  if (r->flat && call->rows * r->columns != r->shape.count) rc = bs_rounds_fit(r, call->rows, err);
  if (rc == BS_OK) rc = begin(&run, &stored);
  run.key = bs_world_mix(bs_world_mix(call->fingerprint, r->dtype), ++r->sequence);
  if (rc == BS_OK) rc = do_rounds(&run, err);
  if (rc == BS_OK && stored) rc = store(&run);
  return rc;
}

/* ---- preparing ------------------------------------------------------------------------------ */

int bs_rounds_serve(const bs_world *world, uint32_t kind, uint32_t n) {
  const bs_algorithm *a = world->algorithm.table;
  return n > 1 && a != NULL && (a->kinds & (UINT64_C(1) << kind)) != 0;
}

/* The block of each rank, where they are not those of algorithm.h. */
static int32_t fill_blocks(bs_coll_rounds *r, bs_error *err) {
  const bs_coll_plan *p = r->plan;
  const uint64_t *counts = p->call.counts;
  if (counts == NULL) return BS_OK;
  for (uint32_t i = 0; p->call.recv_counts != NULL && i < p->n; ++i)
    if (p->call.recv_counts[i] != counts[p->me])
      return bs_error_set(err, BS_UNSUPPORTED, "BS-COLL-ALGORITHM",
                          "algorithm %s sends every rank as much as it gets from it; rank %u gets %llu from "
                          "rank %u, and sends itself %llu",
                          r->algorithm->name, p->me, (unsigned long long)p->call.recv_counts[i], i,
                          (unsigned long long)counts[p->me]);
  r->firsts = calloc((size_t)p->n + 1, sizeof *r->firsts);
  if (r->firsts == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the blocks of a collective");
  for (uint32_t i = 0; i < p->n; ++i) r->firsts[i + 1] = r->firsts[i] + counts[i];
  r->columns = r->shape.count = r->firsts[p->n];
  r->shape.firsts = r->firsts;
  return BS_OK;
}

int32_t bs_rounds_prepare(bs_coll_plan *p, bs_error *err) {
  const bs_world *world = p->rank->world;
  bs_coll_rounds *r = calloc(1, sizeof *r);
  char text[128];
  if (r == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the rounds of a collective");
  p->rounds = r;
  r->plan = p;
  r->comm = p->comm;
  r->algorithm = world->algorithm.table;
  r->state = world->algorithm.state;
  r->phantom = (p->call.flags & BS_COLL_DEVICE) != 0;
  r->dtype = bs_coll_reduces(p->call.kind) && !r->phantom ? p->call.reduce_dtype : p->call.dtype_in;
  r->size = BS_DTYPE_BYTES(r->dtype);
  r->flat = p->call.counts == NULL;
  r->columns = p->call.count;
  r->shape.struct_size = (uint32_t)sizeof r->shape;
  r->shape.kind = p->call.kind;
  r->shape.world_size = p->n;
  r->shape.root = p->call.root;
  r->shape.count = r->columns;
  r->shape.element_bytes = r->flat ? r->size : r->size * p->rows;
  r->shape.options = world->algorithm.options;
  int32_t rc = fill_blocks(r, err);
  if (rc == BS_OK) rc = bs_rounds_fit(r, p->rows, err);
  if (rc != BS_OK) return rc;
  p->comm = r;
  p->fn = rounds_run;
  snprintf(text, sizeof text, "%s@algorithm/%.60s", bs_name_of(BS_NAMES_COLL, p->call.kind),
           r->algorithm->name);
  p->rank->ops.note_algorithm(p->rank->ops.user, text);
  return BS_OK;
}
