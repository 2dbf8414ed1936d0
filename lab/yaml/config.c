/* SPDX-License-Identifier: MIT
 * config.c - the config tree: making, copying, merging, finding, setting (contract: config.h; rules of
 * composition: mappings merge, a null over a mapping changes nothing, any other value replaces). Called by
 * the lab, which builds one tree per run from files and options. Trees are plain data: thread-safe on
 * distinct trees. */
#include "lab/yaml/config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/error.h"
#include "lab/yaml/config_internal.h"

/* ---- names of files: few, shared by all nodes of a tree and its copies, kept for the process ------- */

typedef struct interned {
  struct interned *next;
  char *name;
} interned;

const char *bs_config_intern(const char *name) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static interned *buckets[256];
  const char *found = NULL;
  uint32_t hash = 2166136261u;
  for (const char *p = name; *p != '\0'; p++) hash = (hash ^ (unsigned char)*p) * 16777619u;
  interned **all = &buckets[(hash ^ (hash >> 16)) & 255];
  pthread_mutex_lock(&lock);
  for (interned *i = *all; i != NULL && found == NULL; i = i->next) {
    if (strcmp(i->name, name) == 0) found = i->name;
  }
  if (found == NULL) {
    interned *i = malloc(sizeof *i);
    char *copy = bs_strdup(name);
    if (i != NULL && copy != NULL) {
      i->name = copy;
      i->next = *all;
      *all = i;
      found = copy;
    } else {
      free(i);
      free(copy);
    }
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* ---- nodes ------------------------------------------------------------------------------------- */

bs_node *bs_node_new(uint32_t kind) {
  bs_node *node = calloc(1, sizeof *node);
  if (node != NULL) node->kind = kind;
  return node;
}

bs_node *bs_config_new_map(void) {
  return bs_node_new(BS_NODE_MAP);
}

/* Frees what a node holds, not the node, its key or its siblings. */
static void clear_value(bs_node *node) {
  bs_node *child = node->first;
  while (child != NULL) {
    bs_node *next = child->next;
    bs_config_free(child);
    child = next;
  }
  free(node->text);
  node->text = NULL;
  node->first = NULL;
  node->kind = BS_NODE_NULL;
  node->quoted = 0;
}

void bs_config_free(bs_node *node) {
  if (node == NULL) return;
  clear_value(node);
  free(node->key);
  free(node);
}

bs_node *bs_config_clone(const bs_node *node) {
  if (node == NULL) return NULL;
  bs_node *copy = bs_node_new(node->kind);
  if (copy == NULL) return NULL;
  copy->quoted = node->quoted;
  copy->line = node->line;
  copy->column = node->column;
  copy->file = node->file;
  if (node->key != NULL && (copy->key = bs_strdup(node->key)) == NULL) goto fail;
  if (node->text != NULL && (copy->text = bs_strdup(node->text)) == NULL) goto fail;
  bs_node **link = &copy->first;
  for (const bs_node *child = node->first; child != NULL; child = child->next) {
    *link = bs_config_clone(child);
    if (*link == NULL) goto fail;
    link = &(*link)->next;
  }
  return copy;
fail:
  bs_config_free(copy);
  return NULL;
}

uint64_t bs_config_count(const bs_node *node) {
  uint64_t count = 1;
  for (const bs_node *child = node->first; child != NULL; child = child->next)
    count += bs_config_count(child);
  return count;
}

static int depth_of(const bs_node *node) {
  if (node->kind != BS_NODE_MAP && node->kind != BS_NODE_LIST) return 0;
  int deepest = 0;
  for (const bs_node *child = node->first; child != NULL; child = child->next) {
    int depth = depth_of(child);
    if (depth > deepest) deepest = depth;
  }
  return deepest + 1;
}

static void append_child(bs_node *parent, bs_node *child) {
  bs_node **link = &parent->first;
  while (*link != NULL) link = &(*link)->next;
  *link = child;
}

/* Puts the value of `from` (which is used up) into `into`, which keeps its key and its place among its
 * siblings. */
static void move_value(bs_node *into, bs_node *from) {
  clear_value(into);
  into->kind = from->kind;
  into->quoted = from->quoted;
  into->text = from->text;
  into->first = from->first;
  into->line = from->line;
  into->column = from->column;
  into->file = from->file;
  from->text = NULL;
  from->first = NULL;
  bs_config_free(from);
}

/* ---- merging ----------------------------------------------------------------------------------- */

static int32_t merge_maps(bs_node *base, const bs_node *over, bs_error *err) {
  for (const bs_node *entry = over->first; entry != NULL; entry = entry->next) {
    bs_node *mine = bs_config_child(base, entry->key, strlen(entry->key));
    if (mine != NULL && mine->kind == BS_NODE_MAP && entry->kind == BS_NODE_MAP) {
      int32_t rc = merge_maps(mine, entry, err);
      if (rc != BS_OK) return rc;
      continue;
    }
    if (mine != NULL && mine->kind == BS_NODE_MAP && entry->kind == BS_NODE_NULL) continue; /* no keys */
    bs_node *copy = bs_config_clone(entry);
    if (copy == NULL) return bs_config_no_memory(err);
    if (mine != NULL) {
      move_value(mine, copy);
    } else {
      append_child(base, copy);
    }
  }
  return BS_OK;
}

static int32_t check_count(const bs_node *root, bs_error *err) {
  if (bs_config_count(root) <= BS_CFG_MAX_NODES) return BS_OK;
  return bs_error_set(err, BS_CONFIG, "BS-CFG-NODES", "the merged configuration has more than %d nodes",
                      BS_CFG_MAX_NODES);
}

int32_t bs_config_merge(bs_node *base, const bs_node *over, bs_error *err) {
  if (base->kind != BS_NODE_MAP || over->kind != BS_NODE_MAP) {
    return bs_error_set(err, BS_CONFIG, "BS-CFG-ROOT", "only mappings can be merged");
  }
  const int32_t rc = merge_maps(base, over, err);
  return rc == BS_OK ? check_count(base, err) : rc;
}

/* ---- removing and setting
 * ----------------------------------------------------------------------------------- */

void bs_config_remove(bs_node *root, const char *path) {
  const size_t length = strcspn(path, ".");
  bs_node *child = root->kind == BS_NODE_MAP ? bs_config_child(root, path, length) : NULL;
  if (child == NULL) return;
  if (path[length] == '.') {
    const int had = child->first != NULL;
    bs_config_remove(child, path + length + 1);
    if (!had || child->first != NULL) return;
  }
  bs_node **link = &root->first;
  while (*link != NULL && *link != child) link = &(*link)->next;
  *link = child->next;
  bs_config_free(child);
}

static int32_t bad_path(bs_error *err, const char *path, const char *why) {
  bs_error_set(err, BS_CONFIG, "BS-CFG-PATH", "'%.100s': %s", path, why);
  bs_error_hint(err, "write a setting as section.key, for example model.N");
  return BS_CONFIG;
}

/* Keys of a path, checked before anything is changed. */
static int32_t check_path(const char *path, int *out_segments, bs_error *err) {
  size_t size = strlen(path);
  if (size == 0 || size > BS_CFG_MAX_SCALAR) return bad_path(err, path, "not a path of keys");
  for (size_t i = 0; i < size;) {
    uint32_t point;
    size_t n = bs_utf8_next(path + i, size - i, &point);
    if (n == 0 || !bs_yaml_printable(point)) return bad_path(err, path, "a key has a byte that is not text");
    i += n;
  }
  int segments = 1;
  const char *start = path;
  for (const char *p = path;; p++) {
    if (*p != '.' && *p != '\0') continue;
    if (p == start) return bad_path(err, path, "an empty key");
    if (p - start == 2 && strncmp(start, "<<", 2) == 0) return bad_path(err, path, "'<<' is not accepted");
    if (*p == '\0') break;
    segments++;
    start = p + 1;
  }
  *out_segments = segments;
  return BS_OK;
}

/* The map entry at path, created (with the maps above it) if missing. */
static int32_t reach(bs_node *root, const char *path, bs_node **out_entry, bs_error *err) {
  bs_node *node = root;
  const char *key = path;
  while (*key != '\0') {
    size_t length = strcspn(key, ".");
    if (node->kind == BS_NODE_NULL) node->kind = BS_NODE_MAP; /* "model:" without a value */
    bs_node *child = bs_config_child(node, key, length);
    if (child == NULL) {
      child = bs_node_new(BS_NODE_NULL);
      if (child == NULL) return bs_config_no_memory(err);
      child->key = strndup(key, length);
      if (child->key == NULL) {
        bs_config_free(child);
        return bs_config_no_memory(err);
      }
      append_child(node, child);
    }
    node = child;
    key += length;
    if (*key == '.') key++;
  }
  *out_entry = node;
  return BS_OK;
}

/* Merges `value` (used up, also on error) into `entry`, as a later file does. */
static int32_t put_value(bs_node *root, bs_node *entry, bs_node *value, bs_error *err) {
  int32_t rc = BS_OK;
  if (entry->kind != BS_NODE_MAP || (value->kind != BS_NODE_MAP && value->kind != BS_NODE_NULL)) {
    move_value(entry, value);
  } else {
    rc = merge_maps(entry, value, err);
    bs_config_free(value);
  }
  return rc == BS_OK ? check_count(root, err) : rc;
}

/* Puts `value` (used up, also on error) at path. */
static int32_t set_node(bs_node *root, const char *path, bs_node *value, bs_error *err) {
  int segments = 0;
  bs_node *entry = NULL;
  int32_t rc = check_path(path, &segments, err);
  if (rc != BS_OK) goto fail;
  const bs_node *stop = bs_config_blocking(root, path);
  if (stop != NULL) {
    rc = bs_config_type_error(stop, stop->key != NULL ? stop->key : "root", "a map above a setting", err);
    goto fail;
  }
  if (segments + depth_of(value) > BS_CFG_MAX_DEPTH) {
    rc = bs_error_set(err, BS_CONFIG, "BS-CFG-DEPTH", "'%.100s' is nested more than %d deep", path,
                      BS_CFG_MAX_DEPTH);
    goto fail;
  }
  rc = reach(root, path, &entry, err);
  if (rc != BS_OK) goto fail;
  return put_value(root, entry, value, err);
fail:
  bs_config_free(value);
  return rc;
}

int32_t bs_config_set(bs_node *root, const char *path, const char *yaml_value, bs_error *err) {
  char name[128];
  bs_node *value = NULL;
  int segments = 0;
  int32_t rc = check_path(path, &segments, err); /* before its name is kept for messages */
  if (rc != BS_OK) return rc;
  snprintf(name, sizeof name, "--set %.100s", path);
  rc = bs_config_parse_value(name, yaml_value, strlen(yaml_value), &value, err);
  if (rc != BS_OK) return rc;
  return set_node(root, path, value, err);
}

int32_t bs_config_set_text(bs_node *root, const char *path, const char *text, bs_error *err) {
  size_t size = strlen(text);
  if (size > BS_CFG_MAX_SCALAR) {
    return bs_error_set(err, BS_CONFIG, "BS-CFG-SCALAR",
                        "%.100s: a text of %zu bytes, at most %d are accepted", path, size,
                        BS_CFG_MAX_SCALAR);
  }
  for (size_t i = 0; i < size;) {
    uint32_t point;
    size_t n = bs_utf8_next(text + i, size - i, &point);
    if (n == 0) return bs_error_set(err, BS_CONFIG, "BS-CFG-ENCODING", "%.100s: the text is not UTF-8", path);
    i += n;
  }
  bs_node *value = bs_node_new(BS_NODE_SCALAR);
  if (value == NULL || (value->text = bs_strdup(text)) == NULL) {
    bs_config_free(value);
    return bs_config_no_memory(err);
  }
  /* A number stays readable as one; a text that YAML would read otherwise is marked as text. */
  value->quoted = !bs_config_plain_safe(text);
  return set_node(root, path, value, err);
}

/* 0011, 1e3, .5, -1, yes, null: other YAML readers do not read these as strings. */
static int reads_as_no_string(const char *text) {
  static const char *const words[] = {"null", "y", "n", "yes", "no", "on", "off", "true", "false"};
  const char *at = text + (*text == '-' || *text == '+');
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcasecmp(words[i], text) == 0) return 1;
  return (*at >= '0' && *at <= '9') || *at == '.' || *text == '~';
}

int32_t bs_config_put_text(bs_node *scalar, const char *text, int is_string, bs_error *err) {
  const uint32_t quoted = !bs_config_plain_safe(text) || (is_string && reads_as_no_string(text));
  char *copy = bs_strdup(text);
  if (copy == NULL) return bs_config_no_memory(err);
  free(scalar->text);
  scalar->text = copy;
  scalar->quoted = quoted;
  return BS_OK;
}
