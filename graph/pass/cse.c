/* SPDX-License-Identifier: MIT
 * cse.c - of two nodes that compute the same of the same values, the second goes, and who read it reads the
 * first: the cosines that each layer takes by the same positions, a mask that each layer makes again. It runs
 * after the fusions, which want each intermediate result to have one reader. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"

enum { FEW = 16 }; /* elements of constants that are compared by their data */

static int same_data(const graph *g, uint32_t a, uint32_t b) {
  unsigned char x[FEW * 8], y[FEW * 8];
  const gvalue *v = &g->values[a];
  if (v->dtype != g->values[b].dtype || !match_dims(g, a, b) || graph_count(v) > FEW) return 0;
  int32_t rc = graph_read_const(g, a, x, NULL);
  if (rc == BS_OK) rc = graph_read_const(g, b, y, NULL);
  if (rc != BS_OK) return 0; /* not constants */
  return memcmp(x, y, (size_t)graph_bytes(v)) == 0;
}

static int same_value(const graph *g, uint32_t a, uint32_t b) {
  if (a == GNONE || b == GNONE) return a == b;
  return match_same(g, a, b) || same_data(g, a, b);
}

/* Results that other nodes may read in the place of each other: whole roots of the same shape. A port has
 * separate memory. */
static int same_results(const graph *g, uint32_t first, uint32_t second) {
  const gnode *a = &g->nodes[first], *b = &g->nodes[second];
  for (uint32_t k = 0; k < a->n_out; k++) {
    if (a->out[k] == b->out[k]) continue; /* none */
    if (match_producer(g, a->out[k]) != first || match_producer(g, b->out[k]) != second ||
        g->values[a->out[k]].dtype != g->values[b->out[k]].dtype || !match_dims(g, a->out[k], b->out[k]) ||
        (g->values[g->values[b->out[k]].base].flags & GV_OUTPUT) != 0)
      return 0;
  }
  return 1;
}

static int same_work(const graph *g, uint32_t first, uint32_t second) {
  const gnode *a = &g->nodes[first], *b = &g->nodes[second];
  if (a->op != b->op || a->expr != b->expr || a->activation != b->activation ||
      a->accumulate != b->accumulate || memcmp(a->attrs, b->attrs, sizeof a->attrs) != 0 ||
      !same_value(g, a->weight, b->weight) ||
      (a->weight != GNONE && g->values[a->weight].scale != g->values[b->weight].scale))
    return 0;
  for (uint32_t i = 0; i < sizeof a->numbers / sizeof a->numbers[0]; i++)
    if (a->numbers[i] != b->numbers[i]) return 0;
  for (uint32_t i = 0; i < a->n_in; i++)
    if (!same_value(g, a->in[i], b->in[i])) return 0;
  return 1;
}

/* The root of an input that is not a constant. GNONE for a node that reads a state or writes one: it changes.
 */
static uint32_t anchor_of(const graph *g, const gnode *n) {
  uint32_t found = GNONE;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (n->in[i] == GNONE) continue;
    const uint32_t root = g->values[n->in[i]].base;
    if (g->values[root].kind == GV_STATE) return GNONE;
    if (g->values[root].kind != GV_CONST) found = root;
  }
  return n->op == GOP_PUT ? GNONE : found;
}

/* A node before the node `id` that equals it; GNONE. */
static uint32_t find_equal(const graph *g, const gpass_ctx *ctx, const uint32_t *order, uint32_t id) {
  for (uint32_t v = anchor_of(g, &g->nodes[id]); v != GNONE; v = g->values[v].next_view)
    for (uint32_t u = g->values[v].first_use; u != GNONE; u = g->uses[u].next)
      if (order[g->uses[u].node] < order[id] && same_work(g, g->uses[u].node, id)) {
        if (same_results(g, g->uses[u].node, id)) return g->uses[u].node;
        gpass_miss(ctx, id,
                   "an equal node is there, but its results lie in parts of a value, or a port has these");
      }
  return GNONE;
}

/* All that reads a result of `second` reads that of `first`. */
static int32_t use_first(graph *g, uint32_t first, uint32_t second, bs_error *err) {
  int32_t rc = BS_OK;
  g->nodes[first].origin = graph_origin_join(g, g->nodes[first].origin, g->nodes[second].origin);
  graph_remove_node(g, second);
  for (uint32_t k = 0; rc == BS_OK && k < g->nodes[first].n_out; k++) {
    if (g->nodes[first].out[k] == GNONE) continue;
    const uint32_t from = g->values[g->nodes[second].out[k]].base;
    const gvalue root = g->values[from];
    uint32_t to;
    rc = match_reshape(g, g->values[g->nodes[first].out[k]].base, root.rank, root.dims, &to, err);
    if (rc == BS_OK) rc = graph_replace(g, from, to, err);
  }
  return rc;
}

int32_t gpass_cse(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  uint32_t *order = malloc((g->n_nodes + 1u) * sizeof *order), at = 0;
  if (order == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a pass");
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) order[id] = at++;
  int32_t rc = BS_OK;
  for (uint32_t id = g->first, next; id != GNONE && rc == BS_OK; id = next) {
    next = g->nodes[id].next;
    const uint32_t first = find_equal(g, ctx, order, id);
    if (first == GNONE) continue;
    rc = use_first(g, first, id, err);
    ++*out_changes;
  }
  free(order);
  return rc;
}
