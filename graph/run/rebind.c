/* SPDX-License-Identifier: MIT
 * rebind.c - another size of a bucket: its numbers go into the graph, and what was made of them follows. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/run/bucket_make.h"

static void write_number(const gbucket_number *n, int64_t value) {
  const double wide = n->kind == GNUMBER_INVERSE ? 1 / (double)value : (double)value;
  if (n->kind == GNUMBER_INT)
    memcpy(n->at, &value, sizeof value);
  else
    memcpy(n->at, &wide, sizeof wide);
}

void gbucket_write(const gbucket *b, graph *g, const int64_t *sizes) {
  const gbucket_range *r = &b->range;
  const int64_t u = r->sizes[r->symbol[0]] - sizes[r->symbol[0]],
                v = r->n > 1 ? r->sizes[r->symbol[1]] - sizes[r->symbol[1]] : 0;
  for (uint32_t i = 0; i < b->n_numbers; i++) {
    const gbucket_number *n = &b->numbers[i];
    write_number(n, n->c[0] + u * (n->c[1] + n->c[3] * v) + v * n->c[2]);
  }
  for (uint32_t i = 0; i < b->n_dense; i++) {
    gvalue *value = &g->values[b->dense[i]];
    graph_dense_strides(value->rank, value->dims, value->strides);
  }
  for (uint32_t i = 0; i < b->n_strides; i++) *b->strides[i].at = b->strides[i].times * *b->strides[i].of;
}

/* The elements of a size in a row: those of the largest sizes at the same places. */
static void copy_leading(const gvalue *v, const gbucket_constant *k) {
  const uint32_t size = BS_DTYPE_BYTES(v->dtype), rank = v->rank;
  int64_t index[BS_MAX_DIMS] = {0}, at = 0;
  const int64_t run = rank > 0 ? v->dims[rank - 1] : 1;
  unsigned char *to = k->packed;
  for (int64_t left = graph_count(v); left > 0; left -= run) {
    memcpy(to, (const unsigned char *)k->data + (uint64_t)at * size, (size_t)run * size);
    to += (uint64_t)run * size;
    for (uint32_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
      at += k->strides[d];
      if (++index[d] < v->dims[d]) break;
      at -= v->dims[d] * k->strides[d];
      index[d] = 0;
    }
  }
}

/* Integers that are functions of the sizes. */
static void compute_integers(const gvalue *v, const gbucket_constant *k, int64_t u, int64_t w) {
  int64_t index[BS_MAX_DIMS] = {0}, at = 0, *wide = k->packed;
  int32_t *narrow = k->packed;
  const int64_t count = graph_count(v);
  for (int64_t i = 0; i < count; i++) {
    const int64_t number = k->c[0][at] + u * (k->c[1][at] + k->c[3][at] * w) + w * k->c[2][at];
    if (v->dtype == BS_I64)
      wide[i] = number;
    else
      narrow[i] = (int32_t)number;
    for (uint32_t d = v->rank; d-- > 0;) {
      at += k->strides[d];
      if (++index[d] < v->dims[d]) break;
      at -= v->dims[d] * k->strides[d];
      index[d] = 0;
    }
  }
}

static void set_constants(gbinding *b, const int64_t *sizes) {
  const gbucket *k = b->bucket;
  const gbucket_range *r = &k->range;
  for (uint32_t i = 0; i < k->n_constants; i++) {
    const gbucket_constant *c = &k->constants[i];
    const gvalue *v = &b->g->values[c->value];
    if (c->c[0] != NULL)
      compute_integers(v, c, gbucket_below(r, 0, sizes), gbucket_below(r, 1, sizes));
    else if (c->packed != NULL)
      copy_leading(v, c);
    gbinding_set_root(b, c->value, c->packed != NULL ? c->packed : c->data);
  }
}

/* Memory of a root from here on. */
static void *root_data(const gbinding *b, uint32_t root) {
  const gvalue *v = &b->g->values[root];
  if (v->kind != GV_TEMP) return b->tensors[root].data;
  return b->arena != NULL ? (unsigned char *)b->arena + b->place[root] : NULL;
}

int32_t gbucket_bind(gbinding *b, const int64_t *sizes, bs_error *err) {
  gbucket *k = b->bucket;
  graph *g = b->g;
  gbucket_write(k, g, sizes);
  const int32_t rc = gbinding_prepare_again(b, k->again, k->n_again, err);
  if (rc != BS_OK) {
    gbucket_write(k, g, b->sizes);
    return rc;
  }
  memcpy(b->sizes, sizes, k->range.n_sizes * sizeof *sizes);
  for (uint32_t i = 0; i < k->n_over; i++) {
    const gvalue *under = &g->values[b->life.over[k->over[i]]];
    b->place[k->over[i]] = b->place[under->base] + (uint64_t)under->offset * BS_DTYPE_BYTES(under->dtype);
  }
  for (uint32_t i = 0; i < k->n_roots; i++) gbinding_set_root(b, k->roots[i], root_data(b, k->roots[i]));
  set_constants(b, sizes);
  b->checked = 0;
  return BS_OK;
}

/* ---- compared with a plan for these sizes alone ---------------------------------------------- */

static int32_t differs(const graph *g, const char *what, uint32_t value, bs_error *err) {
  char name[32];
  return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-BUCKET",
                      "%s of %s is not what these sizes planned alone have", what,
                      graph_value_name(g, value, name));
}

static int same_numbers(const gnode *x, const gnode *y) {
  int same = 1;
  for (uint32_t i = 0; i < sizeof x->numbers / sizeof x->numbers[0]; i++)
    same &= gbucket_same_bits(x->numbers[i], y->numbers[i]);
  return same;
}

static int32_t verify_pairs(const gbinding *b, const gpairs *p, bs_error *err) {
  const graph *g = b->g;
  for (uint32_t i = 0; i < g->n_values; i++) {
    const gvalue *x = &g->values[i], *y = p->value[i] != GNONE ? &p->b->values[p->value[i]] : NULL;
    for (uint32_t d = 0; y != NULL && d < x->rank; d++)
      if (x->dims[d] != y->dims[d] || (x->dims[d] > 1 && x->strides[d] != y->strides[d]))
        return differs(g, "a dim or stride", i, err);
    if (y != NULL && x->offset != y->offset) return differs(g, "the offset", i, err);
    if (y == NULL || x->kind != GV_CONST || x->flags & (GV_QUANT | GV_JOINED) || b->tensors[i].data == NULL)
      continue;
    const int32_t rc = graph_ask(p->b, p->value[i], err);
    if (rc != BS_OK) return rc;
    if (memcmp(b->tensors[i].data, y->data, (size_t)graph_bytes(y)) != 0)
      return differs(g, "the contents", i, err);
  }
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    const gnode *x = &g->nodes[id], *y = &p->b->nodes[p->node[id]];
    if (memcmp(x->attrs, y->attrs, sizeof x->attrs) != 0 || !same_numbers(x, y) ||
        (x->op == GOP_MAP && memcmp(&g->exprs[x->expr], &p->b->exprs[y->expr], sizeof *g->exprs) != 0))
      return differs(g, "a number of the writer", x->out[0], err);
  }
  return BS_OK;
}

int32_t gbucket_verify(const gbinding *b, const graph *own, bs_error *err) {
  gpairs p;
  int32_t rc = graph_validate(b->g, "with the numbers of these sizes", err);
  if (rc != BS_OK) return rc;
  rc = gpairs_make(b->g, own, &p, err);
  if (rc == BS_OK) rc = verify_pairs(b, &p, err);
  gpairs_free(&p);
  return rc == BS_UNSUPPORTED ? BS_INTERNAL : rc;
}
