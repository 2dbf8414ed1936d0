/* SPDX-License-Identifier: MIT
 * data.c - see data.h. */
#include "lab/kernel/data_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "lab/error.h"
#include "lab/gate/judge.h"
#include "lab/kernel/query.h"

static const double MOST_PRODUCTS = 1e8; /* of a reference: about a tenth of a second */

/* ---- inputs ------------------------------------------------------------------------------------- */

/* Normal numbers of a stream of their own, divided so that the largest one is fp8's largest. */
static int32_t fill(bs_kernel_data *d, uint32_t index, int64_t rows, int64_t cols, bs_error *err) {
  const size_t n = (size_t)rows * (size_t)cols, size = BS_DTYPE_BYTES(d->p.dtype);
  float *normal = malloc(n * sizeof *normal), most = 0.0f;
  void *data = aligned_alloc(64, (n * size + 63) / 64 * 64);
  if (normal == NULL || data == NULL) {
    free(normal);
    free(data);
    return bs_no_memory(err, "%zu numbers", n);
  }
  bs_rng_normal(d->seed, index + 1, 0, n, normal);
  d->descale[index] = 1.0f;
  if (size == 1) {
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(normal[i]));
    d->descale[index] = most / (d->p.dtype == BS_F8E4M3 ? 448.0f : 57344.0f);
    for (size_t i = 0; i < n; i++) normal[i] /= d->descale[index];
  }
  d->in[index] = (bs_kernel_input){data, rows, cols};
  const int32_t rc = bs_convert(d->p.dtype, data, BS_F32, normal, n);
  free(normal);
  return rc == BS_OK
             ? BS_OK
             : bs_error_set(err, rc, "BS-KERNEL-DTYPE", "no numbers of %s", bs_dtype_name(d->p.dtype));
}

int32_t bs_kernel_data_make(const bs_kernel_problem *p, uint64_t seed, bs_kernel_data **out, bs_error *err) {
  *out = NULL;
  bs_kernel_data *d = calloc(1, sizeof *d);
  if (d == NULL) return bs_no_memory(err, "the numbers of a kernel");
  d->p = *p;
  d->seed = seed;
  int32_t rc = BS_OK;
  if (!bs_kernel_is_product(p)) {
    rc = fill(d, 0, p->B * p->H * p->S, p->D, err);
    if (rc == BS_OK) rc = fill(d, 1, p->B * p->G * p->T, p->D, err);
    if (rc == BS_OK) rc = fill(d, 2, p->B * p->G * p->T, p->E, err);
    if (rc == BS_OK && p->kind == BS_KERNEL_SDPA_DX) rc = fill(d, 3, p->B * p->H * p->S, p->E, err);
  } else {
    rc = fill(d, 0, p->B, bs_kernel_is_dx(p) ? p->N : p->K, err);
    if (rc == BS_OK)
      rc = !bs_kernel_has_weight(p) ? fill(d, 1, p->B, p->N, err) : fill(d, 1, p->N, p->K, err);
    if (rc == BS_OK) rc = bs_kernel_columns_make(p, &d->columns, err);
  }
  if (rc == BS_OK && bs_kernel_is_24(p)) rc = bs_kernel_kept_make(p, seed, &d->kept, err);
  if (rc != BS_OK) {
    bs_kernel_data_free(d);
    return rc;
  }
  *out = d;
  return BS_OK;
}

int32_t bs_kernel_data_set(bs_kernel_data *d, uint32_t index, const float *values, bs_error *err) {
  const bs_kernel_input *in = &d->in[index];
  const int32_t rc =
      bs_convert(d->p.dtype, in->data, BS_F32, values, (uint64_t)in->rows * (uint64_t)in->cols);
  d->descale[index] = 1.0f;
  return rc == BS_OK
             ? BS_OK
             : bs_error_set(err, rc, "BS-KERNEL-DTYPE", "no numbers of %s", bs_dtype_name(d->p.dtype));
}

void bs_kernel_data_free(bs_kernel_data *d) {
  if (d == NULL) return;
  for (uint32_t i = 0; i < BS_KERNEL_INPUTS; i++) free(d->in[i].data);
  if (d->kept != NULL) bs_kept_free(d->kept);
  if (d->columns != NULL) bs_partition_free(d->columns);
  free(d->at);
  free(d->count);
  free(d->slice);
  free(d->value);
  free(d);
}

uint64_t bs_kernel_data_seed(const bs_kernel_data *d) {
  return d->seed;
}

const bs_kernel_problem *bs_kernel_data_problem(const bs_kernel_data *d) {
  return &d->p;
}

const void *bs_kernel_data_input(const bs_kernel_data *d, uint32_t index, int64_t *out_rows,
                                 int64_t *out_cols) {
  if (index >= BS_KERNEL_INPUTS) return NULL;
  *out_rows = d->in[index].rows;
  *out_cols = d->in[index].cols;
  return d->in[index].data;
}

const float *bs_kernel_data_descale(const bs_kernel_data *d) {
  return !bs_kernel_is_product(&d->p) && BS_DTYPE_BYTES(d->p.dtype) == 1 ? d->descale : NULL;
}

const bs_kept *bs_kernel_data_kept(const bs_kernel_data *d) {
  return d->kept;
}

const bs_partition *bs_kernel_data_columns(const bs_kernel_data *d) {
  return d->columns;
}

int64_t bs_kernel_data_outputs(const bs_kernel_data *d) {
  const bs_kernel_problem *p = &d->p;
  int64_t rows, cols;
  if (p->kind == BS_KERNEL_SDPA_DX) return p->B * (p->H * p->S * p->D + p->G * p->T * (p->D + p->E));
  if (!bs_kernel_is_product(p)) return p->B * p->H * p->S * p->E;
  bs_kernel_y_size(p, &rows, &cols);
  return rows * cols;
}

int bs_kernel_data_lacks_forward(const bs_kernel_data *d) {
  return d->p.kind == BS_KERNEL_SDPA_DX && d->in[BS_KERNEL_INPUTS - 1].data == NULL;
}

static void *copy_of(const void *from, size_t bytes) {
  void *to = malloc(bytes > 0 ? bytes : 1);
  return to != NULL ? memcpy(to, from, bytes) : NULL;
}

int32_t bs_kernel_data_set_forward(bs_kernel_data *d, const void *y, const void *lse, bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const int64_t rows = p->B * p->H * p->S;
  bs_kernel_input *of = &d->in[BS_KERNEL_GIVEN];
  if (!bs_kernel_data_lacks_forward(d))
    return bs_error_set(err, BS_USAGE, "BS-KERNEL-FORWARD", "numbers that need no Y and LSE, or have them");
  of[0] = (bs_kernel_input){copy_of(y, (size_t)(rows * p->E) * BS_DTYPE_BYTES(p->dtype)), rows, p->E};
  of[1] = (bs_kernel_input){copy_of(lse, (size_t)rows * sizeof(float)), rows, 1};
  d->descale[BS_KERNEL_GIVEN] = d->descale[BS_KERNEL_GIVEN + 1] = 1.0f;
  if (of[0].data != NULL && of[1].data != NULL) return BS_OK;
  for (int i = 0; i < 2; i++) {
    free(of[i].data);
    of[i] = (bs_kernel_input){0};
  }
  return bs_no_memory(err, "a forward pass");
}

double *bs_kernel_data_widen(const bs_kernel_data *d, uint32_t index, int64_t row, int64_t rows,
                             bs_error *err) {
  const bs_kernel_input *in = &d->in[index];
  const size_t n = (size_t)(rows * in->cols);
  double *out = malloc((n > 0 ? n : 1) * sizeof *out);
  if (out == NULL) {
    bs_no_memory(err, "%zu numbers in f64", n);
    return NULL;
  }
  const uint32_t dtype =
      index == BS_KERNEL_INPUTS - 1 ? (uint32_t)BS_F32 : d->p.dtype; /* LSE, or as fill made it */
  const char *from = (const char *)in->data + (size_t)(row * in->cols) * BS_DTYPE_BYTES(dtype);
  bs_convert(BS_F64, out, dtype, from, n);
  for (size_t i = 0; i < n && d->descale[index] != 1.0f; i++) out[i] *= (double)d->descale[index];
  return out;
}

double bs_kernel_data_dot(const double *a, const double *b, int64_t n) {
  double sum[4] = {0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; j++) sum[j] += a[i + j] * b[i + j];
  for (; i < n; i++) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ---- rows that are judged ----------------------------------------------------------------------- */

int64_t bs_kernel_data_tile(const bs_kernel_problem *p) {
  const double passes = p->kind == BS_KERNEL_SDPA ? 1.0 : 4.0, heads = (double)(p->B * p->H);
  const double row = passes * (double)p->T * (double)(p->D + p->E);
  int64_t tile = 1;
  while (tile < p->S && heads * (double)p->S * row > MOST_PRODUCTS * (double)tile) tile *= 2;
  return tile;
}

int64_t bs_kernel_data_draw(const bs_kernel_data *d, int64_t base, int64_t rows, int64_t tile, int64_t *out) {
  int64_t n = 0;
  for (int64_t from = 0; from < rows; from += tile) {
    const int64_t count = rows - from < tile ? rows - from : tile;
    uint32_t drawn;
    bs_rng_bits(d->seed, BS_KERNEL_INPUTS + 1, (uint64_t)(base + from), 1, &drawn);
    if (from == 0) out[n++] = 0;
    const int64_t row = from + (int64_t)(drawn % (uint64_t)count);
    if (n == 0 || out[n - 1] != row) out[n++] = row;
    if (from + count == rows && out[n - 1] != rows - 1) out[n++] = rows - 1;
  }
  return n;
}

int32_t bs_kernel_data_room(bs_kernel_data *d, int64_t runs, int64_t width, bs_error *err) {
  const size_t n = (size_t)runs, values = (size_t)runs * (size_t)width;
  d->width = width;
  d->at = calloc(n, sizeof *d->at);
  d->count = calloc(n, sizeof *d->count);
  d->slice = calloc(n, sizeof *d->slice);
  d->value = calloc(values, sizeof *d->value);
  return d->at != NULL && d->count != NULL && d->slice != NULL && d->value != NULL
             ? BS_OK
             : bs_no_memory(err, "a reference of %zu rows", n);
}

/* ---- judging ------------------------------------------------------------------------------------ */

static int32_t refer(bs_kernel_data *d, bs_error *err) {
  if (d->value != NULL) return BS_OK;
  d->n = 0;
  const int32_t rc = d->p.kind == BS_KERNEL_SDPA_DX ? bs_kernel_data_refer_dx(d, err)
                     : !bs_kernel_is_product(&d->p) ? bs_kernel_data_refer_sdpa(d, err)
                                                    : bs_kernel_data_refer_product(d, err);
  if (rc == BS_OK) return rc;
  free(d->at);
  free(d->count);
  free(d->slice);
  free(d->value);
  d->at = d->count = d->slice = NULL;
  d->value = NULL;
  return rc;
}

int32_t bs_kernel_data_predict(bs_kernel_data *d, uint32_t tolerance, double *out_relative, bs_tail *out_tail,
                               bs_error *err) {
  *out_relative = 0.0;
  *out_tail = (bs_tail){0};
  const int32_t rc = refer(d, err);
  if (rc != BS_OK) return rc;
  if (d->p.kind == BS_KERNEL_SDPA)
    return bs_kernel_data_predict_sdpa(d, tolerance, out_relative, out_tail, err);
  *out_relative = d->predicted;
  *out_tail = d->tail;
  return BS_OK;
}

int64_t bs_kernel_data_slices(const bs_kernel_data *d) {
  return d->slices;
}

typedef struct sums {
  double error, reference;
} sums;

static double relative(sums s) {
  return s.reference > 0.0 ? sqrt(s.error / s.reference) : s.error > 0.0 ? INFINITY : sqrt(s.error);
}

static int32_t count_nonfinite(const char *y, uint32_t dtype, int64_t n, double *chunk, int64_t room,
                               uint64_t *out, bs_error *err) {
  const size_t size = BS_DTYPE_BYTES(dtype);
  *out = 0;
  for (int64_t at = 0; at < n; at += room) {
    const int64_t count = n - at < room ? n - at : room;
    const int32_t rc = bs_convert(BS_F64, chunk, dtype, y + (size_t)at * size, (uint64_t)count);
    if (rc != BS_OK)
      return bs_error_set(err, rc, "BS-KERNEL-DTYPE", "no numbers of %s", bs_dtype_name(dtype));
    for (int64_t i = 0; i < count; i++) *out += !isfinite(chunk[i]);
  }
  return BS_OK;
}

int32_t bs_kernel_data_judge(bs_kernel_data *d, const void *y, bs_kernel_numbers *out, bs_error *err) {
  enum { CHUNK = 4096 };
  const uint32_t dtype = bs_kernel_y_dtype(&d->p);
  const size_t size = BS_DTYPE_BYTES(dtype);
  int64_t values = 0;
  memset(out, 0, sizeof *out);
  int32_t rc = refer(d, err);
  if (rc != BS_OK) return rc;
  const int64_t room = d->width > CHUNK ? d->width : CHUNK;
  double *chunk = malloc((size_t)room * sizeof *chunk);
  sums *slices = calloc((size_t)d->slices, sizeof *slices), all = {0};
  rc = chunk == NULL || slices == NULL
           ? bs_no_memory(err, "a judgement")
           : count_nonfinite(y, dtype, bs_kernel_data_outputs(d), chunk, room, &out->nonfinite, err);
  for (int64_t i = 0; rc == BS_OK && i < d->n; i++) {
    sums *slice = &slices[d->slice[i]];
    bs_convert(BS_F64, chunk, dtype, (const char *)y + (size_t)d->at[i] * size, (uint64_t)d->count[i]);
    values += d->count[i];
    for (int64_t e = 0; e < d->count[i]; e++) {
      const double right = d->value[i * d->width + e], error = fabs(chunk[e] - right);
      slice->error += error * error;
      slice->reference += right * right;
      if (error > out->max_error || isnan(error)) out->max_error = error; /* NaN stays: nothing is above it */
    }
  }
  for (int64_t i = 0; rc == BS_OK && i < d->slices; i++) {
    const double own = relative(slices[i]);
    all.error += slices[i].error;
    all.reference += slices[i].reference;
    if (own > out->worst_slice || isnan(own)) out->worst_slice = own;
  }
  if (rc == BS_OK) {
    out->rows = d->n;
    out->values = values;
    out->rms = sqrt(all.reference / (double)values);
    out->relative_rmse = relative(all);
    out->worst = out->rms > 0.0 ? out->max_error / out->rms : out->max_error;
  }
  free(chunk);
  free(slices);
  return rc;
}
