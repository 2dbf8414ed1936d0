/* SPDX-License-Identifier: MIT
 * test_record.c - the record's fields, the run's key, env.json, and that no NaN reaches JSON. */
#include "lab/store/record.h"

#include <math.h>

#include "core/base/memory.h"
#include "lab/config/experiment.h"
#include "lab/store/env.h"
#include "lab/store/file_sum.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static bs_experiment make(const char *yaml) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  ck_assert_msg(bs_experiment_make(NULL, parse_tree(yaml), NULL, NULL, &e, &err) == BS_OK, "%s", err.message);
  return e;
}

#define BASE "method: {name: dense}\nmodel: {dtype: bf16, N: 8, B: 2}\nexperiment: {seed: 5}\n"

static void key_of(const char *yaml, const char *plugins, uint32_t world, char out[65]) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e = make(yaml);
  json_t *list = json_loads(plugins, 0, NULL);
  ck_assert_int_eq(bs_record_key(&e, e.config, list, world, NULL, out, &err), BS_OK);
  json_decref(list);
  bs_experiment_free(&e);
}

START_TEST(the_key_is_of_what_changes_a_result) {
  char base[65], other[65];
  key_of(BASE, "[]", 1, base);
  key_of(BASE, "[]", 1, other);
  ck_assert_str_eq(base, other);
  key_of(BASE "run_id: x\nconfig_paths: [a]\nlogging: {out_dir: elsewhere}\n", "[]", 1, other);
  ck_assert_str_eq(base, other);
  key_of(BASE, "[]", 2, other);
  ck_assert_str_ne(base, other);
  key_of(BASE, "[{\"id\": \"a\", \"sha256\": \"1\"}]", 1, other);
  ck_assert_str_ne(base, other);
  key_of(BASE "mask: {name: interleave}\n", "[]", 1, other);
  ck_assert_str_ne(base, other);
  key_of("method: {name: dense}\nmodel: {dtype: bf16, N: 8, B: 2}\nexperiment: {seed: 6}\n", "[]", 1, other);
  ck_assert_str_ne(base, other);
}
END_TEST

START_TEST(the_key_covers_input_files) {
  const char *dir = scratch_dir();
  char yaml[1024], one[65], two[65], three[65];
  write_text(dir, "w.npy", "content one");
  snprintf(yaml, sizeof yaml, BASE "workload: {type: file, weights: \"%s/w.npy#layer\"}\n", dir);
  key_of(yaml, "[]", 1, one);
  key_of(yaml, "[]", 1, two);
  write_text(dir, "w.npy", "content two");
  key_of(yaml, "[]", 1, three);
  ck_assert_str_eq(one, two);
  ck_assert_str_ne(one, three);
  snprintf(yaml, sizeof yaml, BASE "mask: {name: importance, importance: \"%s/w.npy\"}\n", dir);
  key_of(yaml, "[]", 1, one);
  write_text(dir, "w.npy", "content three");
  key_of(yaml, "[]", 1, two);
  ck_assert_str_ne(one, two);
  remove_dir(dir);
}
END_TEST

START_TEST(the_phases_fields_join_ours) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e = make(BASE);
  json_t *plugins = json_array();
  json_t *record = bs_record_start(&e, "id", plugins);
  ck_assert_ptr_nonnull(record);
  bs_phase_result result = {0};
  result.record = json_pack("{s:i, s:s, s:s, s:f}", "world_size", 2, "method", "other", "new_field", "x",
                            "max_abs_error", 0.5);
  result.passed = 1;
  result.n_gates = 1;
  snprintf(result.gates[0].name, sizeof result.gates[0].name, "T1");
  result.gates[0].state = BS_GATE_PASS;
  result.gates[0].value = NAN;
  result.gates[0].limit = 2;
  ck_assert_int_eq(bs_record_finish(record, &result, &err), BS_OK);
  ck_assert_int_eq(json_integer_value(json_object_get(record, "world_size")), 2);
  ck_assert_str_eq(json_string_value(json_object_get(record, "method")), "dense"); /* set first, kept */
  ck_assert_str_eq(json_string_value(json_object_get(record, "new_field")), "x");
  ck_assert_str_eq(json_string_value(json_object_get(record, "dtype")), "bf16");
  ck_assert_str_eq(json_string_value(json_object_get(record, "status")), "ok");
  ck_assert(json_is_true(json_object_get(record, "passed")));
  const json_t *gate = json_array_get(json_object_get(record, "gates"), 0);
  ck_assert(json_is_null(json_object_get(gate, "value")));
  ck_assert_str_eq(json_string_value(json_object_get(gate, "state")), "pass");
  char *text = json_dumps(record, JSON_COMPACT);
  ck_assert_ptr_nonnull(text);
  ck_assert_ptr_null(strstr(text, "NaN"));
  static const char *const fields[] = {"timestamp_unix", "run_id",  "phase",
                                       "seed",           "plugins", "library_build_id"};
  for (size_t i = 0; i < 6; i++) ck_assert_msg(json_object_get(record, fields[i]) != NULL, "%s", fields[i]);
  free(text);
  json_decref(result.record);
  json_decref(record);
  json_decref(plugins);
  bs_experiment_free(&e);
}
END_TEST

START_TEST(a_failed_record_says_why) {
  bs_experiment e = make(BASE);
  json_t *plugins = json_array();
  json_t *record = bs_record_start(&e, "id", plugins);
  bs_error why = BS_ERROR_INIT;
  bs_error_set(&why, BS_DEADLINE, "BS-COLL-LATE", "rank 1 is late \xff");
  why.rank = 1;
  ck_assert_int_eq(bs_record_failed(record, &why), BS_OK);
  const json_t *error = json_object_get(record, "error");
  ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "DEADLINE");
  ck_assert_str_eq(json_string_value(json_object_get(error, "id")), "BS-COLL-LATE");
  ck_assert_int_eq(json_integer_value(json_object_get(error, "rank")), 1);
  ck_assert_str_eq(json_string_value(json_object_get(record, "status")), "failed");
  ck_assert(json_is_false(json_object_get(record, "passed")));
  json_decref(record);
  json_decref(plugins);
  bs_experiment_free(&e);
}
END_TEST

START_TEST(numbers_that_json_lacks_are_null) {
  json_t *values[] = {bs_record_number(NAN), bs_record_number(INFINITY), bs_record_number(1.5)};
  ck_assert(json_is_null(values[0]) && json_is_null(values[1]));
  ck_assert(json_real_value(values[2]) == 1.5);
  for (size_t i = 0; i < 3; i++) json_decref(values[i]);
}
END_TEST

START_TEST(the_environment_is_an_allow_list) {
  setenv("OMP_NUM_THREADS", "3", 1);
  setenv("BS_REF_X", "\xff\xfe", 1);
  setenv("MY_SECRET_TOKEN", "do not store", 1);
  json_t *env = bs_env_collect(NULL);
  ck_assert_ptr_nonnull(env);
  char *text = bs_env_text(env);
  ck_assert_ptr_nonnull(text);
  ck_assert_ptr_null(strstr(text, "do not store"));
  ck_assert_ptr_null(strstr(text, "MY_SECRET_TOKEN"));
  const json_t *variables = json_object_get(env, "variables");
  ck_assert_str_eq(json_string_value(json_object_get(variables, "OMP_NUM_THREADS")), "3");
  ck_assert_str_eq(json_string_value(json_object_get(variables, "BS_REF_X")), "(not UTF-8)");
  ck_assert(json_integer_value(json_object_get(json_object_get(env, "cpu"), "cores_online")) >= 1);
  ck_assert(json_array_size(json_object_get(json_object_get(env, "cpu"), "affinity")) >= 1);
  ck_assert(json_is_string(json_object_get(json_object_get(env, "system"), "kernel")));
  ck_assert(json_integer_value(json_object_get(json_object_get(env, "system"), "memory_total_bytes")) >
            1 << 20);
  ck_assert_str_eq(json_string_value(json_object_get(json_object_get(env, "build"), "blockshock")),
                   bs_version());
  ck_assert(json_is_string(json_object_get(json_object_get(env, "system"), "host")));
  const json_t *cores = json_object_get(json_object_get(env, "cpu"), "core_map");
  json_t *library = NULL;
  ck_assert_uint_eq(json_array_size(json_array_get(cores, 0)), 4);
  size_t i;
  json_array_foreach(json_object_get(env, "libraries"), i, library) {
    const char *path = json_string_value(json_object_get(library, "path"));
    if (strstr(path, "libc.so") != NULL) break;
  }
  ck_assert(library != NULL && json_is_string(json_object_get(library, "build_id")));
  /* sorted keys, indent 2 */
  ck_assert(strncmp(text, "{\n  \"build\": {\n    \"blockshock\"", 30) == 0);
  ck_assert(text[strlen(text) - 1] == '\n');
  free(text);
  json_decref(env);
  ck_assert(bs_memory_available("") > 0);
}
END_TEST

START_TEST(open_plugins_are_listed_with_their_sums) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  json_t *list = NULL;
  ck_assert_int_eq(bs_context_open(&options, &context, &err), BS_OK);
  ck_assert_int_eq(bs_env_plugins(context, &list, &err), BS_OK);
  const size_t before = json_array_size(list);
  json_decref(list);
  ck_assert_int_eq(bs_plugin_activate(context, "ref", &err), BS_OK);
  ck_assert_int_eq(bs_plugin_activate(context, "dense", &err), BS_OK);
  ck_assert_int_eq(bs_env_plugins(context, &list, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(list), before + 2);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *row = json_array_get(list, i);
    const char *sum = json_string_value(json_object_get(row, "sha256"));
    ck_assert(sum == NULL ? json_object_get(row, "library_build_id") != NULL : strlen(sum) == 64);
  }
  json_decref(list);
  const uint64_t reads = bs_file_sum_reads(); /* the files are tens of MiB: they are read once */
  ck_assert_int_eq(bs_env_plugins(context, &list, &err), BS_OK);
  ck_assert_uint_eq(bs_file_sum_reads(), reads);
  json_decref(list);
  bs_context_close(context);
}
END_TEST

/* What a plugin's parameters are, and where from. */
START_TEST(parameters_are_echoed) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")}, *params[] = {"cpu.isa=portable"};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  options.params = params;
  options.n_params = 1;
  ck_assert_int_eq(bs_context_open(&options, &context, &err), BS_OK);
  ck_assert_msg(bs_plugin_activate(context, "cpu", &err) == BS_OK, "%s", err.message);
  json_t *env = bs_env_collect(context);
  const json_t *cpu = json_object_get(json_object_get(env, "parameters"), "cpu"),
               *isa = json_object_get(cpu, "isa");
  ck_assert_ptr_nonnull(isa);
  ck_assert_uint_eq(json_object_size(cpu), bs_param_count(context, "cpu"));
  ck_assert_str_eq(json_string_value(json_object_get(isa, "value")), "portable");
  ck_assert_str_eq(json_string_value(json_object_get(isa, "origin")), "config");
  ck_assert_ptr_null(json_object_get(json_object_get(env, "parameters"), "dense")); /* not open */
  json_decref(env);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_key_is_of_what_changes_a_result},
                             {the_key_covers_input_files},
                             {the_phases_fields_join_ours},
                             {a_failed_record_says_why},
                             {numbers_that_json_lacks_are_null},
                             {the_environment_is_an_allow_list},
                             {open_plugins_are_listed_with_their_sums},
                             {parameters_are_echoed},
                             {0}};
  return run_tests("record", tests, (test_setup){0});
}
