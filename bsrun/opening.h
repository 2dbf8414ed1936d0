/* SPDX-License-Identifier: MIT
 * opening.h - from typed options to a configuration tree, its plugins and an experiment: once for all verbs.
 */
#ifndef BSRUN_OPENING_H
#define BSRUN_OPENING_H
#include "bsrun/bsrun.h"
#include "lab/config/experiment.h"

/* Composes the tree of a request, opens its plugins, and composes again with what they register. The caller
 * frees *out_context and *out_config, also after an error (NULL: not made). level: enum bs_log_level. */
int32_t bsrun_open_tree(bsrun_request *request, int32_t level, bs_context **out_context, bs_node **out_config,
                        bs_error *err);
/* Opens the tree, and makes its experiment. Notes are printed, unless quiet. The caller frees *out_context,
 * also after an error, and the experiment after BS_OK. */
int32_t bsrun_open_experiment(bsrun_request *request, int32_t level, int quiet, bs_context **out_context,
                              bs_experiment *out, bs_error *err);

/* A verb without an experiment makes its tree of these, of --config and of --set. */
typedef struct bsrun_base {
  const char *configs_dir;    /* the folder whose base.yaml is read; NULL: no file is read */
  const char *const *plugins; /* in the place of --plugin */
  size_t n_plugins;           /* 0: --plugin */
  const char *plugin;         /* where no --plugin is given; NULL: none */
  const char *hardware;       /* where no --hardware is given; NULL: none */
} bsrun_base;

/* The checked tree. The caller frees it; NULL after an error. */
int32_t bsrun_base_tree(const args *a, const bsrun_base *base, bs_node **out_config, bs_error *err);
/* Composes base.yaml of the folder of configurations, and the options, to such a tree. */
int32_t bsrun_base_config(const args *a, bs_node **out_config, bs_error *err);
#endif
