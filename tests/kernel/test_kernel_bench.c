/* SPDX-License-Identifier: MIT
 * test_kernel_bench.c - what bench and the tuner make of arms that cannot be judged: too slow to be paired,
 * two settings that are one binary (knob `unroll` of bsrun/fixtures/knobby.c), no plan for the second shape.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/choose/history.h"
#include "lab/kernel/bench.h"
#include "lab/race/judge.h"
#include "tests/run_tests.h"

#define KNOBBY(n) BS_TEST_KNOBBY_DIR #n "/bs_knobby.so"

static bs_context *context;
static char configs[512];

static void open_context(const char *plugin) {
  const char *const plugins[] = {plugin};
  const bs_context_options o = {.struct_size = sizeof o, .plugins = plugins, .n_plugins = 1};
  bs_error err = BS_ERROR_INIT;
  snprintf(configs, sizeof configs, "%s/configs", getenv("BS_TEST_SOURCE_DIR"));
  setenv("BS_CONFIG_DIR", configs, 1);
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
}

/* One problem with two providers; the caller releases the rows. */
static int32_t run(const char *problem, const char *const providers[2], double slowest, uint32_t *out_unknown,
                   json_t **out, bs_error *err) {
  bs_kernel_problem p;
  ck_assert_msg(bs_kernel_problem_parse(problem, &p, err) == BS_OK, "%s", err->message);
  const bs_kernel_bench q = {.context = context,
                             .problems = &p,
                             .n_problems = 1,
                             .providers = providers,
                             .n_providers = 2,
                             .backend = "ref",
                             .threads = 1,
                             .seeds = 1,
                             .seed = 1,
                             .iters = 20,
                             .seconds = 0.02,
                             .slowest = slowest};
  return bs_kernel_bench_run(&q, out, out_unknown, err);
}

static const char *text(const json_t *result, size_t row, const char *key) {
  const char *value =
      json_string_value(json_object_get(json_array_get(json_object_get(result, "rows"), row), key));
  ck_assert_msg(value != NULL, "no text %s", key);
  return value;
}

/* The speed of the subject is not known then: that is no reason to skip its gate. */
START_TEST(an_arm_that_is_too_slow_is_not_judged) {
  static const char *const providers[] = {"knobby:turns{turns=8}", "ref:portable"};
  static const double slowest[] = {0, 1e-12};
  open_context(KNOBBY(1));
  for (int slow = 0; slow < 2; slow++) {
    bs_error err = BS_ERROR_INIT;
    json_t *result = NULL;
    uint32_t unknown = 0;
    const int32_t rc = run("matmul n8k8b2", providers, slowest[slow], &unknown, &result, &err);
    const char *reasons = text(result, 0, "unknown_reasons");
    ck_assert_ptr_null(strstr(text(result, 0, "gates_skipped"), "kept"));
    if (slow) {
      ck_assert_msg(rc == BS_OK && unknown == 1, "%d, %u UNKNOWN: %s", rc, unknown, err.message);
      ck_assert_str_eq(text(result, 0, "gates_unknown"), "kept");
      ck_assert_msg(strstr(reasons, "kept: performance.ratio is not known: it takes") != NULL &&
                        strstr(reasons, "more than 1e-12 s is not paired") != NULL,
                    "%s", reasons);
    } else { /* whatever its time is, it is told by pairs: by too few on a slow machine, by none on a busy one
              */
      ck_assert_msg(strstr(reasons, "not known") == NULL || strstr(reasons, "pairs are too few") != NULL ||
                        strstr(reasons, "machine disturbed: ") != NULL,
                    "%s", reasons);
    }
    json_decref(result);
  }
  bs_context_close(context);
}
END_TEST

/* A ratio below 1 whose verdict is UNCLEAR for lack of pairs is not known, and so is one of a disturbed
 * machine or of one thing twice: they are no failure of the gate kept. */
static const struct {
  bs_comparison c;
  const char *failed, *unknown, *says;
} ratios[] = {
    {{.ratio = 0.5, .low = 0.4, .high = 0.6, .word = BS_WORD_SLOWER}, "kept", ""},
    {{.ratio = 0.146,
      .low = 0.06,
      .high = 0.38,
      .word = BS_WORD_UNCLEAR,
      .cause = BS_UNCLEAR_FEW,
      .needs = 150},
     "",
     "kept",
     "about 150 are needed: a longer --seconds"},
    {{.ratio = 0.5, .low = 0.4, .high = 0.6, .word = BS_WORD_UNCLEAR, .cause = BS_UNCLEAR_ORDER}, "kept", ""},
    {{.ratio = 1, .low = 0.98, .high = 1.02, .word = BS_WORD_UNCLEAR, .cause = BS_UNCLEAR_FEW, .needs = 60},
     "",
     ""},
    {{.ratio = 0.5,
      .low = 0.4,
      .high = 0.6,
      .word = BS_WORD_UNCLEAR,
      .cause = BS_UNCLEAR_DISTURBED,
      .disturbance = {.pairs = 20, .disturbed = 20, .by = {20}, .others = 0.5}},
     "",
     "kept",
     "machine disturbed: others took 50 % of the processors' time"},
    {{.ratio = 0.5, .low = 0.4, .high = 0.6, .word = BS_WORD_NONE, .cause = BS_UNCLEAR_EQUAL},
     "",
     "kept",
     "both sides are the same configuration"},
};

START_TEST(too_few_pairs_are_no_failure) {
  const bs_kernel_bound bound = {.seconds = 1e-6};
  const bs_kernel_timed timed = {
      .seconds = 1e-3, .samples = 100, .bound = &bound, .peers = 1, .best = &ratios[_i].c};
  bs_error err = BS_ERROR_INIT;
  bs_rules *rules = NULL;
  bs_rules_outcome o;
  json_t *record = json_object();
  open_context(KNOBBY(1)); /* for the folder of the gates */
  ck_assert_msg(bs_rules_load("sdpa", "gates", &rules, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_kernel_record_times(&timed, record, &err), BS_OK);
  ck_assert_int_eq(bs_rules_judge_stage(rules, BS_STAGE_PERFORMANCE, record, &o, &err), BS_OK);
  const bs_rule_result *failed = bs_rules_first(&o, BS_GATE_FAIL),
                       *unknown = bs_rules_first(&o, BS_GATE_UNKNOWN);
  ck_assert_str_eq(failed != NULL ? failed->rule->name : "", ratios[_i].failed);
  ck_assert_str_eq(unknown != NULL ? unknown->rule->name : "", ratios[_i].unknown);
  if (unknown != NULL) ck_assert_msg(strstr(unknown->text, ratios[_i].says) != NULL, "%s", unknown->text);
  bs_rules_outcome_free(&o);
  bs_rules_free(rules);
  json_decref(record);
  bs_context_close(context);
}
END_TEST

START_TEST(two_settings_with_one_build_are_told) {
  static const struct {
    const char *plugin, *providers[2];
    int told;
  } rows[] = {
      {KNOBBY(1), {"knobby:turns{unroll=1}", "knobby:turns{unroll=2}"}, 1},
      {KNOBBY(1), {"knobby:turns{turns=1}", "knobby:turns{turns=2}"}, 0}, /* one binary serves all turns */
      {KNOBBY(3), {"knobby:turns{turns=1;unroll=1}", "knobby:turns{turns=1;unroll=2}"}, 0}, /* not known */
  };
  open_context(rows[_i].plugin);
  bs_error err = BS_ERROR_INIT;
  json_t *result = NULL;
  uint32_t unknown = 0;
  const int32_t rc = run("matmul n8k8b2", rows[_i].providers, 0, &unknown, &result, &err);
  ck_assert_str_eq(text(result, 0, "failed_stage"), ""); /* the first one is what it says */
  ck_assert_str_eq(text(result, 1, "failed_stage"), rows[_i].told ? "build" : "");
  if (rows[_i].told) {
    ck_assert_int_eq(rc, BS_NUMERIC);
    ck_assert_str_eq(text(result, 1, "gates_failed"), "knobs");
    ck_assert_msg(strstr(err.message, "has another unroll and reports the same build, knobby-1") != NULL,
                  "%s", err.message);
  }
  json_decref(result);
  bs_context_close(context);
}
END_TEST

/* The shape with ragged edges of a product has 70 rows of W. */
START_TEST(a_candidate_may_refuse_the_ragged_shape_and_not_fail_on_it) {
  static const struct {
    const char *plugin, *cause;
    uint32_t verdict;
  } rows[] = {{KNOBBY(1), "", BS_VERDICT_OK},
              {KNOBBY(3), "judged on one shape: [BS-KNOBBY-ROWS] ", BS_VERDICT_OK},
              {KNOBBY(4), "[BS-KNOBBY-ROWS] ", BS_VERDICT_REFUSED}};
  bs_error err = BS_ERROR_INIT;
  bs_kernel_problem p;
  bs_kernel_data *data = NULL;
  bs_kernel_arm *arm = NULL;
  bs_judgement judged;
  open_context(rows[_i].plugin);
  ck_assert_int_eq(bs_kernel_problem_parse("matmul n8k8b2", &p, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_data_make(&p, 1, &data, &err), BS_OK);
  const bs_kernel_setup setup = {.context = context,
                                 .problem = &p,
                                 .backend = "ref",
                                 .provider = "knobby:turns",
                                 .knobs = "turns=1",
                                 .threads = 1,
                                 .data = data};
  ck_assert_msg(bs_judge_candidate(&setup, &arm, &judged, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(judged.verdict == rows[_i].verdict, "%u: %s", judged.verdict, judged.cause);
  ck_assert_msg(strncmp(judged.cause, rows[_i].cause, strlen(rows[_i].cause)) == 0, "%s", judged.cause);
  ck_assert_int_eq(judged.cause[0] == '\0', _i == 0);
  bs_kernel_arm_close(arm);
  bs_kernel_data_free(data);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{an_arm_that_is_too_slow_is_not_judged},
                             {too_few_pairs_are_no_failure, TEST_COUNT(ratios)},
                             {two_settings_with_one_build_are_told, 3},
                             {a_candidate_may_refuse_the_ragged_shape_and_not_fail_on_it, 3},
                             {0}};
  return run_tests("kernel_bench", tests, (test_setup){0});
}
