/* SPDX-License-Identifier: MIT
 *
 * tp_mixed_build.c - builds a rank's share of a layer in two precisions: the high columns are packed as they
 * are, the others as int8 by the largest weight of each row; plans and memory of forward. Everything slow is
 * here. W is read twice where it becomes int8: once for the scales, once for the values.
 */
#include <math.h>

#include "tp_mixed.h"

/* ---- int8 weights ----------------------------------------------------------------------------- */

static int32_t no_row(bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a row of weights");
}

int32_t tp_mixed_scales(const bs_host *host, const bs_source *columns, float *out, bs_error *err) {
  const int64_t n = columns->cols;
  float *row = host->alloc(host->ctx, (uint64_t)(n + 1) * sizeof *row, 64);
  if (row == NULL) return no_row(err);
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < columns->rows; r++) {
    float most = 0.0f;
    rc = columns->read(columns->ctx, r, 1, NULL, BS_F32, row, n, err);
    for (int64_t k = 0; rc == BS_OK && k < n; k++)
      if (!(fabsf(row[k]) <= most) && !isnan(most)) most = fabsf(row[k]); /* NaN stays */
    out[r] = isfinite(most) ? most / 127.0f : NAN;
  }
  host->free(host->ctx, row);
  return rc;
}

/* Rounds to the nearest integer, ties to even, as quantize_groups does. */
static void round_row(const float *row, float scale, int64_t n, int8_t *out) {
  for (int64_t k = 0; k < n; k++) {
    const float v = scale > 0.0f ? rintf(row[k] / scale) : 0.0f; /* of a NaN scale nothing */
    out[k] = (int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
  }
}

static int32_t read_int8(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                         void *out, int64_t out_stride, bs_error *err) {
  const tp_mixed_view *view = ctx;
  const bs_host *host = view->host;
  const int64_t n = cols != NULL ? cols->count : view->inner->cols;
  float *values = host->alloc(host->ctx, (uint64_t)(n + 1) * (sizeof *values + 1), 64);
  if (values == NULL) return no_row(err);
  int8_t *bytes = (int8_t *)(void *)(values + n + 1);
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++) {
    rc = view->inner->read(view->inner->ctx, row + r, 1, cols, BS_F32, values, n, err);
    if (rc != BS_OK) break;
    round_row(values, view->scales[row + r], n, bytes);
    char *to = (char *)out + (uint64_t)(r * out_stride) * BS_DTYPE_BYTES(dtype);
    if (dtype == BS_I8)
      memcpy(to, bytes, (size_t)n);
    else if (host->convert(dtype, to, BS_I8, bytes, (uint64_t)n) != BS_OK)
      rc = bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-DTYPE", "int8 weights cannot be read as dtype 0x%04x",
                   dtype);
  }
  host->free(host->ctx, values);
  return rc;
}

bs_source tp_source_int8(tp_mixed_view *view, const bs_source *inner, const bs_host *host,
                         const float *scales) {
  bs_source source = *inner;
  *view = (tp_mixed_view){inner, host, scales};
  source.dtype = BS_I8;
  source.ctx = view;
  source.read = read_int8;
  return source;
}

static int32_t read_scales(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const tp_mixed_view *view = ctx;
  const int64_t n = cols != NULL ? cols->count : view->inner->rows;
  (void)row;
  (void)nrows; /* there is one */
  (void)out_stride;
  const int32_t rc = view->host->convert(dtype, out, BS_F32, view->scales, (uint64_t)n);
  return rc == BS_OK ? rc : bs_fail(err, rc, "BS-METHOD-DTYPE", "no scales of dtype 0x%04x", dtype);
}

/* ---- plans ------------------------------------------------------------------------------------ */

/* Memory of one call: every element is written before it is read. */
static int32_t scratch(tp_layer *l, uint32_t dtype, int64_t cols, bs_tensor *out, bs_error *err) {
  const bs_tensor_desc d = bs_desc_2d(dtype, l->shape.B, cols);
  return l->api->tensor_alloc(l->rank, &d, BS_LIFE_CALL, out, err);
}

static const int64_t none[2] = {0, 0};

/* An op of float matrices without a weight. */
static int32_t prepare(tp_layer *l, const char *op, const bs_tensor_desc *const *args, uint32_t nargs,
                       const bs_partition *cols, const int64_t attrs[2], uint32_t activation,
                       bs_plan **out_plan, bs_error *err) {
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = nargs;
  q.args = args;
  q.partition = cols;
  q.attrs[0] = attrs[0];
  q.attrs[1] = attrs[1];
  q.activation = activation;
  return l->api->op_prepare(l->rank, &q, NULL, out_plan, err);
}

/* x of a segment as its product takes it: a view where the columns are a run, else a copy. */
static bs_tensor_desc x_desc(const tp_layer *l, uint32_t segment) {
  const bs_partition *cols = l->mixed->cols[segment];
  const tp_shape *s = &l->shape;
  const int64_t n = cols != NULL ? cols->count : 1;
  return tp_strided(s->x_dtype, s->B, n, l->mixed->x[segment].data == NULL ? s->x_cols : n);
}

int32_t tp_mixed_build_input(tp_layer *l, uint32_t segment, bs_error *err) {
  tp_mixed *m = l->mixed;
  const bs_partition *cols = m->cols[segment];
  if (cols != NULL && cols->kind == BS_PARTITION_CONTIGUOUS) return BS_OK;
  if (cols == NULL) { /* a column of zeros stands in */
    const bs_tensor_desc zeros = bs_desc_2d(l->shape.x_dtype, l->shape.B, 1);
    return l->api->tensor_alloc(l->rank, &zeros, BS_LIFE_SCRATCH, &m->x[segment], err);
  }
  int32_t rc = scratch(l, l->shape.x_dtype, cols->count, &m->x[segment], err);
  if (rc != BS_OK) return rc;
  const bs_tensor_desc from = bs_desc_2d(l->shape.x_dtype, l->shape.B, l->shape.x_cols);
  const bs_tensor_desc to = bs_desc_2d(l->shape.x_dtype, l->shape.B, cols->count);
  const bs_tensor_desc *args[2] = {&from, &to};
  return prepare(l, "gather_columns", args, 2, cols, none, BS_ACT_NONE, &m->move[segment], err);
}

/* The output of the layer's product. */
bs_tensor_desc tp_mixed_out_desc(const tp_layer *l) {
  const tp_shape *s = &l->shape;
  return tp_strided(s->product_dtype, s->B, s->row_count,
                    s->coll == BS_COLL_ALL_GATHER ? s->N : s->row_count);
}

static int32_t build_product(tp_layer *l, const bs_layer_spec *spec, uint32_t segment,
                             const bs_source *weights, const bs_tensor_desc *x, const bs_tensor_desc *y,
                             int alone, bs_error *err) {
  tp_mixed *m = l->mixed;
  const bs_tensor_desc bias = tp_vector(BS_F32, l->shape.row_count);
  const bs_tensor_desc *args[4] = {x, alone && l->shape.bias_here ? &bias : NULL, NULL, y};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "matmul";
  q.nargs = 4;
  q.args = args;
  q.activation = alone && l->shape.after == BS_ACT_NONE ? spec->activation : (uint32_t)BS_ACT_NONE;
  q.flags = BS_QUERY_DETERMINISTIC | (l->shape.repro >= BS_REPRO_R2 ? (uint32_t)BS_QUERY_TOKENWISE : 0u);
  q.weight_dtype = segment == TP_LOW ? (uint32_t)BS_I8 : l->shape.w_dtype;
  int32_t rc = l->api->pack(l->rank, &q, weights, &m->packed[segment], err);
  if (rc == BS_OK) rc = l->api->op_prepare(l->rank, &q, m->packed[segment], &m->product[segment], err);
  return rc;
}

static int32_t build_high(tp_layer *l, const bs_layer_spec *spec, const bs_source *rows, int alone,
                          bs_error *err) {
  tp_mixed *m = l->mixed;
  const tp_shape *s = &l->shape;
  tp_zeros_view view;
  bs_source own = s->segment[TP_HIGH]->count > 0 ? tp_source_columns(&view, rows, s->segment[TP_HIGH])
                                                 : tp_source_zero_column(rows);
  int32_t rc = tp_mixed_build_input(l, TP_HIGH, err);
  if (rc == BS_OK && !alone) rc = scratch(l, BS_F32, s->row_count, &m->base, err);
  if (rc != BS_OK) return rc;
  const bs_tensor_desc x = x_desc(l, TP_HIGH), base = bs_desc_2d(BS_F32, s->B, s->row_count);
  const bs_tensor_desc out = tp_mixed_out_desc(l);
  return build_product(l, spec, TP_HIGH, &own, &x, alone ? &out : &base, alone, err);
}

/* The scales of the rows, on the device and, for the packing, here. */
static int32_t build_scales(tp_layer *l, const bs_source *own, float *scales, bs_error *err) {
  tp_mixed *m = l->mixed;
  const int64_t n = l->shape.row_count;
  const bs_tensor_desc d = bs_desc_2d(BS_F32, 1, n);
  tp_mixed_view view = {own, l->state->host, scales};
  bs_source row = *own;
  row.dtype = BS_F32;
  row.rows = 1;
  row.cols = n;
  row.ctx = &view;
  row.read = read_scales;
  int32_t rc = tp_mixed_scales(l->state->host, own, scales, err);
  if (rc == BS_OK) rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_WEIGHTS, &m->w_scales, err);
  if (rc == BS_OK) rc = l->api->tensor_read(l->rank, &row, 0, NULL, &m->w_scales, err);
  m->w_row = m->w_scales;
  m->w_row.rank = 1;
  m->w_row.dims[0] = n;
  m->w_row.strides[0] = 1;
  m->w_row.dims[1] = m->w_row.strides[1] = 0;
  return rc;
}

int32_t tp_mixed_build_narrow(tp_layer *l, bs_error *err) {
  tp_mixed *m = l->mixed;
  const tp_shape *s = &l->shape;
  const int64_t n = m->cols[TP_LOW]->count;
  bs_tensor_desc x = x_desc(l, TP_LOW);
  const int64_t attrs[2] = {s->mixed_group, s->mixed_scales == TP_SCALES_TENSOR};
  const bs_tensor_desc wide = bs_desc_2d(BS_F32, s->B, n), q = bs_desc_2d(s->mixed_dtype, s->B, n);
  const bs_tensor_desc scale = bs_desc_2d(BS_F32, s->B, tp_mixed_groups(s));
  int32_t rc = scratch(l, s->mixed_dtype, n, &m->values, err);
  if (rc == BS_OK) rc = scratch(l, BS_F32, tp_mixed_groups(s), &m->x_scales, err);
  if (rc == BS_OK && s->x_dtype != BS_F32) {
    const bs_tensor_desc *args[2] = {&x, &wide};
    rc = scratch(l, BS_F32, n, &m->wide, err);
    if (rc == BS_OK) rc = prepare(l, "convert", args, 2, NULL, none, BS_ACT_NONE, &m->widen, err);
    x = wide;
  }
  const bs_tensor_desc *args[3] = {&x, &q, &scale};
  return rc == BS_OK ? prepare(l, "quantize_groups", args, 3, NULL, attrs, BS_ACT_NONE, &m->narrow, err) : rc;
}

static int32_t build_low(tp_layer *l, const bs_layer_spec *spec, const bs_source *rows, bs_error *err) {
  tp_mixed *m = l->mixed;
  const tp_shape *s = &l->shape;
  const bs_host *host = l->state->host;
  tp_zeros_view columns;
  tp_mixed_view bytes;
  const bs_source own = tp_source_columns(&columns, rows, s->segment[TP_LOW]);
  const bs_tensor_desc q = bs_desc_2d(BS_I8, s->B, m->cols[TP_LOW]->count);
  const bs_tensor_desc sums = bs_desc_2d(BS_I32, s->B, s->row_count);
  float *scales = host->alloc(host->ctx, (uint64_t)s->row_count * sizeof *scales, 64);
  int32_t rc = scales != NULL ? build_scales(l, &own, scales, err) : no_row(err);
  if (rc == BS_OK) rc = tp_mixed_build_input(l, TP_LOW, err);
  if (rc == BS_OK) rc = tp_mixed_build_narrow(l, err);
  if (rc == BS_OK) rc = scratch(l, BS_I32, s->row_count, &m->sums, err);
  if (rc == BS_OK) {
    const bs_source int8 = tp_source_int8(&bytes, &own, host, scales);
    rc = build_product(l, spec, TP_LOW, &int8, &q, &sums, 0, err);
  }
  if (scales != NULL) host->free(host->ctx, scales);
  return rc;
}

static int32_t build_join(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  const int64_t n = s->row_count;
  const bs_tensor_desc sums = bs_desc_2d(BS_I32, s->B, n), rows = bs_desc_2d(BS_F32, s->B, 1);
  const bs_tensor_desc row = tp_vector(BS_F32, n), base = bs_desc_2d(BS_F32, s->B, n),
                       out = tp_mixed_out_desc(l);
  const bs_tensor_desc *args[6] = {
      &sums, &rows, &row, s->bias_here ? &row : NULL, l->mixed->product[TP_HIGH] != NULL ? &base : NULL,
      &out};
  return prepare(l, "dequantize_product", args, 6, NULL, none,
                 s->after == BS_ACT_NONE ? spec->activation : (uint32_t)BS_ACT_NONE, &l->mixed->join, err);
}

/* The columns of a segment among those of x as the layer has it. */
static int32_t build_columns(tp_layer *l, const bs_layer_spec *spec, uint32_t segment, bs_error *err) {
  const tp_shape *s = &l->shape;
  const bs_partition *of_k = s->segment[segment];
  if (of_k->count == 0) return BS_OK;
  const int local = spec->x_placement == BS_SPLIT && s->cols != NULL;
  return tp_leaf_places(l->state, of_k, local ? s->cols : &l->mixed->all, &l->mixed->cols[segment], err);
}

int32_t tp_mixed_build(tp_layer *l, const bs_layer_spec *spec, const bs_source *weights, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_rows_view view;
  bs_source rows = *weights;
  tp_mixed *m = l->mixed = l->api->alloc(l->rank, sizeof *m);
  if (m == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a layer");
  if (s->bias_here && l->bias.dtype != BS_F32)
    return bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-MIXED", "method %s: a bias in f64 with %s",
                   l->state->traits->name, s->mixed_dtype == BS_I8 ? "int8" : "fp8");
  m->all.struct_size = (uint32_t)sizeof m->all;
  m->all.kind = BS_PARTITION_CONTIGUOUS;
  m->all.total = m->all.count = s->K;
  m->region_in = l->api->region_named(l->rank, "quantize");
  m->region_out = l->api->region_named(l->rank, "dequantize");
  if (s->split == BS_SPLIT_N) rows = tp_source_rows(&view, weights, s->row_begin, s->row_count);
  int32_t rc = build_columns(l, spec, TP_HIGH, err);
  if (rc == BS_OK) rc = build_columns(l, spec, TP_LOW, err);
  if (rc != BS_OK) return rc;
  const int low = m->cols[TP_LOW] != NULL, int8 = s->mixed_dtype == BS_I8;
  l->api->region_begin(l->rank, BS_REGION_PACK);
  if (!low || m->cols[TP_HIGH] != NULL) rc = build_high(l, spec, &rows, !low, err);
  if (rc == BS_OK && low) rc = int8 ? build_low(l, spec, &rows, err) : tp_mixed_build_f8(l, &rows, err);
  l->api->region_end(l->rank, BS_REGION_PACK);
  if (rc != BS_OK || !low) return rc;
  return int8 ? build_join(l, spec, err) : tp_mixed_build_f8_join(l, spec, err);
}

void tp_mixed_free(tp_layer *l) {
  tp_mixed *m = l->mixed;
  const bs_rank_api *api = l->api;
  if (m == NULL) return;
  bs_plan *const plans[3] = {m->widen, m->narrow, m->join};
  bs_tensor *const tensors[9] = {&m->x[0],     &m->x[1], &m->wide, &m->values, &m->x_scales,
                                 &m->w_scales, &m->sums, &m->base, &m->w};
  for (uint32_t i = 0; i < 3; i++)
    if (plans[i] != NULL) api->op_release(plans[i]);
  for (uint32_t i = 0; i < TP_SEGMENTS; i++) {
    if (m->move[i] != NULL) api->op_release(m->move[i]);
    if (m->product[i] != NULL) api->op_release(m->product[i]);
    if (m->packed[i] != NULL) api->packed_release(m->packed[i]);
    tp_partition_free(l->state, m->cols[i]);
  }
  for (uint32_t i = 0; i < 9; i++)
    if (tensors[i]->data != NULL) api->tensor_free(l->rank, tensors[i]);
  api->free(l->rank, m);
  l->mixed = NULL;
}
