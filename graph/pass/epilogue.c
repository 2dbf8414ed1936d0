/* SPDX-License-Identifier: MIT
 * epilogue.c - what follows a product element by element becomes part of it: bias, activation, residual; a
 * sum in front of a normalisation becomes part of that. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/op/dispatch.h"
#include "graph/ir/query.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

/* act(y + bias) + residual: which input of the program is which. */
typedef struct roles {
  uint32_t y, bias, residual; /* slots; GNONE: there is none */
  uint32_t activation;
} roles;

static double activated(uint32_t activation, double x) {
  switch (activation) {
    case BS_ACT_RELU:
      return x > 0 ? x : 0;
    case BS_ACT_GELU:
      return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case BS_ACT_SILU:
      return x / (1 + exp(-x));
    case BS_ACT_GELU_TANH:
      return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    default:
      return x;
  }
}

static double wanted(const double *in, const void *arg) {
  const roles *r = arg;
  double x = in[r->y];
  if (r->bias != GNONE) x += in[r->bias];
  x = activated(r->activation, x);
  return r->residual != GNONE ? x + in[r->residual] : x;
}

/* Slots of the map by their shapes: rows are biases, whole values residuals. 0: another one, or two of a
 * kind. */
static int assign(const graph *g, const gnode *map, uint32_t y, int64_t columns, roles *out) {
  const gvalue *out_value = &g->values[map->out[0]];
  *out = (roles){y, GNONE, GNONE, 0};
  for (uint32_t i = 0; i < map->n_in; i++) {
    const gvalue *v = &g->values[map->in[i]];
    if (i == y) continue;
    if (v->dtype != out_value->dtype) return 0;
    const int row = match_row(g, map->in[i], columns), whole = graph_count(v) == graph_count(out_value);
    const int prefer = !whole || graph_is_const(g, map->in[i]); /* of one token both are possible */
    if (row && out->bias == GNONE && (prefer || out->residual != GNONE))
      out->bias = i;
    else if (whole && out->residual == GNONE)
      out->residual = i;
    else
      return 0;
  }
  return 1;
}

static int find_roles(const graph *g, const gnode *map, uint32_t y, int64_t columns, roles *out) {
  if (!assign(g, map, y, columns, out)) return 0;
  for (out->activation = BS_ACT_NONE; out->activation <= BS_ACT_GELU_TANH; out->activation++)
    if (program_is(&g->exprs[map->expr], wanted, out)) return 1;
  return 0;
}

/* The views of the map's values as the product's arguments; *out_ok 0: one would need a copy. */
static int32_t arguments(graph *g, const gnode *map, const roles *r, const int64_t *dims, gnode *io_product,
                         int *out_ok, bs_error *err) {
  int32_t rc = match_reshape(g, map->out[0], 2, dims, &io_product->out[0], err);
  if (rc == BS_OK && r->bias != GNONE)
    rc = match_reshape(g, map->in[r->bias], 1, &dims[1], &io_product->in[1], err);
  if (rc == BS_OK && r->residual != GNONE)
    rc = match_reshape(g, map->in[r->residual], 2, dims, &io_product->in[2], err);
  if (rc != BS_OK) return rc;
  *out_ok = io_product->out[0] != GNONE && (r->bias == GNONE || io_product->in[1] != GNONE) &&
            (r->residual == GNONE || io_product->in[2] != GNONE);
  const uint32_t rows[2] = {io_product->out[0], io_product->in[2]};
  for (uint32_t i = 0; i < 2 && *out_ok; i++)
    *out_ok = rows[i] == GNONE || dims[1] == 1 || g->values[rows[i]].strides[1] == 1;
  return rc;
}

static int32_t try_product(graph *g, uint32_t map_id, uint32_t slot, uint32_t *out_changes, bs_error *err) {
  const gnode map = g->nodes[map_id];
  const uint32_t product_id = match_only(g, map.in[slot], GOP_MATMUL, map_id);
  if (product_id == GNONE || match_slot(g, &map, g->values[map.in[slot]].base) != slot) return BS_OK;
  gnode product = g->nodes[product_id];
  const gvalue y = g->values[product.out[0]];
  roles r;
  int ok = 0;
  if (product.in[2] != GNONE || product.activation != BS_ACT_NONE || map.n_out != 1 || y.kind != GV_TEMP ||
      g->values[map.out[0]].dtype != y.dtype || g->exprs[map.expr].compute != y.dtype ||
      !find_roles(g, &map, slot, y.dims[1], &r) || (r.bias != GNONE && product.in[1] != GNONE))
    return BS_OK;
  int32_t rc = arguments(g, &map, &r, y.dims, &product, &ok, err);
  if (rc != BS_OK || !ok) return rc;
  product.activation = r.activation;
  gquery q;
  graph_query(g, &product, &q);
  if (bs_op_check(&q.query, NULL) != BS_OK) return BS_OK; /* the op does not take this epilogue */
  product.origin = graph_origin_join(g, product.origin, map.origin);
  const uint32_t at = g->nodes[map_id].next;
  graph_remove_node(g, map_id);
  graph_remove_node(g, product_id);
  rc = graph_add_node(g, &product, at, NULL, err);
  ++*out_changes;
  return rc;
}

/* ---- sums before normalisations -------------------------------------------------------------- */

static double sum_of_two(const double *in, const void *arg) {
  (void)arg;
  return in[0] + in[1];
}

/* Every reader of the sum runs after the normalisation, which will write it. *out_others: there are some. */
static int readers_follow(const graph *g, uint32_t root, uint32_t norm, int *out_others) {
  *out_others = (g->values[root].flags & GV_OUTPUT) != 0;
  for (uint32_t i = root; i != GNONE; i = g->values[i].next_view) {
    for (uint32_t u = g->values[i].first_use; u != GNONE; u = g->uses[u].next) {
      if (g->uses[u].node == norm) continue;
      *out_others = 1;
      if (!match_before(g, norm, g->uses[u].node)) return 0;
    }
  }
  return 1;
}

static int32_t try_norm(graph *g, uint32_t id, uint32_t *out_changes, bs_error *err) {
  gnode n = g->nodes[id];
  const uint32_t sum = n.in[0], add_id = match_producer(g, sum);
  int others = 0;
  if (n.in[1] != GNONE || (n.n_out > 1 && n.out[1] != GNONE) || add_id == GNONE ||
      g->nodes[add_id].op != GOP_MAP)
    return BS_OK;
  const gnode add = g->nodes[add_id];
  const gvalue v = g->values[sum];
  if (add.out[0] != sum || add.n_in != 2 || add.n_out != 1 || g->exprs[add.expr].compute != v.dtype ||
      !program_is(&g->exprs[add.expr], sum_of_two, NULL) || !readers_follow(g, sum, id, &others))
    return BS_OK;
  const uint32_t x = graph_count(&g->values[add.in[0]]) == graph_count(&v) ? 0 : 1;
  for (uint32_t i = 0; i < 2; i++) {
    const gvalue *a = &g->values[add.in[i]];
    if (a->dtype != v.dtype || a->rank != v.rank ||
        (a->rank > 0 && a->dims[a->rank - 1] > 1 && a->strides[a->rank - 1] != 1))
      return BS_OK;
  }
  if (graph_count(&g->values[add.in[x]]) != graph_count(&v)) return BS_OK;
  n.in[0] = add.in[x];
  n.in[1] = add.in[1 - x];
  n.origin = graph_origin_join(g, n.origin, add.origin);
  if (others) {
    n.n_out = 2;
    n.out[1] = sum;
  }
  const uint32_t at = g->nodes[id].next;
  graph_remove_node(g, id);
  graph_remove_node(g, add_id);
  ++*out_changes;
  return graph_add_node(g, &n, at, NULL, err);
}

int32_t gpass_epilogue(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  (void)ctx;
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    for (uint32_t slot = 0; g->nodes[id].op == GOP_MAP && slot < g->nodes[id].n_in; slot++) {
      const int32_t rc = try_product(g, id, slot, out_changes, err);
      if (rc != BS_OK) return rc;
    }
  }
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (g->nodes[id].op != GOP_NORMALIZE) continue;
    const int32_t rc = try_norm(g, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
