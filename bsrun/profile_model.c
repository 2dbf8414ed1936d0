/* SPDX-License-Identifier: MIT
 * profile_model.c - `bsrun profile model`: where a run of a model goes, node by node. */
#include <stdio.h>
#include <stdlib.h>

#include "bsrun/model.h"
#include "bsrun/profile.h"
#include "core/base/error.h"

static const args_option options[] = {
    PROFILE_OPTIONS,
    {OPT_INPUT, NULL, 0},
    MODEL_OPTION_DIM,
    MODEL_OPTION_CONSTANT,
    {OPT_SECONDS, "of each row; default: 1", 0},
    MODEL_OPTION_BACKEND,
    MODEL_OPTION_THREADS,
    MODEL_OPTIONS_RANKS,
    MODEL_OPTION_PASS,
    MODEL_OPTION_TOKENS,
    MODEL_OPTIONS_KEEP,
    MODEL_OPTIONS_PLUGINS,
    PROFILE_OPTIONS_END,
};

static int32_t make_config(const bs_model_request *r, bs_node **out, bs_error *err) {
  char *real = realpath(r->path, NULL);
  *out = bs_config_new_map();
  int32_t rc = *out != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK) rc = bs_config_set_text(*out, "model.path", real != NULL ? real : r->path, err);
  if (rc == BS_OK)
    rc = bs_config_set_text(*out, "model.backend", r->backend != NULL ? r->backend : "cpu", err);
  free(real);
  return rc;
}

static int32_t run(const args *a, bs_error *err) {
  model_asked asked = {0};
  bs_profile_options how = {0};
  bs_node *config = NULL;
  json_t *record = NULL;
  bsrun_interruptible("nothing is timed yet, and nothing is kept; the same command profiles again");
  int32_t rc = profile_options(a, &how, err);
  if (rc == BS_OK) rc = model_ranks_threads_only(a, err);
  if (rc == BS_OK) rc = model_asked_make(a, &asked, err);
  how.progress = asked.request.progress;
  how.user = asked.request.progress_user;
  if (rc == BS_OK) rc = make_config(&asked.request, &config, err);
  if (rc == BS_OK) rc = bs_profile_model(asked.context, &asked.request, &asked.model, &how, &record, err);
  model_progress_end(&asked);
  const profile_kept kept = {
      .context = asked.context, .config = config, .phase = "profile_model", .name = a->words[0]};
  if (rc == BS_OK) rc = profile_finish(a, record, &kept, err);
  json_decref(record);
  bs_config_free(config);
  model_asked_free(&asked);
  return rc;
}

const bsrun_verb profile_model = {
    .name = "model",
    .words = "MODEL [options]",
    .summary = "one run of a model: the time of each node, the slowest first",
    .about =
        "The counters are of opening, planning and all runs together: only their quotients are printed.\n",
    .examples = "  bsrun profile model model.onnx --input ids=ids.npy --out off\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
