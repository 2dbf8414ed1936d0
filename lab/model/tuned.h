/* SPDX-License-Identifier: MIT
 * tuned.h - the choices of the tuning file (docs/tuning.md) for the products of a model. A session requests
 * many products, and their candidates are only known when it is open. So it is opened with all choices of the
 * file that may apply, and those that turn out to have other candidates are removed. */
#ifndef BS_LAB_MODEL_TUNED_H
#define BS_LAB_MODEL_TUNED_H
#include "lab/model/model.h"
#include "lab/tune/cache.h"

typedef struct bs_model_tuned {
  bs_tune_cache cache;
  json_t *plugins; /* those that are open */
  const char *
      *words; /* "KEY -> PLUGIN:NAME{KNOBS}": the request's own, then `n` of the file, which are owned */
  size_t n_own, n;
} bs_model_tuned;

/* The choices of request->tuning for its backend and threads, without those that request->choices decides. An
 * unreadable file gives no choices, with a note. Close it in any case. */
int32_t bs_model_tuned_open(bs_context *context, const bs_model_request *request, bs_model_tuned *out,
                            bs_error *err);
/* Removes the file's choices that are invalid for a session that was opened with them: *out_taken is their
 * number. Valid and used ones become model->tuned. */
int32_t bs_model_tuned_check(bs_model_tuned *tuned, const bs_model_request *request, bs_context *context,
                             bs_model *model, size_t *out_taken, bs_error *err);
/* Takes out all of the file's. */
void bs_model_tuned_drop(bs_model_tuned *tuned);
void bs_model_tuned_close(bs_model_tuned *tuned);
#endif
