/* SPDX-License-Identifier: MIT
 * config.h - the config tree: YAML (libyaml events) into capped plain nodes. No aliases, tags,
 * anchors, merge keys or duplicate keys; UTF-8 only; caps: 1 MiB, depth 16, 10,000 nodes, scalars
 * 4 KiB. Keys keep their order. Errors carry file:line:col and end in exit code 3. */
#ifndef BS_LAB_YAML_CONFIG_H
#define BS_LAB_YAML_CONFIG_H
#include "blockshock/blockshock.h"
#include "core/base/text.h"

enum bs_node_kind { BS_NODE_NULL = 0, BS_NODE_SCALAR = 1, BS_NODE_LIST = 2, BS_NODE_MAP = 3 };
typedef struct bs_node bs_node;
struct bs_node {
  uint32_t kind;
  uint32_t quoted; /* scalar was quoted: a string for any content */
  char *key;       /* when a map entry */
  char *text;      /* scalar */
  bs_node *first;  /* children in order */
  bs_node *next;
  int32_t line, column; /* 1-based; 0: not from a file */
  const char *file;     /* interned; NULL: not from a file */
};
/* Every tree is a map at its root. An empty file is an empty map. name: for messages. */
BS_API int32_t bs_config_parse(const char *name, const char *data, size_t size, bs_node **out_root,
                               bs_error *err);
BS_API int32_t bs_config_load(const char *path, bs_node **out_root, bs_error *err);
BS_API bs_node *bs_config_new_map(void);
BS_API bs_node *bs_config_clone(const bs_node *node);
BS_API void bs_config_free(bs_node *node);
/* Mappings merge key by key, recursively; a null over a mapping changes nothing; any other value replaces.
 * `over` stays unchanged. */
BS_API int32_t bs_config_merge(bs_node *base, const bs_node *over, bs_error *err);
/* "a.b.c" -> node or NULL. */
BS_API const bs_node *bs_config_find(const bs_node *root, const char *path);
/* Set a.b.c to a scalar, list or map given as YAML text (flow style allowed), as --set does: by the rules of
 * bs_config_merge. */
BS_API int32_t bs_config_set(bs_node *root, const char *path, const char *yaml_value, bs_error *err);
BS_API int32_t bs_config_set_text(bs_node *root, const char *path, const char *text, bs_error *err);
/* Gives a scalar another text; the place where it was written stays. It is quoted if YAML needs that. A
 * string (is_string) is also quoted if a reader of YAML would take it for a number, a truth value or a
 * date. */
BS_API int32_t bs_config_put_text(bs_node *scalar, const char *text, int is_string, bs_error *err);
/* Takes the map entry at path out, and maps above it that it leaves empty. */
BS_API void bs_config_remove(bs_node *root, const char *path);
/* Typed reads, of whole numbers also with a unit (bs_parse_size): the default when absent or null; BS_CONFIG
 * with the place when of another type. */
BS_API int32_t bs_config_i64(const bs_node *root, const char *path, int64_t fallback, int64_t *out,
                             bs_error *err);
BS_API int32_t bs_config_f64(const bs_node *root, const char *path, double fallback, double *out,
                             bs_error *err);
BS_API int32_t bs_config_bool(const bs_node *root, const char *path, int fallback, int *out, bs_error *err);
BS_API int32_t bs_config_str(const bs_node *root, const char *path, const char *fallback, const char **out,
                             bs_error *err);
/* Block-style YAML text that parses back to an equal tree. */
BS_API void bs_config_print(const bs_node *root, bs_text *out);
/* "file:line:col" of a node, "" when unknown. */
BS_API void bs_config_place(const bs_node *node, char *out, size_t size);
#endif
