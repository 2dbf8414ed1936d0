/* SPDX-License-Identifier: MIT
 *
 * test_cpu_values.c - the numbers of the cpu plugin's ops: the conformance kit's queries against f64, with
 * every size at which kernels have an edge, on each set of instructions that this processor has. kit_cpu
 * grades the best set alone, and asks fewer sizes. */
#include <stdio.h>
#include <string.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"portable", "avx2", "avx512", "avx512_bf16"};
/* These have tiles for one matmul of bf16; all else is that of the best of the sets above. */
static const char *const tiles[] = {"amx_model", "amx"};
enum {
  LESSER = 2, /* kit_cpu has the other ops on the best set */
  OF_BF16 = 3 /* avx512 with other kernels for bf16 (cpu_kernels_choose): asked for bf16 alone */
};
static const char *const products[] = {"matmul@cpu/packed", "matmul@cpu/bytes", "matmul_dx",
                                       "matmul_dw",         "matmul_update",    "matmul24@",
                                       "matmul24_dx",       "matmul24_dw",      "matmul24_update"};
static const char *const checks_of_products[] = {"numerics.values.float", "numerics.values.integer",
                                                 "numerics.special", "numerics.subnormal", "numerics.rows"};
/* kit_cpu reaches them only where there are tiles: here are the other checks of an op too. */
static const char *const checks_of_tiles[] = {
    "numerics.values.float", "numerics.special", "numerics.rows", "numerics.least", "numerics.packed",
    "numerics.knobs",        "truth.supports",   "truth.threads", "truth.huge",     "threads.plans"};
static const char *const others[] = {
    "map",           "normalize",       "attention@",  "attention_dx",   "contract",        "reduce",
    "take",          "activate@",       "activate_dx", "gather_columns", "scatter_columns", "convert",
    "scaled_matmul", "quantize_groups", "dequantize_", "expand24",       "tree_sum",        "sgd_update",
    "adamw_update"};
static const char *const checks_of_others[] = {"numerics.values.float", "numerics.values.integer",
                                               "numerics.special"};

/* Checks of ops whose names begin so, and how many passed; one that does not fit the op is left out. */
static uint32_t grade(const char *param, uint32_t dtype, const char *check, const char *op) {
  char path[4200], group[200];
  bs_error err = BS_ERROR_INIT;
  bs_kit_report report;
  const bs_kit_options o = {
      .plugin = path, .edges = !BS_SLOW, .dtype = dtype, .group = group, .params = &param, .n_params = 1};
  snprintf(path, sizeof path, "%s/bs_cpu.so", getenv("BS_TEST_PLUGIN_DIR"));
  snprintf(group, sizeof group, "%s.%s", check, op);
  const int32_t rc = bs_kit_run(&o, &report, &err);
  if (rc != BS_OK && strcmp(err.id, "BS-KIT-GROUP") == 0) return 0;
  ck_assert_msg(rc == BS_OK, "%s", err.message);
  for (uint32_t i = 0; i < report.n_rows; i++)
    ck_assert_msg(report.rows[i].result != BS_KIT_FAIL, "%s, %s: %s", param, report.rows[i].name,
                  report.rows[i].text);
  const uint32_t passed = report.count[BS_KIT_PASS];
  bs_kit_free(&report);
  return passed;
}

/* On set number `set`, where this processor has it. */
static void grade_all(int set, const char *op, const char *const *checks, int n) {
  char param[64];
  uint32_t passed = 0;
  if (!ch_has_isa(sets[set]) || (set == OF_BF16 && strstr(op, "bytes") != NULL)) return;
  snprintf(param, sizeof param, "isa=%s", sets[set]);
  for (int i = 0; i < n; i++) passed += grade(param, set == OF_BF16 ? BS_BF16 : 0, checks[i], op);
  ck_assert_msg(passed > 0, "%s: no check of %s passed", param, op);
}

START_TEST(products_on_each_set) {
  grade_all(_i % TEST_COUNT(sets), products[_i / TEST_COUNT(sets)], checks_of_products,
            TEST_COUNT(checks_of_products));
}
END_TEST

/* Every check passes but those of f32 and of integers, which it does not serve. */
START_TEST(products_by_tiles) {
  char param[64];
  if (!ch_has_isa(tiles[_i])) return;
  snprintf(param, sizeof param, "isa=%s", tiles[_i]);
  for (int i = 0; i < TEST_COUNT(checks_of_tiles); i++)
    ck_assert_msg(grade(param, BS_BF16, checks_of_tiles[i], "matmul@cpu/amx") == 1, "%s: %s", param,
                  checks_of_tiles[i]);
}
END_TEST

START_TEST(other_ops_on_lesser_sets) {
  grade_all(_i % LESSER, others[_i / LESSER], checks_of_others, TEST_COUNT(checks_of_others));
}
END_TEST

/* Attention in bf16 by tiles. */
START_TEST(attention_by_tiles) {
  uint32_t passed = 0;
  for (int i = 0; i < TEST_COUNT(checks_of_others); i++)
    passed += grade("isa=amx_model", BS_BF16, checks_of_others[i], "attention@");
  ck_assert_uint_ge(passed, 2);
}
END_TEST

/* oneDNN as it is here, and as with AMX, where it wants a copy of the weights: a slice is then multiplied in
 * parts. test_method_memory holds the scratchpad. */
START_TEST(products_of_onednn) {
  static const char *const libraries[] = {
      "dnnl_library=now",
#ifdef TEST_DNNL_WITH_AMX
      "dnnl_library=" TEST_DNNL_WITH_AMX,
#endif
  };
  for (int l = 0; l < TEST_COUNT(libraries); l++)
    for (int i = 0; i < TEST_COUNT(checks_of_products); i++)
      grade(libraries[l], 0, checks_of_products[i], "matmul@cpu/dnnl");
}
END_TEST

int main(void) {
  const test_case tests[] = {{products_on_each_set, TEST_COUNT(sets) * TEST_COUNT(products)},
                             {products_by_tiles, TEST_COUNT(tiles)},
                             {other_ops_on_lesser_sets, LESSER * TEST_COUNT(others)},
                             {attention_by_tiles},
                             {products_of_onednn},
                             {0}};
  return run_tests("cpu_values", tests, (test_setup){.timeout = 60});
}
