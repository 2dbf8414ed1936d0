/* SPDX-License-Identifier: MIT
 * test_run_sim.c - runs in virtual time through the binary: the first known answers of the simulator, what it
 * prints, and what it refuses. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "run_help.h"
#include "tests/run_tests.h"

#define SIM "--plugin sim --hardware sim-flat --out out -o jsonl --set model.dtype="
#define ENDLESS " --set plugins.sim.flops=0 --set plugins.sim.mem_Bps=0"

/* Times in us. */
typedef struct known {
  const char *what, *line;
  double us, compute, memory, latency, wire;
  const char *limit;
} known;

static const known answers[] = {
    {"A1",
     SIM "bf16 --phase 1 --method dense -P 1 --set model.N=8192 --set model.B=8192 --set method.bias=false",
     1111.291316, 1111.291316, 0, 0, 0, "compute"},
    {"A2 P=2", SIM "f32 --phase 1 --method row_parallel -P 2" ENDLESS, 21.971520, 0, 0, 1, 20.971520, "wire"},
    {"A2 P=8", SIM "f32 --phase 1 --method row_parallel -P 8" ENDLESS, 43.700160, 0, 0, 7, 36.700160, "wire"},
    {"A2 P=64", SIM "f32 --phase 1 --method row_parallel -P 64" ENDLESS, 104.287680, 0, 0, 63, 41.287680,
     "latency"},
    {"A2 blockshock P=2", SIM "f32 --phase 1 --method blockshock -P 2" ENDLESS, 21.971520, 0, 0, 1, 20.971520,
     "wire"},
    {"A2 blockshock P=8", SIM "f32 --phase 1 --method blockshock -P 8" ENDLESS, 43.700160, 0, 0, 7, 36.700160,
     "wire"},
    {"A2 blockshock P=64", SIM "f32 --phase 1 --method blockshock -P 64" ENDLESS, 104.287680, 0, 0, 63,
     41.287680, "latency"},
    /* g/C + (C-1)/C max(g, c) + c/C of the products g and the exchanges c. */
    {"four chunks, the wire is slower",
     SIM "f32 --phase 1 --method row_parallel -P 8 --set method.bias=false --set method.overlap=4", 67.292256,
     0, 2.592096, 28, 36.700160, "wire"},
    {"four chunks, memory is slower",
     SIM "f32 --phase 1 --method row_parallel -P 8 --set method.bias=false --set method.overlap=4 --set "
         "plugins.sim.bw_Bps=0 --set plugins.sim.alpha_s=0.1e-6",
     11.768384, 0, 10.368384, 1.4, 0, "memory"},
    {"backward: an all_reduce of dX", SIM "f32 --phase 2 --method column_parallel -P 2" ENDLESS, 21.971520, 0,
     0, 1, 20.971520, "wire"},
    {"a step: forward and dX", SIM "f32 --phase 3 --method column_parallel -P 2" ENDLESS, 32.957280, 0, 0,
     1.5, 31.457280, "wire"},
    {"A3", SIM "f32 --phase 1 --method blockshock -P 64 --set method.bias=false", 104.918586, 0, 0.630906, 63,
     41.287680, "latency"},
};

/* Algorithms run message by message: rows 1 and 5 to 7 of the known answers. */
#define ALGORITHM(name, P) \
  SIM "f32 --phase 1 --method row_parallel -P " P ENDLESS " --set hardware.algorithm=" name
static const struct {
  const char *line;
  double us, messages;
} algorithms[] = {
    {ALGORITHM("ring", "2"), 21.971520, 4},
    {ALGORITHM("ring", "8"), 43.700160, 112},
    {ALGORITHM("ring", "64"), 104.287680, 8064},
    {ALGORITHM("doubling", "8"), 64.414560, 24},
    {ALGORITHM("doubling", "64"), 128.829120, 384},
    {ALGORITHM("halving_doubling", "8"), 39.700160, 48},
    {ALGORITHM("halving_doubling", "64"), 47.287680, 768},
    {ALGORITHM("one_shot", "8"), 147.300640, 56},
    {ALGORITHM("two_shot", "8"), 37.700160, 112},
};

static void check(const json_t *row, const char *key, double want, const char *what) {
  ck_assert_msg(fabs(run_num(row, key) - want) < 1e-6, "%s: %s is %.6f, not %.6f", what, key,
                run_num(row, key), want);
}

START_TEST(known_answers) {
  const known *k = &answers[_i];
  char folder[64];
  run_result r;
  run_make_folder(folder);
  run_bsrun(&r, folder, NULL, run_words(k->line, NULL));
  run_expect(&r, 0, k->what);
  json_t *rows = run_rows(r.out);
  ck_assert_uint_eq(json_array_size(rows), 1);
  const json_t *row = json_array_get(rows, 0);
  check(row, "simulated_us", k->us, k->what);
  check(row, "compute_us", k->compute, k->what);
  check(row, "memory_us", k->memory, k->what);
  check(row, "launch_us", 0, k->what);
  check(row, "wire_latency_us", k->latency, k->what);
  check(row, "wire_bytes_us", k->wire, k->what);
  check(row, "wait_us", 0, k->what);
  ck_assert_str_eq(run_str(row, "limit"), k->limit);
  ck_assert_str_eq(run_str(row, "values"), "none");
  ck_assert_str_eq(run_str(row, "machine"), "sim-flat");
  ck_assert_str_eq(run_str(row, "label"), "published");
  ck_assert_str_eq(run_str(row, "domain"), "extrapolated");
  ck_assert_str_eq(run_str(row, "engine"), "closed forms");
  ck_assert(json_is_null(json_object_get(row, "median_ms")) && json_is_null(json_object_get(row, "gflops")));
  ck_assert(json_is_true(json_object_get(row, "claims_match_counts")));
  ck_assert(run_num(row, "simulated_speedup") > 0 || json_object_get(row, "dense_us") == NULL ||
            run_num(row, "dense_us") == 0);
  if (strcmp(k->what, "A1") == 0) check(row, "memory_side_us", 120.194980, k->what);
  if (strcmp(k->what, "A3") == 0) check(row, "dense_us", 20.658512, k->what);
  json_decref(rows);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* In the order of the receives, and in the order of time. */
START_TEST(algorithms_message_by_message) {
  char folder[64], line[512];
  run_result r;
  run_make_folder(folder);
  snprintf(line, sizeof line, "%s --set plugins.sim.order=%s", algorithms[_i / 2].line,
           _i % 2 ? "E" : "auto");
  run_bsrun(&r, folder, NULL, run_words(line, NULL));
  run_expect(&r, 0, line);
  json_t *rows = run_rows(r.out);
  const json_t *row = json_array_get(rows, 0);
  check(row, "simulated_us", algorithms[_i / 2].us, line);
  check(row, "messages", algorithms[_i / 2].messages, line);
  check(row, "wait_us", 0, line);
  check(row, "wire_bytes_us", algorithms[_i / 2].us - run_num(row, "wire_latency_us"), line);
  ck_assert_str_eq(run_str(row, "engine"),
                   _i % 2 ? "message by message, order E" : "message by message, order K");
  json_decref(rows);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* The dense layer beside it runs on one rank, which no topology of groups could have. */
START_TEST(a_topology_of_groups) {
  char folder[64];
  run_result r;
  run_make_folder(folder);
  run_bsrun(&r, folder, NULL,
            run_words(SIM "f32 --phase 1 --method row_parallel -P 16 --set hardware.algorithm=ring --set "
                          "hardware.topology=hier:group=8",
                      NULL));
  run_expect(&r, 0, "hier:group=8");
  json_t *rows = run_rows(r.out);
  const json_t *row = json_array_get(rows, 0);
  ck_assert(run_num(row, "dense_us") > 0 && run_num(row, "simulated_us") > 0);
  ck_assert_str_eq(run_str(row, "engine"), "message by message, order E");
  json_decref(rows);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* Blocks that are not even: a ring, message by message, takes what its closed form says. */
START_TEST(rings_are_their_closed_form) {
  static const char *const ways[] = {"native", "ring"}, *const worlds[] = {"3", "5", "7"};
  char folder[64], way[64];
  double us[2];
  run_make_folder(folder);
  for (int i = 0; i < 2; i++) {
    run_result r;
    snprintf(way, sizeof way, "hardware.algorithm=%s", ways[i]);
    run_bsrun(&r, folder, NULL,
              run_words(SIM "f32 --phase 1 --method row_parallel --n 37 --b 3 --k 41" ENDLESS
                            " --set plugins.sim.reduce_Bps=1e11 -P %s --set %s",
                        worlds[_i], way));
    run_expect(&r, 0, way);
    json_t *rows = run_rows(r.out);
    us[i] = run_num(json_array_get(rows, 0), "simulated_us");
    json_decref(rows);
    run_free(&r);
  }
  ck_assert_msg(us[0] == us[1] && us[0] > 0, "%.6f us by the closed form, %.6f by messages", us[0], us[1]);
  run_remove(folder);
}
END_TEST

/* A calibrated machine says whether all collectives are of the sizes that it was fitted to: 1 MiB here. */
START_TEST(a_row_tells_whether_it_is_in_the_domain) {
  static const struct {
    const char *least, *most, *ranks, *domain;
  } rows[] = {{"1024", "1048576", "4", "in-domain"},   {"1024", "1048575", "4", "extrapolated"},
              {"1048577", "9e9", "4", "extrapolated"}, {"1024", "1048576", "3", "extrapolated"},
              {"1024", "1048576", "0", "in-domain"},   {"0", "0", "0", "extrapolated"}};
  char folder[64], least[64], most[64], ranks[64];
  run_result r;
  snprintf(least, sizeof least, "plugins.sim.domain_least_B=%s", rows[_i].least);
  snprintf(most, sizeof most, "plugins.sim.domain_most_B=%s", rows[_i].most);
  snprintf(ranks, sizeof ranks, "plugins.sim.domain_ranks=%s", rows[_i].ranks);
  run_make_folder(folder);
  run_bsrun(
      &r, folder, NULL,
      run_words(SIM "f32 --phase 1 --method row_parallel -P 4 --set plugins.sim.label=calibrated --set %s "
                    "--set %s --set %s",
                least, most, ranks));
  run_expect(&r, 0, "domain");
  json_t *out = run_rows(r.out);
  ck_assert_str_eq(run_str(json_array_get(out, 0), "domain"), rows[_i].domain);
  json_decref(out);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* Step by step: each as long as its closed form, and together the time of the run. */
START_TEST(explained) {
  char folder[64];
  run_result r;
  double sum = 0;
  run_make_folder(folder);
  run_bsrun(
      &r, folder, NULL,
      run_words(
          "sim explain --plugin sim --hardware sim-flat --method blockshock -P 64 --dtype f32 --bias off "
          "-o jsonl",
          NULL));
  run_expect(&r, 0, "explain");
  json_t *steps = run_rows(r.out);
  ck_assert_uint_eq(json_array_size(steps), 2);
  for (size_t i = 0; i < 2; i++) {
    const json_t *step = json_array_get(steps, i);
    check(step, "began", sum, run_str(step, "step"));
    check(step, "closed", run_num(step, "took"), run_str(step, "step"));
    sum += run_num(step, "took");
  }
  ck_assert_str_eq(run_str(json_array_get(steps, 0), "step"), "matmul");
  ck_assert_int_eq(strncmp(run_str(json_array_get(steps, 1), "step"), "all_reduce ", 11), 0);
  ck_assert(fabs(sum - 104.918586) < 1e-6);
  json_decref(steps);
  run_free(&r);
  run_bsrun(
      &r, folder, NULL,
      run_words(
          "sim explain --plugin sim --hardware sim-flat --method blockshock -P 64 --dtype f32 --bias off",
          NULL));
  run_expect(&r, 0, "explain");
  ck_assert_ptr_nonnull(
      strstr(r.out,
             "critical path over all ranks: 104.919 us = memory 0.631 + wire latency 63.000 + "
             "wire bytes 41.288; limit: latency\n"));
  for (const char *line = r.out; *line != '\0'; line += strcspn(line, "\n"), line += *line != '\0')
    ck_assert_msg(strcspn(line, "\n") <= 120, "a line of %zu characters", strcspn(line, "\n"));
  run_free(&r);
  run_bsrun(&r, folder, NULL, run_words("sim explain --method blockshock -P 2", NULL));
  run_expect(&r, 3, "explain without a simulated machine");
  ck_assert_ptr_nonnull(strstr(r.err, "BS-SIM-CLOCK"));
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* Many ranks of one process. 65,536 of them, 2 GiB, where there is time (make verify). */
static const struct {
  const char *line;
  double us;
  long mib;
  int big;
} many[] = {
    {SIM "f32 --phase 1 --method column_parallel -P 4096" ENDLESS, 2068.466400, 128, 0},
    {SIM "f32 --phase 1 --method row_parallel -P 4096" ENDLESS, 4136.932800, 128, 0},
    {SIM "f32 --phase 1 --method blockshock -P 4096" ENDLESS, 4136.932800, 128, 0},
    {SIM "f32 --phase 1 --method row_parallel -P 65536 --n 65536 --set method.bias=false" ENDLESS,
     66206.078400, 2048, 1},
};

START_TEST(many_ranks) {
  char folder[64];
  run_result r;
  struct rusage used;
  if (many[_i].big && getenv("BS_TEST_BIG") == NULL) return;
  run_make_folder(folder);
  run_bsrun(&r, folder, NULL, run_words(many[_i].line, NULL));
  run_expect(&r, 0, many[_i].line);
  json_t *rows = run_rows(r.out);
  check(json_array_get(rows, 0), "simulated_us", many[_i].us, many[_i].line);
  ck_assert_int_eq(getrusage(RUSAGE_CHILDREN, &used), 0);
  ck_assert_msg(BS_SLOW || used.ru_maxrss <= many[_i].mib * 1024, "%s: %ld KiB", many[_i].line,
                used.ru_maxrss);
  json_decref(rows);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* Both phases asked for: the one that judges is left out, and that is said. */
START_TEST(bare_runs_the_timed_phase) {
  char folder[64];
  run_result r;
  run_make_folder(folder);
  run_bsrun(&r, folder, NULL,
            run_words("--plugin sim --hardware sim-flat --method blockshock -P 64 --set model.dtype=f32 "
                      "--set method.bias=false --out out",
                      NULL));
  run_expect(&r, 0, "bare");
  ck_assert_ptr_nonnull(strstr(r.err, "backend sim holds no values: phase 0 is not run"));
  ck_assert_ptr_nonnull(
      strstr(r.out,
             "simulated, not measured: machine sim-flat (published), closed forms, no values; "
             "--backend virtual:ref judges numbers\n"));
  ck_assert_ptr_nonnull(strstr(r.out, "104.919"));
  ck_assert_ptr_nonnull(strstr(r.out, "MiB/device"));
  for (const char *line = r.out; *line != '\0'; line += strcspn(line, "\n"), line += *line != '\0')
    ck_assert_msg(
        strcspn(line, "\n") <= 120 || strncmp(line, "repeat", 6) == 0 || strncmp(line, "run", 3) == 0,
        "a line of %zu characters", strcspn(line, "\n"));
  ck_assert_uint_eq(run_count_files(folder, "DONE"), 1);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* Of 4,096 tokens on 8 GPUs column_parallel is the fastest: docs/simulator.md has the times. Nothing is
 * measured, and auto takes the first of the ladder. */
#define EIGHT "--plugin sim --hardware h100-dgx -P 8 --b 4096 --n 16384 --out out"
START_TEST(a_ladder_of_simulated_times) {
  char folder[64];
  run_result r;
  run_make_folder(folder);
  run_bsrun(
      &r, folder, NULL,
      run_words("ladder row_parallel blockshock column_parallel -o jsonl --masks contiguous " EIGHT, NULL));
  run_expect(&r, 0, "ladder");
  json_t *rows = run_rows(r.out);
  ck_assert_uint_eq(json_array_size(rows), 4);
  const json_t *row = json_array_get(rows, 0), *last = json_array_get(rows, 3);
  ck_assert_str_eq(run_str(row, "candidate"), "column_parallel");
  ck_assert(fabs(run_num(row, "simulated_us") - 608.5) < 0.1);
  ck_assert(fabs(run_num(row, "speedup") - 1574.1 / 608.5) < 0.01);
  ck_assert_str_eq(run_str(row, "against"), "row_parallel contiguous");
  ck_assert_str_eq(run_str(row, "domain"), "extrapolated");
  ck_assert(!json_is_number(json_object_get(row, "measured_ms")));
  ck_assert(!json_is_number(json_object_get(row, "predicted_ms")));
  ck_assert_str_eq(run_str(last, "candidate"), "dense on one device");
  json_decref(rows);
  run_free(&r);
  run_bsrun(&r, folder, NULL, run_words("--method auto --set auto.masks=[contiguous] " EIGHT, NULL));
  run_expect(&r, 0, "auto");
  ck_assert_msg(strstr(r.out, "simulated, not measured: a machine of published numbers") != NULL, "%s",
                r.out);
  ck_assert_msg(strstr(r.out, "column_parallel  8  4096") != NULL, "%s", r.out);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* Every rank sends at + 1 messages to the next one before it receives. */
static const struct {
  const char *buffering;
  int at, exit;
} ahead[] = {
    {"eager", 0, 0}, {"eager", 3, 0}, {"one_slot", 0, 0}, {"one_slot", 1, 8}, {"rendezvous", 0, 8},
};

START_TEST(a_program_that_leans_on_buffers) {
  char folder[64], line[400], id[64];
  run_result r;
  run_make_folder(folder);
  snprintf(
      line, sizeof line,
      "--plugin sim --plugin %s --hardware sim-flat --backend virtual:ref --method faulty -P 3 --phase 1 "
      "--out out --b 4 --n 32 --set model.dtype=f32 --set method.fault=ahead --set method.at=%d --set "
      "plugins.sim.buffering=%s",
      BS_TEST_E2E_DIR "/bs_faulty.so", ahead[_i].at, ahead[_i].buffering);
  run_bsrun(&r, folder, NULL, run_words(line, NULL));
  run_expect(&r, ahead[_i].exit, line);
  if (ahead[_i].exit != 0) {
    run_expect_error(&r, 1, id, line);
    ck_assert_str_eq(id, "BS-SIM-STUCK");
    ck_assert_msg(strstr(r.err, "cycle 0 -> 1 -> 2 -> 0") != NULL && strstr(r.err, "faulty.ahead") != NULL,
                  "%s: %s", line, r.err);
  }
  run_free(&r);
  run_remove(folder);
}
END_TEST

START_TEST(refused) {
  static const char *const common[] = {"--plugin", "sim", "--hardware", "sim-flat", "--out", "out", NULL};
  static const run_bad rows[] = {
      {"numbers without values",
       3,
       "BS-SIM-VALUES",
       "--backend virtual:ref",
       {"--method", "blockshock", "--phase", "0", NULL}},
      {"overlap by measured times",
       3,
       "BS-SIM-OVERLAP",
       NULL,
       {"--method", "row_parallel", "-P", "2", "--phase", "1", "--set", "method.overlap=auto", NULL}},
      {"ranks that are processes",
       3,
       "BS-SIM-LAUNCH",
       NULL,
       {"--method", "row_parallel", "-P", "2", "--phase", "1", "--launch", "processes", NULL}},
      {"a machine on which nothing takes time",
       3,
       "BS-SIM-MACHINE",
       "--hardware h100-dgx",
       {"--method", "dense", "--phase", "1", "--set", "plugins.sim.flops=0", "--set", "plugins.sim.mem_Bps=0",
        NULL}},
      {"a rate below 0",
       3,
       "BS-PLG-PARAM",
       "plugins.sim.bw_Bps",
       {"--method", "dense", "--phase", "1", "--set", "plugins.sim.bw_Bps=-1", NULL}},
      {"a device that is too small",
       10,
       "BS-SIM-MEMORY",
       NULL,
       {"--method", "dense", "--phase", "1", "--set", "plugins.sim.mem_bytes=1000", NULL}},
      {"a device with values that is too small",
       10,
       "BS-SIM-MEMORY",
       "a simulated device of 1000 bytes",
       {"--backend", "virtual:ref", "--method", "dense", "--phase", "0", "--n", "64", "--set",
        "plugins.sim.mem_bytes=1000", NULL}},
      {"a device with values that has no room for a plan",
       10,
       "BS-SIM-MEMORY",
       "a simulated device of 150000 bytes",
       {"--backend", "virtual:ref", "--method", "row_parallel", "-P", "2", "--phase", "0", "--b", "64", "--n",
        "256", "--set", "plugins.sim.mem_bytes=150000", NULL}},
      {"virtual devices and measured ranks",
       3,
       "BS-SIM-CLOCK",
       "--comm sim",
       {"--method", "dense", "--phase", "1", "--comm", "threads", NULL}},
  };
  char folder[64];
  run_make_folder(folder);
  run_check_bad(folder, NULL, common, &rows[_i]);
  run_remove(folder);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_answers, TEST_COUNT(answers)},
                             {a_row_tells_whether_it_is_in_the_domain, 6},
                             {explained},
                             {algorithms_message_by_message, 2 * TEST_COUNT(algorithms)},
                             {a_topology_of_groups},
                             {rings_are_their_closed_form, 3},
                             {many_ranks, TEST_COUNT(many)},
                             {bare_runs_the_timed_phase},
                             {a_ladder_of_simulated_times},
                             {a_program_that_leans_on_buffers, TEST_COUNT(ahead)},
                             {refused, 9},
                             {0}};
  return run_tests("run_sim", tests, (test_setup){.timeout = 600, .at_once = 4});
}
