/* SPDX-License-Identifier: MIT
 * join.c - the steps that processes of one run take before its phases: all must be present with the same
 * configuration, and use rank 0's choices. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/peers/peers.h"
#include "lab/run/auto.h"

int32_t lab_run_world(bs_context *context, const bs_experiment *e, uint32_t *out_world, bs_error *err) {
  const bs_method *method = NULL;
  void *state = NULL;
  const int32_t rc = bs_find_method(context, e->method, &method, &state, err);
  if (rc != BS_OK) return rc;
  *out_world = bs_experiment_world(e, method);
  return BS_OK;
}

static void tell_stage(const lab_run *run, uint32_t stage) {
  if (run->host->stage != NULL) run->host->stage(run->host->user, stage);
}

/* Joins the others, once, and checks that all have the same configuration before anything runs. */
static int32_t join(lab_run *run, bs_experiment *e, const bs_node *config, bs_error *err) {
  uint32_t world = 0;
  int32_t rc = lab_run_world(run->context, e, &world, err);
  if (rc != BS_OK) return rc;
  bs_text same = {0};
  const int first = run->peers == NULL; /* later rank 0 has also opened the plugins that it measured */
  if (first) tell_stage(run, LAB_RUN_WAITS);
  if (first) rc = bs_peers_open(run->context, e->comm, world, e->timeout_s, &run->peers, err);
  if (first && rc == BS_OK) tell_stage(run, LAB_RUN_JOINED);
  if (rc == BS_OK) rc = bs_peers_meet(run->peers, err);
  if (rc == BS_OK && first && run->peers != NULL) rc = lab_run_same_text(run->context, e, &same, err);
  if (rc == BS_OK) rc = bs_peers_compare(run->peers, config, same.data != NULL ? same.data : "", err);
  bs_text_free(&same);
  e->peers = run->peers;
  if (!bs_peers_lead(e->peers)) tell_stage(run, LAB_RUN_FOLLOWS);
  return rc;
}

int32_t lab_run_join(lab_run *run, bs_experiment *e, bs_error *err) {
  return join(run, e, e->config, err);
}

/* Joins the processes of a run with method auto. They compare the requested configuration; a temporary copy
 * with another method is used only to connect them. */
int32_t lab_run_join_undecided(lab_run *run, const bs_node *config, bs_error *err) {
  bs_experiment e = {0};
  bs_node *tree = bs_config_clone(config);
  int32_t rc = tree == NULL ? bs_out_of_memory(err) : lab_auto_stand_in(tree, err);
  if (rc != BS_OK) {
    bs_config_free(tree);
    return rc;
  }
  rc = bs_experiment_make(run->context, tree, run->configs_dir, NULL, &e, err);
  if (rc == BS_OK) rc = join(run, &e, config, err);
  bs_experiment_free(&e);
  return rc;
}

/* Sends rank 0's choices of implementations to all. */
int32_t lab_run_share_choices(lab_run *run, bs_experiment *e, bs_error *err) {
  char *text = NULL, *told = NULL;
  json_t *list = json_array();
  for (uint32_t i = 0; i < e->n_choices; i++) json_array_append_new(list, json_string(e->choices[i]));
  text = json_dumps(list, JSON_COMPACT);
  json_decref(list);
  int32_t rc = text == NULL ? bs_out_of_memory(err) : bs_peers_text(run->peers, text, &told, err);
  free(text);
  if (rc != BS_OK || told == NULL) return rc;
  list = json_loads(told, 0, NULL);
  free(told);
  const size_t n = json_array_size(list);
  const char **choices = calloc(n > 0 ? n : 1, sizeof *choices);
  bs_choices_free(e->n_choices, e->choices);
  e->choices = choices;
  e->n_choices = 0;
  for (size_t i = 0; choices != NULL && i < n; i++) {
    choices[i] = bs_strdup(json_string_value(json_array_get(list, i)));
    if (choices[i] == NULL) rc = bs_out_of_memory(err);
    e->n_choices = (uint32_t)i + 1;
  }
  json_decref(list);
  return choices == NULL ? bs_out_of_memory(err) : rc;
}
