/* SPDX-License-Identifier: MIT
 * merge.c - products that read the same rows, with constant weights, become one product whose weight has the
 * rows of all: Q, K and V of an attention, gate and up of a feed-forward part. Who read one of them reads
 * columns of the whole. The weights are not copied: they are packed side by side from where they lie. */
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"

typedef struct group {
  uint32_t n, nodes[GJOIN_MAX];
  int64_t columns; /* of all */
} group;

/* A product of the rows that `first` reads: most nodes are no such product, and are passed over quickly. */
static int reads_same(const graph *g, uint32_t first, uint32_t id) {
  return graph_is_product(g->nodes[id].op) &&
         g->values[g->nodes[id].in[0]].base == g->values[g->nodes[first].in[0]].base;
}

/* Not of one column: what reads the column as a row would find gaps, which kernels of rows do not take. */
static int is_joinable(const graph *g, uint32_t id) {
  const gnode *n = &g->nodes[id];
  if (!graph_is_product(n->op) || n->in[2] != GNONE) return 0;
  const gvalue *w = &g->values[n->weight], *y = &g->values[n->out[0]];
  const gvalue *root = &g->values[y->base];
  const gquant *quant = graph_quant(g, n->weight);
  return !(w->flags & GV_JOINED) && (quant == NULL || quant->n_keys == 1) && !(root->flags & GV_OUTPUT) &&
         match_producer(g, n->out[0]) == id && y->dims[1] > 1 &&
         (n->in[1] == GNONE || graph_is_const(g, n->in[1]));
}

/* Weights of one dtype, or quantised in one form. */
static int alike_weights(const graph *g, uint32_t a, uint32_t b) {
  const gquant *x = graph_quant(g, a), *y = graph_quant(g, b);
  if (x == NULL || y == NULL) return x == y && g->values[a].dtype == g->values[b].dtype;
  return graph_quants_join(x, y);
}

static int alike(const graph *g, uint32_t a, uint32_t b) {
  const gnode *x = &g->nodes[a], *y = &g->nodes[b];
  return x->op == y->op && memcmp(x->attrs, y->attrs, sizeof x->attrs) == 0 &&
         match_same(g, x->in[0], y->in[0]) && x->activation == y->activation &&
         x->accumulate == y->accumulate && (x->in[1] == GNONE) == (y->in[1] == GNONE) &&
         alike_weights(g, x->weight, y->weight) && g->values[x->out[0]].dtype == g->values[y->out[0]].dtype &&
         (x->in[1] == GNONE || g->values[x->in[1]].dtype == g->values[y->in[1]].dtype);
}

/* A view of a dense [B,n] value as one of columns `from`.. of a [B,all] value: whole rows are `all` apart. 0:
 * it runs over the end of a row. */
static int columns_of(const gvalue *v, int64_t n, int64_t from, int64_t all, int64_t *out_strides,
                      int64_t *out_offset) {
  int64_t column = v->offset % n;
  for (uint32_t i = 0; i < v->rank; i++) {
    out_strides[i] = v->strides[i];
    if (v->dims[i] <= 1) continue;
    if (v->strides[i] >= n) {
      if (v->strides[i] % n != 0) return 0;
      out_strides[i] = v->strides[i] / n * all;
    } else {
      column += (v->dims[i] - 1) * v->strides[i];
    }
  }
  *out_offset = v->offset / n * all + v->offset % n + from;
  return column < n;
}

/* Every value that shows a part of the product's output can be columns of a larger one. */
static int readers_fit(const graph *g, uint32_t id) {
  const uint32_t root = g->values[g->nodes[id].out[0]].base;
  const int64_t n = g->values[g->nodes[id].out[0]].dims[1];
  int64_t strides[BS_MAX_DIMS], offset;
  for (uint32_t i = root; i != GNONE; i = g->values[i].next_view)
    if (g->values[i].first_use != GNONE && !columns_of(&g->values[i], n, 0, 2 * n, strides, &offset))
      return 0;
  return 1;
}

static group find_group(const graph *g, const gpass_ctx *ctx, uint32_t first) {
  group found = {1, {first}, g->values[g->nodes[first].out[0]].dims[1]};
  const int fits = is_joinable(g, first) && readers_fit(g, first);
  for (uint32_t id = g->nodes[first].next; id != GNONE && found.n < GJOIN_MAX; id = g->nodes[id].next) {
    if (!reads_same(g, first, id) || !graph_is_product(g->nodes[id].op)) continue;
    if (!fits || !is_joinable(g, id)) {
      gpass_miss(ctx, fits ? id : first,
                 "it has a residual, one column, a bias that is computed or a joined weight, or its result "
                 "is an output "
                 "or is read as no whole rows");
      continue;
    }
    if (!alike(g, first, id) || !readers_fit(g, id)) {
      gpass_miss(ctx, id,
                 alike(g, first, id) ? "a reader of the product sees it as no whole rows"
                                     : "another product of the same rows has a bias, an activation or a "
                                       "dtype that this one has not");
      continue;
    }
    found.nodes[found.n++] = id;
    found.columns += g->values[g->nodes[id].out[0]].dims[1];
  }
  return found;
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a pass");
}

static int32_t join_weights(graph *g, const group *all, uint32_t *out_value, bs_error *err) {
  const gvalue w = g->values[g->nodes[all->nodes[0]].weight];
  if (w.flags & GV_QUANT) {
    uint32_t parts[GJOIN_MAX];
    for (uint32_t i = 0; i < all->n; i++) parts[i] = g->nodes[all->nodes[i]].weight;
    return graph_join_quants(g, parts, all->n, out_value, err);
  }
  const int64_t dims[2] = {all->columns, w.dims[1]};
  gjoin *join = graph_data(g, sizeof *join);
  if (join == NULL) return no_memory(err);
  join->n = all->n;
  for (uint32_t i = 0; i < all->n; i++) join->parts[i] = g->nodes[all->nodes[i]].weight;
  const int32_t rc = graph_add_root(g, GV_CONST, w.dtype, 2, dims, join, NULL, out_value, err);
  if (rc == BS_OK) g->values[*out_value].flags |= GV_JOINED;
  return rc;
}

static int32_t join_biases(graph *g, const group *all, uint32_t *out_value, bs_error *err) {
  const uint32_t first = g->nodes[all->nodes[0]].in[1];
  *out_value = GNONE;
  if (first == GNONE) return BS_OK;
  const uint32_t dtype = g->values[first].dtype;
  unsigned char *data = graph_data(g, (uint64_t)all->columns * BS_DTYPE_BYTES(dtype)), *to = data;
  if (data == NULL) return no_memory(err);
  for (uint32_t i = 0; i < all->n; i++) {
    const uint32_t bias = g->nodes[all->nodes[i]].in[1];
    const int32_t rc = graph_read_const(g, bias, to, err);
    if (rc != BS_OK) return rc;
    to += (uint64_t)graph_count(&g->values[bias]) * BS_DTYPE_BYTES(dtype);
  }
  return graph_add_root(g, GV_CONST, dtype, 1, &all->columns, data, NULL, out_value, err);
}

/* Makes every reader of the node's output read the columns from `from` on of the whole. */
static int32_t move_readers(graph *g, uint32_t id, uint32_t whole, int64_t from, int64_t all, bs_error *err) {
  const uint32_t root = g->values[g->nodes[id].out[0]].base;
  const int64_t n = g->values[g->nodes[id].out[0]].dims[1];
  for (uint32_t i = root; i != GNONE; i = g->values[i].next_view) {
    if (g->values[i].first_use == GNONE) continue;
    const gvalue v = g->values[i];
    int64_t strides[BS_MAX_DIMS] = {0}, offset = 0;
    uint32_t view;
    if (!columns_of(&v, n, from, all, strides, &offset))
      return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-MERGE", "a reader of value %u does not fit", i);
    int32_t rc = graph_add_view(g, whole, v.dtype, v.rank, v.dims, strides, offset, &view, err);
    while (rc == BS_OK && g->values[i].first_use != GNONE) {
      const guse use = g->uses[g->values[i].first_use];
      rc = graph_set_input(g, use.node, use.arg, view, err);
    }
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* *out_node: the product of all. */
static int32_t merge(graph *g, const group *all, uint32_t *out_node, bs_error *err) {
  gnode n = g->nodes[all->nodes[0]];
  const gvalue y = g->values[n.out[0]];
  const int64_t dims[2] = {y.dims[0], all->columns};
  uint32_t whole;
  int64_t from = 0;
  int32_t rc = join_weights(g, all, &n.weight, err);
  if (rc == BS_OK) rc = join_biases(g, all, &n.in[1], err);
  if (rc == BS_OK) rc = graph_add_root(g, GV_TEMP, y.dtype, 2, dims, NULL, NULL, &whole, err);
  for (uint32_t i = 0; i < all->n && rc == BS_OK; i++) {
    rc = move_readers(g, all->nodes[i], whole, from, all->columns, err);
    from += g->values[g->nodes[all->nodes[i]].out[0]].dims[1];
    if (i > 0) n.origin = graph_origin_join(g, n.origin, g->nodes[all->nodes[i]].origin);
  }
  if (rc != BS_OK) return rc;
  n.out[0] = whole;
  const uint32_t at = g->nodes[all->nodes[0]].next;
  rc = graph_add_node(g, &n, at, out_node, err);
  for (uint32_t i = 0; i < all->n; i++) graph_remove_node(g, all->nodes[i]);
  return rc;
}

int32_t gpass_merge(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (!graph_is_product(g->nodes[id].op)) continue;
    const group all = find_group(g, ctx, id);
    if (all.n < 2) continue;
    const int32_t rc = merge(g, &all, &next, err);
    if (rc != BS_OK) return rc;
    ++*out_changes;
    next = g->nodes[next].next; /* merging leaves nodes before as they were */
  }
  return BS_OK;
}
