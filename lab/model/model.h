/* SPDX-License-Identifier: MIT
 * model.h - what `bsrun model` does with a model, apart from printing: reads it with what the command line
 * says of it, opens a session, runs it on .npy files. */
#ifndef BS_LAB_MODEL_MODEL_H
#define BS_LAB_MODEL_MODEL_H
#include <jansson.h>

#include "blockshock/graph.h"
#include "formats/npy.h"

/* Words of the command line, each "NAME=...". They and the texts outlive the model. */
typedef struct bs_model_words {
  const char *const *words;
  size_t n;
} bs_model_words;

typedef struct bs_model_request {
  const char *path;
  const char *backend;      /* NULL: cpu */
  bs_model_words dims;      /* NAME=N */
  bs_model_words inputs;    /* NAME=FILE.npy */
  bs_model_words constants; /* NAME=FILE.npy: inputs that become constants */
  bs_model_words passes;    /* NAME=off or NAME=on; "all=off" */
  int64_t cache_tokens;     /* of a folder with config.json; 0: what that says */
  uint32_t threads;         /* 0: all cores */
  uint32_t profile;
} bs_model_request;

/* A model with what was read for it. */
typedef struct bs_model {
  bs_graph *graph;
  bs_session *session;
  const char **names; /* of inputs; n_inputs */
  bs_npy *files;      /* of inputs; n_inputs */
  size_t n_inputs;
  bs_dim *dims; /* n_dims: of --dim, then of the inputs' shapes */
  const bs_dim **dim_pointers;
  size_t n_dims;
  char **texts; /* the names of dims that were cut out of words */
  size_t n_texts;
  const char **passes_off;
  size_t n_passes_off;
} bs_model;

/* Opens the graph, makes the constants, reads the inputs' files and the sizes of dimensions: those of --dim,
 * and those that the inputs' shapes say. BS_USAGE: a word that is not of that form, an unknown name (with the
 * nearest). BS_INPUT: a file. The caller closes in every case. */
int32_t bs_model_open(bs_context *context, const bs_model_request *request, bs_model *out, bs_error *err);
/* Opens its session. BS_USAGE: a dimension has no size, or two. */
int32_t bs_model_start(bs_context *context, const bs_model_request *request, bs_model *model, bs_error *err);
/* BS_USAGE names every input that has no file. */
int32_t bs_model_need_inputs(const bs_model *model, bs_error *err);
void bs_model_close(bs_model *model);

/* {path, producer, opset, nodes, constants, constant_bytes, states, state_bytes, cache_tokens, load_seconds,
 * inputs, outputs: [{name, dtype, shape}], ops: [{op, domain, nodes}], unsupported: [{node, op, domain,
 * opset, dtype, reason}]}. A symbolic dimension is its name. `backend` NULL: the lowering alone is asked. */
int32_t bs_model_info(const bs_model *model, const char *backend, json_t **out, bs_error *err);
/* Runs a started model once on its inputs. {model, backend, dims, nodes, outputs: [{name, dtype, shape, min,
 * max, mean, nonfinite, first, file}], stats}. output_dir (may be NULL): each output is written there as
 * NAME.npy; the folder is made. */
int32_t bs_model_run(const bs_model_request *request, bs_model *model, const char *output_dir, json_t **out,
                     bs_error *err);
/* A report of a session (enum bs_session_report) as text, malloc'd. */
int32_t bs_model_text(const bs_model *model, uint32_t what, uint32_t json, char **out_text, bs_error *err);

/* Helpers for the above. A text as JSON; bytes that are no UTF-8 are shown as \xNN. */
json_t *bs_model_json_text(const char *text);
/* The numbers of bs_session_stats. */
json_t *bs_model_stats(const bs_session *session);
#endif
