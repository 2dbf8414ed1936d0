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
    {"axis", 'x', "KEY=VALUES", 1, "what varies: KEY=a,b or KEY=FIRST:LAST*FACTOR or KEY=FIRST:LAST+STEP"},
    {"batch", 0, "FILE", 0, "axes in a file: each line one product of them"},
    {"dry-run", 'n', NULL, 0, "print the points, with what is predicted or why they are refused, and stop"},
    {"id", 0, "NAME", 0, "name of the sweep and of its folder; default: made of the time"},
    {"resume", 0, "NAME", 0, "go on with a sweep: run the points of its plan that are not done"},
    {"any-build", 0, NULL, 0, "with --resume: runs of another build of the library or a plugin count"},
    {"trust-config", 0, NULL, 0, "with --resume: also run code and commands that another's plan names"},
    {"deadline", 0, "SECONDS", 0, "of one point; default: 3600"},
    {"budget", 0, "SECONDS", 0, "of the whole; what is left then is for --resume"},
    {"jobs", 0, "N", 0, "points at once; those that measure time run alone; default: 1"},
    {"keep-going", 0, NULL, 0, "run the rest when a point fails (the default)"},
    {"fail-fast", 0, NULL, 0, "stop at the first point that fails"},
    {"plugin", 0, "ID|PATH", 1,
     "use this plugin (its backend, if it has one); a value with a slash is a file"},
    {"method", 0, "M", 0, "how the layer is split"},
    {"world-size", 'P', "N", 0, "number of ranks; default: the method's own"},
    {"backend", 0, "NAME", 0, "backend; default: cpu"},
    {"comm", 0, "NAME", 0, "communicator; default: threads"},
    {"launch", 0, "HOW", 0, "ranks are threads (default), processes, or mpi: one mpirun a point"},
    {"phase", 0, "NAME", 0, "numbers (0), time (1), backward (2), train (3); default: numbers, then time"},
    {"mask", 0, "NAME", 0, "which columns a rank keeps"},
    {"b", 0, "N", 0, "tokens B; default: 64"},
    {"n", 0, "N", 0, "output features N; default: 4096"},
    {"k", 0, "N", 0, "input features K; default: N"},
    {"dtype", 0, "T", 0, "dtype of the model: bf16 (default), f16, f32, f64, ..."},
    {"bias", 0, "on|off", 0, "a random bias; default: on"},
    {"workload", 0, "NAME", 0, "gaussian, uniform, fixed_seed, file, ..."},
    {"hardware", 0, "NAME", 0, "cpu, or a YAML file"},
    {"sweep", 0, "NAME", 0, "an axis from a file: N_sweep, batch_sweep, or a YAML file"},
    {"config", 0, "FILE", 1, "merge a YAML file over the base"},
    {"set", 0, "KEY=VALUE", 1, "set one key of all points (bsrun config keys lists them)"},
    {"threads-per-rank", 0, "N", 0, "threads of one rank; default: cores / ranks"},
    {"timeout", 0, "SECONDS", 0, "deadline of every wait between ranks"},
    {"out", 0, "DIR", 0, "root of the sweeps' folders (default results/raw)"},
    {"cache", 0, "FILE|off", 0, "stored machine constants; default: the user's cache folder"},
    {"tune-cache", 0, "FILE|off", 0, "measured choices of implementations; default: the user's cache folder"},
    ARGS_TABLE,
    {"quiet", 'q', NULL, 0, "no notes and no progress on stderr"},
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
  int32_t rc = args_values(a, "axis", &texts, &n, err);
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
