/* SPDX-License-Identifier: MIT
 * plugins.h - the parts of the plugins verb: list (plugins.c), inspect (inspect.c), why (plugins_why.c),
 * knobs (plugins_knobs.c), new (plugins_new.c), check (plugins_check.c), stored builds (plugins_keep.c), and
 * opening a plugin in a child process (probe.c). */
#ifndef BSRUN_PLUGINS_H
#define BSRUN_PLUGINS_H
#include "bsrun/bsrun.h"

extern const bsrun_verb plugins_inspect, plugins_knobs, plugins_why, plugins_new, plugins_check, plugins_keep,
    plugins_kept, plugins_drop;
/* The usable plugin of an id; a refused one gives its reason. */
int32_t plugins_find(const bs_context *context, const char *id, bs_plugin_info *out, bs_error *err);
/* The configuration of a plugins verb: base.yaml of configs_dir (NULL: none), the plugins of `extra` (without
 * any, of --plugin), --config, --set. The caller frees. */
int32_t plugins_compose(const args *a, const char *configs_dir, const char *const *extra, size_t n_extra,
                        bs_node **out_config, bs_error *err);
/* The grade of a plugin's file; NULL: it has none, cannot be read, or is part of the library. */
const json_t *plugins_grade(const bs_grades *grades, const bs_plugin_info *info);
/* "conformant (quick)", "NOT conformant (full)", "not graded"; of what is part of the library "built in". */
void plugins_grade_text(const json_t *grade, int builtin, char *out, size_t size);
/* The kinds that `plugins new` makes. */
extern const char *const plugins_new_kinds[];
extern const size_t plugins_n_new_kinds;
/* The context of a plugins verb: the plugins of `extra` (without any, of --plugin), --config and --set. */
int32_t plugins_open_context(const args *a, const char *const *extra, size_t n_extra, bs_context **out,
                             bs_error *err);
/* The context of --plugin, --config and --set, and of `setting`, a further "path=value" of --set. */
int32_t plugins_open_context_set(const args *a, const char *setting, bs_context **out, bs_error *err);
/* Open, activate and close plugin `id` in a forked child with a deadline: BS_OK, or why not. This process
 * opens nothing. */
int32_t plugins_probe(bs_context *context, const char *id, bs_error *err);
/* Does the same. The child also reads the texts of all things that the plugin registers, and asks its
 * backends for their devices: a backend without a device is not usable. */
int32_t plugins_probe_devices(bs_context *context, const char *id, bs_error *err);
/* Does the same. In the child `look` reads the things that the plugin registers while it is active; its rows
 * (all texts) are added to `rows` here. */
typedef int32_t (*plugins_look_fn)(bs_context *context, const char *id, json_t *rows, bs_error *err);
int32_t plugins_look(bs_context *context, const char *id, plugins_look_fn look, json_t *rows, bs_error *err);
/* 1 when the plugin's note says "needs:LIBRARY[=PARAMETER]", no library of that name can be opened (in a
 * child), and the parameter, which may name another, is not set; its name in out_library. */
int plugins_lacks(const bs_node *config, const bs_plugin_info *info, char *out_library, size_t size);
/* The names of enum bs_kind, as in notes. */
extern const char *const plugins_kind_names[];
/* The path of a source file from the folder plugins/ on, without the folder that it was built in. */
const char *plugins_source(const char *file);
/* "backend,op" of a bit set. */
void plugins_kinds_text(uint32_t kinds, char *out, size_t size);
/* The first of the shared libraries that a child process could load; NULL: none. */
const char *plugins_probe_library(const char *const *names, size_t n);
/* Does a note's list of things have kind:name (an alias counts)? */
int plugins_offers(const char *things, const char *kind, const char *name);
/* Adds the names of a kind that the plugin's note lists to `names` (strings), each once. A built-in has no
 * note: it is opened, which runs nothing but the library itself. */
/* Is it one of the plugins that tests use? No verb offers those. */
int plugins_is_for_tests(const bs_plugin_info *info);
void plugins_add_names(json_t *names, bs_context *context, const bs_plugin_info *info, uint32_t kind);
#endif
