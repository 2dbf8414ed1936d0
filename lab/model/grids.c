/* SPDX-License-Identifier: MIT
 * grids.c - see grids.h. */
#include "lab/model/grids.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/quant.h"
#include "lab/model/quantize.h"

/* ---- reading ----------------------------------------------------------------------------------- */

double bs_grid_number(const bs_onnx_tensor *t, int64_t i) {
  const bs_onnx_type *type = bs_onnx_type_of(t->type);
  if (type->bits != 4) return bs_load_f64(type->dtype, t->data, i);
  const uint32_t byte = ((const uint8_t *)t->data)[i / 2], code = i % 2 != 0 ? byte >> 4 : byte & 15u;
  return type->name[0] == 'I' && code > 7u ? (double)code - 16.0 : (double)code;
}

/* ---- finding them -------------------------------------------------------------------------------- */

static const bs_onnx_tensor *initializer(const bs_onnx_graph *g, bs_span name) {
  for (uint32_t i = 0; name.size > 0 && i < g->n_initializers; i++)
    if (bs_span_same(g->initializers[i].name, name)) return &g->initializers[i];
  return NULL;
}

static const bs_onnx_node *maker(const bs_onnx_graph *g, bs_span value) {
  for (uint32_t n = 0; n < g->n_nodes; n++)
    for (uint32_t o = 0; o < g->nodes[n].n_outputs; o++)
      if (bs_span_same(g->nodes[n].outputs[o], value)) return &g->nodes[n];
  return NULL;
}

static int64_t integer_of(const bs_onnx_node *node, const char *name, int64_t standard) {
  for (uint32_t i = 0; i < node->n_attrs; i++)
    if (bs_span_is(node->attrs[i].name, name) && node->attrs[i].type == BS_ONNX_ATTR_INT)
      return node->attrs[i].value.i;
  return standard;
}

/* The weight of the float model that input `i` of the node of the same output reads. */
static const bs_onnx_tensor *weight_of(const bs_onnx_graph *floats, const bs_onnx_node *reader, uint32_t i) {
  const bs_onnx_node *same = maker(floats, reader->outputs[0]);
  if (same == NULL || i >= same->n_inputs) return NULL;
  const bs_onnx_tensor *t = initializer(floats, same->inputs[i]);
  const int is_float = t != NULL && (t->type == BS_ONNX_FLOAT || t->type == BS_ONNX_FLOAT16);
  return is_float && t->rank == 2 ? t : NULL;
}

static const bs_onnx_tensor *behind_views(const bs_onnx_graph *g, bs_span name, int depth) {
  const bs_onnx_tensor *t = initializer(g, name);
  const bs_onnx_node *n = t == NULL && depth > 0 ? maker(g, name) : NULL;
  if (n == NULL || n->n_inputs == 0) return t;
  const int sees =
      bs_span_is(n->op, "Transpose") || bs_span_is(n->op, "Identity") || bs_span_is(n->op, "Cast");
  return sees ? behind_views(g, n->inputs[0], depth - 1) : NULL;
}

const bs_onnx_tensor *bs_product_weight(const bs_onnx_graph *graph, const bs_onnx_node *node) {
  if (node->n_inputs < 2 || node->n_outputs < 1) return NULL;
  if (!bs_span_is(node->op, "MatMul") && !bs_span_is(node->op, "Gemm")) return NULL;
  const bs_onnx_tensor *t = behind_views(graph, node->inputs[1], 3);
  const int is_float = t != NULL && (t->type == BS_ONNX_FLOAT || t->type == BS_ONNX_FLOAT16);
  return is_float && t->rank == 2 ? t : NULL;
}

/* The range of the codes of a type; 0: it holds no codes. */
static int range_of(uint32_t type, bs_grid *out) {
  const bs_onnx_type *t = bs_onnx_type_of(type);
  const int is_signed = t != NULL && t->name[0] == 'I';
  if (t == NULL || (strncmp(t->name, "INT", 3) != 0 && strncmp(t->name, "UINT", 4) != 0) || t->bits > 8)
    return 0;
  out->bits = t->bits;
  out->low = is_signed ? -(double)(1 << (t->bits - 1)) : 0.0;
  out->high = out->low + (double)((1 << t->bits) - 1);
  return 1;
}

static int has_weight(const bs_grids *grids, const bs_onnx_tensor *weight) {
  for (size_t i = 0; i < grids->n; i++)
    if (grids->rows[i].weight == weight) return 1;
  return 0;
}

static void add(bs_grids *grids, const bs_grid *row) {
  if (row->weight == NULL || row->scales == NULL)
    grids->other++;
  else if (!has_weight(grids, row->weight))
    grids->rows[grids->n++] = *row;
}

/* A reader whose input `i` is made by a DequantizeLinear of an initializer. */
static void add_dequantized(const bs_onnx_graph *q, const bs_onnx_graph *floats, const bs_onnx_node *reader,
                            uint32_t i, bs_grids *grids) {
  const bs_onnx_node *d = maker(q, reader->inputs[i]);
  bs_grid row = {0};
  if (d == NULL || !bs_span_is(d->op, "DequantizeLinear") || d->n_inputs < 2) return;
  const bs_onnx_tensor *codes = initializer(q, d->inputs[0]);
  if (codes == NULL || codes->rank != 2 || !range_of(codes->type, &row)) return;
  row.weight = weight_of(floats, reader, i);
  row.codes = codes;
  row.scales = initializer(q, d->inputs[1]);
  row.zeros = d->n_inputs > 2 ? initializer(q, d->inputs[2]) : NULL;
  row.axis = row.scales != NULL && row.scales->count > 1 ? integer_of(d, "axis", 1) : -1;
  if (row.axis < -1) row.axis += 2;
  row.block = integer_of(d, "block_size", 0);
  if (row.weight != NULL && (codes->dims[0] != row.weight->dims[0] || codes->dims[1] != row.weight->dims[1]))
    row.weight = NULL;
  add(grids, &row);
}

static void add_nbits(const bs_onnx_graph *q, const bs_onnx_graph *floats, const bs_onnx_node *node,
                      bs_grids *grids) {
  bs_grid row = {.nbits = 1, .bits = (uint32_t)integer_of(node, "bits", 4)};
  row.block = integer_of(node, "block_size", 32);
  row.high = (double)((1 << row.bits) - 1);
  row.zero = (double)(1 << (row.bits - 1));
  row.weight = weight_of(floats, node, 1);
  row.codes = node->n_inputs > 1 ? initializer(q, node->inputs[1]) : NULL;
  row.scales = node->n_inputs > 2 ? initializer(q, node->inputs[2]) : NULL;
  row.zeros = node->n_inputs > 3 ? initializer(q, node->inputs[3]) : NULL;
  const bs_onnx_tensor *w = row.weight;
  if (w != NULL && (w->dims[0] != integer_of(node, "K", -1) || w->dims[1] != integer_of(node, "N", -1)))
    row.weight = NULL;
  add(grids, &row);
}

/* ---- X ------------------------------------------------------------------------------------------- */

enum { LEAST_GROUP = 32, ROW_COLUMNS = 65536 };

static const bs_grid *grid_of(const bs_grids *grids, const bs_onnx_tensor *weight) {
  for (size_t i = 0; weight != NULL && i < grids->n; i++)
    if (grids->rows[i].weight == weight) return &grids->rows[i];
  return NULL;
}

/* How many columns of X in bytes share a scale, in a product with a weight of `cols` columns. */
static int64_t group_of_x(const bs_grid *g, int64_t cols) {
  int64_t group = g->block;
  if (g->form.struct_size != 0) group = g->form.group == cols ? 0 : g->form.span;
  if (group == 0 || group >= cols) return cols;
  return group < LEAST_GROUP ? LEAST_GROUP : group;
}

/* X of a product of the quantised model is on a grid of its file: QuantizeLinear, then DequantizeLinear. */
static int static_grid(const bs_onnx_graph *q, const bs_onnx_node *product, bs_x_grid *out) {
  const bs_onnx_node *d = product->n_inputs > 0 ? maker(q, product->inputs[0]) : NULL;
  if (d == NULL || !bs_span_is(d->op, "DequantizeLinear") || d->n_inputs < 2) return 0;
  const bs_onnx_node *n = maker(q, d->inputs[0]);
  const bs_onnx_tensor *scale = initializer(q, d->inputs[1]);
  const bs_onnx_tensor *zero = d->n_inputs > 2 ? initializer(q, d->inputs[2]) : NULL;
  bs_grid range = {.high = 255.0};
  if (n == NULL || !bs_span_is(n->op, "QuantizeLinear") || scale == NULL || scale->count != 1) return 0;
  if (zero != NULL && (zero->count != 1 || !range_of(zero->type, &range))) return 0;
  out->scale = bs_grid_number(scale, 0);
  out->zero = zero != NULL ? bs_grid_number(zero, 0) : 0.0;
  out->low = range.low;
  out->high = range.high;
  return out->scale > 0.0;
}

/* How the products of the float model take X. q NULL: the weights are those of a scheme. */
static int32_t find_xs(const bs_onnx_graph *q, const bs_onnx_graph *floats, const char *activations,
                       bs_grids *out, bs_error *err) {
  const int all = activations != NULL && strcmp(activations, "x8") == 0;
  out->xs = calloc(floats->n_nodes + 1u, sizeof *out->xs);
  if (out->xs == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the grids");
  for (uint32_t n = 0; n < floats->n_nodes; n++) {
    const bs_onnx_node *node = &floats->nodes[n];
    const bs_onnx_tensor *w = bs_product_weight(floats, node);
    const bs_grid *g = grid_of(out, w);
    const bs_onnx_node *same = g != NULL && q != NULL ? maker(q, node->outputs[0]) : NULL;
    if (g == NULL || (q != NULL && same == NULL)) continue;
    const int64_t rows = integer_of(node, "transB", 0) != 0 ? w->dims[0] : w->dims[1];
    bs_x_grid x = {.node = n, .x = node->inputs[0], .type = w->type};
    x.cols = rows > 0 ? (int64_t)w->count / rows : 0;
    if (g->form.struct_size != 0) x.cols = g->form.cols;
    const int asks = same != NULL && g->nbits && activations == NULL;
    x.group = group_of_x(g, x.cols);
    if (same != NULL && static_grid(q, same, &x))
      x.group = 0;
    else if (!all && !(asks && integer_of(same, "accuracy_level", 0) == 4))
      continue;
    if (x.cols > 0 && x.cols <= ROW_COLUMNS) out->xs[out->n_xs++] = x;
  }
  return BS_OK;
}

int32_t bs_grids_find(const bs_onnx *quantised, const bs_onnx *floats, const char *activations, bs_grids *out,
                      bs_error *err) {
  const bs_onnx_graph *q = quantised->graph, *f = floats->graph;
  *out = (bs_grids){.rows = calloc(f->n_initializers + 1u, sizeof *out->rows)};
  if (out->rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the grids");
  for (uint32_t n = 0; n < q->n_nodes; n++) {
    const bs_onnx_node *node = &q->nodes[n];
    if (bs_span_is(node->op, "MatMulNBits"))
      add_nbits(q, f, node, out);
    else
      for (uint32_t i = 0; i < node->n_inputs; i++) add_dequantized(q, f, node, i, out);
  }
  if (out->n > 0) return find_xs(q, f, activations, out, err);
  bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-NOTHING",
               "no weight of the quantised model stands for one of the float model (%zu stand alone)",
               out->other);
  bs_error_hint(
      err, "products are matched by the names of their outputs; DequantizeLinear and MatMulNBits are read");
  return BS_UNSUPPORTED;
}

int32_t bs_grids_of_schemes(const bs_onnx *floats, const char *list, const char *activations, bs_grids *out,
                            bs_error *err) {
  bs_quantize_weight *picked = NULL;
  size_t n = 0;
  int32_t rc = bs_quantize_pick(floats, &picked, &n, err);
  *out = (bs_grids){.rows = calloc(n + 1, sizeof *out->rows)};
  if (rc == BS_OK && out->rows == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the grids");
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    const bs_quantize_weight *w = &picked[i];
    char name[BS_ONNX_MAX_NAME + 1], scheme[32];
    snprintf(name, sizeof name, "%.*s", (int)w->tensor->name.size, w->tensor->name.data);
    bs_quantize_scheme_of(list, name, scheme, sizeof scheme);
    const int by_all = w->table && strpbrk(list, "=") == NULL;
    if (w->reason != NULL || by_all || scheme[0] == '\0' || strcmp(scheme, "float") == 0) continue;
    bs_grid *row = &out->rows[out->n++];
    *row = (bs_grid){.weight = w->tensor, .turned = w->turned};
    rc = bs_quant_scheme(scheme, w->rows, w->cols, &row->form, err);
  }
  free(picked);
  if (rc == BS_OK && out->n > 0) return find_xs(NULL, floats->graph, activations, out, err);
  if (rc != BS_OK) return rc;
  return bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-NOTHING",
                      "--weights %.60s rounds no weight of the model", list);
}

void bs_grids_free(bs_grids *grids) {
  free(grids->rows);
  free(grids->xs);
  *grids = (bs_grids){0};
}
