/* SPDX-License-Identifier: MIT
 * test_kit_isa.c - that the kit has queries of every core op; and the ops of graphs of the cpu plugin on the
 * lesser sets of instructions: the numerics of the kit, which grades the best set. A set that the processor
 * lacks is left out. */
#include <string.h>

#include "core/base/error.h"
#include "core/op/schema.h"
#include "kit/graph.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"isa=portable", "isa=avx2"};
/* Those that the cpu plugin has. */
static const char *const ops[] = {"map",      "normalize", "attention", "attention_dx",
                                  "contract", "reduce",    "take"};
static const char *const checks[] = {"values.float", "special"};

/* Passes; 0: the processor lacks the set. */
static int passes(const char *set, const char *check, const char *op) {
  char path[4200], group[200];
  bs_error err = BS_ERROR_INIT;
  bs_kit_report report;
  const bs_kit_options o = {.plugin = path, .group = group, .params = &set, .n_params = 1};
  snprintf(path, sizeof path, "%s/bs_cpu.so", getenv("BS_TEST_PLUGIN_DIR"));
  snprintf(group, sizeof group, "numerics.%s.%s@", check, op);
  const int32_t rc = bs_kit_run(&o, &report, &err);
  /* A plugin that does not open with its parameters has no ops. */
  if (strcmp(set, "isa=portable") != 0 && rc != BS_OK && strcmp(err.id, "BS-KIT-GROUP") == 0) return 0;
  ck_assert_msg(rc == BS_OK, "%s", err.message);
  ck_assert_msg(bs_kit_passed(&report), "%s, %s: %s", set, group, report.rows[0].text);
  bs_kit_free(&report);
  return 1;
}

START_TEST(every_core_op_has_queries) {
  for (uint32_t i = 0; i < bs_op_schema_count(); i++)
    ck_assert_msg(kit_op_known(bs_op_schema_at(i)->name), "kit/op_case.c has no case of the op %s",
                  bs_op_schema_at(i)->name);
}
END_TEST

START_TEST(ops_of_graphs) {
  const char *set = sets[_i / TEST_COUNT(ops)], *op = ops[_i % TEST_COUNT(ops)];
  for (int i = 0; i < TEST_COUNT(checks); i++)
    if (!passes(set, checks[i], op)) return;
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {every_core_op_has_queries}, {ops_of_graphs, TEST_COUNT(sets) * TEST_COUNT(ops)}, {0}};
  return run_tests("kit_isa", tests, (test_setup){.timeout = 60});
}
