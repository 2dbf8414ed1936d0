/* SPDX-License-Identifier: MIT
 * table.c - rows of a large table of the model that stays in its file are read from there. A row that is read
 * where it is mapped makes pages around it resident: 128 tokens may do so with a table of 47 MB. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "graph/run/run.h"

enum { LEAST = 4 << 20 };

static int64_t row_bytes(const bs_tensor *data) {
  int64_t bytes = BS_DTYPE_BYTES(data->dtype);
  for (uint32_t d = 1; d < data->rank; d++) bytes *= data->dims[d];
  return bytes;
}

void gtable_find(const gbinding *b, gstep *s) {
  const gnode *n = &b->g->nodes[s->node];
  s->file = -1;
  if (s->layer != NULL || b->g->file_of == NULL || n->op != GOP_TAKE || n->attrs[0] != BS_INDEX_ROWS ||
      n->attrs[1] != 0 || strcmp(s->plan->impl->backend, "cpu") != 0)
    return;
  const gvalue *data = &b->g->values[n->in[0]], *index = &b->g->values[n->in[1]];
  const uint64_t bytes = graph_bytes(data);
  if (b->g->values[data->base].kind != GV_CONST || data->rank < 2 || bytes < LEAST || !graph_is_dense(data) ||
      !graph_is_dense(index) || (index->dtype != BS_I64 && index->dtype != BS_I32) ||
      !graph_is_dense(&b->g->values[n->out[0]]))
    return;
  s->file = b->g->file_of(s->args[0]->data, bytes, &s->file_at);
}

static int64_t index_at(const bs_tensor *index, uint64_t i) {
  int32_t narrow;
  int64_t wide;
  if (index->dtype == BS_I64) {
    memcpy(&wide, (const unsigned char *)index->data + i * sizeof wide, sizeof wide);
    return wide;
  }
  memcpy(&narrow, (const unsigned char *)index->data + i * sizeof narrow, sizeof narrow);
  return narrow;
}

static int read_row(int fd, unsigned char *to, int64_t bytes, uint64_t at) {
  while (bytes > 0) {
    const ssize_t n = pread(fd, to, (size_t)bytes, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    to += n;
    at += (uint64_t)n;
    bytes -= n;
  }
  return 1;
}

/* A plan that serves a range of sizes has views that are dense at its largest size alone. */
static int is_dense(const bs_tensor *t) {
  int64_t stride = 1;
  for (uint32_t d = t->rank; d-- > 0;) {
    if (t->dims[d] != 1 && t->strides[d] != stride) return 0;
    stride *= t->dims[d];
  }
  return 1;
}

int gtable_run(const gstep *s) {
  const bs_tensor *data = s->args[0], *index = s->args[1];
  if (!is_dense(index) || !is_dense(s->args[2])) return 0;
  const int64_t row = row_bytes(data);
  const uint64_t n = tensor_elements(index);
  unsigned char *to = s->args[2]->data;
  for (uint64_t i = 0; i < n; i++) {
    const int64_t at = index_at(index, i);
    if (at < 0 || at >= data->dims[0]) return 0;
  }
  for (uint64_t i = 0; i < n; i++)
    if (!read_row(s->file, to + i * (uint64_t)row, row, s->file_at + (uint64_t)(index_at(index, i) * row)))
      return 0;
  return 1;
}
