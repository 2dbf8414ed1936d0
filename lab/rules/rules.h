/* SPDX-License-Identifier: MIT
 * rules.h - gates and findings as data: a YAML list of conditions on numbers of a JSON record, and one
 * evaluator for all of them (docs/gates.md, "Gates as data"). `bench sdpa` and `tune` judge a kernel by
 * configs/gates/sdpa.yaml, `profile` reads its findings from configs/rules. */
#ifndef BS_LAB_RULES_RULES_H
#define BS_LAB_RULES_RULES_H
#include <jansson.h>

#include "lab/yaml/config.h"

enum bs_rule_compare { BS_LE = 0, BS_LT = 1, BS_GE = 2, BS_GT = 3, BS_EQ = 4, BS_NE = 5 };
/* Stages in the order in which a kernel is judged. */
enum bs_rule_stage {
  BS_STAGE_BUILD = 0,
  BS_STAGE_RESOURCE = 1,
  BS_STAGE_NUMERIC = 2,
  BS_STAGE_DETERMINISM = 3,
  BS_STAGE_MEMORY = 4,
  BS_STAGE_PERFORMANCE = 5,
  BS_STAGE_EVIDENCE = 6,
  BS_STAGE_COUNT_ = 7
};
extern const char *const bs_rule_stage_names[BS_STAGE_COUNT_];

enum { BS_RULE_PATH = 64, BS_RULE_CONDITIONS = 4, BS_RULE_CONTROLS = 4, BS_RULE_TEXT = 240 };

/* metric compare limit. The metric is a path of the record ("numeric.relative_rmse"); the limit is a number,
 * or the value at a path times a factor. A measured metric may have an interval. The condition is then true
 * if it holds at both ends, false if at neither, and UNKNOWN if the limit is between them. */
typedef struct bs_rule_condition {
  const char *metric;
  const char *low, *high;        /* paths of the interval's ends; either both or neither (NULL) */
  uint32_t compare;              /* enum bs_rule_compare */
  char limit_path[BS_RULE_PATH]; /* "": the number */
  double limit;                  /* the number, or the factor of limit_path */
} bs_rule_condition;

typedef struct bs_rule {
  const char *name;
  const char *says; /* the meaning of a gate's failure, or of a finding, and the advice */
  const char *cost; /* of a finding: the path of its cost in seconds; NULL: not known */
  uint32_t stage;   /* enum bs_rule_stage */
  bs_rule_condition condition;
  bs_rule_condition when[BS_RULE_CONDITIONS]; /* all of them hold, or the rule is skipped */
  uint32_t n_when;
  const char *controls[BS_RULE_CONTROLS]; /* faults that it must catch (`bsrun check --selftest`) */
  uint32_t n_controls;
} bs_rule;

typedef struct bs_rules {
  char name[BS_RULE_PATH];
  bs_node *tree; /* owns the texts of the rules */
  bs_rule *rule; /* by stage, then as in the file */
  uint32_t n;
} bs_rules;

typedef struct bs_rule_result {
  const bs_rule *rule;
  uint32_t state; /* enum bs_gate_state */
  uint32_t texts; /* 1: two texts were compared */
  /* NAN if unknown, skipped, or texts were compared. margin: the distance from the limit, as a share of the
   * limit (of 1 if the limit is 0); below 0: the excess. */
  double value, limit, margin;
  char text[BS_RULE_TEXT]; /* the comparison, or the missing part */
} bs_rule_result;

typedef struct bs_rules_outcome {
  bs_rule_result *result; /* [n], in the order of the rules */
  uint32_t n;
  uint32_t ran; /* passed + failed */
  uint32_t passed, failed, unknown, skipped;
  uint32_t state; /* FAIL if one failed; else UNKNOWN if one is unknown, or none ran; else PASS */
} bs_rules_outcome;

/* Loads the rules of a name in configs/<group>/NAME.yaml ("gates": each rule names its controls; "rules":
 * none does), or of the path of a YAML file. BS_CONFIG: the error has the place in the file. */
int32_t bs_rules_load(const char *name_or_path, const char *group, bs_rules **out_rules, bs_error *err);
void bs_rules_free(bs_rules *rules);

/* Judges a record. A value or limit that the record lacks, or that is null, is UNKNOWN and never passes. The
 * text at its path with the suffix "_unknown" ("performance.ratio_unknown") is the reported reason. A value
 * that is not finite (a text "nan" or "inf", as JSON has no such numbers) FAILS; in a `when` it is UNKNOWN.
 * BS_USAGE (BS-RULES-NONE): no rule ran. The caller frees *out, also then. */
int32_t bs_rules_judge(const bs_rules *rules, const json_t *record, bs_rules_outcome *out, bs_error *err);
/* Judges only the rules of one stage. It is not an error if none ran: the caller checks `ran`. */
int32_t bs_rules_judge_stage(const bs_rules *rules, uint32_t stage, const json_t *record,
                             bs_rules_outcome *out, bs_error *err);
void bs_rules_outcome_free(bs_rules_outcome *outcome);
/* The number at a path of the record; NAN: no such number. */
double bs_rules_number(const json_t *record, const char *path);
/* The first result of a state, or NULL. */
const bs_rule_result *bs_rules_first(const bs_rules_outcome *outcome, uint32_t state);
/* [{gate, stage, state, value, limit, margin, text, says}], a new reference; NULL: out of memory. */
json_t *bs_rules_outcome_json(const bs_rules_outcome *outcome);
#endif
