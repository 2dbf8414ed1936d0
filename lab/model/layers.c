/* SPDX-License-Identifier: MIT
 * layers.c - see layers.h. */
#include "lab/model/layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/model/model.h"
#include "lab/model/pair.h"

/* Errors below this share are those of f32 sums. */
static const double ROUND_OFF = 1e-6;

void bs_layers_next(bs_layers *l, uint32_t copy) {
  l->copy = copy;
  l->pending = NULL;
  for (size_t i = 0; i < l->n; i++) l->seen[i] = 0;
}

/* The name that the float model has for a weight. */
static void name_of(const bs_layers *l, const char *weight, char *out, size_t size) {
  snprintf(out, size, "%s", weight);
  for (size_t i = 0; i < l->grids->n; i++) {
    const bs_grid *g = &l->grids->rows[i];
    if (g->codes != NULL && bs_span_is(g->codes->name, weight))
      snprintf(out, size, "%.*s", (int)g->weight->name.size, g->weight->name.data);
  }
}

/* The next row of the weight that this run has not used yet; n: no row is left. */
static size_t find(const bs_layers *l, const char *name) {
  for (size_t i = 0; i < l->n; i++)
    if (l->seen[i] == 0 && strcmp(l->rows[i].name, name) == 0) return i;
  return l->n;
}

static int grow(bs_layers *l) {
  if (l->n < l->room) return 1;
  const size_t room = l->room > 0 ? 2 * l->room : 64;
  bs_layer *rows = realloc(l->rows, room * sizeof *rows);
  if (rows != NULL) l->rows = rows;
  uint32_t *seen = rows != NULL ? realloc(l->seen, room * sizeof *seen) : NULL;
  if (seen != NULL) l->seen = seen;
  if (seen != NULL) l->room = room;
  return seen != NULL;
}

static size_t add(bs_layers *l, const char *name) {
  char *own = grow(l) ? strdup(name) : NULL;
  l->failed |= own == NULL;
  if (own == NULL) return l->n;
  l->rows[l->n] = (bs_layer){.name = own};
  l->seen[l->n] = 0;
  return l->n++;
}

static int is_product(const bs_node_trace *row) {
  return row->weight[0] != '\0' && strncmp(row->op, "matmul", 6) == 0 && row->n_outputs > 0 &&
         row->outputs[0] != NULL;
}

static float *floats(const bs_tensor *t, uint64_t *out_count) {
  uint32_t dtype = 0;
  void *dense = bs_model_dense(t, &dtype, out_count);
  float *values = dense != NULL ? malloc(*out_count * sizeof *values + 1) : NULL;
  if (values != NULL) bs_convert(BS_F32, values, dtype, dense, *out_count);
  free(dense);
  return values;
}

void bs_layers_keep(void *layers, const bs_node_trace *row) {
  bs_layers *l = layers;
  if (l->failed || !is_product(row) || !bs_dtype_is_float(row->outputs[0]->dtype)) return;
  size_t at = find(l, row->weight);
  if (at == l->n) at = add(l, row->weight);
  if (at == l->n) return;
  bs_layer *layer = &l->rows[at];
  l->seen[at] = 1;
  free(layer->values);
  layer->values = floats(row->outputs[0], &layer->count);
  l->failed |= layer->values == NULL;
}

static void compare(bs_layers *l, size_t at, const bs_tensor *t) {
  bs_layer *layer = &l->rows[at];
  uint64_t count = 0;
  float *values = floats(t, &count);
  l->failed |= values == NULL;
  for (uint64_t i = 0; values != NULL && count == layer->count && i < count; i++) {
    const double f = (double)layer->values[i], d = (double)values[i] - f;
    if (bs_differs_same_fill(f, (double)values[i])) continue;
    layer->changed[l->copy] += d * d;
    if (l->copy == 0 && isfinite(f)) layer->size += f * f;
  }
  layer->compared[l->copy] += count == layer->count;
  free(values);
}

static int reads(const bs_node_trace *row, const void *data) {
  for (uint32_t i = 0; i < row->n_inputs; i++)
    if (row->inputs[i] != NULL && row->inputs[i]->data == data) return 1;
  return 0;
}

void bs_layers_compare(void *layers, const bs_node_trace *row) {
  bs_layers *l = layers;
  if (l->failed || row->n_outputs == 0 || row->outputs[0] == NULL) return;
  const bs_tensor *out = row->outputs[0];
  if (l->pending != NULL && bs_dtype_is_float(out->dtype) && reads(row, l->pending)) {
    compare(l, l->pending_row, out);
    l->pending = NULL;
  }
  if (!is_product(row)) return;
  char name[BS_ONNX_MAX_NAME + 1];
  name_of(l, row->weight, name, sizeof name);
  const size_t at = find(l, name);
  if (at == l->n) return;
  l->seen[at] = 1;
  if (bs_dtype_is_float(out->dtype)) {
    compare(l, at, out);
  } else {
    l->pending = out->data;
    l->pending_row = at;
  }
}

/* ---- the result ---------------------------------------------------------------------------------- */

static double predicted_of(const bs_layer *layer) {
  double sum = 0.0;
  for (int c = 1; c < BS_LAYERS_COPIES; c++) sum += layer->changed[c] / (BS_LAYERS_COPIES - 1);
  return layer->size > 0.0 ? sqrt(sum / layer->size) : 0.0;
}

static int has_grid(const bs_layers *l, const char *name) {
  for (size_t i = 0; i < l->grids->n; i++)
    if (bs_span_is(l->grids->rows[i].weight->name, name)) return 1;
  return 0;
}

static void note(json_t *notes, const char *name, double ratio, const char *what) {
  char text[400];
  snprintf(text, sizeof text, "layer %.200s differs %.2g times as much as predicted: %s", name, ratio, what);
  json_array_append_new(notes, bs_model_json_text(text));
}

static double decibels(double share) {
  return share > 0.0 ? -20.0 * log10(share) : INFINITY;
}

static json_t *finite_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

json_t *bs_layers_result(const bs_layers *l, json_t *notes, uint64_t *failed) {
  json_t *rows = json_array();
  int first = 1;
  for (size_t i = 0; i < l->n; i++) {
    const bs_layer *layer = &l->rows[i];
    if (layer->compared[0] == 0 || layer->compared[1] == 0) continue;
    const double changed = layer->changed[0], zero = isfinite(changed) ? 0.0 : INFINITY;
    const double measured = layer->size > 0.0 ? sqrt(changed / layer->size) : zero;
    const double predicted = predicted_of(layer);
    const double ratio = bs_differs_ratio(measured, predicted, ROUND_OFF);
    const int ok = ratio <= BS_LAYERS_LIMIT; /* a NaN is not */
    json_t *row =
        json_pack("{s:o, s:o, s:o, s:o, s:f, s:b}", "layer", bs_model_json_text(layer->name), "snr",
                  finite_or_null(decibels(measured)), "snr_predicted", finite_or_null(decibels(predicted)),
                  "ratio", finite_or_null(ratio), "limit", BS_LAYERS_LIMIT, "ok", ok);
    json_array_append_new(rows, row);
    *failed += !ok;
    if (!ok && first) note(notes, layer->name, ratio, "it is the first beyond its bound");
    first &= ok;
    if (ratio < BS_LAYERS_LEAST && has_grid(l, layer->name))
      note(notes, layer->name, ratio, "it was left in float, or not rounded to the nearest");
  }
  return rows;
}

void bs_layers_free(bs_layers *l) {
  for (size_t i = 0; i < l->n; i++) {
    free(l->rows[i].name);
    free(l->rows[i].values);
  }
  free(l->rows);
  free(l->seen);
  *l = (bs_layers){0};
}
