/* SPDX-License-Identifier: MIT
 * stored.c - see stored.h: finds a run and reads all of it. */
#include "lab/compare/stored.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/compare/baseline.h"
#include "lab/error.h"
#include "lab/store/find.h"
#include "lab/store/folder.h"
#include "lab/store/read.h"
#include "lab/yaml/config.h"

/* ---- finding ------------------------------------------------------------------------------------ */

static int32_t find_baseline(const char *root, const char *name, bs_stored_run *out, bs_error *err) {
  out->root = bs_strdup(root);
  return out->root == NULL ? bs_out_of_memory(err) : bs_baseline_find(root, name, &out->path, err);
}

/* ---- the configuration -------------------------------------------------------------------------- */

/* Does the key name the run, or its folder? */
static int is_of_run(const char *key) {
  return strcmp(key, "run_id") == 0 || strncmp(key, "config_paths", 12) == 0 ||
         strncmp(key, "logging.", 8) == 0;
}

static void flatten(const bs_node *node, const char *path, json_t *out) {
  size_t at = 0;
  if (is_of_run(path)) return;
  if (node->kind == BS_NODE_SCALAR) json_object_set_new(out, path, json_string(node->text));
  if (node->kind != BS_NODE_MAP && node->kind != BS_NODE_LIST) return;
  for (const bs_node *n = node->first; n != NULL; n = n->next, at++) {
    bs_text name = {0};
    if (node->kind == BS_NODE_MAP)
      bs_text_printf(&name, "%s%s%s", path, path[0] != '\0' ? "." : "", n->key);
    else
      bs_text_printf(&name, "%s[%zu]", path, at);
    if (name.data != NULL && !name.failed) flatten(n, name.data, out);
    bs_text_free(&name);
  }
}

/* Reads the configuration from the record, or from the file next to it. */
static int32_t read_config(bs_stored_run *run, bs_error *err) {
  const char *text = json_string_value(json_object_get(json_array_get(run->records, 0), "config"));
  char *file = NULL;
  size_t size = 0;
  int fd = -1;
  bs_node *tree = NULL;
  int32_t rc = BS_OK;
  run->config = json_object();
  if (text == NULL) {
    rc = bs_folder_open(run->root, run->path, &fd, err);
    if (rc == BS_OK) rc = bs_folder_file(fd, "config.yaml", &file, &size, err);
    if (fd >= 0) close(fd);
    text = file;
  }
  if (rc == BS_OK && text != NULL) rc = bs_config_parse("config.yaml", text, strlen(text), &tree, err);
  if (rc == BS_OK && tree != NULL) flatten(tree, "", run->config);
  bs_config_free(tree);
  free(file);
  return rc;
}

int32_t bs_stored_open(const char *root, const char *name, bs_stored_run *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  int32_t rc = name[0] == '@' ? find_baseline(root, name + 1, out, err)
                              : bs_run_find(root, name, &out->root, &out->path, err);
  if (rc == BS_OK) rc = bs_run_read(out->root, out->path, &out->records, &out->env, err);
  if (rc == BS_OK) rc = bs_run_samples(out->root, out->path, &out->samples, err);
  if (rc == BS_OK) rc = read_config(out, err);
  return rc;
}

void bs_stored_close(bs_stored_run *run) {
  free(run->root);
  free(run->path);
  json_decref(run->records);
  json_decref(run->env);
  json_decref(run->samples);
  json_decref(run->config);
  memset(run, 0, sizeof *run);
}
