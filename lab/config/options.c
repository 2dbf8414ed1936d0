/* SPDX-License-Identifier: MIT
 * options.c - method.<key> and workload.<key> settings for plugins, and the context for a tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/op/knob.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/error.h"

void bs_choices_free(uint32_t count, const char **choices) {
  for (uint32_t i = 0; i < count; i++) free((void *)(uintptr_t)choices[i]);
  free(choices);
}

void bs_options_free(uint32_t count, const char **keys, const char **values) {
  bs_choices_free(count, keys);
  bs_choices_free(count, values);
}

/* The value as text: a scalar unchanged, a list of scalars joined by commas. NULL: neither. */
static char *value_text(const bs_node *node) {
  if (node->kind == BS_NODE_SCALAR) return bs_strdup(node->text);
  if (node->kind != BS_NODE_LIST) return NULL;
  bs_text text = {0};
  for (const bs_node *item = node->first; item != NULL; item = item->next) {
    if (item->kind != BS_NODE_SCALAR) {
      bs_text_free(&text);
      return NULL;
    }
    bs_text_printf(&text, "%s%s", item == node->first ? "" : ",", item->text);
  }
  return text.data == NULL ? bs_strdup("") : text.data;
}

typedef struct collected {
  uint32_t count;
  const char **keys, **values;
} collected;

/* Takes `value` (NULL: no memory), and a copy of the key. */
static int32_t push(collected *c, const char *key, char *value, bs_error *err) {
  const char **keys = realloc(c->keys, (c->count + 1u) * sizeof *keys);
  if (keys != NULL) c->keys = keys;
  const char **values = realloc(c->values, (c->count + 1u) * sizeof *values);
  if (values != NULL) c->values = values;
  char *copy = bs_strdup(key);
  if (keys == NULL || values == NULL || copy == NULL || value == NULL) {
    free(copy);
    free(value);
    return bs_no_memory(err, "the configuration");
  }
  c->keys[c->count] = copy;
  c->values[c->count++] = value;
  return BS_OK;
}

static int32_t collect_one(collected *c, const bs_node *node, const char *path, bs_error *err) {
  char *value = value_text(node);
  if (value == NULL)
    return bs_schema_refuse(node, err, "BS-CFG-TYPE", "%s: a mapping where a value belongs", path);
  return push(c, node->key, value, err);
}

/* Are both from the same file? A key on the command line is always meant for the chosen plugin. */
static int same_file(const bs_node *a, const bs_node *b) {
  if (!bs_node_from_file(a)) return 1;
  if (b == NULL || !bs_node_from_file(b)) return 0;
  return strcmp(a->file, b->file) == 0;
}

int32_t bs_options_collect(const bs_node *config, const char *section, const char *option_docs, int any,
                           const bs_node *chosen_by, bs_notes *notes, uint32_t *out_count,
                           const char ***out_keys, const char ***out_values, bs_error *err) {
  collected c = {0, NULL, NULL};
  const bs_node *map = bs_config_find(config, section);
  int32_t rc = BS_OK;
  const bs_node *node = map != NULL && map->kind == BS_NODE_MAP ? map->first : NULL;
  for (; node != NULL && rc == BS_OK; node = node->next) {
    char path[320];
    snprintf(path, sizeof path, "%s.%.256s", section, node->key);
    const int listed = any || bs_option_listed(option_docs, node->key);
    if (node->kind == BS_NODE_NULL) continue;
    if (bs_schema_find(path) != NULL) {
      if (!any && listed) rc = collect_one(&c, node, path, err);
    } else if (listed) {
      rc = collect_one(&c, node, path, err);
    } else if (same_file(node, chosen_by)) {
      rc = bs_schema_unknown(node, path, option_docs, err);
    } else {
      bs_note_add(notes, "%s has no effect: the chosen %s does not read it", path, section);
    }
  }
  if (rc != BS_OK) {
    bs_options_free(c.count, c.keys, c.values);
    return rc;
  }
  *out_count = c.count;
  *out_keys = c.keys;
  *out_values = c.values;
  return BS_OK;
}

void bs_plugin_id_of(const char *value, char *out_id, size_t size) {
  const char *slash = strrchr(value, '/');
  if (slash == NULL) {
    snprintf(out_id, size, "%s", value);
    return;
  }
  const char *name = strncmp(slash + 1, "bs_", 3) == 0 ? slash + 4 : slash + 1;
  snprintf(out_id, size, "%.*s", (int)strcspn(name, "."), name);
}

/* Strings of a list node as an array of pointers into the tree. */
static const char **list_strings(const bs_node *config, const char *path, uint32_t *out_count) {
  const bs_node *list = bs_config_find(config, path);
  uint32_t n = 0;
  if (list == NULL || list->kind != BS_NODE_LIST) return NULL;
  for (const bs_node *item = list->first; item != NULL; item = item->next) n++;
  const char **strings = calloc(n == 0 ? 1 : n, sizeof *strings);
  if (strings == NULL) return NULL;
  for (const bs_node *item = list->first; item != NULL; item = item->next) {
    if (item->kind == BS_NODE_SCALAR) strings[(*out_count)++] = item->text;
  }
  return strings;
}

/* plugins.<id>.<name>: value -> "id.name=value". */
static int32_t param_strings(const bs_node *config, collected *out, bs_error *err) {
  const bs_node *map = bs_config_find(config, "plugins");
  if (map == NULL || map->kind == BS_NODE_NULL) return BS_OK;
  if (map->kind != BS_NODE_MAP)
    return bs_error_set(err, BS_CONFIG, "BS-CFG-TYPE", "plugins must be a mapping");
  for (const bs_node *plugin = map->first; plugin != NULL; plugin = plugin->next) {
    if (plugin->kind == BS_NODE_NULL) continue;
    for (const bs_node *param = plugin->first; param != NULL; param = param->next) {
      if (plugin->kind == BS_NODE_MAP && param->kind == BS_NODE_NULL) continue; /* unset */
      if (plugin->kind != BS_NODE_MAP || param->kind != BS_NODE_SCALAR) {
        return bs_schema_refuse(plugin, err, "BS-CFG-TYPE",
                                "plugins.%.64s: must map parameter names to values", plugin->key);
      }
      bs_text text = {0};
      bs_text_printf(&text, "%s.%s=%s", plugin->key, param->key, param->text);
      if (text.failed) bs_text_free(&text); /* out of memory: no text */
      const int32_t rc = push(out, param->key, text.data, err);
      if (rc != BS_OK) return rc;
    }
  }
  return BS_OK;
}

int32_t bs_context_of_config(const bs_node *config, int32_t log_level,
                             void (*log)(void *, int32_t, const char *, int32_t, const char *),
                             void *log_user, bs_context **out_context, bs_error *err) {
  bs_context_options options = {.struct_size = sizeof options, .log_level = log_level, .log = log};
  options.log_user = log_user;
  collected params = {0, NULL, NULL};
  const char *trust = bs_schema_str(config, "plugin_trust");
  options.trust = trust == NULL || strcmp(trust, "owner") == 0 ? BS_TRUST_OWNER
                  : strcmp(trust, "group") == 0                ? BS_TRUST_GROUP
                                                               : BS_TRUST_ANY;
  options.plugins = list_strings(config, "plugin", &options.n_plugins);
  options.plugin_dirs = list_strings(config, "plugin_dirs", &options.n_plugin_dirs);
  int32_t rc = param_strings(config, &params, err);
  options.params = params.values;
  options.n_params = params.count;
  *out_context = NULL;
  if (rc == BS_OK) rc = bs_context_open(&options, out_context, err);
  bs_options_free(params.count, params.keys, params.values);
  free((void *)(uintptr_t)options.plugins);
  free((void *)(uintptr_t)options.plugin_dirs);
  return rc;
}
