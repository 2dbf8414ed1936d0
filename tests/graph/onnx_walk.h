/* SPDX-License-Identifier: MIT
 * onnx_walk.h - reads all that an open model points to, so that a pointer outside of its memory is found, and
 * checks what every open model promises. Used by the reader's tests and by its fuzz target. */
#ifndef BS_TESTS_GRAPH_ONNX_WALK_H
#define BS_TESTS_GRAPH_ONNX_WALK_H
#include <stdlib.h>

#include "formats/onnx.h"

static volatile unsigned char onnx_sink;

static inline void onnx_touch(const void *data, uint64_t bytes) {
  const unsigned char *p = data;
  for (uint64_t i = 0; i < bytes; i++) onnx_sink = (unsigned char)(onnx_sink + p[i]);
}

static inline void onnx_walk_names(const bs_span *names, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) onnx_touch(names[i].data, names[i].size);
}

static inline void onnx_walk_tensor(const bs_onnx_tensor *t) {
  const bs_onnx_type *type = bs_onnx_type_of(t->type);
  if (type == NULL || t->rank > BS_ONNX_MAX_DIMS) abort();
  if (type->bits != 0 && t->data != NULL && t->bytes != (t->count * type->bits + 7) / 8) abort();
  if (type->bits != 0 && t->count != 0 && t->data == NULL) abort();
  onnx_walk_names(&t->name, 1);
  if (t->data != NULL) onnx_touch(t->data, t->bytes);
}

static inline void onnx_walk_values(const bs_onnx_value *values, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (values[i].rank > BS_ONNX_MAX_DIMS || values[i].name.size == 0) abort();
    onnx_walk_names(&values[i].name, 1);
    for (uint32_t d = 0; d < values[i].rank; d++) onnx_walk_names(&values[i].dims[d].symbol, 1);
  }
}

static inline uint64_t onnx_walk_graph(const bs_onnx_graph *g);

static inline uint64_t onnx_walk_attrs(const bs_onnx_attr *attrs, uint32_t n) {
  uint64_t nodes = 0;
  for (uint32_t i = 0; i < n; i++) {
    const bs_onnx_attr *a = &attrs[i];
    onnx_walk_names(&a->name, 1);
    onnx_walk_names(&a->reference, 1);
    if (a->reference.size != 0) continue;
    if (a->type == BS_ONNX_ATTR_STRING) onnx_walk_names(&a->value.s, 1);
    if (a->type == BS_ONNX_ATTR_STRINGS) onnx_walk_names(a->value.strings, a->count);
    if (a->type == BS_ONNX_ATTR_INTS) onnx_touch(a->value.ints, a->count * 8);
    if (a->type == BS_ONNX_ATTR_FLOATS) onnx_touch(a->value.floats, a->count * 4);
    if (a->type == BS_ONNX_ATTR_TENSOR || a->type == BS_ONNX_ATTR_TENSORS)
      for (uint64_t k = 0; k < a->count; k++) onnx_walk_tensor(&a->value.tensor[k]);
    if (a->type == BS_ONNX_ATTR_GRAPH) nodes += onnx_walk_graph(a->value.graph);
    if (a->type == BS_ONNX_ATTR_GRAPHS)
      for (uint64_t k = 0; k < a->count; k++) nodes += onnx_walk_graph(a->value.graphs[k]);
  }
  return nodes;
}

static inline uint64_t onnx_walk_nodes(const bs_onnx_node *nodes, uint32_t n) {
  uint64_t count = n;
  for (uint32_t i = 0; i < n; i++) {
    if (nodes[i].op.size == 0) abort();
    onnx_walk_names(&nodes[i].op, 1);
    onnx_walk_names(&nodes[i].name, 1);
    onnx_walk_names(&nodes[i].domain, 1);
    onnx_walk_names(nodes[i].inputs, nodes[i].n_inputs);
    onnx_walk_names(nodes[i].outputs, nodes[i].n_outputs);
    count += onnx_walk_attrs(nodes[i].attrs, nodes[i].n_attrs);
  }
  return count;
}

static inline uint64_t onnx_walk_graph(const bs_onnx_graph *g) {
  if (g->depth > BS_ONNX_MAX_DEPTH) abort();
  for (uint32_t i = 0; i < g->n_initializers; i++) onnx_walk_tensor(&g->initializers[i]);
  onnx_walk_values(g->inputs, g->n_inputs);
  onnx_walk_values(g->outputs, g->n_outputs);
  onnx_walk_values(g->values, g->n_values);
  return onnx_walk_nodes(g->nodes, g->n_nodes);
}

/* The number of nodes of all graphs and functions. */
static inline uint64_t onnx_walk(const bs_onnx *m) {
  uint64_t nodes = onnx_walk_graph(m->graph);
  if (m->heap > BS_ONNX_HEAP(m->file_bytes)) abort();
  for (uint32_t i = 0; i < m->n_opsets; i++) onnx_walk_names(&m->opsets[i].domain, 1);
  for (uint32_t i = 0; i < m->n_functions; i++) {
    const bs_onnx_function *f = &m->functions[i];
    onnx_walk_names(f->inputs, f->n_inputs);
    onnx_walk_names(f->outputs, f->n_outputs);
    onnx_walk_names(f->attr_names, f->n_attr_names);
    nodes += onnx_walk_attrs(f->attrs, f->n_attrs) + onnx_walk_nodes(f->nodes, f->n_nodes);
  }
  return nodes;
}
#endif
