/* SPDX-License-Identifier: MIT
 *
 * graph.c - forwards of a layer as a graph of the device: what a forward gives the device is kept once, and
 * then given by one call, which costs the host a launch instead of a method's whole way (blockshock.h,
 * bs_layer_graph; backend.h, graph_begin).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/world/world.h"

/* NEW: nothing is known of the tensors. SEEN: they had one forward, which has made what is made once. */
enum { GRAPH_NEW, GRAPH_SEEN, GRAPH_KEPT, GRAPH_REFUSED };

struct bs_layer_graph_state {
  bs_rank *rank;
  bs_graph *graph;
  uint32_t state;
  bs_tensor x, y;
  uint64_t each[BS_COUNT_COUNT_]; /* what a forward counts */
  char told[200];
};

bs_layer_graph_state *bs_graph_new(bs_rank *rank) {
  bs_layer_graph_state *g = calloc(1, sizeof *g);
  if (g == NULL) return NULL;
  g->rank = rank;
  snprintf(g->told, sizeof g->told, "not yet: no two forwards had the same tensors");
  const bs_backend *b = rank->world->backend;
  if (b->graph_begin != NULL && b->graph_end != NULL && b->graph_run != NULL && b->graph_free != NULL)
    return g;
  g->state = GRAPH_REFUSED;
  snprintf(g->told, sizeof g->told, "backend %.60s has no graphs", b->name);
  return g;
}

const char *bs_graph_told(const bs_layer_graph_state *g) {
  return g->told;
}

static void forget(bs_layer_graph_state *g) {
  if (g->graph != NULL) g->rank->world->backend->graph_free(g->rank->device, g->graph);
  g->graph = NULL;
}

void bs_graph_drop(bs_layer_graph_state *g, const char *why) {
  if (g == NULL || g->state == GRAPH_REFUSED) return;
  forget(g);
  g->state = GRAPH_NEW;
  snprintf(g->told, sizeof g->told, "%s", why);
}

void bs_graph_free(bs_layer_graph_state *g) {
  if (g == NULL) return;
  forget(g);
  free(g);
}

static int same_tensor(const bs_tensor *a, const bs_tensor *b) {
  if (a->data != b->data || a->dtype != b->dtype || a->rank != b->rank) return 0;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i] || a->strides[i] != b->strides[i]) return 0;
  return 1;
}

static int32_t run_method(const bs_forward *f, bs_error *err) {
  return f->method->forward(f->object, f->x, f->y, NULL, err);
}

static int32_t keep(bs_layer_graph_state *g, const bs_forward *f, bs_error *err) {
  bs_rank *rank = g->rank;
  const bs_backend *b = rank->world->backend;
  bs_error end = BS_ERROR_INIT;
  int32_t rc = b->graph_begin(rank->device, err);
  if (rc != BS_OK) return rc;
  rank->capturing = 1;
  rc = run_method(f, err);
  rank->capturing = 0;
  const int32_t ended = b->graph_end(rank->device, &g->graph, &end);
  if (rc == BS_OK && ended != BS_OK) {
    if (err != NULL) *err = end;
    rc = ended;
  }
  if (rc != BS_OK) forget(g);
  return rc;
}

/* The first look at what cannot be kept is the last. The forward itself is run as any then. */
static int32_t try_to_keep(bs_layer_graph_state *g, const bs_forward *f, bs_error *err) {
  bs_rank *rank = g->rank;
  uint64_t before[BS_COUNT_COUNT_];
  bs_error why = BS_ERROR_INIT;
  memcpy(before, rank->counters, sizeof before);
  if (keep(g, f, &why) != BS_OK) {
    memcpy(rank->counters, before, sizeof before);
    g->state = GRAPH_REFUSED;
    snprintf(g->told, sizeof g->told, "%.199s", why.message);
    bs_log_write(rank->world->logger, BS_LOG_INFO, "", (int32_t)rank->index,
                 "forwards are not kept as a graph: %s", g->told);
    return run_method(f, err);
  }
  for (uint32_t i = 0; i < BS_COUNT_COUNT_; i++) g->each[i] = rank->counters[i] - before[i];
  char note[96];
  g->state = GRAPH_KEPT;
  snprintf(g->told, sizeof g->told, "captured");
  snprintf(note, sizeof note, "forward@%.60s/graph", rank->world->backend->name);
  rank->exec.note(rank->exec.ctx, note);
  return rank->world->backend->graph_run(rank->device, g->graph, err);
}

int32_t bs_graph_forward(bs_layer_graph_state *g, const bs_forward *f, bs_error *err) {
  bs_rank *rank = g->rank;
  if (g->state == GRAPH_REFUSED) return run_method(f, err);
  const int same = g->state != GRAPH_NEW && same_tensor(&g->x, f->x) && same_tensor(&g->y, f->y);
  if (!same && g->state == GRAPH_KEPT) return run_method(f, err);
  if (!same) {
    g->state = GRAPH_SEEN;
    g->x = *f->x;
    g->y = *f->y;
    return run_method(f, err);
  }
  /* What another layer has started may be queued by the thread for it: not into the graph. */
  if (g->state == GRAPH_SEEN && rank->unwaited > 0) return run_method(f, err);
  if (g->state == GRAPH_SEEN) return try_to_keep(g, f, err);
  const int32_t rc = rank->world->backend->graph_run(rank->device, g->graph, err);
  for (uint32_t i = 0; rc == BS_OK && i < BS_COUNT_COUNT_; i++) rank->counters[i] += g->each[i];
  return rc;
}
