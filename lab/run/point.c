/* SPDX-License-Identifier: MIT
 * point.c - a point: its phases are made into experiments, joined with other processes, tuned, and run. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/measure/chunks.h"
#include "lab/peers/peers.h"
#include "lab/phase/simulated.h"
#include "lab/run/auto.h"
#include "lab/run/run.h"
#include "lab/stop.h"
#include "lab/store/request_key.h"
#include "lab/tune/tune.h"

enum { PHASES = 2 };

typedef struct work {
  lab_run *run;
  const lab_point *point;
  lab_auto_choice chosen; /* of --method auto */
  bs_experiment e[PHASES];
  char key[PHASES][65]; /* request keys */
  size_t n;
} work;

/* --method auto: decided once a point, for its first phase or, of both, for the forward pass. */
static int32_t choose_method(work *w, bs_node *config, bs_error *err) {
  lab_run *run = w->run;
  if (!lab_auto_asked(config)) return BS_OK;
  if (w->point->ranks_choose) return lab_auto_stand_in(config, err);
  if (!w->chosen.made) {
    int32_t rc = bs_schema_check(config, run->configs_dir, NULL, err);
    if (rc == BS_OK && w->point->is_rank) rc = lab_run_join_undecided(run, config, err);
    if (rc == BS_OK) rc = lab_auto_choose(run, config, &w->chosen, err);
    if (rc != BS_OK) return rc;
    bs_note_add(&run->notes, "auto: %s", w->chosen.name);
    if (w->chosen.rows != NULL && run->host->ladder != NULL)
      run->host->ladder(run->host->user, w->chosen.rows);
  }
  return lab_auto_apply(&w->chosen, config, err);
}

/* The composed tree of one phase, with the point's setting; of a planned point a copy of the planned one. */
static int32_t compose_phase(const work *w, size_t phase, bs_node **out_config, bs_error *err) {
  const lab_point *p = w->point;
  if (p->trees != NULL) {
    *out_config = bs_config_clone(p->trees[phase]);
    return *out_config != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  bs_compose_request q = *p->compose;
  bs_composed composed = {0};
  q.context = w->run->context;
  if (p->n_phases == PHASES) q.phase = phase == 0 ? "phase0_correctness" : "phase1_forward";
  int32_t rc = bs_compose(&q, &composed, err);
  if (rc == BS_OK && p->param != NULL) {
    rc = bs_config_set_text(composed.config, p->param, p->value, err);
    if (rc == BS_OK) bs_config_remove(composed.config, "sweep"); /* the run is one point */
  }
  if (rc == BS_OK && p->group != NULL)
    rc = bs_config_set_text(composed.config, "logging.run_group", p->group, err);
  *out_config = composed.config;
  return rc;
}

/* Computes the key of the tree as composed, before any decision. */
static int32_t know_key(work *w, size_t phase, const bs_node *config, bs_error *err) {
  const lab_point *p = w->point;
  if (p->request_key != NULL) return BS_OK;
  const int32_t rc = bs_request_key(w->run->context, config, w->key[phase], err);
  if (rc != BS_OK || p->keys == NULL || strcmp(p->keys[phase], w->key[phase]) == 0) return rc;
  bs_error_set(err, BS_MISMATCH, "BS-SWEEP-BUILD",
               "the library or a plugin of this point has changed since it was planned");
  bs_error_hint(err, "bsrun sweep --resume plans it again");
  return BS_MISMATCH;
}

/* Pins the choices: those that were tuned for a layer serve all its points. */
static int32_t pin_choices(const work *w, bs_node *config, bs_error *err) {
  const json_t *choices = w->point->choices;
  if (json_array_size(choices) == 0) return BS_OK;
  char *list = json_dumps(choices, JSON_COMPACT); /* JSON of texts is YAML */
  const int32_t rc = list == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                                  : bs_config_set(config, "tune.choices", list, err);
  free(list);
  return rc;
}

static int32_t make_experiment(work *w, size_t phase, bs_experiment *out, bs_error *err) {
  lab_run *run = w->run;
  const lab_point *p = w->point;
  bs_node *config = NULL;
  int32_t rc = compose_phase(w, phase, &config, err);
  if (rc == BS_OK) rc = know_key(w, phase, config, err);
  if (rc == BS_OK) rc = pin_choices(w, config, err);
  if (rc == BS_OK) rc = choose_method(w, config, err);
  if (rc != BS_OK) {
    bs_config_free(config);
    return rc;
  }
  rc = bs_experiment_make(run->context, config, run->configs_dir, &run->notes, out, err);
  if (rc == BS_OK) {
    out->request_key = p->request_key != NULL ? p->request_key : w->key[phase];
    out->sweep = p->sweep;
    if (phase + 1 == p->n_phases) out->trace_file = p->trace_file;
    if (phase + 1 == p->n_phases) out->et_prefix = p->et_prefix;
    out->point = p->number;
    if (w->chosen.rows != NULL) out->ladder = json_incref(w->chosen.rows);
  }
  if (rc != BS_OK || (out->phase != BS_PHASE_FORWARD && !bs_overlap_asked(out))) return rc;
  if (run->host->constants != NULL) out->machine_constants = run->host->constants(run->host->user);
  return BS_OK;
}

/* A backend without values cannot be judged: of two phases only the timed one runs. */
static void leave_out_judging(work *w) {
  if (w->n != PHASES || !bs_backend_is_phantom(w->run->context, w->e[0].backend)) return;
  bs_note_add(&w->run->notes,
              "backend %s holds no values: phase 0 is not run (--backend virtual:ref judges numbers)",
              w->e[0].backend);
  bs_experiment_free(&w->e[0]);
  w->e[0] = w->e[1];
  memset(&w->e[1], 0, sizeof w->e[1]);
  w->n = 1;
}

/* All that can be refused before anything runs. */
static int32_t make_all(work *w, bs_error *err) {
  lab_run *run = w->run;
  int32_t rc = BS_OK;
  while (rc == BS_OK && w->n < w->point->n_phases) {
    rc = make_experiment(w, w->n, &w->e[w->n], err);
    if (rc == BS_OK) w->n++;
  }
  if (rc == BS_OK && w->n == 1 && w->e[0].dump_dir != NULL && w->e[0].phase != BS_PHASE_CORRECTNESS)
    bs_note_add(&run->notes, "logging.dump_dir has no effect: only phase 0 writes tensors");
  if (rc == BS_OK) leave_out_judging(w);
  for (size_t i = 0; rc == BS_OK && i < w->n; i++) rc = bs_simulated_check(run->context, &w->e[i], err);
  lab_run_tell_notes(run);
  for (size_t i = 0; rc == BS_OK && i < w->n; i++) rc = lab_run_join(run, &w->e[i], err);
  for (size_t i = 0; rc == BS_OK && run->peers == NULL && i < w->n; i++)
    rc = lab_run_check_memory(run->context, &w->e[i], err);
  return rc;
}

/* ---- which implementations serve ---------------------------------------------------------------- */

static void on_tuner_note(void *user, const char *text) {
  lab_run *run = user;
  bs_note_add(&run->notes, "%s", text);
  lab_run_tell_notes(run);
}

static void on_tuner_detail(void *user, const char *text) {
  lab_run_detail(user, text);
}

static int32_t open_tuner(lab_run *run, bs_error *err) {
  const bs_tuner_options options = {.path = run->tune_path,
                                    .note = on_tuner_note,
                                    .detail = on_tuner_detail,
                                    .note_user = run,
                                    .progress = run->host->progress,
                                    .progress_user = run->host->user};
  return run->tuner != NULL ? BS_OK : bs_tuner_open(run->context, &options, &run->tuner, err);
}

/* Chooses the implementations for all phases of the point, the timed one first: it measures, and phase 0 then
 * judges the choices. */
static int32_t choose(work *w, bs_error *err) {
  lab_run *run = w->run;
  const int leads = bs_peers_lead(run->peers);
  if (bs_clock_is_virtual(run->context, w->e[0].comm)) return BS_OK; /* nothing is measured */
  int32_t rc = leads ? open_tuner(run, err) : BS_OK;
  lab_run_doing(run, &w->e[0], "tuning");
  for (size_t i = w->n; rc == BS_OK && leads && i-- > 0;) rc = bs_tuner_choose(run->tuner, &w->e[i], err);
  for (size_t i = 0; rc == BS_OK && i < w->n; i++) rc = lab_run_share_choices(run, &w->e[i], err);
  return rc;
}

/* Keeps after a phase of the point its measurements, with the verdict of the gates. Without a verdict it
 * keeps nothing, because the next point's gates would judge it. */
static void keep_choices(lab_run *run, const bs_experiment *e, int32_t rc, const bs_error *err) {
  if (run->tuner == NULL) return;
  if (rc == BS_NUMERIC) {
    bs_tuner_keep(run->tuner, 1, err->message);
  } else if (rc == BS_OK) {
    bs_tuner_keep(run->tuner, e->phase == BS_PHASE_CORRECTNESS, NULL);
  }
}

int32_t lab_run_point(lab_run *run, const lab_point *point, bs_error *err) {
  work w = {.run = run, .point = point};
  bs_notes_free(&run->notes);
  run->told = 0;
  int32_t rc = make_all(&w, err);
  if (rc == BS_OK) rc = choose(&w, err);
  for (size_t i = 0; rc == BS_OK && bs_stop_asked() == 0 && i < w.n; i++) {
    rc = lab_run_phase(run, &w.e[i], err);
    keep_choices(run, &w.e[i], rc, err);
    if (rc != BS_OK && i + 1 < w.n) bs_note_add(&run->notes, "%s is not run", w.e[i + 1].phase_name);
  }
  if (bs_context_stuck(run->context) > 0) return rc; /* a rank that has not returned may still use it */
  if (run->tuner != NULL) bs_tuner_drop(run->tuner);
  lab_auto_free(&w.chosen);
  for (size_t i = 0; i < w.n; i++) bs_experiment_free(&w.e[i]);
  if (run->host->doing != NULL) run->host->doing(run->host->user, NULL, NULL);
  return rc;
}

int32_t lab_run_tune(lab_run *run, const lab_point *point, json_t **out_choices, bs_error *err) {
  work w = {.run = run, .point = point};
  json_t *choices = json_array();
  int32_t rc =
      choices != NULL ? make_all(&w, err) : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK) rc = choose(&w, err);
  const bs_experiment *timed = w.n > 0 ? &w.e[w.n - 1] : NULL;
  for (uint32_t i = 0; rc == BS_OK && timed != NULL && i < timed->n_choices; i++)
    if (json_array_append_new(choices, json_string(timed->choices[i])) != 0)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (bs_context_stuck(run->context) > 0) return rc;
  lab_auto_free(&w.chosen);
  for (size_t i = 0; i < w.n; i++) bs_experiment_free(&w.e[i]);
  if (rc != BS_OK) {
    json_decref(choices);
    choices = NULL;
  }
  *out_choices = choices;
  return rc;
}

void lab_run_auto_group(const bs_node *config, char out_group[16]) {
  out_group[0] = '\0';
  if (bs_schema_str(config, "logging.run_group") == NULL && bs_schema_bool(config, "logging.auto_group"))
    bs_store_stamp(out_group);
}

int32_t lab_run_ranks(lab_run *run, const lab_point *point, uint32_t *out_world, double *out_timeout_s,
                      bs_error *err) {
  work w = {.run = run, .point = point};
  int32_t rc = make_experiment(&w, 0, &w.e[0], err);
  if (rc == BS_OK) {
    rc = lab_run_world(run->context, &w.e[0], out_world, err);
    *out_timeout_s = w.e[0].timeout_s;
    bs_experiment_free(&w.e[0]);
  }
  lab_auto_free(&w.chosen);
  return rc;
}
