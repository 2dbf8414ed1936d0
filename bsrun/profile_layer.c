/* SPDX-License-Identifier: MIT
 * profile_layer.c - `bsrun profile layer`: where one forward of a layer goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/opening.h"
#include "bsrun/profile.h"
#include "core/base/error.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"

static const args_option options[] = {
    PROFILE_OPTIONS,
    {OPT_METHOD, NULL, 0},
    {OPT_MASK, NULL, 0},
    {OPT_WORLD_SIZE, "default: the method's own", 0},
    {OPT_THREADS, "default: cores / ranks", 0},
    ARGS_SHAPE,
    {OPT_SEED, "default: 725", 0},
    {OPT_WARMUP, "default: 10", 0},
    {OPT_SAMPLES, "forwards that are timed, of which medians are told; default: 100", 0},
    {OPT_BACKEND, "default: cpu", 0},
    {OPT_COMM, "default: threads", 0},
    {OPT_WORKLOAD, NULL, 0},
    {OPT_HARDWARE, NULL, 0},
    {OPT_OUT, NULL, 0},
    {OPT_RUN_ID, NULL, 0},
    {OPT_CACHE, NULL, 0},
    {OPT_TUNE_CACHE, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    PROFILE_OPTIONS_END,
};

/* The experiment and its plugins, as run makes them. */
typedef struct opened {
  bsrun_request request;
  bs_context *context;
  bs_experiment e;
  int made; /* e is */
  json_t *constants;
  char *cache, *tune;
} opened;

static int32_t open_layer(const args *a, opened *o, bs_error *err) {
  const int quiet = args_has(a, "quiet");
  int32_t rc = bsrun_cache_path(a, &o->cache, err);
  if (rc == BS_OK) rc = bsrun_tune_path(a, &o->tune, err);
  if (rc == BS_OK) rc = bsrun_request_make(a, &o->request, err);
  if (rc == BS_OK) rc = bsrun_open_experiment(&o->request, BS_LOG_WARN, quiet, &o->context, &o->e, err);
  o->made = rc == BS_OK;
  if (rc == BS_OK) o->e.machine_constants = o->constants = bsrun_constants(o->cache, quiet);
  return rc;
}

static void close_layer(opened *o) {
  if (o->made) bs_experiment_free(&o->e);
  json_decref(o->constants);
  free(o->cache);
  free(o->tune);
  fflush(stdout); /* a plugin that is closed may end the process */
  bsrun_close_context(o->context);
  bsrun_request_free(&o->request);
}

/* A world that many processes have would need each of them here. */
static int32_t run(const args *a, bs_error *err) {
  opened o = {0};
  bs_profile_options how = {0};
  bs_node *config = NULL;
  json_t *record = NULL;
  bsrun_progress progress = {.of = "profile", .busy = ATOMIC_FLAG_INIT};
  bsrun_interruptible("nothing is timed yet, and nothing is kept; the same command profiles again");
  int32_t rc = profile_options(a, &how, err);
  how.progress = bsrun_progress_to(args_has(a, "quiet"));
  how.user = &progress;
  if (rc == BS_OK) rc = open_layer(a, &o, err);
  if (rc == BS_OK) rc = bs_experiment_settle(&o.e, o.e.world_size, &config, err);
  if (rc == BS_OK) rc = bs_profile_layer(o.context, &o.e, o.tune, &how, &record, err);
  bsrun_progress_end(&progress);
  const profile_kept kept = {
      .context = o.context, .config = config, .phase = "profile_layer", .name = o.e.method};
  if (rc == BS_OK) rc = profile_finish(a, record, &kept, err);
  json_decref(record);
  bs_config_free(config);
  close_layer(&o);
  return rc;
}

const bsrun_verb profile_layer = {
    .name = "layer",
    .words = "[options]",
    .summary = "one forward of a layer: products, copies and collectives by rank",
    .about =
        "A layer is chosen as by `bsrun run`. Its implementations are those that the tuning file names;\n"
        "nothing is tuned.\n",
    .examples = "  bsrun profile layer --method row_parallel -P 2 --n 1024\n",
    .options = options,
    .run = run,
};
