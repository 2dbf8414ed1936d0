/* SPDX-License-Identifier: MIT
 * test_run_cold.c - phase 1 with phase.cold: cold samples beside the hot ones, never among them; each phase
 * of time in a field of its own. */
#include <stdio.h>
#include <string.h>

#include <math.h>

#include "lab/measure/stats.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

static size_t numbers(const json_t *list, double *out, size_t most) {
  const size_t n = json_array_size(list);
  ck_assert(json_is_array(list) && n <= most);
  for (size_t i = 0; i < n; i++) {
    out[i] = json_number_value(json_array_get(list, i));
    ck_assert_double_gt(out[i], 0);
  }
  return n;
}

static void check_samples(const json_t *of, const char *phase) {
  double samples[100];
  const size_t n = numbers(json_object_get(of, "samples_s"), samples, 100);
  const json_t *outliers = json_object_get(of, "outliers");
  ck_assert_str_eq(run_str(of, "phase"), phase);
  ck_assert_uint_eq(n, 5);
  ck_assert_double_eq_tol(run_num(of, "median_s"), bs_median(samples, n), 1e-15);
  ck_assert_double_eq(run_num(of, "min_s"), bs_percentile(samples, n, 0));
  ck_assert_double_le(run_num(of, "p90_s"), run_num(of, "p99_s"));
  ck_assert(run_num(of, "mad_s") >= 0 && run_num(of, "warm_blocks") >= 1 && run_num(of, "warm_s") > 0);
  ck_assert(json_is_boolean(json_object_get(of, "settled")));
  ck_assert_uint_eq(json_object_size(outliers), 4);
  ck_assert_double_le(run_num(outliers, "z_low") + run_num(outliers, "z_high"), (double)n);
}

static void check_record(const json_t *record) {
  const json_t *arm = json_array_get(json_object_get(record, "arms"), 0),
               *cold = json_object_get(arm, "cold");
  const json_t *pairs = json_object_get(record, "pairs_cold");
  check_samples(arm, "steady-hot");
  check_samples(cold, "steady-cold");
  ck_assert(run_num(arm, "pack_s") > 0 && run_num(arm, "pack_s") <= run_num(arm, "build_s"));
  ck_assert_double_gt(run_num(arm, "first_s"), 0);
  ck_assert_double_ge(run_num(cold, "flush_bytes"), 1 << 20);
  ck_assert(json_is_array(json_object_get(record, "comparisons_cold")));
  ck_assert(run_num(record, "pairs") == 5 && run_num(pairs, "pairs") == 5);
  ck_assert_str_eq(run_str(pairs, "stopped_by"), "max_pairs");
  ck_assert(json_is_array(json_object_get(record, "measuring_warnings")));
  /* The forwards counted in the region are hot ones of the last build: samples with their leads, and no cold
   * one. */
  const json_t *forward = json_object_get(json_object_get(record, "timings_ms"), "forward");
  const double calls = run_num(arm, "forwards_per_sample") + run_num(arm, "lead_forwards");
  const double count = run_num(forward, "count");
  const json_t *starts = json_object_get(record, "group_starts");
  ck_assert_uint_ge(json_array_size(starts), 3);
  const double last = (double)json_integer_value(json_array_get(starts, json_array_size(starts) - 1));
  const double taken = 5 - last + run_num(json_object_get(record, "disturbed_pairs"), "discarded");
  /* A sample may be taken again behind its own arm. */
  ck_assert_msg(count >= calls && count <= 2 * taken * calls && fmod(count, calls) == 0,
                "%g forwards, %g samples of %g", count, taken, calls);
}

START_TEST(cold_stays_apart) {
  char run_dir[512];
  ran r;
  const char **args = run_words(
      "--plugin cpu --method dense --phase time --out out -o jsonl --set model.N=256 --set "
      "phase.dense_arm=false --set %s --set phase.pairs_min=5 --set phase.pairs_max=5 --set "
      "phase.pairs_seconds=0.1",
      _i == 0 ? "phase.cold=false" : "phase.cold=true");
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, "cold");
  json_t *rows = run_rows(r.out);
  const json_t *row = json_array_get(rows, 0);
  snprintf(run_dir, sizeof run_dir, "%s/%s", dir, run_str(row, "run_dir"));
  json_t *record = run_record(dir, run_dir);
  if (_i == 1) {
    check_record(record);
    ck_assert_double_gt(run_num(row, "cold_ms"), 0);
  } else {
    ck_assert(json_is_null(json_object_get(row, "cold_ms")));
    ck_assert(json_is_null(json_object_get(record, "pairs_cold")));
    ck_assert(json_is_null(json_object_get(json_array_get(json_object_get(record, "arms"), 0), "cold")));
  }
  json_decref(record);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{cold_stays_apart, 2}, {0}};
  return run_tests("cold", tests, (test_setup){dir_make, dir_remove, .timeout = 120});
}
