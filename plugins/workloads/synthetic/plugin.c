/* SPDX-License-Identifier: MIT
 * plugin.c - the plugin "synthetic": workloads random_normal, uniform, activation_like and integer. */
#include <inttypes.h>

#include "synthetic.h"

static void close_workload(void *workload) {
  bs_wl_layer *w = workload;
  w->host->free(w->host->ctx, w);
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  static const bs_workload random_normal = {
      (uint32_t)sizeof(bs_workload),
      0,
      "random_normal",
      "gaussian,normal,fixed_seed",
      "X normal(mean, std), W and bias normal",
      "mean=0: mean of X\nstd=1: standard deviation of X\n"
      "outliers=0: share of X's columns that are larger than the others (0.005: one of 200)\n"
      "outlier_scale=20: so many times larger\n" BS_WL_LAYER_DOCS,
      bs_random_normal_open,
      bs_wl_layer_info,
      bs_wl_layer_source,
      close_workload};
  static const bs_workload uniform = {(uint32_t)sizeof(bs_workload),
                                      0,
                                      "uniform",
                                      NULL,
                                      "X uniform in [low, high), W and bias normal",
                                      "low=-1: lower end of X\nhigh=1: upper end of X\n" BS_WL_LAYER_DOCS,
                                      bs_uniform_open,
                                      bs_wl_layer_info,
                                      bs_wl_layer_source,
                                      close_workload};
  static const bs_workload activation = {(uint32_t)sizeof(bs_workload),
                                         0,
                                         "activation_like",
                                         NULL,
                                         "X normal times scale, clipped; W and bias normal",
                                         "scale=1: factor of the normal values\n"
                                         "clip=2: X stays between -clip and clip\n" BS_WL_LAYER_DOCS,
                                         bs_activation_open,
                                         bs_wl_layer_info,
                                         bs_wl_layer_source,
                                         close_workload};
  static const bs_workload integer = {
      (uint32_t)sizeof(bs_workload),
      0,
      "integer",
      "small_int",
      "X and W in {-1, 0, 1}, small integer bias: every sum is exact (gate T5)",
      "density=auto: share of non-zero entries of X and of W\n",
      bs_integer_open,
      bs_wl_layer_info,
      bs_wl_layer_source,
      close_workload};
  const bs_workload *all[] = {&random_normal, &uniform, &activation, &integer};
  BS_HERE_LOC(here);
  void *state = (void *)(uintptr_t)host; /* the table outlives the plugin */
  *out_state = state;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    int32_t rc = host->register_thing(host->ctx, self, BS_KIND_WORKLOAD, all[i], state, &here, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

BS_PLUGIN_DEFINE("synthetic", BS_PLUGIN_VERSION, "generated workloads", 1u << BS_KIND_WORKLOAD,
                 "workload:random_normal\nworkload:gaussian=random_normal\nworkload:normal=random_normal\n"
                 "workload:fixed_seed=random_normal\nworkload:uniform\nworkload:activation_like\n"
                 "workload:integer\n"
                 "workload:small_int=integer\n",
                 activate, NULL)
