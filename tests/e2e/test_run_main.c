/* SPDX-License-Identifier: MIT
 * test_run_main.c - the main job, small: `bsrun --plugin cpu --method M`, both phases, for the five methods
 * and the original's four names. What the run folders and their records say is compared with what ran. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/cores.h"
#include "lab/measure/machine.h"
#include "lab/measure/predict.h"
#include "lab/measure/stats.h"
#include "lab/store/sha256.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

typedef struct method_case {
  const char *name;
  int ranks;       /* by default */
  int flops_times; /* of 2 B N K, summed over ranks */
  int collectives;
  double wire_times; /* of B N, bytes summed over ranks, for bf16 */
} method_case;

/* wire: 2 ranks x message x ring factor: all_reduce of f32 is 4 x 1, all_gather of bf16 is 2 x 1/2. */
static const method_case methods[] = {
    {"dense", 1, 1, 0, 0},        {"column_parallel", 2, 1, 1, 2}, {"row_parallel", 2, 1, 1, 8},
    {"masked_split", 2, 2, 1, 8}, {"blockshock", 2, 1, 1, 8},
};
enum { N = 256, B = 64 };

static void check_done(const char *run_dir, const char *status) {
  char *text = read_text(run_dir, "DONE");
  ck_assert_msg(text != NULL, "no DONE in %s", run_dir);
  json_t *done = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_str_eq(run_str(done, "status"), status);
  ck_assert_int_eq((int)run_num(done, "records"), 1);
  const json_t *sums = json_object_get(done, "sha256");
  const char *name;
  json_t *sum;
  ck_assert_ptr_nonnull(json_object_get(sums, "metrics.jsonl"));
  json_object_foreach((json_t *)(uintptr_t)sums, name, sum) {
    char path[640], hex[65];
    bs_error err = {.struct_size = sizeof err};
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    ck_assert_int_eq(bs_sha256_file(path, hex, &err), BS_OK);
    ck_assert_str_eq(json_string_value(sum), hex);
  }
  json_decref(done);
  free(text);
}

/* The plugins that ran, with the sums of their files as they are. */
static void check_plugins(const json_t *record) {
  const json_t *plugins = json_object_get(record, "plugins");
  int with_cpu = 0;
  ck_assert_uint_ge(json_array_size(plugins), 4); /* backend, communicator, method, workload */
  for (size_t i = 0; i < json_array_size(plugins); i++) {
    const json_t *p = json_array_get(plugins, i);
    with_cpu |= strcmp(run_str(p, "id"), "cpu") == 0;
    ck_assert_str_ne(run_str(p, "version"), "");
    if (json_object_get(p, "path") == NULL) {
      ck_assert_str_eq(run_str(p, "library_build_id"), run_str(record, "library_build_id"));
      continue;
    }
    char hex[65];
    bs_error err = {.struct_size = sizeof err};
    ck_assert_int_eq(bs_sha256_file(run_str(p, "path"), hex, &err), BS_OK);
    ck_assert_str_eq(run_str(p, "sha256"), hex);
  }
  ck_assert(with_cpu);
}

/* What both phases' records share. */
static void check_common(const json_t *record, const method_case *c) {
  ck_assert_str_eq(run_str(record, "status"), "ok");
  ck_assert_str_eq(run_str(record, "dtype"), "bf16");
  ck_assert_str_eq(run_str(record, "backend"), "cpu");
  ck_assert_int_eq((int)run_num(record, "world_size"), c->ranks);
  ck_assert_int_eq((int)run_num(record, "N"), N);
  ck_assert_int_eq((int)run_num(record, "K"), N);
  ck_assert_int_eq((int)run_num(record, "B"), B);
  ck_assert_int_eq((int)run_num(record, "seed"), 725);
  ck_assert_int_ge((int)run_num(record, "threads_per_rank"), 1);
  ck_assert_msg(json_is_true(json_object_get(record, "claims_match_counts")), "%s: false claims", c->name);
  ck_assert_double_eq(run_num(record, "flops_per_forward"), 2.0 * B * N * N * c->flops_times);
  ck_assert_double_eq(run_num(record, "wire_bytes_per_forward"), c->wire_times * B * N);
  ck_assert_int_eq((int)run_num(record, "collectives_per_forward"), c->collectives);
  /* bf16 weights, all of them once (masked_split: with its zeros). */
  ck_assert_double_eq(run_num(record, "weight_bytes_total"), 2.0 * N * N * c->flops_times);
  ck_assert_double_ge(run_num(record, "memory_peak_bytes"), run_num(record, "weight_bytes_total"));
  const json_t *algorithms = json_object_get(record, "algorithms");
  ck_assert_uint_ge(json_array_size(algorithms), 1);
  ck_assert_ptr_nonnull(strstr(json_string_value(json_array_get(algorithms, 0)), "matmul@cpu/"));
  check_plugins(record);
}

static const json_t *gate_of(const json_t *record, const char *name) {
  const json_t *gates = json_object_get(record, "gates");
  for (size_t i = 0; i < json_array_size(gates); i++) {
    if (strcmp(run_str(json_array_get(gates, i), "name"), name) == 0) return json_array_get(gates, i);
  }
  ck_abort_msg("no gate %s", name);
}

static void check_phase0(const json_t *record, const method_case *c) {
  static const char *const names[] = {"T1", "T2.feature", "T2.token", "T3", "T4", "T5", "T6"};
  ck_assert(json_is_true(json_object_get(record, "passed")));
  ck_assert_uint_eq(json_array_size(json_object_get(record, "gates")), 7);
  for (size_t i = 0; i < 7; i++) {
    const json_t *gate = gate_of(record, names[i]);
    ck_assert_msg(strcmp(run_str(gate, "state"), "pass") == 0, "%s: gate %s %s", c->name, names[i],
                  run_str(gate, "state"));
    ck_assert_msg(run_num(gate, "value") <= run_num(gate, "limit"), "%s: gate %s %g > %g", c->name, names[i],
                  run_num(gate, "value"), run_num(gate, "limit"));
    ck_assert_str_ne(run_str(gate, "text"), "");
  }
  ck_assert_double_eq(run_num(gate_of(record, "T1"), "value"), run_num(record, "relative_error"));
  /* Round-off of bf16 outputs: the error is real, and near its prediction. */
  const double ratio = run_num(record, "relative_error") / run_num(record, "relative_error_predicted");
  ck_assert_msg(ratio > 0.8 && ratio < 1.3, "%s: error / prediction = %g", c->name, ratio);
  ck_assert_int_eq((int)run_num(record, "features_judged"), N);
  const json_t *forward = json_object_get(json_object_get(record, "timings_ms"), "forward");
  ck_assert_int_eq((int)run_num(forward, "count"), (int)run_num(record, "iterations"));
  ck_assert_int_eq((int)run_num(record, "iterations"), 100);
}

static size_t samples_of(const json_t *arm, double *out, size_t max) {
  const json_t *samples = json_object_get(arm, "samples_s");
  const size_t n = json_array_size(samples);
  ck_assert_uint_le(n, max);
  for (size_t i = 0; i < n; i++) {
    out[i] = json_number_value(json_array_get(samples, i));
    ck_assert(out[i] > 0);
  }
  return n;
}

static void check_arm(const json_t *arm) {
  static const char *const limits[] = {"compute", "memory", "wire", "host"};
  double samples[1000], largest = 0;
  const size_t n = samples_of(arm, samples, 1000);
  const json_t *bound = json_object_get(arm, "bound_s"), *predicted = json_object_get(arm, "predicted_s");
  const char *binding = NULL;
  ck_assert_uint_ge(n, 5);
  ck_assert_double_eq_tol(run_num(arm, "median_s"), bs_median(samples, n), 1e-15);
  for (size_t i = 0; i < 4; i++) {
    const double part = run_num(bound, limits[i]);
    ck_assert(part >= 0);
    if (part > largest) {
      largest = part;
      binding = limits[i];
    }
  }
  ck_assert_ptr_nonnull(binding);
  ck_assert_str_eq(run_str(arm, "limit"), binding);
  ck_assert_double_ge(run_num(bound, "total"), largest);
  /* What the kernel that served should take: its own rates, the same wire and host. */
  ck_assert_double_eq_tol(run_num(predicted, "total"),
                          bs_overlap(run_num(predicted, "compute"), run_num(predicted, "memory")) +
                              run_num(bound, "wire") + run_num(bound, "host"),
                          1e-12);
  ck_assert_double_eq_tol(run_num(arm, "measured_over_predicted"),
                          run_num(arm, "median_s") / run_num(predicted, "total"), 1e-9);
  const json_t *kernel = json_object_get(arm, "kernel");
  ck_assert_str_eq(run_str(kernel, "source"), "measured");
  ck_assert_ptr_nonnull(strchr(run_str(kernel, "name"), ':'));
  ck_assert(run_num(kernel, "flops_core") > 0 && run_num(kernel, "bytes_per_s_all") > 0);
}

/* The speedup is of dense time / method time, what the samples and groups in the record give again. */
static void check_comparison(const json_t *record, const json_t *comparison, const json_t *method,
                             const json_t *dense) {
  const json_t *starts = json_object_get(record, "group_starts");
  double a[1000], b[1000];
  size_t start[BS_GROUPS_MAX + 1];
  bs_comparison c;
  const size_t n = samples_of(method, a, 1000);
  ck_assert_uint_eq(samples_of(dense, b, 1000), n);
  ck_assert_int_eq((int)run_num(comparison, "pairs"), (int)n);
  const uint32_t groups = (uint32_t)json_array_size(starts);
  ck_assert_uint_ge(groups, 3);
  for (size_t g = 0; g < groups; g++) start[g] = (size_t)json_integer_value(json_array_get(starts, g));
  start[groups] = n;
  ck_assert_int_eq(bs_compare_groups(a, b, start, groups, run_num(comparison, "margin"), &c), 1);
  const double speedup = run_num(comparison, "speedup");
  ck_assert_double_eq_tol(speedup, c.ratio, 1e-9 * speedup);
  ck_assert(run_num(comparison, "low") <= speedup && speedup <= run_num(comparison, "high"));
  const char *word = run_str(comparison, "word");
  if (strcmp(word, "FASTER") == 0) ck_assert(run_num(comparison, "low") > 1);
  if (strcmp(word, "SLOWER") == 0) ck_assert(run_num(comparison, "high") < 1);
  ck_assert(strcmp(word, "FASTER") == 0 || strcmp(word, "SLOWER") == 0 || strcmp(word, "SAME") == 0 ||
            strcmp(word, "UNCLEAR") == 0);
}

/* On all cores of the machine, and on one rank's where these are fewer; dense on all cores is itself. */
static size_t dense_peers(const method_case *c) {
  return c->ranks == 1 ? 0 : bs_machine_cores() > 1 ? 2 : 1;
}

static void check_phase1(const json_t *record, const method_case *c) {
  const json_t *arms = json_object_get(record, "arms");
  const json_t *comparisons = json_object_get(record, "comparisons");
  const size_t expected = 1 + dense_peers(c);
  const int threads = (int)run_num(record, "threads_per_rank");
  ck_assert_uint_eq(json_array_size(arms), expected);
  ck_assert_uint_eq(json_array_size(comparisons), expected - 1);
  for (size_t i = 0; i < expected; i++) {
    const json_t *arm = json_array_get(arms, i);
    check_arm(arm);
    ck_assert_str_eq(run_str(arm, "phase"), "steady-hot");
    ck_assert(run_num(arm, "first_s") > 0 && run_num(arm, "pack_s") > 0);
    ck_assert_double_le(run_num(arm, "pack_s"), run_num(arm, "build_s"));
    ck_assert_int_eq((int)run_num(arm, "world_size"), i == 0 ? c->ranks : 1);
    ck_assert_int_eq((int)run_num(arm, "threads_per_rank"),
                     i > 0 && i + 1 == expected ? (int)bs_machine_cores() : threads);
    if (i == 0) continue;
    const json_t *comparison = json_array_get(comparisons, i - 1);
    ck_assert_str_eq(run_str(comparison, "against"), run_str(arm, "name"));
    check_comparison(record, comparison, json_array_get(arms, 0), arm);
  }
}

START_TEST(main_job) {
  const method_case *c = &methods[_i];
  ran r;
  const char **args = run_words(
      "--plugin cpu --method %s --set model.N=256 --set phase.pairs_max=6 --set phase.pairs_min=6 --set "
      "phase.pairs_seconds=0.1 --out out "
      "-o jsonl",
      c->name);
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, c->name);
  json_t *rows = run_rows(r.out);
  ck_assert_uint_eq(json_array_size(rows), 2u + dense_peers(c));
  for (size_t phase = 0; phase < 2; phase++) {
    char run_dir[512];
    const json_t *row = json_array_get(rows, phase);
    snprintf(run_dir, sizeof run_dir, "%s/%s", dir, run_str(row, "run_dir"));
    json_t *record = run_record(dir, run_dir);
    check_done(run_dir, "ok");
    check_common(record, c);
    ck_assert_str_eq(run_str(record, "phase"), phase == 0 ? "phase0_correctness" : "phase1_forward");
    ck_assert_str_eq(run_str(record, "run_id"), strrchr(run_dir, '/') + 1);
    if (phase == 0) {
      check_phase0(record, c);
    } else {
      check_phase1(record, c);
    }
    json_decref(record);
  }
  /* Two runs, and nothing else on disk. */
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 2);
  ck_assert_uint_eq(run_count_files(dir, "metrics.jsonl"), 2);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{main_job, TEST_COUNT(methods)}, {0}};
  return run_tests("run_main", tests, (test_setup){dir_make, dir_remove, .timeout = 180});
}
