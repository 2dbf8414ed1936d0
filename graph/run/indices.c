/* SPDX-License-Identifier: MIT
 * indices.c - a device may read row 0 where an index is outside of a table (op.h). So numbers that the caller
 * gives are looked at on the host before they go up: those of a take, a take_q or a put whose index is an
 * input. */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/run/run.h"

/* The value that has the places; GNONE: an op without. */
static uint32_t index_of(const gnode *n) {
  if (n->op == GOP_TAKE_Q) return n->in[0];
  return n->op == GOP_TAKE || n->op == GOP_PUT ? n->in[1] : GNONE;
}

/* The size of a dimension of the table; that of take_q is a weight, and an index counts its rows. */
static int64_t size_of(const gbinding *b, const gnode *n, int64_t dim) {
  return n->op == GOP_TAKE_Q ? b->g->values[n->weight].dims[dim] : b->tensors[n->in[0]].dims[dim];
}

static int is_looked_at(const gbinding *b, const gstep *s) {
  const uint32_t index = index_of(&b->g->nodes[s->node]);
  if (s->hosted != NULL || s->layer != NULL || index == GNONE) return 0;
  const gvalue *root = &b->g->values[b->g->values[index].base];
  return root->kind == GV_INPUT && !(root->flags & GV_LENGTH);
}

/* The port whose memory the index is. */
static uint32_t port_of(const graph *g, uint32_t root) {
  uint32_t i = 0;
  while (i < g->n_inputs && g->values[g->inputs[i].value].base != root) i++;
  return i;
}

static int32_t outside(const gbinding *b, const gstep *s, int64_t index, int64_t dim, bs_error *err) {
  const gnode *n = &b->g->nodes[s->node];
  const int64_t size = size_of(b, n, dim);
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX",
               "%s: index %" PRId64 " is outside of dimension %" PRId64 " of size %" PRId64,
               graph_op_name(n->op), index, dim, size);
  bs_error_hint(err, "an index must be in [%" PRId64 ", %" PRId64 ")", -size, size);
  return gnode_failed(b->g, n, BS_INVALID_ARGUMENT, err);
}

/* The dimension that number i of the index counts in: of a tuple each number has its own. */
static int64_t dim_of(const gnode *n, const bs_tensor *index, uint64_t i) {
  if (n->op == GOP_TAKE_Q) return 0;
  if (n->attrs[0] != BS_INDEX_TUPLES) return n->attrs[1];
  return n->attrs[2] + (int64_t)(i % (uint64_t)index->dims[index->rank - 1]);
}

static int32_t look(const gbinding *b, const gstep *s, bs_error *err) {
  enum { FEW = 64 }; /* of a decode step: nothing is allocated */
  int64_t few[FEW];
  const gnode *n = &b->g->nodes[s->node];
  const uint32_t index = index_of(n);
  const gvalue *v = &b->g->values[index];
  const uint32_t port = port_of(b->g, v->base);
  const unsigned char *host = port < b->g->n_inputs ? gports_host(b, port) : NULL;
  bs_tensor t = b->tensors[index];
  if (host == NULL) return BS_OK;
  t.data = (void *)(uintptr_t)(host + (uint64_t)v->offset * BS_DTYPE_BYTES(v->dtype));
  const uint64_t count = tensor_elements(&t);
  int64_t *numbers = count <= FEW ? few : malloc(count * sizeof *numbers), bad = 0, dim = 0;
  if (numbers == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  bs_read_dense(BS_I64, numbers, &t);
  uint64_t i = 0;
  for (; i < count; i++) {
    bad = numbers[i];
    dim = dim_of(n, &t, i);
    const int64_t size = size_of(b, n, dim);
    if (bad < -size || bad >= size) break;
  }
  if (numbers != few) free(numbers);
  return i < count ? outside(b, s, bad, dim, err) : BS_OK;
}

int32_t gindices_check(const gbinding *b, bs_error *err) {
  int32_t rc = BS_OK;
  if (!b->rank->apart || b->rank->phantom) return BS_OK;
  for (uint32_t i = 0; i < b->n_steps && rc == BS_OK; i++)
    if (is_looked_at(b, &b->steps[i])) rc = look(b, &b->steps[i], err);
  return rc;
}
