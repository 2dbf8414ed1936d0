/* SPDX-License-Identifier: MIT
 * flat.c - the hot loop of a run: calls of plans that were checked before. */
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "graph/run/run.h"

int32_t gnode_failed(const graph *g, const gnode *n, int32_t rc, bs_error *err) {
  if (err == NULL) return rc;
  if (err->code == BS_OK || err->message[0] == '\0')
    bs_error_set(err, rc, "BS-OP-FAILED", "%s failed without a message", graph_op_name(n->op));
  if (strcmp(err->id, "BS-OP-INDEX") == 0) rc = BS_INPUT;
  err->code = rc;
  if (n->origin != GNONE)
    bs_error_where(err, "%s of node %s", graph_op_name(n->op), graph_text_of(g, g->origins[n->origin].text));
  return rc;
}

static int32_t run_steps(gbinding *b, int profile, bs_error *err) {
  if (err != NULL) err->code = BS_OK;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    gstep *s = &b->steps[i];
    const double began = profile ? bs_clock_s() : 0;
    const int32_t rc = bs_dispatch_run_unchecked(s->plan, s->args, NULL, err);
    if (rc != BS_OK) return gnode_failed(b->g, &b->g->nodes[s->node], rc, err);
    if (!profile) continue;
    s->runs++;
    s->ns += (uint64_t)((bs_clock_s() - began) * 1e9);
  }
  return BS_OK;
}

int32_t gflat_run(gbinding *b, int profile, bs_error *err) {
  const int32_t rc = grank_enter(&b->core->rank, err);
  return rc == BS_OK ? grank_leave(&b->core->rank, run_steps(b, profile, err), err) : rc;
}
