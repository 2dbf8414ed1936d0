/* SPDX-License-Identifier: MIT
 * random.c - the workloads random_normal and uniform: X by its own law; W, bias and targets as layer.h makes
 * them. Opened through plugin.c. */
#include <float.h>
#include <math.h>

#include "synthetic.h"

int32_t bs_random_normal_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"mean", "std", BS_WL_LAYER_KEYS};
  const bs_host *host = state;
  bs_wl_layer *w = NULL;
  double mean = 0.0, std = 1.0;
  char x[64];
  int32_t rc = bs_wl_check_keys(request, "random_normal", keys, 2 + BS_WL_LAYER_N_KEYS, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "mean", 0.0, -FLT_MAX, FLT_MAX, &mean, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "std", 1.0, 0.0, FLT_MAX, &std, err);
  if (rc == BS_OK) rc = bs_wl_check_range(request->dtype, "X", fabs(mean) + BS_WL_MAX_NORMAL * std, err);
  if (rc == BS_OK) rc = bs_wl_layer_make(host, request, "random_normal", sizeof *w, &w, err);
  if (rc != BS_OK) return rc;
  bs_wl_set_normal(&w->parts[BS_PART_X], mean, std);
  snprintf(x, sizeof x, "normal(%g, %g)", mean, std);
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
