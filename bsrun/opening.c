/* SPDX-License-Identifier: MIT
 * opening.c - see opening.h. */
#include "bsrun/opening.h"

#include <stdlib.h>

#include "lab/config/compose.h"
#include "lab/config/schema.h"

int32_t bsrun_open_tree(bsrun_request *request, int32_t level, bs_context **out_context, bs_node **out_config,
                        bs_error *err) {
  bs_composed composed = {0};
  int32_t rc = bs_compose(&request->compose, &composed, err);
  if (rc == BS_OK) rc = bs_schema_check(composed.config, request->configs_dir, NULL, err);
  if (rc == BS_OK) rc = bs_context_of_config(composed.config, level, bsrun_log, NULL, out_context, err);
  if (rc == BS_OK) rc = bs_compose_with(&request->compose, *out_context, &composed, err);
  *out_config = composed.config;
  return rc;
}

int32_t bsrun_open_experiment(bsrun_request *request, int32_t level, int quiet, bs_context **out_context,
                              bs_experiment *out, bs_error *err) {
  bs_notes notes = {0};
  bs_node *config = NULL;
  int32_t rc = bsrun_open_tree(request, level, out_context, &config, err);
  if (rc == BS_OK)
    rc = bs_experiment_make(*out_context, config, request->configs_dir, &notes, out, err);
  else
    bs_config_free(config);
  for (size_t i = 0; i < notes.count; i++) bsrun_note(quiet, notes.items[i]);
  bs_notes_free(&notes);
  return rc;
}

int32_t bsrun_base_tree(const args *a, const bsrun_base *base, bs_node **out_config, bs_error *err) {
  const char *hardware = args_value(a, "hardware");
  bs_compose_request q = {.configs_dir = base->configs_dir,
                          .hardware = hardware != NULL ? hardware : base->hardware};
  bs_composed composed = {0};
  const char **lists[3] = {NULL, NULL, NULL};
  int32_t rc = args_values(a, "config", &lists[0], &q.n_configs, err);
  if (rc == BS_OK) rc = args_values(a, "set", &lists[1], &q.n_sets, err);
  if (rc == BS_OK) rc = args_values(a, "plugin", &lists[2], &q.n_plugins, err);
  q.configs = lists[0];
  q.sets = lists[1];
  q.plugins = lists[2];
  if (base->n_plugins > 0 || (q.n_plugins == 0 && base->plugin != NULL)) {
    q.plugins = base->n_plugins > 0 ? base->plugins : &base->plugin;
    q.n_plugins = base->n_plugins > 0 ? base->n_plugins : 1;
  }
  if (rc == BS_OK) rc = bs_compose(&q, &composed, err);
  if (rc == BS_OK) rc = bs_schema_check(composed.config, base->configs_dir, NULL, err);
  if (rc != BS_OK) {
    bs_config_free(composed.config);
    composed.config = NULL;
  }
  *out_config = composed.config;
  for (int i = 0; i < 3; i++) free(lists[i]);
  return rc;
}

int32_t bsrun_base_config(const args *a, bs_node **out_config, bs_error *err) {
  bsrun_base base = {0};
  char *dir = NULL;
  int32_t rc = bs_configs_dir(&dir, err);
  base.configs_dir = dir;
  if (rc == BS_OK) rc = bsrun_base_tree(a, &base, out_config, err);
  free(dir);
  return rc;
}
