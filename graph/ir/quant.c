/* SPDX-License-Identifier: MIT
 * quant.c - quantised constants: made, joined, read as the floats that they stand for. */
#include "core/op/quant.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/graph.h"
#include "graph/ir/internal.h"

int32_t graph_add_quant(graph *g, const gquant *quant, const char *name, uint32_t *out_value, bs_error *err) {
  const int64_t dims[2] = {quant->quant.rows, quant->quant.cols};
  gquant *own = graph_data(g, sizeof *own);
  if (own == NULL) return graph_no_memory(err);
  *own = *quant;
  const int32_t rc = graph_add_root(g, GV_CONST, BS_F32, 2, dims, own, name, out_value, err);
  if (rc == BS_OK) g->values[*out_value].flags |= GV_QUANT;
  return rc;
}

const gquant *graph_quant(const graph *g, uint32_t value) {
  const gvalue *root = &g->values[g->values[value].base];
  return root->flags & GV_QUANT ? root->data : NULL;
}

/* ---- rows of several -------------------------------------------------------------------------- */

int graph_quants_join(const gquant *a, const gquant *b) {
  bs_quant form = b->quant;
  form.rows = a->quant.rows;
  return bs_quant_same_form(&a->quant, &form) && a->x_bytes == b->x_bytes && a->n_keys == 1 && b->n_keys == 1;
}

typedef struct joined {
  uint32_t n;
  bs_quant parts[GJOIN_MAX];
} joined;

/* The arrays from row `row` on of those that a caller gave. */
static bs_quant_rows rows_from(const bs_quant *q, const bs_quant_rows *out, int64_t row) {
  const int64_t groups = bs_quant_groups(q), spans = bs_quant_spans(q);
  bs_quant_rows at = *out;
  at.codes += row * out->codes_stride;
  at.scales += row * spans;
  if (at.zeros != NULL) at.zeros += row * groups;
  if (at.lows != NULL) at.lows += row * spans;
  if (at.steps != NULL) at.steps += row * groups;
  if (at.low_steps != NULL) at.low_steps += row * groups;
  return at;
}

static int32_t read_joined(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const joined *j = ctx;
  int64_t done = 0;
  for (uint32_t p = 0; p < j->n && nrows > 0; p++) {
    const bs_quant *q = &j->parts[p];
    if (row >= q->rows) {
      row -= q->rows;
      continue;
    }
    const int64_t n = nrows < q->rows - row ? nrows : q->rows - row;
    const bs_quant_rows at = rows_from(q, out, done);
    const int32_t rc = q->read(q->ctx, row, n, &at, err);
    if (rc != BS_OK) return rc;
    done += n;
    nrows -= n;
    row = 0;
  }
  return BS_OK;
}

int32_t graph_join_quants(graph *g, const uint32_t *values, uint32_t n, uint32_t *out_value, bs_error *err) {
  joined *j = graph_data(g, sizeof *j);
  if (j == NULL) return graph_no_memory(err);
  gquant whole = *graph_quant(g, values[0]);
  whole.quant.rows = 0;
  whole.quant.ctx = j;
  whole.quant.read = read_joined;
  whole.n_keys = n;
  j->n = n;
  for (uint32_t i = 0; i < n; i++) {
    const gquant *part = graph_quant(g, values[i]);
    j->parts[i] = part->quant;
    whole.keys[i] = part->keys[0];
    whole.places[i] = part->places[0];
    whole.quant.rows += part->quant.rows;
  }
  return graph_add_quant(g, &whole, NULL, out_value, err);
}

/* ---- as floats -------------------------------------------------------------------------------- */

enum { ROWS = 16 };

/* The arrays of ROWS rows in one block, to be freed; NULL: no memory. */
static void *arrays(const bs_quant *q, bs_quant_rows *out) {
  const size_t groups = (size_t)bs_quant_groups(q), spans = (size_t)bs_quant_spans(q), cols = (size_t)q->cols;
  const int lows = (q->flags & BS_QUANT_LOWS) != 0, steps = (q->flags & BS_QUANT_STEPS) != 0;
  float *block = calloc(ROWS * (2u * spans * sizeof *block + 3u * groups + cols) + 1u, 1);
  if (block == NULL) return NULL;
  uint8_t *bytes = (uint8_t *)(block + ROWS * 2u * spans);
  *out = (bs_quant_rows){.struct_size = (uint32_t)sizeof *out,
                         .codes = bytes + ROWS * 3u * groups,
                         .codes_stride = q->cols,
                         .scales = block};
  if (lows) out->lows = block + ROWS * spans;
  if ((q->flags & BS_QUANT_ZEROS) != 0) out->zeros = bytes;
  if (steps) out->steps = (int8_t *)(bytes + ROWS * groups);
  if (steps && lows) out->low_steps = bytes + ROWS * 2u * groups;
  return block;
}

/* One row, each operation rounded to f32 (tensor.h). */
static void row_floats(const bs_quant *q, const bs_quant_rows *r, float *out) {
  for (int64_t k = 0; k < q->cols; k++) {
    const int64_t g = k / q->group, s = k / q->span;
    const int32_t code = (int32_t)r->codes[k] - (r->zeros != NULL ? r->zeros[g] : q->zero);
    const float scale = r->steps != NULL ? r->scales[s] * (float)r->steps[g] : r->scales[s];
    out[k] = scale * (float)code;
    if (r->lows != NULL) out[k] -= r->low_steps != NULL ? r->lows[s] * (float)r->low_steps[g] : r->lows[s];
  }
}

int32_t gquant_read(const bs_quant *q, float *out, bs_error *err) {
  bs_quant_rows all;
  void *block = arrays(q, &all);
  if (block == NULL) return graph_no_memory(err);
  int32_t rc = BS_OK;
  for (int64_t row = 0; row < q->rows && rc == BS_OK; row += ROWS) {
    const int64_t n = q->rows - row < ROWS ? q->rows - row : ROWS;
    rc = q->read(q->ctx, row, n, &all, err);
    for (int64_t i = 0; i < n && rc == BS_OK; i++) {
      const bs_quant_rows at = rows_from(q, &all, i);
      row_floats(q, &at, out + (row + i) * q->cols);
    }
  }
  free(block);
  return rc;
}
