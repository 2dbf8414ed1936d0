/* SPDX-License-Identifier: MIT
 * auto.c - see auto.h. */
#include "lab/run/auto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/peers/peers.h"

int lab_auto_asked(const bs_node *config) {
  const char *name = bs_schema_str(config, "method.name");
  return name != NULL && strcmp(name, "auto") == 0;
}

static uint32_t pass_of_phase(const bs_node *config) {
  const char *phase = bs_schema_str(config, "phase.name");
  if (strcmp(phase, "phase2_backward_input") == 0) return BS_ARM_BACKWARD;
  if (strcmp(phase, "phase3_train_step") != 0) return BS_ARM_FORWARD;
  const char *optimizer = bs_schema_str(config, "phase.optimizer");
  return optimizer != NULL && strcmp(optimizer, "adamw") == 0 ? BS_ARM_ADAMW : BS_ARM_SGD;
}

static int32_t choose_best(bs_context *context, const bs_node *config, const bs_ladder_options *o,
                           lab_auto_choice *out, bs_error *err) {
  const int64_t most = bs_schema_i64(config, "auto.measure");
  bs_ladder ladder;
  int32_t rc = bs_ladder_make(context, config, o, &ladder, err);
  if (rc == BS_OK && most > 0) rc = bs_ladder_measure(&ladder, (uint32_t)most, o, err);
  const bs_rung *best = rc == BS_OK ? bs_ladder_best(&ladder) : NULL;
  if (best != NULL) {
    memcpy(out->settings, best->settings, sizeof out->settings);
    out->n_settings = best->n_settings;
    snprintf(out->name, sizeof out->name, "%s", best->name);
    out->rows = bs_ladder_rows(&ladder);
    out->made = 1;
  }
  if (bs_context_stuck(context) == 0) bs_ladder_free(&ladder);
  return rc;
}

/* Sends the name and one line for each setting. */
static int32_t tell_choice(struct bs_peers *peers, const lab_auto_choice *choice, bs_error *err) {
  bs_text text = {0};
  char *mine = NULL;
  bs_text_printf(&text, "%s", choice->name);
  for (uint32_t i = 0; i < choice->n_settings; i++) bs_text_printf(&text, "\n%s", choice->settings[i]);
  const int32_t rc = text.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                                 : bs_peers_text(peers, text.data, &mine, err);
  free(mine);
  bs_text_free(&text);
  return rc;
}

static int32_t hear_choice(struct bs_peers *peers, lab_auto_choice *out, bs_error *err) {
  char *text = NULL, *rest = NULL;
  const int32_t rc = bs_peers_text(peers, "", &text, err);
  if (rc != BS_OK) return rc;
  const char *line = strtok_r(text, "\n", &rest);
  snprintf(out->name, sizeof out->name, "%s", line != NULL ? line : "");
  while ((line = strtok_r(NULL, "\n", &rest)) != NULL && out->n_settings < BS_RUNG_SETTINGS)
    snprintf(out->settings[out->n_settings++], sizeof out->settings[0], "%s", line);
  out->made = 1;
  free(text);
  return BS_OK;
}

static const json_t *constants_of(const lab_run *run) {
  return bs_peers_lead(run->peers) && run->host->constants != NULL ? run->host->constants(run->host->user)
                                                                   : NULL;
}

/* Sends to the others that rank 0 has decided, or failed. */
static int32_t tell_end(struct bs_peers *peers, int32_t rc, const lab_auto_choice *choice, bs_error *err) {
  bs_error ignored = BS_ERROR_INIT;
  const bs_told done = {.word = BS_WORD_CHOSEN, .status = rc};
  if (peers == NULL) return rc;
  if (rc == BS_DEADLINE || rc == BS_RANK_FAILED) { /* the end was waited for already, or cannot come */
    bs_peers_tell_soon(peers, &done, 0.3, &ignored);
    return rc;
  }
  const int32_t telling = bs_peers_tell(peers, &done, rc == BS_OK ? err : &ignored);
  if (rc != BS_OK || telling != BS_OK) return rc != BS_OK ? rc : telling;
  return tell_choice(peers, choice, err);
}

int32_t lab_auto_choose(lab_run *run, const bs_node *config, lab_auto_choice *out, bs_error *err) {
  const lab_run_host *host = run->host;
  const bs_ladder_options o = {.pass = pass_of_phase(config),
                               .seconds = bs_schema_f64(config, "auto.seconds"),
                               .quiet_dir = run->configs_dir,
                               .constants = constants_of(run),
                               .peers = run->peers,
                               .progress = host->progress,
                               .progress_user = host->user};
  memset(out, 0, sizeof *out);
  if (host->doing != NULL) host->doing(host->user, "auto", NULL);
  int32_t rc;
  if (bs_peers_lead(run->peers)) {
    rc = choose_best(run->context, config, &o, out, err);
    rc = tell_end(run->peers, rc, out, err);
  } else {
    rc = bs_ladder_follow(run->context, config, &o, err);
    if (bs_context_stuck(run->context) == 0) rc = lab_run_follow_end(run, "auto", rc, err);
    if (rc == BS_OK) rc = hear_choice(run->peers, out, err);
  }
  if (host->doing != NULL) host->doing(host->user, NULL, NULL);
  return rc;
}

int32_t lab_auto_apply(const lab_auto_choice *choice, bs_node *config, bs_error *err) {
  return bs_rung_apply(choice->settings, choice->n_settings, config, err);
}

/* Drops options that only one of the candidates may know: each candidate is asked about them. */
static int32_t drop_options(bs_node *config, bs_error *err) {
  const bs_node *map = bs_config_find(config, "method");
  int32_t rc = BS_OK;
  const bs_node *n = map != NULL && map->kind == BS_NODE_MAP ? map->first : NULL;
  for (; rc == BS_OK && n != NULL; n = n->next) {
    char path[320];
    snprintf(path, sizeof path, "method.%.256s", n->key);
    if (bs_schema_find(path) == NULL) rc = bs_config_set(config, path, "null", err);
  }
  return rc;
}

int32_t lab_auto_stand_in(bs_node *config, bs_error *err) {
  int32_t rc = drop_options(config, err);
  if (rc == BS_OK) rc = bs_config_set_text(config, "method.name", "row_parallel", err);
  if (rc == BS_OK && bs_schema_i64(config, "hardware.world_size") <= 0)
    rc = bs_config_set_text(config, "hardware.world_size", "2", err);
  return rc;
}

void lab_auto_free(lab_auto_choice *choice) {
  json_decref(choice->rows);
  memset(choice, 0, sizeof *choice);
}
