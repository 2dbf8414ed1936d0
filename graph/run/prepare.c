/* SPDX-License-Identifier: MIT
 * prepare.c - a graph becomes a binding: memory is planned, every node gets a plan of its op, every argument
 * a tensor. What a run needs is all here; a run changes nothing of it but the profile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/world/executor.h"
#include "graph/run/bucket.h"
#include "graph/split/method.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a binding");
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The root and its views get their memory. */
static void move_root(gbinding *b, uint32_t root, void *data) {
  b->checked = 0;
  static unsigned char nothing[64]; /* where values without elements lie */
  for (uint32_t i = root; i != GNONE; i = b->g->values[i].next_view) {
    gtensor_fill(&b->g->values[i], &b->g->values[root], data, &b->tensors[i]);
    if (b->tensors[i].data == NULL && graph_count(&b->g->values[root]) == 0) b->tensors[i].data = nothing;
  }
  gbytes_fill(b, root);
}

void gbinding_set_root(gbinding *b, uint32_t root, void *data) {
  gcapture_drop(b);
  move_root(b, root, data);
}

void gbinding_place(gbinding *b, void *arena) {
  b->arena = arena;
  for (uint32_t i = 0; i < b->g->n_values; i++) {
    const gvalue *v = &b->g->values[i];
    if (v->kind != GV_TEMP) continue;
    gbinding_set_root(b, i, arena != NULL ? (unsigned char *)arena + b->place[i] : NULL);
  }
}

/* Of a constant, in bs_tensor.reserved[0] until it has its memory: what ops do with it. */
enum { READ = 1, TAKEN = 2 };

/* Roots that keep their memory: constants that an op reads, states, the length. */
static int32_t place_outside(gbinding *b, bs_error *err) {
  for (uint32_t i = 0; i < b->g->n_values; i++) {
    gvalue *v = &b->g->values[i];
    void *data = NULL;
    int32_t rc = BS_OK;
    const uint64_t bytes = (uint64_t)graph_count(v) * BS_DTYPE_BYTES(v->dtype);
    if (v->kind == GV_CONST && b->tensors[i].reserved[0] != 0) {
      rc = graph_ask(b->g, i, err);
      data = (void *)(uintptr_t)v->data;
      if (rc == BS_OK && b->rank->apart)
        rc = gdevice_constant(b->core, b->rank, b->g, v, b, &data, err);
      else if (rc == BS_OK && b->tensors[i].reserved[0] & READ)
        rc = gcore_constant(b->core, v, &data, err);
      b->constant_bytes += bytes;
    } else if (v->kind == GV_STATE) {
      rc = gcore_state(b->core, b->rank, graph_text_of(b->g, v->name), gcore_state_bytes(b->core, v), &data,
                       err);
    } else if (!b->rank->apart && v->kind == GV_INPUT && v->flags & GV_LENGTH) {
      data = &b->length;
    } else {
      continue;
    }
    if (rc != BS_OK) return rc;
    gbinding_set_root(b, i, data);
  }
  return BS_OK;
}

void gbinding_set_slot(gbinding *b, int64_t slot) {
  for (uint32_t i = 0; i < b->g->n_values && slot != b->slot; i++) {
    const gvalue *v = &b->g->values[i];
    if (v->kind != GV_STATE) continue;
    const int64_t row = graph_count(v) / v->dims[0] * (int64_t)BS_DTYPE_BYTES(v->dtype);
    move_root(b, i, (unsigned char *)b->tensors[i].data + (slot - b->slot) * row);
  }
  if (slot != b->slot) gcapture_slot(b, slot);
  b->slot = slot;
}

/* The node reads rows of input k where they lie. */
static int only_takes(const graph *g, const gnode *n, uint32_t k) {
  const gvalue *v = &g->values[g->values[n->in[k]].base];
  return k == 0 && n->op == GOP_TAKE && n->attrs[0] == BS_INDEX_ROWS &&
         (((uintptr_t)v->data & (BS_DTYPE_BYTES(v->dtype) - 1u)) == 0 || gbytes_takes(g, n));
}

/* Marks constants that are arguments of a node. The others are weights only, which may be unaligned. */
static void mark_arguments(gbinding *b) {
  for (uint32_t id = b->g->first; id != GNONE; id = b->g->nodes[id].next) {
    const gnode *n = &b->g->nodes[id];
    for (uint32_t k = 0; k < n->n_in; k++)
      if (n->in[k] != GNONE)
        b->tensors[b->g->values[n->in[k]].base].reserved[0] |= only_takes(b->g, n, k) ? TAKEN : READ;
  }
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The constant lies where the model has it: no op has had it copied. */
static int is_in_place(const gbinding *b, uint32_t value) {
  const uint32_t root = b->g->values[value].base;
  return b->tensors[root].data == b->g->values[root].data;
}

static int32_t make_plan(gbinding *b, grank *r, const gnode *n, const gquery *q, bs_plan **out_plan,
                         bs_error *err) {
  return graph_is_packed(n->op) ? gcore_product(b->core, r, b->g, n, q, out_plan, err)
                                : r->api->op_prepare(r->rank, &q->query, NULL, out_plan, err);
}

/* The device lacks the op: the host serves it. */
static int32_t make_hosted(gbinding *b, gstep *s, const gnode *n, const gquery *q, bs_error *err) {
  grank *host = NULL;
  int32_t rc = ghosted_rank(b->rank, &host, err);
  if (rc == BS_OK) rc = grank_enter(host, err);
  if (rc != BS_OK) return rc;
  rc = make_plan(b, host, n, q, &s->plan, err);
  if (rc == BS_OK) s->hosted = b; /* whose rank releases the plan */
  return grank_leave(host, rc, err);
}

/* Neither the device nor the host serves the op: the error says both. */
static int32_t refused_twice(const grank *r, const bs_error *device, int32_t rc, bs_error *err) {
  if (err == NULL || rc != BS_UNSUPPORTED) return rc;
  const bs_error host = *err;
  bs_error_set(err, rc, host.id, "%.400s; on backend %.64s: %.400s", host.message, bs_rank_backend(r->rank),
               device->message);
  if (host.hint[0] != '\0') bs_error_hint(err, "%s", host.hint);
  return rc;
}

static void release_plan(grank *rank, gstep *s) {
  grank *r = s->hosted != NULL ? rank->host : rank;
  if (s->plan == NULL || !grank_enter_to_free(r)) return;
  r->api->op_release(s->plan);
  grank_leave_freed(r);
  s->plan = NULL;
}

static int32_t prepare_step(gbinding *b, uint32_t id, gstep *s, bs_tensor **args, bs_error *err) {
  grank *r = b->rank;
  const gnode *n = &b->g->nodes[id];
  s->file = -1;
  uint32_t values[BS_MAX_OP_ARGS];
  gquery q;
  graph_query(b->g, n, &q);
  s->node = id;
  s->args = args;
  s->nargs = graph_arguments(n, values);
  for (uint32_t i = 0; i < s->nargs; i++) args[i] = values[i] != GNONE ? &b->tensors[values[i]] : NULL;
  if (gbytes_takes(b->g, n) && is_in_place(b, n->in[0])) {
    gbytes_ask(&q);
    for (uint32_t i = 0; i < s->nargs; i += 2) args[i] = gbytes_tensor(b, values[i]);
  }
  int32_t rc =
      n->layer ? glayer_get(b->core, r, b->g, n, &s->layer, err) : make_plan(b, r, n, &q, &s->plan, err);
  if (rc == BS_UNSUPPORTED && r->apart && !r->phantom && r->fallback && !n->layer) {
    const bs_error device = err != NULL ? *err : (bs_error)BS_ERROR_INIT;
    bs_error_clear(err);
    rc = refused_twice(r, &device, make_hosted(b, s, n, &q, err), err);
  }
  if (rc == BS_OK && n->layer) s->method = s->layer->arm->name;
  if (rc == BS_OK && !r->apart) gtable_find(b, s);
  return rc == BS_OK ? rc : gnode_failed(b->g, n, rc, err);
}

/* 1: one error will name all such nodes: nothing else may serve what the device lacks. */
static int is_listed(const gbinding *b, const gnode *n) {
  return b->rank->apart && !b->rank->phantom && !b->rank->fallback && !n->layer;
}

/* Memory of the host that a session takes for itself. */
static int is_of_host(const bs_error *err) {
  return err != NULL && (strcmp(err->id, "BS-GRAPH-MEMORY") == 0 || strcmp(err->id, "BS-MEM") == 0);
}

static int32_t prepare_all(gbinding *b, uint32_t *lacking, uint32_t *out_lacking, bs_error *err) {
  uint32_t i = 0, products = 0, product = 0, n_lacking = 0;
  for (uint32_t id = b->g->first; id != GNONE; id = b->g->nodes[id].next)
    products += (uint32_t)graph_is_packed(b->g->nodes[id].op);
  b->args_memory = calloc((size_t)b->n_steps * BS_MAX_OP_ARGS + 1u, sizeof *b->args_memory);
  if (b->args_memory == NULL) return no_memory(err);
  const int32_t room = b->core->method != NULL ? glayer_room(b->core, b->rank, b->g, err) : BS_OK;
  if (room != BS_OK) return room;
  for (uint32_t id = b->g->first; id != GNONE; id = b->g->nodes[id].next, i++) {
    bs_tensor **args = (bs_tensor **)b->args_memory + (size_t)i * BS_MAX_OP_ARGS;
    if (graph_is_packed(b->g->nodes[id].op)) gcore_tell(b->core, "pack weights", ++product, products);
    const double began = bs_clock_s(), packed = b->core->pack_s;
    const int32_t rc = prepare_step(b, id, &b->steps[i], args, err);
    b->steps[i].prepare_s = bs_clock_s() - began - (b->core->pack_s - packed);
    if (rc == BS_UNSUPPORTED && is_listed(b, &b->g->nodes[id])) {
      lacking[n_lacking++] = id;
      continue;
    }
    if (rc == BS_NO_MEMORY && b->rank->apart && !is_of_host(err))
      return gdevice_no_room(b->core, b->rank, "a weight or the plan of a node", 0, err);
    if (rc == BS_NO_MEMORY && err != NULL && err->hint[0] == '\0')
      bs_error_hint(err, "%.1f MiB are free: smaller dimensions, or more memory for this process",
                    (double)bs_memory_available("") / (1024.0 * 1024.0));
    if (rc != BS_OK) return rc;
  }
  *out_lacking = n_lacking;
  return BS_OK;
}

static int32_t prepare_steps(gbinding *b, bs_error *err) {
  uint32_t n_lacking = 0, *lacking = calloc(b->n_steps + 1u, sizeof *lacking);
  if (lacking == NULL) return no_memory(err);
  int32_t rc = prepare_all(b, lacking, &n_lacking, err);
  if (rc == BS_OK && n_lacking > 0) rc = ghosted_refuse(b, lacking, n_lacking, err);
  free(lacking);
  return rc;
}

int gstep_falls_back(const gstep *s) {
  return s->hosted != NULL || (s->layer == NULL && bs_dispatch_is_fallback(s->plan));
}

void gstep_serves(const gstep *s, char *out, size_t size) {
  if (s->layer != NULL)
    snprintf(out, size, "%s", s->method);
  else
    snprintf(out, size, "%s:%s", s->plan->impl->backend, s->plan->impl->name);
}

/* Makes what outlasts the binding or is shared: constants and states, packed weights, plans over these. */
static int32_t prepare_locked(gbinding *b, bs_error *err) {
  int32_t rc = grank_enter(b->rank, err);
  if (rc != BS_OK) return rc;
  rc = place_outside(b, err);
  if (rc == BS_OK) rc = gports_make(b, err);
  if (rc == BS_OK) gbinding_place(b, NULL);
  if (rc == BS_OK) rc = prepare_steps(b, err);
  if (rc == BS_OK) rc = gcut_make(b, err);
  if (rc == BS_OK) rc = gcapture_make(b, err);
  return grank_leave(b->rank, rc, err);
}

int32_t gbinding_make(gcore *core, grank *rank, graph *g, gbinding **out_binding, bs_error *err) {
  gbinding *b = calloc(1, sizeof *b);
  if (b == NULL) {
    graph_free(g);
    return no_memory(err);
  }
  b->g = g;
  b->core = core;
  b->rank = rank;
  b->n_steps = g->n_live;
  b->steps = calloc(b->n_steps + 1u, sizeof *b->steps);
  b->tensors = calloc(g->n_values + 1u, sizeof *b->tensors);
  int32_t rc = b->steps == NULL || b->tensors == NULL ? no_memory(err) : BS_OK;
  if (rc == BS_OK) rc = graph_validate(g, "before planning", err);
  gcore_tell(core, "plan", 0, 0);
  if (rc == BS_OK) rc = gbinding_plan(b, err);
  if (rc == BS_OK) mark_arguments(b);
  if (rc == BS_OK) rc = gbytes_make(b, err);
  pthread_mutex_lock(&core->lock);
  const double began = bs_clock_s(), packed = core->pack_s;
  if (rc == BS_OK) rc = prepare_locked(b, err);
  b->prepare_s = bs_clock_s() - began - (core->pack_s - packed);
  pthread_mutex_unlock(&core->lock);
  /* A packed weight is found by the place of what it was made from, so that no other may come to lie there:
   * also where the caller does not keep the binding. */
  if (g->ask == gfold_ask) gfold_hold(g->ask_user, g, 0);
  if (rc != BS_OK) {
    gbinding_free(b);
    return rc;
  }
  *out_binding = b;
  return BS_OK;
}

/* The old plans go when all new ones are there. */
static int32_t prepare_others(gbinding *b, const uint32_t *steps, uint32_t n, bs_plan **old, bs_error *err) {
  int32_t rc = BS_OK;
  uint32_t done = 0;
  for (; done < n && rc == BS_OK; done++) {
    gstep *s = &b->steps[steps[done]];
    old[done] = s->plan;
    s->plan = NULL;
    rc = prepare_step(b, s->node, s, s->args, err);
  }
  for (uint32_t i = 0; i < done; i++) {
    gstep *s = &b->steps[steps[i]];
    bs_plan *gone = rc == BS_OK ? old[i] : s->plan;
    if (rc != BS_OK) s->plan = old[i];
    if (gone != NULL) b->rank->api->op_release(gone);
  }
  return rc;
}

int32_t gbinding_prepare_again(gbinding *b, const uint32_t *steps, uint32_t n, bs_error *err) {
  if (n == 0) return BS_OK;
  bs_plan **old = calloc(n, sizeof(bs_plan *));
  if (old == NULL) return no_memory(err);
  pthread_mutex_lock(&b->core->lock);
  int32_t rc = grank_enter(b->rank, err);
  if (rc == BS_OK) rc = grank_leave(b->rank, prepare_others(b, steps, n, old, err), err);
  gcut_args(b); /* a step that was prepared again has its own */
  pthread_mutex_unlock(&b->core->lock);
  free(old);
  return rc;
}

int32_t gbinding_check(gbinding *b, bs_error *err) {
  if (b->checked) return BS_OK;
  b->flops = b->bytes = 0;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    const gstep *s = &b->steps[i];
    bs_tensor *whole[BS_MAX_OP_ARGS];
    uint64_t flops = 0, bytes = 0;
    if (s->layer != NULL) continue; /* its method checks them at each run */
    const int32_t rc =
        bs_dispatch_check_args(s->plan, gcut_whole(b, s, whole), s->nargs, &flops, &bytes, err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
    b->flops += flops;
    b->bytes += bytes;
  }
  b->checked = 1;
  return BS_OK;
}

void gbinding_free(gbinding *b) {
  if (b == NULL) return;
  pthread_mutex_lock(&b->core->lock);
  if (b->steps != NULL && grank_enter_to_free(b->rank)) {
    for (uint32_t i = 0; i < b->n_steps; i++) release_plan(b->rank, &b->steps[i]);
    grank_leave_freed(b->rank);
  }
  gcapture_free(b);
  gdevice_drop(b->core, b);
  pthread_mutex_unlock(&b->core->lock);
  gplan_life_free(&b->life);
  free(b->steps);
  free(b->tensors);
  free(b->args_memory);
  free(b->bytes_of);
  free(b->place);
  free(b->lives);
  if (!b->rank->apart) free(b->own_arena);
  gports_free(b);
  free(b->cuts);
  free(b->sizes);
  free(b->alone);
  gbucket_free(b->bucket);
  graph_free(b->g);
  free(b);
}
