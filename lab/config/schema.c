/* SPDX-License-Identifier: MIT
 * schema.c - checks a merged configuration tree against the table of schema_table.c, and reads typed values
 * with the table's defaults. Called by experiment.c and by `bsrun config`. */
#include "lab/config/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/hardware_device.h"
#include "lab/config/short_names.h"
#include "lab/word.h"

#define MAX_CANDIDATES 256

const char *bs_key_type_name(uint32_t type) {
  static const char *const names[] = {[BS_KEY_STR] = "string",
                                      [BS_KEY_INT] = "integer",
                                      [BS_KEY_FLOAT] = "number",
                                      [BS_KEY_BOOL] = "true or false",
                                      [BS_KEY_STRS] = "list",
                                      [BS_KEY_PATTERN] = "pattern such as \"1100\"",
                                      [BS_KEY_NUMBERS] = "list of numbers",
                                      [BS_KEY_DTYPE] = "dtype",
                                      [BS_KEY_ACTIVATION] = "string"};
  return type < sizeof names / sizeof names[0] && names[type] != NULL ? names[type] : "?";
}

const char *bs_key_effect_name(uint32_t effect) {
  static const char *const names[] = {[BS_EFFECT_ACTIVE] = "active",
                                      [BS_EFFECT_LABEL] = "label",
                                      [BS_EFFECT_DECORATIVE] = "none",
                                      [BS_EFFECT_OLDER] = "older",
                                      [BS_EFFECT_WRITTEN] = "written"};
  return effect < sizeof names / sizeof names[0] && names[effect] != NULL ? names[effect] : "?";
}

const bs_key *bs_schema_find(const char *path) {
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(keys[i].path, path) == 0) return &keys[i];
  }
  return NULL;
}

int bs_key_varies(const bs_key *key) {
  return key->effect == BS_EFFECT_ACTIVE && strcmp(key->path, BS_HARDWARE_DEVICE) != 0;
}

int bs_node_from_file(const bs_node *node) {
  return node->file != NULL && strncmp(node->file, "--set", 5) != 0;
}

void bs_schema_where(const bs_node *node, bs_error *err) {
  char place[160];
  if (node == NULL) return;
  if (node->file != NULL && !bs_node_from_file(node)) {
    snprintf(place, sizeof place, "%s", node->file);
  } else {
    bs_config_place(node, place, sizeof place);
  }
  if (place[0] != '\0') bs_error_where(err, "%s", place);
}

/* Is a key of the table below `path`? */
static int is_section(const char *path) {
  size_t count, length = strlen(path);
  const bs_key *keys = bs_schema_keys(&count);
  for (size_t i = 0; i < count; i++) {
    if (strncmp(keys[i].path, path, length) == 0 && keys[i].path[length] == '.') return 1;
  }
  return 0;
}

/* The keys of option_docs, one a line, as prefix.key strings in `store`; returns how many were added. */
static size_t option_names(const char *option_docs, const char *prefix, char (*store)[128], size_t max) {
  size_t n = 0;
  const char *line = option_docs;
  while (line != NULL && *line != '\0' && n < max) {
    size_t length = strcspn(line, "=:\n");
    if (length > 0 && length < 64)
      snprintf(store[n++], sizeof store[0], "%.48s%.*s", prefix, (int)length, line);
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return n;
}

/* Every option of option_docs, once: "x, weights, bias". */
static void option_list(char (*names)[128], size_t n, size_t prefix, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < n && used < size; i++) {
    size_t first = 0;
    while (first < i && strcmp(names[first], names[i]) != 0) first++;
    if (first < i) continue; /* both methods of a pair have it */
    const int more = snprintf(out + used, size - used, "%s%s", i == 0 ? "" : ", ", names[i] + prefix);
    used += more > 0 ? (size_t)more : 0;
  }
}

int32_t bs_schema_unknown(const bs_node *node, const char *path, const char *option_docs, bs_error *err) {
  const char *candidates[MAX_CANDIDATES];
  char options[64][128], prefix[64], all[200];
  size_t count, n = 0;
  const bs_key *keys = bs_schema_keys(&count);
  const char *dot = strrchr(path, '.');
  size_t parent = dot == NULL ? 0 : (size_t)(dot - path) + 1;
  const size_t cut = strlen(path + parent) > 2 ? parent : 0; /* one or two letters have no useful nearest
                                                              * key */
  for (size_t i = 0; i < count && n < MAX_CANDIDATES; i++) {
    if (strncmp(keys[i].path, path, parent) == 0 && keys[i].effect != BS_EFFECT_DECORATIVE)
      candidates[n++] = keys[i].path + cut;
  }
  snprintf(prefix, sizeof prefix, "%.*s", (int)(parent < sizeof prefix ? parent : 0), path);
  size_t n_options = option_names(option_docs, prefix, options, 64);
  for (size_t i = 0; i < n_options && n < MAX_CANDIDATES; i++)
    candidates[n++] = options[i] + (cut > 0 ? strlen(prefix) : 0);
  const char *nearest = bs_nearest(path + cut, candidates, n);
  const size_t shown = nearest != NULL ? cut : 0; /* only the last part was compared */
  if (nearest == NULL && dot != NULL) {           /* the right key in the wrong section */
    for (size_t i = 0; i < count && nearest == NULL; i++) {
      const char *leaf = strrchr(keys[i].path, '.');
      if (leaf != NULL && strcmp(leaf, dot) == 0) nearest = keys[i].path;
    }
  }
  if (nearest == NULL && parent == 0) {
    static const char *const sections[] = {"experiment", "model",   "phase", "method",  "mask",  "workload",
                                           "hardware",   "logging", "sweep", "plugins", "plugin"};
    nearest = bs_nearest(path, sections, sizeof sections / sizeof sections[0]);
  }
  if (parent == 0 && strcmp(bs_short_name_key(path), path) != 0) nearest = bs_short_name_key(path);
  bs_error_set(err, BS_CONFIG, "BS-CFG-KEY", "unknown key '%s'", path);
  bs_schema_where(node, err);
  if (nearest != NULL) {
    bs_error_hint(err, "did you mean '%.*s%s'?", (int)shown, path, nearest);
  } else if (n_options > 0) {
    option_list(options, n_options, strlen(prefix), all, sizeof all);
    bs_error_hint(err, "options here: %s; `bsrun config keys` lists every key", all);
  } else {
    bs_error_hint(err, "`bsrun config keys` lists every key");
  }
  return BS_CONFIG;
}

static int32_t type_error(const bs_node *node, const bs_key *key, bs_error *err) {
  static const char *const kinds[] = {"null", "a scalar", "a list", "a mapping"};
  if (node->kind == BS_NODE_SCALAR) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-TYPE", "%s: '%.80s' is not of type %s", key->path, node->text,
                 bs_key_type_name(key->type));
  } else {
    bs_error_set(err, BS_CONFIG, "BS-CFG-TYPE", "%s: %s where a value of type %s belongs", key->path,
                 kinds[node->kind & 3u], bs_key_type_name(key->type));
  }
  bs_schema_where(node, err);
  return BS_CONFIG;
}

static int32_t range_error(const bs_node *node, const bs_key *key, bs_error *err) {
  const int32_t rc = bs_schema_refuse(node, err, "BS-CFG-RANGE", "%s: %.80s is outside %s", key->path,
                                      node->text, key->range);
  if (key->default_text[0] != '\0')
    bs_error_hint(err, "the default is %s", key->default_text);
  else
    bs_error_hint(err, "give a number in this range");
  return rc;
}

/* The length of the choices in "a|b||c" that are shown: older ones follow "||". */
static int shown_length(const char *range) {
  const char *older = strstr(range, "||");
  return older == NULL ? (int)strlen(range) : (int)(older - range);
}

/* Checks that "a|b|c" holds text; the error has the nearest choice. */
static int32_t check_choice(const bs_node *node, const bs_key *key, bs_error *err) {
  char copy[256];
  const char *words[16];
  size_t n = 0;
  snprintf(copy, sizeof copy, "%s", key->range);
  for (char *save = NULL, *w = strtok_r(copy, "|", &save); w != NULL && n < 16;
       w = strtok_r(NULL, "|", &save)) {
    w[strcspn(w, "=")] = '\0'; /* an older spelling */
    if (strcmp(w, node->text) == 0) return BS_OK;
    words[n++] = w;
  }
  const char *nearest = bs_nearest(node->text, words, n);
  bs_error_set(err, BS_CONFIG, "BS-CFG-RANGE", "%s: '%.80s' is not a valid value; use one of %.*s", key->path,
               node->text, shown_length(key->range), key->range);
  bs_schema_where(node, err);
  if (nearest != NULL) bs_error_hint(err, "did you mean '%s'?", nearest);
  return BS_CONFIG;
}

void bs_key_range(const bs_key *key, char *out, size_t size) {
  const char *words[BS_WORDS_MAX];
  size_t used = 0;
  const size_t n = key->type == BS_KEY_ACTIVATION ? bs_word_list(BS_NAMES_ACTIVATION, NULL, 0, words) : 0;
  snprintf(out, size, "%s", key->range != NULL ? key->range : "");
  for (size_t i = 0; i < n && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? "|" : "", words[i]);
}

static int32_t check_activation(const bs_node *node, const bs_key *key, bs_error *err) {
  char range[160];
  uint32_t activation;
  if (bs_name_read(BS_NAMES_ACTIVATION, node->text, &activation)) return BS_OK;
  bs_key_range(key, range, sizeof range);
  bs_key one = *key;
  one.range = range;
  return check_choice(node, &one, err);
}

/* Every bound of a whole number is one that a double holds, or the largest that there is. */
static int32_t check_number(const bs_node *root, const bs_node *node, const bs_key *key, bs_error *err) {
  int64_t whole = 0;
  double value = 0, low, high;
  char first[32];
  const int is_whole = key->type == BS_KEY_INT;
  const int32_t rc = is_whole ? bs_config_i64(root, key->path, 0, &whole, err)
                              : bs_config_f64(root, key->path, 0, &value, err);
  const char *dots = rc != BS_OK || key->range == NULL ? NULL : strstr(key->range, "..");
  if (dots == NULL) return rc;
  if (is_whole) value = (double)whole;
  snprintf(first, sizeof first, "%.*s", (int)(dots - key->range), key->range);
  if (!bs_parse_f64(first, &low) || !bs_parse_f64(dots + 2, &high)) return BS_OK;
  return value < low || value > high ? range_error(node, key, err) : BS_OK;
}

static int32_t check_list(const bs_node *node, const bs_key *key, bs_error *err) {
  if (node->kind != BS_NODE_LIST) return type_error(node, key, err);
  for (const bs_node *item = node->first; item != NULL; item = item->next) {
    double number;
    if (item->kind != BS_NODE_SCALAR) return type_error(item, key, err);
    if (key->type == BS_KEY_NUMBERS && (item->quoted || !bs_parse_f64(item->text, &number)))
      return type_error(item, key, err);
  }
  return BS_OK;
}

static int32_t check_value(const bs_node *root, const bs_node *node, const bs_key *key, bs_error *err) {
  if (node->kind == BS_NODE_NULL) return BS_OK;
  if (key->type == BS_KEY_STRS || key->type == BS_KEY_NUMBERS) return check_list(node, key, err);
  if (key->type == BS_KEY_PATTERN && node->kind == BS_NODE_LIST) return check_list(node, key, err);
  if (node->kind != BS_NODE_SCALAR) return type_error(node, key, err);
  switch (key->type) {
    case BS_KEY_INT:
    case BS_KEY_FLOAT:
      return check_number(root, node, key, err);
    case BS_KEY_BOOL: {
      int value;
      return bs_config_bool(root, key->path, 0, &value, err);
    }
    case BS_KEY_ACTIVATION:
      return check_activation(node, key, err);
    default:
      return key->range != NULL ? check_choice(node, key, err) : BS_OK;
  }
}

static int below(const char *file, const char *dir) {
  size_t length = dir == NULL ? 0 : strlen(dir);
  return file != NULL && length > 0 && strncmp(file, dir, length) == 0 && file[length] == '/';
}

typedef struct walk {
  const bs_node *root;
  const char *quiet_dir;
  bs_text idle; /* keys without effect that the user typed */
  bs_error *err;
} walk;

/* Refuses a key with a dot: its path would not find it, so it would have no effect. */
static int32_t flat_key(const bs_node *node, const char *path, bs_error *err) {
  const char *leaf = strrchr(path, '.') + 1;
  (void)bs_schema_refuse(node, err, "BS-CFG-FLAT", "the key '%.100s' has a dot: files write keys nested",
                         path);
  bs_error_hint(err, "write `%.*s: {%.60s: %.60s}`", (int)(leaf - 1 - path), path, leaf,
                node->text == NULL ? "..." : node->text);
  return BS_CONFIG;
}

/* Has the key no effect in this tree? */
static int is_idle(const bs_node *root, const bs_key *key) {
  if (strcmp(key->path, BS_HARDWARE_DEVICE) == 0) return !bs_hardware_device_acts(root);
  return key->effect == BS_EFFECT_DECORATIVE;
}

static int32_t check_map(walk *w, const bs_node *map, const char *prefix) {
  for (const bs_node *node = map->first; node != NULL; node = node->next) {
    char path[512];
    int length = snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", node->key);
    if (length < 0 || (size_t)length >= sizeof path) return bs_schema_unknown(node, "...", NULL, w->err);
    const bs_key *key = bs_schema_find(path);
    int32_t rc = BS_OK;
    if (key != NULL && strchr(node->key, '.') != NULL) {
      rc = flat_key(node, path, w->err);
    } else if (key != NULL) {
      rc = check_value(w->root, node, key, w->err);
      if (rc == BS_OK && is_idle(w->root, key) && node->kind != BS_NODE_NULL &&
          !below(node->file, w->quiet_dir)) {
        bs_text_printf(&w->idle, "%s%s", w->idle.size == 0 ? "" : ", ", path);
      }
    } else if (strcmp(prefix, "workload") == 0 || strcmp(prefix, "method") == 0 ||
               strcmp(path, "plugins") == 0) {
      continue; /* belongs to a plugin: bs_options_check */
    } else if (is_section(path)) {
      if (node->kind == BS_NODE_MAP) {
        rc = check_map(w, node, path);
      } else if (node->kind != BS_NODE_NULL) {
        rc = bs_schema_refuse(node, w->err, "BS-CFG-TYPE", "%s must be a mapping of keys", path);
        bs_error_hint(w->err, "write `%s:` and its keys indented below it", path);
      }
    } else {
      rc = bs_schema_unknown(node, path, NULL, w->err);
    }
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t bs_schema_check(const bs_node *root, const char *quiet_dir, bs_notes *notes, bs_error *err) {
  walk w = {root, quiet_dir, {0}, err};
  const int32_t rc = check_map(&w, root, "");
  if (rc == BS_OK && w.idle.data != NULL)
    bs_note_add(notes, "no effect, and left out: %s (share/doc/blockshock/dev/original.md)", w.idle.data);
  bs_text_free(&w.idle);
  return rc;
}

void bs_schema_drop_idle(bs_node *root) {
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  for (size_t i = 0; i < count; i++)
    if (is_idle(root, &keys[i])) bs_config_remove(root, keys[i].path);
}

int64_t bs_schema_i64(const bs_node *root, const char *path) {
  const bs_key *key = bs_schema_find(path);
  int64_t value = 0;
  if (key != NULL) bs_parse_i64(key->default_text, &value);
  bs_config_i64(root, path, value, &value, NULL);
  return value;
}

double bs_schema_f64(const bs_node *root, const char *path) {
  const bs_key *key = bs_schema_find(path);
  double value = 0;
  if (key != NULL) bs_parse_f64(key->default_text, &value);
  bs_config_f64(root, path, value, &value, NULL);
  return value;
}

int bs_schema_bool(const bs_node *root, const char *path) {
  const bs_key *key = bs_schema_find(path);
  int value = 0;
  if (key != NULL) bs_parse_bool(key->default_text, &value);
  bs_config_bool(root, path, value, &value, NULL);
  return value;
}

const char *bs_schema_str(const bs_node *root, const char *path) {
  const bs_key *key = bs_schema_find(path);
  const char *fallback = key != NULL && key->default_text[0] != '\0' ? key->default_text : NULL;
  const char *value = fallback;
  bs_config_str(root, path, fallback, &value, NULL);
  return value;
}
