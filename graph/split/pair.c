/* SPDX-License-Identifier: MIT
 * pair.c - finds regions of split values. For each product that no region has, in the order of the run, it
 * follows what reads the product's output. Each op has a rule that says at which dim its outputs are split,
 * or why they cannot be. A region stands when every reader ends in the input of a product. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/ir/internal.h"
#include "graph/ir/query.h"
#include "graph/split/split_inside.h"

typedef struct search {
  const graph *g;
  gsplit *s;
  uint32_t *place;          /* of each node: its place in the run */
  uint32_t region, until;   /* the region that is tried; place of its last reader so far */
  uint32_t node;            /* that is looked at */
  uint32_t n_roots, n_cuts; /* before the region */
  gsplit_product *f;
  int no_memory;
} search;

/* ---- refusals -------------------------------------------------------------------------------- */

void gsplit_name(const graph *g, uint32_t node, char *out, size_t size) {
  const gnode *n = &g->nodes[node];
  uint32_t origin = n->origin;
  const char *of = origin != GNONE ? graph_text_of(g, g->origins[origin].text) : "";
  snprintf(out, size, "%s%s%.80s", graph_op_name(n->op), *of != '\0' ? " of " : "", of);
}

/* Says why the region ends here. Returns 0. */
__attribute__((format(printf, 2, 3))) static int refuse(search *s, const char *format, ...) {
  char name[112], text[112];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  gsplit_name(s->g, s->node, name, sizeof name);
  snprintf(s->f->why, sizeof s->f->why, "%s %s", name, text);
  s->f->stop = s->node;
  return 0;
}

static int no_memory(search *s) {
  s->no_memory = 1;
  return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum { WHOLE = -1, WRONG = -2 };

/* The dim at which an argument is split; WHOLE; WRONG: refused. */
static int split_at(search *s, uint32_t value) {
  gsplit_view how;
  if (value == GNONE || s->s->root_of[s->g->values[value].base] == GNONE) return WHOLE;
  const gsplit_root *root = &s->s->roots[s->s->root_of[s->g->values[value].base]];
  if (root->region != s->region) {
    refuse(s, "reads values of another region");
    return WRONG;
  }
  const char *why = gsplit_view_of(root, &s->g->values[value], &how);
  if (why == NULL) return (int)how.dim;
  refuse(s, "reads a view that %s", why);
  return WRONG;
}

static void see(search *s, uint32_t node) {
  if (s->place[node] > s->until) s->until = s->place[node];
}

/* The root is split from here on, and its readers are looked at. */
static int add_root(search *s, const gsplit_root *root) {
  gsplit *all = s->s;
  if (!ARRAY_GROW(all->roots, all->n_roots, all->cap_roots)) return no_memory(s);
  all->roots[all->n_roots] = *root;
  all->roots[all->n_roots].region = s->region;
  all->root_of[root->root] = all->n_roots++;
  for (uint32_t i = root->root; i != GNONE; i = s->g->values[i].next_view) {
    const gvalue *v = &s->g->values[i];
    if (v->producer != GNONE) see(s, v->producer);
    for (uint32_t u = v->first_use; u != GNONE; u = s->g->uses[u].next) see(s, s->g->uses[u].node);
  }
  return 1;
}

/* An output, or a state, is split at a dim. */
static int split_value(search *s, uint32_t value, uint32_t dim) {
  const uint32_t base = s->g->values[value].base;
  gsplit_root root;
  if (s->s->root_of[base] == GNONE) {
    const char *why = gsplit_root_of(s->g, value, dim, &root);
    if (why != NULL) return refuse(s, "writes a value that %s", why);
    if (!add_root(s, &root)) return 0;
  }
  const int at = split_at(s, value);
  if (at == (int)dim) return 1;
  return at == WRONG ? 0 : refuse(s, "writes a value that is split at another dimension");
}

static int split_outs(search *s, const gnode *n, uint32_t dim) {
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] != GNONE && !split_value(s, n->out[i], dim)) return 0;
  return 1;
}

static int add_cut(search *s, uint32_t arg, uint32_t dim) {
  gsplit *all = s->s;
  if (!ARRAY_GROW(all->cuts, all->n_cuts, all->cap_cuts)) return no_memory(s);
  all->cuts[all->n_cuts++] = (gsplit_cut){s->region, s->node, arg, dim};
  return 1;
}

/* An argument beside others that are split at `dim` with `n` entries: it is split there too, or has one
 * entry, or is whole and read in parts. */
static int goes_along(search *s, const gnode *node, uint32_t arg, uint32_t dim, int64_t n) {
  const uint32_t value = arg < node->n_in ? node->in[arg] : GNONE;
  if (value == GNONE) return 1;
  const int at = split_at(s, value);
  const gvalue *v = &s->g->values[value];
  if (at == WRONG) return 0;
  if (at != WHOLE && at != (int)dim) return refuse(s, "reads values that are split at different dimensions");
  if (at != WHOLE || dim >= v->rank || v->dims[dim] == 1) return 1;
  return v->dims[dim] == n ? add_cut(s, arg, dim) : refuse(s, "reads a whole value of another size");
}

static int stays_whole(search *s, const gnode *node, uint32_t arg, const char *what) {
  if (arg >= node->n_in) return 1;
  const int at = split_at(s, node->in[arg]);
  return at == WHOLE ? 1 : at == WRONG ? 0 : refuse(s, "needs all of its %s", what);
}

/* ---- a rule for each op ---------------------------------------------------------------------- */

/* The first of these inputs that is split; n_in: none, or it was refused. */
static uint32_t first_split(search *s, const gnode *n, uint32_t count, uint32_t *out_dim) {
  for (uint32_t i = 0; i < count && i < n->n_in; i++) {
    const int at = split_at(s, n->in[i]);
    *out_dim = (uint32_t)at;
    if (at != WHOLE) return at == WRONG ? n->n_in : i;
  }
  refuse(s, "writes into a value that is split");
  return n->n_in;
}

static int map_rule(search *s, const gnode *n) {
  const gexpr *e = &s->g->exprs[n->expr];
  uint32_t dim;
  const uint32_t split = first_split(s, n, n->n_in, &dim);
  if (split == n->n_in) return 0;
  for (uint32_t i = 0; i < e->n_steps; i++)
    if (e->steps[i].op == BS_EXPR_INDEX && e->steps[i].a == dim)
      return refuse(s, "counts along the split dimension");
  for (uint32_t i = 0; i < n->n_in; i++)
    if (!goes_along(s, n, i, dim, s->g->values[n->in[split]].dims[dim])) return 0;
  return split_outs(s, n, dim);
}

static int normalize_rule(search *s, const gnode *n) {
  uint32_t dim;
  const uint32_t split = first_split(s, n, 2, &dim);
  if (split == n->n_in) return 0;
  const gvalue *v = &s->g->values[n->in[split]];
  if (dim + 1 == v->rank) return refuse(s, "needs whole rows of the split dimension");
  const int64_t count = v->dims[dim];
  return goes_along(s, n, 0, dim, count) && goes_along(s, n, 1, dim, count) &&
         stays_whole(s, n, 2, "factors") && stays_whole(s, n, 3, "offsets") && split_outs(s, n, dim);
}

static int attention_rule(search *s, const gnode *n) {
  static const char *const names[3] = {"queries", "keys", "values"};
  for (uint32_t i = 0; i < 3; i++) {
    const int at = split_at(s, n->in[i]);
    if (at == WRONG) return 0;
    if (at == WHOLE) return refuse(s, "has %s of another product, which are whole", names[i]);
    if (at != 1) return refuse(s, "has %s that are not split by heads", names[i]);
  }
  return goes_along(s, n, 3, 1, s->g->values[n->in[0]].dims[1]) && stays_whole(s, n, 4, "lengths") &&
         stays_whole(s, n, 5, "scales") && split_outs(s, n, 1);
}

static int contract_rule(search *s, const gnode *n) {
  uint32_t dim;
  const uint32_t split = first_split(s, n, 2, &dim);
  if (split == n->n_in) return 0;
  const gvalue *v = &s->g->values[n->in[split]];
  if (dim + 2 >= v->rank) return refuse(s, "sums over the split dimension, or makes rows of it");
  const int64_t count = v->dims[dim];
  for (uint32_t i = 0; i < 3; i++)
    if (!goes_along(s, n, i, dim, count)) return 0;
  return split_outs(s, n, dim);
}

static int reduce_rule(search *s, const gnode *n) {
  uint32_t dim;
  if (first_split(s, n, 1, &dim) == n->n_in) return 0;
  const gvalue *in = &s->g->values[n->in[0]], *out = &s->g->values[n->out[0]];
  const int along = n->attrs[0] == BS_FOLD_CUMSUM && n->attrs[1] == (int64_t)dim;
  if (in->dims[dim] != out->dims[dim] || along) return refuse(s, "folds the split dimension");
  return split_outs(s, n, dim);
}

static int take_rule(search *s, const gnode *n) {
  uint32_t dim;
  if (!stays_whole(s, n, 1, "index") || first_split(s, n, 1, &dim) == n->n_in) return 0;
  if (n->attrs[0] != BS_INDEX_ROWS) return refuse(s, "takes other things than rows of a split value");
  if (n->attrs[1] == (int64_t)dim) return refuse(s, "takes rows of the split dimension");
  const uint32_t more = s->g->values[n->in[1]].rank - 1u; /* an index without dims takes one away */
  return split_outs(s, n, (int64_t)dim < n->attrs[1] ? dim : dim + more);
}

/* The base is a state, or split alike; out is the base, or lies like it. */
static int put_rule(search *s, const gnode *n) {
  const int at = split_at(s, n->in[2]), under = split_at(s, n->in[0]);
  const gvalue *updates = &s->g->values[n->in[2]], *index = &s->g->values[n->in[1]];
  if (at == WRONG || under == WRONG || !stays_whole(s, n, 1, "index")) return 0;
  if (at == WHOLE) return refuse(s, "puts whole rows into a split value");
  const uint32_t dim = (uint32_t)at;
  if (n->attrs[0] != BS_INDEX_ROWS) return refuse(s, "puts other things than rows of a split value");
  if (n->attrs[1] == at) return refuse(s, "puts rows of the split dimension");
  if (dim == 0 && index->rank > 1 && index->dims[0] > 1)
    return refuse(s, "has rows of the split dimension that differ in their places");
  const int64_t count = updates->dims[dim];
  const uint8_t kind = s->g->values[s->g->values[n->in[0]].base].kind;
  if (kind == GV_STATE && under == WHOLE && !split_value(s, n->in[0], dim)) return 0;
  return goes_along(s, n, 0, dim, count) && split_outs(s, n, dim);
}

/* A product that reads a split value is the end of the region. */
static int product_rule(search *s, const gnode *n) {
  gsplit_product *p = &s->s->products[s->s->product_of[s->node]];
  const int at = split_at(s, n->in[0]);
  if (at == WRONG) return 0;
  if (n->op == GOP_MATMUL_Q) return refuse(s, "has a quantised weight, which stays whole");
  if (at != 1) return refuse(s, at == 0 ? "has rows of its input split" : "adds a split value to its result");
  if (!stays_whole(s, n, 1, "bias") || !stays_whole(s, n, 2, "residual")) return 0;
  if (p->role != GSPLIT_ALONE) return refuse(s, "belongs to another region");
  p->role = GSPLIT_S;
  p->region = s->region;
  return 1;
}

static int no_rule(search *s, const gnode *n) {
  return refuse(s, "cannot work on a part of its input (%s)", graph_op_name(n->op));
}

static int (*const rules[GOP_COUNT_])(search *s, const gnode *n) = {
    [GOP_MATMUL] = product_rule,      [GOP_MAP] = map_rule,           [GOP_NORMALIZE] = normalize_rule,
    [GOP_ATTENTION] = attention_rule, [GOP_CONTRACT] = contract_rule, [GOP_REDUCE] = reduce_rule,
    [GOP_TAKE] = take_rule,           [GOP_PUT] = put_rule,           [GOP_TOPK] = no_rule,
    [GOP_MATMUL_Q] = product_rule,    [GOP_TAKE_Q] = no_rule};

/* ---- a region -------------------------------------------------------------------------------- */

static int is_split_here(const search *s, uint32_t value) {
  return value != GNONE && s->s->root_of[s->g->values[value].base] != GNONE &&
         s->s->roots[s->s->root_of[s->g->values[value].base]].region == s->region;
}

static int touches(const search *s, const gnode *n) {
  int any = 0;
  for (uint32_t i = 0; i < n->n_in; i++) any |= is_split_here(s, n->in[i]);
  for (uint32_t i = 0; i < n->n_out; i++) any |= is_split_here(s, n->out[i]);
  return any;
}

/* All that reads or writes the root is of the region, and no port does. */
static int is_closed(search *s, const gsplit_root *root) {
  const graph *g = s->g;
  for (uint32_t i = root->root; i != GNONE; i = g->values[i].next_view) {
    const gvalue *v = &g->values[i];
    uint32_t other = v->producer != GNONE && s->s->region_of[v->producer] != s->region ? v->producer : GNONE;
    for (uint32_t u = v->first_use; u != GNONE && other == GNONE; u = g->uses[u].next)
      if (s->s->region_of[g->uses[u].node] != s->region) other = g->uses[u].node;
    if (other == GNONE) continue;
    s->node = other;
    return refuse(s, "has a whole value that others split");
  }
  for (uint32_t i = 0; i < g->n_outputs; i++)
    if (g->values[g->outputs[i].value].base == root->root)
      return refuse(s, "gives the output %.48s of the model", graph_text_of(g, g->outputs[i].name));
  return 1;
}

/* The first output of the model that a node writes is a reason that its readers would hide. */
static int gives_output(search *s, const gnode *n) {
  for (uint32_t i = 0; i < n->n_out; i++)
    for (uint32_t k = 0; n->out[i] != GNONE && k < s->g->n_outputs; k++)
      if (s->g->values[s->g->outputs[k].value].base == s->g->values[n->out[i]].base) {
        refuse(s, "gives the output %.48s of the model", graph_text_of(s->g, s->g->outputs[k].name));
        return 1;
      }
  return 0;
}

static int begin(search *s, uint32_t f) {
  const gnode *n = &s->g->nodes[f];
  gsplit_root root;
  s->node = f;
  if (n->op != GOP_MATMUL) return refuse(s, "has a quantised weight, which stays whole");
  if (gives_output(s, n)) return 0;
  if (n->in[2] != GNONE) return refuse(s, "adds a residual, which a split product does not");
  const gvalue *y = &s->g->values[n->out[0]];
  const char *why = graph_count(y) != graph_count(&s->g->values[y->base])
                        ? "is a part of a larger one"
                        : gsplit_root_of(s->g, n->out[0], 1, &root);
  if (why == NULL && (y->dims[1] != root.period || y->strides[1] != 1)) why = "has gaps in its rows";
  if (why != NULL) return refuse(s, "has an output that %s", why);
  s->s->region_of[f] = s->region;
  return add_root(s, &root);
}

static int follow(search *s, uint32_t f) {
  uint32_t ends = 0;
  if (!begin(s, f)) return 0;
  for (uint32_t id = s->g->nodes[f].next; id != GNONE && s->place[id] <= s->until;
       id = s->g->nodes[id].next) {
    const gnode *n = &s->g->nodes[id];
    if (!touches(s, n)) continue;
    s->node = id;
    if (n->op >= GOP_COUNT_ || rules[n->op] == NULL || !rules[n->op](s, n)) return 0;
    if (!graph_is_product(n->op) && gives_output(s, n)) return 0;
    s->s->region_of[id] = s->region;
    ends += (uint32_t)graph_is_product(n->op);
  }
  s->node = f;
  if (ends == 0) return refuse(s, "has an output that no product reads");
  for (uint32_t i = s->n_roots; i < s->s->n_roots; i++)
    if (!is_closed(s, &s->s->roots[i])) return 0;
  return 1;
}

static void undo(search *s) {
  gsplit *all = s->s;
  while (all->n_roots > s->n_roots) all->root_of[all->roots[--all->n_roots].root] = GNONE;
  all->n_cuts = s->n_cuts;
  for (uint32_t i = 0; i < all->n_products; i++)
    if (all->products[i].region == s->region) {
      all->products[i].region = GNONE;
      all->products[i].role = GSPLIT_ALONE;
    }
  for (uint32_t id = s->g->first; id != GNONE; id = s->g->nodes[id].next)
    if (all->region_of[id] == s->region) all->region_of[id] = GNONE;
}

/* Counts of a region that stands, for reports. */
static void describe(search *s, uint32_t product) {
  gsplit *all = s->s;
  gsplit_region *r = &all->regions[all->n_regions++];
  *r = (gsplit_region){.f = product, .first = all->products[product].node, .stop = GNONE};
  for (uint32_t i = product; i < all->n_products; i++)
    if (all->products[i].region == s->region && all->products[i].role == GSPLIT_S) {
      r->n_s++;
      r->last = all->products[i].node;
    }
  for (uint32_t i = s->n_roots; i < all->n_roots; i++)
    r->n_states += s->g->values[all->roots[i].root].kind == GV_STATE;
}

static int try_product(search *s, uint32_t product) {
  gsplit *all = s->s;
  if (!ARRAY_GROW(all->regions, all->n_regions, all->cap_regions)) return no_memory(s);
  s->f = &all->products[product];
  s->region = all->n_regions;
  s->n_roots = all->n_roots;
  s->n_cuts = all->n_cuts;
  s->until = 0;
  if (!follow(s, s->f->node)) {
    undo(s);
    return !s->no_memory;
  }
  s->f->role = GSPLIT_F;
  s->f->region = s->region;
  describe(s, product);
  return 1;
}

/* ---- all products ---------------------------------------------------------------------------- */

static int add_products(search *s) {
  gsplit *all = s->s;
  const graph *g = s->g;
  uint32_t place = 0;
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    const gnode *n = &g->nodes[id];
    s->place[id] = place++;
    if (!graph_is_product(n->op)) continue;
    if (!ARRAY_GROW(all->products, all->n_products, all->cap_products)) return no_memory(s);
    const gvalue *w = &g->values[n->weight];
    all->product_of[id] = all->n_products;
    all->products[all->n_products++] = (gsplit_product){.node = id,
                                                        .region = GNONE,
                                                        .n = w->dims[0],
                                                        .k = w->dims[1],
                                                        .weight = n->weight,
                                                        .bias = n->in[1],
                                                        .residual = n->in[2] != GNONE,
                                                        .layer = n->op == GOP_MATMUL,
                                                        .stop = GNONE};
  }
  return 1;
}

static uint32_t *none(uint32_t n) {
  uint32_t *list = malloc((n + 1u) * sizeof *list);
  for (uint32_t i = 0; list != NULL && i <= n; i++) list[i] = GNONE;
  return list;
}

int32_t gsplit_find(const graph *g, gsplit **out, bs_error *err) {
  search s = {.g = g, .s = calloc(1, sizeof *s.s)};
  gsplit *all = s.s;
  if (all == NULL) return graph_no_memory(err);
  all->n_values = g->n_values;
  all->n_nodes = g->n_nodes;
  all->root_of = none(g->n_values);
  all->region_of = none(g->n_nodes);
  all->product_of = none(g->n_nodes);
  s.place = none(g->n_nodes);
  int ok = all->root_of != NULL && all->region_of != NULL && all->product_of != NULL && s.place != NULL &&
           add_products(&s);
  for (uint32_t i = 0; ok && i < all->n_products; i++)
    if (all->products[i].role == GSPLIT_ALONE) ok = try_product(&s, i);
  for (uint32_t i = 0; ok && i < all->n_products; i++)
    if (all->products[i].role != GSPLIT_ALONE) all->products[i].why[0] = '\0';
  free(s.place);
  if (ok) {
    *out = all;
    return BS_OK;
  }
  gsplit_free(all);
  return graph_no_memory(err);
}

void gsplit_free(gsplit *s) {
  if (s == NULL) return;
  free(s->products);
  free(s->regions);
  free(s->roots);
  free(s->cuts);
  free(s->root_of);
  free(s->region_of);
  free(s->product_of);
  free(s);
}
