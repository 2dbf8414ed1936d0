/* SPDX-License-Identifier: MIT
 * random.c - the workloads random_normal and uniform: X by its own law, W normal, bias normal of order one,
 * targets by workload.target. Opened through plugin.c. */
#include <float.h>
#include <inttypes.h>

#include "synthetic.h"

/* |z| of the normal transform stays below this (32-bit uniforms: sqrt(64 ln 2) = 6.66). */
static const double MAX_NORMAL = 7.0;

static void set_normal(bs_generated *g, double mean, double std) {
  g->law = BS_GEN_NORMAL;
  g->a = (float)mean;
  g->b = (float)std;
}

static void set_uniform(bs_generated *g, double low, double high) {
  g->law = BS_GEN_UNIFORM;
  g->a = (float)low;
  g->b = (float)high - (float)low;
}

/* Inputs that round to infinity are refused here, not found later as a wrong product. */
static int32_t check_range(uint32_t dtype, const char *what, double largest, bs_error *err) {
  double max = bs_wl_max_finite(dtype);
  if (max == 0.0 || largest <= max) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-WL-RANGE", "%s reaches %g, the model dtype ends at %g", what, largest, max);
  return bs_fail_hint(err, "smaller values, or a wider model.dtype");
}

static double larger_abs(double a, double b) {
  double x = a < 0 ? -a : a, y = b < 0 ? -b : b;
  return x > y ? x : y;
}

static int32_t range_of(const bs_workload_request *r, const char *low_key, const char *high_key,
                        double *out_low, double *out_high, bs_error *err) {
  int32_t rc = bs_wl_f64(r, low_key, -1.0, -FLT_MAX, FLT_MAX, out_low, err);
  if (rc == BS_OK) rc = bs_wl_f64(r, high_key, 1.0, -FLT_MAX, FLT_MAX, out_high, err);
  if (rc != BS_OK) return rc;
  if (*out_low > *out_high || *out_high - *out_low > FLT_MAX) {
    bs_fail(err, BS_CONFIG, "BS-WL-VALUE", "workload.%s=%g and workload.%s=%g are not a range", low_key,
            *out_low, high_key, *out_high);
    return bs_wl_at(err, BS_CONFIG, low_key);
  }
  return BS_OK;
}

static int32_t set_target(bs_synthetic *w, const bs_workload_request *r, const char **out_name,
                          bs_error *err) {
  enum { NONE, ZEROS, NORMAL, UNIFORM };
  static const bs_wl_choice choices[] = {{"zeros", ZEROS},     {"random_normal", NORMAL}, {"normal", NORMAL},
                                         {"gaussian", NORMAL}, {"uniform", UNIFORM},      {"none", NONE}};
  static const char *const names[] = {"no target", "target zeros", "target normal", "target uniform"};
  bs_generated *g = &w->parts[BS_PART_TARGET];
  uint32_t which = NONE;
  double low = 0.0, high = 0.0;
  int32_t rc = bs_wl_choose(r, "target", choices, 6, NONE, &which, err);
  if (rc == BS_OK) rc = range_of(r, "target_low", "target_high", &low, &high, err);
  if (rc != BS_OK) return rc;
  if (which == NORMAL) set_normal(g, 0.0, 1.0);
  if (which == UNIFORM) {
    set_uniform(g, low, high);
    rc = check_range(r->dtype, "the target", larger_abs(low, high), err);
    if (rc != BS_OK) return rc;
  }
  if (which != NONE) w->present |= 1u << BS_PART_TARGET;
  w->info.has_target = which != NONE;
  *out_name = names[which];
  return bs_wl_loss(r, which != NONE, &w->info.loss, err);
}

/* W, bias and targets, and the line of text; X is set already and described by `x`. */
static int32_t set_rest(bs_synthetic *w, const bs_workload_request *r, const char *x, bs_error *err) {
  double mean = 0.0, std = 1.0;
  const char *target = "";
  int32_t rc = bs_wl_f64(r, "weight_mean", 0.0, -FLT_MAX, FLT_MAX, &mean, err);
  if (rc == BS_OK) rc = bs_wl_f64(r, "weight_std", 1.0, 0.0, FLT_MAX, &std, err);
  if (rc == BS_OK) rc = check_range(r->dtype, "W", larger_abs(mean, 0.0) + MAX_NORMAL * std, err);
  if (rc == BS_OK) rc = set_target(w, r, &target, err);
  if (rc != BS_OK) return rc;
  set_normal(&w->parts[BS_PART_W], mean, std);
  set_normal(&w->parts[BS_PART_BIAS], 0.0, 1.0);
  snprintf(w->info.text, sizeof w->info.text,
           "X %s seed %" PRIu64 "; W normal(%g, %g) seed %" PRIu64 "%s; %s", x, r->seed, mean, std,
           r->weight_seed, r->has_bias ? ", bias normal" : "", target);
  return BS_OK;
}

int32_t bs_random_normal_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"mean",        "std",  "target",      "target_low",
                                     "target_high", "loss", "weight_mean", "weight_std"};
  const bs_host *host = state;
  bs_synthetic *w = NULL;
  double mean = 0.0, std = 1.0;
  char x[64];
  int32_t rc = bs_wl_check_keys(request, "random_normal", keys, 8, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "mean", 0.0, -FLT_MAX, FLT_MAX, &mean, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "std", 1.0, 0.0, FLT_MAX, &std, err);
  if (rc == BS_OK) rc = check_range(request->dtype, "X", larger_abs(mean, 0.0) + MAX_NORMAL * std, err);
  if (rc == BS_OK) rc = bs_synthetic_make(host, request, "random_normal", &w, err);
  if (rc != BS_OK) return rc;
  set_normal(&w->parts[BS_PART_X], mean, std);
  snprintf(x, sizeof x, "normal(%g, %g)", mean, std);
  rc = set_rest(w, request, x, err);
  if (rc != BS_OK)
    host->free(host->ctx, w);
  else
    *out = w;
  return rc;
}

int32_t bs_uniform_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"low",         "high", "target",      "target_low",
                                     "target_high", "loss", "weight_mean", "weight_std"};
  const bs_host *host = state;
  bs_synthetic *w = NULL;
  double low = 0.0, high = 0.0;
  char x[64];
  int32_t rc = bs_wl_check_keys(request, "uniform", keys, 8, err);
  if (rc == BS_OK) rc = range_of(request, "low", "high", &low, &high, err);
  if (rc == BS_OK) rc = check_range(request->dtype, "X", larger_abs(low, high), err);
  if (rc == BS_OK) rc = bs_synthetic_make(host, request, "uniform", &w, err);
  if (rc != BS_OK) return rc;
  set_uniform(&w->parts[BS_PART_X], low, high);
  snprintf(x, sizeof x, "uniform[%g, %g)", low, high);
  rc = set_rest(w, request, x, err);
  if (rc != BS_OK)
    host->free(host->ctx, w);
  else
    *out = w;
  return rc;
}
