/* SPDX-License-Identifier: MIT
 * summary.c - rows of a record by one table of paths (see summary.h). */
#include "lab/store/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/store/read.h"

const char *const bs_run_row_keys[] = {"run",
                                       "run_id",
                                       "sweep",
                                       "point",
                                       "status",
                                       "word",
                                       "failed_stage",
                                       "time",
                                       "experiment",
                                       "phase",
                                       "pass",
                                       "method",
                                       "problem",
                                       "arm",
                                       "backend",
                                       "comm",
                                       "launch",
                                       "clock",
                                       "simulated",
                                       "world_size",
                                       "threads_per_rank",
                                       "N",
                                       "K",
                                       "B",
                                       "dtype",
                                       "mask",
                                       "activation",
                                       "seed",
                                       "median_s",
                                       "p50_s",
                                       "p90_s",
                                       "low_s",
                                       "high_s",
                                       "speedup",
                                       "speedup_low",
                                       "speedup_high",
                                       "speedup_word",
                                       "against",
                                       "cause",
                                       "bound_s",
                                       "bound_compute_s",
                                       "bound_memory_s",
                                       "bound_wire_s",
                                       "limit",
                                       "share_of_limit",
                                       "predicted_s",
                                       "flops",
                                       "bytes_wire",
                                       "relative_error",
                                       "relative_error_predicted",
                                       "passed",
                                       "gates_passed",
                                       "gates_failed",
                                       "warnings",
                                       "error",
                                       "regions",
                                       "memory_peak_bytes",
                                       "weight_bytes_total",
                                       "host",
                                       "library_build_id",
                                       "request_key",
                                       "result_key",
                                       "note",
                                       NULL};

typedef struct source {
  const char *key, *path; /* path: names with dots between them */
} source;

/* Fields of every row. */
static const source of_record[] = {{"run_id", "run_id"},
                                   {"sweep", "sweep"},
                                   {"point", "point"},
                                   {"time", "timestamp_unix"},
                                   {"experiment", "experiment"},
                                   {"phase", "phase"},
                                   {"pass", "pass"},
                                   {"method", "method"},
                                   {"problem", "problem"},
                                   {"backend", "backend"},
                                   {"comm", "comm"},
                                   {"launch", "launch"},
                                   {"world_size", "world_size"},
                                   {"threads_per_rank", "threads_per_rank"},
                                   {"N", "N"},
                                   {"K", "K"},
                                   {"B", "B"},
                                   {"dtype", "dtype"},
                                   {"activation", "activation"},
                                   {"seed", "seed"},
                                   {"passed", "passed"},
                                   {"error", "error.message"},
                                   {"library_build_id", "library_build_id"},
                                   {"request_key", "request_key"},
                                   {"result_key", "result_key"}};
/* Additional fields of a kernel's row (`bsrun bench sdpa`). */
static const source of_kernel[] = {{"mask", "mask"},
                                   {"flops", "flops"},
                                   {"limit", "performance.binding"},
                                   {"speedup", "comparison.ratio"},
                                   {"speedup_low", "comparison.ratio_low"},
                                   {"speedup_high", "comparison.ratio_high"},
                                   {"speedup_word", "comparison.word"},
                                   {"against", "comparison.against"},
                                   {"relative_error", "numeric.relative_rmse"},
                                   {"relative_error_predicted", "numeric.predicted_rmse"}};
/* Fields of the method's row, the only one of a record without arms. */
static const source of_method[] = {{"mask", "mask"},
                                   {"median_s", "median_s"},
                                   {"low_s", "low_s"},
                                   {"high_s", "high_s"},
                                   {"flops", "flops_per_forward"},
                                   {"bytes_wire", "wire_bytes_per_forward"},
                                   {"relative_error", "relative_error"},
                                   {"relative_error_predicted", "relative_error_predicted"},
                                   {"memory_peak_bytes", "memory_peak_bytes"},
                                   {"weight_bytes_total", "weight_bytes_total"}};
static const source of_arm[] = {{"arm", "name"},
                                {"method", "method"},
                                {"world_size", "world_size"},
                                {"threads_per_rank", "threads_per_rank"},
                                {"median_s", "median_s"},
                                {"p50_s", "p50_s"},
                                {"p90_s", "p90_s"},
                                {"low_s", "low_s"},
                                {"high_s", "high_s"},
                                {"bound_s", "bound_s.total"},
                                {"bound_compute_s", "bound_s.compute"},
                                {"bound_memory_s", "bound_s.memory"},
                                {"bound_wire_s", "bound_s.wire"},
                                {"limit", "limit"},
                                {"share_of_limit", "share_of_limit"},
                                {"predicted_s", "predicted_s.total"},
                                {"flops", "flops"}};
static const source of_comparison[] = {{"speedup", "speedup"},   {"speedup_low", "low"},
                                       {"speedup_high", "high"}, {"speedup_word", "word"},
                                       {"against", "against"},   {"cause", "cause"}};
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static json_t *at_path(const json_t *object, const char *path) {
  char name[64];
  json_t *found = NULL;
  while (object != NULL && *path != '\0') {
    const size_t size = strcspn(path, ".");
    if (size >= sizeof name) return NULL;
    memcpy(name, path, size);
    name[size] = '\0';
    object = found = json_object_get(object, name);
    path += size + (path[size] == '.');
  }
  return object == NULL ? NULL : found;
}

/* Copies values; a missing value leaves the row's. */
static int copy(json_t *row, const json_t *from, const source *table, size_t n) {
  int bad = 0;
  for (size_t i = 0; i < n; i++) {
    json_t *value = at_path(from, table[i].path);
    if (value != NULL) bad |= json_object_set(row, table[i].key, value);
  }
  return bad;
}

static int set_text(json_t *row, const char *key, const char *text) {
  return text != NULL ? json_object_set_new(row, key, json_string(text)) : 0;
}

static int set_seconds(json_t *row, const char *key, const json_t *value, double scale) {
  return json_is_number(value) ? json_object_set_new(row, key, json_real(json_number_value(value) * scale))
                               : 0;
}

/* Adds the counts of gates and warnings, if there are any. */
static int add_counts(json_t *row, const json_t *record) {
  const size_t warnings = json_array_size(json_object_get(record, "measuring_warnings"));
  int bad = 0;
  if (json_array_size(json_object_get(record, "gates")) > 0)
    bad = json_object_set_new(row, "gates_passed", json_integer(bs_record_gates(record, "pass"))) ||
          json_object_set_new(row, "gates_failed", json_integer(bs_record_gates(record, "fail")));
  if (warnings > 0) bad |= json_object_set_new(row, "warnings", json_integer((json_int_t)warnings));
  return bad;
}

static const json_t *region(const json_t *record, const char *name) {
  return json_object_get(json_object_get(record, "timings_ms"), name);
}

/* {forward: p50_ms, ...} of the regions that were entered. */
static int add_regions(json_t *row, const json_t *record) {
  json_t *timings = json_object_get(record, "timings_ms"), *times = json_object(), *one;
  const char *name;
  int bad = times == NULL;
  json_object_foreach(timings, name, one) {
    json_t *p50 = json_object_get(one, "p50_ms");
    if (json_number_value(json_object_get(one, "count")) > 0 && p50 != NULL)
      bad |= json_object_set(times, name, p50);
  }
  if (!bad && json_object_size(times) > 0) bad |= json_object_set(row, "regions", times);
  json_decref(times);
  return bad;
}

/* Adds the time of phases 2 and 3, which have no arms: that of the backward pass, or of a step. */
static int add_pass_time(json_t *row, const json_t *record) {
  const char *phase = json_string_value(json_object_get(record, "phase"));
  if (phase == NULL) return 0;
  const json_t *pass = strncmp(phase, "phase2", 6) == 0   ? region(record, "backward")
                       : strncmp(phase, "phase3", 6) == 0 ? region(record, "total_step")
                                                          : NULL;
  const json_t *p50 = json_object_get(pass, "p50_ms");
  return set_seconds(row, "median_s", p50, 1e-3) || set_seconds(row, "p50_s", p50, 1e-3);
}

const char *bs_record_clock(const json_t *record) {
  if (json_object_get(record, "simulated") != NULL) return "virtual";
  const char *clock = json_string_value(at_path(record, "device.clock"));
  return clock != NULL && strcmp(clock, "events") == 0 ? "device" : "host";
}

/* A row with every key, null if the value is not known, and the fields that all rows of a record share. */
static json_t *new_row(const bs_summary_run *run, const json_t *record) {
  json_t *row = json_object();
  int bad = row == NULL;
  for (size_t i = 0; !bad && bs_run_row_keys[i] != NULL; i++)
    bad |= json_object_set_new(row, bs_run_row_keys[i], json_null());
  const json_t *simulated = json_object_get(record, "simulated");
  bad = bad || set_text(row, "run", run->path) || copy(row, record, of_record, COUNT(of_record)) ||
        set_text(row, "word", bs_record_word(record)) ||
        set_text(row, "failed_stage", bs_record_failed_stage(record)) ||
        set_text(row, "clock", bs_record_clock(record)) ||
        json_object_set_new(row, "simulated", json_boolean(simulated != NULL)) ||
        set_text(row, "status", json_string_value(json_object_get(run->done, "status"))) ||
        add_counts(row, record) || (run->host != NULL && json_object_set(row, "host", run->host)) ||
        (run->note != NULL && json_object_set(row, "note", run->note));
  if (!bad) return row;
  json_decref(row);
  return NULL;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The interval from the sample of this rank (from 0) to that of the same rank from above covers the median
 * with at least 95 %: with at most 2.5 % so few samples are below it (binomial, 1/2). n >= 6. */
static size_t low_rank(size_t n) {
  double log_term = -(double)n * log(2.0), below = exp(log_term);
  size_t rank = 0;
  for (size_t k = 1; k < n / 2; k++) {
    log_term += log((double)(n - k + 1) / (double)k);
    below += exp(log_term);
    if (below > 0.025) break;
    rank = k;
  }
  return rank;
}

/* An interval that covers the median with at least 95 % by order statistics, for independent samples. */
static int add_interval(json_t *row, const json_t *samples) {
  const size_t n = json_array_size(samples);
  if (n < 6 || !json_is_null(json_object_get(row, "low_s"))) return 0;
  double *sorted = calloc(n, sizeof *sorted);
  if (sorted == NULL) return 1;
  for (size_t i = 0; i < n; i++) sorted[i] = json_number_value(json_array_get(samples, i));
  qsort(sorted, n, sizeof *sorted, by_value);
  const size_t low = low_rank(n);
  const int bad = json_object_set_new(row, "low_s", json_real(sorted[low])) ||
                  json_object_set_new(row, "high_s", json_real(sorted[n - 1 - low]));
  free(sorted);
  return bad;
}

/* The comparison with the arm `name`; for the method itself the last one, which is with the widest peer. */
static const json_t *comparison_of(const json_t *record, size_t arm, const char *name) {
  const json_t *list = json_object_get(record, "comparisons");
  const size_t n = json_array_size(list);
  if (arm == 0) return n > 0 ? json_array_get(list, n - 1) : NULL;
  for (size_t i = 0; name != NULL && i < n; i++) {
    const char *against = json_string_value(json_object_get(json_array_get(list, i), "against"));
    if (against != NULL && strcmp(against, name) == 0) return json_array_get(list, i);
  }
  return NULL;
}

/* The arm with which the others of `bsrun compare` are compared: the only one that no
 * comparison names. Their records have a pass. */
static const json_t *reference_of(const json_t *record) {
  const json_t *arms = json_object_get(record, "arms");
  if (json_object_get(record, "pass") == NULL) return NULL;
  for (size_t i = 0; i < json_array_size(arms); i++) {
    const json_t *arm = json_array_get(arms, i);
    if (comparison_of(record, 1, json_string_value(json_object_get(arm, "name"))) == NULL) return arm;
  }
  return NULL;
}

static int set_inverse(json_t *row, const char *key, const json_t *value) {
  const double number = json_number_value(value);
  return number > 0 ? json_object_set_new(row, key, json_real(1 / number)) : 0;
}

/* Adds a comparison to the row of the other side: it describes the reference against this arm, so the row
 * gets the opposite. */
static int add_turned(json_t *row, const json_t *comparison, const json_t *reference) {
  const char *word = json_string_value(json_object_get(comparison, "word"));
  if (comparison == NULL) return 0;
  if (word != NULL && strcmp(word, "FASTER") == 0)
    word = "SLOWER";
  else if (word != NULL && strcmp(word, "SLOWER") == 0)
    word = "FASTER";
  return copy(row, comparison, of_comparison, COUNT(of_comparison)) || set_text(row, "speedup_word", word) ||
         set_text(row, "against", json_string_value(json_object_get(reference, "name"))) ||
         set_inverse(row, "speedup", json_object_get(comparison, "speedup")) ||
         set_inverse(row, "speedup_low", json_object_get(comparison, "high")) ||
         set_inverse(row, "speedup_high", json_object_get(comparison, "low"));
}

static int fill_arm(json_t *row, const json_t *record, size_t i) {
  const json_t *arm = json_array_get(json_object_get(record, "arms"), i), *reference = reference_of(record);
  const char *name = json_string_value(json_object_get(arm, "name"));
  const json_t *comparison = comparison_of(record, reference != NULL ? 1 : i, name);
  const int own = reference != NULL ? arm == reference : i == 0; /* fields of the record on one arm */
  int bad = own && (copy(row, record, of_method, COUNT(of_method)) || add_regions(row, record));
  bad |= copy(row, arm, of_arm, COUNT(of_arm));
  bad |= reference != NULL ? add_turned(row, comparison, reference)
                           : copy(row, comparison, of_comparison, COUNT(of_comparison));
  return bad || add_interval(row, json_object_get(arm, "samples_s"));
}

static int fill_alone(json_t *row, const json_t *record) {
  return copy(row, record, of_method, COUNT(of_method)) || add_regions(row, record) ||
         add_pass_time(row, record);
}

/* One provider of one problem. More than the whole bound is an error of the measurement, and no number. */
static int fill_kernel(json_t *row, const json_t *record) {
  static const char *const times[][2] = {{"median_s", "performance.p50_us"},
                                         {"p50_s", "performance.p50_us"},
                                         {"p90_s", "performance.p90_us"},
                                         {"bound_s", "performance.bound_us"}};
  const json_t *percent = at_path(record, "performance.bound_percent");
  int bad = copy(row, record, of_kernel, COUNT(of_kernel));
  for (size_t i = 0; i < COUNT(times); i++)
    bad |= set_seconds(row, times[i][0], at_path(record, times[i][1]), 1e-6);
  if (json_number_value(percent) <= 100.0) bad |= set_seconds(row, "share_of_limit", percent, 1e-2);
  return bad;
}

/* The method on the simulated machine (row 0), and the dense layer on one device of it. */
static int fill_simulated(json_t *row, const json_t *record, size_t i) {
  static const char *const peer = "dense, one device";
  json_t *all = json_object_get(record, "simulated");
  json_t *dense = json_object_get(all, "dense"), *own = i == 0 ? all : dense;
  json_t *speedup = json_object_get(all, "speedup"), *limit = json_object_get(own, "limit");
  int bad = i == 0
                ? copy(row, record, of_method, COUNT(of_method))
                : set_text(row, "method", "dense") || json_object_set_new(row, "world_size", json_integer(1));
  bad |= set_text(row, "arm", i == 0 ? "method" : peer);
  bad |= set_seconds(row, "median_s", json_object_get(own, "us"), 1e-6);
  if (limit != NULL) bad |= json_object_set(row, "limit", limit);
  if (dense != NULL && speedup != NULL)
    bad |= json_object_set(row, "speedup", speedup) || set_text(row, "against", peer);
  return bad;
}

int bs_summary_add(json_t *rows, const bs_summary_run *run, const json_t *record) {
  const json_t *simulated = json_object_get(record, "simulated");
  const size_t arms = json_array_size(json_object_get(record, "arms"));
  const size_t n = simulated != NULL ? 1 + (json_object_get(simulated, "dense") != NULL)
                   : arms > 0        ? arms
                                     : 1;
  for (size_t i = 0; i < n; i++) {
    json_t *row = new_row(run, record);
    int bad = row == NULL || (simulated != NULL             ? fill_simulated(row, record, i)
                              : arms > 0                    ? fill_arm(row, record, i)
                              : bs_record_is_kernel(record) ? fill_kernel(row, record)
                                                            : fill_alone(row, record));
    bad = bad || set_text(row, "arm", json_string_value(json_object_get(record, "work"))); /* of a model */
    if (bad || json_array_append(rows, row) != 0) {
      json_decref(row);
      return 0;
    }
    json_decref(row);
  }
  return 1;
}
