/* SPDX-License-Identifier: MIT
 * test_bsrun_bench.c - `bsrun coll bench` and `bsrun sim fit`: rows that are measured and checked, a machine
 * that is made of them. What is refused is in tests/cases/bench.case. */
#include <jansson.h>
#include <math.h>

#include "lab/coll/comm_bench.h"
#include "lab/sim/fit_rows.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

/* bsrun of words that end with NULL. */
static ran bsrun_words(const char *cwd, const char *const *words) {
  char *argv[64] = {(char *)(uintptr_t) "bsrun"};
  for (size_t n = 1; n < 63 && words[n - 1] != NULL; n++) argv[n] = (char *)(uintptr_t)words[n - 1];
  return finish_spawn(cwd, start_bsrun(cwd, argv));
}

static double number(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "no number %s", key);
  return json_number_value(value);
}

/* nccl-tests' example of 72 ranks (coreweave/nccl-tests#43 prints 423.16 and 834.57 of a rounded time). */
START_TEST(bus_bandwidth_is_that_of_nccl_tests) {
  const double algbw = 8589934592.0 / 20299e-6 * 1e-9;
  ck_assert(fabs(algbw - 423.17) < 0.005);
  ck_assert(fabs(algbw * bs_bus_factor(BS_COLL_ALL_REDUCE, 72) - 834.59) < 0.005);
  ck_assert(bs_bus_factor(BS_COLL_ALL_GATHER, 4) == 0.75 &&
            bs_bus_factor(BS_COLL_REDUCE_SCATTER, 4) == 0.75 &&
            bs_bus_factor(BS_COLL_ALL_TO_ALL, 4) == 0.75 && bs_bus_factor(BS_COLL_BROADCAST, 4) == 1 &&
            bs_bus_factor(BS_BENCH_SEND_RECV, 2) == 1);
}
END_TEST

static json_t *bench(const char *const *words) {
  ran r = bsrun_words(dir, words);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_msg(json_is_array(rows), "%s", r.out);
  write_text(dir, "rows.json", r.out);
  ran_free(&r);
  return rows;
}

START_TEST(every_collective_is_timed_and_right) {
  static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                      "broadcast",  "all_to_all", "send_recv"};
  const char *const words[] = {"coll",      "bench", "-P", "3",    "--size", "4:1Ki*16",
                               "--samples", "3",     "-o", "json", NULL};
  json_t *rows = bench(words);
  ck_assert_uint_eq(json_array_size(rows), 6 * 3); /* of 4, 64 and 1024 bytes */
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    ck_assert_str_eq(json_string_value(json_object_get(row, "coll")), names[i / 3]);
    ck_assert_str_eq(json_string_value(json_object_get(row, "comm")), "threads");
    ck_assert(number(row, "wrong") == 0 && number(row, "ranks") == 3 && number(row, "samples") == 3);
    ck_assert(number(row, "bytes") == 4 * number(row, "count"));
    const double us = number(row, "time_us"), algbw = number(row, "algbw_GBps");
    ck_assert(us > 0 && number(row, "p10_us") <= us && us <= number(row, "p90_us"));
    ck_assert(fabs(algbw * us * 1e3 / number(row, "bytes") - 1) < 1e-9);
  }
  json_decref(rows);
}
END_TEST

/* Ranks that are processes are copies of the command; rank 0 prints. */
START_TEST(processes_and_other_dtypes) {
  static const char *const dtypes[] = {"bf16", "f64", "i32", "f16"};
  const char *const words[] = {
      "coll",   "bench",  "--launch",  "processes", "--coll",  "all_reduce,send_recv",
      "--size", "8:64*8", "--samples", "3",         "--dtype", dtypes[_i],
      "-o",     "json",   NULL};
  json_t *rows = bench(words);
  ck_assert_uint_eq(json_array_size(rows), 4);
  for (size_t i = 0; i < 4; i++) {
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, i), "comm")), "shm");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, i), "dtype")), dtypes[_i]);
  }
  json_decref(rows);
}
END_TEST

/* ---- fit ------------------------------------------------------------------------------------- */

/* Rows of an exact machine: alpha 2 us and 10 GB/s of a ring of 4 ranks, twice as slow by the other algorithm
 * up to 100 kB, and half as slow above. */
static void write_exact(const char *file) {
  char text[8192];
  size_t at = 0;
  for (int i = 0; i < 12; i++) {
    const double bytes = 1024.0 * (1 << i), us = 6 * 2 + 1.5 * bytes / 10e3;
    at += (size_t)snprintf(
        text + at, sizeof text - at,
        "{\"coll\":\"all_reduce\",\"comm\":\"c\",\"ranks\":4,\"dtype\":\"f32\",\"algorithm\":"
        "\"ring\",\"bytes\":%.0f,\"time_us\":%.9f}\n",
        bytes, us);
    at += (size_t)snprintf(
        text + at, sizeof text - at,
        "{\"coll\":\"all_reduce\",\"comm\":\"c\",\"ranks\":4,\"dtype\":\"f32\",\"algorithm\":"
        "\"other\",\"bytes\":%.0f,\"time_us\":%.9f}\n",
        bytes, 4 + 3 * bytes / 10e3);
  }
  write_text(dir, file, text);
}

START_TEST(an_exact_machine_is_found_and_written) {
  write_exact("exact.jsonl");
  ran r = bsrun(dir, "sim", "fit", "exact.jsonl", "--to", "m.yaml", "--with", "name=exact-4", "--with",
                "flops=1e9,flops-f32=5e8,mem-shared-Bps=3e9", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *all = json_loads(r.out, 0, NULL);
  const json_t *fits = json_object_get(all, "fits"), *regret = json_object_get(all, "regret");
  ck_assert_uint_eq(json_array_size(fits), 2);
  const json_t *ring = json_array_get(fits, 0);
  ck_assert(fabs(number(ring, "alpha_us") - 12) < 1e-6 && fabs(number(ring, "GBps") - 10 / 1.5) < 1e-6);
  ck_assert(number(ring, "held_out") == 6 && number(ring, "mape_percent") < 1e-6);
  ck_assert(number(regret, "cells") == 6 && number(regret, "within_5_percent") == 6);
  json_decref(all);
  ran_free(&r);
  char *text = read_text(dir, "m.yaml");
  static const char *const lines[] = {"name: exact-4\n",         "alpha_s: 2e-06\n",
                                      "bw_Bps: 1e+10\n",         "flops: 1e+09\n",
                                      "label: calibrated\n",     "domain_most_B: 2097152\n",
                                      "domain_ranks: 4\n",       "flops_f32: 500000000\n",
                                      "mem_shared_Bps: 3e+09\n", "mem_Bps: 0\n"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
    ck_assert_msg(strstr(text, lines[i]) != NULL, "no %s in %s", lines[i], text);
  free(text);
}
END_TEST

START_TEST(measured_rows_are_fitted) {
  const char *const words[] = {"coll",      "bench", "--coll", "all_reduce", "--size", "8:64Ki*4",
                               "--samples", "3",     "-o",     "json",       NULL};
  json_decref(bench(words));
  ran r = bsrun(dir, "sim", "fit", "rows.json", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "all_reduce") != NULL && strstr(r.out, "HELD OUT") != NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{bus_bandwidth_is_that_of_nccl_tests},
                             {every_collective_is_timed_and_right},
                             {processes_and_other_dtypes, 4},
                             {an_exact_machine_is_found_and_written},
                             {measured_rows_are_fitted},
                             {0}};
  return run_tests("bsrun_bench", tests, (test_setup){dir_make, dir_remove});
}
