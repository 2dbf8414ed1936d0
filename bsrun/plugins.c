/* SPDX-License-Identifier: MIT
 * plugins.c - `bsrun plugins list [--load]`. Without --load nothing of a plugin is executed. The other
 * words of the verb are handed on. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/completion.h"
#include "bsrun/opening.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/json.h"

static const args_option plugins_list_options[] = {
    {OPT_LOAD, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0},
    ARGS_HELP,
};

static const bs_field list_fields[] = {
    {"id", "ID", 0, 0},
    {"version", "VERSION", 0, 0},
    {"kinds", "KINDS", 0, 0},
    {"state", "STATE", 0, 0},
    {"from", "FROM / WHY", 0, 0},
    {"graded", "GRADED", 0, 0},
    {"abi", "ABI", 0, 0},
    {"path", "PATH", BS_FIELD_WIDE, 0},
    {"origin", "ORIGIN", BS_FIELD_WIDE, 0},
    {"why", "WHY", BS_FIELD_WIDE, 0},
    {"things", "THINGS", BS_FIELD_WIDE, 0},
    {"summary", "WHAT", BS_FIELD_WIDE, 0},
    {"grade", "GRADE", BS_FIELD_WIDE, 0},
};

const char *const plugins_kind_names[] = {"op",       "backend",  "comm",      "method",
                                          "workload", "importer", "algorithm", "topology"};
_Static_assert(sizeof plugins_kind_names / sizeof plugins_kind_names[0] == BS_KIND_COUNT_, "a name each");

const char *plugins_source(const char *file) {
  const char *found = file;
  for (const char *at = file; (at = strstr(at, "/plugins/")) != NULL; at++) found = at + 1;
  return found;
}

void plugins_kinds_text(uint32_t kinds, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (uint32_t kind = 0; kind < BS_KIND_COUNT_ && used + 1 < size; kind++) {
    if (!(kinds & (1u << kind))) continue;
    const int n = snprintf(out + used, size - used, "%s%s", used == 0 ? "" : ",", plugins_kind_names[kind]);
    if (n > 0) used += (size_t)n;
  }
}

/* The next line "kind:name[=of][@backend]" of a kind: its name and length; NULL at the end. */
static const char *next_thing(const char **things, const char *kind, size_t *out_size) {
  const size_t lead = strlen(kind);
  while (*things != NULL && **things != '\0') {
    const char *line = *things;
    const size_t n = strcspn(line, "\n");
    *things = line + n + (line[n] == '\n');
    if (n <= lead + 1 || strncmp(line, kind, lead) != 0 || line[lead] != ':') continue;
    *out_size = strcspn(line + lead + 1, "=\n");
    return line + lead + 1;
  }
  return NULL;
}

int plugins_offers(const char *things, const char *kind, const char *name) {
  size_t size;
  for (const char *p; (p = next_thing(&things, kind, &size)) != NULL;) {
    if (strlen(name) == size && strncmp(p, name, size) == 0) return 1;
  }
  return 0;
}

/* A parameter has a value of the user's: from the configuration, or the environment. */
static int param_given(const bs_node *config, const char *id, const char *name) {
  char text[192];
  snprintf(text, sizeof text, "plugins.%.60s.%.60s", id, name);
  if (bs_config_find(config, text) != NULL) return 1;
  snprintf(text, sizeof text, "BS_%.60s_%.60s", id, name);
  for (char *p = text; *p != '\0'; p++) *p = (char)toupper((unsigned char)*p);
  return secure_getenv(text) != NULL;
}

int plugins_lacks(const bs_node *config, const bs_plugin_info *info, char *out_library, size_t size) {
  const char *things = info->things;
  size_t n;
  for (const char *p; (p = next_thing(&things, "needs", &n)) != NULL;) {
    char param[64] = "";
    if (p[n] == '=') snprintf(param, sizeof param, "%.*s", (int)strcspn(p + n + 1, "\n"), p + n + 1);
    snprintf(out_library, size, "%.*s", (int)n, p);
    const char *const names[] = {out_library};
    if (param[0] != '\0' && param_given(config, info->id, param)) continue;
    if (plugins_probe_library(names, 1) == NULL) return 1;
  }
  return 0;
}

int plugins_is_for_tests(const bs_plugin_info *info) {
  return strncmp(info->summary, "for tests", 9) == 0;
}

void plugins_add_names(json_t *names, bs_context *context, const bs_plugin_info *info, uint32_t kind) {
  const char *things = info->things;
  size_t size;
  for (const char *p; (p = next_thing(&things, plugins_kind_names[kind], &size)) != NULL;)
    if (p[size] != '=') bsrun_add_part(names, p, size); /* not "alias=name" */
  if (!info->builtin || bs_plugin_activate(context, info->id, NULL) != BS_OK) return;
  for (uint32_t i = 0; i < bs_thing_count(context, info->id); i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    if (bs_thing_get(context, info->id, i, &thing, NULL) == BS_OK && thing.kind == kind)
      bsrun_add_name(names, thing.name);
  }
}

int32_t plugins_compose(const args *a, const char *configs_dir, const char *const *extra, size_t n_extra,
                        bs_node **out_config, bs_error *err) {
  const bsrun_base base = {.configs_dir = configs_dir, .plugins = extra, .n_plugins = n_extra};
  return bsrun_base_tree(a, &base, out_config, err);
}

int32_t plugins_open_context(const args *a, const char *const *extra, size_t n_extra, bs_context **out,
                             bs_error *err) {
  const int32_t level = args_has(a, "verbose")  ? BS_LOG_DEBUG
                        : args_has(a, "exists") ? BS_LOG_ERROR /* its answer is the exit code */
                                                : BS_LOG_WARN;
  bs_node *config = NULL;
  int32_t rc = plugins_compose(a, NULL, extra, n_extra, &config, err);
  if (rc == BS_OK) rc = bs_context_of_config(config, level, bsrun_log, NULL, out, err);
  bs_config_free(config);
  return rc;
}

int32_t plugins_open_context_set(const args *a, const char *setting, bs_context **out, bs_error *err) {
  args with = *a;
  size_t option = 0;
  while (option < a->n_options && strcmp(args_name(&a->options[option]), "set") != 0) option++;
  with.given = calloc(a->n_given + 1, sizeof *with.given);
  if (with.given == NULL) return bs_no_memory(err, "a setting");
  if (a->n_given > 0) memcpy(with.given, a->given, a->n_given * sizeof *a->given);
  with.given[a->n_given].option = option;
  with.given[a->n_given].value = setting;
  with.n_given = a->n_given + (option < a->n_options);
  const int32_t rc = plugins_open_context(&with, NULL, 0, out, err);
  free(with.given);
  return rc;
}

static json_t *things_list(const char *things) {
  json_t *list = json_array();
  while (things != NULL && *things != '\0') {
    const size_t n = strcspn(things, "\n");
    json_t *thing = n > 0 ? json_stringn(things, n) : NULL;
    if (thing != NULL) json_array_append_new(list, thing);
    things += n + (things[n] == '\n');
  }
  return list;
}

static void add_grade(json_t *row, const bs_grades *grades, const bs_plugin_info *info) {
  char graded[64];
  const json_t *grade = plugins_grade(grades, info);
  plugins_grade_text(grade, info->builtin != 0, graded, sizeof graded);
  json_object_set_new(row, "graded", bs_json_of_text(graded));
  json_object_set_new(row, "grade", bs_json_of_text(json_string_value(json_object_get(grade, "line"))));
}

static json_t *plugin_row(bs_context *context, const bs_node *config, const bs_grades *grades,
                          const bs_plugin_info *info, int load) {
  static const char *const states[] = {"found", "ok", "shadowed", "refused", "unavailable"};
  char kinds[96], abi[24], why[768], library[128];
  const char *state = info->state < 5 ? states[info->state] : "?";
  snprintf(why, sizeof why, "%s", info->why == NULL ? "" : info->why);
  const int usable = info->state == BS_PLUGIN_FOUND || info->state == BS_PLUGIN_ACTIVE;
  if (usable && !load && plugins_lacks(config, info, library, sizeof library)) {
    state = "unavailable";
    snprintf(why, sizeof why, "needs %s, which cannot be opened here", library);
  }
  if (usable && load) {
    bs_error why_not = BS_ERROR_INIT;
    state = plugins_probe_devices(context, info->id, &why_not) == BS_OK ? "ok" : "unavailable";
    if (why_not.code != BS_OK) snprintf(why, sizeof why, "%s", why_not.message);
  }
  plugins_kinds_text(info->kinds, kinds, sizeof kinds);
  snprintf(abi, sizeof abi, "%u.%u", info->abi >> 16, info->abi & 0xffffu);
  json_t *row = json_object();
  json_object_set_new(row, "id", bs_json_of_text(info->id));
  json_object_set_new(row, "version", bs_json_of_text(info->version));
  json_object_set_new(row, "kinds", bs_json_of_text(kinds));
  json_object_set_new(row, "abi", json_string(info->abi == 0 ? "" : abi));
  json_object_set_new(row, "state", json_string(state));
  const int for_tests = plugins_is_for_tests(info);
  json_object_set_new(row, "from",
                      bs_json_of_text(why[0] != '\0' ? why
                                      : for_tests    ? "for tests"
                                                     : info->origin));
  json_object_set_new(row, "path", bs_json_of_text(info->path));
  json_object_set_new(row, "origin", bs_json_of_text(info->origin));
  json_object_set_new(row, "why", bs_json_of_text(why));
  json_object_set_new(row, "things", things_list(info->things));
  json_object_set_new(row, "summary", bs_json_of_text(info->summary));
  add_grade(row, grades, info);
  return row;
}

static int32_t print_list(const args *a, bs_error *err) {
  bs_context *context = NULL;
  bs_node *config = NULL;
  bs_grades grades;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = plugins_compose(a, NULL, NULL, 0, &config, err);
  if (rc == BS_OK) rc = plugins_open_context(a, NULL, 0, &context, err);
  if (rc != BS_OK) {
    bs_config_free(config);
    return rc;
  }
  json_t *rows = json_array();
  bsrun_grades(0, &grades);
  for (uint32_t i = 0; i < bs_plugin_count(context) && rc == BS_OK; i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    rc = bs_plugin_get(context, i, &info, err);
    if (rc == BS_OK)
      json_array_append_new(rows, plugin_row(context, config, &grades, &info, args_has(a, "load")));
  }
  if (rc == BS_OK)
    rc = bs_report_print(stdout, format, list_fields, sizeof list_fields / sizeof list_fields[0], rows, err);
  json_decref(rows);
  bs_grades_close(&grades);
  bs_context_close(context);
  bs_config_free(config);
  return rc;
}

static const bsrun_verb plugins_list = {
    .name = "list",
    .words = "[options]",
    .summary = "every plugin found, refused and shadowed ones included",
    .about =
        "Reads notes and runs no plugin code. --load opens each in a child process, asks backends for "
        "devices, and\n"
        "says whether it works here.\n"
        "\n"
        "Searched: --plugin files, BS_PLUGIN_PATH, plugin_dirs of the configuration, the library's own "
        "folder.\n",
    .examples =
        "  bsrun plugins list --load\n"
        "  bsrun plugins list -o json\n",
    .options = plugins_list_options,
    .run = print_list,
};

static const bsrun_verb *const second[] = {
    &plugins_list,  &plugins_inspect, &plugins_why,  &plugins_knobs, &plugins_new,
    &plugins_check, &plugins_keep,    &plugins_kept, &plugins_drop,  NULL};
const bsrun_verb verb_plugins = {
    .name = "plugins",
    .summary = "list, inspect, begin, grade and keep plugins",
    .subverbs = second,
};
