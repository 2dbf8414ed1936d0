/* SPDX-License-Identifier: MIT
 * random.c - the workloads random_normal and uniform: X by its own law; W, bias and targets as layer.h makes
 * them. Opened through plugin.c. */
#include <float.h>
#include <math.h>

#include "synthetic.h"

/* One column in each of n equal runs of K, at random in it: exactly n, and no two alike. */
static void place_outliers(const bs_workload_request *r, const bs_host *host, uint32_t n, uint32_t *out) {
  for (uint32_t i = 0; i < n; i++) {
    const int64_t begin = (int64_t)i * r->K / n, width = ((int64_t)i + 1) * r->K / n - begin;
    uint32_t bits = 0;
    host->rng_bits(r->seed, BS_STREAM_X, (UINT64_C(1) << 62) + i, 1, &bits); /* far beyond X's own numbers */
    out[i] = (uint32_t)(begin + (int64_t)(((uint64_t)bits * (uint64_t)width) >> 32));
  }
}

int32_t bs_random_normal_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"mean", "std", "outliers", "outlier_scale", BS_WL_LAYER_KEYS};
  const bs_host *host = state;
  bs_wl_layer *w = NULL;
  double mean = 0.0, std = 1.0, share = 0.0, scale = 20.0;
  char x[96];
  int32_t rc = bs_wl_check_keys(request, "random_normal", keys, 4 + BS_WL_LAYER_N_KEYS, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "mean", 0.0, -FLT_MAX, FLT_MAX, &mean, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "std", 1.0, 0.0, FLT_MAX, &std, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "outliers", 0.0, 0.0, 1.0, &share, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "outlier_scale", 20.0, 0.0, FLT_MAX, &scale, err);
  const uint32_t n =
      request->K > 0 && request->K <= (int64_t)UINT32_MAX ? (uint32_t)(share * (double)request->K + 0.5) : 0;
  if (rc == BS_OK)
    rc = bs_wl_check_range(request->dtype, "X",
                           (fabs(mean) + BS_WL_MAX_NORMAL * std) * (n > 0 && scale > 1.0 ? scale : 1.0), err);
  if (rc == BS_OK)
    rc = bs_wl_layer_make(host, request, "random_normal", sizeof *w + (size_t)n * sizeof(uint32_t), &w, err);
  if (rc != BS_OK) return rc;
  bs_wl_set_normal(&w->parts[BS_PART_X], mean, std);
  snprintf(x, sizeof x, "normal(%g, %g)", mean, std);
  if (n > 0) {
    bs_generated *part = &w->parts[BS_PART_X];
    place_outliers(request, host, n, (uint32_t *)(void *)(w + 1));
    part->outliers = (const uint32_t *)(const void *)(w + 1);
    part->n_outliers = n;
    part->outlier_scale = (float)scale;
    snprintf(x, sizeof x, "normal(%g, %g), %u of %lld columns times %g", mean, std, n, (long long)request->K,
             scale);
  }
  rc = bs_wl_layer_rest(w, request, x, err);
  if (rc != BS_OK)
    host->free(host->ctx, w);
  else
    *out = w;
  return rc;
}

int32_t bs_uniform_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"low", "high", BS_WL_LAYER_KEYS};
  const bs_host *host = state;
  bs_wl_layer *w = NULL;
  double low = 0.0, high = 0.0;
  char x[64];
  int32_t rc = bs_wl_check_keys(request, "uniform", keys, 2 + BS_WL_LAYER_N_KEYS, err);
  if (rc == BS_OK) rc = bs_wl_range(request, "low", "high", &low, &high, err);
  if (rc == BS_OK) rc = bs_wl_check_range(request->dtype, "X", fmax(fabs(low), fabs(high)), err);
  if (rc == BS_OK) rc = bs_wl_layer_make(host, request, "uniform", sizeof *w, &w, err);
  if (rc != BS_OK) return rc;
  bs_wl_set_uniform(&w->parts[BS_PART_X], low, high);
  snprintf(x, sizeof x, "uniform[%g, %g)", low, high);
  rc = bs_wl_layer_rest(w, request, x, err);
  if (rc != BS_OK)
    host->free(host->ctx, w);
  else
    *out = w;
  return rc;
}
