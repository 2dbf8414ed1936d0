/* SPDX-License-Identifier: MIT
 *
 * weights.c - makes, updates and reads the weight of the "dnnl" matmul. The team reads the source straight
 * into place: there is no second copy. */
#include "weights.h"

#include <stdlib.h>

#include "../half.h"
#include "../ops/pull.h"

#define ROWS 64 /* rows of one read */

typedef struct rows_job {
  const cpu_rows *w;
  const bs_source *source;
  const bs_partition *partition;
  const bs_tensor *delta;
  bs_error *errors; /* one a member */
} rows_job;

static void make_share(void *arg, uint32_t member, uint32_t width) {
  rows_job *job = arg;
  const cpu_rows *w = job->w;
  int64_t begin, end;
  cpu_share(w->N, member, width, &begin, &end);
  for (int64_t n = begin; n < end; n += ROWS) {
    const int64_t count = end - n < ROWS ? end - n : ROWS;
    const int32_t rc =
        job->source->read(job->source->ctx, n, count, job->partition, w->dtype,
                          (uint8_t *)w->data + (size_t)(n * w->K) * w->size, w->K, &job->errors[member]);
    if (rc != BS_OK) {
      job->errors[member].code = rc;
      return;
    }
  }
}

static int32_t make_all(cpu_rows *w, const bs_source *source, const bs_partition *partition, bs_error *err) {
  rows_job job = {w, source, partition, NULL, cpu_errors_make(w->exec)};
  if (job.errors == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for errors");
  const int32_t rc = cpu_team_errors(w->exec, make_share, &job, job.errors, err);
  free(job.errors);
  return rc;
}

int32_t cpu_rows_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                      void **out_packed, uint64_t *out_bytes, bs_error *err) {
  uint64_t elements = 0, bytes = 0;
  if (!cpu_is_matmul_type(query->weight_dtype))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "no packed weights of dtype 0x%04x",
                   query->weight_dtype);
  cpu_rows *w = calloc(1, sizeof *w);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight");
  w->exec = exec;
  w->state = state;
  w->N = weights->rows;
  w->K = query->partition != NULL ? query->partition->count : weights->cols;
  w->dtype = query->weight_dtype;
  w->size = BS_DTYPE_BYTES(w->dtype);
  int32_t rc = BS_OK;
  if (__builtin_mul_overflow((uint64_t)w->N, (uint64_t)w->K, &elements) ||
      __builtin_mul_overflow(elements, (uint64_t)w->size, &bytes) || bytes > INT64_MAX) {
    rc = bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "a weight of %lld x %lld is more than can be addressed",
                 (long long)w->N, (long long)w->K);
  } else if (bytes > 0) {
    w->data = exec->alloc(exec->ctx, bytes);
    if (w->data == NULL)
      rc = bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight of %llu bytes",
                   (unsigned long long)bytes);
    if (rc == BS_OK) rc = make_all(w, weights, query->partition, err);
  }
  if (rc != BS_OK) {
    cpu_rows_free(w);
    return rc;
  }
  *out_packed = w;
  *out_bytes = bytes;
  return BS_OK;
}

void cpu_rows_free(void *packed) {
  cpu_rows *w = packed;
  if (w == NULL) return;
  if (w->data != NULL) w->exec->free(w->exec->ctx, w->data);
  free(w);
}

static void update_share(void *arg, uint32_t member, uint32_t width) {
  const rows_job *job = arg;
  const cpu_rows *w = job->w;
  const int64_t step = w->K > 1 ? job->delta->strides[1] : 1;
  int64_t begin, end;
  cpu_share(w->N, member, width, &begin, &end);
  for (int64_t n = begin; n < end; n++) {
    const float *d = (const float *)job->delta->data + n * job->delta->strides[0];
    float *f = (float *)w->data + n * w->K;
    uint16_t *h = (uint16_t *)w->data + n * w->K;
    if (w->dtype == BS_F32)
      for (int64_t k = 0; k < w->K; k++) f[k] += d[k * step];
    else if (w->dtype == BS_BF16)
      for (int64_t k = 0; k < w->K; k++) h[k] = cpu_bf16_store(cpu_bf16_load(h[k]) + d[k * step]);
    else
      for (int64_t k = 0; k < w->K; k++) h[k] = cpu_f16_store(cpu_f16_load(h[k]) + d[k * step]);
  }
}

int32_t cpu_rows_update(void *packed, const bs_tensor *delta, bs_error *err) {
  const cpu_rows *w = packed;
  rows_job job = {w, NULL, NULL, delta, NULL};
  if (delta->dtype != BS_F32 || delta->rank != 2 || delta->dims[0] != w->N || delta->dims[1] != w->K)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-UPDATE", "delta must be f32 [%lld,%lld]",
                   (long long)w->N, (long long)w->K);
  if (w->data == NULL) return BS_OK;
  return cpu_team(w->exec, 0, update_share, &job, err);
}

int32_t cpu_rows_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const cpu_rows *w = packed;
  if (out->rank != 2 || out->dims[1] != w->K || row < 0 || out->dims[0] < 0 || row > w->N - out->dims[0] ||
      (w->K > 1 && out->strides[1] != 1))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-READ",
                   "rows %lld.. of a packed weight [%lld,%lld] need an out of as many columns, side by side",
                   (long long)row, (long long)w->N, (long long)w->K);
  const size_t size = BS_DTYPE_BYTES(out->dtype);
  for (int64_t i = 0; i < out->dims[0]; i++)
    if (w->state->host->convert(out->dtype, (uint8_t *)out->data + (size_t)(i * out->strides[0]) * size,
                                w->dtype, (const uint8_t *)w->data + (size_t)((row + i) * w->K) * w->size,
                                (uint64_t)w->K) != BS_OK)
      return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-READ", "cannot read weights as dtype 0x%04x", out->dtype);
  return BS_OK;
}
