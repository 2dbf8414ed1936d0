/* SPDX-License-Identifier: MIT
 * plugins_knobs.c - `bsrun plugins knobs [ID|PATH]`: the knobs of implementations of ops, of methods and
 * of collective algorithms, with the legal values. Each plugin is opened in a child process only.
 */
#include <stdio.h>
#include <string.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/json.h"

static const args_option plugins_knobs_options[] = {
    {OPT_PLUGIN, NULL, 0},  {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},     ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0}, ARGS_HELP,
};

static const bs_field fields[] = {
    {"of", "OF", 0, 0},
    {"knob", "KNOB", 0, 0},
    {"values", "VALUES", 0, 0},
    {"default", "DEFAULT", 0, 0},
    {"text", "WHAT", 0, 0},
    {"plugin", "PLUGIN", BS_FIELD_WIDE, 0},
    {"set", "SET", BS_FIELD_WIDE, 0},
};

static void add_row(json_t *rows, const bs_thing_info *thing, const char *name, const char *values,
                    const char *standard, const char *text, const char *set) {
  json_t *row = json_object();
  json_object_set_new(row, "of", bs_json_of_text(thing->name));
  json_object_set_new(row, "knob", bs_json_of_text(name));
  json_object_set_new(row, "values", bs_json_of_text(values));
  json_object_set_new(row, "default", bs_json_of_text(standard));
  json_object_set_new(row, "text", bs_json_of_text(text));
  json_object_set_new(row, "plugin", bs_json_of_text(thing->plugin));
  json_object_set_new(row, "set", bs_json_of_text(set));
  json_array_append_new(rows, row);
}

/* Options of an algorithm, which hardware.algorithm names. */
static void add_options(json_t *rows, bs_context *context, const bs_thing_info *thing) {
  const bs_algorithm *algorithm = NULL;
  if (bs_find_algorithm(context, thing->name, &algorithm, NULL, NULL) != BS_OK) return;
  add_row(rows, thing, "algorithm", thing->name, "", thing->summary, "hardware.algorithm");
  for (uint32_t i = 0; algorithm->params != NULL && algorithm->params[i] != NULL; i++) {
    const bs_param_desc *p = algorithm->params[i];
    char set[160];
    snprintf(set, sizeof set, "hardware.algorithm=%.60s:%.60s=", thing->name, p->name);
    add_row(rows, thing, p->name, p->choices != NULL ? p->choices : "any", p->default_text, p->doc, set);
  }
}

/* In the child. */
static int32_t look(bs_context *context, const char *id, json_t *rows, bs_error *err) {
  for (uint32_t i = 0; i < bs_thing_count(context, id); i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    const int32_t rc = bs_thing_get(context, id, i, &thing, err);
    if (rc != BS_OK) return rc;
    if (thing.kind == BS_KIND_ALGORITHM) add_options(rows, context, &thing);
    for (uint32_t k = 0; k < thing.n_knobs; k++) {
      const bs_knob *knob = thing.knobs[k];
      char set[160];
      if (thing.kind == BS_KIND_METHOD)
        snprintf(set, sizeof set, "method.%.60s", knob->name);
      else
        snprintf(set, sizeof set, "tune.choices={%.60s=}", knob->name);
      add_row(rows, &thing, knob->name, knob->values, knob->standard, knob->summary, set);
    }
  }
  return BS_OK;
}

/* Reads the knobs of all plugins that may have some; one that cannot be opened is reported. */
static int32_t look_at_all(bs_context *context, json_t *rows, bs_error *err) {
  const uint32_t kinds = 1u << BS_KIND_OP | 1u << BS_KIND_METHOD | 1u << BS_KIND_ALGORITHM;
  for (uint32_t i = 0; i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    bs_error why = BS_ERROR_INIT;
    const int32_t rc = bs_plugin_get(context, i, &info, err);
    if (rc != BS_OK) return rc;
    if (info.state != BS_PLUGIN_FOUND && info.state != BS_PLUGIN_ACTIVE) continue;
    if ((info.kinds & kinds) == 0 && info.kinds != 0) continue;
    if (plugins_look(context, info.id, look, rows, &why) == BS_OK) continue;
    char line[768];
    snprintf(line, sizeof line, "knobs of plugin %s are not known: [%s] %.600s", info.id, why.id,
             why.message);
    bsrun_note(0, line);
  }
  return BS_OK;
}

static int32_t print_knobs(const args *a, bs_error *err) {
  const char *what = a->n_words == 1 ? a->words[0] : NULL;
  bs_plugin_info info = {0};
  bs_context *context = NULL;
  char id[64] = "";
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (what != NULL) bs_plugin_id_of(what, id, sizeof id);
  if (rc == BS_OK)
    rc = plugins_open_context(a, &what, what != NULL && strchr(what, '/') != NULL, &context, err);
  if (rc == BS_OK && what != NULL) rc = plugins_find(context, id, &info, err);
  json_t *rows = json_array();
  if (rc == BS_OK)
    rc = what != NULL ? plugins_look(context, id, look, rows, err) : look_at_all(context, rows, err);
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  json_decref(rows);
  if (context != NULL) bs_context_close(context);
  return rc;
}

const bsrun_verb plugins_knobs = {
    .name = "knobs",
    .words = "[ID|PATH] [options]",
    .summary = "names, legal values and defaults of what plugins let you choose",
    .about =
        "Implementations of ops are told by tune.choices, methods by method.KNOB, collective algorithms by\n"
        "hardware.algorithm.\n",
    .examples = "  bsrun plugins knobs cpu\n",
    .options = plugins_knobs_options,
    .run = print_knobs,
    .max_words = 1,
    .takes = "plugins :file",
};
