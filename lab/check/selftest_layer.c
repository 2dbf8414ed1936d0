/* SPDX-License-Identifier: MIT
 * selftest_layer.c - the gates of layers: small layers run phases 0, 2 and 3, whose gate T6 injects each
 * fault that fits the layer. The layers are chosen so that each fault fits one. */
#include <stdio.h>
#include <string.h>

#include "lab/check/selftest_parts.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/gate/faults.h"
#include "lab/json.h"
#include "lab/phase/frame.h"

enum pass { FORWARD, BACKWARD, TRAINING };
static const struct {
  const char *name, *gates;
  int32_t (*run)(bs_context *, const bs_experiment *, bs_progress_fn, void *, bs_phase_result *, bs_error *);
} passes[] = {{"forward", "T1 to T4", bs_phase0_run},
              {"backward", "dX, dW, db", bs_phase2_run},
              {"training", "W, b, y", bs_phase3_run}};

#define TWO_RANKS                                            \
  "hardware: {backend: cpu, comm: threads, world_size: 2}\n" \
  "model: {B: 16, N: 96, K: 64, dtype: float32"
#define PHASE0 "phase: {name: phase0_correctness}\n"
#define PHASE2 "phase: {name: phase2_backward_input}\n"
#define PHASE3 "phase: {name: phase3_train_step, optimizer: adamw}\n"
static const struct layer {
  uint32_t pass; /* enum pass */
  const char *name, *yaml;
} layers[] = {
    {FORWARD, "row_parallel, gelu", PHASE0 "method: {name: row_parallel}\n" TWO_RANKS ", activation: gelu}"},
    {FORWARD, "2:4 halves", PHASE0 "method: {name: blockshock}\nmask: {name: random_2of4}\n" TWO_RANKS "}"},
    {FORWARD, "fp8 in blocks",
     PHASE0 "method: {name: row_parallel, mixed: 0, mixed_dtype: f8e4m3, mixed_scales: block}\n" TWO_RANKS
            "}"},
    {FORWARD, "8 bits", PHASE0 "method: {name: row_parallel, mixed: 32}\n" TWO_RANKS "}"},
    {BACKWARD, "row_parallel, gelu", PHASE2 "method: {name: row_parallel}\n" TWO_RANKS ", activation: gelu}"},
    {BACKWARD, "column_parallel", PHASE2 "method: {name: column_parallel}\n" TWO_RANKS "}"},
    {TRAINING, "row_parallel, gelu", PHASE3 "method: {name: row_parallel}\n" TWO_RANKS ", activation: gelu}"},
};
enum { N_LAYERS = sizeof layers / sizeof layers[0] };

/* Results of the faults of one pass over all layers: rows by the fault's name. */
typedef struct suite {
  bs_selftest *out;
  json_t *rows[TRAINING + 1];
} suite;

/* The row of a fault, created on first use. Borrowed; NULL: out of memory. */
static json_t *row_of(suite *s, uint32_t pass, const char *fault) {
  char full[80];
  json_t *row = json_object_get(s->rows[pass], fault);
  if (row != NULL) return row;
  snprintf(full, sizeof full, "%s %s", passes[pass].name, fault);
  row = json_pack("{ss,ss,ss,ss,ss,ss}", "suite", "layer", "fault", full, "gate",
                  strncmp(fault, "integer", 7) == 0 ? "T5" : passes[pass].gates, "state", "caught", "by", "",
                  "text", "");
  return row != NULL && json_object_set_new(s->rows[pass], fault, row) == 0 ? row : NULL;
}

/* Sets the cell of a gate; "caught" is never overwritten. */
static void mark(json_t *row, const char *gate, int caught) {
  char by[200];
  if (strcmp(bs_get_text(row, gate), "caught") == 0) return;
  json_object_set_new(row, gate, json_string(caught ? "caught" : "let pass"));
  if (!caught) return;
  snprintf(by, sizeof by, "%s%s%s", bs_get_text(row, "by"), bs_get_text(row, "by")[0] != '\0' ? ", " : "",
           gate);
  json_object_set_new(row, "by", json_string(by));
}

/* Gates that judge the outputs of a faulty run: not those on integers and on the faults themselves. */
static int judges(const bs_gate *gate) {
  return strcmp(gate->name, "T6") != 0 && strstr(gate->name, "T5") == NULL && gate->state != BS_GATE_SKIPPED;
}

static int32_t add_caught(suite *s, const struct layer *l, const bs_phase_result *result, bs_error *err) {
  const char *fault;
  json_t *gates;
  json_object_foreach(json_object_get(result->record, "faults_caught_by"), fault, gates) {
    size_t i;
    json_t *gate;
    json_t *row = row_of(s, l->pass, fault);
    if (row == NULL) return bs_no_memory(err, "a row of the self-test");
    for (uint32_t g = 0; g < result->n_gates; g++) {
      if (judges(&result->gates[g])) mark(row, result->gates[g].name, 0);
    }
    json_array_foreach(gates, i, gate) mark(row, json_string_value(gate), 1);
  }
  return BS_OK;
}

/* Adds the missed faults "a, b" as rows. */
static int32_t add_missed(suite *s, const struct layer *l, const char *list, bs_error *err) {
  char fault[64];
  for (const char *at = list; *at != '\0'; at += strspn(at, ", ")) {
    const size_t length = strcspn(at, ",");
    snprintf(fault, sizeof fault, "%.*s", (int)length, at);
    at += length;
    json_t *row = row_of(s, l->pass, fault);
    if (row == NULL) return bs_no_memory(err, "a row of the self-test");
    json_object_set_new(row, "state", json_string("MISSED"));
    json_object_set_new(row, "text", json_string(l->name));
  }
  return BS_OK;
}

/* T6 proves by one lost weight that T5 can fail. */
static int32_t add_integer(suite *s, const struct layer *l, const bs_phase_result *result, bs_error *err) {
  int ran = 0;
  for (uint32_t g = 0; g < result->n_gates; g++)
    ran |= strcmp(result->gates[g].name, "T5") == 0 && result->gates[g].state != BS_GATE_SKIPPED;
  if (l->pass != FORWARD || !ran) return BS_OK;
  json_t *row = row_of(s, l->pass, "integer weight_lost");
  if (row == NULL) return bs_no_memory(err, "a row of the self-test");
  mark(row, "T5", strstr(bs_get_text(result->record, "faults_missed"), "integer weight_lost") == NULL);
  return BS_OK;
}

/* The row of the layer without a fault. */
static int32_t add_clean(const struct layer *l, const bs_phase_result *result, bs_selftest *out,
                         bs_error *err) {
  static const char *const words[] = {"caught", "passed", "unknown", "not applicable"};
  char name[80], by[200] = "";
  json_t *row;
  snprintf(name, sizeof name, "none: %s of %s", passes[l->pass].name, l->name);
  row = json_pack("{ss,ss,ss,ss,ss}", "suite", "layer", "fault", name, "gate", "none", "state",
                  result->passed ? "clean" : "FALSE ALARM", "text", "");
  for (uint32_t g = 0; row != NULL && g < result->n_gates; g++) {
    const bs_gate *gate = &result->gates[g];
    json_object_set_new(row, gate->name, json_string(words[gate->state]));
    if (gate->state == BS_GATE_FAIL) bs_fault_note(by, sizeof by, gate->name, "");
  }
  json_object_set_new(row, "by", json_string(by));
  return bs_selftest_add(out, row, err);
}

static int32_t run_layer(bs_context *context, const struct layer *l, bs_phase_result *result, bs_error *err) {
  bs_experiment e;
  bs_node *tree = NULL;
  int32_t rc = bs_config_parse(l->name, l->yaml, strlen(l->yaml), &tree, err);
  if (rc == BS_OK) rc = bs_experiment_make(context, tree, NULL, NULL, &e, err);
  if (rc != BS_OK) return rc;
  e.threads_per_rank = 1;
  rc = passes[l->pass].run(context, &e, NULL, NULL, result, err);
  bs_experiment_free(&e);
  return rc;
}

static int32_t one_layer(bs_context *context, const struct layer *l, suite *s, bs_error *err) {
  bs_phase_result result;
  int32_t rc = run_layer(context, l, &result, err);
  if (rc != BS_OK) return rc;
  rc = add_caught(s, l, &result, err);
  if (rc == BS_OK) rc = add_missed(s, l, bs_get_text(result.record, "faults_missed"), err);
  if (rc == BS_OK) rc = add_integer(s, l, &result, err);
  if (rc == BS_OK) rc = add_clean(l, &result, s->out, err);
  bs_phase_result_free(&result);
  return rc;
}

/* Adds a row for each fault that fitted no layer: the self-test proves nothing about it. */
static int32_t add_never_made(suite *s, bs_error *err) {
  for (uint32_t kind = 0; kind < BS_FAULT_COUNT_; kind++) {
    const uint32_t pass = kind < BS_FAULT_FORWARD_COUNT_ ? FORWARD : BACKWARD;
    if (json_object_get(s->rows[pass], bs_fault_name(kind)) != NULL) continue;
    json_t *row = row_of(s, pass, bs_fault_name(kind));
    if (row == NULL) return bs_no_memory(err, "a row of the self-test");
    json_object_set_new(row, "state", json_string("MISSED"));
    json_object_set_new(row, "text", json_string("no layer could be given it"));
  }
  return BS_OK;
}

static int32_t add_rows(suite *s, bs_error *err) {
  int32_t rc = add_never_made(s, err);
  for (uint32_t pass = 0; rc == BS_OK && pass <= TRAINING; pass++) {
    const char *fault;
    json_t *row;
    json_object_foreach(s->rows[pass], fault, row) {
      rc = bs_selftest_add(s->out, json_incref(row), err);
      if (rc != BS_OK) break;
    }
  }
  return rc;
}

int32_t bs_selftest_layers(const bs_selftest_request *request, bs_selftest *out, bs_error *err) {
  suite s = {.out = out};
  bs_context *context = NULL;
  int32_t rc = bs_selftest_context(request, NULL, NULL, &context, err);
  for (uint32_t pass = 0; rc == BS_OK && pass <= TRAINING; pass++) {
    s.rows[pass] = json_object();
    if (s.rows[pass] == NULL) rc = bs_no_memory(err, "rows of the self-test");
  }
  for (uint32_t i = 0; rc == BS_OK && i < N_LAYERS; i++) {
    if (request->progress != NULL) request->progress(request->user, layers[i].name, i, N_LAYERS);
    rc = one_layer(context, &layers[i], &s, err);
  }
  if (rc == BS_OK) rc = add_rows(&s, err);
  for (uint32_t pass = 0; pass <= TRAINING; pass++) json_decref(s.rows[pass]);
  bs_context_close(context);
  return rc;
}
