/* SPDX-License-Identifier: MIT
 * keep.c - see keep.h. */
#include "lab/diagnose/keep.h"

#include <stdlib.h>

#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/store/record.h"

static int32_t append(bs_run *kept, const bs_experiment *e, const json_t *plugins, const json_t *inputs,
                      json_t *diagnosis, bs_error *err) {
  const json_t *subject = json_object_get(diagnosis, "subject");
  json_t *record = bs_record_start(e, bs_run_get_id(kept), plugins);
  const bs_phase_result result = {
      .record = json_pack("{s:O, s:O, s:O, s:O, s:O, s:O}", "B", json_object_get(subject, "B"), "N",
                          json_object_get(subject, "N"), "K", json_object_get(subject, "K"), "world_size",
                          json_object_get(subject, "world_size"), "inputs", (json_t *)(uintptr_t)inputs,
                          "diagnosis", diagnosis),
      .passed = 1};
  int32_t rc = record != NULL && result.record != NULL ? bs_record_finish(record, &result, err)
                                                       : bs_no_memory(err, "a record");
  if (rc == BS_OK) rc = bs_store_append(kept, record, err);
  json_decref(result.record);
  json_decref(record);
  return rc;
}

int32_t bs_diagnose_keep(lab_run *run, const bs_node *config, json_t *diagnosis, char **out_folder,
                         bs_error *err) {
  const lab_run_host *host = run->host;
  bs_node *tree = bs_config_clone(config);
  bs_experiment e = {0};
  json_t *plugins = NULL, *load = NULL, *inputs = json_array();
  bs_run *kept = NULL;
  const json_t *world = json_object_get(json_object_get(diagnosis, "subject"), "world_size");
  *out_folder = NULL;
  int32_t rc = tree != NULL && inputs != NULL ? BS_OK : bs_no_memory(err, "a record");
  if (rc == BS_OK)
    rc = bs_experiment_make(run->context, tree, run->configs_dir, NULL, &e, err);
  else
    bs_config_free(tree);
  e.phase_name = "diagnose";
  if (rc == BS_OK)
    rc = lab_run_begin(run, &e, (uint32_t)json_integer_value(world), &plugins, &load, inputs, &kept, err);
  if (rc == BS_OK && host->opened != NULL) host->opened(host->user, bs_run_get_fd(kept));
  if (rc == BS_OK) rc = append(kept, &e, plugins, inputs, diagnosis, err);
  if (kept != NULL) {
    if (host->closed != NULL) host->closed(host->user);
    char *folder = bs_strdup(bs_run_get_path(kept));
    if (rc != BS_OK) bs_store_abandon(kept);
    if (rc == BS_OK) rc = bs_store_commit(kept, "ok", err);
    if (rc == BS_OK)
      *out_folder = folder;
    else
      free(folder);
  }
  json_decref(plugins);
  json_decref(load);
  json_decref(inputs);
  bs_experiment_free(&e);
  return rc;
}
