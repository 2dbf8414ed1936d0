/* SPDX-License-Identifier: MIT
 * trust.c - see trust.h. */
#include "lab/config/trust.h"

#include <string.h>

#include "core/base/text.h"

/* harmless: the value that names no file or command. */
static const struct {
  const char *key, *harmless;
} keys[] = {
    {"plugin_dirs", ""},
    {"plugin_trust", "owner"},
    {"hardware.mpirun", ""},
    {"plugins.cpu.dnnl_library", "auto"},
    {"plugins.cuda.driver", "auto"},
    {"plugins.cuda.cublaslt", "auto"},
    {"plugins.cuda.cusparselt", "auto"},
    {"plugins.cuda.cudnn", "auto"},
    {"plugins.cuda.nccl", "auto"},
    {"plugins.cuda.nvml", "auto"},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* A scalar, or all of a list or a mapping, in one line. */
static void add_text(const bs_node *node, bs_text *out) {
  if (node->kind == BS_NODE_SCALAR) bs_text_printf(out, "%s%s", out->size > 0 ? " " : "", node->text);
  if (node->kind != BS_NODE_LIST && node->kind != BS_NODE_MAP) return;
  for (const bs_node *n = node->first; n != NULL; n = n->next) add_text(n, out);
}

/* Does the value of an unknown parameter look like code? */
static int looks_like_code(const char *text) {
  return strpbrk(text, "/ \t") != NULL || strstr(text, ".so") != NULL;
}

static int add(json_t *list, const char *key, const char *value) {
  json_t *row = json_pack("{s:s, s:s}", "key", key, "value", value);
  return row != NULL && json_array_append_new(list, row) == 0;
}

static int add_files(const bs_node *tree, json_t *list) {
  const bs_node *plugins = bs_config_find(tree, "plugin");
  int whole = 1;
  if (plugins == NULL) return 1;
  if (plugins->kind == BS_NODE_SCALAR && strchr(plugins->text, '/') != NULL)
    return add(list, "plugin", plugins->text);
  for (const bs_node *n = plugins->kind == BS_NODE_LIST ? plugins->first : NULL; n != NULL; n = n->next)
    if (n->kind == BS_NODE_SCALAR && strchr(n->text, '/') != NULL) whole &= add(list, "plugin", n->text);
  return whole;
}

static int is_listed(const char *key) {
  for (size_t i = 0; i < N_KEYS; i++)
    if (strcmp(keys[i].key, key) == 0) return 1;
  return 0;
}

static int add_parameter(const char *plugin, const bs_node *parameter, json_t *list) {
  bs_text key = {0}, value = {0};
  int whole = 1;
  bs_text_printf(&key, "plugins.%s.%s", plugin, parameter->key != NULL ? parameter->key : "");
  add_text(parameter, &value);
  if (key.failed || value.failed)
    whole = 0;
  else if (!is_listed(key.data) && value.data != NULL && looks_like_code(value.data))
    whole = add(list, key.data, value.data);
  bs_text_free(&key);
  bs_text_free(&value);
  return whole;
}

/* Plans of faults and of links, and the text of a simulated device, have blanks and slashes, and name no
 * code.
 */
static int is_plan(const char *plugin) {
  return strcmp(plugin, "fault") == 0 || strcmp(plugin, "slow") == 0 || strcmp(plugin, "link") == 0 ||
         strcmp(plugin, "sim") == 0;
}

static int add_parameters(const bs_node *tree, json_t *list) {
  const bs_node *plugins = bs_config_find(tree, "plugins");
  int whole = 1;
  for (const bs_node *p = plugins != NULL && plugins->kind == BS_NODE_MAP ? plugins->first : NULL; p != NULL;
       p = p->next) {
    if (p->kind != BS_NODE_MAP || p->key == NULL || is_plan(p->key)) continue;
    for (const bs_node *n = p->first; n != NULL; n = n->next) whole &= add_parameter(p->key, n, list);
  }
  return whole;
}

/* A sweep sets a key to its values: a sweep over such a key is code itself. */
static int add_sweep(const bs_node *tree, json_t *list) {
  const bs_node *param = bs_config_find(tree, "sweep.param"), *values = bs_config_find(tree, "sweep.values");
  bs_text text = {0};
  int whole = 1;
  if (param == NULL || param->kind != BS_NODE_SCALAR) return 1;
  if (!is_listed(param->text) && strncmp(param->text, "plugin", strlen("plugin")) != 0) return 1;
  bs_text_printf(&text, "%s:", param->text);
  if (values != NULL) add_text(values, &text);
  whole = !text.failed && add(list, "sweep", text.data);
  bs_text_free(&text);
  return whole;
}

json_t *bs_config_code(const bs_node *tree) {
  json_t *list = json_array();
  int whole = list != NULL && add_files(tree, list) && add_sweep(tree, list);
  for (size_t i = 0; i < N_KEYS && whole; i++) {
    const bs_node *node = bs_config_find(tree, keys[i].key);
    bs_text value = {0};
    if (node != NULL) add_text(node, &value);
    whole = !value.failed;
    if (value.data != NULL && value.data[0] != '\0' && strcmp(value.data, keys[i].harmless) != 0)
      whole = add(list, keys[i].key, value.data);
    bs_text_free(&value);
  }
  if (whole && add_parameters(tree, list)) return list;
  json_decref(list);
  return NULL;
}
