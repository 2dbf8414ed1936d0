/* SPDX-License-Identifier: MIT
 * schema.h - every configuration key there is: name, type, default, range, effect, one line of text. The
 * table of docs/config.md and `bsrun config keys` are printed from it. */
#ifndef BS_LAB_CONFIG_SCHEMA_H
#define BS_LAB_CONFIG_SCHEMA_H
#include "lab/config/notes.h"
#include "lab/error.h"
#include "lab/yaml/config.h"

enum bs_key_type {
  BS_KEY_STR = 1,
  BS_KEY_INT = 2,
  BS_KEY_FLOAT = 3,
  BS_KEY_BOOL = 4,
  BS_KEY_STRS = 5,    /* list of strings */
  BS_KEY_PATTERN = 6, /* string, or list of 0 and 1 */
  BS_KEY_NUMBERS = 7, /* list of numbers */
  BS_KEY_DTYPE = 8,
  BS_KEY_ACTIVATION = 9
};
/* ACTIVE changes a run; LABEL is only copied to the record; DECORATIVE is from older files and has no effect;
 * bsrun itself writes WRITTEN; OLDER changes a run, and has a newer name (docs/dev/original.md). */
enum bs_key_effect {
  BS_EFFECT_ACTIVE = 1,
  BS_EFFECT_LABEL = 2,
  BS_EFFECT_DECORATIVE = 3,
  BS_EFFECT_WRITTEN = 4,
  BS_EFFECT_OLDER = 5
};

typedef struct bs_key {
  const char *path; /* "phase.warmup_iters" */
  uint32_t type;
  uint32_t effect;
  const char *default_text; /* "": none */
  /* "min..max" for numbers, "a|b|c" for strings; after "||" older spellings, "old=new". NULL: any. */
  const char *range;
  const char *doc;
} bs_key;

const bs_key *bs_schema_keys(size_t *out_count);
const bs_key *bs_schema_find(const char *path);
/* Does the key change a layer, beside others in the same process? hardware.device is of the whole process. */
int bs_key_varies(const bs_key *key);
const char *bs_key_type_name(uint32_t type);
const char *bs_key_effect_name(uint32_t effect);
/* The values of a key as text, "none|relu|gelu"; "": any. */
void bs_key_range(const bs_key *key, char *out, size_t size);

/* Checks a merged tree: unknown keys (BS-CFG-KEY, with the nearest), keys with a dot (BS-CFG-FLAT), types
 * (BS-CFG-TYPE), ranges (BS-CFG-RANGE). Keys below workload, method and plugins that the table lacks are left
 * for bs_options_collect, which knows the chosen plugins. One note names all decorative keys, except those
 * from files below quiet_dir (NULL: none), which the user did not type. */
int32_t bs_schema_check(const bs_node *root, const char *quiet_dir, bs_notes *notes, bs_error *err);
/* Writes each value of a checked tree in one spelling, so that equal requests are equal texts: "fp16" as f16,
 * "1e-2" as 0.01, "yes" as true, [1,1,0,0] of a pattern as 1100, an older name of a method or workload as the
 * plugin's name for it. The place where a value was written is kept. context: knows the older names; NULL:
 * those stay. notes (NULL: none) get a line for each older name of a method or of a value. */
int32_t bs_schema_canonical(bs_context *context, bs_node *root, bs_notes *notes, bs_error *err);
/* The part of it for phase.name and mask.* of any tree, checked or not: "time" as phase1_forward, 1100/0011
 * and patterns as complement_1100_0011. */
int32_t bs_config_full_names(bs_node *root, bs_error *err);
/* Takes the decorative keys out of a checked tree. */
void bs_schema_drop_idle(bs_node *root);

/* The node as a schema key's value or the key's default: whole-tree reads used after a check. */
int64_t bs_schema_i64(const bs_node *root, const char *path);
double bs_schema_f64(const bs_node *root, const char *path);
int bs_schema_bool(const bs_node *root, const char *path);
const char *bs_schema_str(const bs_node *root, const char *path); /* NULL when absent without default */

/* Was the node read from a file, rather than given on the command line? */
int bs_node_from_file(const bs_node *node);
/* "file:line:col", or the option that gave the node. */
void bs_schema_where(const bs_node *node, bs_error *err);
/* Refuses a node's value, or a missing one (NULL): BS_CONFIG with printf text and the place where it was
 * written. */
#define bs_schema_refuse(node, err, id, ...) \
  (bs_error_set((err), BS_CONFIG, (id), __VA_ARGS__), bs_schema_where((node), (err)), (int32_t)BS_CONFIG)

/* The error for an unknown key at `node`: names the nearest of the schema and of option_docs (may be NULL).
 */
int32_t bs_schema_unknown(const bs_node *node, const char *path, const char *option_docs, bs_error *err);
#endif
