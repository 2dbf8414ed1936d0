/* SPDX-License-Identifier: MIT
 * compare_run.c - see compare_run.h. */
#include "bsrun/compare_run.h"
#include "bsrun/opening.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"

/* The work of a phase: train takes the steps of phase.optimizer. Numbers are no work of an arm. */
static int32_t work_of(const char *name, const bs_node *config, uint32_t *out, bs_error *err) {
  static const uint32_t works[BS_PHASE_NAMES] = {BS_ARM_WORKS_, BS_ARM_FORWARD, BS_ARM_BACKWARD, BS_ARM_SGD};
  for (uint32_t i = 1; i < BS_PHASE_NAMES; i++) {
    if (strcmp(bs_full_name("phase.name", name), bs_phase_full_names[i]) != 0) continue;
    *out = works[i];
    if (i == 3 && strcmp(bs_schema_str(config, "phase.optimizer"), "adamw") == 0) *out = BS_ARM_ADAMW;
    return BS_OK;
  }
  return bsrun_unknown("phase that is timed", name, bs_phase_words + 1, BS_PHASE_NAMES - 1, err);
}

static int32_t read_passes(const args *a, compare_run *r, bs_error *err) {
  const char **names = NULL;
  size_t n = 0;
  int32_t rc = args_list(a, "phase", &names, &n, err);
  r->n_passes = 1; /* forward */
  if (rc == BS_OK && n > BS_PHASE_NAMES - 1)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--phase: a phase is named twice");
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = work_of(names[i], r->config, &r->passes[i], err);
  if (n > 0) r->n_passes = n;
  free(names);
  return rc;
}

/* The composed tree and its plugins, as run and explain make them. */
static int32_t open_config(const args *a, compare_run *r, bs_error *err) {
  static const char *const own[] = {"phase", NULL}; /* the verb's, as its words are */
  args options;
  int32_t rc = args_without(a, own, &options, err);
  if (rc == BS_OK) rc = bsrun_request_make(&options, &r->request, err);
  free(options.given);
  if (rc != BS_OK) return rc;
  return bsrun_open_tree(&r->request, args_has(a, "verbose") ? BS_LOG_DEBUG : BS_LOG_WARN, &r->run.context,
                         &r->config, err);
}

int32_t compare_run_open(const args *a, double seconds, compare_run *r, bs_error *err) {
  int64_t pairs = 0; /* of --samples, which is a key of the configuration */
  int32_t rc = args_real(a, "seconds", 0.01, 86400, seconds, &r->seconds, err);
  if (rc == BS_OK) rc = args_integer(a, "samples", 20, 100000, 0, &pairs, err);
  if (rc == BS_OK) rc = bsrun_cache_path(a, &r->cache, err);
  if (rc == BS_OK) rc = open_config(a, r, err);
  if (rc == BS_OK) rc = read_passes(a, r, err);
  if (rc != BS_OK) return rc;
  r->host.quiet = args_has(a, "quiet");
  r->host.cache = r->cache;
  run_host_open(&r->host);
  r->command = bsrun_command_line();
  r->run.host = &r->host.table;
  r->run.run_id = args_value(a, "run-id");
  r->run.command = r->command;
  r->run.configs_dir = r->request.configs_dir;
  bsrun_grades(r->host.quiet, &r->run.grades);
  return BS_OK;
}

int32_t compare_run_measure(compare_run *r, int64_t most, const bs_ladder_options *o, bs_error *err) {
  bsrun_interruptible("nothing is kept: the same command measures again; --seconds S takes less time");
  lab_ladder_request q = {.passes = r->passes, .n_passes = r->n_passes, .most = most, .options = *o};
  q.options.seconds = r->seconds;
  return lab_run_ladders(&r->run, r->config, &q, r->host.ladders, &r->folder, err);
}

void compare_run_print_folder(const compare_run *r, int format) {
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD;
  if (r->folder != NULL && readable)
    bs_print(stdout, "\n%srun: %s\n", format == BS_FORMAT_MD ? "- " : "", r->folder);
}

void compare_run_free(compare_run *r) {
  lab_run_close(&r->run);
  free(r->cache);
  free(r->command);
  free(r->folder);
  bs_config_free(r->config);
  fflush(stdout); /* a plugin that is closed may end the process */
  bsrun_close_context(r->run.context);
  run_host_close(&r->host);
  bsrun_request_free(&r->request);
  bsrun_log_free();
}
