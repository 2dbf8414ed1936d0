/* SPDX-License-Identifier: MIT
 * layer.c - sizes, W, bias, targets, loss and text of a generated workload (layer.h). */
#include "layer.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

static int sizes_fit(int64_t a, int64_t b) {
  int64_t elements, bytes;
  return !__builtin_mul_overflow(a, b, &elements) && !__builtin_mul_overflow(elements, (int64_t)8, &bytes);
}

static int32_t check_sizes(const bs_workload_request *r, const char *name, bs_error *err) {
  const char *missing = r->B <= 0 ? "B" : r->N <= 0 ? "N" : r->K <= 0 ? "K" : NULL;
  if (missing != NULL) {
    bs_fail(err, BS_CONFIG, "BS-WL-SIZE",
            "workload '%s' has no sizes of its own: model.%s is missing or not positive (B=%" PRId64
            " N=%" PRId64 " K=%" PRId64 ")",
            name, missing, r->B, r->N, r->K);
    return bs_fail_hint(err, "--set model.%s=...", missing);
  }
  if (!sizes_fit(r->B, r->K) || !sizes_fit(r->N, r->K) || !sizes_fit(r->B, r->N))
    return bs_fail(err, BS_CONFIG, "BS-WL-SIZE",
                   "B=%" PRId64 " N=%" PRId64 " K=%" PRId64 " make matrices that cannot be addressed", r->B,
                   r->N, r->K);
  return BS_OK;
}

int32_t bs_wl_layer_make(const bs_host *host, const bs_workload_request *r, const char *name, size_t bytes,
                         bs_wl_layer **out, bs_error *err) {
  int32_t rc = check_sizes(r, name, err);
  if (rc != BS_OK) return rc;
  bs_wl_layer *w = host->alloc(host->ctx, bytes, 64);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %zu bytes", bytes);
  w->host = host;
  w->present = 1u << BS_PART_X | 1u << BS_PART_W | (r->has_bias ? 1u << BS_PART_BIAS : 0u);
  bs_generated_make(&w->parts[BS_PART_X], host, r->B, r->K, r->seed, BS_STREAM_X, r->dtype);
  bs_generated_make(&w->parts[BS_PART_W], host, r->N, r->K, r->weight_seed, BS_STREAM_W, r->dtype);
  bs_generated_make(&w->parts[BS_PART_BIAS], host, 1, r->N, r->weight_seed, BS_STREAM_BIAS, r->dtype);
  bs_generated_make(&w->parts[BS_PART_TARGET], host, r->B, r->N, r->seed, BS_STREAM_TARGET, r->dtype);
  w->info.struct_size = (uint32_t)sizeof w->info;
  w->info.loss = BS_LOSS_SUM;
  w->info.B = r->B;
  w->info.N = r->N;
  w->info.K = r->K;
  w->info.has_bias = r->has_bias != 0;
  *out = w;
  return BS_OK;
}

void bs_wl_set_normal(bs_generated *g, double mean, double std) {
  g->by.law = BS_LAW_NORMAL;
  g->by.a = (float)mean;
  g->by.b = (float)std;
}

void bs_wl_set_uniform(bs_generated *g, double low, double high) {
  g->by.law = BS_LAW_UNIFORM;
  g->by.a = (float)low;
  g->by.b = (float)high - (float)low;
}

int32_t bs_wl_check_range(uint32_t dtype, const char *what, double largest, bs_error *err) {
  double max = bs_wl_max_finite(dtype);
  if (max == 0.0 || largest <= max) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-WL-RANGE", "%s reaches %g, the model dtype ends at %g", what, largest, max);
  return bs_fail_hint(err, "smaller values, or a wider model.dtype");
}

int32_t bs_wl_range(const bs_workload_request *r, const char *low_key, const char *high_key, double *out_low,
                    double *out_high, bs_error *err) {
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

static int32_t set_target(bs_wl_layer *w, const bs_workload_request *r, const char **out_name,
                          bs_error *err) {
  enum { NONE, ZEROS, NORMAL, UNIFORM };
  static const bs_wl_choice choices[] = {{"zeros", ZEROS},     {"random_normal", NORMAL}, {"normal", NORMAL},
                                         {"gaussian", NORMAL}, {"uniform", UNIFORM},      {"none", NONE}};
  static const char *const names[] = {"no target", "target zeros", "target normal", "target uniform"};
  bs_generated *g = &w->parts[BS_PART_TARGET];
  uint32_t which = NONE;
  double low = 0.0, high = 0.0;
  int32_t rc = bs_wl_choose(r, "target", choices, 6, NONE, &which, err);
  if (rc == BS_OK) rc = bs_wl_range(r, "target_low", "target_high", &low, &high, err);
  if (rc != BS_OK) return rc;
  if (which == NORMAL) bs_wl_set_normal(g, 0.0, 1.0);
  if (which == UNIFORM) {
    bs_wl_set_uniform(g, low, high);
    rc = bs_wl_check_range(r->dtype, "the target", fmax(fabs(low), fabs(high)), err);
    if (rc != BS_OK) return rc;
  }
  if (which != NONE) w->present |= 1u << BS_PART_TARGET;
  w->info.has_target = which != NONE;
  *out_name = names[which];
  return bs_wl_loss(r, which != NONE, &w->info.loss, err);
}

/* W, bias and targets, and the line of text; X is set already and described by `x`. */
int32_t bs_wl_layer_rest(bs_wl_layer *w, const bs_workload_request *r, const char *x, bs_error *err) {
  double mean = 0.0, std = 1.0;
  const char *target = "";
  int32_t rc = bs_wl_f64(r, "weight_mean", 0.0, -FLT_MAX, FLT_MAX, &mean, err);
  if (rc == BS_OK) rc = bs_wl_f64(r, "weight_std", 1.0, 0.0, FLT_MAX, &std, err);
  if (rc == BS_OK) rc = bs_wl_check_range(r->dtype, "W", fabs(mean) + BS_WL_MAX_NORMAL * std, err);
  if (rc == BS_OK) rc = set_target(w, r, &target, err);
  if (rc != BS_OK) return rc;
  bs_wl_set_normal(&w->parts[BS_PART_W], mean, std);
  bs_wl_set_normal(&w->parts[BS_PART_BIAS], 0.0, 1.0);
  snprintf(w->info.text, sizeof w->info.text,
           "X %s seed %" PRIu64 "; W normal(%g, %g) seed %" PRIu64 "%s; %s", x, r->seed, mean, std,
           r->weight_seed, r->has_bias ? ", bias normal" : "", target);
  return BS_OK;
}

int32_t bs_wl_layer_info(void *workload, bs_workload_info *out_info, bs_error *err) {
  const bs_wl_layer *w = workload;
  (void)err;
  bs_out_copy(out_info, &w->info, sizeof w->info);
  return BS_OK;
}

int32_t bs_wl_layer_source(void *workload, uint32_t part, bs_source *out_source, bs_error *err) {
  bs_wl_layer *w = workload;
  if (part > BS_PART_TARGET || !(w->present & 1u << part))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-WL-PART", "this workload has no part %" PRIu32, part);
  bs_generated_source(&w->parts[part], out_source);
  return BS_OK;
}
