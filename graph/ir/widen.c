/* SPDX-License-Identifier: MIT
 * widen.c - the same graph in f64: the reference that a graph is compared with. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/graph.h"
#include "graph/ir/internal.h"

static int is_narrow(uint32_t dtype) {
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

static int32_t widen_data(graph *g, uint32_t value, bs_error *err) {
  const gvalue v = g->values[value];
  const uint64_t count = (uint64_t)graph_count(&v);
  void *aligned = malloc(count * BS_DTYPE_BYTES(v.dtype) + 1u);
  double *wide = graph_data(g, count * sizeof *wide);
  const int32_t rc =
      aligned == NULL || wide == NULL ? graph_no_memory(err) : graph_read_const(g, value, aligned, err);
  if (rc == BS_OK) {
    bs_convert(BS_F64, wide, v.dtype, aligned, count);
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

int32_t graph_widen(graph *g, bs_error *err) {
  unsigned char *kept = calloc(g->n_values + 1u, 1);
  if (kept == NULL) return graph_no_memory(err);
  keep_f32(g, kept);
  int32_t rc = BS_OK;
  /* Joined constants read their parts, which are widened after them: they were made later. */
  for (uint32_t i = g->n_values; i-- > 0 && rc == BS_OK;) {
    if (!is_narrow(g->values[i].dtype) || kept[g->values[i].base]) continue;
    if (g->values[i].kind == GV_CONST) rc = widen_data(g, i, err);
  }
  for (uint32_t i = 0; i < g->n_values && rc == BS_OK; i++)
    if (is_narrow(g->values[i].dtype) && !kept[g->values[i].base]) g->values[i].dtype = BS_F64;
  for (uint32_t i = 0; i < g->n_exprs; i++) widen_expr(&g->exprs[i]);
  free(kept);
  return rc == BS_OK ? graph_validate(g, "in f64", err) : rc;
}
