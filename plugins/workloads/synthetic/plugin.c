/* SPDX-License-Identifier: MIT
 * plugin.c - the plugin "synthetic": workloads random_normal, uniform and integer. */
#include <inttypes.h>

#include "synthetic.h"

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

static void shape_part(bs_synthetic *w, uint32_t part, int64_t rows, int64_t cols, uint64_t seed,
                       uint32_t stream, uint32_t dtype) {
  bs_generated *g = &w->parts[part];
  g->host = w->host;
  g->rows = rows;
  g->cols = cols;
  g->seed = seed;
  g->stream = stream;
  g->dtype = dtype;
}

int32_t bs_synthetic_make(const bs_host *host, const bs_workload_request *r, const char *name,
                          bs_synthetic **out, bs_error *err) {
  int32_t rc = check_sizes(r, name, err);
  if (rc != BS_OK) return rc;
  bs_synthetic *w = host->alloc(host->ctx, sizeof *w, 64);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "%zu bytes are not to be had", sizeof *w);
  w->host = host;
  w->present = 1u << BS_PART_X | 1u << BS_PART_W | (r->has_bias ? 1u << BS_PART_BIAS : 0u);
  shape_part(w, BS_PART_X, r->B, r->K, r->seed, BS_STREAM_X, r->dtype);
  shape_part(w, BS_PART_W, r->N, r->K, r->weight_seed, BS_STREAM_W, r->dtype);
  shape_part(w, BS_PART_BIAS, 1, r->N, r->weight_seed, BS_STREAM_BIAS, r->dtype);
  shape_part(w, BS_PART_TARGET, r->B, r->N, r->seed, BS_STREAM_TARGET, r->dtype);
  w->info.struct_size = (uint32_t)sizeof w->info;
  w->info.loss = BS_LOSS_SUM;
  w->info.B = r->B;
  w->info.N = r->N;
  w->info.K = r->K;
  w->info.has_bias = r->has_bias != 0;
  *out = w;
  return BS_OK;
}

static int32_t info(void *workload, bs_workload_info *out_info, bs_error *err) {
  const bs_synthetic *w = workload;
  (void)err;
  *out_info = w->info;
  return BS_OK;
}

static int32_t source(void *workload, uint32_t part, bs_source *out_source, bs_error *err) {
  bs_synthetic *w = workload;
  if (part > BS_PART_TARGET || !(w->present & 1u << part))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-WL-PART", "this workload has no part %" PRIu32, part);
  bs_generated_source(&w->parts[part], out_source);
  return BS_OK;
}

static void close_workload(void *workload) {
  bs_synthetic *w = workload;
  w->host->free(w->host->ctx, w);
}

#define TARGET_DOCS                                                                            \
  "target=none: none, zeros, random_normal or uniform targets T [B,N]\n"                       \
  "target_low=-1: lower end of uniform targets\ntarget_high=1: upper end of uniform targets\n" \
  "loss=sum: sum, mse_zero (mse) or mse_target\n"                                              \
  "weight_mean=0: mean of W\nweight_std=1: standard deviation of W\n"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  static const bs_workload random_normal = {(uint32_t)sizeof(bs_workload),
                                            0,
                                            "random_normal",
                                            "gaussian,normal,fixed_seed",
                                            "X normal(mean, std), W and bias normal",
                                            "mean=0: mean of X\nstd=1: standard deviation of X\n" TARGET_DOCS,
                                            bs_random_normal_open,
                                            info,
                                            source,
                                            close_workload};
  static const bs_workload uniform = {(uint32_t)sizeof(bs_workload),
                                      0,
                                      "uniform",
                                      NULL,
                                      "X uniform in [low, high), W and bias normal",
                                      "low=-1: lower end of X\nhigh=1: upper end of X\n" TARGET_DOCS,
                                      bs_uniform_open,
                                      info,
                                      source,
                                      close_workload};
  static const bs_workload integer = {
      (uint32_t)sizeof(bs_workload),
      0,
      "integer",
      "small_int",
      "X and W in {-1, 0, 1}, small integer bias: every sum is exact (gate T5)",
      "density=auto: share of non-zero entries of X and of W\n",
      bs_integer_open,
      info,
      source,
      close_workload};
  const bs_workload *all[] = {&random_normal, &uniform, &integer};
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
                 "workload:fixed_seed=random_normal\nworkload:uniform\nworkload:integer\n"
                 "workload:small_int=integer\n",
                 activate, NULL)
