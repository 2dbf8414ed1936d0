/* SPDX-License-Identifier: MIT
 * phase2.c - phase 2, backward with respect to the input (and to weights and bias): forward, the loss's
 * gradient, backward. The gates of phase 0 judge dX, dW and db against fp64, with faults that must be caught.
 * Regions are kept for the record; times are not compared. */

#include "lab/gate/gradient.h"
#include "lab/gate/repro.h"
#include "lab/phase/frame.h"
#include "lab/phase/record_fields.h"
#include "lab/store/record.h"

static int32_t fault_gate(const bs_case *c, const bs_experiment *e, bs_phase_result *out, bs_error *err) {
  bs_fault_tally tally;
  if (!e->fault_gate) {
    bs_phase_add_skipped(out, "T6", "phase.fault_gate is off");
    return BS_OK;
  }
  const int32_t rc = bs_gradient_fault_gate(c, &tally, err);
  if (rc == BS_OK) bs_phase_add_fault_gate(out, &tally);
  return rc;
}

static void add_errors(json_t *record, const char *of, const bs_verdict *v) {
  json_object_set_new(
      record, of,
      json_pack("{s:o,s:o,s:o,s:o,s:I}", "relative_error", bs_record_number(v->relative_error),
                "relative_error_predicted", bs_record_number(v->predicted), "max_abs_error",
                bs_record_number(v->max_abs_error), "max_rel_error", bs_record_number(v->max_rel_error),
                "columns_judged", (json_int_t)v->features));
}

/* Adds the proposed and the counted amounts of one backward, over all ranks. */
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
  const int valid =
      v->dx.nonfinite + v->dx.propagated + v->dw.nonfinite + v->dw.propagated + v->dx.overflow == 0;
  const int32_t rc = bs_record_judged(out, c, &result->run, s, s->info.loss, valid, err);
  if (rc != BS_OK) return rc;
  add_errors(out->record, "dx", &v->dx);
  add_errors(out->record, "dw", &v->dw);
  if (c->spec.has_bias) add_errors(out->record, "db", &v->db);
  add_counts(out->record, result);
  return BS_OK;
}

static int32_t run_and_judge(bs_case *c, const bs_experiment *e, const bs_subject *s, bs_phase_result *out,
                             bs_error *err) {
  bs_gradient_result result = {0};
  bs_gradient_verdict verdict;
  bs_gate promised;
  uint32_t n_promised = 0;
  const bs_source *target = s->info.has_target ? &s->target : NULL;
  int32_t rc = bs_gradient_run(c, s->info.loss, target, &result, err);
  if (rc != BS_OK) return rc;
  rc = bs_gradient_judge(c, &result, e->reference_features, &verdict, err);
  if (rc == BS_OK) {
    bs_phase_add_gates(out, verdict.gates, verdict.n_gates);
    rc = bs_repro_gradient_gate(c, s->info.loss, target, &result, &promised, &n_promised, err);
  }
  if (rc == BS_OK) {
    bs_phase_add_gates(out, &promised, n_promised);
    rc = fault_gate(c, e, out, err);
  }
  if (rc == BS_OK && bs_case_judged(c)) rc = fill(c, s, &result, &verdict, out, err);
  bs_gradient_result_free(&result);
  return rc;
}

int32_t bs_phase2_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                      bs_phase_result *out, bs_error *err) {
  return bs_phase_run_judged(context, e, progress, user, run_and_judge, out, err);
}
