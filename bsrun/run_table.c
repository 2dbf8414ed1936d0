/* SPDX-License-Identifier: MIT
 * run_table.c - from records to the rows of bsrun's table: phase 0 is one row with its gates, phase 1 one row
 * an arm with its time and the comparison with the method. */
#include <stdio.h>
#include <string.h>

#include "bsrun/run.h"
#include "core/base/error.h"

#define WIDE BS_FIELD_WIDE
#define FOLD BS_FIELD_FOLD
#define RIGHT BS_FIELD_RIGHT

const bs_field run_fields[] = {
    {"phase", "phase", 0, 0},
    {"arm", "what", 0, 0},
    {"method", "method", FOLD, 0},
    {"world_size", "P", FOLD, 0},
    {"threads_per_rank", "threads/rank", FOLD, 0},
    {"B", "B", FOLD, 0},
    {"N", "N", FOLD, 0},
    {"K", "K", FOLD, 0},
    {"dtype", "dtype", FOLD, 0},
    {"workload", "workload", FOLD, 0},
    {"mask", "mask", FOLD, 0},
    {"backend", "backend", FOLD, 0},
    {"gates", "gates", 0, 0},
    {"relative_error", "error", RIGHT, 3},
    {"relative_error_predicted", "predicted", RIGHT, 3},
    {"mixed_error", "mixed error", RIGHT, 3},
    {"mixed_error_predicted", "mixed predicted", RIGHT, 3},
    {"segments", "segments", 0, 0},
    {"build_ms", "build ms", RIGHT, 3},
    {"pack_ms", "pack ms", RIGHT, 3},
    {"remask_ms", "re-mask ms", RIGHT, 4},
    {"decompress_ms", "decompress ms", RIGHT, 4},
    {"mask_ms", "mask ms", RIGHT, 4},
    {"compress_ms", "compress ms", RIGHT, 4},
    {"first_ms", "first ms", RIGHT, 4},
    {"median_ms", "ms", RIGHT, 4},
    {"cold_ms", "cold ms", RIGHT, 4},
    {"enqueue_us", "enqueue us", RIGHT, 3},
    {"min_ms", "min ms", RIGHT | WIDE, 4},
    {"p90_ms", "p90 ms", RIGHT | WIDE, 4},
    {"p99_ms", "p99 ms", RIGHT | WIDE, 4},
    {"predicted_ms", "predicted ms", RIGHT, 4},
    {"measured_over_predicted", "ms/predicted", RIGHT, 3},
    {"bound_ms", "bound ms", RIGHT, 4},
    {"limit", "limit", 0, 0},
    {"kernel", "kernel", WIDE, 0},
    {"speedup", "method is", RIGHT, 4},
    {"speedup_low", "from", RIGHT, 4},
    {"speedup_high", "to", RIGHT, 4},
    {"cold_speedup", "cold: is", RIGHT, 4},
    {"cold_speedup_low", "cold: from", RIGHT | WIDE, 4},
    {"cold_speedup_high", "cold: to", RIGHT | WIDE, 4},
    {"pairs", "pairs", RIGHT | WIDE, 0},
    {"stopped_by", "stopped by", WIDE, 0},
    {"break_even_forwards", "break-even forwards", RIGHT | WIDE, 0},
    {"result", "result", 0, 0},
    {"passed", "passed", WIDE, 0},
    {"memory_peak_bytes", "peak bytes", RIGHT | WIDE, 0},
    {"device_peak_bytes", "device peak bytes", RIGHT | WIDE, 0},
    {"clock_mhz", "clock MHz", RIGHT | WIDE, 0},
    {"weight_bytes_total", "weight bytes", RIGHT | WIDE, 0},
    {"wire_bytes_per_forward", "wire bytes", RIGHT | WIDE, 0},
    {"flops_per_forward", "FLOPs", RIGHT | WIDE, 0},
    {"forward_p50_ms", "forward p50 ms", RIGHT | WIDE, 4},
    {"claims_match_counts", "as proposed", WIDE, 0},
    {"algorithms", "algorithms", WIDE, 0},
    {"seed", "seed", WIDE, 0},
    {"run_id", "run", WIDE, 0},
    {"run_dir", "folder", WIDE, 0},
};
const size_t run_n_fields = sizeof run_fields / sizeof run_fields[0];

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

/* Making the mask anew, and what of that each part took: means over the times that it was done. */
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

/* Of a device: the host's part of a forward, and the most that one rank's pool held. */
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

static json_t *common_row(const json_t *record, const char *run_dir) {
  static const char *const keys[] = {"phase",
                                     "method",
                                     "world_size",
                                     "threads_per_rank",
                                     "B",
                                     "N",
                                     "K",
                                     "dtype",
                                     "workload",
                                     "mask",
                                     "backend",
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
  const json_t *forward = json_object_get(json_object_get(record, "timings_ms"), "forward");
  json_t *p50 = json_object_get(forward, "p50_ms");
  if (p50 != NULL) json_object_set(row, "forward_p50_ms", p50);
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
    const char *name = json_string_value(json_object_get(gate, "name"));
    if (state == NULL || name == NULL || strcmp(state, "skipped") == 0) continue;
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

/* "int8 4032: 0.0071, 0.0070 predicted", a layer's segments in two precisions side by side. */
static void add_segments(json_t *row, const json_t *record) {
  const json_t *segments = json_object_get(record, "segments");
  char text[192] = "";
  size_t used = 0;
  for (size_t i = 0; i < json_array_size(segments) && used + 1 < sizeof text; i++) {
    const json_t *s = json_array_get(segments, i);
    const int n = snprintf(text + used, sizeof text - used, "%s%s %lld: %.3g, %.3g predicted",
                           i > 0 ? "; " : "", json_string_value(json_object_get(s, "segment")),
                           (long long)json_integer_value(json_object_get(s, "columns")),
                           json_number_value(json_object_get(s, "error")),
                           json_number_value(json_object_get(s, "error_predicted")));
    if (n > 0) used += (size_t)n;
  }
  if (used == 0) return;
  json_object_set_new(row, "segments", json_string(text));
  copy(row, record, "mixed_error");
  copy(row, record, "mixed_error_predicted");
}

static int32_t add_phase0(json_t *rows, const json_t *record, const char *run_dir) {
  char gates[192];
  json_t *row = common_row(record, run_dir);
  gate_text(record, gates, sizeof gates);
  json_object_set_new(row, "arm", json_string("method"));
  json_object_set_new(row, "gates", json_string(gates));
  copy(row, record, "relative_error");
  copy(row, record, "relative_error_predicted");
  add_segments(row, record);
  const char *result = !json_is_true(json_object_get(record, "passed"))      ? "NOT SHOWN RIGHT"
                       : json_is_true(json_object_get(record, "half_alone")) ? "HALF ALONE, as expected"
                       : json_object_get(record, "segments") != NULL         ? "TWO PRECISIONS, as predicted"
                       : json_is_false(json_object_get(record, "valid"))     ? "RIGHT, with NaN or Inf"
                                                                             : "RIGHT";
  json_object_set_new(row, "result", json_string(result));
  return json_array_append_new(rows, row);
}

/* What holds of the method is not its peers'. */
static void forget_the_methods_own(json_t *row) {
  static const char *const keys[] = {"memory_peak_bytes",
                                     "weight_bytes_total",
                                     "wire_bytes_per_forward",
                                     "flops_per_forward",
                                     "forward_p50_ms",
                                     "enqueue_us",
                                     "device_peak_bytes",
                                     "claims_match_counts",
                                     "algorithms",
                                     "mask"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) json_object_del(row, keys[i]);
}

static const char *word_of(const json_t *comparison) {
  const char *word = json_string_value(json_object_get(comparison, "word"));
  return word == NULL ? "?" : word;
}

/* "method FASTER", or "method UNCLEAR: needs about 80 pairs"; with cold samples "; cold: SAME" behind it. */
static void add_comparison(json_t *row, const json_t *hot, const json_t *cold) {
  char text[256];
  const char *next = json_string_value(json_object_get(hot, "next"));
  forget_the_methods_own(row);
  copy(row, hot, "speedup");
  copy(row, hot, "break_even_forwards");
  copy_as(row, "speedup_low", hot, "low");
  copy_as(row, "speedup_high", hot, "high");
  copy_as(row, "cold_speedup", cold, "speedup");
  copy_as(row, "cold_speedup_low", cold, "low");
  copy_as(row, "cold_speedup_high", cold, "high");
  snprintf(text, sizeof text, "method %.40s%s%.120s%s%.40s", word_of(hot), next != NULL ? ": " : "",
           next != NULL ? next : "", cold != NULL ? "; cold: " : "", cold != NULL ? word_of(cold) : "");
  json_object_set_new(row, "result", json_string(text));
}

/* The comparison against the arm `name`; NULL when there is none. */
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
  const char *name = json_string_value(json_object_get(arm, "name"));
  const json_t *hot = comparison_with(record, "comparisons", name);
  copy_as(row, "arm", arm, "name");
  copy(row, arm, "method");
  copy(row, arm, "world_size");
  copy(row, arm, "threads_per_rank");
  copy(row, arm, "limit");
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
  if (hot != NULL) add_comparison(row, hot, comparison_with(record, "comparisons_cold", name));
  return json_array_append_new(rows, row);
}

static int add_phase1(json_t *rows, const json_t *record, const char *run_dir) {
  const json_t *arms = json_object_get(record, "arms");
  int bad = 0;
  for (size_t i = 0; i < json_array_size(arms); i++)
    bad |= add_arm(rows, record, json_array_get(arms, i), run_dir);
  return bad;
}

int32_t run_add_rows(json_t *rows, const json_t *record, const char *run_dir, bs_error *err) {
  const int is_timed = json_object_get(record, "arms") != NULL;
  const int bad = is_timed ? add_phase1(rows, record, run_dir) : add_phase0(rows, record, run_dir);
  return bad ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
}
