/* SPDX-License-Identifier: MIT
 * value.c - questions about values: shapes, strides, users, elements of constants. */
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/graph.h"
#include "graph/ir/internal.h"

const char *graph_op_name(uint32_t op) {
  static const char *const names[GOP_COUNT_] = {"-",         "matmul",   "map",      "normalize",
                                                "attention", "contract", "reduce",   "take",
                                                "put",       "topk",     "matmul_q", "take_q"};
  return op < GOP_COUNT_ ? names[op] : "?";
}

int64_t graph_count(const gvalue *v) {
  int64_t count = 1;
  for (uint32_t i = 0; i < v->rank; i++) count *= v->dims[i];
  return count;
}

void graph_dense_strides(uint32_t rank, const int64_t *dims, int64_t *out_strides) {
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0;) {
    out_strides[i] = stride;
    if (dims[i] > 0) stride *= dims[i];
  }
}

int graph_is_dense(const gvalue *v) {
  int64_t stride = 1;
  for (uint32_t i = v->rank; i-- > 0;) {
    if (v->dims[i] == 0) return 1;
    if (v->dims[i] == 1) continue;
    if (v->strides[i] != stride) return 0;
    stride *= v->dims[i];
  }
  return 1;
}

int graph_is_const(const graph *g, uint32_t value) {
  return value != GNONE && g->values[g->values[value].base].kind == GV_CONST;
}

static int is_port(const graph *g, uint32_t value) {
  for (uint32_t i = 0; i < g->n_outputs; i++)
    if (g->outputs[i].value == value) return 1;
  for (uint32_t i = 0; i < g->n_states; i++)
    if (g->states[i].value == value) return 1;
  return 0;
}

/* *io_user: GNONE before the first use. 0: a second node, or a port. */
static int add_user(const graph *g, uint32_t value, uint32_t *io_user) {
  if (is_port(g, value)) return 0;
  for (uint32_t u = g->values[value].first_use; u != GNONE; u = g->uses[u].next) {
    if (*io_user != GNONE && *io_user != g->uses[u].node) return 0;
    *io_user = g->uses[u].node;
  }
  return 1;
}

uint32_t graph_sole_user(const graph *g, uint32_t value) {
  uint32_t user = GNONE;
  if (!add_user(g, value, &user)) return GNONE;
  if (g->values[value].kind == GV_VIEW) return user;
  for (uint32_t i = g->values[value].next_view; i != GNONE; i = g->values[i].next_view)
    if (!add_user(g, i, &user)) return GNONE;
  return user;
}

const char *graph_value_name(const graph *g, uint32_t value, char buffer[32]) {
  if (value < g->n_values && g->values[value].name != GNONE) return graph_text_of(g, g->values[value].name);
  snprintf(buffer, 32, "%%%u", value);
  return buffer;
}

/* Dims of 1 do not count. Old dims are cut into runs with the same number of elements as runs of new ones;
 * inside of a run the old strides must nest. */
int graph_reshape_strides(uint32_t rank, const int64_t *dims, const int64_t *strides, uint32_t new_rank,
                          const int64_t *new_dims, int64_t *out_strides) {
  int64_t old_dims[BS_MAX_DIMS], old_strides[BS_MAX_DIMS], count = 1;
  uint32_t n = 0;
  for (uint32_t i = 0; i < rank; i++) {
    count *= dims[i];
    if (dims[i] == 1) continue;
    old_dims[n] = dims[i];
    old_strides[n++] = strides[i];
  }
  graph_dense_strides(new_rank, new_dims, out_strides);
  if (count == 0 || n == 0) return 1;
  uint32_t oi = 0, ni = 0;
  while (oi < n) {
    uint32_t oj = oi + 1, nj = ni + 1;
    int64_t o = old_dims[oi], w = ni < new_rank ? new_dims[ni] : 1;
    while (o != w) {
      if (w < o) {
        if (nj >= new_rank) return 0;
        w *= new_dims[nj++];
      } else {
        if (oj >= n) return 0;
        o *= old_dims[oj++];
      }
    }
    for (uint32_t k = oi; k + 1 < oj; k++)
      if (old_strides[k] != old_dims[k + 1] * old_strides[k + 1]) return 0;
    int64_t stride = old_strides[oj - 1];
    for (uint32_t k = nj; k-- > ni;) {
      out_strides[k] = stride;
      stride *= new_dims[k];
    }
    oi = oj;
    ni = nj;
  }
  const int64_t last = ni > 0 ? out_strides[ni - 1] : 1;
  for (; ni < new_rank; ni++) out_strides[ni] = last; /* dims of 1 at the end */
  return 1;
}

int32_t graph_ask(const graph *g, uint32_t value, bs_error *err) {
  return g->ask != NULL ? g->ask(g->ask_user, g->values[g->values[value].base].data, err) : BS_OK;
}

static int32_t read_elements(const graph *g, uint32_t value, void *out, bs_error *err) {
  const gvalue *v = &g->values[value];
  const gvalue *root = &g->values[v->base];
  if (root->kind != GV_CONST)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-CONST", "value %u is no constant", value);
  const uint64_t size = BS_DTYPE_BYTES(v->dtype);
  const int64_t count = graph_count(v);
  const unsigned char *data = root->data;
  unsigned char *to = out;
  if (count == 0) return BS_OK;
  if (root->flags & GV_QUANT) {
    if (v->kind == GV_VIEW)
      return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-CONST", "value %u is quantised", value);
    return gquant_read(&((const gquant *)root->data)->quant, out, err);
  }
  if (root->flags & GV_JOINED) {
    const gjoin *join = root->data;
    if (v->kind == GV_VIEW)
      return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-CONST", "value %u is joined", value);
    for (uint32_t i = 0; i < join->n; i++) {
      const int32_t rc = graph_read_const(g, join->parts[i], to, err);
      if (rc != BS_OK) return rc;
      to += (uint64_t)graph_count(&g->values[join->parts[i]]) * size;
    }
    return BS_OK;
  }
  const int32_t asked = graph_ask(g, value, err);
  if (asked != BS_OK) return asked;
  if (graph_is_dense(v)) {
    memcpy(to, data + (uint64_t)v->offset * size, (uint64_t)count * size);
    return BS_OK;
  }
  int64_t index[BS_MAX_DIMS] = {0};
  int64_t at = v->offset;
  for (int64_t i = 0; i < count; i++, to += size) {
    memcpy(to, data + (uint64_t)at * size, size);
    for (uint32_t d = v->rank; d-- > 0;) {
      at += v->strides[d];
      if (++index[d] < v->dims[d]) break;
      at -= v->dims[d] * v->strides[d];
      index[d] = 0;
    }
  }
  return BS_OK;
}

int32_t graph_read_const(const graph *g, uint32_t value, void *out, bs_error *err) {
  const gvalue *v = &g->values[value];
  const int32_t rc = read_elements(g, value, out, err);
  const int64_t count = rc == BS_OK && v->scale != 0 ? graph_count(v) : 0;
  for (int64_t i = 0; i < count; i++)
    bs_store_f64(v->dtype, out, i, v->scale * bs_load_f64(v->dtype, out, i));
  return rc;
}
