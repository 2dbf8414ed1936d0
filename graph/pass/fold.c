/* SPDX-License-Identifier: MIT
 * fold.c - nodes over constants alone are computed before the run: tables of angles, masks, scaled weights.
 */
#include <stdlib.h>

#include "core/base/error.h"
#include "graph/pass/pass.h"

/* No constant that is computed is larger than this, nor more than a few times what it came from. */
#define FOLD_LIMIT (UINT64_C(64) << 20)

static int over_constants(const graph *g, const gnode *n) {
  int all = !graph_is_packed(n->op);
  for (uint32_t i = 0; i < n->n_in && all; i++) all = n->in[i] == GNONE || graph_is_const(g, n->in[i]);
  return all;
}

/* 1: a node over constants may be folded. 0: *out_why is the reason why not. */
static int foldable(const graph *g, const gnode *n, const char **out_why) {
  uint64_t in = 0, out = 0;
  *out_why = "its result is an output of the model";
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] != GNONE) in += graph_bytes(&g->values[g->values[n->in[i]].base]);
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE) continue;
    const gvalue *root = &g->values[g->values[n->out[i]].base];
    if (root->flags & GV_OUTPUT) return 0;
    out += graph_bytes(root);
  }
  *out_why = "its result would be a constant of over 64 MiB, or of over 4 MiB and 4 times what it comes from";
  return out <= FOLD_LIMIT && (out <= 4u * in || out <= FOLD_LIMIT / 16u);
}

/* All writers of a root are foldable, or the root stays as it is. */
static void count_writers(const graph *g, uint32_t *open) {
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next)
    for (uint32_t k = 0; k < g->nodes[id].n_out; k++)
      if (g->nodes[id].out[k] != GNONE) open[g->values[g->nodes[id].out[k]].base]++;
}

/* A program gives its results to the places that its inputs have. */
static int follows_sizes(const graph *g, const gnode *n) {
  int any = 0;
  for (uint32_t i = 0; i < n->n_in; i++)
    any |= n->in[i] != GNONE && g->values[g->values[n->in[i]].base].flags & GV_FOLLOWS;
  return any;
}

static int32_t fold_node(graph *g, const gpass_ctx *ctx, uint32_t id, int *out_done, bs_error *err) {
  const gnode *n = &g->nodes[id];
  void *data[GNODE_OUT] = {NULL};
  bs_error why = BS_ERROR_INIT;
  const int32_t rc = ctx->fold(ctx->fold_user, g, n, data, &why);
  *out_done = rc == BS_OK;
  const int follows = n->op == GOP_MAP && follows_sizes(g, n);
  for (uint32_t k = 0; k < n->n_out && rc == BS_OK; k++) {
    if (n->out[k] == GNONE) continue;
    g->values[n->out[k]].data = data[k];
    g->values[n->out[k]].kind = GV_CONST;
    if (follows) g->values[n->out[k]].flags |= GV_FOLLOWS;
  }
  if (rc != BS_OK) gpass_miss(ctx, id, "ref does not compute it: %.100s", why.message);
  if (rc == BS_OK || rc == BS_UNSUPPORTED || rc == BS_UNAVAILABLE || rc == BS_NOT_FOUND) return BS_OK;
  if (err != NULL) *err = why;
  return rc;
}

int32_t gpass_fold(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  if (ctx->fold == NULL) return BS_OK;
  uint32_t *open = calloc(g->n_values + 1u, sizeof *open);
  if (open == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a pass");
  count_writers(g, open);
  int32_t rc = BS_OK;
  for (uint32_t id = g->first, next; id != GNONE && rc == BS_OK; id = next) {
    next = g->nodes[id].next;
    gnode *n = &g->nodes[id];
    int done = 0, parts = 0;
    for (uint32_t k = 0; k < n->n_out; k++)
      parts |= n->out[k] != GNONE &&
               (g->values[n->out[k]].kind == GV_VIEW || open[g->values[n->out[k]].base] != 1);
    const char *why = "it writes a part of a value";
    if (!over_constants(g, n)) continue;
    if (parts || !foldable(g, n, &why)) {
      gpass_miss(ctx, id, "%s", why);
      continue;
    }
    rc = fold_node(g, ctx, id, &done, err);
    if (!done || rc != BS_OK) continue;
    graph_remove_node(g, id);
    ++*out_changes;
  }
  free(open);
  return rc;
}
