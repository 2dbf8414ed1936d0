/* SPDX-License-Identifier: MIT
 * phase2.c - phase 2, backward with respect to the input (and to weights and bias): forward, the loss's
 * gradient, backward; dX, dW and db judged against fp64 by the gates of phase 0, with faults that must be
 * caught. Regions are kept for the record, nothing is compared by time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/gate/gradient.h"
#include "lab/phase/arms.h"
#include "lab/phase/loss.h"
#include "lab/phase/record_fields.h"

static int32_t fault_gate(const bs_case *c, const bs_experiment *e, bs_gate *gate, bs_error *err) {
  *gate = (bs_gate){.name = "T6", .rank = -1, .state = BS_GATE_SKIPPED};
  snprintf(gate->text, sizeof gate->text, "phase.fault_gate is off");
  if (!e->fault_gate) return BS_OK;
  uint32_t injected = 0, caught = 0;
  char missed[96];
  const int32_t rc = bs_gradient_fault_gate(c, &injected, &caught, missed, sizeof missed, err);
  if (rc != BS_OK) return rc;
  gate->value = injected - caught;
  gate->state = injected > 0 && caught == injected ? BS_GATE_PASS : BS_GATE_FAIL;
  snprintf(gate->text, sizeof gate->text, "%u of %u injected faults judged rightly%s%s", caught, injected,
           missed[0] ? "; not: " : "", missed);
  return BS_OK;
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static void add_errors(json_t *record, const char *of, const bs_verdict *v) {
  json_object_set_new(record, of,
                      json_pack("{s:o,s:o,s:o,s:o,s:I}", "relative_error", number_or_null(v->relative_error),
                                "relative_error_predicted", number_or_null(v->predicted), "max_abs_error",
                                number_or_null(v->max_abs_error), "max_rel_error",
                                number_or_null(v->max_rel_error), "columns_judged", (json_int_t)v->features));
}

/* What was proposed for one backward, and what the host counted, over all ranks. */
static void add_counts(json_t *record, const bs_gradient_result *result) {
  uint64_t flops = 0, wire = 0;
  int claims = 1;
  for (uint32_t r = 0; r < result->run.world_size; ++r) {
    const uint64_t *counted = result->ranks[r].counters;
    const bs_proposal *p = &result->run.ranks[r].proposal;
    uint64_t payload = 0;
    for (uint32_t i = 0; i < p->n_backward; ++i) payload += p->backward_payload[i];
    flops += counted[BS_COUNT_FLOPS];
    wire += counted[BS_COUNT_WIRE_BYTES];
    claims = claims && counted[BS_COUNT_FLOPS] == p->backward_flops &&
             counted[BS_COUNT_COLLECTIVES] == p->n_backward && counted[BS_COUNT_PAYLOAD_BYTES] == payload;
  }
  json_object_set_new(record, "flops_per_backward", json_integer((json_int_t)flops));
  json_object_set_new(record, "wire_bytes_per_backward", json_integer((json_int_t)wire));
  json_object_set_new(record, "collectives_per_backward",
                      json_integer((json_int_t)result->ranks[0].counters[BS_COUNT_COLLECTIVES]));
  if (!claims) json_object_set_new(record, "claims_match_counts", json_false());
}

static int32_t fill(const bs_case *c, const bs_subject *s, const bs_gradient_result *result,
                    const bs_gradient_verdict *v, bs_phase_result *out, bs_error *err) {
  json_t *record = out->record;
  bs_record_gates(record, out);
  json_object_set_new(record, "loss", json_string(bs_loss_name(s->info.loss)));
  json_object_set_new(record, "passed", json_boolean(out->passed));
  json_object_set_new(
      record, "valid",
      json_boolean(v->dx.nonfinite + v->dx.propagated + v->dw.nonfinite + v->dw.propagated + v->dx.overflow ==
                   0));
  add_errors(record, "dx", &v->dx);
  add_errors(record, "dw", &v->dw);
  if (c->spec.has_bias) add_errors(record, "db", &v->db);
  json_object_set_new(record, "iterations", json_integer(result->run.iterations));
  json_object_set_new(record, "warmup_iters", json_integer(c->warmup));
  const int32_t rc = bs_record_case_fields(record, c, &result->run, s, err);
  if (rc == BS_OK) add_counts(record, result);
  return rc;
}

static int32_t run_and_judge(const bs_case *c, const bs_experiment *e, const bs_subject *s,
                             bs_phase_result *out, bs_error *err) {
  bs_gradient_result result = {0};
  bs_gradient_verdict verdict;
  const bs_source *target = s->info.has_target ? &s->target : NULL;
  int32_t rc = bs_gradient_run(c, s->info.loss, target, &result, err);
  if (rc != BS_OK) return rc;
  rc = bs_gradient_judge(c, &result, e->reference_features, &verdict, err);
  if (rc == BS_OK) {
    out->n_gates = verdict.n_gates;
    memcpy(out->gates, verdict.gates, verdict.n_gates * sizeof *verdict.gates);
    rc = fault_gate(c, e, &out->gates[out->n_gates++], err);
  }
  if (rc == BS_OK && bs_case_judged(c)) {
    out->passed = (uint32_t)bs_verdict_passed(out->gates, out->n_gates);
    rc = fill(c, s, &result, &verdict, out, err);
  }
  bs_gradient_result_free(&result);
  return rc;
}

int32_t bs_phase2_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                      bs_phase_result *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->record = json_object();
  if (!out->record) return bs_error_set(err, BS_NO_MEMORY, "BS-PHASE-MEMORY", "no memory for a record");
  bs_subject subject;
  bs_arm_case arms[BS_ARMS_MAX];
  int32_t rc = bs_subject_open(context, e, &subject, err);
  if (rc == BS_OK) {
    (void)bs_arms_of(context, e, &subject, arms);
    bs_case *c = &arms[0].c;
    c->warmup = e->warmup_iters;
    c->iterations = e->timed_iters;
    c->progress = progress;
    c->progress_user = user;
    rc = run_and_judge(c, e, &subject, out, err);
    bs_subject_close(&subject);
  }
  if (rc != BS_OK) bs_phase_result_free(out);
  return rc;
}
