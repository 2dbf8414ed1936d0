/* SPDX-License-Identifier: MIT
 * bytes.c - a table of the model that is not aligned to its elements: take copies rows of it as bytes, so
 * that the table stays in its file. For any other op it is copied (gcore_constant). */
#include <stdlib.h>

#include "core/base/error.h"
#include "graph/run/run.h"

static int is_unaligned(const gvalue *v) {
  return v->kind == GV_CONST && ((uintptr_t)v->data & (BS_DTYPE_BYTES(v->dtype) - 1u)) != 0;
}

static int ends_dense(const gvalue *v) {
  return v->rank > 0 && (v->dims[v->rank - 1] <= 1 || v->strides[v->rank - 1] == 1);
}

int gbytes_takes(const graph *g, const gnode *n) {
  if (n->op != GOP_TAKE || n->attrs[0] != BS_INDEX_ROWS) return 0;
  const gvalue *data = &g->values[n->in[0]], *out = &g->values[n->out[0]];
  return is_unaligned(&g->values[data->base]) && n->attrs[1] + 1 < (int64_t)data->rank && ends_dense(data) &&
         ends_dense(out);
}

static void as_bytes(uint32_t *dtype, uint32_t rank, int64_t *dims, int64_t *strides) {
  const int64_t size = BS_DTYPE_BYTES(*dtype);
  *dtype = BS_U8;
  dims[rank - 1] *= size;
  for (uint32_t d = 0; d + 1 < rank; d++) strides[d] *= size;
  strides[rank - 1] = 1;
}

void gbytes_ask(gquery *q) {
  for (uint32_t i = 0; i <= 2; i += 2)
    as_bytes(&q->descs[i].dtype, q->descs[i].rank, q->descs[i].dims, q->descs[i].strides);
}

void gbytes_fill(gbinding *b, uint32_t root) {
  for (uint32_t i = 0; i < b->n_bytes; i++) {
    if (b->g->values[b->bytes_of[i].value].base != root) continue;
    bs_tensor *t = &b->bytes_of[i].tensor;
    *t = b->tensors[b->bytes_of[i].value];
    as_bytes(&t->dtype, t->rank, t->dims, t->strides);
  }
}

int32_t gbytes_make(gbinding *b, bs_error *err) {
  uint32_t count = 0;
  for (uint32_t id = b->g->first; id != GNONE; id = b->g->nodes[id].next)
    count += (uint32_t)gbytes_takes(b->g, &b->g->nodes[id]);
  b->bytes_of = calloc(2 * (size_t)count + 1u, sizeof *b->bytes_of);
  return b->bytes_of != NULL ? BS_OK
                             : bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a binding");
}

bs_tensor *gbytes_tensor(gbinding *b, uint32_t value) {
  uint32_t i = 0;
  while (i < b->n_bytes && b->bytes_of[i].value != value) i++;
  if (i == b->n_bytes) b->bytes_of[b->n_bytes++].value = value;
  gbytes_fill(b, b->g->values[value].base);
  return &b->bytes_of[i].tensor;
}
