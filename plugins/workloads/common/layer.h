/* SPDX-License-Identifier: MIT
 * layer.h - the parts of every generated workload except the distribution of its X: sizes, W, bias, targets,
 * loss and the text. The plugins synthetic and models use it. Thread-safe once made. */
#ifndef BS_WORKLOADS_COMMON_LAYER_H
#define BS_WORKLOADS_COMMON_LAYER_H
#include "generated.h"
#include "options.h"

/* The keys that bs_wl_layer_rest reads, for a workload's list of known keys and for its option_docs. */
#define BS_WL_LAYER_KEYS "target", "target_low", "target_high", "loss", "weight_mean", "weight_std"
enum { BS_WL_LAYER_N_KEYS = 6 };
#define BS_WL_LAYER_DOCS                                                                       \
  "target=none: none, zeros, random_normal or uniform targets T [B,N]\n"                       \
  "target_low=-1: lower end of uniform targets\ntarget_high=1: upper end of uniform targets\n" \
  "loss=sum: sum, mse_zero (mse) or mse_target\n"                                              \
  "weight_mean=0: mean of W\nweight_std=1: standard deviation of W\n"

/* |z| of the normal transform stays below this (32-bit uniforms: sqrt(64 ln 2) = 6.66). */
#define BS_WL_MAX_NORMAL 7.0

typedef struct bs_wl_layer {
  const bs_host *host;
  uint32_t present; /* bit p: part p (enum bs_workload_part) exists */
  uint32_t reserved;
  bs_generated parts[4];
  bs_workload_info info;
} bs_wl_layer;

/* A zero-filled struct of `bytes` that begins with a bs_wl_layer, for the request's sizes (checked: all
 * given, products in range; else BS-WL-SIZE): parts with shape, stream and seed but law ZERO. Freed by
 * host->free. */
int32_t bs_wl_layer_make(const bs_host *host, const bs_workload_request *request, const char *name,
                         size_t bytes, bs_wl_layer **out_layer, bs_error *err);
/* The laws of W, bias and targets from the request's options, the loss, and the text; `x` describes X. */
int32_t bs_wl_layer_rest(bs_wl_layer *layer, const bs_workload_request *request, const char *x,
                         bs_error *err);
/* The vtable slots info and source for a workload that begins with a bs_wl_layer. */
int32_t bs_wl_layer_info(void *workload, bs_workload_info *out_info, bs_error *err);
int32_t bs_wl_layer_source(void *workload, uint32_t part, bs_source *out_source, bs_error *err);

void bs_wl_set_normal(bs_generated *part, double mean, double std);
void bs_wl_set_uniform(bs_generated *part, double low, double high);
/* low <= high and their difference is a float; BS-WL-VALUE otherwise. Defaults -1 and 1. */
int32_t bs_wl_range(const bs_workload_request *request, const char *low_key, const char *high_key,
                    double *out_low, double *out_high, bs_error *err);
/* BS-WL-RANGE when `largest` is beyond the dtype: inputs that round to infinity are refused here, not found
 * later as a wrong product. */
int32_t bs_wl_check_range(uint32_t dtype, const char *what, double largest, bs_error *err);
#endif
