/* SPDX-License-Identifier: MIT
 * view.c - a copy of all of a value into another order, or into a part of a larger value, goes away: the node
 * that makes the value writes it there. Heads are turned back and parts of Concat are written in place so. */
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"

static int is_copy(const graph *g, const gnode *n) {
  if (n->op != GOP_MAP || n->n_out != 1) return 0;
  return g->exprs[n->expr].outs[0] == GX_IN && g->values[n->in[0]].dtype == g->values[n->out[0]].dtype;
}

/* The copy's source has all elements of its root once, in another order: dims by falling strides are the
 * root's own order, so that it begins at the first element. *out_strides: the strides of the root's dims in
 * the memory that the copy writes. */
static int turned(const gvalue *from, const gvalue *root, const gvalue *to, int64_t *out_strides) {
  int64_t dims[BS_MAX_DIMS], strides[BS_MAX_DIMS], target[BS_MAX_DIMS], dense = 1;
  uint32_t n = 0;
  if (graph_count(from) != graph_count(root)) return 0;
  for (uint32_t i = 0; i < from->rank; i++) {
    if (from->dims[i] != to->dims[i]) return 0;
    if (from->dims[i] == 1) continue;
    uint32_t at = n++;
    for (; at > 0 && strides[at - 1] < from->strides[i]; at--) {
      dims[at] = dims[at - 1];
      strides[at] = strides[at - 1];
      target[at] = target[at - 1];
    }
    dims[at] = from->dims[i];
    strides[at] = from->strides[i];
    target[at] = to->strides[i];
  }
  for (uint32_t i = n; i-- > 0; dense *= dims[i])
    if (strides[i] != dense) return 0;
  return graph_reshape_strides(n, dims, target, root->rank, root->dims, out_strides);
}

/* Which outputs may have gaps: rows of all ops but map's have none. */
static int may_write(const gnode *n, const gvalue *root, const int64_t *strides) {
  switch (n->op) {
    case GOP_MAP:
      return 1;
    case GOP_MATMUL:
    case GOP_MATMUL_Q:
    case GOP_TAKE_Q:
    case GOP_NORMALIZE:
    case GOP_ATTENTION:
    case GOP_CONTRACT:
    case GOP_TAKE:
      return root->rank > 0 && (root->dims[root->rank - 1] == 1 || strides[root->rank - 1] == 1);
    default:
      return 0;
  }
}

static int32_t try_copy(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes, bs_error *err) {
  const gnode copy = g->nodes[id];
  const gvalue from = g->values[copy.in[0]], root = g->values[from.base], to = g->values[copy.out[0]];
  int64_t strides[BS_MAX_DIMS] = {0};
  const char *why = root.producer == GNONE               ? "what it copies is no result of one node"
                    : g->values[to.base].kind != GV_TEMP ? "it writes into a state"
                    : graph_sole_user(g, from.base) != id
                        ? "what it copies is read by another node or port too"
                    : !turned(&from, &root, &to, strides) ? "it is no copy of all elements in another order"
                                                          : NULL;
  if (why != NULL) {
    gpass_miss(ctx, id, "%s", why);
    return BS_OK;
  }
  const uint32_t producer = root.producer;
  uint32_t k = 0, view;
  while (g->nodes[producer].out[k] != from.base) k++;
  if (!may_write(&g->nodes[producer], &root, strides)) {
    gpass_miss(ctx, id, "%s in front writes rows without gaps alone", graph_op_name(g->nodes[producer].op));
    return BS_OK;
  }
  int32_t rc = graph_add_view(g, to.base, root.dtype, root.rank, root.dims, strides, to.offset, &view, err);
  if (rc != BS_OK) return rc;
  const uint32_t origin = graph_origin_join(g, g->nodes[producer].origin, copy.origin);
  graph_remove_node(g, id);
  rc = graph_set_output(g, producer, k, view, err);
  g->nodes[producer].origin = origin;
  ++*out_changes;
  return rc;
}

int32_t gpass_view(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (!is_copy(g, &g->nodes[id])) continue;
    const int32_t rc = try_copy(g, ctx, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
