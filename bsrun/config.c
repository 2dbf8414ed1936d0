/* SPDX-License-Identifier: MIT
 * config.c - `bsrun config print` (also run --print-config) and `bsrun config keys`. Creates nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/opening.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/json.h"
#include "lab/run/auto.h"

static const args_option config_keys_options[] = {
    {OPT_PLUGIN, NULL, 0},
    ARGS_TABLE,
    ARGS_HELP,
};

/* One row a scalar or list: {key, value}. */
static void flatten(json_t *rows, const bs_node *node, const char *prefix) {
  for (const bs_node *child = node->first; child != NULL; child = child->next) {
    char path[512];
    snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", child->key);
    if (child->kind == BS_NODE_MAP) {
      flatten(rows, child, path);
      continue;
    }
    bs_text text = {0};
    if (child->kind == BS_NODE_SCALAR) bs_text_printf(&text, "%s", child->text);
    for (const bs_node *item = child->kind == BS_NODE_LIST ? child->first : NULL; item != NULL;
         item = item->next) {
      bs_text_printf(&text, "%s%s", item == child->first ? "" : " ",
                     item->kind == BS_NODE_SCALAR ? item->text : "?");
    }
    json_array_append_new(rows, json_pack("{s:s, s:s?}", "key", path, "value", text.data));
    bs_text_free(&text);
  }
}

static int32_t print_tree(const bs_node *config, int format, int as_rows, bs_error *err) {
  static const bs_field fields[] = {{"key", "key", 0, 0}, {"value", "value", 0, 0}};
  if (as_rows) {
    json_t *rows = json_array();
    flatten(rows, config, "");
    const int32_t rc = bs_report_print(stdout, format, fields, 2, rows, err);
    json_decref(rows);
    return rc;
  }
  bs_text text = {0};
  bs_config_print(config, &text);
  if (text.failed) {
    bs_text_free(&text);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  if (bs_report_terminal(stdout))
    bs_print_lines(stdout, text.data == NULL ? "" : text.data);
  else
    fputs(text.data == NULL ? "" : text.data, stdout);
  bs_text_free(&text);
  return BS_OK;
}

int32_t config_print(const args *a, bs_error *err) {
  bsrun_request request;
  bs_composed composed = {0};
  bs_context *context = NULL;
  bs_experiment experiment = {0};
  bs_notes notes = {0};
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc != BS_OK) return rc;
  rc = bsrun_request_make(a, &request, err);
  if (rc == BS_OK) rc = bs_compose(&request.compose, &composed, err);
  if (rc == BS_OK && !composed.phase_given) { /* the bare form: its first phase */
    bs_config_free(composed.config);
    composed.config = NULL;
    request.compose.phase = "phase0_correctness";
    bs_note_add(&notes, "this is phase 0; a bare run goes on with phase 1 (--phase time --print-config)");
  }
  bs_config_free(composed.config);
  composed.config = NULL;
  if (rc == BS_OK) rc = bsrun_open_tree(&request, BS_LOG_WARN, &context, &composed.config, err);
  const int open = rc == BS_OK && lab_auto_asked(composed.config);
  if (rc == BS_OK && !open) {
    rc = bs_experiment_make(context, composed.config, request.configs_dir, &notes, &experiment, err);
    composed.config = NULL;
  }
  bs_node *config = open ? composed.config : experiment.config;
  if (open) bs_schema_drop_idle(config);
  if (open) bs_note_add(&notes, "the method and what goes with it are chosen when this runs (--method auto)");
  if (rc == BS_OK && args_has(a, "run-id"))
    rc = bs_config_set_text(config, "run_id", args_value(a, "run-id"), err);
  for (size_t i = 0; i < notes.count; i++) bsrun_note(args_has(a, "quiet"), notes.items[i]);
  if (rc == BS_OK) rc = print_tree(config, format, args_has(a, "output") || args_has(a, "wide"), err);
  bs_experiment_free(&experiment);
  bs_config_free(composed.config);
  if (context != NULL) bs_context_close(context);
  bs_notes_free(&notes);
  bsrun_request_free(&request);
  return rc;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static void add_key(json_t *rows, const char *key, const char *type, const char *value, const char *values,
                    const char *effect, const char *text) {
  json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "key", key, "type", type, "default",
                                        value, "values", values, "effect", effect, "text", text));
}

/* Keys of the table; those of older files are in docs/dev/original.md. The default is what a bare run has. */
static void add_table(json_t *rows, const bs_node *base) {
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  for (size_t i = 0; i < count; i++) {
    const bs_key *k = &keys[i];
    char values[256];
    if (k->effect == BS_EFFECT_DECORATIVE || k->effect == BS_EFFECT_OLDER) continue;
    const bs_node *given = bs_config_find(base, k->path);
    const int has = given != NULL && given->kind == BS_NODE_SCALAR;
    bs_key_range(k, values, sizeof values);
    char *older = strstr(values, "||");
    if (older != NULL) *older = '\0';
    add_key(rows, k->path, bs_key_type_name(k->type), has ? given->text : k->default_text, values,
            bs_key_effect_name(k->effect), k->doc);
  }
}

/* "key=default: text" lines as rows; a second thing with the same option is named in the row of the first. */
static void add_options(json_t *rows, const char *section, const char *thing, const char *docs) {
  while (docs != NULL && *docs != '\0') {
    const size_t length = strcspn(docs, "\n"), key = strcspn(docs, "=:\n"), colon = strcspn(docs, ":\n");
    const size_t from = colon < length ? colon + 1 + strspn(docs + colon + 1, " ") : length;
    char path[128], value[96], text[640];
    json_t *row = NULL;
    size_t i = 0;
    snprintf(path, sizeof path, "%s.%.*s", section, (int)key, docs);
    snprintf(value, sizeof value, "%.*s", docs[key] == '=' && colon > key ? (int)(colon - key - 1) : 0,
             docs + key + 1);
    snprintf(text, sizeof text, "%s: %.*s", thing, (int)(length - from), docs + from);
    json_array_foreach(rows, i, row) {
      const char *known = json_string_value(json_object_get(row, "text")), *own = strstr(known, ": ");
      if (own == NULL || strcmp(json_string_value(json_object_get(row, "key")), path) != 0) continue;
      if (strcmp(own, strstr(text, ": ")) != 0) continue;
      snprintf(text, sizeof text, "%.*s, %s%s", (int)(own - known), known, thing, own);
      break;
    }
    if (i < json_array_size(rows)) {
      json_object_set_new(row, "text", json_string(text));
    } else if (bs_schema_find(path) == NULL) {
      add_key(rows, path, "option", value, "", "plugin", text);
    }
    docs += length + (docs[length] == '\n');
  }
}

static void add_plugin(json_t *rows, bs_context *context, const char *id) {
  for (uint32_t i = 0; i < bs_thing_count(context, id); i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    const bs_method *method = NULL;
    const bs_workload *workload = NULL;
    void *state = NULL;
    if (bs_thing_get(context, id, i, &thing, NULL) != BS_OK) continue;
    if (thing.kind == BS_KIND_METHOD && bs_find_method(context, thing.name, &method, &state, NULL) == BS_OK)
      add_options(rows, "method", thing.name, method->option_docs);
    if (thing.kind == BS_KIND_WORKLOAD &&
        bs_find_workload(context, thing.name, &workload, &state, NULL) == BS_OK)
      add_options(rows, "workload", thing.name, workload->option_docs);
  }
  for (uint32_t i = 0; i < bs_param_count(context, id); i++) {
    bs_param_info param = {.struct_size = sizeof param};
    char path[128];
    if (bs_param_info_get(context, id, i, &param, NULL) != BS_OK) continue;
    snprintf(path, sizeof path, "plugins.%s.%s", id, param.desc.name);
    add_key(rows, path, "parameter", param.value_text, param.desc.choices == NULL ? "" : param.desc.choices,
            "plugin", param.desc.doc == NULL ? "" : param.desc.doc);
  }
}

/* Options of the plugins that come with bsrun, where they can be used, and of those that --plugin names. */
static int32_t add_plugins(json_t *rows, const bs_node *base, bs_error *err) {
  bs_context *context = NULL;
  int32_t rc = bs_context_of_config(base, BS_LOG_ERROR, bsrun_log, NULL, &context, err);
  for (uint32_t i = 0; rc == BS_OK && i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    bs_error why = BS_ERROR_INIT;
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK) continue;
    const int named = strcmp(info.origin, "--plugin") == 0;
    if (!named && !info.builtin && strcmp(info.origin, "the library's folder") != 0) continue;
    if (info.state != BS_PLUGIN_FOUND && info.state != BS_PLUGIN_ACTIVE && !named) continue;
    if (bs_plugin_activate(context, info.id, &why) == BS_OK) {
      add_plugin(rows, context, info.id);
    } else if (named) {
      *err = why;
      rc = why.code;
    }
  }
  if (context != NULL) bs_context_close(context);
  return rc;
}

/* The rows of the keys that match. */
static int32_t take_matches(const json_t *rows, const char *pattern, json_t **out, bs_error *err) {
  const char *known[1024], *key, *dot;
  size_t n = 0;
  *out = json_array();
  for (size_t i = 0; i < json_array_size(rows) && n + 1 < sizeof known / sizeof known[0]; i++) {
    key = bs_get_text(json_array_get(rows, i), "key");
    dot = strrchr(key, '.');
    known[n++] = key;
    if (dot != NULL) known[n++] = dot + 1;
    if (bsrun_matches(pattern, key)) json_array_append(*out, json_array_get(rows, i));
  }
  if (json_array_size(*out) > 0) return BS_OK;
  const char *nearest = bs_nearest(pattern, known, n);
  bs_error_set(err, BS_CONFIG, "BS-CFG-KEY", "no configuration key matches '%.100s'", pattern);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "bsrun config keys lists them");
  return BS_CONFIG;
}

/* A row a section, with the names of its keys. */
static int32_t print_sections(const json_t *rows, bs_error *err) {
  static const bs_field fields[] = {{"section", "section", 0, 0}, {"keys", "keys", 0, 0}};
  json_t *sections = json_array();
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const char *key = bs_get_text(json_array_get(rows, i), "key"), *dot = strrchr(key, '.');
    char name[128];
    size_t k = 0;
    snprintf(name, sizeof name, "%.*s", dot != NULL ? (int)(dot - key) : 6, dot != NULL ? key : "(none)");
    while (k < json_array_size(sections) &&
           strcmp(bs_get_text(json_array_get(sections, k), "section"), name) != 0)
      k++;
    if (k == json_array_size(sections))
      json_array_append_new(sections, json_pack("{s:s, s:s}", "section", name, "keys", ""));
    json_t *section = json_array_get(sections, k);
    const char *before = bs_get_text(section, "keys");
    json_object_set_new(
        section, "keys",
        json_sprintf("%s%s%s", before, before[0] != '\0' ? " " : "", dot != NULL ? dot + 1 : key));
  }
  const int32_t rc = bs_report_print(stdout, BS_FORMAT_TABLE, fields, 2, sections, err);
  json_decref(sections);
  printf(
      "\nbsrun config keys PATTERN has defaults, values and meanings, as in `config keys model` or\n"
      "`config keys 'phase.pairs_*'`; --wide and -o have those of all keys.\n");
  return rc;
}

static int32_t print_keys(const args *a, bs_error *err) {
  static const bs_field fields[] = {
      {"key", "key", 0, 0},       {"type", "type", BS_FIELD_WIDE, 0},     {"default", "default", 0, 0},
      {"values", "values", 0, 0}, {"effect", "effect", BS_FIELD_WIDE, 0}, {"text", "what", 0, 0}};
  bsrun_request request = {0};
  bs_composed composed = {0};
  json_t *rows = json_array(), *matches = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = bsrun_request_make(a, &request, err);
  if (rc == BS_OK) rc = bs_compose(&request.compose, &composed, err);
  if (rc == BS_OK) add_table(rows, composed.config);
  if (rc == BS_OK) rc = add_plugins(rows, composed.config, err);
  if (rc == BS_OK && a->n_words > 0) rc = take_matches(rows, a->words[0], &matches, err);
  const json_t *shown = matches != NULL ? matches : rows;
  if (rc == BS_OK && format == BS_FORMAT_TABLE && matches == NULL)
    rc = print_sections(rows, err);
  else if (rc == BS_OK)
    rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], shown, err);
  bs_config_free(composed.config);
  bsrun_request_free(&request);
  json_decref(matches);
  json_decref(rows);
  return rc;
}

static const bsrun_verb print_verb = {
    .name = "print",
    .words = "[options of run] [-o FORMAT]",
    .summary = "the resolved configuration as YAML, or with -o as rows",
    .examples =
        "  bsrun config print --method blockshock --phase time\n"
        "  bsrun config print --config mine.yaml --set model.N=512 > resolved.yaml\n",
    .options = bsrun_run_options,
    .run = config_print,
};
static const bsrun_verb keys_verb = {
    .name = "keys",
    .words = "[PATTERN] [-o FORMAT]",
    .summary = "the keys by sections; of those that match what they mean",
    .about =
        "PATTERN is a part of a key, or with * ? [ a glob of the whole key. Every format but the table\n"
        "has all of a key.\n",
    .examples =
        "  bsrun config keys\n"
        "  bsrun config keys seed\n"
        "  bsrun config keys 'phase.pairs_*'\n"
        "  bsrun config keys -o md\n",
    .options = config_keys_options,
    .run = print_keys,
    .max_words = 1,
};
static const bsrun_verb *const second[] = {&print_verb, &keys_verb, NULL};
const bsrun_verb verb_config = {
    .name = "config",
    .summary = "print a resolved configuration, list the keys",
    .subverbs = second,
};
