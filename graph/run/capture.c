/* SPDX-License-Identifier: MIT
 * capture.c - runs of a binding as graphs of the device. The first run goes step by step, because libraries
 * make what they make once; the second is captured; later ones are one call for each segment, which is what
 * lies between two nodes of the host. What a run reads lies at the same places each time: ports in the block
 * of the device, the length with them; the rank's scratch until a plan takes a larger one. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/run/run.h"

/* A graph of fewer steps saves nothing. */
enum { LEAST_STEPS = 2 };

typedef struct segment {
  uint32_t first, end; /* steps */
  bs_capture *capture; /* NULL: step by step */
} segment;

typedef struct gcaptures {
  enum { NEW, SEEN, KEPT, REFUSED } state;
  segment *segments;
  uint32_t n;
  uint64_t scratch; /* bytes of the rank's scratch when it was captured */
  char told[200];   /* why nothing is captured */
} gcaptures;

static int is_captured(const gbinding *b, uint32_t i) {
  return b->steps[i].hosted == NULL && b->steps[i].layer == NULL;
}

/* Runs of steps of the device, and between them steps that are not captured. */
static int32_t find_segments(const gbinding *b, gcaptures *c, bs_error *err) {
  c->segments = calloc(b->n_steps + 1u, sizeof *c->segments);
  if (c->segments == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a binding");
  for (uint32_t i = 0; i < b->n_steps;) {
    segment *s = &c->segments[c->n++];
    s->first = i;
    do i++;
    while (i < b->n_steps && is_captured(b, i) == is_captured(b, s->first));
    s->end = i;
  }
  return BS_OK;
}

int32_t gcapture_make(gbinding *b, bs_error *err) {
  if (!b->rank->apart || b->rank->phantom) return BS_OK;
  b->captures = calloc(1, sizeof *b->captures);
  if (b->captures == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a binding");
  return find_segments(b, b->captures, err);
}

static void forget(const gbinding *b, gcaptures *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    bs_rank_capture_free(b->rank->rank, c->segments[i].capture);
    c->segments[i].capture = NULL;
  }
}

void gcapture_free(gbinding *b) {
  gcaptures *c = b->captures;
  if (c == NULL) return;
  if (c->segments != NULL && grank_enter_to_free(b->rank)) {
    forget(b, c);
    grank_leave_freed(b->rank);
  }
  free(c->segments);
  free(c);
  b->captures = NULL;
}

void gcapture_drop(gbinding *b) {
  if (b->captures != NULL && b->captures->state != REFUSED) b->captures->state = NEW;
}

static int32_t run_plain(const gbinding *b, const segment *s, bs_error *err) {
  for (uint32_t i = s->first; i < s->end; i++) {
    const int32_t rc = gstep_run(&b->steps[i], err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[b->steps[i].node], rc, err);
  }
  return BS_OK;
}

/* Keeps a segment. A failed capture has run nothing. */
static int32_t keep(const gbinding *b, segment *s, bs_error *err) {
  bs_error end = BS_ERROR_INIT;
  int32_t rc = bs_rank_capture_begin(b->rank->rank, err);
  if (rc != BS_OK) return rc;
  rc = run_plain(b, s, err);
  const int32_t ended = bs_rank_capture_end(b->rank->rank, &s->capture, &end);
  if (ended != BS_OK) *err = end;
  return ended != BS_OK ? ended : rc;
}

static int32_t run_segment(const gbinding *b, gcaptures *c, segment *s, bs_error *err) {
  const int captured = is_captured(b, s->first) && s->end - s->first >= LEAST_STEPS;
  if (!captured || c->state == NEW || c->state == REFUSED) return run_plain(b, s, err);
  bs_error why = BS_ERROR_INIT;
  if (c->state == SEEN && s->capture == NULL && keep(b, s, &why) != BS_OK) {
    const int32_t rc = bs_rank_sync(b->rank->rank, err); /* of segments that were queued before it */
    forget(b, c);
    c->state = REFUSED;
    snprintf(c->told, sizeof c->told, "%.199s", why.message);
    for (char *at = c->told; *at != '\0'; at++)
      if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
        *at = ' '; /* explain prints it as JSON, too */
    return rc == BS_OK ? run_plain(b, s, err) : rc;
  }
  return bs_rank_capture_run(b->rank->rank, s->capture, err);
}

int32_t gcapture_run(gbinding *b, bs_error *err) {
  gcaptures *c = b->captures;
  const uint64_t scratch = bs_rank_scratch_bytes(b->rank->rank);
  int32_t rc = BS_OK;
  if (c->scratch != scratch) gcapture_drop(b); /* it has grown, so it lies elsewhere */
  c->scratch = scratch;
  if (c->state == NEW) forget(b, c);
  for (uint32_t i = 0; i < c->n && rc == BS_OK; i++) rc = run_segment(b, c, &c->segments[i], err);
  if (rc == BS_OK && c->state == SEEN) c->state = KEPT;
  if (rc == BS_OK && c->state == NEW) c->state = SEEN;
  return rc;
}

void gcapture_tell(const gbinding *b, char *out, size_t size) {
  const gcaptures *c = b->captures;
  uint32_t segments = 0, steps = 0;
  out[0] = '\0';
  if (c == NULL) return;
  for (uint32_t i = 0; i < c->n; i++) {
    if (c->segments[i].capture == NULL) continue;
    segments++;
    steps += c->segments[i].end - c->segments[i].first;
  }
  if (c->state == KEPT)
    snprintf(out, size, "%u nodes in %u capture%s", steps, segments, segments == 1 ? "" : "s");
  else if (c->state == REFUSED)
    snprintf(out, size, "not captured: %s", c->told);
  else
    snprintf(out, size, "not captured yet: the second run with these sizes will be");
}
