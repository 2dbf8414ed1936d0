/* SPDX-License-Identifier: MIT
 * selftest.c - see selftest.h: the rows of both suites. */
#include "lab/check/selftest.h"

#include <stdio.h>
#include <string.h>

#include "lab/check/selftest_parts.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/json.h"

/* Columns that every row has; the other columns are gates. */
static const char *const columns[] = {"suite", "fault", "gate", "state", "by", "text"};
enum { N_COLUMNS = sizeof columns / sizeof columns[0] };

int32_t bs_selftest_add(bs_selftest *out, json_t *row, bs_error *err) {
  if (row == NULL || json_array_append_new(out->rows, row) != 0)
    return bs_no_memory(err, "a row of the self-test");
  const char *state = bs_get_text(row, "state");
  const int right = strcmp(state, "caught") == 0 || strcmp(state, "clean") == 0;
  const size_t used = strlen(out->missed);
  out->n++;
  out->right += (uint32_t)right;
  if (!right)
    snprintf(out->missed + used, sizeof out->missed - used, "%s%s (%s)", used > 0 ? ", " : "",
             bs_get_text(row, "fault"), bs_get_text(row, "gate"));
  return BS_OK;
}

int32_t bs_selftest_context(const bs_selftest_request *request, const char *key, const char *value,
                            bs_context **out_context, bs_error *err) {
  bs_node *tree = bs_config_clone(request->config);
  if (tree == NULL) return bs_no_memory(err, "a configuration");
  int32_t rc = key != NULL ? bs_config_set_text(tree, key, value, err) : BS_OK;
  if (rc == BS_OK) rc = bs_context_of_config(tree, BS_LOG_WARN, request->log, NULL, out_context, err);
  bs_config_free(tree);
  return rc;
}

/* Checks names of rules: each verdict is a column with the rule's name, and must differ from the common
 * columns. */
static int32_t check_names(const bs_rules *rules, bs_error *err) {
  for (uint32_t i = 0; i < rules->n; i++) {
    for (size_t k = 0; k < N_COLUMNS; k++) {
      if (strcmp(rules->rule[i].name, columns[k]) != 0) continue;
      bs_error_set(err, BS_CONFIG, "BS-RULES-NAME", "%s: a gate is called '%s', as a column of the self-test",
                   rules->name, columns[k]);
      bs_error_hint(err, "give it another name");
      return BS_CONFIG;
    }
  }
  return BS_OK;
}

int32_t bs_selftest_run(const bs_selftest_request *request, bs_selftest *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->rows = json_array();
  if (out->rows == NULL) return bs_no_memory(err, "the self-test");
  int32_t rc = bs_rules_load(request->gates, "gates", &out->rules, err);
  if (rc == BS_OK) rc = check_names(out->rules, err);
  if (rc == BS_OK) rc = bs_selftest_kernels(request, out, err);
  return rc == BS_OK ? bs_selftest_layers(request, out, err) : rc;
}

uint32_t bs_selftest_gates(const bs_selftest *selftest, const char *out_gates[BS_SELFTEST_GATES]) {
  uint32_t n = 0;
  size_t r;
  json_t *row, *cell;
  const char *key;
  json_array_foreach(selftest->rows, r, row) {
    json_object_foreach(row, key, cell) {
      uint32_t known = 0;
      for (size_t i = 0; i < N_COLUMNS; i++) known |= strcmp(key, columns[i]) == 0;
      for (uint32_t i = 0; i < n; i++) known |= strcmp(key, out_gates[i]) == 0;
      if (!known && n < BS_SELFTEST_GATES) out_gates[n++] = key;
    }
  }
  return n;
}

void bs_selftest_free(bs_selftest *selftest) {
  json_decref(selftest->rows);
  bs_rules_free(selftest->rules);
  memset(selftest, 0, sizeof *selftest);
}
