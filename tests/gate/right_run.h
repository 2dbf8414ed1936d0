/* SPDX-License-Identifier: MIT
 * right_run.h - right runs of whole experiments, which every gate must let pass. */
#ifndef TESTS_GATE_RIGHT_RUN_H
#define TESTS_GATE_RIGHT_RUN_H
#include "lab/config/experiment.h"
#include "lab/lab.h"
#include "tests/lab/lab_test.h"

static inline bs_context *right_context(void) {
  bs_error err = BS_ERROR_INIT;
  bs_context *host = NULL;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&options, &host, &err) == BS_OK, "%s", err.message);
  return host;
}

/* 1 when the gate ran and passed. */
static inline int right_gate(const bs_phase_result *result, const char *name) {
  for (uint32_t g = 0; g < result->n_gates; ++g)
    if (strcmp(result->gates[g].name, name) == 0 && result->gates[g].state == BS_GATE_PASS) return 1;
  return 0;
}

/* Runs the experiment in its phase, or in another one (not -1), with so many timed iterations (0: its own):
 * no gate fails. The caller frees the result. */
static inline void right_run(bs_context *host, const char *yaml, int phase, int64_t iterations,
                             bs_phase_result *out_result) {
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  int32_t (*const phases[])(bs_context *, const bs_experiment *, bs_progress_fn, void *, bs_phase_result *,
                            bs_error *) = {bs_phase0_run, bs_phase1_run, bs_phase2_run, bs_phase3_run};
  ck_assert_msg(bs_experiment_make(host, parse_tree(yaml), NULL, NULL, &e, &err) == BS_OK, "%s: %s %s", yaml,
                err.message, err.hint);
  e.threads_per_rank = 1;
  if (iterations > 0) e.timed_iters = iterations;
  ck_assert_msg(phases[phase < 0 ? (int)e.phase : phase](host, &e, NULL, NULL, out_result, &err) == BS_OK,
                "%s: %s %s", yaml, err.id, err.message);
  for (uint32_t g = 0; g < out_result->n_gates; ++g)
    ck_assert_msg(out_result->gates[g].state == BS_GATE_PASS || out_result->gates[g].state == BS_GATE_SKIPPED,
                  "phase %d, %s: %s %g over %g %s", phase, yaml, out_result->gates[g].name,
                  out_result->gates[g].value, out_result->gates[g].limit, out_result->gates[g].text);
  ck_assert_msg(out_result->passed, "%s", yaml);
  bs_experiment_free(&e);
}

/* Runs the experiment; each gate passes or is skipped, and T6 was not. */
static inline void must_be_right(bs_context *host, const char *yaml) {
  bs_phase_result result;
  right_run(host, yaml, -1, 0, &result);
  ck_assert_msg(right_gate(&result, "T6"), "%s: no fault was injected", yaml);
  ck_assert_msg(!json_is_false(json_object_get(result.record, "claims_match_counts")), "%s", yaml);
  bs_phase_result_free(&result);
}
#endif
