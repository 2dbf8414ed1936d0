/* SPDX-License-Identifier: MIT
 * begin.c - opens the folder of a run. */
#include <stdlib.h>

#include "core/base/error.h"
#include "lab/config/experiment.h"
#include "lab/run/run.h"
#include "lab/store/env.h"
#include "lab/store/record.h"

/* The record shows grades of the running plugins, but a grade changes no result. So the run's key is made
 * without grades. */
int32_t lab_run_begin(lab_run *run, bs_experiment *e, uint32_t world, json_t **out_plugins, json_t **out_load,
                      json_t *out_inputs, bs_run **out_run, bs_error *err) {
  char key[65];
  bs_node *config = NULL;
  json_t *env = bs_env_collect(run->context);
  if (run->command != NULL && env != NULL) json_object_set_new(env, "command", json_string(run->command));
  *out_load = json_incref(json_object_get(json_object_get(env, "system"), "load_average"));
  int32_t rc = bs_grades_mark(&run->grades, json_object_get(env, "plugins"), err);
  char *env_text = rc != BS_OK || env == NULL ? NULL : bs_env_text(env);
  json_decref(env);
  if (env_text == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK) rc = bs_env_plugins(run->context, out_plugins, err);
  if (rc == BS_OK) rc = bs_experiment_settle(e, world, &config, err);
  if (rc == BS_OK) rc = bs_record_key(e, config, *out_plugins, world, out_inputs, key, err);
  if (rc == BS_OK) rc = bs_grades_mark(&run->grades, *out_plugins, err);
  if (rc == BS_OK) {
    const bs_run_request q = {.out_dir = e->out_dir,
                              .group = e->run_group,
                              .phase = e->phase_name,
                              .method = e->method,
                              .run_id = run->run_id,
                              .key = key,
                              .config = config,
                              .env = env_text,
                              .argv = run->argv,
                              .seed = e->seed};
    rc = bs_store_begin(&q, out_run, err);
  }
  bs_config_free(config);
  free(env_text);
  return rc;
}
