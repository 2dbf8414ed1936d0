/* SPDX-License-Identifier: MIT
 * validate.c - all that a graph must satisfy at any time between two mutations. It trusts nothing: a pass
 * that went wrong is found here and named, before a kernel reads beyond its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/op/dispatch.h"
#include "core/op/quant.h"
#include "graph/ir/graph.h"
#include "graph/ir/internal.h"
#include "graph/ir/query.h"

typedef struct check {
  const graph *g;
  const char *when;
  bs_error *err;
  uint32_t *writer;  /* of a value: order of the node that writes it; GNONE */
  uint32_t *writers; /* of a root: nodes that write to it */
  uint32_t *done;    /* of a root: those of them that ran */
} check;

static int32_t wrong(const check *c, uint32_t node, const char *fmt, uint32_t value) {
  char text[200], name[32];
  snprintf(text, sizeof text, fmt, value != GNONE ? graph_value_name(c->g, value, name) : "");
  const gnode *n = node != GNONE ? &c->g->nodes[node] : NULL;
  bs_error_set(c->err, BS_INTERNAL, "BS-GRAPH-VALID", "the graph is wrong %s: %s%s%s", c->when,
               n != NULL ? graph_op_name(n->op) : "", n != NULL ? ": " : "", text);
  if (n != NULL && n->origin != GNONE)
    bs_error_where(c->err, "from %s", graph_text_of(c->g, c->g->origins[n->origin].text));
  return BS_INTERNAL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Its form is one of tensor.h, and its shape that of the value. */
static int32_t check_quant(const check *c, uint32_t i) {
  const gvalue *v = &c->g->values[i];
  const gquant *q = v->data;
  if (v->kind != GV_CONST || q == NULL || v->dtype != BS_F32 || v->rank != 2 || v->dims[0] != q->quant.rows ||
      v->dims[1] != q->quant.cols || q->quant.read == NULL || q->n_keys == 0 || q->n_keys > GJOIN_MAX ||
      bs_quant_check(&q->quant, "weight", NULL) != BS_OK)
    return wrong(c, GNONE, "quantised constant %s has another form or shape", i);
  return BS_OK;
}

static int32_t check_value(const check *c, uint32_t i) {
  const gvalue *v = &c->g->values[i];
  if (v->kind == GV_FREE) return BS_OK;
  if (v->kind > GV_STATE || v->rank > BS_MAX_DIMS) return wrong(c, GNONE, "value %s has no kind", i);
  if (v->base >= c->g->n_values || c->g->values[v->base].kind == GV_VIEW ||
      (v->kind != GV_VIEW && v->base != i))
    return wrong(c, GNONE, "value %s has no root", i);
  const gvalue *root = &c->g->values[v->base];
  int64_t last = v->offset;
  for (uint32_t d = 0; d < v->rank; d++) {
    if (v->dims[d] < 0 || v->strides[d] < 0) return wrong(c, GNONE, "value %s has a negative size", i);
    last += v->dims[d] > 0 ? (v->dims[d] - 1) * v->strides[d] : 0;
  }
  if (v->kind != GV_VIEW) {
    if (v->offset != 0 || !graph_is_dense(v)) return wrong(c, GNONE, "root %s is not dense", i);
    if (v->kind == GV_CONST && v->data == NULL && graph_count(v) > 0)
      return wrong(c, GNONE, "constant %s has no data", i);
    if (v->flags & GV_QUANT) return check_quant(c, i);
    return BS_OK;
  }
  if (v->dtype != root->dtype) return wrong(c, GNONE, "view %s has another dtype than its root", i);
  if (graph_count(v) > 0 && (v->offset < 0 || last >= graph_count(root)))
    return wrong(c, GNONE, "view %s reaches beyond its root", i);
  return BS_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int32_t check_refs(const check *c, uint32_t node) {
  const gnode *n = &c->g->nodes[node];
  if (n->op == GOP_FREE || n->op >= GOP_COUNT_ || n->n_in > GNODE_IN || n->n_out > GNODE_OUT ||
      n->n_in + n->n_out > BS_MAX_OP_ARGS)
    return wrong(c, node, "a node has no op or too many arguments", GNONE);
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] != GNONE && (n->in[i] >= c->g->n_values || c->g->values[n->in[i]].kind == GV_FREE))
      return wrong(c, node, "it reads a value that does not exist", GNONE);
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] != GNONE && c->g->values[n->in[i]].scale != 0)
      return wrong(c, node, "it reads %s, which is multiplied as a weight alone is", n->in[i]);
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE) continue;
    if (n->out[i] >= c->g->n_values) return wrong(c, node, "it writes a value that does not exist", GNONE);
    const gvalue *v = &c->g->values[n->out[i]];
    const uint8_t kind = c->g->values[v->base].kind;
    if (kind != GV_TEMP && !(kind == GV_STATE && v->kind == GV_VIEW))
      return wrong(c, node, "it writes %s, which is an input or a constant", n->out[i]);
    if (v->producer != node) return wrong(c, node, "it writes %s, which another node gives", n->out[i]);
  }
  const int packed = graph_is_packed(n->op);
  if (packed != (n->weight != GNONE) || (packed && !graph_is_const(c->g, n->weight)))
    return wrong(c, node, "a product has no constant weight, or another op has one", GNONE);
  if (packed && (graph_quant(c->g, n->weight) != NULL) != (n->op != GOP_MATMUL))
    return wrong(c, node, "its weight %s is quantised, or should be", n->weight);
  if (n->op != GOP_MATMUL && packed && c->g->values[n->weight].kind == GV_VIEW)
    return wrong(c, node, "its weight %s is a view", n->weight);
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] != GNONE && graph_quant(c->g, n->in[i]) != NULL)
      return wrong(c, node, "it reads %s, which is quantised", n->in[i]);
  if ((n->op == GOP_MAP) != (n->expr < c->g->n_exprs)) return wrong(c, node, "it has no program", GNONE);
  return BS_OK;
}

static int32_t check_shapes(const check *c, uint32_t node) {
  const gnode *n = &c->g->nodes[node];
  gquery q;
  bs_error why = BS_ERROR_INIT;
  graph_query(c->g, n, &q);
  if (bs_op_check(&q.query, &why) != BS_OK) {
    wrong(c, node, "%s", GNONE);
    bs_error_set(c->err, BS_INTERNAL, "BS-GRAPH-VALID", "the graph is wrong %s: %s", c->when, why.message);
    if (n->origin != GNONE)
      bs_error_where(c->err, "from %s", graph_text_of(c->g, c->g->origins[n->origin].text));
    return BS_INTERNAL;
  }
  if (n->op == GOP_MATMUL && n->layer == 0) { /* of a layer, the rank has a part */
    const gvalue *w = &c->g->values[n->weight];
    if (w->rank != 2 || w->dims[0] != q.descs[3].dims[1] || w->dims[1] != q.descs[0].dims[1])
      return wrong(c, node, "its weight %s has another shape", n->weight);
  }
  return BS_OK;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* A read is fine when the value itself was written, or all writers of its root ran. */
static int32_t check_reads(const check *c, uint32_t node) {
  const gnode *n = &c->g->nodes[node];
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (n->in[i] == GNONE) continue;
    const uint32_t root = c->g->values[n->in[i]].base;
    if (c->g->values[root].kind != GV_TEMP || c->writer[n->in[i]] != GNONE) continue;
    if (c->writers[root] == 0 || c->done[root] < c->writers[root])
      return wrong(c, node, "it reads %s before all of it is written", n->in[i]);
  }
  return BS_OK;
}

static void interval(const gvalue *v, int64_t *out_first, int64_t *out_last) {
  *out_first = *out_last = v->offset;
  for (uint32_t d = 0; d < v->rank; d++) *out_last += v->dims[d] > 0 ? (v->dims[d] - 1) * v->strides[d] : 0;
}

/* Marks the elements of a view. 0: one was marked before. */
static int mark(const gvalue *v, unsigned char *marks) {
  int64_t index[BS_MAX_DIMS] = {0}, at = v->offset;
  for (int64_t i = graph_count(v); i > 0; i--) {
    if (marks[at]) return 0;
    marks[at] = 1;
    for (uint32_t d = v->rank; d-- > 0;) {
      at += v->strides[d];
      if (++index[d] < v->dims[d]) break;
      at -= v->dims[d] * v->strides[d];
      index[d] = 0;
    }
  }
  return 1;
}

/* Several nodes write to one root: by intervals where these are apart, else element by element up to a size.
 */
static int32_t check_parts(const check *c, uint32_t root, const uint32_t *parts, uint32_t n) {
  const gvalue *r = &c->g->values[root];
  int64_t sum = 0, end = 0;
  int apart = 1;
  for (uint32_t i = 0; i < n; i++) {
    int64_t first, last;
    interval(&c->g->values[parts[i]], &first, &last);
    sum += graph_count(&c->g->values[parts[i]]);
    if (i > 0 && first < end) apart = 0;
    end = last + 1;
  }
  if (r->kind == GV_TEMP && sum != graph_count(r))
    return wrong(c, GNONE, "value %s is not written whole, or twice", root);
  if (apart || graph_count(r) > (INT64_C(1) << 22)) return BS_OK;
  unsigned char *marks = calloc((size_t)graph_count(r) + 1u, 1);
  if (marks == NULL) return graph_no_memory(c->err);
  int ok = 1;
  for (uint32_t i = 0; i < n && ok; i++) ok = mark(&c->g->values[parts[i]], marks);
  free(marks);
  return ok ? BS_OK : wrong(c, GNONE, "value %s is written twice", root);
}

static int compare_parts(const void *a, const void *b, void *arg) {
  const graph *g = arg;
  const gvalue *x = &g->values[*(const uint32_t *)a], *y = &g->values[*(const uint32_t *)b];
  if (x->base != y->base) return x->base < y->base ? -1 : 1;
  return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* All outputs of all nodes, by root: what a root gets. */
static int32_t check_writes(const check *c) {
  uint32_t n = 0, *parts = malloc((c->g->n_live * GNODE_OUT + 1u) * sizeof *parts);
  if (parts == NULL) return graph_no_memory(c->err);
  for (uint32_t i = c->g->first; i != GNONE; i = c->g->nodes[i].next)
    for (uint32_t k = 0; k < c->g->nodes[i].n_out; k++)
      if (c->g->nodes[i].out[k] != GNONE) parts[n++] = c->g->nodes[i].out[k];
  qsort_r(parts, n, sizeof *parts, compare_parts, (void *)c->g);
  int32_t rc = BS_OK;
  for (uint32_t i = 0, k; i < n && rc == BS_OK; i = k) {
    const uint32_t root = c->g->values[parts[i]].base;
    for (k = i; k < n && c->g->values[parts[k]].base == root;) k++;
    rc = check_parts(c, root, parts + i, k - i);
  }
  free(parts);
  return rc;
}

static int32_t check_nodes(const check *c) {
  uint32_t count = 0, before = GNONE;
  for (uint32_t i = c->g->first; i != GNONE; before = i, i = c->g->nodes[i].next) {
    if (++count > c->g->n_live || c->g->nodes[i].prev != before)
      return wrong(c, i, "the list of nodes is broken", GNONE);
    const int32_t rc = check_refs(c, i);
    if (rc != BS_OK) return rc;
    for (uint32_t k = 0; k < c->g->nodes[i].n_out; k++)
      if (c->g->nodes[i].out[k] != GNONE) c->writers[c->g->values[c->g->nodes[i].out[k]].base]++;
  }
  for (uint32_t i = c->g->first, order = 0; i != GNONE; i = c->g->nodes[i].next, order++) {
    int32_t rc = check_shapes(c, i);
    if (rc == BS_OK) rc = check_reads(c, i);
    if (rc != BS_OK) return rc;
    for (uint32_t k = 0; k < c->g->nodes[i].n_out; k++) {
      const uint32_t v = c->g->nodes[i].out[k];
      if (v == GNONE) continue;
      c->writer[v] = order;
      c->done[c->g->values[v].base]++;
    }
  }
  return check_writes(c);
}

/* Every view stands once in the chain of its root. */
static int32_t check_views(const check *c) {
  uint64_t views = 0, in_chains = 0;
  for (uint32_t i = 0; i < c->g->n_values; i++) views += c->g->values[i].kind == GV_VIEW;
  for (uint32_t i = 0; i < c->g->n_values; i++) {
    if (c->g->values[i].kind == GV_VIEW) continue;
    for (uint32_t v = c->g->values[i].next_view; v != GNONE; v = c->g->values[v].next_view)
      if (v >= c->g->n_values || c->g->values[v].base != i || ++in_chains > views)
        return wrong(c, GNONE, "the list of views of %s is broken", i);
  }
  return in_chains == views ? BS_OK : wrong(c, GNONE, "a list of views is broken", GNONE);
}

/* The use lists say what the nodes say. */
static int32_t check_uses(const check *c) {
  uint64_t by_nodes = 0, by_lists = 0;
  for (uint32_t i = c->g->first; i != GNONE; i = c->g->nodes[i].next)
    for (uint32_t k = 0; k <= GNODE_IN; k++)
      by_nodes += (k == GNODE_IN ? c->g->nodes[i].weight : c->g->nodes[i].in[k]) != GNONE;
  for (uint32_t v = 0; v < c->g->n_values; v++)
    for (uint32_t u = c->g->values[v].first_use; u != GNONE; u = c->g->uses[u].next) {
      const guse *use = &c->g->uses[u];
      const gnode *n = &c->g->nodes[use->node];
      if (n->op == GOP_FREE || (use->arg == GNODE_IN ? n->weight : n->in[use->arg]) != v ||
          ++by_lists > by_nodes)
        return wrong(c, GNONE, "the list of users of %s is broken", v);
    }
  return by_lists == by_nodes ? BS_OK : wrong(c, GNONE, "a list of users is broken", GNONE);
}

static int32_t check_ports(const check *c) {
  for (uint32_t i = 0; i < c->g->n_outputs; i++) {
    const uint32_t v = c->g->outputs[i].value;
    const gvalue *root = v < c->g->n_values ? &c->g->values[c->g->values[v].base] : NULL;
    if (root == NULL || root->kind != GV_TEMP || c->writers[c->g->values[v].base] == 0 ||
        !(root->flags & GV_OUTPUT))
      return wrong(c, GNONE, "output %s is not computed", v);
  }
  for (uint32_t i = 0; i < c->g->n_states; i++)
    if (c->g->values[c->g->values[c->g->states[i].value].base].kind != GV_STATE)
      return wrong(c, GNONE, "state %s has no memory", c->g->states[i].value);
  return BS_OK;
}

int32_t graph_validate(const graph *g, const char *when, bs_error *err) {
  const size_t n = g->n_values + 1u;
  check c = {.g = g, .when = when, .err = err};
  c.writer = malloc(n * sizeof *c.writer);
  c.writers = calloc(n, sizeof *c.writers);
  c.done = calloc(n, sizeof *c.done);
  int32_t rc = BS_OK;
  if (c.writer == NULL || c.writers == NULL || c.done == NULL) {
    rc = graph_no_memory(err);
  } else {
    for (size_t i = 0; i < n; i++) c.writer[i] = GNONE;
    for (uint32_t i = 0; i < g->n_values && rc == BS_OK; i++) rc = check_value(&c, i);
    if (rc == BS_OK) rc = check_views(&c);
    if (rc == BS_OK) rc = check_nodes(&c);
    if (rc == BS_OK) rc = check_uses(&c);
    if (rc == BS_OK) rc = check_ports(&c);
  }
  free(c.writer);
  free(c.writers);
  free(c.done);
  return rc;
}
