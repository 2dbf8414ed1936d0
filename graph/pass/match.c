/* SPDX-License-Identifier: MIT
 * match.c - questions of passes. */
#include "graph/pass/match.h"

#include <string.h>

#include "core/base/dtype.h"

static int is_whole(const gvalue *v, const gvalue *root) {
  return v->offset == 0 && graph_is_dense(v) && graph_count(v) == graph_count(root);
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
  const uint32_t root = g->values[value].base, sole = graph_sole_user(g, root);
  if (sole == GNONE || (user != GNONE && sole != user) || g->values[root].flags & GV_OUTPUT) return GNONE;
  return producer;
}

int match_same(const graph *g, uint32_t a, uint32_t b) {
  if (a == b) return 1;
  if (a == GNONE || b == GNONE) return 0;
  const gvalue *x = &g->values[a], *y = &g->values[b];
  if (x->base != y->base || x->offset != y->offset || graph_count(x) != graph_count(y)) return 0;
  if (graph_is_dense(x) && graph_is_dense(y)) return 1;
  uint32_t i = 0, k = 0;
  for (;;) {
    while (i < x->rank && x->dims[i] == 1) i++;
    while (k < y->rank && y->dims[k] == 1) k++;
    if (i == x->rank || k == y->rank) return i == x->rank && k == y->rank;
    if (x->dims[i] != y->dims[k] || x->strides[i] != y->strides[k]) return 0;
    i++;
    k++;
  }
}

int match_number(const graph *g, uint32_t value, double *out_number) {
  const gvalue *v = &g->values[value];
  unsigned char element[8];
  if (!graph_is_const(g, value) || graph_count(v) != 1 || graph_read_const(g, value, element, NULL) != BS_OK)
    return 0;
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
  if (v.rank == rank && (rank == 0 || memcmp(v.dims, dims, rank * sizeof *dims) == 0)) {
    *out_value = value;
    return BS_OK;
  }
  if (!graph_reshape_strides(v.rank, v.dims, v.strides, rank, dims, strides)) return BS_OK;
  return graph_add_view(g, v.base, v.dtype, rank, dims, strides, v.offset, out_value, err);
}

uint32_t match_slot(const graph *g, const gnode *n, uint32_t root) {
  uint32_t slot = n->n_in;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (n->in[i] == GNONE || g->values[n->in[i]].base != root) continue;
    if (slot != n->n_in) return n->n_in;
    slot = i;
  }
  return slot;
}

int match_before(const graph *g, uint32_t a, uint32_t b) {
  for (uint32_t i = g->nodes[a].next; i != GNONE; i = g->nodes[i].next)
    if (i == b) return 1;
  return 0;
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
