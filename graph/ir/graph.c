/* SPDX-License-Identifier: MIT
 * graph.c - the mutators of the IR: the only functions that change values, nodes and their use lists. */
#include "graph/ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "graph/ir/internal.h"

int32_t graph_no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the graph");
}

int32_t graph_new(graph **out_graph, bs_error *err) {
  graph *g = calloc(1, sizeof *g);
  if (g == NULL) return graph_no_memory(err);
  g->texts = calloc(1, sizeof *g->texts);
  if (g->texts == NULL) {
    free(g);
    return graph_no_memory(err);
  }
  g->first = g->last = g->free_use = g->notes = GNONE;
  *out_graph = g;
  return BS_OK;
}

void graph_free(graph *g) {
  if (g == NULL) return;
  arena_free(&g->texts->arena);
  free(g->texts->texts);
  free(g->texts->table);
  free(g->texts);
  for (uint32_t i = 0; i < g->n_splits; i++) {
    free(g->splits[i].rows.runs);
    free(g->splits[i].columns.runs);
    free(g->splits[i].held.runs);
  }
  free(g->splits);
  free(g->values);
  free(g->nodes);
  free(g->exprs);
  free(g->uses);
  free(g->inputs);
  free(g->outputs);
  free(g->states);
  free(g->origins);
  free(g->kept);
  free(g);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int32_t value_add(graph *g, const gvalue *value, uint32_t *out_value, bs_error *err) {
  if (!ARRAY_GROW(g->values, g->n_values, g->cap_values)) return graph_no_memory(err);
  gvalue *v = &g->values[g->n_values];
  *v = *value;
  v->producer = v->first_use = v->slot = v->next_view = GNONE;
  v->last_view = g->n_values;
  if (v->kind != GV_VIEW) {
    v->base = g->n_values;
  } else {
    gvalue *root = &g->values[v->base];
    g->values[root->last_view].next_view = g->n_values;
    root->last_view = g->n_values;
  }
  *out_value = g->n_values++;
  return BS_OK;
}

int32_t graph_add_root(graph *g, uint32_t kind, uint32_t dtype, uint32_t rank, const int64_t *dims,
                       const void *data, const char *name, uint32_t *out_value, bs_error *err) {
  gvalue v = {.kind = (uint8_t)kind, .rank = (uint8_t)rank, .dtype = dtype, .source = GNONE, .name = GNONE};
  int64_t count = 1;
  for (uint32_t i = 0; i < rank && rank <= BS_MAX_DIMS; i++) {
    if (dims[i] < 0 || (dims[i] > 0 && !bs_mul_i64(count, dims[i], &count))) count = -1;
    if (count < 0) break;
    v.dims[i] = dims[i];
  }
  if (rank > BS_MAX_DIMS || count < 0 || count > INT64_MAX / 16) {
    bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-SIZE", "a value of rank %u is too large", rank);
    return BS_OVERFLOW;
  }
  graph_dense_strides(rank, v.dims, v.strides);
  v.data = data;
  if (name != NULL && name[0] != '\0' && (v.name = graph_text(g, name)) == GNONE) return graph_no_memory(err);
  return value_add(g, &v, out_value, err);
}

/* First and last element that a view reaches; 0 on overflow. An empty one reaches nothing: last < first. */
static int reach(uint32_t rank, const int64_t *dims, const int64_t *strides, int64_t offset,
                 int64_t *out_last) {
  int64_t last = offset, step;
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] < 0 || strides[i] < 0) return 0;
    if (dims[i] == 0) {
      *out_last = offset - 1;
      return 1;
    }
    if (!bs_mul_i64(dims[i] - 1, strides[i], &step) || !bs_add_i64(last, step, &last)) return 0;
  }
  *out_last = last;
  return 1;
}

int32_t graph_add_view(graph *g, uint32_t base, uint32_t dtype, uint32_t rank, const int64_t *dims,
                       const int64_t *strides, int64_t offset, uint32_t *out_value, bs_error *err) {
  const uint32_t root = g->values[base].base;
  int64_t last = 0;
  if (rank > BS_MAX_DIMS || offset < 0 || !reach(rank, dims, strides, offset, &last) ||
      (last >= offset && last >= graph_count(&g->values[root])) || dtype != g->values[root].dtype)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-VIEW",
                        "a view of rank %u at %lld..%lld reaches beyond value %u, which has %lld elements",
                        rank, (long long)offset, (long long)last, root,
                        (long long)graph_count(&g->values[root]));
  gvalue v = {
      .kind = GV_VIEW, .rank = (uint8_t)rank, .dtype = dtype, .base = root, .source = GNONE, .name = GNONE};
  for (uint32_t i = 0; i < rank; i++) {
    v.dims[i] = dims[i];
    v.strides[i] = strides[i];
  }
  v.offset = last >= offset ? offset : 0; /* an empty view may lie past the end of a root of 0 elements */
  return value_add(g, &v, out_value, err);
}

/* ---- uses ------------------------------------------------------------------------------------ */

static int use_add(graph *g, uint32_t value, uint32_t node, uint32_t arg) {
  uint32_t u = g->free_use;
  if (u != GNONE) {
    g->free_use = g->uses[u].next;
  } else {
    if (!ARRAY_GROW(g->uses, g->n_uses, g->cap_uses)) return 0;
    u = g->n_uses++;
  }
  g->uses[u] = (guse){node, arg, g->values[value].first_use};
  g->values[value].first_use = u;
  return 1;
}

static void use_remove(graph *g, uint32_t value, uint32_t node, uint32_t arg) {
  for (uint32_t *at = &g->values[value].first_use; *at != GNONE; at = &g->uses[*at].next) {
    guse *u = &g->uses[*at];
    if (u->node != node || u->arg != arg) continue;
    const uint32_t gone = *at;
    *at = u->next;
    u->next = g->free_use;
    g->free_use = gone;
    return;
  }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint32_t *input_of(gnode *n, uint32_t arg) {
  return arg == GNODE_IN ? &n->weight : &n->in[arg];
}

int32_t graph_add_node(graph *g, const gnode *node, uint32_t at, uint32_t *out_node, bs_error *err) {
  if (!ARRAY_GROW(g->nodes, g->n_nodes, g->cap_nodes)) return graph_no_memory(err);
  const uint32_t id = g->n_nodes++;
  gnode *n = &g->nodes[id];
  *n = *node;
  for (uint32_t i = n->n_in; i < GNODE_IN; i++) n->in[i] = GNONE;
  for (uint32_t i = n->n_out; i < GNODE_OUT; i++) n->out[i] = GNONE;
  n->next = at;
  n->prev = at == GNONE ? g->last : g->nodes[at].prev;
  if (n->prev == GNONE)
    g->first = id;
  else
    g->nodes[n->prev].next = id;
  if (at == GNONE)
    g->last = id;
  else
    g->nodes[at].prev = id;
  g->n_live++;
  for (uint32_t i = 0; i <= GNODE_IN; i++) {
    const uint32_t v = *input_of(n, i);
    if (v != GNONE && !use_add(g, v, id, i)) return graph_no_memory(err);
  }
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] != GNONE) g->values[n->out[i]].producer = id;
  if (out_node != NULL) *out_node = id;
  return BS_OK;
}

void graph_remove_node(graph *g, uint32_t node) {
  gnode *n = &g->nodes[node];
  if (n->op == GOP_FREE) return;
  for (uint32_t i = 0; i <= GNODE_IN; i++)
    if (*input_of(n, i) != GNONE) use_remove(g, *input_of(n, i), node, i);
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] != GNONE && g->values[n->out[i]].producer == node) g->values[n->out[i]].producer = GNONE;
  if (n->prev == GNONE)
    g->first = n->next;
  else
    g->nodes[n->prev].next = n->next;
  if (n->next == GNONE)
    g->last = n->prev;
  else
    g->nodes[n->next].prev = n->prev;
  n->op = GOP_FREE;
  g->n_live--;
}

int32_t graph_set_input(graph *g, uint32_t node, uint32_t arg, uint32_t value, bs_error *err) {
  gnode *n = &g->nodes[node];
  uint32_t *in = input_of(n, arg);
  if (*in == value) return BS_OK;
  if (*in != GNONE) use_remove(g, *in, node, arg);
  *in = value;
  if (arg != GNODE_IN && arg >= n->n_in) n->n_in = (uint8_t)(arg + 1u);
  return value == GNONE || use_add(g, value, node, arg) ? BS_OK : graph_no_memory(err);
}

int32_t graph_set_output(graph *g, uint32_t node, uint32_t index, uint32_t value, bs_error *err) {
  gnode *n = &g->nodes[node];
  if (index >= GNODE_OUT || (value != GNONE && g->values[value].producer != GNONE))
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-WRITER", "value %u has two producers", value);
  if (n->out[index] != GNONE) g->values[n->out[index]].producer = GNONE;
  n->out[index] = value;
  if (index >= n->n_out) n->n_out = (uint8_t)(index + 1u);
  if (value != GNONE) g->values[value].producer = node;
  return BS_OK;
}

static void replace_ports(gport *ports, uint32_t n, uint32_t from, uint32_t to) {
  for (uint32_t i = 0; i < n; i++)
    if (ports[i].value == from) ports[i].value = to;
}

/* All views of a root become views of what a dense value shows. */
static void move_views(graph *g, uint32_t from, uint32_t to) {
  const uint32_t base = g->values[to].base;
  gvalue *f = &g->values[from], *root = &g->values[base];
  for (uint32_t i = f->next_view; i != GNONE; i = g->values[i].next_view) {
    g->values[i].base = base;
    g->values[i].offset += g->values[to].offset;
  }
  g->values[root->last_view].next_view = f->next_view;
  root->last_view = f->last_view;
  f->next_view = GNONE;
  f->last_view = from;
}

int32_t graph_replace(graph *g, uint32_t from, uint32_t to, bs_error *err) {
  if (from == to) return BS_OK;
  gvalue *f = &g->values[from];
  gvalue *t = &g->values[to];
  int same = f->dtype == t->dtype && f->rank == t->rank;
  for (uint32_t i = 0; same && i < f->rank; i++) same = f->dims[i] == t->dims[i];
  if (!same)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-REPLACE", "values %u and %u differ in shape", from, to);
  while (f->first_use != GNONE) {
    const guse u = g->uses[f->first_use];
    const int32_t rc = graph_set_input(g, u.node, u.arg, to, err);
    if (rc != BS_OK) return rc;
  }
  if (f->kind != GV_VIEW && f->next_view != GNONE) {
    if (t->base == from || !graph_is_dense(t))
      return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-REPLACE",
                          "value %u has views and %u is one of them, or not dense", from, to);
    move_views(g, from, to);
  }
  replace_ports(g->outputs, g->n_outputs, from, to);
  replace_ports(g->states, g->n_states, from, to);
  t->flags |= (uint16_t)(f->flags & GV_OUTPUT);
  f->flags &= (uint16_t)~GV_OUTPUT;
  return BS_OK;
}
