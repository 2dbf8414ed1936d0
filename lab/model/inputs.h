/* SPDX-License-Identifier: MIT
 * inputs.h - the inputs of a model's run, one rule for all commands (docs/models.md, "Inputs"): the user's
 * files; without one, made numbers inside the domain of the input, and made sizes where nothing gives one. */
#ifndef BS_LAB_MODEL_INPUTS_H
#define BS_LAB_MODEL_INPUTS_H
#include "lab/model/model.h"

/* The allowed values of an input. */
typedef struct bs_model_domain {
  const char *name; /* of the port */
  int picks;        /* it picks rows of a table */
  int moves;        /* the table is not a constant: its rows may change with the shapes */
  int64_t below;    /* of the table's rows, ids are from -below to below - 1; 0: not known */
  int is_mask;      /* 0 and 1 */
} bs_model_domain;

/* Gives every dimension a size before the session opens. Those without one get `batch` if their name has
 * "batch", else `others`, and at most what leaves one token of a key-value cache free. Sends request->note
 * the sizes that it made. */
int32_t bs_model_size_dims(const bs_model_request *request, bs_model *model, int64_t batch, int64_t others,
                           bs_error *err);
/* 1: an input has no file, so its numbers are made. */
int bs_model_makes_inputs(const bs_model *model);
/* Fills model->domains from the lowered graph of its session. Sends request->note the inputs that will be
 * made. */
int32_t bs_model_find_domains(const bs_model_request *request, bs_model *model, bs_error *err);
/* BS_INPUT: the element of a file that is outside of its input's domain. */
int32_t bs_model_check_domains(const bs_model *model, bs_error *err);
/* Sets each input of a session: its file, else made numbers of its domain. any_size: a file that does not fit
 * the bound shape is left out. memory: of each input, what was made; the caller frees it. */
int32_t bs_model_fill(const bs_model *model, bs_session *session, int any_size, void **memory, bs_error *err);
/* Sets each input of the model's started session; `model` keeps what was made. */
int32_t bs_model_set_inputs(const bs_model_request *request, bs_model *model, bs_error *err);
void bs_model_free_made(bs_model *model);
/* The error of a run that failed: where the index of a node was outside of its table, BS_INPUT with the
 * input's element that is. Else rc, and *err as it was. */
int32_t bs_model_blame_input(const bs_model_request *request, bs_model *model, int32_t rc, bs_error *err);
#endif
