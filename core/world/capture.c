/* SPDX-License-Identifier: MIT
 *
 * capture.c - forwards, backward passes and steps of a layer as graphs of the device: what one gives the
 * device is kept once, and then given by one call, which costs the host a launch instead of a method's whole
 * way (blockshock.h, bs_layer_capture; backend.h, capture_begin).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/world/executor.h"
#include "core/world/world.h"

/* NEW: nothing is known of the tensors. SEEN: they had one pass, which has made what is made once. */
enum { GRAPH_NEW, GRAPH_SEEN, GRAPH_KEPT, GRAPH_REFUSED };

/* One kind of pass. */
typedef struct pass_graph {
  bs_capture *graph;
  const void *scratch; /* of the rank, in which its plans work */
  uint32_t state;
  uint32_t given; /* a bit for each of the tensors; the others were NULL */
  bs_tensor tensors[BS_WORK_TENSORS];
  bs_step numbers;                /* of a step; its pointers mean nothing */
  uint64_t each[BS_COUNT_COUNT_]; /* what a pass counts */
  char told[200];
} pass_graph;

struct bs_layer_capture_state {
  bs_rank *rank;
  pass_graph passes[BS_PASS_COUNT_];
  uint32_t forwards; /* there was one */
  bs_tensor x, y;    /* of the last: their shapes */
};

static const char *const names[BS_PASS_COUNT_] = {"forward", "backward", "step"};

static int has_graphs(const bs_backend *b) {
  return b->capture_begin != NULL && b->capture_end != NULL && b->capture_run != NULL &&
         b->capture_free != NULL;
}

bs_layer_capture_state *bs_capture_new(bs_rank *rank) {
  bs_layer_capture_state *g = calloc(1, sizeof *g);
  if (g == NULL) return NULL;
  g->rank = rank;
  const bs_backend *b = rank->world->backend;
  for (uint32_t p = 0; p < BS_PASS_COUNT_; p++) {
    pass_graph *own = &g->passes[p];
    own->state = has_graphs(b) ? GRAPH_NEW : GRAPH_REFUSED;
    if (own->state == GRAPH_NEW)
      snprintf(own->told, sizeof own->told, "not yet: no two passes had the same tensors");
    else
      snprintf(own->told, sizeof own->told, "backend %.60s has no graphs", b->name);
  }
  return g;
}

const char *bs_capture_told(const bs_layer_capture_state *g, uint32_t pass) {
  return pass < BS_PASS_COUNT_ ? g->passes[pass].told : NULL;
}

static void forget(const bs_layer_capture_state *g, pass_graph *own) {
  if (own->graph != NULL) g->rank->world->backend->capture_free(g->rank->device, own->graph);
  own->graph = NULL;
}

static void drop(const bs_layer_capture_state *g, pass_graph *own, const char *why) {
  if (own->state != GRAPH_SEEN && own->state != GRAPH_KEPT) return;
  forget(g, own);
  own->state = GRAPH_NEW;
  snprintf(own->told, sizeof own->told, "%s", why);
}

void bs_capture_free(bs_layer_capture_state *g) {
  if (g == NULL) return;
  for (uint32_t p = 0; p < BS_PASS_COUNT_; p++) forget(g, &g->passes[p]);
  free(g);
}

/* ---- what a pass is ------------------------------------------------------------------------------ */

static int same_shape(const bs_tensor *a, const bs_tensor *b) {
  if (a->rank != b->rank) return 0;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return 0;
  return 1;
}

static int same_tensor(const bs_tensor *a, const bs_tensor *b) {
  if (a->data != b->data || a->dtype != b->dtype || !same_shape(a, b)) return 0;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->strides[i] != b->strides[i]) return 0;
  return 1;
}

static int same_numbers(const bs_step *a, const bs_step *b) {
  return a->optimizer == b->optimizer && a->lr == b->lr && a->momentum == b->momentum &&
         a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->eps == b->eps &&
         a->weight_decay == b->weight_decay;
}

static int same_work(const pass_graph *own, const bs_work *w) {
  for (uint32_t i = 0; i < BS_WORK_TENSORS; i++) {
    if ((w->tensors[i] != NULL) != (int)(own->given >> i & 1u)) return 0;
    if (w->tensors[i] != NULL && !same_tensor(&own->tensors[i], w->tensors[i])) return 0;
  }
  return w->step == NULL || same_numbers(&own->numbers, w->step);
}

static void remember(pass_graph *own, const bs_work *w) {
  own->given = 0;
  for (uint32_t i = 0; i < BS_WORK_TENSORS; i++) {
    if (w->tensors[i] == NULL) continue;
    own->given |= 1u << i;
    own->tensors[i] = *w->tensors[i];
  }
  if (w->step != NULL) own->numbers = *w->step;
  own->state = GRAPH_SEEN;
}

/* ---- running it ---------------------------------------------------------------------------------- */

/* Records the pass as a graph. A failed capture reports the cause when it ends; the method's own error says
 * less and is replaced. */
static int32_t keep(bs_layer_capture_state *g, pass_graph *own, const bs_work *w, bs_error *err) {
  bs_rank *rank = g->rank;
  const bs_backend *b = rank->world->backend;
  bs_error end = BS_ERROR_INIT;
  int32_t rc = b->capture_begin(rank->device, err);
  if (rc != BS_OK) return rc;
  rank->capturing = 1;
  rc = bs_work_run(w, err);
  rank->capturing = 0;
  const int32_t ended = b->capture_end(rank->device, &own->graph, &end);
  if (ended != BS_OK) {
    if (err != NULL) *err = end;
    rc = ended;
  }
  if (rc != BS_OK) forget(g, own);
  return rc;
}

/* Tries to keep the pass as a graph. After a failure it is never tried again, and the pass is run as usual:
 * nothing of it has run so far. */
static int32_t try_to_keep(bs_layer_capture_state *g, const bs_work *w, bs_error *err) {
  pass_graph *own = &g->passes[w->pass];
  bs_rank *rank = g->rank;
  uint64_t before[BS_COUNT_COUNT_];
  bs_error why = BS_ERROR_INIT;
  memcpy(before, rank->counters, sizeof before);
  if (keep(g, own, w, &why) != BS_OK) {
    memcpy(rank->counters, before, sizeof before);
    own->state = GRAPH_REFUSED;
    snprintf(own->told, sizeof own->told, "%.199s", why.message);
    bs_log_write(rank->world->logger, BS_LOG_INFO, "", (int32_t)rank->index, "%s is not kept as a graph: %s",
                 names[w->pass], own->told);
    return bs_work_run(w, err);
  }
  for (uint32_t i = 0; i < BS_COUNT_COUNT_; i++) own->each[i] = rank->counters[i] - before[i];
  char note[96];
  own->state = GRAPH_KEPT;
  own->scratch = bs_rank_scratch(rank);
  snprintf(own->told, sizeof own->told, "captured");
  snprintf(note, sizeof note, "%s@%.60s/graph", names[w->pass], rank->world->backend->name);
  rank->exec.note(rank->exec.ctx, note);
  return rank->world->backend->capture_run(rank->device, own->graph, err);
}

/* A method remembers the shapes of its last forward. A graph would not update them, so all graphs are dropped
 * after a forward of other shapes. */
static void see_shape(bs_layer_capture_state *g, const bs_tensor *x, const bs_tensor *y) {
  if (g->forwards && same_shape(&g->x, x) && same_shape(&g->y, y)) return;
  for (uint32_t p = 0; p < BS_PASS_COUNT_; p++) drop(g, &g->passes[p], "a forward had another shape");
  g->forwards = 1;
  g->x = *x;
  g->y = *y;
}

int32_t bs_capture_run(bs_layer_capture_state *g, const bs_work *w, bs_error *err) {
  pass_graph *own = &g->passes[w->pass];
  bs_rank *rank = g->rank;
  if (w->pass == BS_PASS_FORWARD) see_shape(g, w->tensors[0], w->tensors[1]);
  if (own->state == GRAPH_KEPT && own->scratch != bs_rank_scratch(rank))
    drop(g, own, "not yet: a plan took a larger scratch");
  const int same = (own->state == GRAPH_SEEN || own->state == GRAPH_KEPT) && same_work(own, w);
  /* A step of other numbers writes them where a kept one reads its own. */
  if (!same && w->pass == BS_PASS_STEP) drop(g, own, "not yet: the steps had other tensors or numbers");
  if (w->stream != NULL || own->state == GRAPH_REFUSED || (!same && own->state == GRAPH_KEPT))
    return bs_work_run(w, err);
  if (w->step != NULL && w->step->optimizer == BS_OPT_ADAMW) {
    snprintf(own->told, sizeof own->told, "steps of AdamW differ in t, so they are never captured");
    return bs_work_run(w, err);
  }
  if (!same) {
    remember(own, w);
    return bs_work_run(w, err);
  }
  /* A collective that another layer has started may be queued by its thread now. It must not get into the
   * graph. */
  if (own->state == GRAPH_SEEN && rank->unwaited > 0) return bs_work_run(w, err);
  if (own->state == GRAPH_SEEN) return try_to_keep(g, w, err);
  const int32_t rc = rank->world->backend->capture_run(rank->device, own->graph, err);
  for (uint32_t i = 0; rc == BS_OK && i < BS_COUNT_COUNT_; i++) rank->counters[i] += own->each[i];
  return rc;
}

/* ---- of an executor ------------------------------------------------------------------------------ */

int32_t bs_rank_capture_begin(bs_rank *rank, bs_error *err) {
  const bs_backend *b = rank->world->backend;
  if (!has_graphs(b))
    return bs_error_set(err, BS_UNSUPPORTED, "BS-RANK-GRAPH", "backend %.60s has no graphs", b->name);
  const int32_t rc = b->capture_begin(rank->device, err);
  rank->capturing = rc == BS_OK;
  return rc;
}

int32_t bs_rank_capture_end(bs_rank *rank, bs_capture **out_capture, bs_error *err) {
  rank->capturing = 0;
  return rank->world->backend->capture_end(rank->device, out_capture, err);
}

int32_t bs_rank_capture_run(bs_rank *rank, bs_capture *capture, bs_error *err) {
  return rank->world->backend->capture_run(rank->device, capture, err);
}

void bs_rank_capture_free(bs_rank *rank, bs_capture *capture) {
  if (capture != NULL) rank->world->backend->capture_free(rank->device, capture);
}
