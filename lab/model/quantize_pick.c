/* SPDX-License-Identifier: MIT
 * quantize_pick.c - which tensors of an ONNX model are weights that can be quantised, and which way their
 * rows lie. A tensor with a reader that is no product and no Gather stays as it is. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/model/quantize.h"

enum { COLS_MIN = 16, ELEMENTS_MIN = 256 };

/* What is known of one tensor while nodes are read. */
typedef struct found {
  int read, turned, straight; /* readers; of those that take it as [cols,rows], and as [rows,cols] */
  int others_than_matmul, others_than_gather;
} found;

static int64_t integer_of(const bs_onnx_node *node, const char *name, int64_t standard) {
  for (uint32_t i = 0; i < node->n_attrs; i++)
    if (bs_span_is(node->attrs[i].name, name) && node->attrs[i].type == BS_ONNX_ATTR_INT)
      return node->attrs[i].value.i;
  return standard;
}

static int is_standard(const bs_onnx_node *node, const char *op) {
  return node->domain.size == 0 && bs_span_is(node->op, op);
}

static int swaps(const bs_onnx_node *node) {
  if (!is_standard(node, "Transpose")) return 0;
  for (uint32_t i = 0; i < node->n_attrs; i++) {
    const bs_onnx_attr *a = &node->attrs[i];
    if (bs_span_is(a->name, "perm"))
      return a->type == BS_ONNX_ATTR_INTS && a->count == 2 && a->value.ints[0] == 1;
  }
  return 1; /* of two dimensions */
}

/* How input `i` of a node reads a weight: 1: as [rows,cols], 2: as [cols,rows], 0: in no known way. */
static int reads_as(const bs_onnx_node *node, uint32_t i) {
  if (is_standard(node, "MatMul") && i == 1) return 2;
  if (is_standard(node, "Gemm") && i == 1) return integer_of(node, "transB", 0) != 0 ? 1 : 2;
  if (is_standard(node, "Gather") && i == 0 && integer_of(node, "axis", 0) == 0) return 1;
  return 0;
}

static int graph_reads(const bs_onnx_graph *g, bs_span name);

/* 1: a graph inside of the node reads the name. */
static int inner_reads(const bs_onnx_node *node, bs_span name) {
  for (uint32_t i = 0; i < node->n_attrs; i++) {
    const bs_onnx_attr *a = &node->attrs[i];
    if (a->type == BS_ONNX_ATTR_GRAPH && graph_reads(a->value.graph, name)) return 1;
    for (uint64_t j = 0; a->type == BS_ONNX_ATTR_GRAPHS && j < a->count; j++)
      if (graph_reads(a->value.graphs[j], name)) return 1;
  }
  return 0;
}

/* At most BS_ONNX_MAX_DEPTH deep: the reader of the file holds that. */
static int graph_reads(const bs_onnx_graph *g, bs_span name) {
  for (uint32_t n = 0; n < g->n_nodes; n++) {
    for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++)
      if (bs_span_same(g->nodes[n].inputs[i], name)) return 1;
    if (inner_reads(&g->nodes[n], name)) return 1;
  }
  for (uint32_t i = 0; i < g->n_outputs; i++)
    if (bs_span_same(g->outputs[i].name, name)) return 1;
  return 0;
}

/* Adds the readers of `name`. flip: it is the weight behind a Transpose. NULL, or why it cannot be a weight.
 */
static const char *add_readers(const bs_onnx_graph *g, bs_span name, int flip, found *f) {
  for (uint32_t i = 0; i < g->n_outputs; i++)
    if (bs_span_same(g->outputs[i].name, name)) return "an output of the model";
  for (uint32_t n = 0; n < g->n_nodes; n++) {
    const bs_onnx_node *node = &g->nodes[n];
    if (inner_reads(node, name)) return "read by a graph inside of a node";
    for (uint32_t i = 0; i < node->n_inputs; i++) {
      if (!bs_span_same(node->inputs[i], name)) continue;
      if (!flip && swaps(node)) {
        const char *why = add_readers(g, node->outputs[0], 1, f);
        f->others_than_matmul = 1;
        if (why != NULL) return why;
        continue;
      }
      const int as = reads_as(node, i);
      if (as == 0) return "read by a node that is no product and no Gather";
      f->read++;
      f->straight += (as == 1) != flip;
      f->turned += (as == 1) == flip;
      f->others_than_matmul |= !is_standard(node, "MatMul");
      f->others_than_gather |= !is_standard(node, "Gather");
    }
  }
  return NULL;
}

static void judge(const bs_onnx_graph *g, const bs_onnx_tensor *t, bs_quantize_weight *out) {
  found f = {0};
  *out = (bs_quantize_weight){.tensor = t, .rows = t->dims[0], .cols = t->dims[1]};
  out->reason = add_readers(g, t->name, 0, &f);
  if (out->reason == NULL && f.read == 0) out->reason = "read by no node";
  if (out->reason == NULL && f.turned > 0 && f.straight > 0) out->reason = "read in both directions";
  out->turned = f.turned > 0;
  out->nbits = !f.others_than_matmul;
  out->table = !f.others_than_gather;
  if (out->turned) {
    out->rows = t->dims[1];
    out->cols = t->dims[0];
  }
  if (out->reason == NULL && (out->cols < COLS_MIN || t->count < ELEMENTS_MIN)) out->reason = "small";
}

int32_t bs_quantize_pick(const bs_onnx *model, bs_quantize_weight **out, size_t *out_n, bs_error *err) {
  const bs_onnx_graph *g = model->graph;
  *out_n = 0;
  *out = calloc(g->n_initializers + 1u, sizeof **out);
  if (*out == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the weights");
  for (uint32_t i = 0; i < g->n_initializers; i++) {
    const bs_onnx_tensor *t = &g->initializers[i];
    if (t->rank != 2 || (t->type != BS_ONNX_FLOAT && t->type != BS_ONNX_FLOAT16)) continue;
    judge(g, t, &(*out)[(*out_n)++]);
  }
  return BS_OK;
}
