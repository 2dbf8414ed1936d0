/* SPDX-License-Identifier: MIT
 * inspect.c - `bsrun plugins inspect ID|PATH`: everything one plugin offers. Opened in a child process only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/json.h"
#include "lab/store/sha256.h"

static const args_option plugins_inspect_options[] = {
    {OPT_EXISTS, NULL, 0},
    {OPT_AT_LEAST, "this version, as 1.2.0; print nothing", 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0},
    ARGS_HELP,
};
static const bs_field inspect_fields[] = {
    {"part", "PART", 0, 0}, {"name", "NAME", 0, 0}, {"value", "VALUE", 0, 0},
    {"at", "AT", 0, 0},     {"text", "WHAT", 0, 0},
};

static void add_row(json_t *rows, const char *part, const char *name, const char *value, const char *at,
                    const char *text) {
  json_t *row = json_object();
  json_object_set_new(row, "part", bs_json_of_text(part));
  json_object_set_new(row, "name", bs_json_of_text(name));
  json_object_set_new(row, "value", bs_json_of_text(value));
  json_object_set_new(row, "at", bs_json_of_text(at));
  json_object_set_new(row, "text", bs_json_of_text(text));
  json_array_append_new(rows, row);
}

/* Adds the grade that `plugins check` has given to this very file. */
static void add_grade(json_t *rows, const bs_plugin_info *info) {
  char text[160] = "bsrun plugins check grades it";
  bs_grades grades;
  bsrun_grades(0, &grades);
  const json_t *grade = plugins_grade(&grades, info);
  if (grade != NULL)
    snprintf(text, sizeof text, "%.16s kit of Block-Shock %.32s, %.32s",
             json_string_value(json_object_get(grade, "kit")),
             json_string_value(json_object_get(grade, "blockshock")),
             json_string_value(json_object_get(grade, "graded_at")));
  add_row(rows, "plugin", "grade",
          grade != NULL ? json_string_value(json_object_get(grade, "line")) : "not graded", "", text);
  bs_grades_close(&grades);
}

static void add_file(json_t *rows, const bs_plugin_info *info) {
  static const char *const sanitizers[] = {"none", "address", "thread"};
  char abi[24], kinds[96], hex[65] = "";
  snprintf(abi, sizeof abi, "%u.%u", info->abi >> 16, info->abi & 0xffffu);
  plugins_kinds_text(info->kinds, kinds, sizeof kinds);
  add_row(rows, "plugin", "id", info->id, "", info->summary);
  add_row(rows, "plugin", "version", info->version, "", "");
  add_row(rows, "plugin", "kinds", kinds, "", "");
  add_row(rows, "plugin", "abi", abi, "", "");
  add_row(rows, "plugin", "sanitizer", info->sanitizer < 3 ? sanitizers[info->sanitizer] : "?", "", "");
  add_row(rows, "plugin", "found", info->origin, "", "where it was found");
  if (info->builtin) {
    add_row(rows, "plugin", "library", bs_build_id(), "", "build id of the library that it is part of");
  } else {
    add_row(rows, "plugin", "path", info->path, "", "");
    if (bs_sha256_file(info->path, hex, NULL) == BS_OK) add_row(rows, "plugin", "sha256", hex, "", "");
    add_grade(rows, info);
  }
}

/* NULL: a kind or a thing without options. */
static const char *option_docs(bs_context *context, const bs_thing_info *thing) {
  const bs_method *method = NULL;
  const bs_workload *workload = NULL;
  const bs_importer *importer = NULL;
  const bs_topology *topology = NULL;
  void *state;
  switch (thing->kind) {
    case BS_KIND_METHOD:
      return bs_find_method(context, thing->name, &method, &state, NULL) == BS_OK ? method->option_docs
                                                                                  : NULL;
    case BS_KIND_WORKLOAD:
      return bs_find_workload(context, thing->name, &workload, &state, NULL) == BS_OK ? workload->option_docs
                                                                                      : NULL;
    case BS_KIND_IMPORTER:
      return bs_find_importer(context, thing->name, &importer, &state, NULL) == BS_OK ? importer->option_docs
                                                                                      : NULL;
    case BS_KIND_TOPOLOGY:
      return bs_find_topology(context, thing->name, &topology, &state, NULL) == BS_OK ? topology->option_docs
                                                                                      : NULL;
    default:
      return NULL;
  }
}

/* A row each, with the legal values where other rows have their place. */
static void add_knobs(json_t *rows, const bs_thing_info *thing) {
  for (uint32_t i = 0; i < thing->n_knobs; i++) {
    const bs_knob *knob = thing->knobs[i];
    char name[192];
    snprintf(name, sizeof name, "%s.%s", thing->kind == BS_KIND_METHOD ? "method" : thing->name, knob->name);
    add_row(rows, "knob", name, knob->standard, knob->values, knob->summary);
  }
}

static int32_t add_things(json_t *rows, bs_context *context, const char *id, bs_error *err) {
  for (uint32_t i = 0; i < bs_thing_count(context, id); i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    char at[256] = "";
    const int32_t rc = bs_thing_get(context, id, i, &thing, err);
    if (rc != BS_OK) return rc;
    if (thing.at.file != NULL) snprintf(at, sizeof at, "%s:%u", plugins_source(thing.at.file), thing.at.line);
    add_row(rows, thing.kind < BS_KIND_COUNT_ ? plugins_kind_names[thing.kind] : "?", thing.name,
            thing.aliases, at, thing.summary);
    add_knobs(rows, &thing);
    const char *docs = option_docs(context, &thing);
    while (docs != NULL && *docs != '\0') { /* "key=default: text" lines */
      char name[128], value[96];
      const size_t length = strcspn(docs, "\n"), key = strcspn(docs, "=:\n");
      const size_t colon = strcspn(docs, ":\n");
      snprintf(name, sizeof name, "%s.%.*s", plugins_kind_names[thing.kind], (int)key, docs);
      snprintf(value, sizeof value, "%.*s", docs[key] == '=' && colon > key ? (int)(colon - key - 1) : 0,
               docs + key + 1);
      char text[256];
      const size_t from = colon < length ? colon + 1 : length;
      snprintf(text, sizeof text, "%.*s", (int)(length - from), docs + from);
      add_row(rows, "option", name, value, "default", text + strspn(text, " "));
      docs += length + (docs[length] == '\n');
    }
  }
  return BS_OK;
}

static int32_t add_params(json_t *rows, bs_context *context, const char *id, bs_error *err) {
  for (uint32_t i = 0; i < bs_param_count(context, id); i++) {
    bs_param_info param = {.struct_size = sizeof param};
    char name[128], text[320];
    const int32_t rc = bs_param_info_get(context, id, i, &param, err);
    if (rc != BS_OK) return rc;
    snprintf(name, sizeof name, "plugins.%s.%s", id, param.desc.name);
    snprintf(text, sizeof text, "%s%s%s%s%s", param.desc.doc == NULL ? "" : param.desc.doc,
             param.desc.unit == NULL ? "" : " in ", param.desc.unit == NULL ? "" : param.desc.unit,
             param.desc.choices == NULL ? "" : "; ", param.desc.choices == NULL ? "" : param.desc.choices);
    add_row(rows, "param", name, param.value_text, param.origin, text);
  }
  return BS_OK;
}

int32_t plugins_find(const bs_context *context, const char *id, bs_plugin_info *out, bs_error *err) {
  const char *ids[256];
  bs_plugin_info refused = {0};
  size_t n = 0;
  for (uint32_t i = 0; i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK) continue;
    if (n < 256) ids[n++] = info.id;
    if (strcmp(info.id, id) != 0) continue;
    if (info.state == BS_PLUGIN_FOUND || info.state == BS_PLUGIN_ACTIVE) {
      *out = info;
      return BS_OK;
    }
    if (refused.id == NULL) refused = info;
  }
  if (refused.id != NULL) { /* the rule, the file and the way out, as a run that names it would say */
    bs_error_set(err, BS_UNAVAILABLE, refused.why_id, "%s", refused.why);
    bs_error_where(err, "%s", refused.path);
    if (refused.hint[0] != '\0') bs_error_hint(err, "%s", refused.hint);
    return BS_UNAVAILABLE;
  }
  const char *nearest = bs_nearest(id, ids, n);
  bs_error_set(err, BS_NOT_FOUND, "BS-PLG-NONE", "there is no plugin '%.64s'", id);
  if (nearest != NULL) {
    bs_error_hint(err, "did you mean '%s'?", nearest);
  } else {
    bs_error_hint(err, "bsrun plugins list");
  }
  return BS_NOT_FOUND;
}

/* Are the numbers of `version` those of `least` or later? -1 when least is not of the form X[.Y[.Z]]. */
static int version_at_least(const char *version, const char *least) {
  unsigned long want[3] = {0, 0, 0}, have;
  char *end;
  for (int part = 0; part < 3; part++) { /* an empty one, of a variable that is not set, is no version */
    if (*least < '0' || *least > '9') return -1;
    want[part] = strtoul(least, &end, 10);
    if (*end == '\0') break;
    if (*end != '.' || part == 2) return -1;
    least = end + 1;
  }
  for (int part = 0; part < 3; part++) {
    have = strtoul(version, &end, 10);
    if (have != want[part]) return have > want[part];
    version = *end == '.' ? end + 1 : end;
  }
  return 1;
}

static int32_t check_version(const args *a, const bs_plugin_info *info, bs_error *err) {
  const char *least = args_value(a, "at-least");
  if (least == NULL) return BS_OK;
  const int is = version_at_least(info->version, least);
  if (is < 0) return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--at-least: '%.40s' is not X.Y.Z", least);
  if (is > 0) return BS_OK;
  return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-OLD", "%s is version %s, older than %.40s", info->id,
                      info->version, least);
}

/* In the child. */
static int32_t look(bs_context *context, const char *id, json_t *rows, bs_error *err) {
  bs_plugin_info info = {0};
  int32_t rc = plugins_find(context, id, &info, err);
  if (rc == BS_OK) add_file(rows, &info);
  if (rc == BS_OK) rc = add_things(rows, context, id, err);
  return rc == BS_OK ? add_params(rows, context, id, err) : rc;
}

static int32_t inspect(const args *a, const char *what, bs_error *err) {
  bs_plugin_info info = {0};
  bs_context *context = NULL;
  char id[64];
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  bs_plugin_id_of(what, id, sizeof id);
  /* An id that is not a file is looked up here, so that the reason of a refused plugin is printed. */
  if (rc == BS_OK) rc = plugins_open_context(a, &what, strchr(what, '/') != NULL, &context, err);
  if (rc == BS_OK) rc = plugins_find(context, id, &info, err);
  if (rc == BS_OK) rc = check_version(a, &info, err);
  const int asks = args_has(a, "exists") || args_has(a, "at-least");
  json_t *rows = json_array();
  if (rc == BS_OK) rc = asks ? plugins_probe(context, id, err) : plugins_look(context, id, look, rows, err);
  if (rc == BS_OK && !asks)
    rc = bs_report_print(stdout, format, inspect_fields, sizeof inspect_fields / sizeof inspect_fields[0],
                         rows, err);
  json_decref(rows);
  if (context != NULL) bs_context_close(context);
  return rc;
}

static int run(const args *a, bs_error *err) {
  const int32_t rc = inspect(a, a->words[0], err);
  if (rc == BS_OK) return 0;
  return args_has(a, "exists") && rc != BS_USAGE ? (int)bs_status_exit_code(rc) : bsrun_fail(err);
}

const bsrun_verb plugins_inspect = {
    .name = "inspect",
    .words = "ID|PATH [options]",
    .summary = "what one plugin registers, where in its source; its parameters",
    .examples =
        "  bsrun plugins inspect cpu\n"
        "  bsrun plugins inspect ./build/bs_acme.so\n"
        "  bsrun plugins inspect cpu --exists\n",
    .options = plugins_inspect_options,
    .exit = run,
    .min_words = 1,
    .max_words = 1,
    .exits = "0; 5 it cannot be used\n",
    .takes = "plugins :file",
};
