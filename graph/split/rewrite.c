/* SPDX-License-Identifier: MIT
 * rewrite.c - the graph of one rank: split roots, states and their views become smaller, whole values that
 * are read in parts get a view for each rank, and products lose the bias, which their layer adds. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "graph/ir/internal.h"
#include "graph/split/split_inside.h"

uint32_t gsplit_writer(const graph *g, uint32_t value) {
  const uint32_t node = g->values[value].producer;
  return node != GNONE && graph_is_product(g->nodes[node].op) ? node : GNONE;
}

/* ---- split roots ----------------------------------------------------------------------------- */

static int32_t wrong(const graph *g, uint32_t value, const char *why, bs_error *err) {
  char name[32];
  return bs_error_set(err, BS_INTERNAL, "BS-SPLIT-VIEW", "value %s of a region %s",
                      graph_value_name(g, value, name), why);
}

static int is_live(const gvalue *v) {
  return v->producer != GNONE || v->first_use != GNONE;
}

/* No node uses it: it shows the first element alone. */
static void make_small(gvalue *v) {
  for (uint32_t d = 0; d < v->rank; d++) v->dims[d] = v->strides[d] = 1;
  v->offset = 0;
}

static void cut_output(const gsplit_root *root, int64_t ranks, gvalue *y) {
  y->dims[1] /= ranks;
  y->strides[0] = y->strides[0] / root->period * (root->period / ranks);
}

/* A root that no node uses itself has rows, whatever its dims were. */
static void make_rows(const gsplit_root *root, int64_t ranks, gvalue *v) {
  const int64_t dims[2] = {graph_count(v) / root->period, root->period / ranks};
  v->rank = 2;
  for (uint32_t d = 0; d < 2; d++) v->dims[d] = dims[d];
}

static int32_t cut_value(graph *g, const gsplit_root *root, uint32_t ranks, uint32_t i, bs_error *err) {
  gvalue *v = &g->values[i];
  const char *why = NULL;
  const int is_root = v->kind != GV_VIEW;
  int32_t rc = BS_OK;
  if (gsplit_writer(g, i) != GNONE) {
    cut_output(root, ranks, v);
  } else if (!is_root && !is_live(v)) {
    make_small(v);
  } else {
    rc = gsplit_view_local(root, ranks, v, &why);
    if (rc != BS_OK && is_root && !is_live(v)) {
      make_rows(root, ranks, v);
      rc = BS_OK;
    }
  }
  if (rc != BS_OK) return wrong(g, i, why, err);
  if (is_root) graph_dense_strides(v->rank, v->dims, v->strides);
  return is_root && v->offset != 0 ? wrong(g, i, "does not begin at its first element", err) : BS_OK;
}

/* ---- cut values ------------------------------------------------------------------------------ */

/* An earlier cut of the same value has its view; GNONE: none. */
static uint32_t same_cut(const graph *g, const gsplit *s, const uint32_t *from, uint32_t n) {
  const gsplit_cut *cut = &s->cuts[n];
  for (uint32_t i = 0; i < n; i++)
    if (from[i] == from[n] && s->cuts[i].dim == cut->dim) return g->nodes[s->cuts[i].node].in[s->cuts[i].arg];
  return GNONE;
}

static int32_t cut_views(graph *g, const gsplit *s, uint32_t rank, uint32_t *from, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < s->n_cuts && rc == BS_OK; i++) {
    const gsplit_cut *cut = &s->cuts[i];
    if (s->regions[cut->region].refused) {
      from[i] = GNONE;
      continue;
    }
    from[i] = g->nodes[cut->node].in[cut->arg];
    gvalue v = g->values[from[i]];
    uint32_t view = same_cut(g, s, from, i);
    v.dims[cut->dim] /= s->ranks;
    v.offset += rank * v.dims[cut->dim] * v.strides[cut->dim];
    if (view == GNONE)
      rc = graph_add_view(g, v.base, v.dtype, v.rank, v.dims, v.strides, v.offset, &view, err);
    if (rc == BS_OK) rc = graph_set_input(g, cut->node, cut->arg, view, err);
  }
  return rc;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static int32_t check_products(const graph *g, const gsplit *s, bs_error *err) {
  for (uint32_t i = 0; i < s->n_products; i++) {
    if (!gsplit_stands(s, i) || !s->products[i].residual) continue;
    char name[112];
    gsplit_name(g, s->products[i].node, name, sizeof name);
    return bs_error_set(err, BS_UNSUPPORTED, "BS-SPLIT-RESIDUAL",
                        "%s adds a residual, which no rank may add to its part of the sum", name);
  }
  return BS_OK;
}

int32_t gsplit_localise(graph *g, const gsplit *s, uint32_t rank, bs_error *err) {
  int32_t rc = s->ranks > 1 ? check_products(g, s, err) : BS_OK;
  if (rc != BS_OK || s->ranks <= 1) return rc;
  uint32_t *from = calloc(s->n_cuts + 1u, sizeof *from);
  if (from == NULL) return graph_no_memory(err);
  rc = cut_views(g, s, rank, from, err);
  free(from);
  for (uint32_t i = 0; i < s->n_roots && rc == BS_OK; i++) {
    if (s->regions[s->roots[i].region].refused) continue;
    for (uint32_t v = s->roots[i].root; v != GNONE && rc == BS_OK; v = g->values[v].next_view)
      rc = cut_value(g, &s->roots[i], s->ranks, v, err);
  }
  for (uint32_t i = 0; i < s->n_products && rc == BS_OK; i++)
    if (gsplit_stands(s, i)) rc = graph_set_input(g, s->products[i].node, 1, GNONE, err);
  return rc;
}

/* ---- residuals ------------------------------------------------------------------------------- */

static int32_t peel(graph *g, uint32_t id, bs_error *err) {
  const gnode n = g->nodes[id];
  const gvalue y = g->values[n.out[0]];
  uint32_t sum, made;
  gexpr add = {.compute = y.dtype == BS_F64 ? BS_F64 : BS_F32, .n_in = 2, .n_steps = 1, .n_out = 1};
  add.outs[0] = GX_STEP;
  add.steps[0].op = BS_EXPR_ADD;
  add.steps[0].b = GX_IN + 1;
  gnode map = {.op = GOP_MAP, .n_in = 2, .n_out = 1, .weight = GNONE, .origin = n.origin};
  for (uint32_t i = 0; i < GNODE_IN; i++) map.in[i] = GNONE;
  for (uint32_t i = 0; i < GNODE_OUT; i++) map.out[i] = GNONE;
  map.expr = graph_expr(g, &add);
  if (map.expr == GNONE) return graph_no_memory(err);
  int32_t rc = graph_add_root(g, GV_TEMP, y.dtype, y.rank, y.dims, NULL, NULL, &sum, err);
  if (rc == BS_OK) rc = graph_set_output(g, id, 0, sum, err);
  if (rc == BS_OK) rc = graph_set_input(g, id, 2, GNONE, err);
  map.in[0] = rc == BS_OK ? sum : GNONE;
  map.in[1] = n.in[2];
  map.out[0] = n.out[0];
  return rc == BS_OK ? graph_add_node(g, &map, n.next, &made, err) : rc;
}

int32_t gsplit_peel(graph *g, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t id = g->first, next; id != GNONE && rc == BS_OK; id = next) {
    next = g->nodes[id].next;
    if (graph_is_product(g->nodes[id].op) && g->nodes[id].in[2] != GNONE) rc = peel(g, id, err);
  }
  return rc;
}
