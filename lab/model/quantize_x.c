/* SPDX-License-Identifier: MIT
 * quantize_x.c - see quantize_x.h. One scale and one zero serve all numbers of a value; 0 is one of the 256
 * numbers. */
#include "lab/model/quantize_x.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/model/grids.h"
#include "lab/model/model.h"

enum { VALUE = 0, CODES = 1, SCALE = 2, ZERO = 3, AGAIN = 4, NAMES = 5 };
static const char *const endings[NAMES] = {"", "_x8", "_x8_scale", "_x8_zero_point", "_x8_floats"};

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the grids of X");
}

static int32_t fill_scale(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  const bs_x_static *row = ctx;
  (void)err;
  if (row->half)
    memcpy(out, (const char *)&row->scale_half + offset, bytes);
  else
    memcpy(out, (const char *)&row->scale + offset, bytes);
  return BS_OK;
}

static int32_t fill_zero(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  (void)offset;
  (void)err;
  memcpy(out, &((const bs_x_static *)ctx)->zero, bytes);
  return BS_OK;
}

static void set_grid(bs_x_static *row, const bs_x_range *range) {
  row->low = fmin(range->low, 0.0);
  row->high = fmax(range->high, 0.0);
  row->scale = (float)((row->high - row->low) / 255.0);
  if (!(row->scale > 0.0F) || !isfinite(row->scale)) row->scale = 1.0F;
  if (row->half) {
    bs_convert(BS_F16, &row->scale_half, BS_F32, &row->scale, 1);
    if (row->scale_half == 0) row->scale_half = 1; /* the smallest f16 */
    bs_convert(BS_F32, &row->scale, BS_F16, &row->scale_half, 1);
  }
  row->zero = (uint8_t)fmin(nearbyint(-row->low / (double)row->scale), 255.0);
}

static bs_x_static *row_of(const bs_quantize_x *x, bs_span name) {
  for (size_t i = 0; i < x->n; i++)
    if (bs_span_same(x->rows[i].x, name)) return &x->rows[i];
  return NULL;
}

static bs_onnx_new_node linear(const bs_x_static *row, const char *op, int from, int to, uint32_t before) {
  return (bs_onnx_new_node){.op = op,
                            .domain = "",
                            .name = row->names[to],
                            .inputs = {row->names[from], row->names[SCALE], row->names[ZERO]},
                            .n_inputs = 3,
                            .outputs = {row->names[to]},
                            .n_outputs = 1,
                            .before = before};
}

static int32_t add_row(bs_quantize_x *x, uint32_t node, bs_span name, const bs_x_range *range, int half,
                       bs_x_static **out, bs_error *err) {
  bs_x_static *row = &x->rows[x->n++];
  *row = (bs_x_static){.x = name, .half = half != 0};
  for (int i = 0; i < NAMES; i++) {
    const size_t room = name.size + 24;
    row->names[i] = malloc(room);
    if (row->names[i] == NULL) return no_memory(err);
    snprintf(row->names[i], room, "%.*s%s", (int)name.size, name.data, endings[i]);
  }
  set_grid(row, range);
  x->nodes[x->n_nodes++] = linear(row, "QuantizeLinear", VALUE, CODES, node);
  x->nodes[x->n_nodes++] = linear(row, "DequantizeLinear", CODES, AGAIN, node);
  x->tensors[x->n_tensors++] = (bs_onnx_new_tensor){.name = row->names[SCALE],
                                                    .type = half ? BS_ONNX_FLOAT16 : BS_ONNX_FLOAT,
                                                    .bytes = half ? 2 : 4,
                                                    .ctx = row,
                                                    .fill = fill_scale};
  x->tensors[x->n_tensors++] = (bs_onnx_new_tensor){
      .name = row->names[ZERO], .type = BS_ONNX_UINT8, .bytes = 1, .ctx = row, .fill = fill_zero};
  *out = row;
  return BS_OK;
}

int32_t bs_quantize_x_make(const bs_onnx *model, const bs_x_ranges *ranges,
                           int (*takes)(const void *user, bs_span weight), const void *user,
                           bs_quantize_x *out, bs_error *err) {
  const bs_onnx_graph *g = model->graph;
  const size_t most = g->n_nodes + 1u;
  *out = (bs_quantize_x){.rows = calloc(most, sizeof *out->rows),
                         .nodes = calloc(2 * most, sizeof *out->nodes),
                         .tensors = calloc(2 * most, sizeof *out->tensors),
                         .inputs = calloc(most, sizeof *out->inputs)};
  if (out->rows == NULL || out->nodes == NULL || out->tensors == NULL || out->inputs == NULL)
    return no_memory(err);
  for (uint32_t n = 0; n < g->n_nodes; n++) {
    const bs_onnx_tensor *w = bs_product_weight(g, &g->nodes[n]);
    char name[BS_ONNX_MAX_NAME + 1];
    if (w == NULL || !takes(user, w->name)) continue;
    snprintf(name, sizeof name, "%.*s", (int)w->name.size, w->name.data);
    const bs_x_range *range = bs_x_range_of(ranges, name);
    if (range == NULL || !(range->low <= range->high)) continue;
    bs_x_static *row = row_of(out, g->nodes[n].inputs[0]);
    int32_t rc = BS_OK;
    if (row == NULL)
      rc = add_row(out, n, g->nodes[n].inputs[0], range, w->type == BS_ONNX_FLOAT16, &row, err);
    if (rc != BS_OK) return rc;
    row->products++;
    out->inputs[out->n_inputs++] = (bs_onnx_new_input){.node = n, .input = 0, .name = row->names[AGAIN]};
  }
  return BS_OK;
}

json_t *bs_quantize_x_report(const bs_quantize_x *x) {
  json_t *rows = json_array();
  for (size_t i = 0; i < x->n; i++) {
    const bs_x_static *row = &x->rows[i];
    json_array_append_new(
        rows, json_pack("{s:o, s:f, s:f, s:f, s:i, s:I}", "name", bs_model_json_text(row->names[VALUE]),
                        "low", row->low, "high", row->high, "scale", (double)row->scale, "zero",
                        (int)row->zero, "products", (json_int_t)row->products));
  }
  return rows;
}

void bs_quantize_x_free(bs_quantize_x *x) {
  for (size_t i = 0; i < x->n; i++)
    for (int k = 0; k < NAMES; k++) free(x->rows[i].names[k]);
  free(x->rows);
  free(x->nodes);
  free(x->tensors);
  free(x->inputs);
  *x = (bs_quantize_x){0};
}
