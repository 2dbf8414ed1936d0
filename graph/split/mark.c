/* SPDX-License-Identifier: MIT
 * mark.c - the graph of a rank: which products become layers, and in which role. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/split/method.h"
#include "graph/split/pair.h"
#include "graph/split/split_inside.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a split");
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Rows that follow each other without gaps, as methods take x and y. */
static int has_gaps(const gvalue *v) {
  return (v->dims[1] > 1 && v->strides[1] != 1) || (v->dims[0] > 1 && v->strides[0] != v->dims[1]);
}

/* A map that copies `from` to `to`, before node `at`. */
static int32_t add_copy(graph *g, uint32_t from, uint32_t to, uint32_t at, uint32_t origin, bs_error *err) {
  gexpr program = {.compute = g->values[from].dtype == BS_F64 ? BS_F64 : BS_F32, .n_in = 1, .n_out = 1};
  gnode copy = {
      .op = GOP_MAP, .n_in = 1, .n_out = 1, .in = {from}, .out = {to}, .weight = GNONE, .origin = origin};
  program.outs[0] = GX_IN;
  copy.expr = graph_expr(g, &program);
  return copy.expr == GNONE ? no_memory(err) : graph_add_node(g, &copy, at, NULL, err);
}

static int32_t add_dense(graph *g, uint32_t like, uint32_t *out_value, bs_error *err) {
  const gvalue v = g->values[like];
  return graph_add_root(g, GV_TEMP, v.dtype, v.rank, v.dims, NULL, NULL, out_value, err);
}

static int32_t make_dense(graph *g, uint32_t id, bs_error *err) {
  const gnode n = g->nodes[id];
  const uint32_t x = n.in[0], y = n.out[0];
  uint32_t dense = GNONE;
  int32_t rc = BS_OK;
  if (has_gaps(&g->values[x])) {
    rc = add_dense(g, x, &dense, err);
    if (rc == BS_OK) rc = add_copy(g, x, dense, id, n.origin, err);
    if (rc == BS_OK) rc = graph_set_input(g, id, 0, dense, err);
  }
  if (rc == BS_OK && has_gaps(&g->values[y])) {
    rc = add_dense(g, y, &dense, err);
    if (rc == BS_OK) rc = graph_set_output(g, id, 0, dense, err);
    if (rc == BS_OK) rc = add_copy(g, dense, y, g->nodes[id].next, n.origin, err);
  }
  return rc;
}

/* The node becomes a layer. */
static int32_t add_layer(graph *g, uint32_t id, const gnode_split *split, bs_error *err) {
  const int32_t rc = make_dense(g, id, err);
  if (rc != BS_OK) return rc;
  if (!ARRAY_GROW(g->splits, g->n_splits, g->cap_splits)) return no_memory(err);
  g->splits[g->n_splits++] = *split;
  g->nodes[id].layer = g->n_splits;
  return BS_OK;
}

/* ---- a region -------------------------------------------------------------------------------- */

typedef struct marking {
  gmethod *m;
  grank *rank;
  graph *g;
  gsplit *s;           /* NULL: one method */
  gnode_split *splits; /* of each product of s */
} marking;

static void refuse(gsplit_region *r, const bs_error *why) {
  r->refused = 1;
  snprintf(r->why, sizeof r->why, "%.200s", why->message);
}

/* The method takes the product in its role, on the first rank and on the last one. */
static int32_t takes(const marking *k, const gnode *n, uint32_t role, uint32_t bias, bs_error *err) {
  bs_proposal proposal;
  const uint32_t last = k->m->world_size - 1;
  int32_t rc = gmethod_propose(k->rank->context, k->m, k->g, n, role, bias, 0, &proposal, err);
  if (rc == BS_OK && last > 0)
    rc = gmethod_propose(k->rank->context, k->m, k->g, n, role, bias, last, &proposal, err);
  return rc;
}

/* A method that refuses F, or an S, refuses the region. */
static void ask_methods(const marking *k) {
  for (uint32_t i = 0; i < k->s->n_products; i++) {
    const gsplit_product *p = &k->s->products[i];
    bs_error why = BS_ERROR_INIT;
    if (!gsplit_stands(k->s, i)) continue;
    if (takes(k, &k->g->nodes[p->node], p->role, p->bias, &why) != BS_OK)
      refuse(&k->s->regions[p->region], &why);
  }
}

/* The units whose columns each rank owns, place after place; NULL in *out_units: they are no whole units. */
static int32_t owned_units(const uint32_t *columns, int64_t k, int64_t width, uint32_t ranks,
                           uint32_t **out_units, bs_error *err) {
  const int64_t n = k / width;
  uint32_t *units = malloc((size_t)n * sizeof *units + 1u);
  int whole = k / ranks % width == 0;
  *out_units = NULL;
  if (units == NULL) return no_memory(err);
  for (int64_t i = 0; i < n && whole; i++) {
    const uint32_t first = columns[i * width];
    for (int64_t c = 1; c < width; c++) whole &= columns[i * width + c] == first + c;
    whole &= first % width == 0;
    units[i] = (uint32_t)(first / width);
  }
  if (whole)
    *out_units = units;
  else
    free(units);
  return BS_OK;
}

/* S's columns in an order that gives each rank the units of its place. */
static int32_t order_columns(const uint32_t *columns, int64_t k, bs_order *out, bs_error *err) {
  uint32_t *from = malloc((size_t)k * sizeof *from + 1u);
  int32_t rc = from == NULL ? no_memory(err) : BS_OK;
  for (int64_t i = 0; i < k && rc == BS_OK; i++) from[columns[i]] = (uint32_t)i;
  for (int64_t i = 0; i < k && rc == BS_OK; i++) rc = bs_order_add(out, from[i], 1, err);
  free(from);
  return rc;
}

static int32_t order_held(const uint32_t *columns, int64_t k, bs_order *out, bs_error *err) {
  int32_t rc = BS_OK;
  for (int64_t i = 0; i < k && rc == BS_OK; i++) rc = bs_order_add(out, columns[i], 1, err);
  return rc;
}

/* F's rows follow the columns that S's method gives each rank; where these are no whole units, or others do
 * not follow, S's columns are put in order. */
static int32_t order_product(const marking *k, uint32_t i, const uint32_t *columns, const uint32_t *units,
                             int64_t n_units, bs_error *err) {
  const gsplit_product *p = &k->s->products[i];
  gnode_split *split = &k->splits[i];
  if (p->role == GSPLIT_F)
    return gsplit_order(k->s, k->g, i, units, units != NULL ? (uint32_t)n_units : 0, &split->rows, err);
  if (units != NULL) return order_held(columns, p->k, &split->held, err);
  return order_columns(columns, p->k, &split->columns, err);
}

static void forget_orders(const marking *k, uint32_t region) {
  for (uint32_t i = 0; i < k->s->n_products; i++) {
    if (k->s->products[i].region != region) continue;
    bs_order_free(&k->splits[i].rows);
    bs_order_free(&k->splits[i].columns);
    bs_order_free(&k->splits[i].held);
  }
}

static int32_t order_all(const marking *k, uint32_t region, const uint32_t *columns, const uint32_t *units,
                         int64_t n_units, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < k->s->n_products && rc == BS_OK; i++)
    if (k->s->products[i].region == region) rc = order_product(k, i, columns, units, n_units, err);
  if (rc != BS_OK) forget_orders(k, region);
  return rc;
}

/* The first product S of a region. Others of it have as many columns, or the region is refused. */
static uint32_t first_s(const marking *k, uint32_t region, int *out_alike) {
  uint32_t first = GNONE;
  *out_alike = 1;
  for (uint32_t i = 0; i < k->s->n_products; i++) {
    const gsplit_product *p = &k->s->products[i];
    if (p->region != region || p->role != GSPLIT_S) continue;
    if (first == GNONE) first = i;
    *out_alike &= p->k == k->s->products[first].k;
  }
  return first;
}

static int32_t order_region(const marking *k, uint32_t region, bs_error *err) {
  int alike;
  const uint32_t i = first_s(k, region, &alike);
  const gsplit_product *p = &k->s->products[i];
  const gmethod_arm *arm;
  const uint32_t *columns;
  bs_layer_spec spec;
  uint32_t *units = NULL;
  int64_t n_units, width;
  if (!alike)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT",
                        "its products S have different numbers of columns");
  gsplit_units(k->s, k->g, i, &n_units, &width);
  int32_t rc = gmethod_spec(k->m, k->g, &k->g->nodes[p->node], GNODE_S, p->bias, &arm, &spec, err);
  if (rc == BS_OK) rc = gmethod_columns(k->m, k->rank->rank, &spec, &columns, err);
  if (rc == BS_OK) rc = owned_units(columns, p->k, width, k->m->world_size, &units, err);
  if (rc != BS_OK) return rc;
  rc = BS_UNSUPPORTED;
  if (units != NULL || k->m->bits < BS_BITS_RANKS)
    rc = order_all(k, region, columns, units, n_units, err);
  else
    bs_error_set(
        err, rc, "BS-GRAPH-REPRO",
        "the columns that a rank owns are no whole units; an order of them would depend on the ranks");
  if (rc == BS_UNSUPPORTED && units != NULL && k->m->bits < BS_BITS_RANKS)
    rc = order_all(k, region, columns, NULL, 0, err);
  free(units);
  return rc;
}

static int32_t order_regions(const marking *k, bs_error *err) {
  for (uint32_t r = 0; r < k->s->n_regions; r++) {
    bs_error why = BS_ERROR_INIT;
    if (k->s->regions[r].refused) continue;
    const int32_t rc = order_region(k, r, &why);
    if (rc == BS_UNSUPPORTED) refuse(&k->s->regions[r], &why);
    if (rc == BS_OK || rc == BS_UNSUPPORTED) continue;
    if (err != NULL) *err = why;
    return rc;
  }
  return BS_OK;
}

/* ---- two methods ----------------------------------------------------------------------------- */

/* Products of standing regions become layers in their roles. The others have the reason. */
static int32_t add_roles(const marking *k, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < k->s->n_products && rc == BS_OK; i++) {
    const gsplit_product *p = &k->s->products[i];
    if (!gsplit_stands(k->s, i)) continue;
    gnode_split split = k->splits[i];
    split.role = p->role;
    split.bias = p->bias;
    split.why = GNONE;
    if (p->role == GSPLIT_F) split.n_states = k->s->regions[p->region].n_states;
    rc = add_layer(k->g, p->node, &split, err);
    if (rc == BS_OK) memset(&k->splits[i], 0, sizeof split); /* the orders are the graph's now */
  }
  return rc;
}

static void tell_alone(const marking *k, uint32_t id, gnode_split *io) {
  const uint32_t i = k->s != NULL && id < k->s->n_nodes ? k->s->product_of[id] : GNONE;
  io->why = GNONE;
  if (i == GNONE) return;
  const gsplit_product *p = &k->s->products[i];
  if (p->region != GNONE) io->refused = p->role == GSPLIT_S ? GNODE_S : GNODE_F;
  io->why = graph_text(k->g, p->region != GNONE ? k->s->regions[p->region].why : p->why);
}

static int32_t split_regions(marking *k, bs_error *err) {
  int32_t rc = gsplit_peel(k->g, err);
  if (rc == BS_OK) rc = gsplit_find(k->g, &k->s, err);
  if (rc != BS_OK) return rc;
  k->splits = calloc(k->s->n_products + 1u, sizeof *k->splits);
  if (k->splits == NULL) return no_memory(err);
  gsplit_for(k->s, k->g, k->m->world_size);
  ask_methods(k);
  rc = order_regions(k, err);
  if (rc == BS_OK) rc = gsplit_localise(k->g, k->s, k->rank->api->rank(k->rank->rank), err);
  return rc == BS_OK ? add_roles(k, err) : rc;
}

static void marking_free(marking *k) {
  for (uint32_t i = 0; k->splits != NULL && i < k->s->n_products; i++) {
    bs_order_free(&k->splits[i].rows);
    bs_order_free(&k->splits[i].columns);
    bs_order_free(&k->splits[i].held);
  }
  free(k->splits);
  gsplit_free(k->s);
}

/* ---- all products ---------------------------------------------------------------------------- */

/* A product that the methods refuse on some numbers of ranks has other bits there. */
static int32_t refuse_bits(const marking *k, const gnode *n, const bs_error *why, bs_error *err) {
  char name[112];
  gsplit_name(k->g, (uint32_t)(n - k->g->nodes), name, sizeof name);
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-REPRO", "%s: %.300s", name, why->message);
  bs_error_hint(err, "--with repro=tokens promises no bits over numbers of ranks");
  return BS_UNSUPPORTED;
}

/* Keeps the reason for explain. */
static int32_t stay_whole(const marking *k, uint32_t id, const char *why, bs_error *err) {
  char text[320];
  snprintf(text, sizeof text, "whole on every rank: %.280s", why);
  const uint32_t kept = graph_text(k->g, text);
  if (kept == GNONE) return no_memory(err);
  k->g->nodes[id].whole = kept + 1;
  return BS_OK;
}

/* A product that is in no region is a layer with whole x and y, where its method takes it. */
static int32_t mark_alone(const marking *k, uint32_t id, uint32_t *io_layers, bs_error *why, bs_error *err) {
  const gnode *n = &k->g->nodes[id];
  const uint32_t i = k->s != NULL && id < k->s->n_nodes ? k->s->product_of[id] : GNONE;
  const int is_s = i != GNONE && k->s->products[i].role == GSPLIT_S, all_ranks = k->m->bits >= BS_BITS_RANKS;
  gnode_split split = {.role = is_s ? GNODE_S_WHOLE : GNODE_ALONE, .bias = n->in[1]};
  const gmethod_arm *arm;
  bs_layer_spec spec;
  *io_layers += n->layer != 0;
  if (n->layer != 0) return BS_OK;
  tell_alone(k, id, &split);
  int32_t rc = takes(k, n, split.role, split.bias, why);
  if (rc != BS_OK && all_ranks &&
      gmethod_spec(k->m, k->g, n, split.role, split.bias, &arm, &spec, NULL) == BS_OK)
    return refuse_bits(k, n, why, err);
  if (rc != BS_OK && is_s) rc = takes(k, n, split.role = GNODE_ALONE, split.bias, why);
  if (rc != BS_OK) return stay_whole(k, id, why->message, err);
  *io_layers += 1;
  return add_layer(k->g, id, &split, err);
}

/* A product of a constant with a matrix for each entry of its batch, of which no rank has a part. */
static int is_batched(const marking *k, uint32_t id) {
  const gnode *n = &k->g->nodes[id];
  const uint32_t region = k->s != NULL && id < k->s->n_nodes ? k->s->region_of[id] : GNONE;
  if (n->op != GOP_CONTRACT || (region != GNONE && !k->s->regions[region].refused)) return 0;
  for (uint32_t i = 0; i < 2; i++) {
    const gvalue *v = &k->g->values[n->in[i]];
    if (graph_is_const(k->g, n->in[i]) && v->dims[v->rank - 1] > 1 && v->dims[v->rank - 2] > 1) return 1;
  }
  return 0;
}

static int32_t mark_all(const marking *k, bs_error *err) {
  bs_error first = BS_ERROR_INIT;
  uint32_t products = 0, layers = 0, empty = 0, batched = 0;
  int32_t rc = BS_OK;
  for (uint32_t id = k->g->first, next; id != GNONE && rc == BS_OK; id = next) {
    next = k->g->nodes[id].next;
    if (is_batched(k, id)) {
      rc = stay_whole(k, id, "it has a matrix of weights for each entry of a batch", err);
      batched++;
    }
    if (!graph_is_product(k->g->nodes[id].op)) continue;
    if (graph_count(&k->g->values[k->g->nodes[id].out[0]]) == 0) { /* there is nothing to compute */
      rc = stay_whole(k, id, "it has no numbers", err);
      empty++;
      continue;
    }
    bs_error why = BS_ERROR_INIT;
    rc = mark_alone(k, id, &layers, &why, err);
    if (why.code != BS_OK && first.code == BS_OK) first = why;
    products++;
  }
  if (rc != BS_OK || layers > 0 || (products == 0 && empty > 0)) return rc;
  if (products == 0) {
    char more[96] = "";
    if (batched > 0)
      snprintf(more, sizeof more, ": the weights of %u are a matrix for each entry of a batch", batched);
    bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT",
                 "the model has no product that a method could split%s", more);
    bs_error_hint(err,
                  "a method splits X W of a constant matrix W; `bsrun model explain M` lists the products, "
                  "and --no-pass may leave one in parts");
    return BS_UNSUPPORTED;
  }
  bs_error_set(err, first.code, "BS-GRAPH-SPLIT", "method %s takes none of the model's %u products: %s",
               k->m->text, products, first.message);
  bs_error_hint(err, "%s",
                first.hint[0] != '\0'
                    ? first.hint
                    : "another method may take one; without --method one rank runs the model");
  return first.code;
}

int32_t (*gmethod_fault)(graph *g, bs_error *err);

int32_t gmethod_mark(gmethod *m, grank *rank, graph *g, bs_error *err) {
  marking k = {.m = m, .rank = rank, .g = g};
  int32_t rc = m->n_arms > 1 ? split_regions(&k, err) : BS_OK;
  if (rc == BS_OK) rc = mark_all(&k, err);
  if (rc == BS_OK && gmethod_fault != NULL) rc = gmethod_fault(g, err);
  marking_free(&k);
  return rc;
}
