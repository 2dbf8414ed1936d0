/* SPDX-License-Identifier: MIT
 * keep.h - stores the results of `model check` and `model bench` as a run folder:
 * <out_dir>/model_check/<model>/<run_id>/ (docs/runs.md). It is written at the end: a command that fails or
 * is interrupted leaves no folder. */
#ifndef BS_LAB_MODEL_KEEP_H
#define BS_LAB_MODEL_KEEP_H
#include "lab/model/model.h"
#include "lab/store/grade.h"

typedef struct bs_model_keep_request {
  bs_context *context;
  const bs_model_request *model;
  const char *out_dir, *run_id; /* run_id NULL: made */
  const char *phase;            /* "model_check", "model_bench": a record for each of result's rows */
  const char *command;          /* for env.json; NULL: none */
  const char *(*settings)[2];   /* keys of the configuration and their values, as YAML */
  size_t n_settings;
  int passed;
  const bs_grades *grades;
  void (*opened)(int run_fd); /* all messages from now on go into its log.txt; NULL: not wanted */
  void (*closed)(void);       /* before DONE has the sum of log.txt */
} bs_model_keep_request;
/* Adds "run", the folder, to result. *out_folder: malloc'd; NULL: nothing was stored. */
int32_t bs_model_keep(const bs_model_keep_request *request, json_t *result, char **out_folder, bs_error *err);
#endif
