/* SPDX-License-Identifier: MIT
 * request_key.c - see request_key.h. */
#include "lab/store/request_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/store/file_sum.h"
#include "lab/store/sha256.h"

enum { MAX_NAMES = 64, NAME_SIZE = 256 };

/* Names in the tree that a plugin may provide. */
typedef struct names {
  size_t n;
  char of[MAX_NAMES][NAME_SIZE];
} names;

static int by_key(const void *a, const void *b) {
  return strcmp((*(bs_node *const *)a)->key, (*(bs_node *const *)b)->key);
}

static int32_t sort_keys(bs_node *node, bs_error *err) {
  size_t n = 0, i = 0;
  int32_t rc = BS_OK;
  for (bs_node *child = node->first; rc == BS_OK && child != NULL; child = child->next, n++)
    rc = sort_keys(child, err);
  if (rc != BS_OK || node->kind != BS_NODE_MAP || n < 2) return rc;
  bs_node **all = calloc(n, sizeof *all);
  if (all == NULL) return bs_no_memory(err, "a request's key");
  for (bs_node *child = node->first; child != NULL; child = child->next) all[i++] = child;
  qsort(all, n, sizeof *all, by_key);
  for (i = 0; i + 1 < n; i++) all[i]->next = all[i + 1];
  all[n - 1]->next = NULL;
  node->first = all[0];
  free(all);
  return BS_OK;
}

int32_t bs_request_text(const bs_node *config, const char *const *paths, size_t n, bs_text *out,
                        bs_error *err) {
  bs_node *copy = bs_config_clone(config);
  if (copy == NULL) return bs_no_memory(err, "a request's key");
  for (size_t i = 0; i < n; i++) bs_config_remove(copy, paths[i]);
  const int32_t rc = sort_keys(copy, err);
  if (rc == BS_OK) bs_config_print(copy, out);
  bs_config_free(copy);
  if (rc != BS_OK) return rc;
  return out->failed ? bs_no_memory(err, "a request's key") : BS_OK;
}

static void add_name(names *all, const char *text, size_t size) {
  if (size == 0 || size >= NAME_SIZE || all->n == MAX_NAMES) return;
  snprintf(all->of[all->n++], NAME_SIZE, "%.*s", (int)size, text);
}

/* "fault:cpu" names both; of "ring:chunks=4" only the first part is a name. */
static void add_parts(names *all, const char *text) {
  if (text == NULL) return;
  for (;;) {
    const size_t size = strcspn(text, ":");
    add_name(all, text, size);
    if (text[size] == '\0') return;
    text += size + 1;
  }
}

static void find_names(const bs_node *config, names *all) {
  static const char *const keys[] = {"method.name",      "workload.type", "workload.name",
                                     "hardware.backend", "hardware.comm", "hardware.algorithm",
                                     "hardware.topology"};
  const bs_node *plugins = bs_config_find(config, "plugin");
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) add_parts(all, bs_schema_str(config, keys[i]));
  if (plugins == NULL) return;
  if (plugins->kind == BS_NODE_SCALAR) add_name(all, plugins->text, strlen(plugins->text));
  for (const bs_node *item = plugins->first; item != NULL; item = item->next)
    if (item->kind == BS_NODE_SCALAR) add_name(all, item->text, strlen(item->text));
}

/* A line of a note offers a name: "method:dense", "method:old=dense", "op:matmul@cpu", "backend:fault:". */
static int line_offers(const char *line, size_t size, const char *name) {
  const char *own = memchr(line, ':', size);
  const size_t length = strlen(name);
  if (own == NULL) return 0;
  size -= (size_t)(++own - line);
  const char *cut = memchr(own, '=', size), *at = memchr(own, '@', size);
  if (at != NULL && (size_t)(own + size - at) == length + 1 && strncmp(at + 1, name, length) == 0) return 1;
  if (cut != NULL) size = (size_t)(cut - own);
  if (size > 1 && own[size - 1] == ':') size--;
  return size == length && strncmp(own, name, length) == 0;
}

static int is_named(const bs_plugin_info *info, const names *all) {
  for (size_t i = 0; i < all->n; i++) {
    const char *name = all->of[i];
    if (strcmp(info->id, name) == 0 || strcmp(info->path, name) == 0) return 1;
    if (strcmp(info->origin, "--plugin") == 0 && strchr(name, '/') != NULL) return 1;
    for (const char *line = info->things; *line != '\0';) {
      const size_t size = strcspn(line, "\n");
      if (line_offers(line, size, name)) return 1;
      line += size + (line[size] == '\n');
    }
  }
  return 0;
}

static int by_text(const void *a, const void *b) {
  return strcmp(a, b);
}

/* Sums of the files, in the order of the plugins' ids: the key does not depend on their folders. */
static int32_t add_sums(bs_sha256 *h, bs_context *context, const names *all, names *lines, bs_error *err) {
  char sum[65];
  for (uint32_t i = 0; i < bs_plugin_count(context) && lines->n < MAX_NAMES; i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.builtin || info.path[0] == '\0') continue;
    if (info.state == BS_PLUGIN_SHADOWED || info.state == BS_PLUGIN_REFUSED || !is_named(&info, all))
      continue;
    const int32_t rc = bs_file_sum(info.path, sum, err);
    if (rc != BS_OK) return rc;
    snprintf(lines->of[lines->n++], NAME_SIZE, "%.180s %s", info.id, sum);
  }
  qsort(lines->of, lines->n, NAME_SIZE, by_text);
  for (size_t i = 0; i < lines->n; i++) bs_sha256_field(h, lines->of[i]);
  return BS_OK;
}

/* Adds plugins that are files; the build id covers built-ins. */
static int32_t add_plugins(bs_sha256 *h, bs_context *context, const bs_node *config, bs_error *err) {
  names *all = calloc(2, sizeof *all);
  if (all == NULL) return bs_no_memory(err, "a request's key");
  find_names(config, all);
  const int32_t rc = add_sums(h, context, all, all + 1, err);
  free(all);
  return rc;
}

/* Drops nulls, which are absent values, and a workload's name, which is only a label if its type is given. */
static void drop_what_says_nothing(bs_node *config) {
  size_t n;
  const bs_key *keys = bs_schema_keys(&n);
  for (size_t i = 0; i < n; i++) {
    const bs_node *node = bs_config_find(config, keys[i].path);
    if (node != NULL && node->kind == BS_NODE_NULL) bs_config_remove(config, keys[i].path);
  }
  if (bs_config_find(config, "workload.type") != NULL) bs_config_remove(config, "workload.name");
}

int32_t bs_request_key_of_build(bs_context *context, const bs_node *config, const char *build_id,
                                char out_key[65], bs_error *err) {
  static const char *const not_asked[] = {"run_id", "config_paths", "logging", "sweep"};
  bs_text text = {0};
  bs_sha256 h;
  bs_sha256_init(&h);
  bs_node *copy = bs_config_clone(config);
  int32_t rc =
      copy != NULL ? bs_schema_canonical(context, copy, NULL, err) : bs_no_memory(err, "a request's key");
  if (rc == BS_OK) drop_what_says_nothing(copy);
  if (rc == BS_OK) rc = bs_request_text(copy, not_asked, sizeof not_asked / sizeof not_asked[0], &text, err);
  if (rc == BS_OK) {
    bs_sha256_field(&h, "blockshock request 2");
    bs_sha256_field(&h, text.data == NULL ? "" : text.data);
    rc = add_plugins(&h, context, copy, err);
  }
  bs_text_free(&text);
  bs_config_free(copy);
  if (rc != BS_OK) return rc;
  bs_sha256_field(&h, build_id);
  bs_sha256_hex(&h, out_key);
  return BS_OK;
}

int32_t bs_request_key(bs_context *context, const bs_node *config, char out_key[65], bs_error *err) {
  return bs_request_key_of_build(context, config, bs_build_id(), out_key, err);
}
