/* SPDX-License-Identifier: MIT
 * matmul_tile.c - one tile of matmul: blocks of X and of W (transposed) are converted to the compute dtype,
 * so that the inner loop runs over 64 outputs at unit stride and a compiler vectorises it without changing
 * the order of any sum. Padded outputs of a narrow tile are computed on zeros and dropped. */
#include <math.h>

#include "matmul.h"

/* Columns added at a time: a sum stays in a register over STEP products. */
enum { STEP = 4 };

/* sums[t][j] += x[t][k] * w[k][j], k ascending: one rounding a product, one a sum (no contraction). depth is
 * rounded up to whole steps on zeros: a sum that began at +0 is never -0, so adding 0 * 0 leaves its bits. */
static void add_f32(const float *restrict x, const float *restrict w, float *restrict sums, int64_t tokens,
                    int64_t depth) {
  for (int64_t t = 0; t < tokens; t++) {
    const float *restrict value = x + t * REF_DEPTH;
    float *restrict sum = sums + t * REF_OUTPUTS;
    for (int64_t k = 0; k < depth; k += STEP) {
      const float v0 = value[k], v1 = value[k + 1], v2 = value[k + 2], v3 = value[k + 3];
      const float *restrict row = w + k * REF_OUTPUTS;
      for (int j = 0; j < REF_OUTPUTS; j++) {
        float s = sum[j] + v0 * row[j];
        s += v1 * row[REF_OUTPUTS + j];
        s += v2 * row[2 * REF_OUTPUTS + j];
        s += v3 * row[3 * REF_OUTPUTS + j];
        sum[j] = s;
      }
    }
  }
}

static void add_f64(const double *restrict x, const double *restrict w, double *restrict sums, int64_t tokens,
                    int64_t depth) {
  for (int64_t t = 0; t < tokens; t++) {
    const double *restrict value = x + t * REF_DEPTH;
    double *restrict sum = sums + t * REF_OUTPUTS;
    for (int64_t k = 0; k < depth; k += STEP) {
      const double v0 = value[k], v1 = value[k + 1], v2 = value[k + 2], v3 = value[k + 3];
      const double *restrict row = w + k * REF_OUTPUTS;
      for (int j = 0; j < REF_OUTPUTS; j++) {
        double s = sum[j] + v0 * row[j];
        s += v1 * row[REF_OUTPUTS + j];
        s += v2 * row[2 * REF_OUTPUTS + j];
        s += v3 * row[3 * REF_OUTPUTS + j];
        sum[j] = s;
      }
    }
  }
}

/* Unsigned, so that a sum wraps modulo 2^64 without undefined behaviour. */
static void add_i64(const uint64_t *restrict x, const uint64_t *restrict w, uint64_t *restrict sums,
                    int64_t tokens, int64_t depth) {
  for (int64_t t = 0; t < tokens; t++) {
    const uint64_t *restrict value = x + t * REF_DEPTH;
    uint64_t *restrict sum = sums + t * REF_OUTPUTS;
    for (int64_t k = 0; k < depth; k += STEP) {
      const uint64_t v0 = value[k], v1 = value[k + 1], v2 = value[k + 2], v3 = value[k + 3];
      const uint64_t *restrict row = w + k * REF_OUTPUTS;
      for (int j = 0; j < REF_OUTPUTS; j++) {
        uint64_t s = sum[j] + v0 * row[j];
        s += v1 * row[REF_OUTPUTS + j];
        s += v2 * row[2 * REF_OUTPUTS + j];
        s += v3 * row[3 * REF_OUTPUTS + j];
        sum[j] = s;
      }
    }
  }
}

/* w[k][j] = W[n0+j][k0+k] in the compute dtype. */
static int32_t load_weights(const ref_matmul_job *job, int64_t n0, int64_t outputs, int64_t k0, int64_t depth,
                            unsigned char *w) {
  const ref_matmul_plan *plan = job->plan;
  const ref_packed *packed = plan->weight;
  const ref_view view = {
      packed->data, packed->dtype, packed->size, packed->rows, packed->cols, packed->cols, 1};
  _Alignas(64) unsigned char row[REF_DEPTH * 8];
  for (int64_t j = 0; j < outputs; j++) {
    const int32_t rc = ref_load(plan->host, &view, n0 + j, NULL, k0, depth, plan->compute, row);
    if (rc != BS_OK) return rc;
    if (plan->compute == BS_F32) {
      for (int64_t k = 0; k < depth; k++) memcpy(w + (k * REF_OUTPUTS + j) * 4, row + k * 4, 4);
    } else {
      for (int64_t k = 0; k < depth; k++) memcpy(w + (k * REF_OUTPUTS + j) * 8, row + k * 8, 8);
    }
  }
  return BS_OK;
}

/* act(sums + bias) + residual for one row, each step rounded to the compute dtype. */
static void finish_f32(uint32_t activation, float *sums, const float *bias, const float *residual,
                       int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    float v = bias != NULL ? sums[j] + bias[j] : sums[j];
    if (activation != BS_ACT_NONE) v = (float)ref_activation(activation, (double)v);
    sums[j] = residual != NULL ? v + residual[j] : v;
  }
}

static void finish_f64(uint32_t activation, double *sums, const double *bias, const double *residual,
                       int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    const double v = ref_activation(activation, bias != NULL ? sums[j] + bias[j] : sums[j]);
    sums[j] = residual != NULL ? v + residual[j] : v;
  }
}

static void finish_i64(uint32_t activation, uint64_t *sums, const uint64_t *bias, const uint64_t *residual,
                       int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    uint64_t v = bias != NULL ? sums[j] + bias[j] : sums[j];
    if (activation == BS_ACT_RELU && v >> 63) v = 0;
    sums[j] = residual != NULL ? v + residual[j] : v;
  }
}

/* i32 outputs keep the low 32 bits, as sums in 32 bits would: the order of a sum never matters. */
static int32_t store_i32(const ref_matmul_job *job, int64_t t, int64_t n0, int64_t n, const uint64_t *sums) {
  uint32_t low[REF_OUTPUTS];
  for (int64_t j = 0; j < n; j++) low[j] = (uint32_t)sums[j];
  return ref_store(job->plan->host, &job->y, t, n0, n, BS_I32, low);
}

int32_t ref_matmul_finish(const ref_matmul_job *job, unsigned char *sums, const unsigned char *bias,
                          int64_t t, int64_t n0, int64_t n) {
  const ref_matmul_plan *plan = job->plan;
  _Alignas(64) unsigned char buffer[REF_OUTPUTS * 8];
  unsigned char *residual = NULL;
  if (job->residual.data != NULL) {
    const int32_t rc = ref_load(plan->host, &job->residual, t, NULL, n0, n, plan->compute, buffer);
    if (rc != BS_OK) return rc;
    residual = buffer;
  }
  if (plan->compute == BS_F32) {
    finish_f32(plan->activation, (float *)(void *)sums, (const float *)(const void *)bias,
               (const float *)(void *)residual, n);
  } else if (plan->compute == BS_F64) {
    finish_f64(plan->activation, (double *)(void *)sums, (const double *)(const void *)bias,
               (const double *)(void *)residual, n);
  } else {
    uint64_t *row = (uint64_t *)(void *)sums;
    finish_i64(plan->activation, row, (const uint64_t *)(const void *)bias,
               (const uint64_t *)(void *)residual, n);
    if (job->y.dtype == BS_I32) return store_i32(job, t, n0, n, row);
  }
  return ref_store(plan->host, &job->y, t, n0, n, plan->compute, sums);
}

int32_t ref_matmul_tile(const ref_matmul_job *job, unsigned char *workspace, int64_t t0, int64_t tokens,
                        int64_t n0, int64_t outputs) {
  const ref_matmul_plan *plan = job->plan;
  const int64_t size = BS_DTYPE_BYTES(plan->compute), depth_all = plan->weight->cols;
  const ref_columns *columns = plan->gathers ? &plan->columns : NULL;
  unsigned char *x = workspace;
  unsigned char *w = x + (int64_t)REF_TOKENS * REF_DEPTH * 8;
  unsigned char *sums = w + (int64_t)REF_DEPTH * REF_OUTPUTS * 8;
  _Alignas(64) unsigned char bias[REF_OUTPUTS * 8];
  int32_t rc = BS_OK;
  memset(sums, 0, (size_t)(tokens * REF_OUTPUTS * size));
  memset(w, 0, (size_t)(REF_DEPTH * REF_OUTPUTS * size));
  for (int64_t k0 = 0; k0 < depth_all; k0 += REF_DEPTH) {
    const int64_t depth = depth_all - k0 < REF_DEPTH ? depth_all - k0 : REF_DEPTH;
    const int64_t padded = (depth + STEP - 1) / STEP * STEP;
    if (padded > depth) {
      memset(w + depth * REF_OUTPUTS * size, 0, (size_t)((padded - depth) * REF_OUTPUTS * size));
      for (int64_t t = 0; t < tokens; t++)
        memset(x + (t * REF_DEPTH + depth) * size, 0, (size_t)((padded - depth) * size));
    }
    rc = load_weights(job, n0, outputs, k0, depth, w);
    for (int64_t t = 0; t < tokens && rc == BS_OK; t++)
      rc = ref_load(plan->host, &job->x, t0 + t, columns, k0, depth, plan->compute, x + t * REF_DEPTH * size);
    if (rc != BS_OK) return rc;
    if (plan->compute == BS_F32) {
      add_f32((const float *)(void *)x, (const float *)(void *)w, (float *)(void *)sums, tokens, padded);
    } else if (plan->compute == BS_F64) {
      add_f64((const double *)(void *)x, (const double *)(void *)w, (double *)(void *)sums, tokens, padded);
    } else {
      add_i64((const uint64_t *)(void *)x, (const uint64_t *)(void *)w, (uint64_t *)(void *)sums, tokens,
              padded);
    }
  }
  const int with_bias = job->bias.data != NULL;
  if (with_bias) rc = ref_load(plan->host, &job->bias, 0, NULL, n0, outputs, plan->compute, bias);
  for (int64_t t = 0; t < tokens && rc == BS_OK; t++)
    rc = ref_matmul_finish(job, sums + t * REF_OUTPUTS * size, with_bias ? bias : NULL, t0 + t, n0, outputs);
  return rc;
}
