/* SPDX-License-Identifier: MIT
 * activation.c - the workload activation_like: X = normal * scale, held between -clip and clip. Opened
 * through plugin.c. */
#include <float.h>
#include <math.h>

#include "synthetic.h"

int32_t bs_activation_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  static const char *const keys[] = {"scale", "clip", BS_WL_LAYER_KEYS};
  const bs_host *host = state;
  bs_wl_layer *w = NULL;
  double scale = 1.0, clip = 2.0;
  char x[64];
  int32_t rc = bs_wl_check_keys(request, "activation_like", keys, 2 + BS_WL_LAYER_N_KEYS, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "scale", 1.0, -FLT_MAX, FLT_MAX, &scale, err);
  if (rc == BS_OK) rc = bs_wl_f64(request, "clip", 2.0, 0.0, FLT_MAX, &clip, err);
  if (rc == BS_OK)
    rc = bs_wl_check_range(request->dtype, "X", fmin(clip, BS_WL_MAX_NORMAL * fabs(scale)), err);
  if (rc == BS_OK) rc = bs_wl_layer_make(host, request, "activation_like", sizeof *w, &w, err);
  if (rc != BS_OK) return rc;
  w->parts[BS_PART_X].by.law = BS_LAW_CLIPPED;
  w->parts[BS_PART_X].by.a = (float)clip;
  w->parts[BS_PART_X].by.b = (float)scale;
  snprintf(x, sizeof x, "normal * %g in [-%g, %g]", scale, clip, clip);
  rc = bs_wl_layer_rest(w, request, x, err);
  if (rc != BS_OK)
    host->free(host->ctx, w);
  else
    *out = w;
  return rc;
}
