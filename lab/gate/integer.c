/* SPDX-License-Identifier: MIT
 * integer.c - gates T5 and T6. T5: entries in {-1, 0, 1}, every sum exact in every dtype, so any method,
 * order and P must equal the int64 product bit for bit. T6: the faults of faults.c on a small shape must all
 * be caught. Both always have a bias: it costs nothing, and makes its faults visible in every run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/activation.h"
#include "lab/case/owners.h"
#include "lab/gate/faults.h"
#include "lab/gate/mixed.h"
#include "lab/gate/small.h"
#include "lab/gate/verdict.h"

/* Outputs that are not the exact integer, over all ranks. */
static int32_t count_inexact(const bs_case *c, const bs_case_result *result, int64_t max_features,
                             uint64_t *out_count, int32_t *out_rank, int64_t *out_judged, bs_error *err) {
  bs_reference ref;
  bs_case teller = *c;
  const int mixed = bs_mixed_of(&c->spec) >= 0;
  bs_owners owners = bs_owners_of(c, result); /* of weights that are left out: only those */
  const bs_reference_request request = {.x = c->x,
                                        .w = c->w,
                                        .bias = c->bias,
                                        .world_size = result->world_size,
                                        .owners = bs_owners_pruned(result) ? bs_owners_read : NULL,
                                        .owners_ctx = &owners,
                                        .max_features = max_features,
                                        .activation = c->spec.activation,
                                        .tell = bs_case_tell_user,
                                        .tell_user = &teller};
  const int32_t rc = bs_reference_compute(&request, &ref, err);
  if (rc != BS_OK) return rc;
  *out_count = 0;
  *out_rank = -1;
  *out_judged = 0;
  for (uint32_t r = 0; r < result->world_size; ++r) {
    const bs_case_rank *rank = &result->ranks[r];
    for (int64_t b = 0; b < ref.B; ++b) {
      for (int64_t f = 0; f < ref.features; ++f) {
        const int64_t n = ref.feature[f] - rank->y_begin;
        if (n < 0 || n >= rank->y_cols) continue; /* another rank's */
        ++*out_judged;
        const double got = bs_load_f64(c->spec.y_dtype, rank->y, b * rank->y_cols + n);
        /* NaN differs; -0 equals 0. Of 8 bits the sums are exact, and their scales are not. */
        if ((mixed ? rint(got) : got) == ref.y[b * ref.features + f]) continue;
        ++*out_count;
        *out_rank = (int32_t)r;
      }
    }
  }
  bs_reference_free(&ref);
  return BS_OK;
}

int32_t bs_integer_gate(const bs_case *like, uint32_t fault_kind, int64_t max_features, bs_gate *gate,
                        bs_error *err) {
  *gate = (bs_gate){.name = "T5"};
  bs_small subject;
  bs_case c;
  bs_case_result result = {0};
  bs_case_fault hooks;
  bs_fault *fault = NULL;
  bs_layer_spec spec = like->spec;
  spec.has_bias = 1; /* a bias lost or added twice is exact too, so always test one */
  if (spec.reduce_dtype == BS_I8) spec.reduce_dtype = 0; /* a wire that rounds integers: without it */
  if (spec.activation != BS_ACT_RELU) spec.activation = BS_ACT_NONE; /* gelu and silu give no integers */
  int32_t rc = bs_small_open(like->context, "integer", &spec, &subject, err);
  if (rc != BS_OK) return rc;
  bs_small_case(like, &spec, &subject, &c);
  c.gate = gate->name;
  bs_case run;
  rc = bs_fault_into(fault_kind, &c, &run, &fault, &hooks, err);
  if (rc == BS_OK) rc = bs_case_run(&run, &result, err);
  uint64_t inexact = 0;
  int64_t judged = 0;
  if (rc == BS_OK && bs_case_judged(&c))
    rc = count_inexact(&c, &result, max_features, &inexact, &gate->rank, &judged, err);
  if (rc == BS_OK) {
    bs_gate_set(gate, "T5", gate->rank, (double)inexact, 0.0,
                "%llu of %lld outputs on %u rank(s) differ from the int64 product%s%s%s",
                (unsigned long long)inexact, (long long)judged, result.world_size,
                spec.reduce_dtype == like->spec.reduce_dtype ? "" : "; sums in f32",
                spec.activation == like->spec.activation ? "" : "; without ",
                spec.activation == like->spec.activation
                    ? ""
                    : bs_name_of(BS_NAMES_ACTIVATION, like->spec.activation));
    if (bs_mixed_of(&spec) >= 0)
      snprintf(gate->text + strlen(gate->text), sizeof gate->text - strlen(gate->text),
               "; to the nearest integer, as scales of 8 bits are rounded");
  }
  bs_case_result_free(&result);
  bs_fault_free(fault);
  bs_small_close(&subject);
  return rc;
}

/* ---- T6 ------------------------------------------------------------------------------------------- */

const char *const bs_fault_gate_names[BS_FAULT_GATES] = {"T1", "T2.feature", "T2.token", "T3", "T4"};

/* How far a fault that all ranks share moves the exact outputs (bs_verdict_shift); INFINITY for other
 * faults. */
static int32_t shift_of(const bs_case *c, uint32_t kind, const bs_case_fault *hooks,
                        const bs_case_result *result, double *out, bs_error *err) {
  bs_case other = *c;
  bs_source x, w, bias;
  *out = INFINITY;
  if (!bs_fault_is_exact(kind)) return BS_OK;
  other.fault = NULL;
  int32_t rc = hooks->wrap(hooks->user, 0, BS_PART_X, c->x, &x, err);
  if (rc == BS_OK) rc = hooks->wrap(hooks->user, 0, BS_PART_W, c->w, &w, err);
  if (rc == BS_OK) rc = hooks->wrap(hooks->user, 0, BS_PART_BIAS, c->bias, &bias, err);
  other.x = &x;
  other.w = &w;
  other.bias = &bias;
  hooks->layer(hooks->user, 0, &other.spec);
  return rc == BS_OK ? bs_verdict_shift(c, &other, result, out, err) : rc;
}

/* *out_gates: bit g: gate g of the verdict failed; out_judged: judged at all. *out_shift: of one that was not
 * caught. kind BS_FAULT_COUNT_: no fault. */
static int32_t inject(const bs_case *base, uint32_t kind, uint32_t *out_gates, uint32_t *out_judged,
                      double *out_shift, bs_error *err) {
  bs_case c = *base, run;
  bs_case_result result = {0};
  bs_case_fault hooks;
  bs_fault *fault = NULL;
  bs_verdict verdict = {0};
  *out_gates = *out_judged = 0;
  *out_shift = INFINITY;
  int32_t rc = bs_fault_into(kind, &c, &run, &fault, &hooks, err);
  if (rc == BS_OK) rc = bs_case_run(&run, &result, err);
  if (rc == BS_OK) rc = bs_verdict_make(&c, &result, 0, &verdict, err);
  for (uint32_t g = 0; rc == BS_OK && g < verdict.n_gates && g < BS_FAULT_GATES; ++g) {
    *out_gates |= (uint32_t)(verdict.gates[g].state == BS_GATE_FAIL) << g;
    *out_judged |= (uint32_t)(verdict.gates[g].state != BS_GATE_SKIPPED) << g;
  }
  if (rc == BS_OK && kind < BS_FAULT_COUNT_ && *out_gates == 0 && bs_case_judged(&c))
    rc = shift_of(&c, kind, &hooks, &result, out_shift, err);
  bs_case_result_free(&result);
  bs_fault_free(fault);
  return rc;
}

static int32_t inject_integer(const bs_case *c, bs_fault_report *out, bs_error *err) {
  bs_gate gate;
  const int32_t rc = bs_integer_gate(c, BS_FAULT_WEIGHT_LOST, 0, &gate, err);
  ++out->injected;
  out->caught += gate.state == BS_GATE_FAIL;
  if (gate.state != BS_GATE_FAIL) bs_fault_note(out->missed, sizeof out->missed, "integer weight_lost", "");
  return rc;
}

/* T4 has nothing to detect only if all ranks judge alike. */
static void dead_gates(uint32_t judged, int diverges, bs_fault_report *out) {
  for (uint32_t g = 0; g < BS_FAULT_GATES; ++g)
    if ((judged >> g & 1u) && out->n_by[g] == 0 && (g < 4 || diverges)) {
      ++out->injected;
      bs_fault_note(out->missed, sizeof out->missed, bs_fault_gate_names[g], " catches nothing");
    }
}

int32_t bs_fault_gate(const bs_case *like, bs_fault_report *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  bs_layer_spec spec = bs_small_spec(like, 0);
  bs_proposal proposal;
  bs_small subject;
  uint32_t judged = 0;
  int32_t rc = bs_small_open(like->context, "random_normal", &spec, &subject, err);
  if (rc != BS_OK) return rc;
  bs_case c;
  bs_small_case(like, &spec, &subject, &c);
  rc = bs_case_propose(&c, 0, &proposal, err);
  c.progress = NULL; /* small: the fault's name is enough */
  for (uint32_t kind = 0; kind <= BS_FAULT_COUNT_ && rc == BS_OK; ++kind) {
    uint32_t gates;
    double shift;
    bs_case_tell(like, "T6 fault", kind + 1, BS_FAULT_COUNT_ + 2);
    if (kind < BS_FAULT_COUNT_ && bs_fault_skip(kind, &c, proposal.split)) continue;
    rc = inject(&c, kind, &gates, &judged, &shift, err); /* the last run has no fault, and must pass */
    if (!bs_case_judged(&c)) continue;
    if (kind < BS_FAULT_COUNT_ && shift <= 2.0) {
      bs_fault_note(out->hidden, sizeof out->hidden, bs_fault_name(kind), "");
      continue;
    }
    ++out->injected;
    if ((gates != 0) == (kind < BS_FAULT_COUNT_))
      ++out->caught;
    else
      bs_fault_note(out->missed, sizeof out->missed, kind < BS_FAULT_COUNT_ ? bs_fault_name(kind) : "(none)",
                    "");
    if (kind == BS_FAULT_COUNT_) break;
    out->caught_by[kind] = gates;
    for (uint32_t g = 0; g < BS_FAULT_GATES; ++g) out->n_by[g] += gates >> g & 1u;
  }
  if (rc == BS_OK) dead_gates(judged, bs_fault_skip(BS_FAULT_RANK_DIVERGED, &c, proposal.split) == NULL, out);
  /* T5 itself must be able to fail. */
  bs_case_tell(like, "T6 fault", BS_FAULT_COUNT_ + 2, BS_FAULT_COUNT_ + 2);
  if (rc == BS_OK && !bs_fault_alone(&c)) rc = inject_integer(&c, out, err);
  bs_small_close(&subject);
  return rc;
}
