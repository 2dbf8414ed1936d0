/* SPDX-License-Identifier: MIT
 * test_rules.c - gates as data: each comparison, what is not known, what is not finite, and files that are
 * refused with their place. */
#include <math.h>

#include "lab/rules/rules.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static int32_t load(const char *group, const char *yaml, bs_rules **out, bs_error *err) {
  char path[512];
  write_text(dir, "rules.yaml", yaml);
  snprintf(path, sizeof path, "%s/rules.yaml", dir);
  return bs_rules_load(path, group, out, err);
}

static const char record_text[] =
    "{\"a\": 1, \"b\": 2.5, \"zero\": 0, \"no\": null, \"nan\": \"nan\", \"inf\": \"inf\", \"yes\": true,"
    " \"in\": {\"of\": {\"it\": 3}}, \"gone_unknown\": \"nobody looked\", \"id\": \"c0de\", \"same\": "
    "\"c0de\", \"other\": \"beef\"}";

static json_t *record(void) {
  json_t *made = json_loads(record_text, 0, NULL);
  ck_assert(made != NULL);
  return made;
}

/* metric, compare, limit and when of one rule; its state, value and margin. */
static const struct judged {
  const char *metric, *compare, *limit, *when;
  uint32_t state;
  double value, margin;
} judged[] = {
    {"a", "le", "1", NULL, BS_GATE_PASS, 1, 0},
    {"a", "lt", "1", NULL, BS_GATE_FAIL, 1, 0},
    {"b", "le", "2", NULL, BS_GATE_FAIL, 2.5, -0.25},
    {"b", "ge", "2", NULL, BS_GATE_PASS, 2.5, 0.25},
    {"b", "gt", "2.5", NULL, BS_GATE_FAIL, 2.5, 0},
    {"a", "eq", "1", NULL, BS_GATE_PASS, 1, NAN},
    {"a", "ne", "1", NULL, BS_GATE_FAIL, 1, NAN},
    {"yes", "eq", "1", NULL, BS_GATE_PASS, 1, NAN},
    {"a", "le", "zero", NULL, BS_GATE_FAIL, 1, -1},
    {"b", "le", "a * 3", NULL, BS_GATE_PASS, 2.5, 0.5 / 3},
    {"b", "le", "a*2", NULL, BS_GATE_FAIL, 2.5, -0.25},
    {"in.of.it", "ge", "in.of.it", NULL, BS_GATE_PASS, 3, 0},
    {"id", "eq", "same", NULL, BS_GATE_PASS, NAN, NAN},
    {"id", "eq", "other", NULL, BS_GATE_FAIL, NAN, NAN},
    {"id", "ne", "other", NULL, BS_GATE_PASS, NAN, NAN},
    {"id", "le", "other", NULL, BS_GATE_FAIL, NAN, NAN},
    {"id", "eq", "a", NULL, BS_GATE_FAIL, NAN, NAN},
    /* what is not known is no pass */
    {"gone", "le", "1", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"no", "le", "1", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"in.of", "le", "1", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"a.b", "le", "1", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"a", "le", "gone * 2", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    /* what is not finite fails, on either side */
    {"nan", "le", "1", NULL, BS_GATE_FAIL, NAN, NAN},
    {"nan", "ne", "1", NULL, BS_GATE_FAIL, NAN, NAN},
    {"inf", "ge", "1", NULL, BS_GATE_FAIL, INFINITY, NAN},
    {"a", "le", "inf", NULL, BS_GATE_FAIL, 1, NAN},
    {"a", "le", "nan", NULL, BS_GATE_FAIL, 1, NAN},
    /* when */
    {"b", "le", "2", "{metric: a, compare: eq, limit: 1}", BS_GATE_FAIL, 2.5, -0.25},
    {"b", "le", "2", "{metric: a, compare: eq, limit: 2}", BS_GATE_SKIPPED, NAN, NAN},
    {"a", "le", "1", "{metric: gone, compare: eq, limit: 1}", BS_GATE_UNKNOWN, NAN, NAN},
    {"a", "le", "1", "[{metric: a, compare: eq, limit: 1}, {metric: b, compare: lt, limit: 1}]",
     BS_GATE_SKIPPED, NAN, NAN},
    /* what is not finite tells nothing of a rule that is to be skipped */
    {"a", "le", "1", "{metric: nan, compare: eq, limit: 1}", BS_GATE_UNKNOWN, NAN, NAN},
    {"a", "le", "1", "{metric: a, compare: lt, limit: inf}", BS_GATE_UNKNOWN, NAN, NAN},
    {"a", "le", "1", "{metric: id, compare: eq, limit: other}", BS_GATE_SKIPPED, NAN, NAN},
    /* an interval: the limit below it, in it, above it; an end that is not known, or not finite */
    {"b, low: a, high: in.of.it", "ge", "0.5", NULL, BS_GATE_PASS, 2.5, 1},
    {"b, low: a, high: in.of.it", "ge", "1", NULL, BS_GATE_PASS, 2.5, 0},
    {"b, low: a, high: in.of.it", "ge", "2", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"b, low: a, high: in.of.it", "ge", "2.7", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"b, low: a, high: in.of.it", "ge", "4", NULL, BS_GATE_FAIL, 2.5, -0.25},
    {"b, low: a, high: in.of.it", "le", "4", NULL, BS_GATE_PASS, 2.5, 0.25},
    {"b, low: a, high: in.of.it", "le", "2", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"b, low: a, high: in.of.it", "le", "0.5", NULL, BS_GATE_FAIL, 2.5, -1},
    {"b, low: gone, high: in.of.it", "ge", "0.5", NULL, BS_GATE_UNKNOWN, NAN, NAN},
    {"b, low: a, high: inf", "ge", "0.5", NULL, BS_GATE_FAIL, 2.5, NAN},
};

static int alike(double a, double b) {
  return isnan(a) ? isnan(b) : a == b || fabs(a - b) < 1e-12;
}

START_TEST(one_rule) {
  const struct judged *j = &judged[_i];
  char yaml[1024];
  bs_error err = BS_ERROR_INIT;
  bs_rules *rules = NULL;
  bs_rules_outcome outcome;
  json_t *r = record();
  snprintf(yaml, sizeof yaml,
           "rules: [{name: one, stage: memory, metric: %s, compare: %s, limit: '%s', says: do%s%s}]",
           j->metric, j->compare, j->limit, j->when != NULL ? ", when: " : "",
           j->when != NULL ? j->when : "");
  ck_assert_msg(load("rules", yaml, &rules, &err) == BS_OK, "%s: %s", yaml, err.message);
  const int32_t rc = bs_rules_judge(rules, r, &outcome, &err);
  const uint32_t ran = j->state == BS_GATE_PASS || j->state == BS_GATE_FAIL;
  ck_assert_uint_eq(outcome.result[0].state, j->state);
  ck_assert_msg(alike(outcome.result[0].value, j->value), "%g", outcome.result[0].value);
  ck_assert_msg(alike(outcome.result[0].margin, j->margin), "%g", outcome.result[0].margin);
  ck_assert_uint_eq(outcome.ran, ran);
  ck_assert_uint_eq(outcome.state, ran ? j->state : BS_GATE_UNKNOWN);
  ck_assert_int_eq(rc, ran ? BS_OK : BS_USAGE); /* nothing is passed when nothing ran */
  if (!ran) ck_assert_str_eq(err.id, "BS-RULES-NONE");
  bs_rules_outcome_free(&outcome);
  bs_rules_free(rules);
  json_decref(r);
}
END_TEST

/* Words that a file may not have, and the line that is told. */
static const struct refused {
  const char *group, *yaml, *text, *place;
} refused[] = {
    {"rules", "rules: []", "no list of rules", ""},
    {"rules", "gates: []", "unknown key 'gates'", ":1:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s, metrc: 2}",
     "unknown key 'metrc'", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1}", "needs the key 'says'",
     ":2:"},
    {"rules", "rules:\n- {name: a, stage: memry, metric: m, compare: le, limit: 1, says: s}",
     "no stage is called 'memry'", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: '<=', limit: 1, says: s}",
     "no comparison is called '<='", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: m + 1, says: s}",
     "limit 'm + 1'", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: m * two, says: s}",
     "limit 'm * two'", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: 'm n', compare: le, limit: 1, says: s}",
     "metric 'm n'", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: .nan, says: s}",
     "limit '.nan'", ":2:"},
    {"gates", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s}",
     "gate 'a' names no control", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s, control: c}",
     "has no control", ":2:"},
    {"rules", "rules:\n- &a {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s}\n- *a", "",
     ""},
    {"rules",
     "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s}\n"
     "- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s}",
     "two rules are called 'a'", ":3:"},
    {"rules",
     "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s, when: {metric: m}}",
     "needs the key 'compare'", ":2:"},
    {"rules", "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s, low: l}",
     "'low' alone", ":2:"},
    {"rules",
     "rules:\n- {name: a, stage: memory, metric: m, compare: le, limit: 1, says: s, low: l, high: 3}",
     "high '3': not a path", ":2:"},
};

START_TEST(a_file_is_refused) {
  const struct refused *f = &refused[_i];
  bs_error err = BS_ERROR_INIT;
  bs_rules *rules = NULL;
  ck_assert_int_eq(load(f->group, f->yaml, &rules, &err), BS_CONFIG);
  ck_assert_ptr_null(rules);
  ck_assert_msg(strstr(err.message, f->text) != NULL, "%s", err.message);
  ck_assert_msg(strstr(err.where, f->place) != NULL, "%s", err.where);
}
END_TEST

START_TEST(a_name_is_found_or_the_nearest_told) {
  bs_error err = BS_ERROR_INIT;
  bs_rules *rules = NULL;
  char configs[512];
  snprintf(configs, sizeof configs, "%s/configs", getenv("BS_TEST_SOURCE_DIR"));
  setenv("BS_CONFIG_DIR", configs, 1);
  ck_assert_msg(bs_rules_load("sdpa", "gates", &rules, &err) == BS_OK, "%s %s", err.message, err.where);
  uint32_t last = 0, stages = 0;
  for (uint32_t i = 0; i < rules->n; i++) { /* every stage has a gate, and they are in order */
    ck_assert_uint_ge(rules->rule[i].stage, last);
    last = rules->rule[i].stage;
    stages |= 1u << last;
    ck_assert_uint_ge(rules->rule[i].n_controls, 1);
  }
  ck_assert_uint_eq(stages, (1u << BS_STAGE_COUNT_) - 1);
  bs_rules_free(rules);
  ck_assert_int_eq(bs_rules_load("sdpaa", "gates", &rules, &err), BS_CONFIG);
  ck_assert_str_eq(err.hint, "did you mean 'sdpa'?");
}
END_TEST

/* Results come by stage; a stage alone; first and JSON. */
START_TEST(stages) {
  static const char yaml[] =
      "rules:\n"
      "- {name: late, stage: evidence, metric: a, compare: eq, limit: 1, says: s, control: c}\n"
      "- {name: bad, stage: numeric, metric: b, compare: le, limit: 2, says: mend it, control: c}\n"
      "- {name: worse, stage: numeric, metric: nan, compare: le, limit: 2, says: s, control: [c, d]}\n"
      "- {name: gone, stage: build, metric: gone, compare: le, limit: 2, says: s, control: c}\n";
  bs_error err = BS_ERROR_INIT;
  bs_rules *rules = NULL;
  bs_rules_outcome all, one;
  json_t *r = record();
  ck_assert_msg(load("gates", yaml, &rules, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_rules_judge(rules, r, &all, &err), BS_OK);
  ck_assert_str_eq(all.result[0].rule->name, "gone");
  ck_assert_str_eq(all.result[1].rule->name, "bad");
  ck_assert_str_eq(all.result[3].rule->name, "late");
  ck_assert(all.n == 4 && all.ran == 3 && all.passed == 1 && all.failed == 2 && all.unknown == 1);
  ck_assert_ptr_eq(bs_rules_first(&all, BS_GATE_FAIL), &all.result[1]);
  ck_assert_str_eq(all.result[1].text, "b 2.5, to be <= 2");
  ck_assert_str_eq(all.result[0].text, "gone is not known: nobody looked");
  json_t *rows = bs_rules_outcome_json(&all);
  json_t *bad = json_array_get(rows, 1), *gone = json_array_get(rows, 0);
  ck_assert_str_eq(json_string_value(json_object_get(bad, "state")), "fail");
  ck_assert_str_eq(json_string_value(json_object_get(bad, "says")), "mend it");
  ck_assert(json_number_value(json_object_get(bad, "value")) == 2.5);
  ck_assert(json_is_null(json_object_get(gone, "value")));
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 2), "value")), "nan");
  json_decref(rows);
  ck_assert_int_eq(bs_rules_judge_stage(rules, BS_STAGE_NUMERIC, r, &one, &err), BS_OK);
  ck_assert(one.n == 2 && one.failed == 2 && one.state == BS_GATE_FAIL);
  bs_rules_outcome_free(&one);
  ck_assert_int_eq(bs_rules_judge_stage(rules, BS_STAGE_MEMORY, r, &one, &err), BS_OK);
  ck_assert(one.n == 0 && one.ran == 0 && one.state == BS_GATE_UNKNOWN);
  bs_rules_outcome_free(&one);
  bs_rules_outcome_free(&all);
  bs_rules_free(rules);
  json_decref(r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{one_rule, TEST_COUNT(judged)},
                             {a_file_is_refused, TEST_COUNT(refused)},
                             {a_name_is_found_or_the_nearest_told},
                             {stages},
                             {0}};
  return run_tests("rules", tests, (test_setup){setup, teardown, .at_once = 2});
}
