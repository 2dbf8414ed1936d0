/* SPDX-License-Identifier: MIT
 * layer_ablate.c - compares the layer with variants that change one setting of its configuration: a row
 * each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/case/ask.h"
#include "lab/config/schema.h"
#include "lab/diagnose/layer_checks.h"
#include "lab/error.h"

/* A choice of an implementation, and its knobs, among those that are configured. */
static int32_t apply_choice(bs_node *tree, const char *word, bs_error *err) {
  const bs_node *list = bs_config_find(tree, "tune.choices");
  json_t *texts = json_array();
  for (const bs_node *item = list != NULL ? list->first : NULL; item != NULL; item = item->next)
    json_array_append_new(texts, json_string(item->text));
  json_array_append_new(texts, json_string(word));
  char *text = json_dumps(texts, JSON_COMPACT); /* a list in JSON is one in YAML */
  const int32_t rc =
      text != NULL ? bs_config_set(tree, "tune.choices", text, err) : bs_no_memory(err, "choices");
  free(text);
  json_decref(texts);
  return rc;
}

/* Applies "method.overlap=4", or "KEY -> cpu:packed{tile=64}"; a key without a value that is on or off is
 * inverted. */
static int32_t apply(bs_node *tree, const char *word, char *out_setting, size_t size, bs_error *err) {
  char key[96];
  const size_t length = strcspn(word, "=");
  snprintf(key, sizeof key, "%.*s", (int)length, word);
  snprintf(out_setting, size, "%s", word);
  if (strstr(word, " -> ") != NULL) return apply_choice(tree, word, err);
  if (word[length] == '=') return bs_config_set(tree, key, word + length + 1, err);
  const bs_key *known = bs_schema_find(key);
  if (known == NULL || known->type != BS_KEY_BOOL) {
    bs_error_set(err, BS_USAGE, "BS-DIAG-ABLATE", "--ablate '%.60s' names no value, and is not on or off",
                 key);
    bs_error_hint(err, "--ablate '%.60s=VALUE'; bsrun config keys has the keys", key);
    return BS_USAGE;
  }
  const int on = bs_schema_bool(tree, key);
  snprintf(out_setting, size, "%s=%s", key, on ? "off" : "on");
  return bs_config_set(tree, key, on ? "false" : "true", err);
}

/* The products of a case must have the key, and the named implementation must serve it. */
static int32_t choice_known(const bs_case *c, const char *word, bs_error *err) {
  json_t *asked = json_array();
  int32_t rc = asked != NULL ? bs_tune_ask(c, asked, err) : bs_no_memory(err, "what was asked");
  if (rc == BS_OK) rc = bs_choice_known(asked, "--ablate", word, err);
  json_decref(asked);
  return rc;
}

static int32_t ablate(bs_diagnosis *d, diag_layer *l, const char *word, bs_error *err) {
  diag_layer other = {0};
  char setting[400];
  bs_pair_times t;
  bs_error why = BS_ERROR_INIT;
  bs_node *tree = bs_config_clone(l->config);
  if (tree == NULL) return bs_no_memory(err, "a configuration");
  int32_t rc = apply(tree, word, setting, sizeof setting, &why);
  if (rc == BS_OK) rc = bs_schema_check(tree, l->quiet_dir, NULL, &why);
  if (rc == BS_OK) rc = diag_layer_open(l->context, tree, l->quiet_dir, &other, &why);
  if (rc == BS_CONFIG) rc = why.code = BS_USAGE; /* a requested word is wrong */
  if (rc == BS_OK && strstr(word, " -> ") != NULL) rc = choice_known(&other.c, word, &why);
  if (rc == BS_OK) rc = diag_layer_pair(d, l, &other.c, BS_ARM_FORWARD, &t, &why);
  diag_layer_close(&other);
  bs_config_free(tree);
  return rc == BS_OK ? bs_ablated(d, setting, &t, err) : bs_ablation_failed(d, setting, rc, &why, err);
}

int32_t diag_layer_ablate(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  int32_t rc = BS_OK;
  if (d->asked->n_ablate == 0) return bs_skip(d, "no setting was named: --ablate 'KEY=VALUE;KEY=VALUE'");
  for (size_t i = 0; rc == BS_OK && i < d->asked->n_ablate; i++) rc = ablate(d, l, d->asked->ablate[i], err);
  return rc;
}
