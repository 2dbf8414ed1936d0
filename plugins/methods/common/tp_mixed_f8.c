/* SPDX-License-Identifier: MIT
 *
 * tp_mixed_f8.c - builds the low columns of a rank as fp8: a tensor of W rounded here, by the scales of its
 * rows, of all of it or of blocks of its columns, and the product of it. As docs/ops.md has it for X
 * (quantize_groups), so that both are rounded alike. W is read twice: for the scales, and for the values.
 */
#include <math.h>

#include "tp_mixed.h"

float tp_f8_largest(uint32_t dtype) {
  return dtype == BS_F8E4M3 ? 448.0f : 57344.0f;
}

/* W [rows,n] by scales [rows,groups]. */
typedef struct f8_view {
  const bs_source *inner;
  const bs_host *host;
  const float *scales;
  int64_t groups, group;
} f8_view;

static int32_t no_row(bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for a row of weights");
}

/* NaN stays, and stands for infinities too. */
static float larger(float most, float v) {
  if (isnan(most) || !isfinite(v)) return NAN;
  return fabsf(v) > most ? fabsf(v) : most;
}

/* The largest of each group of a row; of all rows where they share one. */
static int32_t make_scales(const f8_view *v, const tp_shape *s, float *out, bs_error *err) {
  const int64_t n = v->inner->cols, rows = v->inner->rows;
  const int shared = s->mixed_scales == TP_SCALES_TENSOR;
  float *row = v->host->alloc(v->host->ctx, (uint64_t)(n + 1) * sizeof *row, 64), all = 0.0f;
  if (row == NULL) return no_row(err);
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < rows; r++) {
    rc = v->inner->read(v->inner->ctx, r, 1, NULL, BS_F32, row, n, err);
    for (int64_t g = 0; rc == BS_OK && g < v->groups; g++) out[r * v->groups + g] = 0.0f;
    for (int64_t k = 0; rc == BS_OK && k < n; k++) {
      float *most = shared ? &all : &out[r * v->groups + k / v->group];
      *most = larger(*most, row[k]);
    }
  }
  v->host->free(v->host->ctx, row);
  for (int64_t i = 0; rc == BS_OK && i < rows * v->groups; i++)
    out[i] = (shared ? all : out[i]) / tp_f8_largest(s->mixed_dtype);
  return rc;
}

static int32_t read_f8(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                       void *out, int64_t out_stride, bs_error *err) {
  const f8_view *v = ctx;
  const int64_t n = v->inner->cols;
  if (cols != NULL || (dtype != BS_F8E4M3 && dtype != BS_F8E5M2))
    return bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-DTYPE", "fp8 weights cannot be read as dtype 0x%04x",
                   dtype);
  const float most = tp_f8_largest(dtype);
  float *values = v->host->alloc(v->host->ctx, (uint64_t)(n + 1) * sizeof *values, 64);
  if (values == NULL) return no_row(err);
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++) {
    rc = v->inner->read(v->inner->ctx, row + r, 1, NULL, BS_F32, values, n, err);
    if (rc != BS_OK) break;
    for (int64_t k = 0; k < n; k++) {
      const float scale = v->scales[(row + r) * v->groups + k / v->group];
      const float q = scale > 0.0f ? values[k] / scale : 0.0f; /* of a NaN scale nothing */
      values[k] = q > most ? most : q < -most ? -most : q;
    }
    rc = v->host->convert(dtype, (char *)out + r * out_stride, BS_F32, values, (uint64_t)n);
    if (rc != BS_OK) bs_fail(err, rc, "BS-METHOD-DTYPE", "no conversion to dtype 0x%04x", dtype);
  }
  v->host->free(v->host->ctx, values);
  return rc;
}

static int32_t read_scales(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  const f8_view *v = ctx;
  int32_t rc = cols == NULL ? BS_OK : BS_UNSUPPORTED;
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++)
    rc = v->host->convert(dtype, (char *)out + (uint64_t)(r * out_stride) * BS_DTYPE_BYTES(dtype), BS_F32,
                          v->scales + (row + r) * v->groups, (uint64_t)v->groups);
  return rc == BS_OK ? rc : bs_fail(err, rc, "BS-METHOD-DTYPE", "no scales of dtype 0x%04x", dtype);
}

/* A device's copy of what a source of the view gives. */
static int32_t fill(tp_layer *l, f8_view *view, uint32_t dtype, int64_t cols, bs_tensor *out, bs_error *err) {
  bs_source source = *view->inner;
  source.dtype = dtype;
  source.cols = cols;
  source.ctx = view;
  source.read = dtype == BS_F32 ? read_scales : read_f8;
  const bs_tensor_desc d = bs_desc_2d(dtype, source.rows, cols);
  const int32_t rc = l->api->tensor_alloc(l->rank, &d, BS_LIFE_WEIGHTS, out, err);
  return rc == BS_OK ? l->api->tensor_read(l->rank, &source, 0, NULL, out, err) : rc;
}

int32_t tp_mixed_build_f8(tp_layer *l, const bs_source *rows, bs_error *err) {
  tp_mixed *m = l->mixed;
  const tp_shape *s = &l->shape;
  const bs_host *host = l->state->host;
  tp_zeros_view columns;
  const bs_source own = tp_source_columns(&columns, rows, s->segment[TP_LOW]);
  const int64_t groups = tp_mixed_groups(s);
  float *scales = host->alloc(host->ctx, (uint64_t)s->row_count * (uint64_t)groups * sizeof *scales, 64);
  f8_view view = {&own, host, scales, groups, s->mixed_group};
  int32_t rc = scales != NULL ? make_scales(&view, s, scales, err) : no_row(err);
  if (rc == BS_OK) rc = fill(l, &view, BS_F32, groups, &m->w_scales, err);
  if (rc == BS_OK) rc = fill(l, &view, s->mixed_dtype, own.cols, &m->w, err);
  if (scales != NULL) host->free(host->ctx, scales);
  if (rc == BS_OK) rc = tp_mixed_build_input(l, TP_LOW, err);
  return rc == BS_OK ? tp_mixed_build_narrow(l, err) : rc;
}

int32_t tp_mixed_build_f8_join(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  const int64_t n = s->row_count, k = s->segment[TP_LOW]->count, groups = tp_mixed_groups(s);
  const bs_tensor_desc x = bs_desc_2d(s->mixed_dtype, s->B, k), x_scales = bs_desc_2d(BS_F32, s->B, groups);
  const bs_tensor_desc w = bs_desc_2d(s->mixed_dtype, n, k), w_scales = bs_desc_2d(BS_F32, n, groups);
  const bs_tensor_desc base = bs_desc_2d(BS_F32, s->B, n), out = tp_mixed_out_desc(l);
  bs_tensor_desc bias = bs_desc_2d(BS_F32, n, 1);
  bias.rank = 1;
  bias.dims[1] = bias.strides[1] = 0;
  const bs_tensor_desc *args[7] = {&x,
                                   &x_scales,
                                   &w,
                                   &w_scales,
                                   s->bias_here ? &bias : NULL,
                                   l->mixed->product[TP_HIGH] != NULL ? &base : NULL,
                                   &out};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "scaled_matmul";
  q.nargs = 7;
  q.args = args;
  q.attrs[0] = s->mixed_group;
  /* A Y in f32 is judged by sums in f32, which tensor cores do not have for fp8. For a Y of 16 bits their
   * sums are good enough, and the gates expect them. */
  q.accumulate = spec->y_dtype == BS_F32 ? (uint32_t)BS_ACC_F32 : (uint32_t)BS_ACC_DEFAULT;
  q.activation = s->after == BS_ACT_NONE ? spec->activation : (uint32_t)BS_ACT_NONE;
  q.flags = BS_QUERY_DETERMINISTIC | (s->repro >= BS_REPRO_R2 ? (uint32_t)BS_QUERY_TOKENWISE : 0u);
  return l->api->op_prepare(l->rank, &q, NULL, &l->mixed->join, err);
}
