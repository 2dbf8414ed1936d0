/* SPDX-License-Identifier: MIT
 * canonical.c - the values of a checked tree, each in one spelling. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/text.h"
#include "core/partition/partition.h"
#include "core/plugin/named.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"

enum { WORD = 256 };

static int32_t put(bs_node *node, const char *text, bs_error *err) {
  return bs_config_put_text(node, text, 0, err);
}
static int32_t put_string(bs_node *node, const char *text, bs_error *err) {
  return bs_config_put_text(node, text, 1, err);
}

/* The shortest text that reads as the number, also for readers of YAML that want a dot before an exponent. */
static int32_t put_number(bs_node *node, bs_error *err) {
  char text[64];
  double value, again;
  if (!bs_parse_f64(node->text, &value)) return BS_OK;
  if (value == 0) value = 0; /* not -0 */
  const int plain = value == 0 || (fabs(value) >= 1e-4 && fabs(value) < 1e15);
  for (int digits = plain ? 0 : 1; digits <= 21; digits++) {
    snprintf(text, sizeof text, plain ? "%.*f" : "%.*e", digits, value);
    if (bs_parse_f64(text, &again) && again == value) return put(node, text, err);
  }
  return BS_OK;
}

/* [1, 1, 0, 0] as 1100. */
static int32_t put_pattern(bs_node *node, bs_error *err) {
  char text[WORD] = "";
  size_t n = 0;
  if (node->kind != BS_NODE_LIST) return put_string(node, node->text, err);
  for (const bs_node *item = node->first; item != NULL && n + 1 < sizeof text; item = item->next) {
    if (strcmp(item->text, "0") != 0 && strcmp(item->text, "1") != 0) return BS_OK;
    text[n++] = item->text[0];
    text[n] = '\0';
  }
  while (node->first != NULL) {
    bs_node *item = node->first;
    node->first = item->next;
    item->next = NULL;
    bs_config_free(item);
  }
  node->kind = BS_NODE_SCALAR;
  return put_string(node, text, err);
}

/* Reads "old=new" after the "||" of a key's range. */
static int32_t put_choice(const bs_key *key, bs_node *node, bs_notes *notes, bs_error *err) {
  const char *older = key->range != NULL ? strstr(key->range, "||") : NULL;
  const size_t size = strlen(node->text);
  for (const char *at = older != NULL ? older + 2 : ""; *at != '\0'; at += *at == '|') {
    const size_t length = strcspn(at, "|");
    if (length > size + 1 && strncmp(at, node->text, size) == 0 && at[size] == '=') {
      char text[WORD];
      snprintf(text, sizeof text, "%.*s", (int)(length - size - 1), at + size + 1);
      bs_note_add(notes, "%s %s is an older name of %s", key->path, node->text, text);
      return put_string(node, text, err);
    }
    at += length;
  }
  return put_string(node, node->text, err);
}

static int32_t put_value(const bs_key *key, bs_node *node, bs_notes *notes, bs_error *err) {
  uint32_t number;
  int yes;
  int64_t whole;
  char text[32];
  int32_t rc = BS_OK;
  if (key->type == BS_KEY_PATTERN && node->kind != BS_NODE_NULL) return put_pattern(node, err);
  if (key->type == BS_KEY_NUMBERS || key->type == BS_KEY_STRS)
    for (bs_node *item = node->first; rc == BS_OK && item != NULL; item = item->next)
      rc = key->type == BS_KEY_NUMBERS ? put_number(item, err) : put_string(item, item->text, err);
  if (rc != BS_OK || node->kind != BS_NODE_SCALAR) return rc;
  switch (key->type) {
    case BS_KEY_INT:
      if (!bs_parse_size(node->text, &whole)) return BS_OK;
      snprintf(text, sizeof text, "%lld", (long long)whole);
      return put(node, text, err);
    case BS_KEY_FLOAT:
      return put_number(node, err);
    case BS_KEY_BOOL:
      return bs_parse_bool(node->text, &yes) ? put(node, yes ? "true" : "false", err) : BS_OK;
    case BS_KEY_DTYPE: /* for other keys an error shows the typed text */
      if (!bs_name_read(BS_NAMES_DTYPE, node->text, &number)) return BS_OK;
      if (!bs_dtype_is_float(number) && (number != BS_I8 || strcmp(key->path, "method.reduce_dtype") != 0))
        return BS_OK;
      return put(node, bs_name_of(BS_NAMES_DTYPE, number), err);
    case BS_KEY_ACTIVATION:
      if (!bs_name_read(BS_NAMES_ACTIVATION, node->text, &number)) return BS_OK;
      return put(node, bs_name_of(BS_NAMES_ACTIVATION, number), err);
    default:
      return put_choice(key, node, notes, err);
  }
}

/* The name in front of the options of "NAME:key=value". */
static int32_t put_name(bs_context *context, bs_node *root, const char *path, uint32_t kind, bs_notes *notes,
                        bs_error *err) {
  bs_node *node = (bs_node *)(uintptr_t)bs_config_find(root, path);
  char name[WORD], newer[WORD], text[2 * WORD];
  if (node == NULL || node->kind != BS_NODE_SCALAR) return BS_OK;
  const size_t length = strcspn(node->text, ":");
  if (length >= sizeof name || strlen(node->text) >= WORD) return BS_OK;
  snprintf(name, sizeof name, "%.*s", (int)length, node->text);
  if (!bs_named_newer(context, kind, name, newer, sizeof newer)) return BS_OK;
  bs_note_add(notes, "%.*s %s is an older name of %s", (int)strcspn(path, "."), path, name, newer);
  snprintf(text, sizeof text, "%s%s", newer, node->text + length);
  return put_string(node, text, err);
}

/* A mask by patterns gets the name of these; where they are wrong, who reads the mask says so. */
static int32_t name_patterns(bs_node *root, bs_error *err) {
  static const char *const paths[] = {"mask.pattern_a", "mask.pattern", "mask.pattern_b"};
  const char *text[3] = {NULL, NULL, NULL};
  const bs_node *name = bs_config_find(root, "mask.name");
  bs_mask mask = {.struct_size = sizeof mask};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < 3 && rc == BS_OK; i++) {
    bs_node *node = (bs_node *)(uintptr_t)bs_config_find(root, paths[i]);
    if (node != NULL && node->kind != BS_NODE_NULL) rc = put_pattern(node, err);
    if (node != NULL && node->kind == BS_NODE_SCALAR) text[i] = node->text;
  }
  const char *a = text[0] != NULL ? text[0] : text[1];
  if (rc != BS_OK || a == NULL || (name != NULL && name->kind != BS_NODE_SCALAR)) return rc;
  if (bs_mask_parse(name != NULL ? name->text : NULL, a, text[2], &mask, NULL) != BS_OK) return BS_OK;
  for (size_t i = 0; i < 3; i++) bs_config_remove(root, paths[i]);
  return name == NULL ? bs_config_set_text(root, "mask.name", mask.name, err)
                      : put_string((bs_node *)(uintptr_t)name, mask.name, err);
}

int32_t bs_config_full_names(bs_node *root, bs_error *err) {
  static const char *const paths[] = {"phase.name", "mask.name"};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < 2 && rc == BS_OK; i++) {
    bs_node *node = (bs_node *)(uintptr_t)bs_config_find(root, paths[i]);
    if (node == NULL || node->kind != BS_NODE_SCALAR) continue;
    const char *name = bs_full_name(paths[i], node->text);
    if (name != node->text) rc = put_string(node, name, err);
  }
  return rc == BS_OK ? name_patterns(root, err) : rc;
}

int32_t bs_schema_canonical(bs_context *context, bs_node *root, bs_notes *notes, bs_error *err) {
  const struct {
    const char *path;
    uint32_t kind;
  } names[] = {
      {"method.name", BS_KIND_METHOD},
      {bs_config_find(root, "workload.type") != NULL ? "workload.type" : "workload.name", BS_KIND_WORKLOAD},
      {"hardware.algorithm", BS_KIND_ALGORITHM},
      {"hardware.topology", BS_KIND_TOPOLOGY}};
  size_t count;
  const bs_key *keys = bs_schema_keys(&count);
  int32_t rc = bs_config_full_names(root, err);
  for (size_t i = 0; rc == BS_OK && i < count; i++) {
    bs_node *node = (bs_node *)(uintptr_t)bs_config_find(root, keys[i].path);
    if (node != NULL) rc = put_value(&keys[i], node, notes, err);
  }
  for (size_t i = 0; rc == BS_OK && context != NULL && i < sizeof names / sizeof names[0]; i++)
    rc = put_name(context, root, names[i].path, names[i].kind, i == 0 ? notes : NULL, err);
  return rc;
}
