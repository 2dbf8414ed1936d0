/* SPDX-License-Identifier: MIT
 * phase0.c - phase 0, correctness: run the layer, judge every rank against the fp64 reference (T1-T4), repeat
 * it on integers (T5), prove that the gates can fail (T6). Nothing here is timed for comparison; regions are
 * kept for the record. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/gate/faults.h"
#include "lab/gate/half.h"
#include "lab/gate/mixed.h"
#include "lab/gate/repro.h"
#include "lab/gate/verdict.h"
#include "lab/phase/case.h"
#include "lab/phase/dump.h"
#include "lab/phase/loss.h"
#include "lab/phase/record_fields.h"

static void make_case(bs_context *context, const bs_experiment *e, const bs_subject *s,
                      bs_progress_fn progress, void *user, bs_case *out) {
  *out = (bs_case){.context = context,
                   .method = e->method,
                   .backend = e->backend,
                   .comm = e->comm,
                   .peers = e->peers,
                   .world_size = s->world_size,
                   .threads_per_rank = e->threads_per_rank,
                   .bind = e->bind,
                   .sync_mode = e->sync_mode,
                   .timeout_s = e->timeout_s,
                   .choices = e->choices,
                   .n_choices = e->n_choices,
                   .spec = s->spec,
                   .x = &s->x,
                   .w = &s->w,
                   .bias = s->info.has_bias ? &s->bias : NULL,
                   .warmup = e->warmup_iters,
                   .iterations = e->timed_iters,
                   .progress = progress,
                   .progress_user = user};
}

static void add_gate(bs_phase_result *out, const bs_gate *gate) {
  if (out->n_gates < sizeof out->gates / sizeof out->gates[0]) out->gates[out->n_gates++] = *gate;
}

static int32_t integer_gate(const bs_case *c, const bs_experiment *e, bs_phase_result *out, bs_error *err) {
  bs_gate gate;
  if (!e->integer_gate) {
    gate = (bs_gate){.name = "T5", .state = BS_GATE_SKIPPED, .rank = -1, .text = "phase.integer_gate is off"};
  } else {
    const int32_t rc = bs_integer_gate(c, BS_FAULT_COUNT_, e->reference_features, &gate, err);
    if (rc != BS_OK) return rc;
  }
  add_gate(out, &gate);
  return BS_OK;
}

/* Which gates caught which fault: one that catches nothing is seen. */
static void record_faults(json_t *record, const bs_fault_report *r) {
  json_t *all = json_object();
  for (uint32_t kind = 0; kind < BS_FAULT_COUNT_; ++kind) {
    json_t *gates = r->caught_by[kind] ? json_array() : NULL;
    for (uint32_t g = 0; gates && g < BS_FAULT_GATES; ++g)
      if (r->caught_by[kind] >> g & 1u) json_array_append_new(gates, json_string(bs_fault_gate_names[g]));
    if (gates) json_object_set_new(all, bs_fault_name(kind), gates);
  }
  json_object_set_new(record, "faults_caught_by", all);
  json_object_set_new(record, "faults_missed", json_string(r->missed));
  json_object_set_new(record, "faults_hidden", json_string(r->hidden));
}

static int32_t fault_gate(const bs_case *c, const bs_experiment *e, bs_phase_result *out, bs_error *err) {
  bs_gate gate = {.name = "T6", .rank = -1};
  if (!e->fault_gate) {
    gate.state = BS_GATE_SKIPPED;
    snprintf(gate.text, sizeof gate.text, "phase.fault_gate is off");
  } else {
    bs_fault_report r;
    const int32_t rc = bs_fault_gate(c, &r, err);
    if (rc != BS_OK) return rc;
    gate.value = r.injected - r.caught;
    gate.state = r.injected > 0 && r.caught == r.injected ? BS_GATE_PASS : BS_GATE_FAIL;
    snprintf(gate.text, sizeof gate.text, "%u of %u injected faults caught%s%.60s%s%.30s", r.caught, r.injected,
             r.missed[0] ? "; missed: " : "", r.missed, r.hidden[0] ? "; hidden: " : "",
             r.hidden);
    record_faults(out->record, &r);
  }
  add_gate(out, &gate);
  return BS_OK;
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static int32_t fill_record(const bs_case *c, const bs_case_result *result, const bs_verdict *v,
                           const bs_subject *s, bs_phase_result *out, bs_error *err) {
  double loss = 0.0;
  const int32_t rc =
      bs_loss_value(s->info.loss, c, result, s->info.has_target ? &s->target : NULL, &loss, err);
  if (rc != BS_OK) return rc;
  json_object_set_new(out->record, "loss", json_string(bs_loss_name(s->info.loss)));
  json_object_set_new(out->record, "loss_value", number_or_null(loss));
  bs_record_gates(out->record, out);
  json_object_set_new(out->record, "passed", json_boolean(out->passed));
  json_object_set_new(out->record, "valid", json_boolean(v->nonfinite + v->propagated + v->overflow == 0));
  json_object_set_new(out->record, "max_abs_error", number_or_null(v->max_abs_error));
  json_object_set_new(out->record, "mean_abs_error", number_or_null(v->mean_abs_error));
  json_object_set_new(out->record, "max_rel_error", number_or_null(v->max_rel_error));
  json_object_set_new(out->record, "relative_error", number_or_null(v->relative_error));
  json_object_set_new(out->record, "relative_error_predicted", number_or_null(v->predicted));
  json_object_set_new(out->record, "features_judged", json_integer(v->features));
  json_object_set_new(out->record, "nonfinite_outputs",
                      json_integer((json_int_t)(v->nonfinite + v->propagated)));
  json_object_set_new(out->record, "overflowed_outputs", json_integer((json_int_t)v->overflow));
  json_object_set_new(out->record, "nonfinite_inputs", json_integer((json_int_t)v->nonfinite_inputs));
  json_object_set_new(out->record, "iterations", json_integer(result->iterations));
  json_object_set_new(out->record, "warmup_iters", json_integer(c->warmup));
  return bs_record_case_fields(out->record, c, result, s, err);
}

/* One half alone: what it does it does right, by the gates above; that it is not the product is known. */
static int32_t half_gate(const bs_case *c, const bs_experiment *e, const bs_half *half,
                         const bs_case_result *result, bs_phase_result *out, bs_error *err) {
  if (!half->alone) return BS_OK;
  bs_gate gate;
  double measured = 0.0;
  const int32_t rc = bs_half_gate(c, result, half, e->reference_features, &measured, &gate, err);
  if (rc != BS_OK) return rc;
  add_gate(out, &gate);
  json_object_set_new(out->record, "half_error_expected", number_or_null(half->expected));
  json_object_set_new(out->record, "half_error", number_or_null(measured));
  json_object_set_new(out->record, "half_rows_looked_at", json_integer(half->rows));
  return BS_OK;
}

/* Two precisions: the error that was predicted, and the one that is measured, segment by segment. */
static int32_t mixed_gate(const bs_case *c, const bs_experiment *e, bs_mixed_error *mixed,
                          const bs_case_result *result, bs_phase_result *out, bs_error *err) {
  if (!mixed->asked) return BS_OK;
  bs_gate gate;
  const int32_t rc = bs_mixed_gate(c, result, mixed, e->reference_features, &gate, err);
  if (rc != BS_OK || !bs_case_judged(c)) return rc;
  add_gate(out, &gate);
  return bs_record_mixed(out->record, mixed, err);
}

static int32_t judge_case(const bs_case *c, const bs_experiment *e, const bs_subject *s, const bs_half *half,
                          bs_mixed_error *mixed, const bs_case_result *result, bs_phase_result *out,
                          bs_error *err) {
  bs_verdict verdict;
  int32_t rc = bs_verdict_make(c, result, e->reference_features, &verdict, err);
  for (uint32_t i = 0; rc == BS_OK && i < verdict.n_gates; ++i) add_gate(out, &verdict.gates[i]);
  bs_gate promised[2];
  uint32_t n_promised = 0;
  if (rc == BS_OK) rc = bs_repro_gates(c, result, promised, &n_promised, err);
  for (uint32_t i = 0; rc == BS_OK && i < n_promised; ++i) add_gate(out, &promised[i]);
  if (rc == BS_OK) rc = integer_gate(c, e, out, err);
  if (rc == BS_OK) rc = fault_gate(c, e, out, err);
  if (rc == BS_OK) rc = mixed_gate(c, e, mixed, result, out, err);
  if (rc != BS_OK || !bs_case_judged(c)) return rc;
  rc = half_gate(c, e, half, result, out, err);
  if (rc != BS_OK) return rc;
  out->passed = (uint32_t)bs_verdict_passed(out->gates, out->n_gates);
  return fill_record(c, result, &verdict, s, out, err);
}

int32_t bs_phase0_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                      bs_phase_result *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->record = json_object();
  if (!out->record) return bs_error_set(err, BS_NO_MEMORY, "BS-PHASE-MEMORY", "no memory for a record");
  bs_subject subject;
  bs_case c;
  bs_case_result result = {0};
  bs_half half;
  bs_mixed_error mixed;
  bs_dump *dump = NULL;
  int32_t rc = bs_subject_open(context, e, &subject, err);
  if (rc == BS_OK) {
    make_case(context, e, &subject, progress, user, &c);
    if (e->dump_dir) rc = bs_dump_open(e->dump_dir, c.method, c.spec.B, c.world_size, &dump, err);
    if (dump) c.hook = bs_dump_hook(dump);
    if (rc == BS_OK) rc = bs_half_expect(&c, &half, err); /* before anything is computed */
    if (rc == BS_OK) rc = bs_mixed_expect(&c, &mixed, err);
    if (rc == BS_OK) rc = bs_case_run(&c, &result, err);
    if (rc == BS_OK && dump) rc = bs_dump_write(dump, &c, &result, err);
    c.hook = NULL;
    if (rc == BS_OK) rc = judge_case(&c, e, &subject, &half, &mixed, &result, out, err);
    bs_case_result_free(&result);
    bs_dump_close(dump);
    bs_subject_close(&subject);
  }
  if (rc != BS_OK) bs_phase_result_free(out);
  return rc;
}

void bs_phase_result_free(bs_phase_result *result) {
  json_decref(result->record);
  memset(result, 0, sizeof *result);
}
