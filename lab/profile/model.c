/* SPDX-License-Identifier: MIT
 * model.c - a profile of a model: its nodes by `model bench --show nodes`, and the bound of all their work.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/kernel/bound.h"
#include "lab/measure/stats.h"
#include "lab/model/bench.h"
#include "lab/profile/parts.h"
#include "lab/stop.h"

/* The bound of a node's time: the multiply-adds of f32, and its bytes if they are at least as many as in the
 * measurement of the rate (fewer may be in a cache). 0: not known. */
static double node_bound(const json_t *node, const bs_kernel_peaks *rates) {
  if (!(rates->flops > 0)) return 0;
  const double bytes = bs_get_number(node, "bytes");
  const double fma =
      strncmp(bs_get_text(node, "shape"), "f32[", 4) == 0 ? bs_get_number(node, "flops") / rates->flops : 0;
  return bytes >= rates->footprint ? fmax(fma, bytes / rates->bytes) : fma;
}

static int32_t add_nodes(json_t *record, const json_t *nodes, const json_t *row, const bs_kernel_peaks *rates,
                         bs_error *err) {
  size_t i;
  json_t *node;
  double fallback_s = 0;
  int32_t rc = BS_OK;
  json_array_foreach(nodes, i, node) {
    char name[160];
    if (strncmp(bs_get_text(node, "serves"), "ref:", 4) == 0) fallback_s += bs_get_number(node, "each_s");
    snprintf(name, sizeof name, "%lld %.60s (%.60s)",
             (long long)json_integer_value(json_object_get(node, "index")), bs_get_text(node, "op"),
             bs_get_text(node, "serves"));
    const bs_profile_part part = {.name = name,
                                  .rank = 0,
                                  .seconds = bs_get_number(node, "each_s"),
                                  .flops = bs_get_number(node, "flops"),
                                  .bytes = bs_get_number(node, "bytes"),
                                  .bound_s = node_bound(node, rates)};
    if (part.seconds > 0) rc = bs_profile_add(record, &part, err);
    if (rc != BS_OK) return rc;
  }
  return bs_profile_set(record, "nodes",
                        json_pack("{s:I,s:f,s:f,s:f}", "n", (json_int_t)json_array_size(nodes), "fallback",
                                  bs_get_number(row, "fallback_nodes"), "fallback_s", fallback_s, "top_share",
                                  bs_get_number(json_array_get(nodes, 0), "share")),
                        err);
}

/* Adds the machine's bound for the FLOPs and bytes of a run, with rates of f32, the dtype of most models. */
static int32_t add_bound(json_t *record, const json_t *row, const bs_kernel_peaks *rates, bs_error *err) {
  static const char *const names[] = {"fma", "bytes"};
  const double seconds[] = {bs_get_number(row, "flops") / rates->flops,
                            bs_get_number(row, "bytes") / rates->bytes};
  return bs_profile_bound(record, names, seconds, 2, err);
}

static int32_t measure_peaks(const json_t *row, uint32_t threads, bs_kernel_peaks *out, bs_error *err) {
  const bs_kernel_problem like = {.kind = BS_KERNEL_MATMUL,
                                  .dtype = BS_F32,
                                  .B = 64,
                                  .N = 1024,
                                  .K = bs_get_number(row, "bytes") > 4096 * 1024.0 ? 4096 : 1024};
  return bs_kernel_peaks_measure(&like, threads, 0, out, err);
}

/* Samples are means of some runs each. */
static int32_t add_calls(json_t *record, const json_t *row, bs_error *err) {
  const json_t *samples = json_object_get(row, "samples_s");
  const size_t n = json_array_size(samples);
  double *seconds = calloc(n + 1, sizeof *seconds);
  if (seconds == NULL) return bs_no_memory(err, "samples");
  for (size_t i = 0; i < n; i++) seconds[i] = json_number_value(json_array_get(samples, i));
  const int32_t rc =
      bs_profile_calls(record, (double)n, bs_get_number(row, "min_s"), bs_percentile(seconds, n, 0.95), err);
  free(seconds);
  return rc;
}

int32_t bs_profile_run(const char *name, const json_t *row, const json_t *nodes, json_t **out,
                       bs_error *err) {
  const double ranks = bs_get_number(row, "world_size"), each = bs_get_number(row, "threads");
  const uint32_t threads = (uint32_t)(ranks > 1 ? ranks * each : each);
  bs_kernel_peaks rates = {0};
  *out = bs_profile_record("model", name, threads, 1, bs_get_number(row, "median_s"));
  const int stopped = bs_stop_asked() != 0; /* the machine is not measured any more */
  int32_t rc = *out == NULL ? bs_no_memory(err, "a profile")
               : stopped    ? BS_OK
                            : measure_peaks(row, threads, &rates, err);
  if (rc == BS_OK && (nodes != NULL || !stopped)) rc = add_nodes(*out, nodes, row, &rates, err);
  if (rc == BS_OK && !stopped) rc = add_bound(*out, row, &rates, err);
  if (rc == BS_OK) rc = bs_profile_set(*out, "ranks", json_pack("{s:i}", "n", 1), err);
  if (rc == BS_OK) return BS_OK;
  json_decref(*out);
  *out = NULL;
  return rc;
}

int32_t bs_profile_model(bs_context *context, bs_model_request *request, bs_model *model,
                         const bs_profile_options *o, json_t **out, bs_error *err) {
  const bs_model_bench how = {
      .seconds = o->seconds, .allow_fallback = 1, .profile = 1, .progress = o->progress, .user = o->user};
  bs_counters counters;
  json_t *result = NULL;
  *out = NULL;
  bs_counters_open(o->counters, &counters);
  bs_counters_start(&counters);
  int32_t rc = bs_model_bench_run(context, request, model, &how, &result, err);
  bs_counters_stop(&counters);
  bs_counters_close(&counters);
  /* The counters include reading, planning and many runs, so only their quotients have a meaning. */
  const json_t *rows = json_object_get(result, "rows");
  const json_t *row = json_array_get(rows, json_array_size(rows) > 0 ? json_array_size(rows) - 1 : 0);
  const char *work = bs_get_text(row, "work"), *path = bs_get_text(result, "model");
  char name[300];
  snprintf(name, sizeof name, "%.250s%s", path, strcmp(work, "prefill") == 0 ? ", prefill" : "");
  if (rc == BS_OK) rc = bs_profile_run(name, row, json_object_get(result, "profile"), out, err);
  if (rc == BS_OK) rc = add_calls(*out, row, err);
  if (rc == BS_OK)
    rc = bs_profile_set(*out, "conditions", json_incref(json_object_get(result, "conditions")), err);
  if (rc == BS_OK) rc = bs_profile_set(*out, "counters", bs_counters_json(&counters, NAN, NAN, 0), err);
  if (rc == BS_OK) rc = bs_profile_trace(*out, o->trace, err);
  json_decref(result);
  if (rc != BS_OK) {
    json_decref(*out);
    *out = NULL;
  }
  return rc;
}
