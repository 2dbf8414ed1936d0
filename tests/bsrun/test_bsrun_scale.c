/* SPDX-License-Identifier: MIT
 * test_bsrun_scale.c - `bsrun sim scale`: rows over methods and numbers of ranks with the known times of a
 * ring, both kinds of scaling, the plot, and points that a method refuses. */
#include <jansson.h>
#include <math.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

#define WIRE "--set", "plugins.sim.flops=0", "--set", "plugins.sim.mem_Bps=0", "--dtype", "f32"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static json_t *rows_of(ran *r, size_t n) {
  must_be(r, 0);
  json_t *rows = json_loads(r->out, 0, NULL);
  ck_assert_msg(json_array_size(rows) == n, "%zu rows: %s", json_array_size(rows), r->out);
  ran_free(r);
  return rows;
}

static double number(const json_t *rows, size_t i, const char *key) {
  return json_number_value(json_object_get(json_array_get(rows, i), key));
}

/* N = 4096, B = 64, f32: the all-reduce of 1 MiB at 0.5 us and 50 GB/s is all that takes time. */
START_TEST(a_ring_over_the_ranks) {
  static const double ranks[] = {2, 8, 64, 2, 8, 64},
                      us[] = {21.971520, 43.700160, 104.287680, 21.971520, 43.700160, 104.287680};
  ran r = bsrun(dir, "sim", "scale", "--method", "blockshock,row_parallel", "-P", "2,8,64", WIRE, "-o",
                "json", NULL);
  json_t *rows = rows_of(&r, 6);
  for (size_t i = 0; i < 6; i++) {
    ck_assert(number(rows, i, "world_size") == ranks[i]);
    ck_assert_msg(fabs(number(rows, i, "simulated_us") - us[i]) < 1e-6, "row %zu", i);
    ck_assert(number(rows, i, "wire_latency_us") == ranks[i] - 1);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, i), "limit")),
                     ranks[i] == 64 ? "latency" : "wire"); /* 63 us against 41.29 */
  }
  json_decref(rows);
}
END_TEST

/* More GPUs than the machine has: said in one line, with a better algorithm; --algorithm takes it. */
START_TEST(beyond_the_machine) {
  ran r = bsrun(dir, "sim", "scale", "--method", "blockshock", "-P", "8,512", "--hardware", "h100-dgx", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.err,
                               "h100-dgx has 8 GPUs on one switch; 512 were simulated as one ring: --set "
                               "hardware.algorithm=halving_doubling"));
  ck_assert_ptr_nonnull(strstr(r.out, "latency"));
  ran_free(&r);
  r = bsrun(dir, "sim", "scale", "--method", "blockshock", "-P", "8", "--hardware", "h100-dgx", NULL);
  ck_assert_ptr_null(strstr(r.err, "GPUs on one switch"));
  ran_free(&r);
  r = bsrun(dir, "--plugin", "sim", "--hardware", "h100-dgx", "--method", "blockshock", "--phase", "1", "-P",
            "64", "--out", "off", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "has 8 GPUs on one switch; 64 were simulated as one ring"));
  ran_free(&r);
  r = bsrun(dir, "sim", "scale", "--method", "blockshock", "-P", "16,512", "--hardware", "h100-cluster", "-o",
            "json", NULL);
  ck_assert_ptr_null(strstr(r.err, "GPUs on one switch"));
  json_t *rows = rows_of(&r, 2);
  ck_assert(number(rows, 1, "simulated_us") < 200);
  json_decref(rows);
}
END_TEST

START_TEST(an_algorithm_is_named_or_found) {
  static const char *const names[] = {"halving_doubling", "doubling", "best"};
  double us[3], ring;
  ran r = bsrun(dir, "sim", "scale", "--method", "blockshock", "-P", "256", "--hardware", "h100-dgx", "-o",
                "json", NULL);
  json_t *rows = rows_of(&r, 1);
  ring = number(rows, 0, "simulated_us");
  json_decref(rows);
  for (int i = 0; i < 3; i++) {
    r = bsrun(dir, "sim", "scale", "--method", "blockshock", "-P", "256", "--hardware", "h100-dgx", "-o",
              "json", "--algorithm", names[i], NULL);
    rows = rows_of(&r, 1);
    us[i] = number(rows, 0, "simulated_us");
    ck_assert_str_ne(json_string_value(json_object_get(json_array_get(rows, 0), "algorithm")), "best");
    json_decref(rows);
  }
  ck_assert(us[2] <= us[0] && us[2] <= us[1] && us[2] < ring / 5);
  r = bsrun(dir, "sim", "scale", "--algorithm", "rng", "-P", "2,4", NULL);
  must_be(&r, 3);
  ck_assert_ptr_nonnull(strstr(r.err, "'ring'"));
  ran_free(&r);
  r = bsrun(dir, "sim", "scale", "--algorithm", "ring", "--set", "hardware.algorithm=ring", NULL);
  must_be(&r, 2);
  ran_free(&r);
}
END_TEST

/* Strong: the arithmetic of a rank falls with P. Weak: it stays as it is. */
START_TEST(strong_and_weak) {
  ran r = bsrun(dir, "sim", "scale", "--method", "row_parallel", "-P", "1:8*2", "--hardware", "h100-dgx",
                "--n", "16384", "--b", "4096", "-o", "json", NULL);
  json_t *rows = rows_of(&r, 4);
  for (size_t i = 1; i < 4; i++)
    ck_assert(
        fabs(number(rows, 0, "compute_us") / number(rows, i, "compute_us") / number(rows, i, "world_size") -
             1) < 1e-3);
  ck_assert(number(rows, 0, "efficiency") == 1 && number(rows, 3, "efficiency") < 1);
  json_decref(rows);
  r = bsrun(dir, "sim", "scale", "--method", "row_parallel", "-P", "1:7+3", "--hardware", "h100-dgx", "--b",
            "4096", "--weak", "b", "-o", "json", NULL);
  rows = rows_of(&r, 3);
  ck_assert(number(rows, 2, "world_size") == 7 && number(rows, 2, "B") == 7 * 4096);
  ck_assert(fabs(number(rows, 0, "compute_us") / number(rows, 1, "compute_us") - 1) < 1e-3);
  json_decref(rows);
}
END_TEST

START_TEST(a_plot_has_a_bar_for_each_row) {
  ran r = bsrun(dir, "sim", "scale", "--method", "row_parallel,column_parallel", "-P", "2,4", WIRE, "-o",
                "svg", NULL);
  must_be(&r, 0);
  size_t bars = 0;
  for (const char *p = r.out; (p = strstr(p, "wire bytes: ")) != NULL; p++) bars++;
  ck_assert_uint_eq(bars, 4);
  ck_assert(strncmp(r.out, "<svg ", 5) == 0 && strstr(r.out, "not measured") != NULL);
  ck_assert_str_eq(r.out + strlen(r.out) - 7, "</svg>\n");
  ran_free(&r);
}
END_TEST

/* Fixed masks of two patterns take even numbers of ranks. */
START_TEST(a_refused_point_is_named) {
  ran r = bsrun(dir, "sim", "scale", "--method", "blockshock", "-P", "2,3,4", "-o", "csv", NULL);
  must_be(&r, 12);
  ck_assert_msg(
      strstr(r.err, "blockshock on 3 ranks is left out") != NULL && strstr(r.err, "1 of 3 points") != NULL,
      "%s", r.err);
  size_t lines = 0;
  for (const char *p = r.out; (p = strchr(p, '\n')) != NULL; p++) lines++;
  ck_assert_uint_eq(lines, 3);
  ran_free(&r);
}
END_TEST

static const struct {
  const char *option, *value, *id;
  int exit;
} wrong[] = {{"-P", "0", "BS-USE-NUMBER", 2},
             {"-P", "2:", "BS-USE-NUMBER", 2},
             {"-P", "2:8*1", "BS-USE-NUMBER", 2},
             {"-P", "8:2", "BS-USE-NUMBER", 2},
             {"-P", "2,x", "BS-USE-NUMBER", 2},
             {"--weak", "m", "BS-USE-CHOICE", 2},
             {"--method", "a,,b", "BS-USE-CHOICE", 2},
             {"--method", "rowparallel", "row_parallel", 3},
             {"--hardware", "h100", "h100", 3},
             {"-o", "pdf", "BS-USE-FORMAT", 2},
             {"--set", "hardware.comm=threads", "BS-SIM-CLOCK", 2}};

START_TEST(what_is_wrong_is_named) {
  ran r = bsrun(dir, "sim", "scale", wrong[_i].option, wrong[_i].value, NULL);
  ck_assert_msg(r.code == wrong[_i].exit && strstr(r.err, wrong[_i].id) != NULL, "%s %s: exit %d: %s",
                wrong[_i].option, wrong[_i].value, r.code, r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{beyond_the_machine},
                             {an_algorithm_is_named_or_found},
                             {a_ring_over_the_ranks},
                             {strong_and_weak},
                             {a_plot_has_a_bar_for_each_row},
                             {a_refused_point_is_named},
                             {what_is_wrong_is_named, TEST_COUNT(wrong)},
                             {0}};
  return run_tests("bsrun_scale", tests, (test_setup){setup, teardown});
}
