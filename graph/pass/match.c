/* SPDX-License-Identifier: MIT
 * match.c - questions of passes. */
#include "graph/pass/match.h"

#include <string.h>

#include "core/base/dtype.h"
#include "core/op/dispatch.h"
#include "graph/ir/query.h"

/* A dense view of as many elements as its root has begins where the root does. */
static int is_whole(const gvalue *v, const gvalue *root) {
  return graph_is_dense(v) && graph_count(v) == graph_count(root);
}

/* A root is written as itself, or through a view of all of it. */
static uint32_t writer_of(const graph *g, uint32_t root) {
  if (g->values[root].producer != GNONE) return g->values[root].producer;
  for (uint32_t i = g->values[root].next_view; i != GNONE; i = g->values[i].next_view)
    if (g->values[i].producer != GNONE)
      return is_whole(&g->values[i], &g->values[root]) ? g->values[i].producer : GNONE;
  return GNONE;
}

uint32_t match_producer(const graph *g, uint32_t value) {
  if (value == GNONE) return GNONE;
  const gvalue *v = &g->values[value], *root = &g->values[v->base];
  return root->kind == GV_TEMP && is_whole(v, root) ? writer_of(g, v->base) : GNONE;
}

uint32_t match_only(const graph *g, uint32_t value, uint32_t op, uint32_t user) {
  const uint32_t producer = match_producer(g, value);
  if (producer == GNONE || g->nodes[producer].op != op) return GNONE;
  const uint32_t sole = graph_sole_user(g, g->values[value].base); /* none where a port shows it */
  return sole != GNONE && (user == GNONE || sole == user) ? producer : GNONE;
}

int match_dims(const graph *g, uint32_t a, uint32_t b) {
  const gvalue *x = &g->values[a], *y = &g->values[b];
  int same = x->rank == y->rank;
  for (uint32_t i = 0; i < x->rank && same; i++) same = x->dims[i] == y->dims[i];
  return same;
}

int match_same(const graph *g, uint32_t a, uint32_t b) {
  if (!match_dims(g, a, b)) return 0;
  const gvalue *x = &g->values[a], *y = &g->values[b];
  if (x->base != y->base || x->offset != y->offset) return 0;
  for (uint32_t i = 0; i < x->rank; i++)
    if (x->dims[i] > 1 && x->strides[i] != y->strides[i]) return 0;
  return 1;
}

int match_row_number(const graph *g, uint32_t value, uint32_t rows) {
  const gvalue *v = &g->values[value], *r = &g->values[rows];
  if (v->rank == 0 || v->rank != r->rank || v->dims[v->rank - 1u] != 1) return 0;
  for (uint32_t i = 0; i + 1u < v->rank; i++)
    if (v->dims[i] != r->dims[i]) return 0;
  return 1;
}

int match_keeps(const graph *g, uint32_t between, uint32_t out) {
  const uint32_t a = g->values[between].dtype, b = g->values[out].dtype;
  if (a == b) return 1;
  if (a == BS_F64) return bs_dtype_is_float(b);
  return a == BS_F32 && bs_dtype_is_float(b) && b != BS_F64;
}

int match_number(const graph *g, uint32_t value, double *out_number) {
  const gvalue *v = &g->values[value];
  unsigned char element[8];
  if (graph_count(v) != 1 || graph_read_const(g, value, element, NULL) != BS_OK) return 0;
  *out_number = bs_load_f64(v->dtype, element, 0);
  return 1;
}

int match_row(const graph *g, uint32_t value, int64_t n) {
  const gvalue *v = &g->values[value];
  if (v->rank == 0 || v->dims[v->rank - 1] != n || (n > 1 && v->strides[v->rank - 1] != 1)) return 0;
  return graph_count(v) == n;
}

int32_t match_reshape(graph *g, uint32_t value, uint32_t rank, const int64_t *dims, uint32_t *out_value,
                      bs_error *err) {
  const gvalue v = g->values[value];
  int64_t strides[BS_MAX_DIMS] = {0};
  *out_value = GNONE;
  gvalue wanted = {.rank = (uint8_t)rank};
  for (uint32_t i = 0; i < rank; i++) wanted.dims[i] = dims[i];
  if (graph_count(&wanted) != graph_count(&v)) return BS_OK;
  if (v.rank == rank && memcmp(v.dims, dims, rank * sizeof *dims) == 0) {
    *out_value = value;
    return BS_OK;
  }
  if (!graph_reshape_strides(v.rank, v.dims, v.strides, rank, dims, strides)) return BS_OK;
  return graph_add_view(g, v.base, v.dtype, rank, dims, strides, v.offset, out_value, err);
}

uint32_t match_slot(const graph *g, const gnode *n, uint32_t root) {
  uint32_t slot = n->n_in;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (g->values[n->in[i]].base != root) continue;
    if (slot != n->n_in) return n->n_in;
    slot = i;
  }
  return slot;
}

/* A node between `from` and `to` writes to a state that `from` reads. */
static int state_changes(const graph *g, uint32_t from, uint32_t to) {
  for (uint32_t i = 0; i < g->nodes[from].n_in; i++) {
    const uint32_t in = g->nodes[from].in[i];
    if (in == GNONE || g->values[g->values[in].base].kind != GV_STATE) continue;
    for (uint32_t k = g->nodes[from].next; k != GNONE && k != to; k = g->nodes[k].next)
      for (uint32_t o = 0; o < g->nodes[k].n_out; o++)
        if (g->nodes[k].out[o] != GNONE && g->values[g->nodes[k].out[o]].base == g->values[in].base) return 1;
  }
  return 0;
}

static int is_unread(const graph *g, uint32_t value) {
  const uint32_t root = g->values[value].base;
  for (uint32_t i = root; i != GNONE; i = g->values[i].next_view)
    if (g->values[i].first_use != GNONE) return 0;
  return g->values[root].kind == GV_TEMP && !(g->values[root].flags & GV_OUTPUT);
}

/* The new node writes an output of the old one, or nothing reads any of them. */
static int is_replaced(const graph *g, uint32_t old, const gnode *node) {
  int unread = 1;
  for (uint32_t i = 0; i < g->nodes[old].n_out; i++) {
    const uint32_t out = g->nodes[old].out[i];
    for (uint32_t k = 0; k < node->n_out; k++)
      if (out != GNONE && node->out[k] == out) return 1;
    unread &= out == GNONE || is_unread(g, out);
  }
  return unread;
}

int match_accepts(const graph *g, const gnode *node) {
  gquery q;
  graph_query(g, node, &q);
  return bs_op_check(&q.query, NULL) == BS_OK;
}

int32_t match_replace(graph *g, const gnode *node, const uint32_t *old, uint32_t n, uint32_t *out_node,
                      uint32_t *io_changes, bs_error *err) {
  if (!match_accepts(g, node)) return BS_OK;
  for (uint32_t i = 1; i < n; i++)
    if (old[i] != GNONE && state_changes(g, old[i], old[0])) return BS_OK;
  const uint32_t at = g->nodes[old[0]].next;
  graph_remove_node(g, old[0]);
  for (uint32_t i = 1; i < n; i++)
    if (old[i] != GNONE && is_replaced(g, old[i], node)) graph_remove_node(g, old[i]);
  ++*io_changes;
  return graph_add_node(g, node, at, out_node, err);
}

gnode match_node(uint32_t op, uint32_t n_in, uint32_t n_out) {
  gnode n = {.op = (uint16_t)op,
             .n_in = (uint8_t)n_in,
             .n_out = (uint8_t)n_out,
             .weight = GNONE,
             .expr = GNONE,
             .origin = GNONE};
  for (uint32_t i = 0; i < GNODE_IN; i++) n.in[i] = GNONE;
  for (uint32_t i = 0; i < GNODE_OUT; i++) n.out[i] = GNONE;
  return n;
}
