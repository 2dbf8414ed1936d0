/* SPDX-License-Identifier: MIT
 * builds.h - stored builds of plugins, which `bsrun bench` compares with: <root>/NAME/ holds a copy of the
 * plugin's file, and build.json: {name, plugin, version, abi, file, sha256, bytes, from, kept_at,
 * library_build_id}. A build is never changed; another one needs another name. */
#ifndef BS_LAB_STORE_BUILDS_H
#define BS_LAB_STORE_BUILDS_H
#include <jansson.h>

#include "blockshock/blockshock.h"

#define BS_BUILDS_ROOT "results/builds"

/* Copies the plugin's file to <root>/<name>, which is made with its parents. *out_facts is what build.json
 * has, for the caller to release. BS_USAGE: a bad name, a name that is taken, or a plugin that is part of the
 * library and has no file. BS_IO. */
int32_t bs_build_keep(const char *root, const char *name, const bs_plugin_info *plugin, json_t **out_facts,
                      bs_error *err);
/* Finds a build, and checks its file against its sum. *out_file: the file's absolute path without links. The
 * caller frees both. BS_NOT_FOUND with the nearest name; BS_CORRUPT: the file is another one. */
int32_t bs_build_find(const char *root, const char *name, char **out_file, json_t **out_facts, bs_error *err);
/* The facts of all builds, by name; of one that cannot be read {name, why}. A root that does not exist has
 * none. The caller releases them. */
int32_t bs_builds_list(const char *root, json_t **out_rows, bs_error *err);
/* Removes a build, whole or damaged. BS_NOT_FOUND; BS_USAGE: its folder has further files, and nothing is
 * removed; BS_IO. */
int32_t bs_build_drop(const char *root, const char *name, bs_error *err);
#endif
