/* SPDX-License-Identifier: MIT
 * test_chunks.c - overlap=auto becomes a number by the stored constants: where the wire is worth hiding, not
 * where the product is all; a number that was given stays. */
#include "lab/config/experiment.h"
#include "lab/measure/chunks.h"
#include "tests/bsrun/constants_file.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static bs_context *context;

static void open_context(void) {
  bs_error err = BS_ERROR_INIT;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
}
static void close_context(void) {
  bs_context_close(context);
}

/* The value of the option. */
static const char *resolved(const char *value, int64_t K, const json_t *constants) {
  static char got[16];
  char yaml[512];
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  bs_subject s;
  snprintf(yaml, sizeof yaml,
           "method: {name: row_parallel, overlap: %s}\nmodel: {B: 64, N: 1024, K: %lld, dtype: float32}\n"
           "hardware: {backend: ref, world_size: 2}\n",
           value, (long long)K);
  ck_assert_msg(bs_experiment_make(context, parse_tree(yaml), NULL, NULL, &e, &err) == BS_OK, "%s",
                err.message);
  e.machine_constants = constants;
  e.only_stored = 1;
  e.threads_per_rank = 1;
  ck_assert_msg(bs_subject_open(context, &e, &s, &err) == BS_OK, "%s", err.message);
  bs_overlap_resolve(&e, &s);
  ck_assert_uint_eq(s.spec.n_options, 1);
  ck_assert_str_eq(s.spec.option_keys[0], "overlap");
  snprintf(got, sizeof got, "%s", s.spec.option_values[0]);
  bs_subject_close(&s);
  bs_experiment_free(&e);
  return got;
}

START_TEST(auto_is_resolved) {
  json_t *constants = round_constants("ref");
  const char *few = resolved("auto", 32, constants);
  ck_assert_msg(few[0] >= '2' && few[0] <= '8', "%s", few);
  ck_assert_str_eq(resolved("auto", 8192, constants), "off");
  ck_assert_str_eq(resolved("3", 8192, constants), "3");
  ck_assert_str_eq(resolved("auto", 32, NULL), "auto"); /* the method decides */
  json_decref(constants);
}
END_TEST

int main(void) {
  const test_case tests[] = {{auto_is_resolved}, {0}};
  return run_tests("chunks", tests, (test_setup){open_context, close_context});
}
