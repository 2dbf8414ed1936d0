/* SPDX-License-Identifier: MIT
 * test_bsrun_constants.c - phase 1 takes the machine's constants from the user's cache folder when they are
 * of this machine and build, and measures when they are not, or unwanted. test_bsrun_measure.c makes them. */
#include <math.h>

#include "tests/bsrun/constants_run.h"
#include "tests/run_tests.h"

START_TEST(stored_constants_are_used) {
  ran r;
  json_t *constants = round_constants("ref");
  store(constants);
  json_t *machine = phase1(NULL, NULL, &r);
  must_say(machine, "stored");
  ck_assert_str_eq(json_string_value(json_object_get(machine, "measured_at")), "20300102_030405");
  ck_assert(json_number_value(json_object_get(machine, "flops_core")) == 1e9);
  ck_assert(json_number_value(json_object_get(machine, "read_bytes_per_s_core")) == 4e10);
  ck_assert(json_number_value(json_object_get(machine, "all_reduce_4B_s")) == 1e-6);
  ck_assert(json_number_value(json_object_get(machine, "host_s")) == 2e-6);
  ck_assert_ptr_null(strstr(r.err, "BS-CONSTANTS"));
  json_decref(machine);
  ran_free(&r);
  machine = phase1("--cache", "off", &r);
  must_say(machine, "measured");
  ck_assert(json_number_value(json_object_get(machine, "flops_core")) != 1e9);
  json_decref(machine);
  ran_free(&r);
  machine = phase1("--cache", "nowhere.json", &r); /* there is no such file: no reason to say anything */
  must_say(machine, "measured");
  ck_assert_ptr_null(strstr(r.err, "BS-CONSTANTS"));
  json_decref(machine);
  ran_free(&r);
  machine = phase1("--set", "model.dtype=f64", &r); /* not among them */
  must_say(machine, "measured");
  json_decref(machine);
  ran_free(&r);
  json_decref(constants);
}
END_TEST

/* The kernel in the record of the method's arm, and that bound, prediction and quotient are beside it. */
static json_t *kernel_of(const ran *r) {
  json_t *record = load(run_folder(r, dir, 0), "metrics.jsonl");
  const json_t *arm = json_array_get(json_object_get(record, "arms"), 0);
  json_t *kernel = json_incref(json_object_get(arm, "kernel"));
  ck_assert_ptr_nonnull(json_object_get(arm, "bound_s"));
  ck_assert(json_is_object(json_object_get(arm, "predicted_s")));
  ck_assert(json_number_value(json_object_get(arm, "measured_over_predicted")) > 0);
  json_decref(record);
  return kernel;
}

static const char *text_in(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  ck_assert_msg(text != NULL, "no %s", key);
  return text;
}

/* The screen breaks lines between any two words: one space for each break. */
static void unfold(char *text) {
  char *to = text;
  for (const char *p = text; *p != '\0'; ++p) {
    const int space = *p == ' ' || *p == '\n';
    if (!space || to == text || to[-1] != ' ') *to++ = space ? ' ' : *p;
  }
  *to = '\0';
}

/* Rates are used when name, answer and plugin are those that serve; an answer of another instruction set is
 * another kernel's, and the run measures. */
START_TEST(stored_rates_of_the_kernel_that_serves) {
  static const char *const columns[] = {" ms a forward (", "): ", " GFLOP/s, ", "this machine's limit"};
  ran r;
  json_t *constants = round_constants("ref");
  store(constants);
  json_decref(phase1(NULL, NULL, &r));
  json_t *kernel = kernel_of(&r);
  unfold(r.out);
  for (size_t i = 0; i < 4; i++) ck_assert_msg(strstr(r.out, columns[i]) != NULL, "no %s", columns[i]);
  const int off = strstr(r.out, " predicted: ") != NULL && strstr(r.out, " % off): ") != NULL;
  ck_assert_msg(off || strstr(r.out, " predicted): ") != NULL, "no prediction: %s", r.out);
  ran_free(&r);
  ck_assert_str_eq(text_in(kernel, "source"), "measured");
  ck_assert_str_eq(text_in(kernel, "name"), "ref:portable");
  round_kernel(constants, "ref", "ref:portable", text_in(kernel, "how"), text_in(kernel, "plugin"));
  store(constants);
  json_decref(kernel);
  json_decref(phase1("--set", "model.dtype=f32", &r));
  kernel = kernel_of(&r);
  ran_free(&r);
  ck_assert_str_eq(text_in(kernel, "source"), "stored");
  ck_assert(json_number_value(json_object_get(kernel, "flops_all")) == 2e9);
  json_decref(kernel);
  json_t *list = json_object_get(constants, "kernels");
  for (size_t i = 0; i < 2; i++)
    json_object_set_new(json_array_get(list, i), "how", json_string("portable, with AVX9"));
  store(constants);
  json_decref(phase1("--set", "model.dtype=f32", &r));
  kernel = kernel_of(&r);
  ran_free(&r);
  ck_assert_str_eq(text_in(kernel, "source"), "measured");
  json_decref(kernel);
  json_decref(constants);
}
END_TEST

/* Rank 1 has 48 of 64 columns, at 1 GFLOP/s. */
START_TEST(the_slowest_ranks_time_counts) {
  json_t *constants = round_constants("ref");
  store(constants);
  ran r = bsrun(dir, "--method", "blockshock", "--plugin", "ref", "--phase", "1", SMALL, "-P", "2",
                "--threads", "1", "--set", "mask.name=uneven", "--set", "mask.shares=[1,3]", "--set",
                "model.dtype=bf16", "--set", "phase.dense_arm=false", NULL);
  must_be(&r, 0);
  json_t *record = load(run_folder(&r, dir, 0), "metrics.jsonl");
  const json_t *arm = json_array_get(json_object_get(record, "arms"), 0);
  const double compute = json_number_value(json_object_get(json_object_get(arm, "bound_s"), "compute"));
  const double flops = 2.0 * 8 * 64 * 48;
  ck_assert_msg(fabs(compute - flops / 1e9) < 1e-12, "%g", compute);
  const json_t *kernel = json_object_get(arm, "kernel");
  const double core = json_number_value(json_object_get(kernel, "flops_core"));
  const double half = json_number_value(json_object_get(kernel, "flops_all")) / 2;
  const int all = json_integer_value(json_object_get(json_object_get(record, "machine"), "threads")) <= 2;
  const double wanted = flops / (all || half < core ? half : core);
  const double got = json_number_value(json_object_get(json_object_get(arm, "predicted_s"), "compute"));
  ck_assert_msg(fabs(got - wanted) < 1e-9 * wanted, "%g, wanted %g", got, wanted);
  json_decref(record);
  ran_free(&r);
  json_decref(constants);
}
END_TEST

/* Constants of a machine a million times slower: what is measured cannot be, and no share of it is told. */
START_TEST(a_time_below_its_bound_is_told) {
  json_t *constants = round_constants("ref"), *list = json_object_get(constants, "arithmetic"), *row;
  size_t i;
  ran r;
  json_array_foreach(list, i, row) {
    json_object_set_new(row, "flops_core", json_real(1e3));
    json_object_set_new(row, "flops_all", json_real(2e3));
  }
  store(constants);
  json_decref(phase1(NULL, NULL, &r));
  json_t *record = load(run_folder(&r, dir, 0), "metrics.jsonl");
  const json_t *arm = json_array_get(json_object_get(record, "arms"), 0);
  ck_assert(json_is_true(json_object_get(arm, "below_bound")));
  ck_assert(json_is_null(json_object_get(arm, "share_of_limit")));
  char *warnings = json_dumps(json_object_get(record, "measuring_warnings"), 0);
  ck_assert_msg(strstr(warnings, "is below the bound") != NULL, "%s", warnings);
  free(warnings);
  json_decref(record);
  json_decref(constants);
  ran_free(&r);
}
END_TEST

/* Another machine's: left alone and said. */
START_TEST(another_machines_are_told) {
  ran r;
  json_t *constants = round_constants("ref"), *key = json_object_get(constants, "key");
  json_object_set_new(key, "cpu", json_string("Zilog Z80"));
  store(constants);
  json_t *machine = phase1(NULL, NULL, &r);
  must_say(machine, "measured");
  ck_assert_ptr_nonnull(strstr(r.err, "bsrun: note: [BS-CONSTANTS-KEY]"));
  ck_assert_ptr_nonnull(strstr(r.err, "Zilog Z80"));
  json_decref(machine);
  ran_free(&r);
  r = bsrun(dir, "doctor", "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "BS-CONSTANTS-KEY"));
  ran_free(&r);
  json_decref(constants);
}
END_TEST

START_TEST(the_home_folder) {
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", dir, 1);
  json_t *constants = round_constants("ref");
  snprintf(cache, sizeof cache, "%s/.cache/blockshock", dir);
  store(constants);
  ran r = bsrun(dir, "doctor", "--backend", "ref", "-P", "1", "-o", "csv", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(
      r.out, "measured at 20300102_030405 (load 0.1 before, others took 1 % of the processors' time), in "));
  ran_free(&r);
  r = bsrun(dir, "doctor", "--backend", "ref", "-P", "1", "--cache", "off", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "not kept"));
  ran_free(&r);
  json_decref(constants);
}
END_TEST

int main(void) {
  const test_case tests[] = {{stored_constants_are_used},
                             {stored_rates_of_the_kernel_that_serves},
                             {the_slowest_ranks_time_counts},
                             {a_time_below_its_bound_is_told},
                             {another_machines_are_told},
                             {the_home_folder},
                             {0}};
  return run_tests("bsrun_constants", tests, (test_setup){setup, dir_remove});
}
