/* SPDX-License-Identifier: MIT
 * config_internal.h - shared parts of the config tree: limits, node building, UTF-8. Private to
 * lab/yaml/config*.c. */
#ifndef BS_LAB_YAML_CONFIG_INTERNAL_H
#define BS_LAB_YAML_CONFIG_INTERNAL_H
#include "core/base/error.h"
#include "lab/yaml/config.h"

enum {
  BS_CFG_MAX_BYTES = 1 << 20,
  BS_CFG_MAX_DEPTH = 16, /* nested maps and lists, the root among them */
  BS_CFG_MAX_NODES = 10000,
  BS_CFG_MAX_SCALAR = 4096
};

/* The code point at text, its length (1-4) as result; 0 when it is not UTF-8 (overlong forms, surrogates
 * and values beyond U+10FFFF included). size > 0. */
size_t bs_utf8_next(const char *text, size_t size, uint32_t *out_point);
/* YAML's printable characters: those that need no escape in a file. */
int bs_yaml_printable(uint32_t point);
/* A plain scalar that means null. */
int bs_yaml_null_word(const char *text);

bs_node *bs_node_new(uint32_t kind);
/* A process-wide copy of a name; NULL when out of memory. */
const char *bs_config_intern(const char *name);
uint64_t bs_config_count(const bs_node *node);
/* Parse one document whose root may be any value (--set). */
int32_t bs_config_parse_value(const char *name, const char *data, size_t size, bs_node **out_node,
                              bs_error *err);
/* A scalar that can be printed without quotes and means the same. */
int bs_config_plain_safe(const char *text);
bs_node *bs_config_child(const bs_node *map, const char *key, size_t length);
/* An entry above `path` that is neither a map nor null, so that nothing can lie below it; or NULL. */
const bs_node *bs_config_blocking(const bs_node *root, const char *path);
int32_t bs_config_type_error(const bs_node *node, const char *path, const char *wanted, bs_error *err);
static inline int32_t bs_config_no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the configuration");
}
#endif
