/* SPDX-License-Identifier: MIT
 * replay_code.c - finds the code in a stored run's configuration, and the part of it that runs again
 * (replay.h). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/compare/replay.h"
#include "lab/config/experiment.h"
#include "lab/config/trust.h"
#include "lab/error.h"
#include "lab/json.h"
#include "lab/store/folder.h"
#include "lab/store/sha256.h"

typedef struct choosing {
  const bs_stored_run *run;
  const json_t *plugins; /* that the record lists */
  char store[PATH_MAX];  /* the folder that came with the run: a bundle, or the results folder; "": the
                          * reader's */
  bs_replay_code *out;
  int bad; /* out of memory */
} choosing;

static int lies_below(const char *path, const char *folder) {
  const size_t n = strlen(folder);
  return n > 0 && strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A results folder that the reader works in is the reader's own. */
static void find_store(choosing *c) {
  char root[PATH_MAX], here[PATH_MAX], up[PATH_MAX + 16], manifest[PATH_MAX + 16];
  c->store[0] = '\0';
  if (realpath(c->run->root, root) == NULL) return;
  snprintf(up, sizeof up, "%s/..", root);
  snprintf(manifest, sizeof manifest, "%s/../MANIFEST", root);
  if (access(manifest, F_OK) == 0 && realpath(up, c->store) != NULL) return;
  if (getcwd(here, sizeof here) == NULL || !lies_below(here, root))
    snprintf(c->store, sizeof c->store, "%s", root);
}

/* Is it the very file that the record lists? */
static int is_recorded(const choosing *c, const char *path, const json_t *recorded) {
  char real[PATH_MAX], sum[65];
  const char *wanted = bs_get_text(recorded, "sha256");
  if (realpath(path, real) == NULL || lies_below(real, c->store)) return 0;
  return strlen(wanted) == 64 && bs_sha256_file(real, sum, NULL) == BS_OK && strcmp(sum, wanted) == 0;
}

static void add_word(choosing *c, const char *word) {
  c->bad |= json_array_append_new(c->out->words, json_string(word)) != 0;
}

static void add_plugin(choosing *c, const char *value) {
  add_word(c, "--plugin");
  add_word(c, value);
  if (strchr(value, '/') != NULL) c->bad |= json_array_append_new(c->out->opens, json_string(value)) != 0;
}

/* Adds a plugin file at the configuration's path, or at the path of the run. */
static int32_t add_file(choosing *c, const char *value, bs_error *err) {
  char id[64];
  size_t i;
  const json_t *recorded;
  bs_plugin_id_of(value, id, sizeof id);
  json_array_foreach(c->plugins, i, recorded) {
    const char *path = bs_get_text(recorded, "path");
    if (strcmp(bs_get_text(recorded, "id"), id) != 0) continue;
    const char *file = is_recorded(c, value, recorded) ? value : path;
    if (file == path && !is_recorded(c, path, recorded)) break;
    add_plugin(c, file);
    return BS_OK;
  }
  bs_error_set(err, BS_PLUGIN, "BS-REPLAY-CODE",
               "the configuration of %.120s opens the plugin file %.200s, and its record lists no such "
               "file with that SHA-256",
               c->run->path, value);
  bs_error_hint(err, "--trust-config opens it: it is code of the configuration's author");
  return BS_PLUGIN;
}

/* Plugins that were found in folders which the configuration names: each by its file. */
static void add_found(choosing *c, const char *folders) {
  size_t i;
  const json_t *recorded;
  json_array_foreach(c->plugins, i, recorded) {
    char folder[PATH_MAX];
    const char *path = bs_get_text(recorded, "path"), *slash = strrchr(path, '/');
    if (slash == NULL || !is_recorded(c, path, recorded)) continue;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    const char *at = strstr(folders, folder);
    if (at != NULL && (at == folders || at[-1] == ' ') &&
        strchr(" /", at[strlen(folder)]) != NULL) /* strchr finds the end, too */
      add_plugin(c, path);
  }
}

static int32_t add_plugins(choosing *c, const bs_node *tree, bs_error *err) {
  const bs_node *list = bs_config_find(tree, "plugin");
  int32_t rc = BS_OK;
  for (const bs_node *n = list != NULL && list->kind == BS_NODE_LIST ? list->first : NULL;
       n != NULL && rc == BS_OK; n = n->next) {
    if (n->kind != BS_NODE_SCALAR) continue;
    if (strchr(n->text, '/') != NULL)
      rc = add_file(c, n->text, err);
    else
      add_plugin(c, n->text);
  }
  return rc;
}

static int32_t choose(choosing *c, const bs_node *tree, bs_error *err) {
  const char *folders = NULL;
  size_t i;
  json_t *row;
  json_array_foreach(c->out->code, i, row) {
    char word[320];
    if (strcmp(bs_get_text(row, "key"), "plugin") == 0) continue;
    if (strcmp(bs_get_text(row, "key"), "plugin_dirs") == 0) folders = bs_get_text(row, "value");
    snprintf(word, sizeof word, "%.300s=null", bs_get_text(row, "key"));
    add_word(c, "--set");
    add_word(c, word);
  }
  const int32_t rc = add_plugins(c, tree, err);
  if (rc == BS_OK && folders != NULL) add_found(c, folders);
  return rc == BS_OK && c->bad ? bs_no_memory(err, "a replay") : rc;
}

static int32_t read_tree(const bs_stored_run *run, bs_node **out, bs_error *err) {
  char *text = NULL;
  size_t size = 0;
  int fd = -1;
  int32_t rc = bs_folder_open(run->root, run->path, &fd, err);
  if (rc == BS_OK) rc = bs_folder_file(fd, "config.yaml", &text, &size, err);
  if (fd >= 0) close(fd);
  if (rc == BS_OK)
    rc = bs_config_parse("config.yaml", text != NULL ? text : "", text != NULL ? size : 0, out, err);
  free(text);
  return rc;
}

int32_t bs_replay_code_of(const bs_stored_run *run, int trusted, bs_replay_code *out, bs_error *err) {
  bs_node *tree = NULL;
  *out = (bs_replay_code){.words = json_array(), .opens = json_array()};
  int32_t rc = read_tree(run, &tree, err);
  if (rc == BS_OK) out->code = bs_config_code(tree);
  if (rc == BS_OK && (out->code == NULL || out->words == NULL || out->opens == NULL))
    rc = bs_no_memory(err, "a replay");
  choosing c = {
      .run = run, .plugins = json_object_get(json_array_get(run->records, 0), "plugins"), .out = out};
  if (rc == BS_OK && !trusted) {
    find_store(&c);
    rc = choose(&c, tree, err);
  }
  bs_config_free(tree);
  return rc;
}

void bs_replay_code_free(bs_replay_code *code) {
  json_decref(code->words);
  json_decref(code->opens);
  json_decref(code->code);
  *code = (bs_replay_code){0};
}
