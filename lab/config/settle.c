/* SPDX-License-Identifier: MIT
 * settle.c - completes the tree that a run stores: it adds the decisions and makes file names absolute, so
 * that the tree repeats the run from any folder and after a default has changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/error.h"

/* Makes a relative path absolute; `must_be_file`: only if "path" of "path#tensor" is a file. */
static void make_absolute(bs_node *node, int must_be_file) {
  char here[4096], path[4096];
  struct stat st;
  bs_text text = {0};
  const char *given = node->text;
  if (node->kind != BS_NODE_SCALAR || given == NULL || given[0] == '/') return;
  if (strlen(given) >= sizeof path || getcwd(here, sizeof here) == NULL) return;
  snprintf(path, sizeof path, "%.*s", (int)strcspn(given, "#"), given);
  if (must_be_file && (stat(path, &st) != 0 || !S_ISREG(st.st_mode))) return;
  while (strncmp(given, "./", 2) == 0) given += 2;
  bs_text_printf(&text, "%s/%s", here, given);
  if (text.failed) {
    bs_text_free(&text);
    return;
  }
  free(node->text);
  node->text = text.data;
}

static void make_all_absolute(bs_node *tree, const char *path, int must_be_file, int with_slash) {
  bs_node *list = (bs_node *)(uintptr_t)bs_config_find(tree, path);
  if (list == NULL) return;
  if (list->kind == BS_NODE_SCALAR) make_absolute(list, must_be_file);
  for (bs_node *item = list->first; item != NULL; item = item->next)
    if (!with_slash || (item->text != NULL && strchr(item->text, '/') != NULL))
      make_absolute(item, must_be_file);
}

int32_t bs_experiment_settle(const bs_experiment *e, uint32_t world, bs_node **out_tree, bs_error *err) {
  char number[2][32];
  snprintf(number[0], sizeof number[0], "%u", world);
  snprintf(number[1], sizeof number[1], "%lld", (long long)e->K);
  const char *const decided[][2] = {{"hardware.backend", e->backend},
                                    {"hardware.comm", e->comm},
                                    {"hardware.world_size", number[0]},
                                    {"method.bias", e->has_bias ? "true" : "false"},
                                    {"model.K", e->K > 0 ? number[1] : NULL}};
  int32_t rc = BS_OK;
  bs_node *tree = bs_config_clone(e->config);
  if (tree == NULL) return bs_no_memory(err, "a configuration");
  for (size_t i = 0; rc == BS_OK && i < sizeof decided / sizeof decided[0]; i++)
    if (decided[i][1] != NULL) rc = bs_config_set_text(tree, decided[i][0], decided[i][1], err);
  make_all_absolute(tree, "plugin", 0, 1);
  make_all_absolute(tree, "plugin_dirs", 0, 0);
  make_all_absolute(tree, "config_paths", 1, 0);
  make_all_absolute(tree, "mask.importance", 1, 0);
  make_all_absolute(tree, "workload", 1, 0);
  if (rc == BS_OK) {
    *out_tree = tree;
    return BS_OK;
  }
  bs_config_free(tree);
  return rc;
}
