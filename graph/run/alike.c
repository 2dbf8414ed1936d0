/* SPDX-License-Identifier: MIT
 * alike.c - two graphs of one model at different sizes: are they the same in all but numbers, and are the
 * constants of the smaller one leading parts of the larger one's? */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/op/quant.h"
#include "graph/run/bucket.h"

static int32_t differ(const gpairs *p, const gnode *n, const char *what, bs_error *err) {
  if (n == NULL || n->origin == GNONE)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BUCKET", "the sizes change %s", what);
  return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BUCKET", "the sizes change %s of %s, node %.80s", what,
                      graph_op_name(n->op), graph_text_of(p->a, p->a->origins[n->origin].text));
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static int same_quant(const gquant *x, const gquant *y) {
  return x->n_keys == y->n_keys && x->x_bytes == y->x_bytes &&
         memcmp(x->keys, y->keys, x->n_keys * sizeof x->keys[0]) == 0 &&
         bs_quant_same_form(&x->quant, &y->quant);
}

static int pair(gpairs *p, uint32_t a, uint32_t b);

static int pair_data(gpairs *p, const gvalue *x, const gvalue *y) {
  if (x->flags & GV_QUANT) return same_quant(x->data, y->data);
  if (!(x->flags & GV_JOINED)) return 1;
  const gjoin *j = x->data, *k = y->data;
  int same = j->n == k->n;
  for (uint32_t i = 0; same && i < j->n; i++) same = pair(p, j->parts[i], k->parts[i]);
  return same;
}

/* 1: value b stands where value a does, and both are alike. */
static int pair(gpairs *p, uint32_t a, uint32_t b) {
  if (a == GNONE || b == GNONE) return a == b;
  if (p->value[a] != GNONE || p->back[b] != GNONE) return p->value[a] == b && p->back[b] == a;
  const gvalue *x = &p->a->values[a], *y = &p->b->values[b];
  if (x->kind != y->kind || x->rank != y->rank || x->flags != y->flags || x->dtype != y->dtype ||
      !gbucket_same_bits(x->scale, y->scale))
    return 0;
  p->value[a] = b;
  p->back[b] = a;
  if (x->kind == GV_VIEW) return pair(p, x->base, y->base);
  if (x->kind == GV_CONST) return pair_data(p, x, y);
  return x->kind == GV_TEMP ||
         (x->source == y->source && strcmp(graph_text_of(p->a, x->name), graph_text_of(p->b, y->name)) == 0);
}

static int pair_lists(gpairs *p, const uint32_t *a, const uint32_t *b, uint32_t n) {
  int same = 1;
  for (uint32_t i = 0; same && i < n; i++) same = pair(p, a[i], b[i]);
  return same;
}

/* Programs are alike in all but constants. Nodes that have one in common have one in common in b. */
static int pair_exprs(gpairs *p, uint32_t a, uint32_t b) {
  const gexpr *x = &p->a->exprs[a], *y = &p->b->exprs[b];
  if (p->expr[a] != GNONE) return p->expr[a] == b || memcmp(&p->b->exprs[p->expr[a]], y, sizeof *y) == 0;
  gexpr as = *x;
  memcpy(as.consts, y->consts, sizeof as.consts);
  p->expr[a] = b;
  return memcmp(&as, y, sizeof as) == 0;
}

static int32_t pair_nodes(gpairs *p, const gnode *x, const gnode *y, bs_error *err) {
  if (x->op != y->op || x->n_in != y->n_in || x->n_out != y->n_out) return differ(p, x, "the nodes", err);
  if (!pair_lists(p, x->in, y->in, x->n_in) || !pair(p, x->weight, y->weight))
    return differ(p, x, "what is read", err);
  if (!pair_lists(p, x->out, y->out, x->n_out)) return differ(p, x, "what is written", err);
  if (x->activation != y->activation || x->accumulate != y->accumulate || x->layer != y->layer)
    return differ(p, x, "an activation", err);
  if (x->op == GOP_MAP && !pair_exprs(p, x->expr, y->expr)) return differ(p, x, "the program", err);
  return BS_OK;
}

static int pair_ports(gpairs *p, const gport *x, const gport *y, uint32_t n) {
  int same = 1;
  for (uint32_t i = 0; same && i < n; i++) same = pair(p, x[i].value, y[i].value);
  return same;
}

int32_t gpairs_make(const graph *a, const graph *b, gpairs *p, bs_error *err) {
  *p = (gpairs){.a = a, .b = b};
  p->value = malloc((a->n_values + 1u) * sizeof *p->value);
  p->back = malloc((b->n_values + 1u) * sizeof *p->back);
  p->node = calloc(a->n_nodes + 1u, sizeof *p->node);
  p->expr = malloc((a->n_exprs + 1u) * sizeof *p->expr);
  if (p->value == NULL || p->back == NULL || p->node == NULL || p->expr == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to compare graphs");
  for (uint32_t i = 0; i < a->n_values; i++) p->value[i] = GNONE;
  for (uint32_t i = 0; i < b->n_values; i++) p->back[i] = GNONE;
  for (uint32_t i = 0; i < a->n_exprs; i++) p->expr[i] = GNONE;
  if (a->n_live != b->n_live) return differ(p, NULL, "how many nodes there are", err);
  if (a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs || a->n_states != b->n_states ||
      !pair_ports(p, a->inputs, b->inputs, a->n_inputs))
    return differ(p, NULL, "inputs", err);
  uint32_t y = b->first;
  for (uint32_t x = a->first; x != GNONE && y != GNONE; x = a->nodes[x].next, y = b->nodes[y].next) {
    const int32_t rc = pair_nodes(p, &a->nodes[x], &b->nodes[y], err);
    if (rc != BS_OK) return rc;
    p->node[x] = y;
  }
  if (!pair_ports(p, a->outputs, b->outputs, a->n_outputs) ||
      !pair_ports(p, a->states, b->states, a->n_states))
    return differ(p, NULL, "outputs", err);
  return BS_OK;
}

void gpairs_free(gpairs *p) {
  free(p->value);
  free(p->back);
  free(p->node);
  free(p->expr);
  *p = (gpairs){0};
}

/* ---- constants ------------------------------------------------------------------------------- */

int gpairs_is_leading(const gvalue *whole, const gvalue *part) {
  const uint32_t size = BS_DTYPE_BYTES(whole->dtype), rank = whole->rank;
  const unsigned char *from = whole->data, *to = part->data;
  int64_t index[BS_MAX_DIMS] = {0}, strides[BS_MAX_DIMS], at = 0;
  for (uint32_t d = 0; d < rank; d++)
    if (part->dims[d] > whole->dims[d]) return 0;
  const int64_t run = rank > 0 ? part->dims[rank - 1] : 1;
  graph_dense_strides(rank, whole->dims, strides);
  for (int64_t left = graph_count(part); left > 0; left -= run) {
    if (memcmp(to, from + (uint64_t)at * size, (size_t)run * size) != 0) return 0;
    to += (uint64_t)run * size;
    for (uint32_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
      at += strides[d];
      if (++index[d] < part->dims[d]) break;
      at -= part->dims[d] * strides[d];
      index[d] = 0;
    }
  }
  return 1;
}
