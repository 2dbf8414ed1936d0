/* SPDX-License-Identifier: MIT
 *
 * coll.c - collectives as methods see them: prepare checks everything and computes the fingerprint, run
 * binds two tensors and calls the communicator (no lock, allocation or text). Counts calls, payload and
 * wire bytes; calls the world's hook.
 *
 * Payload M and canonical ring factor of each kind over P ranks (bytes a rank puts on the wire):
 *   all_reduce      M = rows x count            2 (P - 1) / P
 *   all_gather      M = rows x sum(counts)        (P - 1) / P
 *   reduce_scatter  M = rows x sum(counts)        (P - 1) / P
 *   all_to_all      M = rows x sum(counts)        (P - 1) / P
 *   broadcast       M = rows x count            1        (0 when P = 1)
 *   send            M = rows x count            1
 *   recv            M = rows x count            0        (counted by the sender)
 *   barrier         M = 0
 * M is in bytes of dtype_in; wire bytes are rounded down.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/world/coll_plan.h"
#include "core/world/flight.h"

static bs_coll_fn slot_of(const bs_comm *comm, uint32_t kind) {
  switch (kind) {
    case BS_COLL_ALL_REDUCE:
      return comm->all_reduce;
    case BS_COLL_ALL_GATHER:
      return comm->all_gather;
    case BS_COLL_REDUCE_SCATTER:
      return comm->reduce_scatter;
    case BS_COLL_BROADCAST:
      return comm->broadcast;
    case BS_COLL_ALL_TO_ALL:
      return comm->all_to_all;
    case BS_COLL_SEND:
      return comm->send;
    case BS_COLL_RECV:
      return comm->recv;
    default:
      return comm->barrier;
  }
}

uint64_t bs_coll_text_hash(const char *text) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (; *text != '\0'; ++text) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return h;
}

/* A hash of everything that must be equal on all ranks. send and recv name the pair; all_to_all's counts
 * differ by rank and are compared pair by pair by the communicator. */
static uint64_t fingerprint_of(const bs_coll_plan *p, uint32_t me) {
  const bs_coll_call *c = &p->call;
  uint32_t kind = c->kind == BS_COLL_RECV ? BS_COLL_SEND : c->kind;
  uint32_t from = c->root, to = c->root;
  if (c->kind == BS_COLL_SEND) from = me;
  if (c->kind == BS_COLL_RECV) to = me;
  uint64_t h = bs_coll_text_hash(p->site);
  h = bs_world_mix(h, kind);
  h = bs_world_mix(h, ((uint64_t)c->dtype_in << 32) | c->dtype_out);
  h = bs_world_mix(h, ((uint64_t)c->reduce_dtype << 32) | c->reduce_op);
  h = bs_world_mix(h, ((uint64_t)from << 32) | to);
  h = bs_world_mix(h, c->count);
  if (c->kind == BS_COLL_ALL_GATHER || c->kind == BS_COLL_REDUCE_SCATTER)
    h = bs_world_mix(h, p->counts->hash);
  return h;
}

static int32_t invalid(const bs_collective *d, bs_error *err, const char *what, uint64_t value) {
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-COLL-ARGUMENT", "%s: %s (%llu)",
               d->kind < BS_COLL_COUNT_ ? bs_name_of(BS_NAMES_COLL, d->kind) : "collective", what,
               (unsigned long long)value);
  if (d->site != NULL) bs_error_where(err, "%s", d->site);
  return BS_INVALID_ARGUMENT;
}

static int has_blocks(uint32_t kind) {
  return kind == BS_COLL_ALL_GATHER || kind == BS_COLL_REDUCE_SCATTER || kind == BS_COLL_ALL_TO_ALL;
}

static int32_t fill_dtypes(bs_coll_plan *p, const bs_collective *d, bs_error *err) {
  bs_coll_call *c = &p->call;
  if (d->kind == BS_COLL_BARRIER) return BS_OK;
  c->dtype_in = d->dtype_in;
  c->dtype_out = d->dtype_out != 0 ? d->dtype_out : d->dtype_in;
  if (!bs_dtype_known(c->dtype_in)) return invalid(d, err, "unknown dtype_in", c->dtype_in);
  if (!bs_dtype_known(c->dtype_out)) return invalid(d, err, "unknown dtype_out", c->dtype_out);
  if (!bs_coll_reduces(d->kind)) return BS_OK;
  c->reduce_op = d->reduce_op;
  if (d->reduce_op > BS_REDUCE_MIN) return invalid(d, err, "unknown reduce op", d->reduce_op);
  int narrow = bs_dtype_is_float(c->dtype_in) && BS_DTYPE_BYTES(c->dtype_in) <= 4;
  c->reduce_dtype = d->reduce_dtype != 0 ? d->reduce_dtype : narrow ? (uint32_t)BS_F32 : c->dtype_in;
  if (!bs_dtype_known(c->reduce_dtype)) return invalid(d, err, "unknown reduce dtype", c->reduce_dtype);
  if (c->reduce_dtype == BS_BOOL && c->reduce_op == BS_REDUCE_SUM)
    return invalid(d, err, "bool has no sum", c->reduce_dtype);
  return BS_OK;
}

/* Counts and recv_counts; without any, every rank has `count`. */
static int32_t fill_counts(bs_coll_plan *p, const bs_collective *d, uint32_t n, uint64_t *out_in_sum,
                           uint64_t *out_out_sum, bs_error *err) {
  bs_coll_call *c = &p->call;
  bs_world *world = p->rank->world;
  *out_in_sum = *out_out_sum = 0;
  if (!has_blocks(d->kind)) return BS_OK;
  if (d->ncounts != 0 && d->ncounts != n) return invalid(d, err, "counts must be one a rank", d->ncounts);
  if (d->ncounts != 0 && d->counts == NULL) return invalid(d, err, "counts are missing", d->ncounts);
  const uint64_t *counts = d->ncounts != 0 ? d->counts : NULL;
  const uint64_t *recv = counts != NULL && d->recv_counts != NULL ? d->recv_counts : counts;
  int32_t rc = bs_coll_counts_share(world, counts, d->count, n, &p->counts, err);
  if (rc == BS_OK && d->kind == BS_COLL_ALL_TO_ALL)
    rc = bs_coll_counts_share(world, recv, d->count, n, &p->recv_counts, err);
  if (rc != BS_OK) return rc;
  c->counts = p->counts->counts;
  c->recv_counts = p->recv_counts != NULL ? p->recv_counts->counts : NULL;
  *out_in_sum = p->counts->sum;
  *out_out_sum = p->recv_counts != NULL ? p->recv_counts->sum : p->counts->sum;
  c->count = 0;
  return BS_OK;
}

static void fill_columns(bs_coll_plan *p, uint32_t me, uint64_t in_sum, uint64_t out_sum) {
  const bs_coll_call *c = &p->call;
  p->in_cols = p->out_cols = c->count;
  p->has_in = p->has_out = 1;
  switch (c->kind) {
    case BS_COLL_ALL_GATHER:
      p->in_cols = c->counts[me];
      p->out_cols = in_sum;
      break;
    case BS_COLL_REDUCE_SCATTER:
      p->in_cols = in_sum;
      p->out_cols = c->counts[me];
      break;
    case BS_COLL_ALL_TO_ALL:
      p->in_cols = in_sum;
      p->out_cols = out_sum;
      break;
    case BS_COLL_BROADCAST:
      p->has_in = c->root == me;
      break;
    case BS_COLL_SEND:
      p->has_out = 0;
      break;
    case BS_COLL_RECV:
      p->has_in = 0;
      break;
    case BS_COLL_BARRIER:
      p->has_in = p->has_out = 0;
      p->in_cols = p->out_cols = 0;
      break;
    default:
      break;
  }
}

static int32_t fill_bytes(bs_coll_plan *p, uint32_t n, uint64_t in_sum, bs_error *err) {
  const bs_coll_call *c = &p->call;
  uint64_t cols = has_blocks(c->kind) ? in_sum : c->kind == BS_COLL_BARRIER ? 0 : c->count;
  uint64_t most = p->out_cols > p->in_cols ? p->out_cols : p->in_cols, whole;
  if (!bs_mul_u64(cols, BS_DTYPE_BYTES(c->dtype_in), &p->row_bytes) || !bs_mul_u64(most, 8, &whole) ||
      !bs_mul_u64(whole, p->rows != 0 ? p->rows : 1, &whole) || whole > (uint64_t)INT64_MAX)
    return bs_error_set(err, BS_OVERFLOW, "BS-COLL-SIZE", "%s of %llu rows x %llu overflows",
                        bs_name_of(BS_NAMES_COLL, c->kind), (unsigned long long)p->rows,
                        (unsigned long long)most);
  p->wire_den = n;
  p->wire_num = n - 1u;
  if (c->kind == BS_COLL_ALL_REDUCE) p->wire_num = 2u * (uint64_t)(n - 1u);
  if (c->kind == BS_COLL_BROADCAST || c->kind == BS_COLL_SEND) p->wire_num = n > 1 ? n : 0;
  if (c->kind == BS_COLL_RECV || c->kind == BS_COLL_BARRIER) p->wire_num = 0;
  return BS_OK;
}

static int32_t choose_slot(bs_coll_plan *p, const bs_collective *d, void *comm, uint32_t n, uint32_t me,
                           bs_error *err) {
  const bs_comm *vtable = p->rank->world->comm;
  int pair = d->kind == BS_COLL_SEND || d->kind == BS_COLL_RECV;
  if ((pair || d->kind == BS_COLL_BROADCAST) && d->root >= n)
    return invalid(d, err, "root is no rank", d->root);
  if (pair && d->root == me) return invalid(d, err, "a rank cannot exchange with itself", d->root);
  p->comm = comm;
  p->me = me;
  p->n = n;
  p->fn = n == 1 ? bs_coll_local : slot_of(vtable, d->kind);
  if (p->fn == NULL && !p->by_rounds) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-COLL-KIND", "communicator %s has no %s", vtable->name,
                 bs_name_of(BS_NAMES_COLL, d->kind));
    if (d->site != NULL) bs_error_where(err, "%s", d->site);
    return BS_UNSUPPORTED;
  }
  return BS_OK;
}

static void note_any_order(const bs_coll_plan *p) {
  char text[96];
  snprintf(text, sizeof text, "%s@%.60s/any order", bs_name_of(BS_NAMES_COLL, p->call.kind),
           p->rank->world->comm->name);
  p->rank->ops.note_algorithm(p->rank->ops.user, text);
}

static int32_t prepare(bs_rank *rank, const bs_collective *desc, int plain, bs_coll_plan **out_plan,
                       bs_error *err) {
  bs_collective d;
  memset(&d, 0, sizeof d);
  memcpy(&d, desc, desc->struct_size < sizeof d ? desc->struct_size : sizeof d);
  if (d.kind >= BS_COLL_COUNT_) return invalid(&d, err, "unknown kind", d.kind);
  if ((d.flags & ~(uint32_t)(BS_COLL_NATIVE | BS_COLL_CONTROL)) != 0)
    return invalid(&d, err, "unknown flags", d.flags);
  uint32_t n = d.group != NULL ? d.group->n : rank->world->size;
  uint32_t me = d.group != NULL ? d.group->me : rank->index;
  bs_coll_plan *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a collective");
  p->rank = rank;
  p->rows = d.rows;
  p->call.struct_size = (uint32_t)sizeof p->call;
  p->call.kind = d.kind;
  p->call.root = d.root;
  p->call.rows = d.rows;
  p->call.count = d.count;
  p->call.timeout_ns = d.timeout_ns > 0 ? d.timeout_ns : rank->world->timeout_ns;
  uint64_t in_sum = 0, out_sum = 0;
  const char *site = d.site != NULL ? d.site : "unnamed";
  uint32_t any_order = 0;
  const uint32_t control = BS_COLL_CONTROL, native = BS_COLL_NATIVE | control;
  p->by_rounds = !plain && (d.flags & native) == 0 && bs_rounds_serve(rank->world, d.kind, n);
  int32_t rc = choose_slot(p, &d, d.group != NULL ? d.group->comm : rank->comm, n, me, err);
  if (rc == BS_OK) rc = fill_dtypes(p, &d, err);
  if (rc == BS_OK) rc = fill_counts(p, &d, n, &in_sum, &out_sum, err);
  if (rc == BS_OK) {
    fill_columns(p, me, in_sum, out_sum);
    rc = fill_bytes(p, n, in_sum, err);
  }
  p->hooked = rank->world->has_hook && (d.flags & control) == 0;
  p->call.flags = d.flags;
  if (!plain && rank->world->algorithm.any_order && bs_coll_reduces(d.kind) && n > 1)
    any_order = BS_COLL_ANY_ORDER;
  if (rc == BS_OK) rc = bs_coll_stage_prepare(p, err);
  if (rc == BS_OK && (p->site = malloc(strlen(site) + 1)) == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for a call site");
  if (rc != BS_OK) {
    bs_coll_release(p);
    return rc;
  }
  memcpy(p->site, site, strlen(site) + 1);
  p->call.site = p->site;
  p->fingerprint = fingerprint_of(p, me);
  p->call.flags |= any_order;
  if (any_order != 0 && rc == BS_OK) note_any_order(p);
  if (p->by_rounds) rc = bs_rounds_prepare(p, err);
  if (rc != BS_OK) {
    bs_coll_release(p);
    return rc;
  }
  *out_plan = p;
  return BS_OK;
}

int32_t bs_coll_prepare(bs_rank *rank, const bs_collective *desc, bs_coll_plan **out_plan, bs_error *err) {
  return prepare(rank, desc, 0, out_plan, err);
}

int32_t bs_coll_prepare_plain(bs_rank *rank, const bs_collective *desc, bs_coll_plan **out_plan,
                              bs_error *err) {
  return prepare(rank, desc, 1, out_plan, err);
}

void bs_coll_release(bs_coll_plan *plan) {
  if (plan == NULL) return;
  if (plan->started) bs_coll_abandon(plan);
  bs_coll_side_release(plan);
  bs_coll_stage_free(plan);
  bs_rounds_free(plan->rounds);
  bs_coll_counts_drop(plan->rank->world, plan->counts);
  bs_coll_counts_drop(plan->rank->world, plan->recv_counts);
  free(plan->site);
  free(plan->failure);
  free(plan);
}

/* ---- run ------------------------------------------------------------------------------------ */

static int32_t bad_tensor(const bs_coll_plan *p, const bs_tensor *t, const char *which, uint64_t cols,
                          bs_error *err) {
  if (t == NULL)
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-COLL-TENSOR", "%s: %s is missing",
                 bs_name_of(BS_NAMES_COLL, p->call.kind), which);
  else
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-COLL-TENSOR",
                 "%s: %s is %s of rank %u, %lld x %lld; prepared for at most %llu x %llu",
                 bs_name_of(BS_NAMES_COLL, p->call.kind), which, bs_dtype_name(t->dtype), t->rank,
                 (long long)t->dims[0], (long long)t->dims[1], (unsigned long long)p->rows,
                 (unsigned long long)cols);
  bs_error_where(err, "%s", p->site);
  if (err != NULL) err->rank = (int32_t)p->rank->index;
  return BS_INVALID_ARGUMENT;
}

/* Rows and row stride of a [rows, cols] or [cols] view; 0 when it does not fit the plan. */
static inline int view(const bs_tensor *t, uint32_t dtype, uint64_t cols, uint64_t *out_rows,
                       int64_t *out_stride) {
  if (t == NULL || t->dtype != dtype) return 0;
  if (t->rank == 2) {
    *out_rows = (uint64_t)t->dims[0];
    *out_stride = t->strides[0];
    return (uint64_t)t->dims[1] == cols && (t->strides[1] == 1 || cols <= 1);
  }
  *out_rows = 1;
  *out_stride = (int64_t)cols;
  return t->rank == 1 && (uint64_t)t->dims[0] == cols && (t->strides[0] == 1 || cols <= 1);
}

void bs_coll_count(bs_coll_plan *p, uint32_t calls) {
  const uint64_t bytes = p->call.rows * p->row_bytes;
  const uint64_t wire = bytes / p->wire_den * p->wire_num + bytes % p->wire_den * p->wire_num / p->wire_den;
  uint64_t *counters = p->rank->counters;
  counters[BS_COUNT_COLLECTIVES] += calls;
  counters[BS_COUNT_PAYLOAD_BYTES] += calls * bytes;
  counters[BS_COUNT_WIRE_BYTES] += calls * wire;
}

static int32_t execute_once(bs_coll_plan *p, uint32_t *calls, bs_error *err) {
  int32_t rc = p->fn(p->comm, &p->call, err);
  if (rc == BS_OK) {
    ++*calls;
  } else if (err != NULL) {
    if (err->rank < 0) err->rank = (int32_t)p->rank->index; /* else the one that failed, of another process */
    if (err->where[0] == '\0') bs_error_where(err, "%s", p->site);
  }
  return rc;
}

/* Hooks are given the call of a plan. */
void bs_hook_place(const bs_coll_call *call, uint32_t *out_rank, uint32_t *out_ranks) {
  const bs_coll_plan *p =
      (const bs_coll_plan *)(const void *)((const char *)call - offsetof(bs_coll_plan, call));
  *out_rank = p->me;
  *out_ranks = p->n;
}

/* Executes the call as often as the hook returns. A second all_reduce reduces the result of the first. */
static int32_t execute_hooked(bs_coll_plan *p, uint32_t *calls, bs_error *err) {
  const bs_collective_hook *hook = &p->rank->world->hook;
  bs_coll_call *c = &p->call;
  uint32_t times = hook->before != NULL ? hook->before(hook->user, p->rank->index, c) : 1u;
  const uint32_t dtype_in = c->dtype_in;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < times && rc == BS_OK; ++i) {
    if (i == 1 && c->kind == BS_COLL_ALL_REDUCE) {
      c->in = c->out;
      c->in_stride = c->out_stride;
      c->dtype_in = c->dtype_out;
    }
    rc = execute_once(p, calls, err);
  }
  c->dtype_in = dtype_in;
  if (rc == BS_OK && hook->after != NULL) hook->after(hook->user, p->rank->index, c);
  return rc;
}

int32_t bs_coll_execute(bs_coll_plan *p, uint32_t *out_calls, bs_error *err) {
  bs_flight_slot *slot = bs_flight_begin(p->rank->index, &p->call);
  *out_calls = 0;
  const int32_t rc = p->hooked ? execute_hooked(p, out_calls, err) : execute_once(p, out_calls, err);
  bs_flight_end(slot, rc);
  return rc;
}

int32_t bs_coll_bind(bs_coll_plan *p, const bs_tensor *in, const bs_tensor *out, bs_stream *stream,
                     bs_error *err) {
  bs_coll_call *c = &p->call;
  uint64_t in_rows = 0, out_rows = 0;
  c->in = NULL;
  c->out = NULL;
  if (p->has_in) {
    if (!view(in, c->dtype_in, p->in_cols, &in_rows, &c->in_stride) || in_rows > p->rows)
      return bad_tensor(p, in, "in", p->in_cols, err);
    c->in = in->data;
    c->rows = in_rows;
  }
  if (p->has_out) {
    if (!view(out, c->dtype_out, p->out_cols, &out_rows, &c->out_stride) || out_rows > p->rows ||
        (p->has_in && out_rows != in_rows))
      return bad_tensor(p, out, "out", p->out_cols, err);
    c->out = out->data;
    c->rows = out_rows;
  }
  c->fingerprint = p->fingerprint + c->rows * UINT64_C(0x9e3779b97f4a7c15);
  c->stream = stream;
  return BS_OK;
}

int32_t bs_coll_refuse_kept(const bs_coll_plan *p, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-CAPTURE-COLLECTIVE", "ranks meet on the host in %s", p->site);
  return BS_UNSUPPORTED;
}

static int32_t run(bs_coll_plan *p, const bs_tensor *in, bs_tensor *out, bs_stream *stream, bs_error *err) {
  uint32_t calls;
  if (p->rank->capturing && p->rank->comm != NULL) return bs_coll_refuse_kept(p, err);
  int32_t rc = p->started ? bs_coll_refuse_started(p, err) : bs_coll_bind(p, in, out, stream, err);
  if (rc == BS_OK) rc = bs_coll_stage_down(p, err);
  if (rc != BS_OK) return rc;
  if (p->rank->line != NULL) bs_coll_settle(p->rank);
  rc = bs_coll_execute(p, &calls, err);
  bs_coll_count(p, calls);
  return rc == BS_OK ? bs_coll_stage_up(p, err) : rc;
}

int32_t bs_coll_run(bs_coll_plan *p, const bs_tensor *in, bs_tensor *out, bs_stream *stream, bs_error *err) {
  const uint64_t began = bs_rank_wait_begins(p->rank);
  const int32_t rc = run(p, in, out, stream, err);
  bs_rank_wait_ends(p->rank, began);
  return rc;
}
