/* SPDX-License-Identifier: MIT
 * ladder.c - see ladder.h. Nothing is written before the first ladder is measured, so that a comparison that
 * fails or is interrupted leaves no folder. */
#include "lab/run/ladder.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/measure/sampler.h"
#include "lab/stop.h"
#include "lab/store/env.h"
#include "lab/store/record.h"

typedef struct keeper {
  lab_run *lab;
  json_t *load, *plugins, *inputs;
  bs_run *run; /* NULL until the first pass was measured */
} keeper;

static int32_t keeper_open(lab_run *lab, keeper *k, bs_error *err) {
  *k = (keeper){.lab = lab, .inputs = json_array()};
  json_t *env = bs_env_collect(lab->context); /* the load before the comparison adds to it */
  k->load = json_incref(json_object_get(json_object_get(env, "system"), "load_average"));
  json_decref(env);
  return k->inputs != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
}

/* Arms with their samples, comparisons, pairs and warnings, as phase 1's record has them. */
static int add_sampling(json_t *fields, const bs_ladder *l) {
  const bs_sampled *s = l->sampling;
  json_t *arms = json_array(), *comparisons = json_array(), *pairs = bs_sampling_pairs_json(s);
  int bad = json_object_update(fields, pairs);
  for (uint32_t i = 0; i < l->n; i++) {
    const bs_rung *r = &l->rungs[i];
    json_t *arm = json_pack("{s:s,s:s,s:i,s:i}", "name", r->name, "method", r->e.method, "world_size",
                            (int)r->c.world_size, "threads_per_rank", (int)r->c.threads_per_rank);
    uint32_t at = 0;
    while (at < s->n_arms && strcmp(s->arm[at].name, r->name) != 0) at++;
    if (r->measured && at < s->n_arms) {
      bad |= bs_sampling_arm_json(arm, s, at);
      bad |= json_array_append(arms, arm);
      if (at > 0) bad |= json_array_append_new(comparisons, bs_sampling_comparison_json(s, at));
    }
    json_decref(arm);
  }
  json_decref(pairs);
  bad |= json_object_set_new(fields, "arms", arms);
  bad |= json_object_set_new(fields, "comparisons", comparisons);
  return bad;
}

static json_t *fields_of(const keeper *k, const bs_ladder *l, const bs_rung *first, json_t *rows) {
  const bs_layer_spec *spec = &first->c.spec;
  json_t *fields =
      json_pack("{s:s,s:I,s:I,s:I,s:b,s:i,s:i,s:s,s:O,s:o}", "pass", bs_ladder_pass_name(l->pass), "B",
                (json_int_t)spec->B, "N", (json_int_t)spec->N, "K", (json_int_t)spec->K, "bias",
                (int)spec->has_bias, "world_size", (int)first->c.world_size, "threads_per_rank",
                (int)first->c.threads_per_rank, "launch", bs_schema_str(first->e.config, "hardware.launch"),
                "ladder", rows, "machine", bs_machine_json(&l->machine));
  if (fields != NULL && k->load != NULL) json_object_set(fields, "load_average", k->load);
  if (fields != NULL) json_object_set(fields, "inputs", k->inputs);
  if (fields == NULL || !add_sampling(fields, l)) return fields;
  json_decref(fields);
  return NULL;
}

static int32_t keep(keeper *k, const bs_ladder *l, bs_node *config, json_t *rows, bs_error *err) {
  const lab_run_host *host = k->lab->host;
  const bs_rung *first = NULL;
  for (uint32_t i = 0; i < l->n && first == NULL; i++)
    if (l->rungs[i].measured && l->rungs[i].against.pairs == 0) first = &l->rungs[i];
  if (first == NULL || l->sampling == NULL) return BS_OK;
  bs_experiment e = first->e; /* of the layer; the ladder has the compared settings */
  int32_t rc = BS_OK;
  json_t *load = NULL;
  e.config = config;
  e.phase_name = LAB_LADDER_PHASE;
  e.n_choices = 0;
  e.choice_record = e.ladder = NULL;
  if (k->run == NULL) {
    const uint32_t world = bs_ladder_widest(l)->c.world_size;
    rc = lab_run_begin(k->lab, &e, world, &k->plugins, &load, k->inputs, &k->run, err);
    if (rc == BS_OK && host->opened != NULL) host->opened(host->user, bs_run_get_fd(k->run));
  }
  json_decref(load);
  if (rc != BS_OK) return rc;
  json_t *record = bs_record_start(&e, bs_run_get_id(k->run), k->plugins);
  const bs_phase_result result = {.record = fields_of(k, l, first, rows)};
  rc = record == NULL || result.record == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                                               : bs_record_finish(record, &result, err);
  if (rc == BS_OK) rc = bs_store_append(k->run, record, err);
  json_decref(result.record);
  json_decref(record);
  return rc;
}

/* Writes DONE, with status failed when rc is an error. */
static int32_t keeper_close(keeper *k, int32_t rc, char **out_path, bs_error *err) {
  bs_error ignored = BS_ERROR_INIT;
  const lab_run_host *host = k->lab->host;
  int32_t committed = BS_OK;
  if (k->run != NULL) {
    if (host->closed != NULL) host->closed(host->user);
    if (bs_run_is_kept(k->run)) *out_path = bs_strdup(bs_run_get_path(k->run));
    committed = bs_store_commit(k->run, rc == BS_OK ? "ok" : "failed", rc == BS_OK ? err : &ignored);
  }
  json_decref(k->load);
  json_decref(k->plugins);
  json_decref(k->inputs);
  return rc == BS_OK ? committed : rc;
}

/* Ranks that share cores. */
static void note_crowd(const lab_run *run, const bs_ladder *l) {
  bs_notes crowd = {0};
  for (uint32_t i = 0; i < l->n; i++)
    if (l->rungs[i].e.oversubscribed && l->rungs[i].opened)
      bs_note_crowd(l->rungs[i].c.world_size, l->rungs[i].c.threads_per_rank, &crowd);
  for (size_t i = 0; i < crowd.count; i++) lab_run_note(run, crowd.items[i]);
  bs_notes_free(&crowd);
}

/* Checks that every named side can run: there is no other comparison for it. */
static int32_t check_specs(const bs_ladder *l, const bs_ladder_options *o, bs_error *err) {
  for (uint32_t i = 0; o->n_specs > 0 && i < l->n; i++) {
    const bs_rung *r = &l->rungs[i];
    if (r->refused.code == BS_OK) continue;
    bs_error_set(err, r->refused.code, r->refused.id, "%s (%.100s): %.300s", r->name, o->specs[i],
                 r->refused.message);
    if (r->refused.hint[0] != '\0') bs_error_hint(err, "%s", r->refused.hint);
    return r->refused.code;
  }
  return BS_OK;
}

static int32_t one_pass(keeper *k, bs_node *config, const lab_ladder_request *q, const bs_ladder_options *o,
                        json_t *rows, bs_error *err) {
  bs_ladder ladder;
  int32_t rc = bs_ladder_make(k->lab->context, config, o, &ladder, err);
  if (rc == BS_OK) rc = check_specs(&ladder, o, err);
  if (rc == BS_OK) note_crowd(k->lab, &ladder);
  const int made = rc == BS_OK;
  if (rc == BS_OK && q->most > 0) rc = bs_ladder_measure(&ladder, (uint32_t)q->most, o, err);
  if (rc == BS_OK) rc = bs_stop_check(err);           /* what was measured until then is told, not kept */
  if (rc == BS_OK) rc = check_specs(&ladder, o, err); /* what could not be built */
  if (rc == BS_OK || (made && bs_stop_asked() != 0)) {
    json_t *more = bs_ladder_rows(&ladder);
    if ((more == NULL || json_array_extend(rows, more) != 0) && rc == BS_OK)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    if (rc == BS_OK) rc = keep(k, &ladder, config, more, err);
    json_decref(more);
  }
  bs_ladder_free(&ladder);
  return rc;
}

int32_t lab_run_ladders(lab_run *run, bs_node *config, const lab_ladder_request *q, json_t *rows,
                        char **out_folder, bs_error *err) {
  const lab_run_host *host = run->host;
  bs_ladder_options o = q->options;
  keeper k;
  o.quiet_dir = run->configs_dir;
  o.constants = host->constants != NULL ? host->constants(host->user) : NULL;
  o.progress = host->progress;
  o.progress_user = host->user;
  *out_folder = NULL;
  if (host->doing != NULL) host->doing(host->user, LAB_LADDER_PHASE, NULL);
  int32_t rc = keeper_open(run, &k, err);
  for (size_t i = 0; rc == BS_OK && i < q->n_passes; i++) {
    o.pass = q->passes[i];
    rc = one_pass(&k, config, q, &o, rows, err);
  }
  if (host->doing != NULL) host->doing(host->user, NULL, NULL);
  return keeper_close(&k, rc, out_folder, err);
}
