/* SPDX-License-Identifier: MIT
 * model.h - the sub-verbs of `bsrun model`: one file each (model_plan.c, ...), in a table in model.c, from
 * which help, completion and the manual page are made. */
#ifndef BSRUN_MODEL_H
#define BSRUN_MODEL_H
#include "bsrun/bsrun.h"

typedef struct model_verb {
  const char *name;
  const char *words;   /* behind the name, in the line "usage" */
  const char *summary; /* one line */
  const char *about;   /* lines; "" */
  const char *examples;
  const args_option *options;
  const size_t *n_options;
  int32_t (*run)(const args *a, bs_error *err); /* the options are parsed, and --help was not among them */
  size_t min_words, max_words;
} model_verb;

extern const model_verb model_plan;

extern const model_verb *const model_verbs[];
extern const size_t model_n_verbs;

int32_t model_print_json(const json_t *value, bs_error *err);
#endif
