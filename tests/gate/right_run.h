/* SPDX-License-Identifier: MIT
 * right_run.h - right runs of whole experiments, which every gate must let pass. */
#ifndef TESTS_GATE_RIGHT_RUN_H
#define TESTS_GATE_RIGHT_RUN_H
#include "lab/config/experiment.h"
#include "lab/lab.h"
#include "tests/lab/lab_test.h"

static inline bs_context *right_context(void) {
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  return context;
}

/* Runs the experiment; each gate passes or is skipped, and T6 was not. */
static inline void must_be_right(bs_context *context, const char *yaml) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  bs_phase_result result;
  int faults = 0;
  ck_assert_msg(bs_experiment_make(context, parse_tree(yaml), NULL, NULL, &e, &err) == BS_OK, "%s: %s", yaml,
                err.message);
  e.threads_per_rank = 1;
  int32_t (*const phases[])(bs_context *, const bs_experiment *, bs_progress_fn, void *, bs_phase_result *,
                            bs_error *) = {bs_phase0_run, bs_phase1_run, bs_phase2_run, bs_phase3_run};
  ck_assert_msg(phases[e.phase](context, &e, NULL, NULL, &result, &err) == BS_OK, "%s: %s", yaml,
                err.message);
  for (uint32_t g = 0; g < result.n_gates; ++g) {
    ck_assert_msg(result.gates[g].state == BS_GATE_PASS || result.gates[g].state == BS_GATE_SKIPPED,
                  "%s: %s %g over %g %s", yaml, result.gates[g].name, result.gates[g].value,
                  result.gates[g].limit, result.gates[g].text);
    faults |= strcmp(result.gates[g].name, "T6") == 0 && result.gates[g].state == BS_GATE_PASS;
  }
  ck_assert_msg(faults, "%s: no fault was injected", yaml);
  ck_assert_msg(result.passed, "%s", yaml);
  ck_assert_msg(!json_is_false(json_object_get(result.record, "claims_match_counts")), "%s", yaml);
  bs_phase_result_free(&result);
  bs_experiment_free(&e);
}
#endif
