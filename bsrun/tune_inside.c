/* SPDX-License-Identifier: MIT
 * tune_inside.c - `bsrun tune PROBLEM --device D`: the search of lab/choose over points that are simulated
 * inside of a device (lab/sim). It reads no tuning file and writes none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/tune.h"
#include "core/base/error.h"
#include "lab/config/compose.h"
#include "lab/config/device_file.h"
#include "lab/sim/inside_tune.h"
#include "lab/stop.h"

static int32_t check_options(const args *a, bs_error *err) {
  static const char *const taken[] = {"device", "strategy",  "samples", "seconds", "knob",  "where", "start",
                                      "seed",   "survivors", "output",  "wide",    "quiet", "help"};
  const char *strategy = args_value(a, "strategy");
  if (strategy != NULL && strcmp(strategy, "point") == 0) {
    bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "--strategy point: --device searches");
    bs_error_hint(err, "bsrun sim explain --inside OP --device D --knob 'tm=64;tn=64' simulates one point");
    return BS_USAGE;
  }
  return tune_check_options(a, taken, sizeof taken / sizeof taken[0], "a simulation (--device)",
                            "nothing is measured or kept; it takes --strategy, --samples, --seconds, --knob, "
                            "--where, --start, --seed, --with survivors=K",
                            err);
}

static int32_t search(tune_verb *v, const sim_device *device, const char *problem, json_t **out,
                      bs_error *err) {
  const bs_race_options *o = &v->race;
  const char **values = calloc(o->n_knobs + 1, sizeof *values);
  if (values == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; i < o->n_knobs; i++) values[i] = o->knobs[i].values;
  const bs_inside_tune tune = {.op = problem,
                               .names = (const char *const *)v->names,
                               .values = values,
                               .n_knobs = o->n_knobs,
                               .where = v->where.data,
                               .start = args_value(v->a, "start"),
                               .strategy = o->strategy,
                               .survivors = o->survivors,
                               .seed = o->seed,
                               .points = o->points,
                               .seconds = o->seconds,
                               .user = v,
                               .progress = tune_on_progress};
  const int32_t rc = bs_inside_tune_run(device, &tune, out, err);
  free(values);
  return rc;
}

static int32_t print(tune_verb *v, const json_t *report, int32_t rc, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  if (v->shown) fputs("\r\033[K", stderr);
  if (report == NULL) return rc;
  const int32_t printed = tune_print_inside(v->format, report, &why);
  if (rc != BS_OK || printed == BS_OK) return rc;
  *err = why;
  return printed;
}

int tune_inside(tune_verb *v, bs_error *err) {
  bs_device_file file = {0};
  bs_text problem = {0};
  json_t *report = NULL;
  char *dir = NULL;
  int32_t rc = check_options(v->a, err);
  bsrun_interruptible("nothing is kept; the same command simulates again");
  if (rc == BS_OK) rc = tune_read_words(v->a, &problem, err);
  if (rc == BS_OK) rc = tune_read_search(v, err);
  if (rc == BS_OK) rc = bs_configs_dir(&dir, err);
  if (rc == BS_OK) rc = bs_device_open(dir, args_value(v->a, "device"), &file, err);
  if (rc == BS_OK) rc = search(v, &file.device, problem.data, &report, err);
  bs_device_place_error(&file, rc, err);
  rc = print(v, report, rc, err);
  json_decref(report);
  bs_device_close(&file);
  bs_text_free(&problem);
  free(dir);
  const int number = bs_stop_asked();
  if (number != 0) {
    bsrun_note(v->quiet, "stopped by a signal; nothing is kept");
    return 128 + number;
  }
  return rc == BS_OK ? 0 : bsrun_fail(err);
}
