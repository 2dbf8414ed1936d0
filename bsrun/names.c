/* SPDX-License-Identifier: MIT
 * names.c - lists of names by their kind: methods, masks, keys, runs, ... Reads notes of plugins and the
 * configs folder; runs no plugin code. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/completion.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "lab/config/schema.h"
#include "lab/model/model.h"
#include "lab/store/find.h"
#include "lab/store/read.h"
#include "lab/word.h"

void bsrun_add_part(json_t *names, const char *text, size_t size) {
  json_t *name = json_stringn(text, size);
  int known = name == NULL;
  for (size_t i = 0; !known && i < json_array_size(names); i++)
    known = json_equal(json_array_get(names, i), name);
  if (known) {
    json_decref(name);
  } else {
    json_array_append_new(names, name);
  }
}

void bsrun_add_name(json_t *names, const char *text) {
  bsrun_add_part(names, text, strlen(text));
}

static int32_t add_files(json_t *names, const char *group, bs_error *err) {
  char *dir = NULL, **files = NULL;
  int32_t rc = bs_configs_dir(&dir, err);
  const size_t n = rc == BS_OK && dir != NULL ? bs_config_names(dir, group, &files) : 0;
  for (size_t i = 0; i < n; i++) bsrun_add_name(names, files[i]);
  bs_config_names_free(files, n);
  free(dir);
  return rc;
}

/* kind BS_KIND_COUNT_: ids. Plugins that were refused or are shadowed offer nothing, and those for tests
 * nothing but their ids. */
static int32_t add_offered(json_t *names, uint32_t kind, bs_error *err) {
  bs_context *context = NULL;
  const bs_context_options options = {.struct_size = sizeof options, .log_level = BS_LOG_ERROR};
  const int32_t rc = bs_context_open(&options, &context, err);
  for (uint32_t i = 0; rc == BS_OK && i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.state > BS_PLUGIN_ACTIVE) continue;
    if (kind < BS_KIND_COUNT_ && plugins_is_for_tests(&info)) continue;
    if (kind < BS_KIND_COUNT_) {
      plugins_add_names(names, context, &info, kind);
    } else {
      bsrun_add_name(names, info.id);
    }
  }
  if (context != NULL) bs_context_close(context);
  return rc;
}

int bsrun_matches(const char *pattern, const char *name) {
  if (strpbrk(pattern, "*?[") != NULL) return fnmatch(pattern, name, FNM_CASEFOLD) == 0;
  return strcasestr(name, pattern) != NULL;
}

/* Adds the masks that need no file, as far as the library knows them. */
static void add_masks(json_t *names) {
  static const char *const more[] = {"complement_0011_1100", "complement_0101_1010", "complement_0110_1001"};
  for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
    bs_mask mask;
    if (bs_mask_parse(more[i], NULL, NULL, &mask, NULL) == BS_OK) bsrun_add_name(names, more[i]);
  }
}

static void add_keys(json_t *names) {
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  for (size_t i = 0; i < count; i++) {
    char text[160];
    snprintf(text, sizeof text, "%s=", keys[i].path);
    bsrun_add_name(names, text);
  }
}

static void add_list(json_t *names, const char *const *list, size_t n) {
  for (size_t i = 0; i < n; i++) bsrun_add_name(names, list[i]);
}

static void add_table(json_t *names, uint32_t table, const uint32_t *only, size_t n) {
  const char *words[BS_WORDS_MAX];
  add_list(names, words, bs_word_list(table, only, n, words));
}

/* Kinds that are files of a folder of the configs, names of things in notes, or both. */
static const struct {
  const char *kind, *group;
  uint32_t thing; /* BS_KIND_COUNT_: none */
} sources[] = {{"methods", "methods", BS_KIND_METHOD}, {"workloads", "workloads", BS_KIND_WORKLOAD},
               {"masks", "masks", BS_KIND_COUNT_},     {"hardware", "hardware", BS_KIND_COUNT_},
               {"sweeps", "sweeps", BS_KIND_COUNT_},   {"phases", "phases", BS_KIND_COUNT_},
               {"backends", NULL, BS_KIND_BACKEND},    {"comms", NULL, BS_KIND_COMM},
               {"algorithms", NULL, BS_KIND_ALGORITHM}};

static const char *const kinds[] = {"verbs",      "options",     "valued",      "methods", "masks",
                                    "workloads",  "hardware",    "sweeps",      "phases",  "backends",
                                    "comms",      "plugins",     "formats",     "keys",    "dtypes",
                                    "algorithms", "collectives", "activations", "ops",     "skeletons",
                                    "passes",     "runs",        "kinds",       "within",  "meanings"};

void bsrun_add_runs(json_t *names, const char *root) {
  char *dir = NULL, *run = NULL;
  json_t *rows = NULL;
  bs_runs_stats stats = {0};
  if (bs_run_find(root, "latest", &dir, &run, NULL) == BS_OK) bsrun_add_name(names, "latest");
  if (bs_runs_index(root, &rows, &stats, NULL) != BS_OK) rows = NULL;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const char *id = json_string_value(json_object_get(json_array_get(rows, i), "run_id"));
    if (id != NULL) bsrun_add_name(names, id);
  }
  bs_runs_stats_free(&stats);
  json_decref(rows);
  free(dir);
  free(run);
}

int32_t bsrun_names(const char *kind, json_t *names, bs_error *err) {
  for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
    if (strcmp(kind, sources[i].kind) != 0) continue;
    int32_t rc = sources[i].group != NULL ? add_files(names, sources[i].group, err) : BS_OK;
    if (rc == BS_OK && sources[i].thing != BS_KIND_COUNT_) rc = add_offered(names, sources[i].thing, err);
    if (strcmp(kind, "masks") == 0) add_masks(names);
    return rc;
  }
  if (strcmp(kind, "plugins") == 0) return add_offered(names, BS_KIND_COUNT_, err);
  if (strcmp(kind, "keys") == 0) {
    add_keys(names);
  } else if (strcmp(kind, "formats") == 0) {
    add_list(names, bs_format_names, 5);
  } else if (strcmp(kind, "dtypes") == 0) {
    add_table(names, BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES);
  } else if (strcmp(kind, "kinds") == 0) {
    add_list(names, kinds, sizeof kinds / sizeof kinds[0]);
  } else if (strcmp(kind, "passes") == 0) {
    bsrun_add_name(names, "all");
    for (uint32_t i = 0; bs_graph_pass_name(i) != NULL; i++) bsrun_add_name(names, bs_graph_pass_name(i));
  } else if (strcmp(kind, "skeletons") == 0) {
    add_list(names, plugins_new_kinds, plugins_n_new_kinds);
  } else if (strcmp(kind, "runs") == 0) {
    bsrun_add_runs(names, "results/raw");
  } else if (strcmp(kind, "collectives") == 0) {
    add_table(names, BS_NAMES_COLL, NULL, 0);
  } else if (strcmp(kind, "ops") == 0) {
    add_table(names, BS_NAMES_OP, NULL, 0);
  } else if (strcmp(kind, "activations") == 0) {
    add_table(names, BS_NAMES_ACTIVATION, NULL, 0);
  } else {
    return bsrun_unknown("kind of words", kind, kinds, sizeof kinds / sizeof kinds[0], err);
  }
  return BS_OK;
}
