/* SPDX-License-Identifier: MIT
 * phase0.c - phase 0, correctness: run the layer, judge every rank against the fp64 reference (T1-T4), repeat
 * it on integers (T5), prove that the gates can fail (T6). Nothing here is timed for comparison; regions are
 * kept for the record. */
#include <math.h>
#include <stdio.h>

#include "lab/case/case.h"
#include "lab/case/loss.h"
#include "lab/gate/faults.h"
#include "lab/gate/half.h"
#include "lab/gate/mixed.h"
#include "lab/gate/repro.h"
#include "lab/gate/verdict.h"
#include "lab/phase/dump.h"
#include "lab/phase/frame.h"
#include "lab/phase/record_fields.h"
#include "lab/store/record.h"

static int32_t integer_gate(const bs_case *c, const bs_experiment *e, bs_phase_result *out, bs_error *err) {
  bs_gate gate;
  if (!e->integer_gate) {
    bs_phase_add_skipped(out, "T5", "phase.integer_gate is off");
    return BS_OK;
  }
  const int32_t rc = bs_integer_gate(c, BS_FAULT_COUNT_, e->reference_features, &gate, err);
  if (rc == BS_OK) bs_phase_add_gates(out, &gate, 1);
  return rc;
}

/* Records which gates caught which fault, so that a gate that catches nothing is visible. */
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
  bs_fault_report r;
  if (!e->fault_gate) {
    bs_phase_add_skipped(out, "T6", "phase.fault_gate is off");
    return BS_OK;
  }
  const int32_t rc = bs_fault_gate(c, &r, err);
  if (rc != BS_OK) return rc;
  gate.value = r.injected - r.caught;
  gate.state = r.injected > 0 && r.caught == r.injected ? BS_GATE_PASS : BS_GATE_FAIL;
  snprintf(gate.text, sizeof gate.text, "%u of %u injected faults caught%s%.60s%s%.30s", r.caught, r.injected,
           r.missed[0] ? "; missed: " : "", r.missed, r.hidden[0] ? "; hidden: " : "", r.hidden);
  record_faults(out->record, &r);
  bs_phase_add_gates(out, &gate, 1);
  return BS_OK;
}

static int32_t fill_record(const bs_case *c, const bs_case_result *result, const bs_verdict *v,
                           const bs_subject *s, bs_phase_result *out, bs_error *err) {
  double loss = 0.0;
  int32_t rc = bs_loss_value(s->info.loss, c, result, s->info.has_target ? &s->target : NULL, &loss, err);
  if (rc == BS_OK)
    rc = bs_record_add(
        out->record,
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "loss_value", bs_record_number(loss),
                  "max_abs_error", bs_record_number(v->max_abs_error), "mean_abs_error",
                  bs_record_number(v->mean_abs_error), "max_rel_error", bs_record_number(v->max_rel_error),
                  "relative_error", bs_record_number(v->relative_error), "relative_error_predicted",
                  bs_record_number(v->predicted), "features_judged", (json_int_t)v->features,
                  "nonfinite_outputs", (json_int_t)(v->nonfinite + v->propagated), "overflowed_outputs",
                  (json_int_t)v->overflow, "nonfinite_inputs", (json_int_t)v->nonfinite_inputs),
        err);
  const int valid = v->nonfinite + v->propagated + v->overflow == 0;
  return rc == BS_OK ? bs_record_judged(out, c, result, s, s->info.loss, valid, err) : rc;
}

/* Judges a half on its own. The gates above have checked its arithmetic; this one checks that it is the
 * requested half. */
static int32_t half_gate(const bs_case *c, const bs_experiment *e, double figure,
                         const bs_case_result *result, bs_phase_result *out, bs_error *err) {
  bs_gate gate;
  double measured = NAN, outputs;
  if (!(figure > 0.0)) return BS_OK;
  int32_t rc = bs_half_gate(c, result, &gate, err);
  if (rc == BS_OK && c->spec.activation == BS_ACT_NONE)
    rc = bs_half_measure(c, result, e->reference_features, &measured, &outputs, err);
  if (rc != BS_OK) return rc;
  bs_phase_add_gates(out, &gate, 1);
  return bs_record_add(out->record,
                       json_pack("{s:o, s:o}", "half_error_expected", bs_record_number(figure), "half_error",
                                 bs_record_number(measured)),
                       err);
}

/* Two precisions: the error that was predicted, and the one that is measured, segment by segment. */
static int32_t mixed_gate(const bs_case *c, const bs_experiment *e, bs_mixed_error *mixed,
                          const bs_case_result *result, bs_phase_result *out, bs_error *err) {
  if (!mixed->asked) return BS_OK;
  bs_gate gate;
  const int32_t rc = bs_mixed_gate(c, result, mixed, e->reference_features, &gate, err);
  if (rc != BS_OK || !bs_case_judged(c)) return rc;
  bs_phase_add_gates(out, &gate, 1);
  return bs_record_mixed(out->record, mixed, err);
}

static int32_t judge_case(const bs_case *c, const bs_experiment *e, const bs_subject *s, double half,
                          bs_mixed_error *mixed, const bs_case_result *result, bs_phase_result *out,
                          bs_error *err) {
  bs_verdict verdict;
  bs_gate promised[2];
  uint32_t n_promised = 0;
  int32_t rc = bs_verdict_make(c, result, e->reference_features, &verdict, err);
  if (rc == BS_OK) bs_phase_add_gates(out, verdict.gates, verdict.n_gates);
  if (rc == BS_OK) rc = bs_repro_gates(c, result, promised, &n_promised, err);
  if (rc == BS_OK) bs_phase_add_gates(out, promised, n_promised);
  if (rc == BS_OK) rc = integer_gate(c, e, out, err);
  if (rc == BS_OK) rc = fault_gate(c, e, out, err);
  if (rc == BS_OK) rc = mixed_gate(c, e, mixed, result, out, err);
  if (rc != BS_OK || !bs_case_judged(c)) return rc;
  rc = half_gate(c, e, half, result, out, err);
  return rc == BS_OK ? fill_record(c, result, &verdict, s, out, err) : rc;
}

static int32_t run_and_judge(bs_case *c, const bs_experiment *e, const bs_subject *s, bs_phase_result *out,
                             bs_error *err) {
  bs_case_result result = {0};
  double half;
  bs_mixed_error mixed;
  bs_dump *dump = NULL;
  int32_t rc = BS_OK;
  c->threads_per_rank = e->threads_per_rank; /* 0: the world chooses */
  if (e->dump_dir) rc = bs_dump_open(e->dump_dir, c->method, c->spec.B, c->world_size, &dump, err);
  if (dump) c->hook = bs_dump_hook(dump);
  if (rc == BS_OK) rc = bs_half_figure(c, &half, err);
  if (rc == BS_OK) rc = bs_mixed_expect(c, &mixed, err);
  if (rc == BS_OK) rc = bs_case_run(c, &result, err);
  if (rc == BS_OK && dump) rc = bs_dump_write(dump, c, &result, err);
  c->hook = NULL;
  if (rc == BS_OK) rc = judge_case(c, e, s, half, &mixed, &result, out, err);
  bs_case_result_free(&result);
  bs_dump_close(dump);
  return rc;
}

int32_t bs_phase0_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                      bs_phase_result *out, bs_error *err) {
  return bs_phase_run_judged(context, e, progress, user, run_and_judge, out, err);
}
