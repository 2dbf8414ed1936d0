/* SPDX-License-Identifier: MIT
 * plugins_keep.c - `bsrun plugins keep`, `kept` and `drop`: stored builds of plugins, which `bsrun bench
 * sdpa --baseline NAME` compares with. None of them runs a plugin. */
#include <string.h>

#include "bsrun/plugins.h"
#include "lab/config/experiment.h"
#include "lab/json.h"
#include "lab/store/builds.h"

static const args_option keep_options[] = {
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_VERBOSE, NULL, 0},
    ARGS_HELP,
};

static int32_t keep(const args *a, bs_error *err) {
  const char *what = a->words[0];
  bs_context *context = NULL;
  bs_plugin_info info = {0};
  json_t *facts = NULL;
  char id[64];
  bs_plugin_id_of(what, id, sizeof id);
  int32_t rc = plugins_open_context(a, &what, strchr(what, '/') != NULL, &context, err);
  if (rc == BS_OK) rc = plugins_find(context, id, &info, err);
  if (rc == BS_OK) rc = bs_build_keep(BS_BUILDS_ROOT, a->words[1], &info, &facts, err);
  if (rc == BS_OK)
    bs_print(stdout, "%s of plugin %s is kept: %s/%s (SHA-256 %.12s)\n", a->words[1], info.id, BS_BUILDS_ROOT,
             a->words[1], bs_get_text(facts, "sha256"));
  json_decref(facts);
  if (context != NULL) bs_context_close(context);
  return rc;
}

const bsrun_verb plugins_keep = {
    .name = "keep",
    .words = "ID|PATH NAME",
    .summary = "store a copy of a plugin's file, to compare later builds with",
    .about =
        "The copy and its facts (ABI, SHA-256, time) go to results/builds/NAME. The name must be new.\n"
        "`bsrun bench sdpa --baseline NAME` times it in pairs with the installed plugin, in a process of its "
        "own.\n",
    .examples =
        "  bsrun plugins keep cpu before\n"
        "  bsrun bench sdpa mission --provider cpu:online --baseline before\n",
    .options = keep_options,
    .run = keep,
    .min_words = 2,
    .max_words = 2,
    .takes = "plugins",
};

static const args_option kept_options[] = {
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field kept_fields[] = {
    {"name", "NAME", 0, 0},
    {"plugin", "PLUGIN", 0, 0},
    {"version", "VERSION", 0, 0},
    {"abi", "ABI", 0, 0},
    {"bytes", "BYTES", BS_FIELD_RIGHT | BS_FIELD_BYTES, 0},
    {"kept_at", "KEPT AT", 0, 0},
    {"why", "WHY NOT", 0, 0},
    {"sha256", "SHA-256", BS_FIELD_WIDE, 0},
    {"from", "FROM", BS_FIELD_WIDE, 0},
    {"file", "FILE", BS_FIELD_WIDE, 0},
    {"library_build_id", "KEPT BY", BS_FIELD_WIDE, 0},
};

static int32_t kept(const args *a, bs_error *err) {
  json_t *rows = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = bs_builds_list(BS_BUILDS_ROOT, &rows, err);
  if (rc == BS_OK)
    rc = bs_report_print(stdout, format, kept_fields, sizeof kept_fields / sizeof kept_fields[0], rows, err);
  json_decref(rows);
  return rc;
}

const bsrun_verb plugins_kept = {
    .name = "kept",
    .words = "[options]",
    .summary = "the builds that keep has stored",
    .examples = "  bsrun plugins kept --wide\n",
    .options = kept_options,
    .run = kept,
};

static const args_option drop_options[] = {
    ARGS_HELP,
};

static int32_t drop(const args *a, bs_error *err) {
  const int32_t rc = bs_build_drop(BS_BUILDS_ROOT, a->words[0], err);
  if (rc == BS_OK) bs_print(stdout, "%s is dropped\n", a->words[0]);
  return rc;
}

const bsrun_verb plugins_drop = {
    .name = "drop",
    .words = "NAME",
    .summary = "remove a stored build",
    .examples = "  bsrun plugins drop before\n",
    .options = drop_options,
    .run = drop,
    .min_words = 1,
    .max_words = 1,
};
