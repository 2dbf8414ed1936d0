/* SPDX-License-Identifier: MIT
 * load.c - reads rules from YAML: strict keys, and the meaning of the words of a limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/config/compose.h"
#include "lab/error.h"
#include "lab/rules/rules.h"

enum { MOST_RULES = 100 };

const char *const bs_rule_stage_names[BS_STAGE_COUNT_] = {"build",  "resource",    "numeric", "determinism",
                                                          "memory", "performance", "evidence"};
static const char *const compare_names[] = {"le", "lt", "ge", "gt", "eq", "ne"};
enum { N_COMPARES = sizeof compare_names / sizeof compare_names[0] };

/* One rule file in reading. */
typedef struct reader {
  const char *group;
  bs_error *err;
} reader;

static int32_t refuse(const reader *r, const bs_node *node, const char *text, const char *word,
                      const char *nearest) {
  char place[512];
  bs_config_place(node, place, sizeof place);
  bs_error_set(r->err, BS_CONFIG, "BS-RULES-FILE", text, word);
  bs_error_where(r->err, "%s", place);
  if (nearest != NULL) bs_error_hint(r->err, "did you mean '%s'?", nearest);
  return BS_CONFIG;
}

static int32_t word_of(const reader *r, const bs_node *node, const char *what, const char *const *words,
                       uint32_t n, uint32_t *out_number) {
  char text[64];
  for (uint32_t i = 0; i < n; i++) {
    if (strcmp(node->text, words[i]) != 0) continue;
    *out_number = i;
    return BS_OK;
  }
  snprintf(text, sizeof text, "no %s is called '%%.60s'", what);
  return refuse(r, node, text, node->text, bs_nearest(node->text, words, n));
}

/* Keys of a map are known, and those that must be there are. Keys from `n_must` on may be missing. */
static int32_t keys_of(const reader *r, const bs_node *map, const char *const *keys, uint32_t n_must,
                       uint32_t n) {
  if (map->kind != BS_NODE_MAP) return refuse(r, map, "expected a map with %s", keys[0], NULL);
  for (const bs_node *child = map->first; child != NULL; child = child->next) {
    uint32_t i = 0;
    while (i < n && strcmp(child->key, keys[i]) != 0) i++;
    if (i == n) return refuse(r, child, "unknown key '%.60s'", child->key, bs_nearest(child->key, keys, n));
  }
  for (uint32_t i = 0; i < n_must; i++) {
    const bs_node *child = bs_config_find(map, keys[i]);
    if (child == NULL || child->kind != BS_NODE_SCALAR)
      return refuse(r, map, "a rule needs the key '%s', with one value", keys[i], NULL);
  }
  return BS_OK;
}

static int is_path(const char *text, size_t length) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  return length > 0 && length < BS_RULE_PATH && strspn(text, letters) >= length && text[0] >= 'a' &&
         text[0] <= 'z';
}

/* "1.5", "numeric.predicted_rmse", "numeric.predicted_rmse * 1.3". */
static int32_t limit_of(const reader *r, const bs_node *node, bs_rule_condition *out) {
  const char *text = node->text, *star = strchr(text, '*');
  size_t length = star != NULL ? (size_t)(star - text) : strlen(text);
  while (length > 0 && text[length - 1] == ' ') length--;
  out->limit = 1.0;
  if (bs_parse_f64(text, &out->limit)) return BS_OK;
  if (!is_path(text, length) ||
      (star != NULL && !bs_parse_f64(star + 1 + strspn(star + 1, " "), &out->limit)))
    return refuse(r, node, "limit '%.80s': not a number, a path of the record, or 'path * number'", text,
                  NULL);
  snprintf(out->limit_path, sizeof out->limit_path, "%.*s", (int)length, text);
  return BS_OK;
}

/* out stays NULL if the key is missing. */
static int32_t path_of(const reader *r, const bs_node *map, const char *key, const char **out) {
  const bs_node *node = bs_config_find(map, key);
  char text[64];
  if (node == NULL) return BS_OK;
  snprintf(text, sizeof text, "%s '%%.80s': not a path of the record", key);
  if (node->kind != BS_NODE_SCALAR || !is_path(node->text, strlen(node->text)))
    return refuse(r, node, text, node->kind == BS_NODE_SCALAR ? node->text : "", NULL);
  *out = node->text;
  return BS_OK;
}

static int32_t condition_of(const reader *r, const bs_node *map, bs_rule_condition *out) {
  int32_t rc = path_of(r, map, "metric", &out->metric);
  if (rc == BS_OK) rc = path_of(r, map, "low", &out->low);
  if (rc == BS_OK) rc = path_of(r, map, "high", &out->high);
  if (rc == BS_OK && (out->low != NULL) != (out->high != NULL))
    return refuse(r, map, "'%s' alone: an interval has the keys low and high",
                  out->low != NULL ? "low" : "high", NULL);
  if (rc == BS_OK)
    rc = word_of(r, bs_config_find(map, "compare"), "comparison", compare_names, N_COMPARES, &out->compare);
  return rc == BS_OK ? limit_of(r, bs_config_find(map, "limit"), out) : rc;
}

static int32_t when_of(const reader *r, const bs_node *node, bs_rule *rule) {
  static const char *const keys[] = {"metric", "compare", "limit"};
  const bs_node *one = node == NULL || node->kind != BS_NODE_LIST ? node : node->first;
  int32_t rc = BS_OK;
  for (; rc == BS_OK && one != NULL; one = node->kind == BS_NODE_LIST ? one->next : NULL) {
    if (rule->n_when == BS_RULE_CONDITIONS)
      return refuse(r, one, "too many conditions in '%s'", "when", NULL);
    rc = keys_of(r, one, keys, 3, 3);
    if (rc == BS_OK) rc = condition_of(r, one, &rule->when[rule->n_when++]);
  }
  return rc;
}

static int32_t controls_of(const reader *r, const bs_node *map, bs_rule *rule) {
  const bs_node *node = bs_config_find(map, "control");
  const bs_node *one = node == NULL || node->kind != BS_NODE_LIST ? node : node->first;
  const int gates = strcmp(r->group, "gates") == 0;
  if (gates != (one != NULL))
    return refuse(r, map,
                  gates ? "gate '%.60s' names no control: it has never been shown to fail"
                        : "'%.60s' is a finding and no gate: it has no control",
                  rule->name, NULL);
  for (; one != NULL; one = node->kind == BS_NODE_LIST ? one->next : NULL) {
    if (one->kind != BS_NODE_SCALAR || rule->n_controls == BS_RULE_CONTROLS)
      return refuse(r, one, "%s: a name, or a list of at most four", "control", NULL);
    rule->controls[rule->n_controls++] = one->text;
  }
  return BS_OK;
}

static int32_t rule_of(const reader *r, const bs_node *map, bs_rule *rule) {
  static const char *const keys[] = {"name", "stage",   "metric", "compare", "limit", "says",
                                     "when", "control", "low",    "high",    "cost"};
  int32_t rc = keys_of(r, map, keys, 6, sizeof keys / sizeof keys[0]);
  if (rc != BS_OK) return rc;
  rule->name = bs_config_find(map, "name")->text;
  rule->says = bs_config_find(map, "says")->text;
  rc = word_of(r, bs_config_find(map, "stage"), "stage", bs_rule_stage_names, BS_STAGE_COUNT_, &rule->stage);
  if (rc == BS_OK) rc = path_of(r, map, "cost", &rule->cost);
  if (rc == BS_OK) rc = condition_of(r, map, &rule->condition);
  if (rc == BS_OK) rc = when_of(r, bs_config_find(map, "when"), rule);
  return rc == BS_OK ? controls_of(r, map, rule) : rc;
}

/* Sorts by stage; rules of one stage keep their order. */
static void sort_rules(bs_rules *rules) {
  for (uint32_t i = 1; i < rules->n; i++) {
    const bs_rule one = rules->rule[i];
    uint32_t at = i;
    for (; at > 0 && rules->rule[at - 1].stage > one.stage; at--) rules->rule[at] = rules->rule[at - 1];
    rules->rule[at] = one;
  }
}

static int32_t read_tree(const reader *r, bs_rules *rules) {
  static const char *const keys[] = {"rules"};
  const bs_node *list = bs_config_find(rules->tree, "rules");
  int32_t rc = keys_of(r, rules->tree, keys, 0, 1);
  if (rc != BS_OK) return rc;
  if (list == NULL || list->kind != BS_NODE_LIST || list->first == NULL)
    return refuse(r, rules->tree, "%s: the file has no list of rules", "rules", NULL);
  for (const bs_node *one = list->first; one != NULL; one = one->next) rules->n++;
  if (rules->n > MOST_RULES) return refuse(r, list, "%s: more than 100", "rules", NULL);
  rules->rule = calloc(rules->n, sizeof *rules->rule);
  if (rules->rule == NULL) return bs_no_memory(r->err, "rules");
  bs_rule *rule = rules->rule;
  for (const bs_node *one = list->first; rc == BS_OK && one != NULL; one = one->next, rule++) {
    rc = rule_of(r, one, rule);
    for (const bs_rule *other = rules->rule; rc == BS_OK && other < rule; other++) {
      if (strcmp(other->name, rule->name) == 0)
        rc = refuse(r, one, "two rules are called '%.60s'", rule->name, NULL);
    }
  }
  if (rc == BS_OK) sort_rules(rules);
  return rc;
}

static int32_t no_such_name(const char *name, const char *group, const char *dir, bs_error *err) {
  char **names = NULL;
  const size_t n = bs_config_names(dir, group, &names);
  const char *nearest = bs_nearest(name, (const char *const *)names, n);
  bs_error_set(err, BS_CONFIG, "BS-CFG-NAME", "there is no configs/%s/%.100s.yaml", group, name);
  if (dir == NULL) {
    bs_error_hint(err, "no configs folder was found; set BS_CONFIG_DIR or give a path to a YAML file");
  } else if (nearest != NULL) {
    bs_error_hint(err, "did you mean '%s'?", nearest);
  } else if (n > 0) {
    bs_text all = {0};
    for (size_t i = 0; i < n; i++) bs_text_printf(&all, "%s%s", i > 0 ? ", " : "", names[i]);
    bs_error_hint(err, "there are: %s; or a path to a YAML file",
                  all.data != NULL && !all.failed ? all.data : "");
    bs_text_free(&all);
  }
  bs_config_names_free(names, n);
  return BS_CONFIG;
}

/* Finds the file of a name or a path. */
static int32_t find_file(const char *name, const char *group, char *out_path, size_t size, bs_error *err) {
  const size_t length = strlen(name);
  char *dir = NULL;
  if (strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".yaml") == 0)) {
    if ((size_t)snprintf(out_path, size, "%s", name) < size) return BS_OK;
    return bs_error_set(err, BS_USAGE, "BS-USE-NAME", "the path of rules is %zu bytes long", length);
  }
  int32_t rc = bs_configs_dir(&dir, err);
  if (rc == BS_OK &&
      (dir == NULL || (size_t)snprintf(out_path, size, "%s/%s/%s.yaml", dir, group, name) >= size ||
       access(out_path, R_OK) != 0))
    rc = no_such_name(name, group, dir, err);
  free(dir);
  return rc;
}

int32_t bs_rules_load(const char *name_or_path, const char *group, bs_rules **out_rules, bs_error *err) {
  const reader r = {group, err};
  char path[4096];
  *out_rules = NULL;
  int32_t rc = find_file(name_or_path, group, path, sizeof path, err);
  if (rc != BS_OK) return rc;
  bs_rules *rules = calloc(1, sizeof *rules);
  if (rules == NULL) return bs_no_memory(err, "rules");
  snprintf(rules->name, sizeof rules->name, "%.63s", name_or_path);
  rc = bs_config_load(path, &rules->tree, err);
  if (rc == BS_OK) rc = read_tree(&r, rules);
  if (rc != BS_OK) {
    bs_rules_free(rules);
    return rc;
  }
  *out_rules = rules;
  return BS_OK;
}

void bs_rules_free(bs_rules *rules) {
  if (rules == NULL) return;
  bs_config_free(rules->tree);
  free(rules->rule);
  free(rules);
}
