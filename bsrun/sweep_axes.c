/* SPDX-License-Identifier: MIT
 * sweep_axes.c - the options of the sweep verb, its help, and what is varied: axes of the command line, of a
 * batch file, and of the configuration. */
#include <stdio.h>
#include <stdlib.h>

#include "bsrun/sweep.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/sweep/axis.h"

const args_option sweep_options[] = {
    {OPT_VARY, NULL, 0},
    {OPT_BATCH, NULL, 0},
    {OPT_DRY_RUN, "the points, with what is predicted or why they are refused", 0},
    {OPT_RUN_ID, NULL, 0},
    {OPT_RESUME, NULL, 0},
    {OPT_FORCE, "with --resume: runs of another build of the library or a plugin count", 0},
    {OPT_TRUST_CONFIG, "with --resume", 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_POINT_TIMEOUT, NULL, 0},
    {OPT_SECONDS, "of the whole sweep; --resume runs what is left", 0},
    {OPT_JOBS, "those that measure time run alone; default: 1", 0},
    {OPT_FAIL_FAST, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_METHOD, NULL, 0},
    {OPT_WORLD_SIZE, "default: the method's own", 0},
    {OPT_BACKEND, "default: cpu", 0},
    {OPT_COMM, "default: threads", 0},
    {OPT_LAUNCH, NULL, 0},
    {OPT_PHASE, "default: numbers, then time", 0},
    {OPT_MASK, NULL, 0},
    ARGS_SHAPE,
    {OPT_WORKLOAD, NULL, 0},
    {OPT_HARDWARE, NULL, 0},
    {OPT_SWEEP, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_THREADS, "default: cores / ranks", 0},
    {OPT_TIMEOUT, "of every wait between ranks", 0},
    {OPT_SAMPLES, "timed forwards of phase numbers, steps of phase train; default: 100", 0},
    {OPT_WARMUP, "default: 10", 0},
    {OPT_SEED, "default: 725", 0},
    {OPT_OUT, NULL, ARGS_STORE},
    {OPT_CACHE, NULL, 0},
    {OPT_TUNE_CACHE, NULL, 0},
    ARGS_TABLE,
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

/* sweep.param and sweep.values, as the files of configs/sweeps have them: one more axis. */
static int32_t axis_of_config(const bs_node *config, json_t *axes, bs_error *err) {
  const char *param = bs_schema_str(config, "sweep.param");
  const bs_node *values = bs_config_find(config, "sweep.values");
  if (param == NULL && (values == NULL || values->kind == BS_NODE_NULL)) return BS_OK;
  if (param == NULL || values == NULL || values->kind != BS_NODE_LIST || values->first == NULL)
    return bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "a sweep needs sweep.param and a list sweep.values");
  bs_text text = {0};
  bs_text_printf(&text, "%s=", param);
  for (const bs_node *item = values->first; item != NULL; item = item->next)
    bs_text_printf(&text, "%s%s", item == values->first ? "" : ",",
                   item->kind == BS_NODE_SCALAR ? item->text : "");
  json_t *axis = NULL;
  int32_t rc = text.failed ? bs_out_of_memory(err) : bs_axis_parse(text.data, &axis, err);
  bs_text_free(&text);
  if (rc == BS_OK && json_array_append_new(axes, axis) != 0) rc = bs_out_of_memory(err);
  return rc == BS_USAGE ? BS_CONFIG : rc;
}

static int32_t typed_axes(const args *a, json_t *axes, bs_error *err) {
  const char **texts = NULL;
  size_t n = 0;
  int32_t rc = args_values(a, "vary", &texts, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    json_t *axis = NULL;
    rc = bs_axis_parse(texts[i], &axis, err);
    if (rc == BS_OK && json_array_append_new(axes, axis) != 0) rc = bs_out_of_memory(err);
  }
  free(texts);
  return rc;
}

/* Each line of the batch file times the axes of the command line. */
static int32_t multiply(const char *batch, const json_t *axes, json_t *settings, bs_error *err) {
  size_t i;
  json_t *line, *lines = json_array();
  int32_t rc = lines == NULL   ? bs_out_of_memory(err)
               : batch == NULL ? BS_OK
                               : bs_axes_batch(batch, lines, err);
  if (rc == BS_OK && batch == NULL) rc = bs_axes_multiply(axes, settings, err);
  json_array_foreach(lines, i, line) {
    if (rc == BS_OK && json_array_extend(line, (json_t *)(uintptr_t)axes) != 0) rc = bs_out_of_memory(err);
    if (rc == BS_OK) rc = bs_axes_multiply(line, settings, err);
  }
  json_decref(lines);
  return rc;
}

int32_t sweep_settings(const args *a, const bs_node *base, json_t *settings, bs_error *err) {
  json_t *axes = json_array();
  const char *batch = args_value(a, "batch");
  int32_t rc = axes == NULL ? bs_out_of_memory(err) : axis_of_config(base, axes, err);
  if (rc == BS_OK) rc = typed_axes(a, axes, err);
  if (rc == BS_OK && batch == NULL && json_array_size(axes) == 0) {
    rc = bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "nothing varies");
    bs_error_hint(err, "for example bsrun sweep -x N=512:4096*2 -x method=dense,blockshock");
  }
  if (rc == BS_OK) rc = multiply(batch, axes, settings, err);
  json_decref(axes);
  return rc;
}
