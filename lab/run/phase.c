/* SPDX-License-Identifier: MIT
 * phase.c - one phase of one experiment as one run folder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "core/world/flight.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/gate/half.h"
#include "lab/gate/mixed.h"
#include "lab/measure/chunks.h"
#include "lab/peers/peers.h"
#include "lab/phase/simulated.h"
#include "lab/report/rows.h"
#include "lab/run/run.h"
#include "lab/stop.h"
#include "lab/store/record.h"

/* Was it the request that could not be served, rather than a run that went wrong? Then no run is kept. */
static int never_ran(int32_t code) {
  switch (code) {
    case BS_USAGE:
    case BS_CONFIG:
    case BS_INPUT:
    case BS_UNAVAILABLE:
    case BS_PLUGIN:
    case BS_ABI:
    case BS_UNSUPPORTED:
    case BS_NOT_FOUND:
    case BS_NO_MEMORY:
    case BS_OVERFLOW:
    case BS_IO:
      return 1;
    default:
      return 0;
  }
}

static void closed(const lab_run *lab) {
  if (lab->host->closed != NULL) lab->host->closed(lab->host->user);
}

/* Adds the requested layer, as in the record of a successful run; a size that the workload chose is left
 * out. */
static int32_t add_layer(json_t *record, const bs_experiment *e, uint32_t world) {
  const struct {
    const char *key;
    int64_t value;
  } sizes[] = {{"N", e->N}, {"K", e->K > 0 ? e->K : e->N}, {"B", e->B}, {"world_size", world}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i].value > 0 && json_object_set_new(record, sizes[i].key, json_integer(sizes[i].value)) != 0)
      return BS_NO_MEMORY;
  return BS_OK;
}

static void keep_failed(const lab_run *lab, bs_run *run, json_t *record, const bs_error *why) {
  bs_error ignored = BS_ERROR_INIT;
  int32_t rc = bs_record_failed(record, why);
  if (rc == BS_OK) rc = bs_store_append(run, record, &ignored);
  closed(lab);
  if (rc == BS_OK) {
    bs_store_commit(run, "failed", &ignored);
  } else {
    bs_store_abandon(run);
  }
}

/* Commits the result, then reports it: nothing is reported before DONE exists. */
static int32_t keep_result(const lab_run *lab, bs_run *run, json_t *record, const bs_phase_result *result,
                           bs_error *err) {
  int32_t rc = bs_record_finish(record, result, err);
  if (rc == BS_OK) rc = bs_rows_add_figures(record, err);
  if (rc == BS_OK && result->samples != NULL)
    rc = bs_store_samples(run, result->samples, result->samples_bytes, err);
  if (rc == BS_OK) rc = bs_store_append(run, record, err);
  closed(lab);
  if (rc != BS_OK) {
    bs_store_abandon(run);
    return rc;
  }
  json_t *path = bs_run_is_kept(run) ? json_string(bs_run_get_path(run)) : json_null();
  rc = bs_store_commit(run, result->passed ? "ok" : "not passed", err);
  if (rc == BS_OK && lab->host->row != NULL) rc = lab->host->row(lab->host->user, record, path, err);
  json_decref(path);
  return rc;
}

/* The verdict of a finished, committed phase: BS_OK, BS_NUMERIC or BS_INCONCLUSIVE. */
static int32_t judge(const bs_experiment *e, const bs_phase_result *result, bs_error *err) {
  if (result->passed) return BS_OK;
  const bs_gate *failed = NULL;
  for (uint32_t i = 0; i < result->n_gates && failed == NULL; i++) {
    if (result->gates[i].state == BS_GATE_FAIL) failed = &result->gates[i];
  }
  if (failed == NULL) {
    bs_error_set(err, BS_INCONCLUSIVE, "BS-GATE-NONE", "%s of %s: no gate could judge the result",
                 e->phase_name, e->method);
    return BS_INCONCLUSIVE;
  }
  char numbers[64] = ""; /* the text has a count */
  if (failed->limit != 0.0 || failed->value != floor(failed->value))
    snprintf(numbers, sizeof numbers, "%.3g, limit %.3g; ", failed->value, failed->limit);
  bs_error_set(err, BS_NUMERIC, "BS-GATE-FAIL", "%s of %s: gate %s failed: %s%s", e->phase_name, e->method,
               failed->name, numbers, failed->text);
  if (err != NULL) err->rank = failed->rank;
  bs_error_hint(err, "--to DIR writes the tensors; metrics.jsonl has every gate");
  return BS_NUMERIC;
}

static void tell_gates(const lab_run *lab, const bs_phase_result *result) {
  for (uint32_t i = 0; lab->host->gate != NULL && i < result->n_gates; i++)
    lab->host->gate(lab->host->user, &result->gates[i]);
}

/* Warns of a method whose counted work differs from its proposal: then every prediction from the proposal is
 * wrong. */
static void warn_claims(const lab_run *lab, const bs_experiment *e, const json_t *record) {
  if (!json_is_false(json_object_get(record, "claims_match_counts"))) return;
  char text[320];
  snprintf(text, sizeof text,
           "%.64s: %.64s does not do what it proposed: the host counted other FLOPs, collectives or "
           "message bytes (%lld FLOPs a forward over all ranks)",
           e->phase_name, e->method,
           (long long)json_integer_value(json_object_get(record, "flops_per_forward")));
  lab_run_warn(lab, text);
}

/* Reports properties of the samples that a median would hide. */
static void tell_of_samples(const lab_run *lab, const json_t *record) {
  static const char *const cold = "cold: ";
  const json_t *lists[] = {
      json_object_get(record, "measuring_warnings"),
      json_object_get(json_object_get(record, "pairs_cold"), "measuring_warnings"),
  };
  for (size_t k = 0; k < 2; k++) {
    for (size_t i = 0; i < json_array_size(lists[k]); i++) {
      char text[256];
      snprintf(text, sizeof text, "%s%s", k == 0 ? "" : cold, json_string_value(json_array_get(lists[k], i)));
      lab_run_detail(lab, text);
    }
  }
}

static int asks_for_half(const bs_experiment *e) {
  for (uint32_t i = 0; i < e->n_method_options; i++)
    if (strcmp(e->method_keys[i], "half") == 0) return 1;
  return 0;
}

/* Reports before the run the expected error of a layer that leaves weights out, or whose columns are kept in
 * two precisions. */
static int32_t tell_errors(const lab_run *lab, const bs_experiment *e, bs_error *err) {
  double half = 0.0;
  bs_mixed_error mixed;
  char text[160];
  const int32_t rc = bs_errors_expected(lab->context, e, &half, &mixed, err);
  if (rc != BS_OK) return rc;
  snprintf(text, sizeof text, "half alone: a relative error of %.3g in Y is expected of normal weights",
           half);
  if (half > 0.0) lab_run_note(lab, text);
  if (mixed.asked) lab_run_note(lab, mixed.text);
  return BS_OK;
}

static int32_t run_experiment(lab_run *lab, bs_experiment *e, bs_phase_result *result, bs_error *err) {
  const bs_progress_fn show = lab->host->progress;
  void *user = lab->host->user;
  const int32_t rc = bs_overlap_settle(lab->context, e, err);
  if (rc != BS_OK) return rc;
  if (e->phase != BS_PHASE_CORRECTNESS && bs_clock_is_virtual(lab->context, e->comm)) {
    char traced[512];
    const int32_t ran = bs_simulated_run(lab->context, e, show, user, result, err);
    if (ran == BS_OK && bs_simulated_trace_text(result->record, traced, sizeof traced))
      lab_run_note(lab, traced);
    return ran;
  }
  if (e->phase == BS_PHASE_CORRECTNESS) return bs_phase0_run(lab->context, e, show, user, result, err);
  if (e->phase == BS_PHASE_BACKWARD) return bs_phase2_run(lab->context, e, show, user, result, err);
  if (e->phase == BS_PHASE_TRAIN) return bs_phase3_run(lab->context, e, show, user, result, err);
  return bs_phase1_run(lab->context, e, show, user, result, err);
}

int32_t lab_run_follow_end(lab_run *lab, const char *what, int32_t rc, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  int32_t status = BS_OK;
  if (rc != BS_OK && lab->host->failed != NULL) lab->host->failed(lab->host->user, err);
  /* Rank 0 has failed too, and reports that soon, or it is the one that hangs. */
  const double seconds = rc == BS_OK ? 0.0 : rc == BS_DEADLINE ? 0.3 : 5.0;
  const int32_t heard = bs_peers_await_end(lab->peers, seconds, &status, &why);
  if (heard != BS_OK) {
    if (rc == BS_OK) *err = why;
    return rc == BS_OK ? heard : rc;
  }
  return status == BS_OK ? rc : bs_error_set(err, status, LAB_RUN_FOLLOWS_ID, "rank 0 has ended %s", what);
}

/* Sends the path of the flight recorder to the other ranks: "HOST\nPATH"; ranks on other machines cannot map
 * it. The followers open it; a follower that cannot is not recorded. */
static int32_t share_recorder(lab_run *lab, const bs_run *run, bs_error *err) {
  char here[256] = "";
  bs_text text = {0};
  char *told = NULL;
  gethostname(here, sizeof here - 1);
  if (run != NULL) bs_text_printf(&text, "%s\n%s/flight", here, bs_run_get_path(run));
  int32_t rc = text.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
  if (rc == BS_OK) rc = bs_peers_text(lab->peers, text.data != NULL ? text.data : "", &told, err);
  const size_t host = told != NULL ? strcspn(told, "\n") : 0;
  if (rc == BS_OK && told != NULL && told[host] == '\n' && host == strlen(here) &&
      memcmp(told, here, host) == 0)
    (void)bs_flight_join(told + host + 1, NULL);
  free(told);
  bs_text_free(&text);
  return rc;
}

/* Runs in a process that is not rank 0: its rank of the phase, which ends as rank 0 commands. */
static int32_t follow_phase(lab_run *lab, bs_experiment *e, bs_error *err) {
  bs_phase_result result = {0};
  bs_told told;
  int32_t rc = bs_peers_hear(lab->peers, &told, err);
  if (rc == BS_OK && told.word == BS_WORD_START) {
    rc = share_recorder(lab, NULL, err);
    if (rc == BS_OK) rc = run_experiment(lab, e, &result, err);
    bs_flight_close();
    bs_phase_result_free(&result);
    if (bs_context_stuck(lab->context) > 0) return rc;
  }
  return lab_run_follow_end(lab, e->phase_name, rc, err);
}

static int32_t tell(lab_run *lab, uint32_t word, int32_t status, bs_error *err) {
  const bs_told told = {.word = word, .status = status};
  return bs_peers_tell(lab->peers, &told, err);
}

/* ---- rank 0 ----------------------------------------------------------------------------------- */

/* A phase that has a folder. */
typedef struct open_phase {
  uint32_t world;
  json_t *plugins, *load, *inputs, *record;
  bs_run *run;
} open_phase;

static void open_phase_free(open_phase *o) {
  json_decref(o->record);
  json_decref(o->plugins);
  json_decref(o->load);
  json_decref(o->inputs);
}

static int32_t open_folder(lab_run *lab, bs_experiment *e, open_phase *o, bs_error *err) {
  int32_t rc = lab_run_open_parts(lab->context, e, &o->world, err);
  if (rc == BS_OK) lab_run_doing(lab, e, e->phase_name);
  if (rc == BS_OK) rc = lab_run_check_memory(lab->context, e, err);
  if (rc == BS_OK &&
      (asks_for_half(e) || bs_mixed_wanted(e->n_method_options, e->method_keys, e->method_values) >= 0))
    rc = tell_errors(lab, e, err);
  if (rc == BS_OK) rc = lab_run_begin(lab, e, o->world, &o->plugins, &o->load, o->inputs, &o->run, err);
  if (rc == BS_OK && lab->host->opened != NULL) lab->host->opened(lab->host->user, bs_run_get_fd(o->run));
  return rc;
}

static int32_t start_record(const bs_experiment *e, open_phase *o, bs_error *err) {
  o->record = bs_record_start(e, bs_run_get_id(o->run), o->plugins);
  if (o->record == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  json_object_set_new(o->record, "launch", json_string(bs_schema_str(e->config, "hardware.launch")));
  json_object_set(o->record, "load_average", o->load);
  json_object_set(o->record, "inputs", o->inputs);
  return BS_OK;
}

static int32_t keep(lab_run *lab, const bs_experiment *e, open_phase *o, const bs_phase_result *result,
                    bs_error *err) {
  tell_gates(lab, result);
  warn_claims(lab, e, result->record);
  tell_of_samples(lab, result->record);
  const int32_t rc = keep_result(lab, o->run, o->record, result, err);
  return rc == BS_OK ? judge(e, result, err) : rc;
}

/* The folder of a phase that gave no result. */
static void drop(const lab_run *lab, const bs_experiment *e, open_phase *o, int32_t rc, const bs_error *why) {
  if (bs_stop_asked() == 0 && o->record != NULL && !never_ran(rc) &&
      add_layer(o->record, e, o->world) == BS_OK) {
    keep_failed(lab, o->run, o->record, why);
    return;
  }
  closed(lab);
  if (bs_stop_asked() != 0)
    bs_store_interrupt(o->run, bs_stop_asked());
  else
    bs_store_abandon(o->run);
}

static int32_t lead_phase(lab_run *lab, bs_experiment *e, bs_error *err) {
  bs_phase_result result = {0};
  open_phase open = {.world = 1, .inputs = json_array()};
  int32_t rc = open_folder(lab, e, &open, err);
  if (rc == BS_OK) {
    rc = start_record(e, &open, err);
    if (rc == BS_OK) rc = tell(lab, BS_WORD_START, BS_OK, err);
    if (rc == BS_OK) rc = share_recorder(lab, open.run, err);
    if (rc == BS_OK) rc = run_experiment(lab, e, &result, err);
    if (rc == BS_OK)
      rc = keep(lab, e, &open, &result, err);
    else
      drop(lab, e, &open, rc, err);
    bs_phase_result_free(&result);
  }
  open_phase_free(&open);
  if (lab->host->doing != NULL) lab->host->doing(lab->host->user, NULL, NULL);
  return rc;
}

int32_t lab_run_phase(lab_run *lab, bs_experiment *e, bs_error *err) {
  bs_error ignored = BS_ERROR_INIT;
  if (!bs_peers_lead(lab->peers)) return follow_phase(lab, e, err);
  const int32_t rc = lead_phase(lab, e, err);
  if (bs_context_stuck(lab->context) > 0) return rc;
  if (rc == BS_DEADLINE || rc == BS_RANK_FAILED) { /* the end was waited for already, or cannot come */
    const bs_told end = {.word = BS_WORD_END, .status = rc};
    bs_peers_tell_soon(lab->peers, &end, 0.3, &ignored);
    return rc;
  }
  const int32_t told = tell(lab, BS_WORD_END, rc, rc == BS_OK ? err : &ignored);
  return rc == BS_OK ? told : rc;
}
