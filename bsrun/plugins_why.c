/* SPDX-License-Identifier: MIT
 * plugins_why.c - `bsrun plugins why ID|PATH`: one row a step from the search to the use of a plugin, each
 * with its answer and the rule for it: where it was looked for and found, what refuses or shadows it,
 * whether it opens (in a child process), what it registers, how it was graded, and what of the configuration
 * selects it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bsrun/opening.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/json.h"

static const args_option plugins_why_options[] = {
    {OPT_PLUGIN, NULL, 0},  {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},     ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0}, ARGS_HELP,
};

static const bs_field why_fields[] = {
    {"step", "STEP", 0, 0}, {"answer", "ANSWER", 0, 0}, {"rule", "RULE", 0, 0}, {"text", "WHAT", 0, 0}};

typedef struct why {
  const char *what; /* as typed */
  char id[64];
  int by_path;
  bs_node *config;
  int broken;            /* what the configuration names cannot be used: a run ends there */
  const char *item;      /* of the configuration's plugin list: what names it; NULL */
  bs_context *context;   /* the search as a run does it */
  bs_context *named;     /* the same with the file named; NULL for an id */
  bs_plugin_info row;    /* its row in `context`; state NO_ROW: none */
  bs_plugin_info opened; /* what could be activated; id NULL: nothing */
  json_t *rows;
  json_t *read; /* rows of what was opened; the first has `things` of it */
} why;
enum { NO_ROW = 99 };

static void add_row(json_t *rows, const char *step, const char *answer, const char *rule, const char *text) {
  json_t *row = json_object();
  json_object_set_new(row, "step", json_string(step));
  json_object_set_new(row, "answer", json_string(answer));
  json_object_set_new(row, "rule", bs_json_of_text(rule));
  json_object_set_new(row, "text", bs_json_of_text(text));
  json_array_append_new(rows, row);
}

__attribute__((format(printf, 5, 6))) static void add(why *w, const char *step, const char *answer,
                                                      const char *rule, const char *format, ...) {
  char text[1600];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  add_row(w->rows, step, answer, rule, text);
}

static void add_error(why *w, const char *step, const char *answer, const bs_error *e) {
  add(w, step, answer, e->id, "%s%s%s%s%s", e->where, e->where[0] != '\0' ? ": " : "", e->message,
      e->hint[0] != '\0' ? "; hint: " : "", e->hint);
}

static int usable(const bs_plugin_info *info) {
  return info->state == BS_PLUGIN_FOUND || info->state == BS_PLUGIN_ACTIVE;
}

static int same_file(const char *a, const char *b) {
  struct stat one, two;
  return a[0] != '\0' && b[0] != '\0' && stat(a, &one) == 0 && stat(b, &two) == 0 &&
         one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

/* The next row of a context; 0 at the end. */
static int next_plugin(const bs_context *context, uint32_t *at, bs_plugin_info *out) {
  while (*at < bs_plugin_count(context)) {
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    if (bs_plugin_get(context, (*at)++, out, NULL) == BS_OK) return 1;
  }
  return 0;
}

/* ---- the search ------------------------------------------------------------------------------- */

/* Does an item of the configuration's plugin list mean the plugin of this row? */
static int item_means(const char *item, const char *id, const char *path) {
  if (item == NULL) return 0;
  return strchr(item, '/') != NULL ? same_file(item, path) : strcmp(item, id) == 0;
}

static const bs_node *selected_items(const bs_node *config) {
  const bs_node *list = bs_config_find(config, "plugin");
  return list != NULL && list->kind == BS_NODE_LIST ? list->first : NULL;
}

/* The search with what the configuration names; when that ends in an error, which a run would end in too,
 * without. */
static int32_t search(why *w, int32_t level, bs_error *err) {
  bs_error failure = BS_ERROR_INIT;
  int32_t rc = bs_context_of_config(w->config, level, bsrun_log, NULL, &w->context, &failure);
  if (rc == BS_OK || selected_items(w->config) == NULL) {
    if (rc != BS_OK) *err = failure;
    return rc;
  }
  bs_node *rest = bs_config_clone(w->config);
  rc = rest != NULL ? bs_config_set(rest, "plugin", "[]", err)
                    : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK) rc = bs_context_of_config(rest, level, bsrun_log, NULL, &w->context, err);
  bs_config_free(rest);
  if (rc == BS_OK) add_error(w, "searched", "error", &failure);
  w->broken = 1;
  return rc;
}

static void tell_places(why *w) {
  for (uint32_t i = 0; i < bs_place_count(w->context); i++) {
    bs_place_info place = {.struct_size = sizeof place};
    if (bs_place_get(w->context, i, &place, NULL) != BS_OK) continue;
    if (place.why[0] != '\0')
      add(w, "searched", "no", place.why_id, "%s %s: %s", place.origin, place.path, place.why);
    else
      add(w, "searched", "yes", "", "%s %s: %u plugin file%s", place.origin, place.path, place.files,
          place.files == 1 ? "" : "s");
  }
}

static void tell_row(why *w, const bs_plugin_info *info) {
  static const char *const states[] = {"found", "found", "shadowed", "refused", "unavailable"};
  char about[160] = "";
  if (info->version[0] != '\0')
    snprintf(about, sizeof about, ", version %.40s, ABI %u.%u", info->version, info->abi >> 16,
             info->abi & 0xffffu);
  add(w, "found", info->state < 5 ? states[info->state] : "?", info->why_id, "%s (%s)%s%s%s%s%s",
      info->builtin ? info->id : info->path, info->origin, about, info->why[0] != '\0' ? ": " : "", info->why,
      info->hint[0] != '\0' ? "; hint: " : "", info->hint);
}

/* Every row of the id or the file; the one that the question is about is kept: of a path its file, of an id
 * the usable one, else the first. */
static void tell_rows(why *w) {
  bs_plugin_info info;
  w->row.state = NO_ROW;
  for (uint32_t at = 0; next_plugin(w->context, &at, &info);) {
    const int file = w->by_path && same_file(info.path, w->what);
    if (!file && strcmp(info.id, w->id) != 0) continue;
    tell_row(w, &info);
    if (w->by_path ? file && w->row.state == NO_ROW
                   : w->row.state == NO_ROW || (!usable(&w->row) && usable(&info)))
      w->row = info;
  }
  if (w->row.state != NO_ROW) return;
  if (w->by_path)
    add(w, "found", "no", "", "%s: no search comes to this file, only --plugin with its path", w->what);
  else
    add(w, "found", "no", "", "no bs_%s.so in a searched folder, and none is built in", w->id);
}

/* ---- opening ---------------------------------------------------------------------------------- */

/* Searches again with the file named, as --plugin PATH does. The rules of --plugin then decide. */
static int32_t name_it(why *w, bs_error *err) {
  bs_node *config = bs_config_clone(w->config);
  json_t *list = json_pack("[s]", w->what);
  char *text = json_dumps(list, 0); /* which is YAML, whatever letters the path has; NULL: not UTF-8 */
  int32_t rc = config == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
               : text == NULL ? bs_error_set(err, BS_CONFIG, "BS-CFG-ENCODING", "the path is not UTF-8")
                              : bs_config_set(config, "plugin", text, err);
  if (rc == BS_OK) rc = bs_context_of_config(config, BS_LOG_WARN, bsrun_log, NULL, &w->named, err);
  if (rc == BS_OK)
    add(w, "accepted", "yes", "", "every rule that is checked without opening it, when named by its path");
  else
    add_error(w, "accepted", "no", err);
  free(text);
  json_decref(list);
  bs_config_free(config);
  return rc;
}

/* In the child: adds its things, after a row that has them as a note would list them. */
static int32_t look(bs_context *context, const char *id, json_t *rows, bs_error *err) {
  bs_plugin_info info = {0};
  int32_t rc = plugins_find(context, id, &info, err);
  if (rc != BS_OK) return rc;
  json_array_append_new(rows, json_pack("{so}", "things", bs_json_of_text(info.things)));
  for (uint32_t i = 0; i < bs_thing_count(context, id); i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    char at[256] = "", kind[64], text[1600];
    if (bs_thing_get(context, id, i, &thing, NULL) != BS_OK) continue;
    if (thing.at.file != NULL)
      snprintf(at, sizeof at, " (%s:%u)", plugins_source(thing.at.file), thing.at.line);
    snprintf(kind, sizeof kind, "%s", thing.kind < BS_KIND_COUNT_ ? plugins_kind_names[thing.kind] : "?");
    snprintf(text, sizeof text, "%s%s%s%s%s%s", thing.name, thing.aliases[0] != '\0' ? ", also " : "",
             thing.aliases, thing.summary[0] != '\0' ? ": " : "", thing.summary, at);
    add_row(rows, "registers", kind, "", text);
  }
  return BS_OK;
}

/* Lists the things that a plugin which cannot be opened would offer. */
static void tell_listed(why *w, const char *things) {
  while (things != NULL && *things != '\0') {
    const size_t n = strcspn(things, "\n"), kind = strcspn(things, ":\n");
    char word[24];
    snprintf(word, sizeof word, "%.*s", (int)kind, things);
    if (n > kind + 1)
      add(w, "lists", word, "", "%.*s: its note says so", (int)(n - kind - 1), things + kind + 1);
    things += n + (things[n] == '\n');
  }
}

static int32_t open_it(why *w, bs_error *err) {
  bs_context *context = w->named != NULL ? w->named : w->context;
  bs_plugin_info info;
  int32_t rc = plugins_find(context, w->id, &info, err);
  if (rc != BS_OK) return rc; /* the rows have said it */
  w->read = json_array();
  if (info.builtin) {
    rc = bs_plugin_activate(context, w->id, err);
    if (rc == BS_OK) rc = look(context, w->id, w->read, err);
  } else {
    rc = plugins_look(context, w->id, look, w->read, err);
  }
  if (rc != BS_OK) {
    add_error(w, "opened", "no", err);
    tell_listed(w, info.things);
    return rc;
  }
  add(w, "opened", "yes", "", "%s", info.builtin ? "it is part of the library" : "in a child process");
  w->opened = info;
  w->opened.things = json_string_value(json_object_get(json_array_get(w->read, 0), "things"));
  for (size_t i = 1; i < json_array_size(w->read); i++)
    json_array_append(w->rows, json_array_get(w->read, i));
  return BS_OK;
}

/* A grade decides nothing, but whoever asks why wants to know it. A changed file has none. */
static void tell_grade(why *w) {
  bs_grades grades;
  bsrun_grades(0, &grades);
  const json_t *grade = plugins_grade(&grades, &w->opened);
  if (grade == NULL)
    add(w, "graded", "no", "", "bsrun plugins check %s has not graded this file on this machine", w->what);
  else
    add(w, "graded", json_is_true(json_object_get(grade, "conformant")) ? "yes" : "FAIL", "",
        "%s; %s kit, %s", json_string_value(json_object_get(grade, "line")),
        json_string_value(json_object_get(grade, "kit")),
        json_string_value(json_object_get(grade, "graded_at")));
  bs_grades_close(&grades);
}

/* ---- the configuration ------------------------------------------------------------------------ */

static const struct {
  const char *key, *kind;
  uint32_t is;
} choices[] = {{"method.name", "method", BS_KIND_METHOD},
               {"workload.name", "workload", BS_KIND_WORKLOAD},
               {"hardware.backend", "backend", BS_KIND_BACKEND},
               {"hardware.comm", "comm", BS_KIND_COMM}};
enum { N_CHOICES = sizeof choices / sizeof choices[0] };

/* The name that the configuration gives; a plugin of its list brings its own backend or communicator. */
static void chosen_name(const why *w, size_t i, char *out, size_t size) {
  const char *value = bs_schema_str(w->config, choices[i].key);
  if (choices[i].is == BS_KIND_WORKLOAD && bs_schema_str(w->config, "workload.type") != NULL)
    value = bs_schema_str(w->config, "workload.type");
  if (choices[i].is == BS_KIND_BACKEND && value != NULL &&
      (strcmp(value, "nccl") == 0 || strcmp(value, "gloo") == 0 || strcmp(value, "mpi") == 0))
    value = "cpu"; /* older files name a communicator here */
  snprintf(out, size, "%s", value == NULL ? "" : value);
  if (choices[i].is != BS_KIND_BACKEND && choices[i].is != BS_KIND_COMM) return;
  for (const bs_node *item = selected_items(w->config); item != NULL; item = item->next) {
    bs_plugin_info info;
    for (uint32_t at = 0; next_plugin(w->context, &at, &info);) {
      if (!usable(&info) || !item_means(item->text, info.id, info.path)) continue;
      json_t *names = json_array();
      plugins_add_names(names, w->context, &info, choices[i].is);
      if (json_array_size(names) > 0)
        snprintf(out, size, "%s", json_string_value(json_array_get(names, json_array_size(names) - 1)));
      json_decref(names);
    }
  }
}

static int is_named(const why *w, const bs_plugin_info *info) {
  for (const bs_node *item = selected_items(w->config); item != NULL; item = item->next)
    if (item_means(item->text, info->id, info->path)) return 1;
  return 0;
}

/* The row that a look-up of the name comes to: a plugin of the list, else the first whose note offers it. */
static int first_offer(const why *w, const char *kind, const char *name, bs_plugin_info *out) {
  for (int named = 1; named >= 0; named--)
    for (uint32_t at = 0; next_plugin(w->context, &at, out);)
      if (usable(out) && is_named(w, out) == named && plugins_offers(out->things, kind, name)) return 1;
  return 0;
}

/* Ops are taken from every plugin that has some for the backend. */
static int serves(const char *things, const char *backend) {
  const size_t size = strlen(backend);
  while (things != NULL && *things != '\0') {
    const size_t n = strcspn(things, "\n");
    const char *at = strncmp(things, "op:", 3) == 0 ? memchr(things, '@', n) : NULL;
    if (at != NULL && (size_t)(things + n - at - 1) == size && strncmp(at + 1, backend, size) == 0) return 1;
    things += n + (things[n] == '\n');
  }
  return 0;
}

/* 1 when something of the configuration comes to this plugin. */
static int tell_choices(why *w) {
  char names[N_CHOICES][96];
  int yes = 0, no = 0;
  const char *things = w->opened.id != NULL ? w->opened.things : w->row.things;
  for (size_t i = 0; i < N_CHOICES; i++) {
    bs_plugin_info first;
    chosen_name(w, i, names[i], sizeof names[i]);
    if (names[i][0] == '\0' || !plugins_offers(things, choices[i].kind, names[i])) continue;
    const int offered = first_offer(w, choices[i].kind, names[i], &first);
    if (!offered || (strcmp(first.id, w->row.id) == 0 && strcmp(first.path, w->row.path) == 0)) {
      add(w, "selected", "yes", "", "%s: %s is one of its things", choices[i].key, names[i]);
      yes++;
    } else {
      add(w, "selected", "no", "", "%s: %s is taken from %s, which comes first (%s)", choices[i].key,
          names[i], first.id, first.builtin ? first.origin : first.path);
      no++;
    }
  }
  if (serves(things, names[2])) {
    add(w, "selected", "yes", "", "its ops serve hardware.backend: %s", names[2]);
    yes++;
  }
  if (yes + no == 0)
    add(w, "selected", "no", "",
        "the configuration names method %s, workload %s, backend %s, comm %s; none is this plugin's",
        names[0][0] != '\0' ? names[0] : "(none)", names[1], names[2], names[3]);
  return yes > 0;
}

static void tell_selected(why *w, int32_t rc) {
  if (w->item != NULL) add(w, "selected", "yes", "", "plugin: %s names it", w->item);
  if (rc != BS_OK) {
    add(w, "used", "no", "", "%s",
        w->item != NULL ? "a run that names it ends with that error" : "it cannot be");
  } else if (w->broken) {
    add(w, "used", "no", "", "a run of this configuration ends before, with the error above");
  } else if (w->item != NULL) {
    add(w, "used", "yes", "", "opened before anything is looked up");
  } else if (w->row.state == NO_ROW || !usable(&w->row)) {
    add(w, "used", "no", w->row.state == NO_ROW ? "" : w->row.why_id, "it can be: bsrun --plugin %s",
        w->what);
  } else if (tell_choices(w)) {
    add(w, "used", "yes", "", "by a run of this configuration");
  } else {
    add(w, "used", "no", "", "it can be: by the name of one of its things, or bsrun --plugin %s", w->what);
  }
}

/* ----------------------------------------------------------------------------------------------- */

static int32_t explain(why *w, const args *a, bs_error *err) {
  bs_plugin_id_of(w->what, w->id, sizeof w->id);
  w->by_path = strchr(w->what, '/') != NULL;
  int32_t rc = bsrun_base_config(a, &w->config, err);
  if (rc == BS_OK) rc = search(w, args_has(a, "verbose") ? BS_LOG_DEBUG : BS_LOG_ERROR, err);
  if (rc != BS_OK) return rc;
  for (const bs_node *item = selected_items(w->config); item != NULL; item = item->next)
    if (item_means(item->text, w->by_path ? "" : w->id, w->by_path ? w->what : "")) w->item = item->text;
  tell_places(w);
  tell_rows(w);
  if (w->item == NULL && w->row.state != NO_ROW && usable(&w->row))
    for (const bs_node *item = selected_items(w->config); item != NULL; item = item->next)
      if (item_means(item->text, w->row.id, w->row.path)) w->item = item->text;
  if (w->by_path) rc = name_it(w, err);
  if (rc == BS_OK) rc = open_it(w, err);
  if (w->opened.id != NULL && !w->opened.builtin) tell_grade(w);
  tell_selected(w, rc);
  return rc;
}

/* The rows in every case; then the error of a plugin that cannot be used. */
static int32_t answer(const args *a, bs_error *err) {
  why w = {.what = a->words[0], .rows = json_array()};
  bs_error print = BS_ERROR_INIT;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) {
    rc = explain(&w, a, err);
    if (json_array_size(w.rows) > 0 &&
        bs_report_print(stdout, format, why_fields, sizeof why_fields / sizeof why_fields[0], w.rows,
                        &print) != BS_OK &&
        rc == BS_OK) {
      *err = print;
      rc = print.code;
    }
  }
  if (w.named != NULL) bs_context_close(w.named);
  if (w.context != NULL) bs_context_close(w.context);
  bs_config_free(w.config);
  json_decref(w.rows);
  json_decref(w.read);
  return rc;
}

const bsrun_verb plugins_why = {
    .name = "why",
    .words = "ID|PATH [options]",
    .summary = "why a plugin is or is not used",
    .about =
        "The rows say where it was looked for and found, what shadows it, which rule refuses it, what it\n"
        "registers, and which configuration keys select it.\n"
        "\n"
        "Searched: --plugin files, BS_PLUGIN_PATH, plugin_dirs of the configuration, the library's own "
        "folder.\n",
    .examples =
        "  bsrun plugins why ./build/bs_acme.so\n"
        "  bsrun plugins why acme --set method.name=acme -o json\n",
    .options = plugins_why_options,
    .run = answer,
    .min_words = 1,
    .max_words = 1,
    .exits = "0 usable; 5 not\n",
    .takes = "plugins :file",
};
