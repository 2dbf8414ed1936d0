/* SPDX-License-Identifier: MIT
 * capture.c - runs of a binding as graphs of the device. The first run goes step by step, because libraries
 * make what they make once; the second is captured; later ones are one call for each segment, which is what
 * lies between two nodes of the host. What a run reads lies at the same places each time: ports in the block
 * of the device, the length with them; the rank's scratch until a plan takes a larger one. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/run/run.h"

/* A graph of fewer steps saves nothing. */
enum { LEAST_STEPS = 2 };

typedef struct segment {
  uint32_t first, end; /* steps */
} segment;

/* A segment's capture, with the scratch of the rank that it works in. */
typedef struct kept {
  bs_capture *graph; /* NULL: step by step */
  const void *scratch;
} kept;

/* The captures of one slot: its states lie at their own addresses. */
typedef struct gset {
  enum { NEW, SEEN, KEPT, REFUSED } state;
  int stale;      /* 1: memory has moved since; forgotten at the next run */
  kept *of;       /* of each segment */
  char told[200]; /* why nothing is captured */
} gset;

typedef struct gcaptures {
  segment *segments;
  uint32_t n;
  gset *sets; /* of each slot of the model; of a model without slots one */
  uint32_t n_sets, slot;
} gcaptures;

static int is_captured(const gbinding *b, uint32_t i) {
  return b->steps[i].hosted == NULL && b->steps[i].layer == NULL;
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a binding");
}

/* Runs of steps of the device, and between them steps that are not captured. */
static int32_t find_segments(const gbinding *b, gcaptures *c, bs_error *err) {
  c->segments = calloc(b->n_steps + 1u, sizeof *c->segments);
  if (c->segments == NULL) return no_memory(err);
  for (uint32_t i = 0; i < b->n_steps;) {
    segment *s = &c->segments[c->n++];
    s->first = i;
    do i++;
    while (i < b->n_steps && is_captured(b, i) == is_captured(b, s->first));
    s->end = i;
  }
  return BS_OK;
}

static int32_t make_sets(const gbinding *b, gcaptures *c, bs_error *err) {
  c->n_sets = b->core->slots > 1 ? (uint32_t)b->core->slots : 1;
  c->sets = calloc(c->n_sets, sizeof *c->sets);
  for (uint32_t i = 0; c->sets != NULL && i < c->n_sets; i++) {
    c->sets[i].of = calloc(c->n + 1u, sizeof(kept));
    if (c->sets[i].of == NULL) return no_memory(err);
  }
  return c->sets != NULL ? BS_OK : no_memory(err);
}

int32_t gcapture_make(gbinding *b, bs_error *err) {
  if (!b->rank->apart || b->rank->phantom) return BS_OK;
  b->captures = calloc(1, sizeof *b->captures);
  if (b->captures == NULL) return no_memory(err);
  const int32_t rc = find_segments(b, b->captures, err);
  return rc == BS_OK ? make_sets(b, b->captures, err) : rc;
}

static void forget(const gbinding *b, const gcaptures *c, gset *set) {
  for (uint32_t i = 0; i < c->n; i++) {
    bs_rank_capture_free(b->rank->rank, set->of[i].graph);
    set->of[i].graph = NULL;
  }
  set->stale = 0;
}

void gcapture_free(gbinding *b) {
  gcaptures *c = b->captures;
  if (c == NULL) return;
  const int entered = c->sets != NULL && grank_enter_to_free(b->rank);
  for (uint32_t i = 0; c->sets != NULL && i < c->n_sets; i++) {
    if (entered && c->sets[i].of != NULL) forget(b, c, &c->sets[i]);
    free(c->sets[i].of);
  }
  if (entered) grank_leave_freed(b->rank);
  free(c->sets);
  free(c->segments);
  free(c);
  b->captures = NULL;
}

void gcapture_drop(gbinding *b) {
  gcaptures *c = b->captures;
  for (uint32_t i = 0; c != NULL && i < c->n_sets; i++) {
    c->sets[i].stale = 1;
    if (c->sets[i].state != REFUSED) c->sets[i].state = NEW;
  }
}

/* Another slot ran these steps before, so its first run may be captured. */
static void begin_set(gset *set, const gset *other) {
  if (set->state != NEW || other->state == NEW) return;
  set->state = other->state == REFUSED ? REFUSED : SEEN;
  memcpy(set->told, other->told, sizeof set->told);
}

void gcapture_slot(gbinding *b, int64_t slot) {
  gcaptures *c = b->captures;
  if (c == NULL) return;
  assert(slot >= 0 && slot < c->n_sets); /* the session has checked it */
  const gset *before = &c->sets[c->slot];
  c->slot = (uint32_t)slot;
  begin_set(&c->sets[slot], before);
}

static int32_t run_plain(const gbinding *b, const segment *s, bs_error *err) {
  for (uint32_t i = s->first; i < s->end; i++) {
    const int32_t rc = gstep_run(&b->steps[i], err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[b->steps[i].node], rc, err);
  }
  return BS_OK;
}

/* Keeps a segment. A failed capture has run nothing. */
static int32_t keep(const gbinding *b, const segment *s, kept *out, bs_error *err) {
  bs_error end = BS_ERROR_INIT;
  int32_t rc = bs_rank_capture_begin(b->rank->rank, err);
  if (rc != BS_OK) return rc;
  rc = run_plain(b, s, err);
  const int32_t ended = bs_rank_capture_end(b->rank->rank, &out->graph, &end);
  if (ended != BS_OK) *err = end;
  out->scratch = bs_rank_scratch(b->rank->rank);
  return ended != BS_OK ? ended : rc;
}

static int32_t refuse(const gbinding *b, const gcaptures *c, gset *set, const char *why, bs_error *err) {
  const int32_t rc = bs_rank_sync(b->rank->rank, err); /* of segments that were queued before it */
  forget(b, c, set);
  set->state = REFUSED;
  snprintf(set->told, sizeof set->told, "%.199s", why);
  for (char *at = set->told; *at != '\0'; at++)
    if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') *at = ' '; /* explain prints it as JSON, too */
  return rc;
}

static int32_t run_segment(const gbinding *b, const gcaptures *c, uint32_t i, bs_error *err) {
  const segment *s = &c->segments[i];
  gset *set = &c->sets[c->slot];
  kept *own = &set->of[i];
  const int captured = is_captured(b, s->first) && s->end - s->first >= LEAST_STEPS;
  if (!captured || set->state == NEW || set->state == REFUSED) return run_plain(b, s, err);
  if (own->graph != NULL && own->scratch != bs_rank_scratch(b->rank->rank)) { /* a plan took a larger one */
    bs_rank_capture_free(b->rank->rank, own->graph);
    own->graph = NULL;
  }
  bs_error why = BS_ERROR_INIT;
  if (own->graph == NULL && keep(b, s, own, &why) != BS_OK) {
    const int32_t rc = refuse(b, c, set, why.message, err);
    return rc == BS_OK ? run_plain(b, s, err) : rc;
  }
  return bs_rank_capture_run(b->rank->rank, own->graph, err);
}

int32_t gcapture_run(gbinding *b, bs_error *err) {
  const gcaptures *c = b->captures;
  gset *set = &c->sets[c->slot];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < c->n_sets; i++)
    if (c->sets[i].stale) forget(b, c, &c->sets[i]);
  for (uint32_t i = 0; i < c->n && rc == BS_OK; i++) rc = run_segment(b, c, i, err);
  if (rc == BS_OK && set->state == SEEN) set->state = KEPT;
  if (rc == BS_OK && set->state == NEW) set->state = SEEN;
  return rc;
}

void gcapture_tell(const gbinding *b, char *out, size_t size) {
  const gcaptures *c = b->captures;
  uint32_t segments = 0, steps = 0;
  out[0] = '\0';
  if (c == NULL) return;
  const gset *set = &c->sets[c->slot];
  for (uint32_t i = 0; i < c->n; i++) {
    if (set->of[i].graph == NULL) continue;
    segments++;
    steps += c->segments[i].end - c->segments[i].first;
  }
  if (set->state == KEPT)
    snprintf(out, size, "%u nodes in %u capture%s", steps, segments, segments == 1 ? "" : "s");
  else if (set->state == REFUSED)
    snprintf(out, size, "not captured: %s", set->told);
  else
    snprintf(out, size, "not captured yet: the second run with these sizes will be");
}
