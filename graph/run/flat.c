/* SPDX-License-Identifier: MIT
 * flat.c - the hot loop of a run: calls of plans that were checked before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/usage.h"
#include "graph/run/run.h"
#include "graph/split/method.h"

int32_t gnode_failed(const graph *g, const gnode *n, int32_t rc, bs_error *err) {
  if (err == NULL) return rc;
  if (err->code == BS_OK || err->message[0] == '\0')
    bs_error_set(err, rc, "BS-OP-FAILED", "%s failed without a message", graph_op_name(n->op));
  if (strcmp(err->id, "BS-OP-INDEX") == 0) {
    char no_row[32];
    snprintf(no_row, sizeof no_row, "index %" PRId64 " ", GRAPH_NO_ROW);
    rc = BS_INPUT;
    if (strstr(err->message, no_row) != NULL) {
      bs_error_set(err, rc, "BS-GRAPH-ROWS",
                   "NonZero finds another number of rows than shapes or indices of the model allow");
      bs_error_hint(err, "an export holds the sizes of its example: export the model with such inputs");
    }
  }
  err->code = rc;
  if (n->origin != GNONE)
    bs_error_where(err, "%s of node %s", graph_op_name(n->op), graph_text_of(g, g->origins[n->origin].text));
  return rc;
}

int32_t gstep_run(const gstep *s, bs_error *err) {
  if (s->hosted != NULL) return ghosted_run(s->hosted, s, err);
  return s->layer != NULL ? glayer_run(s->layer, s->args, err)
                          : bs_dispatch_run_unchecked(s->plan, s->args, NULL, err);
}

static int32_t run_step(const gstep *s, bs_error *err) {
  if (s->file >= 0 && gtable_run(s)) return BS_OK;
  return gstep_run(s, err);
}

static int32_t run_steps(gbinding *b, bs_error *err) {
  if (err != NULL) err->code = BS_OK;
  if (b->captures != NULL) return gcapture_run(b, err);
  for (uint32_t i = 0; i < b->n_steps; i++) {
    const gstep *s = &b->steps[i];
    const int32_t rc = run_step(s, err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
  }
  return BS_OK;
}

static int32_t watch_steps(gbinding *b, void (*each)(void *user, const gbinding *b, const gstep *s),
                           void *user, bs_error *err) {
  if (err != NULL) err->code = BS_OK;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    gstep *s = &b->steps[i];
    gshadow shadow;
    int32_t rc = run_step(s, err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
    rc = gshadow_take(b, s, 0, &shadow, err);
    if (rc != BS_OK) return rc;
    each(user, b, s);
    gshadow_give(s, &shadow);
  }
  return BS_OK;
}

/* Adds a run of a step. A thread may lose its processor while what it has used is read, so what it slept is
 * never below 0. */
static void add_run(gstep *s, const bs_usage *before, const bs_usage *after) {
  const double seconds = after->seconds - before->seconds, cpu_s = after->cpu_s - before->cpu_s,
               asleep_s = seconds - cpu_s - (after->queued_s - before->queued_s);
  s->runs++;
  s->ns += (uint64_t)(seconds * 1e9);
  s->cpu_ns += (uint64_t)(cpu_s * 1e9);
  if (asleep_s > 0) s->asleep_ns += (uint64_t)(asleep_s * 1e9);
  s->waits += after->sleeps - before->sleeps;
}

/* The same by the virtual clock of a rank without values: the nodes' times add up to the run's. */
static int32_t profile_phantom(gbinding *b, bs_error *err) {
  if (err != NULL) err->code = BS_OK;
  uint64_t before = bs_rank_clock_ns(b->rank->rank);
  for (uint32_t i = 0; i < b->n_steps; i++) {
    gstep *s = &b->steps[i];
    const int32_t rc = run_step(s, err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
    const uint64_t after = bs_rank_clock_ns(b->rank->rank);
    s->runs++;
    s->ns += after - before;
    before = after;
  }
  return BS_OK;
}

static int32_t profile_steps(gbinding *b, bs_error *err) {
  if (b->rank->phantom) return profile_phantom(b, err);
  if (err != NULL) err->code = BS_OK;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    gstep *s = &b->steps[i];
    const bs_usage before = bs_usage_now(1);
    int32_t rc = run_step(s, err);
    if (rc == BS_OK && b->rank->apart) rc = bs_rank_sync(b->rank->rank, err);
    const bs_usage after = bs_usage_now(0);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
    add_run(s, &before, &after);
  }
  return BS_OK;
}

/* After an error: copies that are under way read and write memory of the host, which may be freed next. */
static int32_t leave(gbinding *b, int32_t rc, bs_error *err) {
  if (rc != BS_OK && b->rank->apart) bs_rank_sync(b->rank->rank, NULL);
  return grank_leave(b->rank, rc, err);
}

int32_t gflat_run(gbinding *b, int profile, bs_error *err) {
  int32_t rc = grank_enter(b->rank, err);
  if (rc != BS_OK) return rc;
  gcut_set(b, b->length);
  rc = gports_up(b, err);
  if (rc == BS_OK) rc = profile ? profile_steps(b, err) : run_steps(b, err);
  if (rc == BS_OK) rc = gports_down(b, err);
  return leave(b, rc, err);
}

int32_t gflat_watch(gbinding *b, void (*each)(void *user, const gbinding *b, const gstep *s), void *user,
                    bs_error *err) {
  int32_t rc = grank_enter(b->rank, err);
  if (rc != BS_OK) return rc;
  gcut_set(b, b->length);
  rc = gports_up(b, err);
  if (rc == BS_OK) rc = watch_steps(b, each, user, err);
  if (rc == BS_OK) rc = gports_down(b, err);
  return leave(b, rc, err);
}
