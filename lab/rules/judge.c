/* SPDX-License-Identifier: MIT
 * judge.c - judges a record by rules: every missing value is UNKNOWN, and a record passes only if a rule
 * ran. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/rules/rules.h"

/* Suffix of a path whose value is the reason why a value is unknown. */
#define UNKNOWN_KEY "_unknown"

/* The value that the record has at a path. */
typedef struct reading {
  int known;
  double number;
  const char *text; /* a text; NULL: a number */
} reading;

static const json_t *value_at(const json_t *record, const char *path) {
  char key[BS_RULE_PATH + sizeof UNKNOWN_KEY];
  const json_t *at = record;
  while (at != NULL && *path != '\0') {
    const size_t length = strcspn(path, ".");
    snprintf(key, sizeof key, "%.*s", (int)length, path);
    at = json_object_get(at, key);
    path += length + (path[length] == '.');
  }
  return at;
}

static reading read_path(const json_t *record, const char *path) {
  const json_t *at = value_at(record, path);
  if (json_is_boolean(at)) return (reading){1, json_is_true(at), NULL};
  if (json_is_number(at)) return (reading){1, json_number_value(at), NULL};
  if (!json_is_string(at)) return (reading){0, NAN, NULL};
  const char *text = json_string_value(at);
  if (strcmp(text, "nan") == 0) return (reading){1, NAN, NULL};
  if (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0)
    return (reading){1, text[0] == '-' ? -INFINITY : INFINITY, NULL};
  return (reading){1, NAN, text};
}

static int holds(uint32_t compare, double value, double limit) {
  switch (compare) {
    case BS_LE:
      return value <= limit;
    case BS_LT:
      return value < limit;
    case BS_GE:
      return value >= limit;
    case BS_GT:
      return value > limit;
    case BS_EQ:
      return value == limit;
    default:
      return value != limit;
  }
}

static const char *sign_of(uint32_t compare) {
  static const char *const signs[] = {"<=", "<", ">=", ">", "=", "!="};
  return signs[compare];
}

/* The distance to the limit as a share of it; of 1 if the limit is 0. */
static double margin_of(uint32_t compare, double value, double limit) {
  const double room = limit != 0 ? fabs(limit) : 1.0;
  if (compare == BS_LE || compare == BS_LT) return (limit - value) / room;
  if (compare == BS_GE || compare == BS_GT) return (value - limit) / room;
  return NAN;
}

static void limit_text(const bs_rule_condition *c, char *out, size_t size) {
  if (c->limit_path[0] == '\0') {
    snprintf(out, size, "%s", "");
  } else if (c->limit == 1.0) {
    snprintf(out, size, " (%s)", c->limit_path);
  } else {
    snprintf(out, size, " (%s * %g)", c->limit_path, c->limit);
  }
}

static void judge_texts(const bs_rule_condition *c, const reading *value, const reading *limit,
                        bs_rule_result *out) {
  out->texts = 1;
  if (value->text == NULL || limit->text == NULL || c->compare < BS_EQ) {
    out->state = BS_GATE_FAIL;
    snprintf(out->text, sizeof out->text, "%s and %s: a text and a number have no %s", c->metric,
             c->limit_path[0] != '\0' ? c->limit_path : "the limit", sign_of(c->compare));
    return;
  }
  const int same = strcmp(value->text, limit->text) == 0;
  out->state = same == (c->compare == BS_EQ) ? BS_GATE_PASS : BS_GATE_FAIL;
  snprintf(out->text, sizeof out->text, "%s '%.60s', to be %s '%.60s' (%s)", c->metric, value->text,
           sign_of(c->compare), limit->text, c->limit_path);
}

static void tell_unknown(const json_t *record, const char *path, bs_rule_result *out) {
  char reason[BS_RULE_PATH + sizeof UNKNOWN_KEY];
  snprintf(reason, sizeof reason, "%s" UNKNOWN_KEY, path);
  const char *why = json_string_value(value_at(record, reason));
  out->state = BS_GATE_UNKNOWN;
  snprintf(out->text, sizeof out->text, "%s is not known%s%.160s", path, why != NULL ? ": " : "",
           why != NULL ? why : "");
}

/* Judges the two ends of the metric's interval; `out` is the result of the metric itself. */
static void judge_interval(const bs_rule_condition *c, const json_t *record, bs_rule_result *out) {
  const reading ends[] = {read_path(record, c->low), read_path(record, c->high)};
  char source[BS_RULE_PATH + 32];
  for (int i = 0; i < 2; i++) {
    if (ends[i].known && ends[i].text == NULL) continue;
    out->value = out->limit = out->margin = NAN;
    tell_unknown(record, i == 0 ? c->low : c->high, out);
    return;
  }
  limit_text(c, source, sizeof source);
  snprintf(out->text, sizeof out->text, "%s %.4g [%.4g, %.4g], to be %s %.4g%s", c->metric, out->value,
           ends[0].number, ends[1].number, sign_of(c->compare), out->limit, source);
  if (!isfinite(ends[0].number) || !isfinite(ends[1].number)) {
    out->state = BS_GATE_FAIL;
    out->margin = NAN;
    return;
  }
  const int at_low = holds(c->compare, ends[0].number, out->limit),
            at_high = holds(c->compare, ends[1].number, out->limit);
  const double a = margin_of(c->compare, ends[0].number, out->limit),
               b = margin_of(c->compare, ends[1].number, out->limit);
  out->state = at_low && at_high ? BS_GATE_PASS : at_low || at_high ? BS_GATE_UNKNOWN : BS_GATE_FAIL;
  out->margin = at_low ? fmin(a, b) : fmax(a, b);
  if (out->state != BS_GATE_UNKNOWN) return;
  const size_t used = strlen(out->text);
  snprintf(out->text + used, sizeof out->text - used, ": the limit lies in the interval");
  out->value = out->limit = out->margin = NAN;
}

/* State, numbers and text of one condition. */
static void judge_condition(const bs_rule_condition *c, const json_t *record, bs_rule_result *out) {
  char source[BS_RULE_PATH + 32];
  const reading value = read_path(record, c->metric);
  reading limit = {1, c->limit, NULL};
  out->value = out->limit = out->margin = NAN;
  if (c->limit_path[0] != '\0') {
    limit = read_path(record, c->limit_path);
    limit.number *= c->limit;
  }
  if (!value.known || !limit.known) {
    tell_unknown(record, !value.known ? c->metric : c->limit_path, out);
    return;
  }
  if (value.text != NULL || limit.text != NULL) {
    judge_texts(c, &value, &limit, out);
    return;
  }
  out->value = value.number;
  out->limit = limit.number;
  limit_text(c, source, sizeof source);
  snprintf(out->text, sizeof out->text, "%s %.4g, to be %s %.4g%s", c->metric, value.number,
           sign_of(c->compare), limit.number, source);
  if (!isfinite(value.number) || !isfinite(limit.number)) {
    out->state = BS_GATE_FAIL;
    return;
  }
  out->margin = margin_of(c->compare, value.number, limit.number);
  out->state = holds(c->compare, value.number, limit.number) ? BS_GATE_PASS : BS_GATE_FAIL;
  if (c->low != NULL) judge_interval(c, record, out);
}

/* 1: the rule applies. Otherwise *out has the reason. */
static int applies(const bs_rule *rule, const json_t *record, bs_rule_result *out) {
  for (uint32_t i = 0; i < rule->n_when; i++) {
    judge_condition(&rule->when[i], record, out);
    if (out->state == BS_GATE_PASS) continue;
    const int number = out->texts || (isfinite(out->value) && isfinite(out->limit));
    if (out->state == BS_GATE_FAIL) out->state = number ? BS_GATE_SKIPPED : BS_GATE_UNKNOWN;
    out->value = out->limit = out->margin = NAN;
    return 0;
  }
  return 1;
}

static void count(bs_rules_outcome *out, const bs_rule_result *result) {
  out->passed += result->state == BS_GATE_PASS;
  out->failed += result->state == BS_GATE_FAIL;
  out->unknown += result->state == BS_GATE_UNKNOWN;
  out->skipped += result->state == BS_GATE_SKIPPED;
}

/* Judges the rules of a stage; with BS_STAGE_COUNT_ all rules. */
static int32_t judge(const bs_rules *rules, uint32_t stage, const json_t *record, bs_rules_outcome *out,
                     bs_error *err) {
  memset(out, 0, sizeof *out);
  out->result = calloc(rules->n, sizeof *out->result);
  if (out->result == NULL) return bs_no_memory(err, "the results of %u rules", rules->n);
  for (uint32_t i = 0; i < rules->n; i++) {
    bs_rule_result *result = &out->result[out->n];
    if (stage != BS_STAGE_COUNT_ && rules->rule[i].stage != stage) continue;
    result->rule = &rules->rule[i];
    if (applies(result->rule, record, result)) judge_condition(&result->rule->condition, record, result);
    count(out, result);
    out->n++;
  }
  out->ran = out->passed + out->failed;
  out->state = out->failed > 0                     ? BS_GATE_FAIL
               : out->unknown > 0 || out->ran == 0 ? BS_GATE_UNKNOWN
                                                   : BS_GATE_PASS;
  return BS_OK;
}

int32_t bs_rules_judge(const bs_rules *rules, const json_t *record, bs_rules_outcome *out, bs_error *err) {
  const int32_t rc = judge(rules, BS_STAGE_COUNT_, record, out, err);
  if (rc != BS_OK || out->ran > 0) return rc;
  bs_error_set(err, BS_USAGE, "BS-RULES-NONE", "none of the %u rules of %s ran: nothing is judged", out->n,
               rules->name);
  bs_error_hint(err, "%s", out->n > 0 ? out->result[0].text : "the file has no rule");
  return BS_USAGE;
}

int32_t bs_rules_judge_stage(const bs_rules *rules, uint32_t stage, const json_t *record,
                             bs_rules_outcome *out, bs_error *err) {
  return judge(rules, stage, record, out, err);
}

double bs_rules_number(const json_t *record, const char *path) {
  const json_t *value = value_at(record, path);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

void bs_rules_outcome_free(bs_rules_outcome *outcome) {
  free(outcome->result);
  memset(outcome, 0, sizeof *outcome);
}

const bs_rule_result *bs_rules_first(const bs_rules_outcome *outcome, uint32_t state) {
  for (uint32_t i = 0; i < outcome->n; i++) {
    if (outcome->result[i].state == state) return &outcome->result[i];
  }
  return NULL;
}

/* Numbers in the form of a record: those that are not finite as texts, unknown ones as null. */
static json_t *number_of(double value, int known) {
  if (!known) return json_null();
  if (isfinite(value)) return json_real(value);
  return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

json_t *bs_rules_outcome_json(const bs_rules_outcome *outcome) {
  json_t *rows = json_array();
  for (uint32_t i = 0; rows != NULL && i < outcome->n; i++) {
    const bs_rule_result *r = &outcome->result[i];
    const int judged = !r->texts && (r->state == BS_GATE_PASS || r->state == BS_GATE_FAIL);
    json_t *row = json_pack("{ss,ss,ss,so,so,so,ss,ss}", "gate", r->rule->name, "stage",
                            bs_rule_stage_names[r->rule->stage], "state", bs_name_of(BS_NAMES_GATE, r->state),
                            "value", number_of(r->value, judged), "limit", number_of(r->limit, judged),
                            "margin", number_of(r->margin, judged && isfinite(r->margin)), "text", r->text,
                            "says", r->rule->says);
    if (row == NULL || json_array_append_new(rows, row) != 0) {
      json_decref(rows);
      return NULL;
    }
  }
  return rows;
}
