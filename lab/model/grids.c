/* SPDX-License-Identifier: MIT
 * grids.c - see grids.h. */
#include "lab/model/grids.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/op/quant.h"
#include "formats/onnx_write.h"
#include "lab/model/quantize.h"

enum { PIECE = 1024 }; /* random numbers at a time */

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
  row.scales = node->n_inputs > 2 ? initializer(q, node->inputs[2]) : NULL;
  row.zeros = node->n_inputs > 3 ? initializer(q, node->inputs[3]) : NULL;
  const bs_onnx_tensor *w = row.weight;
  if (w != NULL && (w->dims[0] != integer_of(node, "K", -1) || w->dims[1] != integer_of(node, "N", -1)))
    row.weight = NULL;
  add(grids, &row);
}

int32_t bs_grids_find(const bs_onnx *quantised, const bs_onnx *floats, bs_grids *out, bs_error *err) {
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
  if (out->n > 0) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-NOTHING",
               "no weight of the quantised model stands for one of the float model (%zu stand alone)",
               out->other);
  bs_error_hint(
      err, "products are matched by the names of their outputs; DequantizeLinear and MatMulNBits are read");
  return BS_UNSUPPORTED;
}

int32_t bs_grids_of_schemes(const bs_onnx *floats, const char *list, bs_grids *out, bs_error *err) {
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
  if (rc != BS_OK || out->n > 0) return rc;
  return bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-NOTHING",
                      "--weights %.60s rounds no weight of the model", list);
}

void bs_grids_free(bs_grids *grids) {
  free(grids->rows);
  grids->rows = NULL;
  grids->n = 0;
}

/* ---- the noise ----------------------------------------------------------------------------------- */

/* The number of element i of a tensor of numbers; types of 4 bits are packed. */
static double number(const bs_onnx_tensor *t, int64_t i) {
  const bs_onnx_type *type = bs_onnx_type_of(t->type);
  if (type->bits != 4) return bs_load_f64(type->dtype, t->data, i);
  const uint32_t byte = ((const uint8_t *)t->data)[i / 2], code = i % 2 != 0 ? byte >> 4 : byte & 15u;
  return type->name[0] == 'I' && code > 7u ? (double)code - 16.0 : (double)code;
}

/* The group of an element, as the number of its scale. */
static int64_t group_of(const bs_grid *g, int64_t row, int64_t col) {
  if (g->form.struct_size != 0) {
    const int64_t n = g->turned ? col : row, k = g->turned ? row : col;
    return n * bs_quant_groups(&g->form) + k / g->form.group;
  }
  if (g->nbits) return col * ((g->weight->dims[0] + g->block - 1) / g->block) + row / g->block;
  if (g->axis < 0) return 0;
  if (g->block == 0) return g->axis == 0 ? row : col;
  return g->axis == 0 ? row / g->block * g->scales->dims[1] + col : row * g->scales->dims[1] + col / g->block;
}

static double zero_of(const bs_grid *g, int64_t group) {
  if (g->zeros == NULL) return g->zero;
  const bs_onnx_type *type = bs_onnx_type_of(g->zeros->type);
  if (!g->nbits || g->bits == 8 || type->dtype != BS_U8) return number(g->zeros, group);
  const int64_t groups = (g->weight->dims[0] + g->block - 1) / g->block, line = (groups + 1) / 2;
  const uint32_t byte = ((const uint8_t *)g->zeros->data)[group / groups * line + group % groups / 2];
  return (double)(group % groups % 2 != 0 ? byte >> 4 : byte & 15u);
}

/* The smallest and the largest number of a group. */
typedef struct range {
  double least, most;
} range;

/* What rounding changes in a grid that the range of a group gives: from the smallest to the largest number
 * with lows or zeros, else from minus the largest magnitude to it. */
static double rounding_by_scheme(const bs_quant *form, const range *r, double w) {
  const double top = (double)((1 << form->bits) - 1), peak = fmax(-r->least, r->most);
  const int ranged = (form->flags & (BS_QUANT_LOWS | BS_QUANT_ZEROS)) != 0;
  const double scale = ranged ? (r->most - r->least) / top : peak / (form->bits == 8 ? 127.0 : (top + 1) / 2);
  if (scale == 0.0) return -w;
  if (ranged) return scale * nearbyint((w - r->least) / scale) + r->least - w;
  const double most = -r->least > r->most ? (top - 1) / 2 : (top + 1) / 2; /* the peak has the longer side */
  const double least = form->bits == 8 ? -127.0 : most - top;
  return scale * fmax(fmin(nearbyint(w / scale), form->bits == 8 ? 127.0 : most), least) - w;
}

static double rounding(const bs_grid *g, int64_t group, double w) {
  const double scale = number(g->scales, group), zero = zero_of(g, group);
  double q = scale == 0.0 ? zero : nearbyint(w / scale + zero);
  if (q < g->low) q = g->low;
  if (q > g->high) q = g->high;
  return scale * (q - zero) - w;
}

typedef struct noisy {
  const bs_grid *grid;
  uint64_t seed;
  uint32_t stream;
  char *name;
  double *half; /* of each group: half the width of the noise */
} noisy;

/* The ranges of the groups of a scheme, malloc'd; NULL: no memory, or the file has the grid. */
static range *ranges_of(const bs_grid *g, size_t groups) {
  range *ranges = g->form.struct_size != 0 ? calloc(groups + 1, sizeof *ranges) : NULL;
  for (int64_t e = 0; ranges != NULL && e < (int64_t)g->weight->count; e++) {
    range *r = &ranges[group_of(g, e / g->weight->dims[1], e % g->weight->dims[1])];
    const double v = number(g->weight, e);
    if (v < r->least) r->least = v;
    if (v > r->most) r->most = v;
  }
  return ranges;
}

static int32_t measure(noisy *n, bs_error *err) {
  const bs_onnx_tensor *w = n->grid->weight;
  const bs_quant *form = &n->grid->form;
  const int by_scheme = form->struct_size != 0;
  const size_t groups =
      by_scheme ? (size_t)(form->rows * bs_quant_groups(form)) : (size_t)n->grid->scales->count;
  range *ranges = ranges_of(n->grid, groups);
  uint64_t *counts = calloc(groups + 1, sizeof *counts);
  n->half = calloc(groups + 1, sizeof *n->half);
  if (counts == NULL || n->half == NULL || (by_scheme && ranges == NULL)) {
    free(counts);
    free(ranges);
    return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for %zu groups", groups);
  }
  int32_t rc = BS_OK;
  for (int64_t e = 0; rc == BS_OK && e < (int64_t)w->count; e++) {
    const int64_t group = group_of(n->grid, e / w->dims[1], e % w->dims[1]);
    if (group < 0 || group >= (int64_t)groups) {
      rc = bs_error_set(err, BS_INPUT, "BS-QUANT-SCALES", "%.*s has too few scales", BS_SPAN_PRINT(w->name));
      break;
    }
    const double r = by_scheme ? rounding_by_scheme(form, &ranges[group], number(w, e))
                               : rounding(n->grid, group, number(w, e));
    n->half[group] += r * r;
    counts[group]++;
  }
  for (size_t i = 0; i < groups; i++)
    if (counts[i] > 0) n->half[i] = sqrt(3.0 * n->half[i] / (double)counts[i]);
  free(counts);
  free(ranges);
  return rc;
}

static int32_t fill(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  noisy *n = ctx;
  const bs_onnx_tensor *w = n->grid->weight;
  const uint32_t dtype = bs_onnx_type_of(w->type)->dtype;
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  if (offset == 0) {
    const int32_t rc = measure(n, err);
    if (rc != BS_OK) return rc;
  }
  float uniform[PIECE];
  for (uint64_t i = 0; i < bytes / size; i++) {
    const int64_t e = (int64_t)(offset / size + i);
    if (i % PIECE == 0) bs_rng_uniform(n->seed, n->stream, (uint64_t)e, PIECE, uniform);
    const double half = n->half[group_of(n->grid, e / w->dims[1], e % w->dims[1])];
    const float v = (float)(number(w, e) + half * (2.0 * (double)uniform[i % PIECE] - 1.0));
    bs_convert(dtype, (char *)out + i * size, BS_F32, &v, 1);
  }
  return BS_OK;
}

int32_t bs_grids_noisy_copy(const bs_onnx *floats, const bs_grids *grids, uint64_t seed, const char *to,
                            bs_error *err) {
  noisy *of = calloc(grids->n + 1, sizeof *of);
  bs_onnx_new_tensor *tensors = calloc(grids->n + 1, sizeof *tensors);
  bs_span *dropped = calloc(grids->n + 1, sizeof *dropped);
  int32_t rc = of != NULL && tensors != NULL && dropped != NULL ? BS_OK : BS_NO_MEMORY;
  for (size_t i = 0; rc == BS_OK && i < grids->n; i++) {
    const bs_onnx_tensor *w = grids->rows[i].weight;
    of[i] = (noisy){.grid = &grids->rows[i], .seed = seed, .stream = (uint32_t)i};
    of[i].name = strndup(w->name.data, w->name.size);
    if (of[i].name == NULL) rc = BS_NO_MEMORY;
    dropped[i] = w->name;
    tensors[i] = (bs_onnx_new_tensor){.name = of[i].name,
                                      .type = w->type,
                                      .rank = 2,
                                      .dims = {w->dims[0], w->dims[1]},
                                      .bytes = w->bytes,
                                      .ctx = &of[i],
                                      .fill = fill};
  }
  if (rc != BS_OK) bs_error_set(err, rc, "BS-QUANT-MEMORY", "no memory for a noisy copy");
  const bs_onnx_edits edits = {
      .dropped = dropped, .n_dropped = grids->n, .tensors = tensors, .n_tensors = grids->n};
  if (rc == BS_OK) rc = bs_onnx_write(floats, &edits, to, err);
  for (size_t i = 0; of != NULL && i < grids->n; i++) {
    free(of[i].name);
    free(of[i].half);
  }
  free(of);
  free(tensors);
  free(dropped);
  return rc;
}
