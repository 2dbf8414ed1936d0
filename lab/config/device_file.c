/* SPDX-License-Identifier: MIT
 * device_file.c - see device_file.h. */
#include "lab/config/device_file.h"

#include <stdio.h>
#include <string.h>

#include "lab/config/compose.h"
#include "lab/error.h"

/* ---- the canonical text ------------------------------------------------------------------------ */

static void put_scalar(bs_text *out, const char *text) {
  if (text[0] != '\0' && text[strcspn(text, ",:{}[]\"\\ ")] == '\0') {
    bs_text_append(out, text, strlen(text));
    return;
  }
  bs_text_append(out, "\"", 1);
  for (; *text != '\0'; text++) bs_text_printf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
  bs_text_append(out, "\"", 1);
}

static void put_node(bs_text *out, const bs_node *node) {
  const int map = node->kind == BS_NODE_MAP;
  if (node->kind == BS_NODE_SCALAR || node->kind == BS_NODE_NULL) {
    put_scalar(out, node->text != NULL ? node->text : "");
    return;
  }
  bs_text_append(out, map ? "{" : "[", 1);
  for (const bs_node *child = node->first; child != NULL; child = child->next) {
    if (child != node->first) bs_text_append(out, ", ", 2);
    if (map) put_scalar(out, child->key);
    if (map) bs_text_append(out, ": ", 2);
    put_node(out, child);
  }
  bs_text_append(out, map ? "}" : "]", 1);
}

/* The entries that a fit replaces, and `parts`, of which each is a line. */
static void put_entry(bs_text *out, const bs_node *entry, const char *name) {
  bs_text_printf(out, "  %s:", entry->key);
  if (strcmp(entry->key, "name") == 0 || strcmp(entry->key, "label") == 0) {
    bs_text_printf(out, " %s\n", entry->key[0] == 'n' ? name : "calibrated");
    return;
  }
  if (strcmp(entry->key, "parts") != 0) {
    bs_text_append(out, " ", 1);
    put_node(out, entry);
    bs_text_append(out, "\n", 1);
    return;
  }
  bs_text_append(out, "\n", 1);
  for (const bs_node *part = entry->first; part != NULL; part = part->next) {
    bs_text_printf(out, "    %s: ", part->key);
    put_node(out, part);
    bs_text_append(out, "\n", 1);
  }
}

void bs_device_calibrated(const bs_device_file *f, const char *name, const bs_device_constants *constants,
                          bs_text *out) {
  bs_text_printf(out, "device:\n");
  for (const bs_node *entry = bs_config_find(f->root, "device")->first; entry != NULL; entry = entry->next)
    if (strcmp(entry->key, "launch") != 0 && strcmp(entry->key, "efficiency") != 0)
      put_entry(out, entry, name);
  bs_text_printf(out, "  launch: {first_s: %.9g}\n  efficiency: {units: %.9g, memory: %.9g}\n",
                 constants->launch_s, constants->units, constants->memory);
}

/* ---- the file ---------------------------------------------------------------------------------- */

static int32_t no_such_device(const char *configs_dir, const char *word, bs_error *err) {
  char **names = NULL;
  const size_t n = bs_config_names(configs_dir, "devices", &names);
  const char *nearest = bs_nearest(word, (const char *const *)names, n);
  bs_text known = {0};
  for (size_t i = 0; i < n; i++) bs_text_printf(&known, "%s%s", i == 0 ? "" : ", ", names[i]);
  bs_error_set(err, BS_CONFIG, "BS-CFG-NAME", "there is no device '%.100s'", word);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "known: %s; or a path to a YAML file", known.data != NULL ? known.data : "none");
  bs_text_free(&known);
  bs_config_names_free(names, n);
  return BS_CONFIG;
}

static int is_path(const char *word) {
  const size_t n = strlen(word);
  return strchr(word, '/') != NULL || (n > 5 && strcmp(word + n - 5, ".yaml") == 0);
}

static int is_name(const char *configs_dir, const char *word) {
  char **names = NULL;
  const size_t n = bs_config_names(configs_dir, "devices", &names);
  int found = 0;
  for (size_t i = 0; i < n; i++) found |= strcmp(names[i], word) == 0;
  bs_config_names_free(names, n);
  return found;
}

static int32_t read_file(bs_device_file *f, const char *path, bs_error *err) {
  int32_t rc = bs_config_load(path, &f->root, err);
  if (rc != BS_OK) return rc;
  const bs_node *device = bs_config_find(f->root, "device");
  if (device == NULL || device->kind != BS_NODE_MAP || f->root->first->next != NULL) {
    bs_error_set(err, BS_CONFIG, "BS-DEVICE-FIELD", "the file of a device is one map, device");
    bs_error_where(err, "%s", path);
    return BS_CONFIG;
  }
  put_node(&f->text, device);
  if (f->text.failed) return bs_no_memory(err, "the text of a device");
  return bs_device_place_error(f, sim_device_read(f->text.data, &f->device, err), err);
}

int32_t bs_device_open(const char *configs_dir, const char *word, bs_device_file *out, bs_error *err) {
  char path[4096];
  memset(out, 0, sizeof *out);
  if (is_path(word)) return read_file(out, word, err);
  if (!is_name(configs_dir, word)) return no_such_device(configs_dir, word, err);
  const int n = snprintf(path, sizeof path, "%s/devices/%s.yaml", configs_dir, word);
  if (n < 0 || (size_t)n >= sizeof path) return no_such_device(configs_dir, word, err);
  return read_file(out, path, err);
}

void bs_device_close(bs_device_file *f) {
  bs_config_free(f->root);
  bs_text_free(&f->text);
  memset(f, 0, sizeof *f);
}

int32_t bs_device_place_error(const bs_device_file *f, int32_t rc, bs_error *err) {
  char path[sizeof err->where + 16], place[sizeof err->where];
  if (rc == BS_OK || err == NULL || f->root == NULL) return rc;
  if (strncmp(err->id, "BS-DEVICE-", 10) != 0 || strcmp(err->id, "BS-DEVICE-PLACE") == 0) return rc;
  snprintf(path, sizeof path, "device%s%s", err->where[0] != '\0' ? "." : "", err->where);
  const bs_node *node = bs_config_find(f->root, path);
  if (node == NULL) return rc; /* it is a place in the file already */
  bs_config_place(node, place, sizeof place);
  bs_error_where(err, "%s", place);
  return rc;
}
