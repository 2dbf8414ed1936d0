/* SPDX-License-Identifier: MIT
 * rows.c - see rows.h: phase 0 is one row with its gates, phase 1 one row an arm with its time and the
 * comparison with the method. */
#include "lab/report/rows.h"
#include "lab/store/summary.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"

int bs_row_is_simulated(const json_t *record_or_row) {
  return json_object_get(record_or_row, "simulated") != NULL ||
         json_object_get(record_or_row, "simulated_us") != NULL;
}

/* Key of a row, and of the object. */
static const char *const copied[][2] = {{"simulated_us", "us"},
                                        {"compute_us", "compute_us"},
                                        {"memory_us", "memory_us"},
                                        {"launch_us", "launch_us"},
                                        {"wire_latency_us", "wire_latency_us"},
                                        {"wire_bytes_us", "wire_bytes_us"},
                                        {"wait_us", "wait_us"},
                                        {"compute_side_us", "compute_side_us"},
                                        {"memory_side_us", "memory_side_us"},
                                        {"limit", "limit"},
                                        {"bytes_per_device", "bytes_per_device"},
                                        {"messages", "messages"},
                                        {"message_bytes", "message_bytes"},
                                        {"ops_not_costed", "ops_not_costed"},
                                        {"device", "device"},
                                        {"inside_simulated", "inside_simulated"},
                                        {"inside_known", "inside_known"},
                                        {"ops_by_roofline", "ops_by_roofline"},
                                        {"engine", "engine"},
                                        {"machine", "machine"},
                                        {"label", "label"},
                                        {"domain", "domain"},
                                        {"beyond", "beyond"},
                                        {"values", "values"},
                                        {"simulated_speedup", "speedup"}};

void bs_row_add_simulated(json_t *row, const json_t *record) {
  const json_t *s = json_object_get(record, "simulated");
  for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++) {
    json_t *value = json_object_get(s, copied[i][1]);
    if (value != NULL) json_object_set(row, copied[i][0], value);
  }
  json_t *dense = json_object_get(json_object_get(s, "dense"), "us");
  if (dense != NULL) json_object_set(row, "dense_us", dense);
}

static void copy(json_t *row, const json_t *from, const char *key) {
  json_t *value = json_object_get(from, key);
  if (value != NULL) json_object_set(row, key, value);
}

static void copy_as(json_t *row, const char *name, const json_t *from, const char *key) {
  json_t *value = json_object_get(from, key);
  if (value != NULL) json_object_set(row, name, value);
}

static void copy_ms(json_t *row, const char *name, const json_t *from, const char *seconds) {
  const json_t *value = json_object_get(from, seconds);
  if (json_is_number(value)) json_object_set_new(row, name, json_real(json_number_value(value) * 1e3));
}

/* Adds the time of re-masks and of their parts: means over all re-masks. */
static void add_remask(json_t *row, const json_t *record) {
  static const char *const regions[][2] = {{"remask", "remask_ms"},
                                           {"decompress", "decompress_ms"},
                                           {"mask", "mask_ms"},
                                           {"compress", "compress_ms"}};
  const json_t *timings = json_object_get(record, "timings_ms");
  if (json_integer_value(json_object_get(record, "remask")) == 0) return;
  for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
    const json_t *region = json_object_get(timings, regions[i][0]);
    json_t *mean = json_object_get(region, "avg_ms");
    if (json_number_value(json_object_get(region, "count")) > 0) json_object_set(row, regions[i][1], mean);
  }
}

/* Adds the data of a device: the host's part of a forward, and the largest pool of one rank. */
static void add_device(json_t *row, const json_t *record) {
  const json_t *device = json_object_get(record, "device");
  const json_t *peaks = json_object_get(device, "peak_bytes");
  json_t *enqueue = json_object_get(device, "enqueue_us"), *most = NULL;
  for (size_t i = 0; i < json_array_size(peaks); i++) {
    json_t *peak = json_array_get(peaks, i);
    if (json_integer_value(peak) > json_integer_value(most)) most = peak;
  }
  if (json_is_number(enqueue)) json_object_set(row, "enqueue_us", enqueue);
  if (most != NULL) json_object_set(row, "device_peak_bytes", most);
}

/* Median ms of the regions of the slowest rank that were entered. */
static void add_regions(json_t *row, const json_t *record) {
  static const char *const regions[][2] = {{"forward", "forward_p50_ms"},
                                           {"backward", "backward_ms"},
                                           {"opt_step", "opt_step_ms"},
                                           {"allreduce", "allreduce_ms"},
                                           {"total_step", "total_step_ms"}};
  const json_t *timings = json_object_get(record, "timings_ms");
  for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
    const json_t *t = json_object_get(timings, regions[i][0]);
    if (json_number_value(json_object_get(t, "count")) > 0) copy_as(row, regions[i][1], t, "p50_ms");
  }
}

static json_t *common_row(const json_t *record, const char *run_dir) {
  static const char *const keys[] = {"phase",
                                     "method",
                                     "world_size",
                                     "threads_per_rank",
                                     "B",
                                     "N",
                                     "K",
                                     "dtype",
                                     "bias",
                                     "workload",
                                     "mask",
                                     "backend",
                                     "comm",
                                     "launch",
                                     "load_average",
                                     "loss",
                                     "steps",
                                     "optimizer",
                                     "passed",
                                     "memory_peak_bytes",
                                     "weight_bytes_total",
                                     "wire_bytes_per_forward",
                                     "flops_per_forward",
                                     "claims_match_counts",
                                     "algorithms",
                                     "seed",
                                     "run_id"};
  json_t *row = json_object();
  for (size_t i = 0; row != NULL && i < sizeof keys / sizeof keys[0]; i++) copy(row, record, keys[i]);
  json_object_set_new(row, "run_dir", json_string(run_dir));
  add_regions(row, record);
  add_remask(row, record);
  add_device(row, record);
  return row;
}

/* "7 of 7", or the names of those that did not pass. */
static void gate_text(const json_t *record, char *out, size_t size) {
  const json_t *gates = json_object_get(record, "gates");
  size_t ran = 0, passed = 0, used = 0;
  char rest[128] = "";
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const json_t *gate = json_array_get(gates, i);
    const char *state = json_string_value(json_object_get(gate, "state"));
    const char *name = bs_gate_name(gate);
    if (state == NULL || strcmp(state, "skipped") == 0) continue;
    ran++;
    if (strcmp(state, "pass") == 0) {
      passed++;
    } else if (used + 1 < sizeof rest) {
      const int n = snprintf(rest + used, sizeof rest - used, "%s %s %s", used == 0 ? ":" : ",", name,
                             strcmp(state, "fail") == 0 ? "failed" : state);
      if (n > 0) used += (size_t)n;
    }
  }
  snprintf(out, size, "%zu of %zu%s", passed, ran, rest);
}

/* "int8 4032: 0.0070 predicted", a layer's segments in two precisions side by side. */
static void add_segments(json_t *row, const json_t *record) {
  const json_t *segments = json_object_get(record, "segments");
  char text[192] = "";
  size_t used = 0;
  for (size_t i = 0; i < json_array_size(segments) && used + 1 < sizeof text; i++) {
    const json_t *s = json_array_get(segments, i);
    const int n = snprintf(text + used, sizeof text - used, "%s%s %lld: %.3g predicted", i > 0 ? "; " : "",
                           json_string_value(json_object_get(s, "segment")),
                           (long long)json_integer_value(json_object_get(s, "columns")),
                           json_number_value(json_object_get(s, "error_predicted")));
    if (n > 0) used += (size_t)n;
  }
  if (used == 0) return;
  json_object_set_new(row, "segments", json_string(text));
  copy(row, record, "mixed_error");
  copy(row, record, "mixed_error_predicted");
}

/* Errors of the gradients and of the stepped weights, and the losses, of phases 2 and 3. */
static void add_training(json_t *row, const json_t *record) {
  static const char *const of[][3] = {{"dx", "dx_error", "dx_error_predicted"},
                                      {"dw", "dw_error", "dw_error_predicted"},
                                      {"db", "db_error", "db_error_predicted"},
                                      {"weights", "w_error", "w_error_predicted"}};
  for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
    const json_t *errors = json_object_get(record, of[i][0]);
    copy_as(row, of[i][1], errors, "relative_error");
    copy_as(row, of[i][2], errors, "relative_error_predicted");
  }
  const json_t *losses = json_object_get(record, "losses");
  const size_t n = json_array_size(losses);
  if (n == 0) return;
  json_object_set(row, "loss_first", json_array_get(losses, 0));
  json_object_set(row, "loss_last", json_array_get(losses, n - 1));
}

static int32_t add_phase0(json_t *rows, const json_t *record, const char *run_dir) {
  char gates[192];
  json_t *row = common_row(record, run_dir);
  gate_text(record, gates, sizeof gates);
  json_object_set_new(row, "arm", json_string("method"));
  json_object_set_new(row, "gates", json_string(gates));
  copy(row, record, "relative_error");
  copy(row, record, "relative_error_predicted");
  copy_as(row, "whole_error", record, "relative_error");
  copy_as(row, "whole_error", record, "half_error");
  add_segments(row, record);
  add_training(row, record);
  json_object_set_new(row, "result", json_string(bs_gates_words(record)));
  return json_array_append_new(rows, row);
}

/* Removes fields of the method, which do not apply to its peers. */
static void forget_the_methods_own(json_t *row) {
  static const char *const keys[] = {"memory_peak_bytes",
                                     "weight_bytes_total",
                                     "wire_bytes_per_forward",
                                     "flops_per_forward",
                                     "forward_p50_ms",
                                     "allreduce_ms",
                                     "enqueue_us",
                                     "device_peak_bytes",
                                     "claims_match_counts",
                                     "algorithms",
                                     "mask"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) json_object_del(row, keys[i]);
}

/* The comparison in words, with the method's name in front, and in numbers. */
static void add_comparison(json_t *row, const json_t *record, const json_t *arm, const json_t *hot,
                           const json_t *cold) {
  char words[640], text[800];
  copy_as(row, "verdict", hot, "word");
  copy(row, hot, "speedup");
  copy(row, hot, "break_even_forwards");
  copy(row, hot, "needs_pairs");
  copy(row, hot, "cause");
  copy(row, hot, "next");
  copy_as(row, "speedup_low", hot, "low");
  copy_as(row, "speedup_high", hot, "high");
  copy_as(row, "cold_verdict", cold, "word");
  copy_as(row, "cold_speedup", cold, "speedup");
  copy_as(row, "cold_speedup_low", cold, "low");
  copy_as(row, "cold_speedup_high", cold, "high");
  const char *method = json_string_value(json_object_get(record, "method"));
  bs_comparison_words(hot, arm, words, sizeof words);
  snprintf(text, sizeof text, "%.64s %s", method != NULL ? method : "method", words);
  json_object_set_new(row, "result", json_string(text));
}

/* The comparison with the arm `name`; NULL: not found. */
static const json_t *comparison_with(const json_t *record, const char *list, const char *name) {
  const json_t *rows = json_object_get(record, list);
  for (size_t i = 0; name != NULL && i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *against = json_string_value(json_object_get(row, "against"));
    if (against != NULL && strcmp(against, name) == 0) return row;
  }
  return NULL;
}

static int add_arm(json_t *rows, const json_t *record, const json_t *arm, const char *run_dir) {
  json_t *row = common_row(record, run_dir);
  if (arm != json_array_get(json_object_get(record, "arms"), 0)) forget_the_methods_own(row);
  const char *name = json_string_value(json_object_get(arm, "name"));
  const json_t *hot = comparison_with(record, "comparisons", name);
  char what_it_is[96];
  copy_as(row, "arm", arm, "name");
  if (hot == NULL)
    copy_as(row, "what", arm, "method");
  else
    json_object_set_new(row, "what", json_string(bs_arm_words(arm, what_it_is, sizeof what_it_is)));
  copy(row, arm, "method");
  copy(row, arm, "world_size");
  copy(row, arm, "threads_per_rank");
  copy(row, arm, "limit");
  copy_as(row, "flops_per_forward", arm, "flops");
  copy(row, arm, "gflops");
  copy(row, arm, "share_of_limit");
  copy_ms(row, "build_ms", arm, "build_s");
  copy_ms(row, "pack_ms", arm, "pack_s");
  copy_ms(row, "first_ms", arm, "first_s");
  copy_ms(row, "median_ms", arm, "median_s");
  copy_ms(row, "cold_ms", json_object_get(arm, "cold"), "median_s");
  copy_ms(row, "min_ms", arm, "min_s");
  copy_ms(row, "p90_ms", arm, "p90_s");
  copy_ms(row, "p99_ms", arm, "p99_s");
  copy_ms(row, "predicted_ms", json_object_get(arm, "predicted_s"), "total");
  copy_ms(row, "bound_ms", json_object_get(arm, "bound_s"), "total");
  copy(row, arm, "measured_over_predicted");
  copy_as(row, "clock_mhz", json_object_get(arm, "clock_mhz"), "median");
  copy_as(row, "kernel", json_object_get(arm, "kernel"), "name");
  copy(row, record, "pairs");
  copy(row, record, "stopped_by");
  copy(row, record, "disturbed_pairs");
  copy(row, record, "measuring_warnings");
  if (hot != NULL) add_comparison(row, record, arm, hot, comparison_with(record, "comparisons_cold", name));
  return json_array_append_new(rows, row);
}

static int add_phase1(json_t *rows, const json_t *record, const char *run_dir) {
  const json_t *arms = json_object_get(record, "arms");
  int bad = 0;
  for (size_t i = 0; i < json_array_size(arms); i++)
    bad |= add_arm(rows, record, json_array_get(arms, i), run_dir);
  return bad;
}

/* Useful FLOPs: those of the whole product at most, so that zeros that are multiplied do not count. */
static int add_arm_figures(json_t *arm, const json_t *record, int is_method) {
  const json_t *counted = json_object_get(record, "flops_per_forward");
  const double whole = 2.0 * json_number_value(json_object_get(record, "B")) *
                       json_number_value(json_object_get(record, "N")) *
                       json_number_value(json_object_get(record, "K"));
  const double own = is_method && json_is_number(counted) ? json_number_value(counted) : whole;
  const double flops = own > 0 && own < whole ? own : whole;
  const double seconds = json_number_value(json_object_get(arm, "median_s"));
  int bad = json_object_set_new(arm, "flops", json_integer((json_int_t)flops));
  bad |= json_object_set_new(arm, "gflops", seconds > 0 ? json_real(flops / seconds * 1e-9) : json_null());
  return bad;
}

int32_t bs_rows_add_figures(json_t *record, bs_error *err) {
  const json_t *arms = json_object_get(record, "arms");
  int bad = 0;
  for (size_t i = 0; i < json_array_size(arms); i++)
    bad |= add_arm_figures(json_array_get(arms, i), record, i == 0);
  return bad ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
}

static int add_simulated(json_t *rows, const json_t *record, const char *run_dir) {
  json_t *row = common_row(record, run_dir);
  bs_row_add_simulated(row, record);
  return json_array_append_new(rows, row);
}

int32_t bs_rows_add(json_t *rows, const json_t *record, const char *run_dir, bs_error *err) {
  const int is_timed = json_object_get(record, "arms") != NULL;
  const int bad = bs_row_is_simulated(record) ? add_simulated(rows, record, run_dir)
                  : is_timed                  ? add_phase1(rows, record, run_dir)
                                              : add_phase0(rows, record, run_dir);
  return bad ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
}
