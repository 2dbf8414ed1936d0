/* SPDX-License-Identifier: MIT
 * plugins_knobs.c - `bsrun plugins knobs [ID|PATH|PATTERN]`: the knobs of implementations of ops, of methods
 * and of collective algorithms, with the legal values. Each plugin is opened in a child process only.
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

/* ---- what is shown --------------------------------------------------------------------------- */

/* Adds a line for each thing whose knobs are set by `place`, with their names. */
static void add_things(json_t *things, const json_t *rows, const char *place) {
  json_t *thing = NULL;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *of = bs_get_text(row, "of"), *set = bs_get_text(row, "set");
    if (strncmp(set, place, strlen(place)) != 0) continue;
    if (thing == NULL || strcmp(bs_get_text(thing, "of"), of) != 0) {
      json_array_append_new(
          things, json_pack("{s:s, s:s, s:s}", "set", thing == NULL ? place : "", "of", of, "knobs", ""));
      thing = json_array_get(things, json_array_size(things) - 1);
    }
    if (strcmp(set, place) == 0) continue; /* the row of the algorithm itself */
    const char *known = bs_get_text(thing, "knobs");
    json_object_set_new(thing, "knobs",
                        json_sprintf("%s%s%s", known, known[0] != '\0' ? " " : "", bs_get_text(row, "knob")));
  }
}

/* The names alone, in groups by what sets them. */
static int32_t print_names(const json_t *rows, bs_error *err) {
  static const bs_field names[] = {{"set", "SET BY", 0, 0}, {"of", "OF", 0, 0}, {"knobs", "KNOBS", 0, 0}};
  static const char *const places[] = {"method", "tune.choices", "hardware.algorithm"};
  json_t *things = json_array();
  for (size_t i = 0; i < 3; i++) add_things(things, rows, places[i]);
  const int32_t rc = bs_report_print(stdout, BS_FORMAT_TABLE, names, 3, things, err);
  json_decref(things);
  printf(
      "\nbsrun plugins knobs PATTERN has values, defaults and meanings, as in `plugins knobs overlap` or\n"
      "`plugins knobs 'matmul@cpu/*'`; --wide and -o have those of all knobs.\n");
  return rc;
}

/* Names a thing once above its knobs. */
static void name_once(json_t *rows) {
  for (size_t i = json_array_size(rows); i-- > 1;)
    if (strcmp(bs_get_text(json_array_get(rows, i), "of"), bs_get_text(json_array_get(rows, i - 1), "of")) ==
        0)
      json_object_set_new(json_array_get(rows, i), "of", json_string(""));
}

/* The knobs whose name, or whose thing, matches. */
static void keep_matches(json_t *rows, const char *pattern) {
  for (size_t i = json_array_size(rows); i-- > 0;) {
    const json_t *row = json_array_get(rows, i);
    if (!bsrun_matches(pattern, bs_get_text(row, "of")) && !bsrun_matches(pattern, bs_get_text(row, "knob")))
      json_array_remove(rows, i);
  }
}

/* A plugin by its id or its file, else a pattern. */
static int32_t find_rows(const args *a, const char *what, bs_context **context, json_t *rows, bs_error *err) {
  const int is_file = what != NULL && strchr(what, '/') != NULL && strchr(what, '@') == NULL;
  bs_plugin_info info = {0};
  char id[64] = "";
  int32_t rc = plugins_open_context(a, &what, is_file, context, err);
  if (rc != BS_OK) return rc;
  if (what == NULL) return look_at_all(*context, rows, err);
  bs_plugin_id_of(what, id, sizeof id);
  bs_error none = BS_ERROR_INIT;
  rc = plugins_find(*context, is_file ? id : what, &info, &none);
  if (rc == BS_OK) return plugins_look(*context, info.id, look, rows, err);
  if (rc == BS_NOT_FOUND && !is_file) {
    rc = look_at_all(*context, rows, err);
    keep_matches(rows, what);
    if (rc != BS_OK || json_array_size(rows) > 0) return rc;
    rc = bs_error_set(err, BS_NOT_FOUND, none.id,
                      "no plugin, implementation, method, algorithm or knob matches '%.100s'", what);
    bs_error_hint(err, "%s", none.hint);
    return rc;
  }
  *err = none;
  return rc;
}

static int32_t print_knobs(const args *a, bs_error *err) {
  const char *what = a->n_words == 1 ? a->words[0] : NULL;
  bs_context *context = NULL;
  json_t *rows = json_array();
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = find_rows(a, what, &context, rows, err);
  if (rc == BS_OK && format == BS_FORMAT_TABLE && what == NULL) {
    rc = print_names(rows, err);
  } else if (rc == BS_OK) {
    if (format == BS_FORMAT_TABLE) name_once(rows);
    rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  }
  json_decref(rows);
  if (context != NULL) bs_context_close(context);
  return rc;
}

const bsrun_verb plugins_knobs = {
    .name = "knobs",
    .words = "[ID|PATH|PATTERN] [options]",
    .summary = "what plugins let you choose; of those that match what they mean",
    .about =
        "ID and PATH are a plugin. PATTERN is a part of the name of an implementation, a method, an\n"
        "algorithm or a knob, or with * ? [ a glob of all of it. Knobs of ops are set by tune.choices,\n"
        "those of methods by method.KNOB, those of collective algorithms by hardware.algorithm.\n",
    .examples =
        "  bsrun plugins knobs\n"
        "  bsrun plugins knobs cpu\n"
        "  bsrun plugins knobs overlap\n"
        "  bsrun plugins knobs 'matmul@cpu/*'\n",
    .options = plugins_knobs_options,
    .run = print_knobs,
    .max_words = 1,
    .takes = "plugins :file",
};
