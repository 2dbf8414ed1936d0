/* SPDX-License-Identifier: MIT
 * test_bsrun_constants.c - `doctor --measure` keeps the machine's constants in the user's cache folder; phase
 * 1 takes them when they are of this machine and build, and measures when they are not, broken, or unwanted.
 */
#include <math.h>

#include "tests/bsrun/constants_file.h"
#include "tests/bsrun/spawn.h"

static const char *dir;
static char cache[700]; /* dir/cache/blockshock */
static void setup(void) {
  char xdg[600];
  dir = scratch_dir();
  snprintf(xdg, sizeof xdg, "%s/cache", dir);
  snprintf(cache, sizeof cache, "%s/blockshock", xdg);
  setenv("XDG_CACHE_HOME", xdg, 1);
}
static void teardown(void) {
  remove_dir(dir);
}

static json_t *load(const char *folder, const char *name) {
  char *text = read_text(folder, name);
  ck_assert_msg(text != NULL, "there is no %s/%s", folder, name);
  json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(value != NULL, "%s", text);
  free(text);
  return value;
}

static void store(const json_t *constants) {
  char command[800];
  char *text = json_dumps(constants, 0);
  snprintf(command, sizeof command, "mkdir -p '%s'", cache);
  ck_assert_int_eq(system(command), 0);
  write_text(cache, "machine.json", text);
  free(text);
}

/* The record's machine of a phase 1 of blockshock on ref; the caller releases. */
static json_t *phase1(const char *option, const char *value, ran *out) {
  *out = bsrun(dir, "--method", "blockshock", "--plugin", "ref", "--phase", "1", SMALL, option, value, NULL);
  must_be(out, 0);
  json_t *record = load(run_folder(out, dir, 0), "metrics.jsonl");
  json_t *machine = json_incref(json_object_get(record, "machine"));
  ck_assert_ptr_nonnull(machine);
  json_decref(record);
  return machine;
}

static void must_say(const json_t *machine, const char *source) {
  ck_assert_str_eq(json_string_value(json_object_get(machine, "source")), source);
  ck_assert_int_eq(json_object_get(machine, "measured_at") != NULL, strcmp(source, "stored") == 0);
}

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

/* Rates are used when name, answer and plugin are those that serve; an answer of another instruction set is
 * another kernel's, and the run measures. */
START_TEST(stored_rates_of_the_kernel_that_serves) {
  static const char *const columns[] = {"predicted ms", "ms/predicted", "bound ms", "limit"};
  ran r;
  json_t *constants = round_constants("ref");
  store(constants);
  json_decref(phase1(NULL, NULL, &r));
  json_t *kernel = kernel_of(&r);
  for (size_t i = 0; i < 4; i++) ck_assert_msg(strstr(r.out, columns[i]) != NULL, "no %s", columns[i]);
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
                "--threads-per-rank", "1", "--set", "mask.name=uneven", "--set", "mask.shares=[1,3]", "--set",
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

START_TEST(a_corrupt_file_is_warned_of_and_rewritten) {
  ran r;
  json_t *none = json_object();
  store(none);
  write_text(cache, "machine.json", "{\"format\": 2, \"key\"");
  json_t *machine = phase1(NULL, NULL, &r);
  must_say(machine, "measured");
  ck_assert_ptr_nonnull(strstr(r.err, "bsrun: warning: [BS-CONSTANTS-FILE]"));
  json_decref(machine);
  ran_free(&r);
  r = bsrun(dir, "doctor", "--measure", "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.err, "bsrun: warning: [BS-CONSTANTS-FILE]"));
  ck_assert_ptr_nonnull(strstr(r.out, "memory bandwidth"));
  ck_assert_ptr_nonnull(strstr(r.out, "all-reduce cost"));
  ck_assert_ptr_nonnull(strstr(r.out, "ref f32"));
  ran_free(&r);
  json_t *fresh = load(cache, "machine.json"), *own = bs_constants_key();
  ck_assert(json_equal(json_object_get(fresh, "key"), own));
  ck_assert_int_eq((int)json_integer_value(json_object_get(fresh, "format")), BS_CONSTANTS_FORMAT);
  ck_assert_uint_eq(json_array_size(json_object_get(fresh, "arithmetic")), 4);
  ck_assert_uint_ge(json_array_size(json_object_get(fresh, "host")), 1);
  ck_assert_uint_ge(json_array_size(json_object_get(fresh, "kernels")), 3); /* dtypes of ref */
  machine = phase1(NULL, NULL, &r);
  must_say(machine, "stored");
  json_decref(machine);
  ran_free(&r);
  json_decref(own);
  json_decref(fresh);
  json_decref(none);
  char command[800];
  snprintf(command, sizeof command, "test \"$(ls -A '%s')\" = machine.json",
           cache); /* no temporary is left */
  ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(the_home_folder_or_a_given_file) {
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", dir, 1);
  json_t *constants = round_constants("ref");
  snprintf(cache, sizeof cache, "%s/.cache/blockshock", dir);
  store(constants);
  ran r = bsrun(dir, "doctor", "--backend", "ref", "-P", "1", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "measured at 20300102_030405, in "));
  ran_free(&r);
  r = bsrun(dir, "doctor", "--backend", "ref", "-P", "1", "--cache", "off", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "not kept"));
  ran_free(&r);
  write_text(dir, "file", "");
  r = bsrun(dir, "doctor", "--measure", "--backend", "ref", "-P", "1", "--cache", "file/machine.json", NULL);
  must_be(&r, 5); /* measured, but it cannot be kept */
  ck_assert_ptr_nonnull(strstr(r.out, "BS-CONSTANTS-IO"));
  ran_free(&r);
  json_decref(constants);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("bsrun_constants");
  TCase *tc = tcase_create("constants");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_test(tc, stored_constants_are_used);
  tcase_add_test(tc, stored_rates_of_the_kernel_that_serves);
  tcase_add_test(tc, the_slowest_ranks_time_counts);
  tcase_add_test(tc, another_machines_are_told);
  tcase_add_test(tc, a_corrupt_file_is_warned_of_and_rewritten);
  tcase_add_test(tc, the_home_folder_or_a_given_file);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
