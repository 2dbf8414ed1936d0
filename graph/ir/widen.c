/* SPDX-License-Identifier: MIT
 * widen.c - the same graph in f64: the reference that a graph is compared with; or in f32, beside quantised
 * weights. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/graph.h"
#include "graph/ir/internal.h"

static int is_narrow(uint32_t dtype, uint32_t to) {
  if (to == BS_F32) return dtype == BS_F16 || dtype == BS_BF16;
  return bs_dtype_is_float(dtype) && dtype != BS_F64;
}

/* The log-sum-exp of attention and the factors of its fp8 inputs are f32 by the op's schema. */
static void keep_f32(const graph *g, unsigned char *kept) {
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    const gnode *n = &g->nodes[id];
    if (n->op != GOP_ATTENTION) continue;
    if (n->n_out > 1 && n->out[1] != GNONE) kept[g->values[n->out[1]].base] = 1;
    if (n->n_in > 5 && n->in[5] != GNONE) kept[g->values[n->in[5]].base] = 1;
  }
}

/* In f32 weights stay as they are, and so do tables of which rows are taken: the rows are cast. */
static int32_t keep_weights(graph *g, unsigned char *kept, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    const gnode n = g->nodes[id];
    if (n.op == GOP_MATMUL) kept[g->values[n.weight].base] = 1;
    if (n.op != GOP_TAKE || !graph_is_const(g, n.in[0]) || !is_narrow(g->values[n.in[0]].dtype, BS_F32))
      continue;
    const gvalue out = g->values[n.out[0]];
    const gexpr copy = {.compute = BS_F32, .n_in = 1, .n_out = 1};
    gnode cast = {.op = GOP_MAP, .n_in = 1, .n_out = 1, .weight = GNONE, .origin = n.origin};
    int32_t rc = graph_add_root(g, GV_TEMP, out.dtype, out.rank, out.dims, NULL, NULL, &cast.in[0], err);
    cast.out[0] = n.out[0];
    cast.expr = graph_expr(g, &copy);
    if (rc == BS_OK && cast.expr == GNONE) rc = graph_no_memory(err);
    if (rc == BS_OK) rc = graph_set_output(g, id, 0, cast.in[0], err);
    if (rc == BS_OK) rc = graph_add_node(g, &cast, next, NULL, err);
    if (rc != BS_OK) return rc;
    kept[g->values[n.in[0]].base] = kept[cast.in[0]] = 1;
  }
  return BS_OK;
}

static int32_t widen_data(graph *g, uint32_t value, uint32_t to, bs_error *err) {
  const gvalue v = g->values[value];
  const uint64_t count = (uint64_t)graph_count(&v);
  void *aligned = malloc(count * BS_DTYPE_BYTES(v.dtype) + 1u);
  void *wide = graph_data(g, count * BS_DTYPE_BYTES(to));
  const int32_t rc =
      aligned == NULL || wide == NULL ? graph_no_memory(err) : graph_read_const(g, value, aligned, err);
  if (rc == BS_OK) {
    bs_convert(to, wide, v.dtype, aligned, count);
    g->values[value].data = wide;
    g->values[value].flags &= (uint16_t)~GV_JOINED;
  }
  free(aligned);
  return rc;
}

/* Steps that round (BS_EXPR_TO) stay: the model asks for these roundings. */
static void widen_expr(gexpr *e) {
  if (e->compute == BS_F32) e->compute = BS_F64;
}

int graph_has_ids(const graph *g) {
  int narrow = 0;
  for (uint32_t i = 0; i < g->n_inputs; i++)
    if (bs_dtype_is_float(g->values[g->inputs[i].value].dtype)) return 0;
  for (uint32_t i = 0; i < g->n_values; i++) narrow |= is_narrow(g->values[i].dtype, BS_F32);
  return narrow;
}

int32_t graph_widen(graph *g, uint32_t to, bs_error *err) {
  unsigned char *kept = calloc(g->n_values + g->n_live + 1u, 1);
  if (kept == NULL) return graph_no_memory(err);
  int32_t rc = BS_OK;
  if (to == BS_F64)
    keep_f32(g, kept);
  else
    rc = keep_weights(g, kept, err);
  /* Joined constants read their parts, which are widened after them: they were made later. */
  for (uint32_t i = g->n_values; i-- > 0 && rc == BS_OK;) {
    if (g->values[i].flags & GV_QUANT) kept[i] = 1; /* products take its codes, in f64 too */
    if (!is_narrow(g->values[i].dtype, to) || kept[g->values[i].base]) continue;
    if (g->values[i].kind == GV_CONST) rc = widen_data(g, i, to, err);
  }
  for (uint32_t i = 0; i < g->n_values && rc == BS_OK; i++)
    if (is_narrow(g->values[i].dtype, to) && !kept[g->values[i].base]) g->values[i].dtype = to;
  for (uint32_t i = 0; i < g->n_exprs && to == BS_F64; i++) widen_expr(&g->exprs[i]);
  free(kept);
  return rc == BS_OK ? graph_validate(g, to == BS_F64 ? "in f64" : "in f32", err) : rc;
}
