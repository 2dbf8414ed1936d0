/* SPDX-License-Identifier: MIT
 * config_read.c - reads a config tree: finding by path and typed reads, strict about types. bs_parse_i64 and
 * bs_parse_f64 (text.c) define the form of a number: decimal, finite, in range. Nothing is changed:
 * thread-safe on a shared tree. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/yaml/config.h"
#include "lab/yaml/config_internal.h"

bs_node *bs_config_child(const bs_node *map, const char *key, size_t length) {
  for (bs_node *child = map->first; child != NULL; child = child->next) {
    if (child->key != NULL && strncmp(child->key, key, length) == 0 && child->key[length] == '\0')
      return child;
  }
  return NULL;
}

const bs_node *bs_config_find(const bs_node *root, const char *path) {
  const bs_node *node = root;
  while (node != NULL && *path != '\0') {
    size_t length = strcspn(path, ".");
    node = node->kind == BS_NODE_MAP ? bs_config_child(node, path, length) : NULL;
    path += length;
    if (*path == '.') path++;
  }
  return node;
}

const bs_node *bs_config_blocking(const bs_node *root, const char *path) {
  const bs_node *node = root;
  while (node != NULL && *path != '\0') {
    if (node->kind != BS_NODE_MAP) return node->kind == BS_NODE_NULL ? NULL : node;
    size_t length = strcspn(path, ".");
    node = bs_config_child(node, path, length);
    path += length;
    if (*path == '.') path++;
  }
  return NULL;
}

static const char *kind_name(const bs_node *node) {
  switch (node->kind) {
    case BS_NODE_MAP:
      return "a map";
    case BS_NODE_LIST:
      return "a list";
    case BS_NODE_NULL:
      return "null";
    default:
      return node->quoted ? "a quoted text" : "a value";
  }
}

int32_t bs_config_type_error(const bs_node *node, const char *path, const char *wanted, bs_error *err) {
  char place[160];
  bs_config_place(node, place, sizeof place);
  if (node->kind == BS_NODE_SCALAR) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-TYPE", "%.100s: expected %s, found %s%.80s%s", path, wanted,
                 node->quoted ? "the text \"" : "'", node->text, node->quoted ? "\"" : "'");
  } else {
    bs_error_set(err, BS_CONFIG, "BS-CFG-TYPE", "%.100s: expected %s, found %s", path, wanted,
                 kind_name(node));
  }
  bs_error_where(err, "%s", place);
  return BS_CONFIG;
}

/* The scalar at path in *out_node, NULL when absent or null; an error when it is something else. */
static int32_t scalar_at(const bs_node *root, const char *path, const char *wanted, const bs_node **out_node,
                         bs_error *err) {
  *out_node = NULL;
  const bs_node *node = bs_config_find(root, path);
  if (node == NULL) {
    const bs_node *stop = root != NULL ? bs_config_blocking(root, path) : NULL;
    if (stop != NULL) return bs_config_type_error(stop, stop->key != NULL ? stop->key : "root", "a map", err);
    return BS_OK;
  }
  if (node->kind == BS_NODE_NULL) return BS_OK;
  if (node->kind != BS_NODE_SCALAR) return bs_config_type_error(node, path, wanted, err);
  *out_node = node;
  return BS_OK;
}

int32_t bs_config_i64(const bs_node *root, const char *path, int64_t fallback, int64_t *out, bs_error *err) {
  const char *wanted = BS_SIZE_FORM;
  const bs_node *node;
  int64_t value = fallback;
  int32_t rc = scalar_at(root, path, wanted, &node, err);
  if (rc != BS_OK) return rc;
  if (node != NULL && (node->quoted || !bs_parse_size(node->text, &value))) {
    return bs_config_type_error(node, path, wanted, err);
  }
  *out = value;
  return BS_OK;
}

int32_t bs_config_f64(const bs_node *root, const char *path, double fallback, double *out, bs_error *err) {
  const char *wanted = "a finite decimal number";
  const bs_node *node;
  double value = fallback;
  int32_t rc = scalar_at(root, path, wanted, &node, err);
  if (rc != BS_OK) return rc;
  if (node != NULL && (node->quoted || !bs_parse_f64(node->text, &value))) {
    return bs_config_type_error(node, path, wanted, err);
  }
  *out = value;
  return BS_OK;
}

int32_t bs_config_bool(const bs_node *root, const char *path, int fallback, int *out, bs_error *err) {
  const char *wanted = "true or false";
  const bs_node *node;
  int value = fallback;
  int32_t rc = scalar_at(root, path, wanted, &node, err);
  if (rc != BS_OK) return rc;
  if (node != NULL && (node->quoted || !bs_parse_bool(node->text, &value))) {
    return bs_config_type_error(node, path, wanted, err);
  }
  *out = value;
  return BS_OK;
}

int32_t bs_config_str(const bs_node *root, const char *path, const char *fallback, const char **out,
                      bs_error *err) {
  const bs_node *node;
  int32_t rc = scalar_at(root, path, "a text", &node, err);
  if (rc != BS_OK) return rc;
  *out = node != NULL ? node->text : fallback;
  return BS_OK;
}

void bs_config_place(const bs_node *node, char *out, size_t size) {
  if (size == 0) return;
  out[0] = '\0';
  if (node == NULL || node->file == NULL) return;
  snprintf(out, size, "%s:%d:%d", node->file, (int)node->line, (int)node->column);
}
