/* SPDX-License-Identifier: MIT
 * integer.c - the workload integer (gate T5): X and W in {-1, 0, 1} so sparse that every output, and every
 * partial sum of any split, is an integer the model dtype holds exactly. Opened through plugin.c. */
#include <inttypes.h>
#include <math.h>

#include "synthetic.h"

/* Integers up to this are exact in the dtype; larger formats are not asked for more than bf16 holds. */
static double exact_limit(uint32_t dtype) {
  switch (dtype) {
    case BS_F8E5M2:
      return 8.0;
    case BS_F8E4M3:
      return 16.0;
    case BS_I8:
      return 127.0;
    default:
      return 256.0;
  }
}

/* Chooses the density. An output is a sum of K terms of variance d^2. The rule is K d^2 <= 1800 at a limit of
 * 256 (six standard deviations); the default keeps eight in addition to the bias, so that it holds for any
 * number of outputs. */
static int32_t choose_density(const bs_workload_request *r, double limit, double bound, double *out_density,
                              bs_error *err) {
  double k = (double)r->K, sigma = (limit - bound) / 8.0;
  double automatic = k > sigma * sigma ? sigma / sqrt(k) : 1.0;
  double most = 1800.0 * (limit / 256.0) * (limit / 256.0);
  const char *text = bs_wl_text(r, "density");
  *out_density = automatic;
  if (text == NULL || strcmp(text, "auto") == 0) return BS_OK;
  int32_t rc = bs_wl_f64(r, "density", automatic, 1e-9, 1.0, out_density, err);
  if (rc != BS_OK) return rc;
  /* K + bound <= limit can never overflow, whatever the density. */
  if (k * *out_density * *out_density > most && k + bound > limit) {
    bs_fail(err, BS_CONFIG, "BS-WL-DENSITY",
            "K d^2 = %g with K=%" PRId64 " and density %g is above %g: sums would leave the exact integers",
            k * *out_density * *out_density, r->K, *out_density, most);
    bs_fail_hint(err, "density at most %g; auto takes %g", sqrt(most / k), automatic);
    return bs_wl_at(err, BS_CONFIG, "density");
  }
  return BS_OK;
}

int32_t bs_integer_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"density"};
  const bs_host *host = state;
  bs_wl_layer *w = NULL;
  double limit = exact_limit(request->dtype), density = 0.0;
  uint32_t bound = limit < 100.0 ? 1u : 2u;
  int32_t rc = bs_wl_check_keys(request, "integer", keys, 1, err);
  if (rc == BS_OK) rc = bs_wl_layer_make(host, request, "integer", sizeof *w, &w, err);
  if (rc != BS_OK) return rc;
  rc = choose_density(request, limit, request->has_bias ? bound : 0.0, &density, err);
  if (rc != BS_OK) {
    host->free(host->ctx, w);
    return rc;
  }
  for (uint32_t part = BS_PART_X; part <= BS_PART_W; part++) {
    w->parts[part].by.law = BS_LAW_TERNARY;
    w->parts[part].by.threshold = (uint32_t)(density * 2147483648.0);
  }
  w->parts[BS_PART_BIAS].by.law = BS_LAW_INTEGER;
  w->parts[BS_PART_BIAS].by.bound = bound;
  snprintf(w->info.text, sizeof w->info.text,
           "X and W in {-1,0,1}, density %.4g, seeds %" PRIu64 " and %" PRIu64 "%s", density, request->seed,
           request->weight_seed, request->has_bias ? ", integer bias" : "");
  *out = w;
  return BS_OK;
}
