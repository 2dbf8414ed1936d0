/* SPDX-License-Identifier: MIT
 * run_phase.c - one phase of one experiment as one run folder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/run.h"
#include "core/base/error.h"
#include "core/base/size.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/gate/half.h"
#include "lab/gate/mixed.h"
#include "lab/measure/chunks.h"
#include "lab/peers/peers.h"
#include "lab/phase/simulated.h"
#include "lab/stop.h"
#include "lab/store/env.h"
#include "lab/store/record.h"

/* Opens what the run will use, so that a missing part is told before a folder exists and every plugin is in
 * the run's key. */
static int32_t open_parts(bs_context *context, const bs_experiment *e, uint32_t *out_world, bs_error *err) {
  const bs_method *method;
  const bs_workload *workload;
  const bs_backend *backend;
  const bs_comm *comm;
  void *state;
  int32_t rc = bs_find_method(context, e->method, &method, &state, err);
  if (rc == BS_OK) rc = bs_find_workload(context, e->workload, &workload, &state, err);
  if (rc == BS_OK) rc = bs_find_backend(context, e->backend, &backend, &state, err);
  if (rc == BS_OK) rc = bs_find_comm(context, e->comm, &comm, &state, err);
  if (rc != BS_OK) return rc;
  *out_world = bs_experiment_world(e, method);
  return BS_OK;
}

void run_tell_of(const run_session *s, const bs_experiment *e, const char *doing) {
  bs_text what = {0};
  uint32_t n = 0;
  bs_text_printf(&what, "%s of %s", doing, e->method);
  for (uint32_t i = 0; i < bs_plugin_count(s->context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(s->context, i, &info, NULL) != BS_OK || info.state != BS_PLUGIN_ACTIVE || info.builtin)
      continue;
    bs_text_printf(&what, "%s%s", n++ == 0 ? " (plugins in use: " : ", ", info.id);
  }
  bs_text_printf(&what, "%s", n > 0 ? ")" : "");
  bsrun_died_watch(what.failed ? NULL : what.data);
  bs_text_free(&what);
}

static int add_product(uint64_t *sum, uint64_t a, uint64_t b, uint64_t c) {
  uint64_t product;
  return bs_mul_u64(a, b, &product) && bs_mul_u64(product, c, &product) && bs_add_u64(*sum, product, sum);
}

/* The least that the run must hold: the method's weight and, in phase 1, each dense peer's; X and Y of every
 * rank; in phase 0 the fp64 reference; in phase 2 the gradients, those of W on the ranks and beside them.
 * Refused with the numbers when the machine has less. */
static int32_t check_memory(const bs_experiment *e, uint32_t world, bs_error *err) {
  const uint64_t element = BS_DTYPE_BYTES(e->dtype);
  const uint64_t n = (uint64_t)e->N, k = (uint64_t)e->K, b = (uint64_t)e->B;
  const uint64_t peers = e->phase == BS_PHASE_FORWARD && e->dense_arm ? (world > 1 ? 2 : 1) : 0;
  const uint64_t backward = e->phase >= BS_PHASE_BACKWARD, wide = e->dtype == BS_F64 ? 8 : 4;
  const uint64_t features =
      e->reference_features > 0 && e->reference_features < e->N ? (uint64_t)e->reference_features : n;
  const uint64_t available = bs_env_memory_available();
  uint64_t need = 0, xy = 0;
  if (n == 0 || k == 0 || b == 0) return BS_OK; /* the workload knows; its reader is bounded by its file */
  int fits = add_product(&need, n, k, element * (1 + peers) + 2 * backward * wide) && bs_add_u64(k, n, &xy) &&
             add_product(&need, xy, b, element * (world * (1 + backward) + peers));
  if (fits && e->phase == BS_PHASE_CORRECTNESS) fits = add_product(&need, b, features, sizeof(double));
  if (fits && (available == 0 || need <= available)) return BS_OK;
  const double gib = 1024.0 * 1024.0 * 1024.0;
  if (!fits) {
    bs_error_set(err, BS_NO_MEMORY, "BS-RUN-MEMORY", "N=%lld K=%lld B=%lld: the bytes overflow 64 bits",
                 (long long)e->N, (long long)e->K, (long long)e->B);
  } else {
    bs_error_set(err, BS_NO_MEMORY, "BS-RUN-MEMORY",
                 "N=%lld K=%lld B=%lld needs at least %.1f GiB, %.1f are free", (long long)e->N,
                 (long long)e->K, (long long)e->B, (double)need / gib, (double)available / gib);
  }
  bs_error_hint(err, "smaller model.N or model.B, a narrower dtype, or phase.dense_arm=false");
  return BS_NO_MEMORY;
}

int32_t run_check_memory(const run_session *s, const bs_experiment *e, bs_error *err) {
  uint32_t world = 1;
  const int32_t rc = run_world(s->context, e, &world, err);
  if (bs_backend_is_phantom(s->context, e->backend)) return rc; /* the row tells the bytes of a device */
  return rc == BS_OK ? check_memory(e, world, err) : rc;
}

/* Grades are told of the plugins that run, but a grade changes no result: the run's key is made without. */
int32_t run_begin(run_session *s, bs_experiment *e, uint32_t world, json_t **out_plugins, json_t **out_load,
                  json_t *out_inputs, bs_run **out_run, bs_error *err) {
  char key[65], *command = bsrun_command_line();
  bs_node *config = NULL;
  json_t *env = bs_env_collect(s->context);
  if (command != NULL && env != NULL) json_object_set_new(env, "command", json_string(command));
  free(command);
  *out_load = json_incref(json_object_get(json_object_get(env, "system"), "load_average"));
  int32_t rc = bs_grades_mark(&s->grades, json_object_get(env, "plugins"), err);
  char *env_text = rc != BS_OK || env == NULL ? NULL : bs_env_text(env);
  json_decref(env);
  if (env_text == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK) rc = bs_env_plugins(s->context, out_plugins, err);
  if (rc == BS_OK) rc = bs_experiment_settle(e, world, &config, err);
  if (rc == BS_OK) rc = bs_record_key(e, config, *out_plugins, world, out_inputs, key, err);
  if (rc == BS_OK) rc = bs_grades_mark(&s->grades, *out_plugins, err);
  if (rc == BS_OK) {
    const bs_run_request q = {.out_dir = e->out_dir,
                              .group = s->group,
                              .phase = e->phase_name,
                              .method = e->method,
                              .run_id = s->run_id,
                              .key = key,
                              .config = config,
                              .env = env_text,
                              .seed = e->seed};
    rc = bs_store_begin(&q, out_run, err);
  }
  bs_config_free(config);
  free(env_text);
  return rc;
}

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

static void keep_failed(bs_run *run, json_t *record, const bs_error *why) {
  bs_error ignored = BS_ERROR_INIT;
  int32_t rc = bs_record_failed(record, why);
  if (rc == BS_OK) rc = bs_store_append(run, record, &ignored);
  run_signals_watch(-1);
  bsrun_log_end();
  if (rc == BS_OK) {
    bs_store_commit(run, "failed", &ignored);
  } else {
    bs_store_abandon(run);
  }
}

/* What is printed of a run is printed once it exists: after DONE. */
static int32_t keep_result(run_session *s, bs_run *run, json_t *record, const bs_phase_result *result,
                           bs_error *err) {
  int32_t rc = bs_record_finish(record, result, err);
  if (rc == BS_OK) rc = run_add_figures(record, err);
  if (rc == BS_OK) rc = bs_store_append(run, record, err);
  run_signals_watch(-1);
  bsrun_log_end();
  if (rc != BS_OK) {
    bs_store_abandon(run);
    return rc;
  }
  json_t *path = json_string(bs_run_get_path(run));
  rc = bs_store_commit(run, result->passed ? "ok" : "not passed", err);
  if (rc == BS_OK) rc = run_add_rows(s->rows, record, json_string_value(path), err);
  if (rc == BS_OK) json_array_append(s->folders, path);
  if (rc == BS_OK) json_array_append(s->records, record);
  json_decref(path);
  return rc;
}

/* What a finished, committed phase says: BS_OK, BS_NUMERIC or BS_INCONCLUSIVE. */
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
  char numbers[64] = ""; /* a count stands in the text */
  if (failed->limit != 0.0 || failed->value != floor(failed->value))
    snprintf(numbers, sizeof numbers, "%.3g, limit %.3g; ", failed->value, failed->limit);
  bs_error_set(err, BS_NUMERIC, "BS-GATE-FAIL", "%s of %s: gate %s failed: %s%s", e->phase_name, e->method,
               failed->name, numbers, failed->text);
  if (err != NULL) err->rank = failed->rank;
  bs_error_hint(err, "--dump DIR writes the tensors; metrics.jsonl has every gate");
  return BS_NUMERIC;
}

static void print_gates(const run_session *s, const bs_phase_result *result) {
  static const char *const states[] = {"FAIL", "pass", "unknown", "skipped"};
  for (uint32_t i = 0; s->verbose && i < result->n_gates; i++) {
    const bs_gate *g = &result->gates[i];
    fprintf(stderr, "bsrun: gate %-10s %-7s %.3g, limit %.3g; %s\n", g->name, states[g->state & 3u], g->value,
            g->limit, g->text);
  }
}

/* A method whose counted work is not what it proposed: every prediction made from the proposal is off. */
static void warn_claims(const bs_experiment *e, const json_t *record) {
  if (!json_is_false(json_object_get(record, "claims_match_counts"))) return;
  char text[320];
  snprintf(text, sizeof text,
           "%.64s: %.64s does not do what it proposed: the host counted other FLOPs, collectives or "
           "message bytes (%lld FLOPs a forward over all ranks)",
           e->phase_name, e->method,
           (long long)json_integer_value(json_object_get(record, "flops_per_forward")));
  bsrun_warn(text);
}

/* What the samples were like, where a median would hide it: into the log, and with -v onto the screen. */
static void tell_of_samples(const run_session *session, const json_t *record) {
  static const char *const cold = "cold: ";
  const json_t *lists[] = {
      json_object_get(record, "measuring_warnings"),
      json_object_get(json_object_get(record, "pairs_cold"), "measuring_warnings"),
  };
  for (size_t k = 0; k < 2; k++) {
    for (size_t i = 0; i < json_array_size(lists[k]); i++) {
      char text[256];
      snprintf(text, sizeof text, "%s%s", k == 0 ? "" : cold, json_string_value(json_array_get(lists[k], i)));
      bsrun_detail(session->verbose, text);
    }
  }
}

static int asks_for_half(const bs_experiment *e) {
  for (uint32_t i = 0; i < e->n_method_options; i++)
    if (strcmp(e->method_keys[i], "half") == 0) return 1;
  return 0;
}

/* A layer that leaves weights out says how wrong it will be before it is run, and so does one whose columns
 * are kept in two precisions. */
static int32_t tell_errors(const run_session *session, const bs_experiment *e, bs_error *err) {
  double half = 0.0;
  bs_mixed_error mixed;
  char text[160];
  const int32_t rc = bs_errors_expected(session->context, e, &half, &mixed, err);
  if (rc != BS_OK) return rc;
  snprintf(text, sizeof text, "half alone: a relative error of %.3g in Y is expected of normal weights",
           half);
  if (half > 0.0) bsrun_note(session->quiet, text);
  if (mixed.asked) bsrun_note(session->quiet, mixed.text);
  return BS_OK;
}

static int32_t run_experiment(run_session *session, bs_experiment *e, bsrun_progress *progress,
                              bs_phase_result *result, bs_error *err) {
  const bs_progress_fn show = bsrun_progress_to(session->quiet);
  const int32_t rc = bs_overlap_settle(session->context, e, err);
  if (rc != BS_OK) return rc;
  if (e->phase != BS_PHASE_CORRECTNESS && bs_clock_is_virtual(session->context, e->comm))
    return bs_simulated_run(session->context, e, show, progress, result, err);
  if (e->phase == BS_PHASE_CORRECTNESS)
    return bs_phase0_run(session->context, e, show, progress, result, err);
  if (e->phase == BS_PHASE_BACKWARD) return bs_phase2_run(session->context, e, show, progress, result, err);
  if (e->phase == BS_PHASE_TRAIN) return bs_phase3_run(session->context, e, show, progress, result, err);
  return bs_phase1_run(session->context, e, show, progress, result, err);
}

int32_t run_follow_end(bs_peers *peers, const char *what, int32_t rc, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  int32_t status = BS_OK;
  if (rc != BS_OK) bsrun_rank_error(err); /* where rank 0 does not live to say it */
  /* Rank 0 has failed with us, and says so soon, or is the one that hangs. */
  const double seconds = rc == BS_OK ? 0.0 : rc == BS_DEADLINE ? 0.3 : 5.0;
  const int32_t heard = bs_peers_await_end(peers, seconds, &status, &why);
  if (heard != BS_OK) {
    if (rc == BS_OK) *err = why;
    return rc == BS_OK ? heard : rc;
  }
  return status == BS_OK ? rc : bs_error_set(err, status, BSRUN_FOLLOWS, "rank 0 has ended %s", what);
}

/* A process that is not rank 0 runs its rank of the phase, and ends it as rank 0 says. */
static int32_t follow_phase(run_session *session, bs_experiment *e, bs_error *err) {
  bsrun_progress progress = {.busy = ATOMIC_FLAG_INIT};
  bs_phase_result result = {0};
  bs_told told;
  int32_t rc = bs_peers_hear(session->peers, &told, err);
  if (rc == BS_OK && told.word == BS_WORD_START) {
    rc = run_experiment(session, e, &progress, &result, err);
    bs_phase_result_free(&result);
    if (bs_context_stuck(session->context) > 0) return rc;
  }
  return run_follow_end(session->peers, e->phase_name, rc, err);
}

static int32_t tell(run_session *session, uint32_t word, int32_t status, bs_error *err) {
  const bs_told told = {.word = word, .status = status};
  return bs_peers_tell(session->peers, &told, err);
}

static int32_t lead_phase(run_session *session, bs_experiment *e, bs_error *err);

int32_t run_phase(run_session *session, bs_experiment *e, bs_error *err) {
  bs_error ignored = BS_ERROR_INIT;
  if (!bs_peers_lead(session->peers)) return follow_phase(session, e, err);
  const int32_t rc = lead_phase(session, e, err);
  if (bs_context_stuck(session->context) > 0) return rc;
  if (rc == BS_DEADLINE || rc == BS_RANK_FAILED) { /* one has been waited for already, or cannot come */
    const bs_told end = {.word = BS_WORD_END, .status = rc};
    bs_peers_tell_soon(session->peers, &end, 0.3, &ignored);
    return rc;
  }
  const int32_t told = tell(session, BS_WORD_END, rc, rc == BS_OK ? err : &ignored);
  return rc == BS_OK ? told : rc;
}

static int32_t lead_phase(run_session *session, bs_experiment *e, bs_error *err) {
  bsrun_progress progress = {
      .of = e->phase_name, .point = session->point, .points = session->points, .busy = ATOMIC_FLAG_INIT};
  bs_phase_result result = {0};
  json_t *plugins = NULL, *record = NULL, *load = NULL, *inputs = json_array();
  bs_run *run = NULL;
  uint32_t world = 1;
  int32_t rc = open_parts(session->context, e, &world, err);
  if (rc == BS_OK) run_tell_of(session, e, e->phase_name);
  if (rc == BS_OK && !bs_backend_is_phantom(session->context, e->backend)) rc = check_memory(e, world, err);
  if (rc == BS_OK &&
      (asks_for_half(e) || bs_mixed_wanted(e->n_method_options, e->method_keys, e->method_values) >= 0))
    rc = tell_errors(session, e, err);
  if (rc == BS_OK) rc = run_begin(session, e, world, &plugins, &load, inputs, &run, err);
  if (rc == BS_OK) {
    run_signals_watch(bs_run_get_fd(run));
    bsrun_log_begin(bs_run_get_fd(run));
    record = bs_record_start(e, bs_run_get_id(run), plugins);
    if (record == NULL) {
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    } else {
      json_object_set_new(record, "launch", json_string(bs_schema_str(e->config, "hardware.launch")));
      json_object_set(record, "load_average", load);
      json_object_set(record, "inputs", inputs);
      rc = tell(session, BS_WORD_START, BS_OK, err);
      if (rc == BS_OK) rc = run_experiment(session, e, &progress, &result, err);
    }
    bsrun_progress_end(&progress);
    if (rc == BS_OK) {
      print_gates(session, &result);
      warn_claims(e, result.record);
      tell_of_samples(session, result.record);
      rc = keep_result(session, run, record, &result, err);
      if (rc == BS_OK) rc = judge(e, &result, err);
    } else if (bs_stop_asked() != 0) {
      bsrun_log_end();
      run_signals_watch(-1);
      bs_store_interrupt(run, bs_stop_asked());
    } else if (record == NULL || never_ran(rc)) {
      run_signals_watch(-1);
      bsrun_log_end();
      bs_store_abandon(run);
    } else {
      keep_failed(run, record, err);
    }
    bs_phase_result_free(&result);
  }
  json_decref(record);
  json_decref(plugins);
  bsrun_died_watch(NULL);
  json_decref(load);
  json_decref(inputs);
  return rc;
}
