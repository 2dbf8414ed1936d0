/* SPDX-License-Identifier: MIT
 * flat.c - the hot loop of a run: calls of plans that were checked before. */
#include <string.h>

#include "core/base/error.h"
#include "graph/run/run.h"

/* Which of the model's nodes failed. */
static int32_t step_failed(const gbinding *b, const gstep *s, int32_t rc, bs_error *err) {
  const gnode *n = &b->g->nodes[s->node];
  if (err == NULL) return rc;
  if (err->code == BS_OK || err->message[0] == '\0')
    bs_error_set(err, rc, "BS-OP-FAILED", "%s failed without a message", graph_op_name(n->op));
  /* The places come from the model's inputs: the data is wrong, and no argument of the caller's. */
  if (strcmp(err->id, "BS-OP-INDEX") == 0) rc = BS_INPUT;
  err->code = rc;
  if (n->origin != GNONE)
    bs_error_where(err, "%s of node %s", graph_op_name(n->op),
                   graph_text_of(b->g, b->g->origins[n->origin].text));
  return rc;
}

static int32_t run_steps(gbinding *b, int profile, bs_error *err) {
  if (err != NULL) err->code = BS_OK;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    gstep *s = &b->steps[i];
    const double began = profile ? gclock_s() : 0;
    const int32_t rc = bs_dispatch_run_unchecked(s->plan, s->args, NULL, err);
    if (rc != BS_OK) return step_failed(b, s, rc, err);
    if (!profile) continue;
    s->runs++;
    s->ns += (uint64_t)((gclock_s() - began) * 1e9);
  }
  return BS_OK;
}

int32_t gflat_run(gbinding *b, int profile, bs_error *err) {
  const int32_t rc = grank_enter(&b->core->rank, err);
  return rc == BS_OK ? grank_leave(&b->core->rank, run_steps(b, profile, err), err) : rc;
}
