/* SPDX-License-Identifier: MIT
 * verdict.c - judging a finished case: T1 to T4 on every rank. */
#include "lab/gate/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/op/dispatch.h"
#include "lab/case/owners.h"
#include "lab/case/place.h"
#include "lab/gate/mixed.h"

bs_arithmetic bs_arithmetic_of(const bs_layer_spec *spec) {
  const bs_arithmetic a = {.y_dtype = spec->y_dtype,
                           .reduce_dtype = spec->y_placement == BS_PARTIAL ? spec->y_dtype
                                           : spec->reduce_dtype            ? spec->reduce_dtype
                                           : spec->y_dtype == BS_F64       ? BS_F64
                                                                           : BS_F32,
                           .accumulate = spec->accumulate,
                           .activation = spec->activation,
                           .wire_steps = spec->y_placement == BS_SPLIT ? 1u : 2u};
  return a;
}

bs_arithmetic bs_arithmetic_of_run(const bs_layer_spec *spec, const bs_case_result *run) {
  bs_arithmetic a = bs_arithmetic_of(spec);
  a.low_sums = run->algorithms != NULL && strstr(run->algorithms, BS_LOW_SUMS) != NULL;
  return a;
}

int bs_verdict_passed(const bs_gate *gates, uint32_t count) {
  uint32_t ran = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (gates[i].state == BS_GATE_FAIL || gates[i].state == BS_GATE_UNKNOWN) return 0;
    ran += gates[i].state == BS_GATE_PASS;
  }
  return ran > 0;
}

/* Worse: failing beats passing beats skipped; then the larger share of the limit. */
static int worse(const bs_gate *a, const bs_gate *b) {
  if (a->state != b->state) {
    if (a->state == BS_GATE_SKIPPED) return 0;
    if (b->state == BS_GATE_SKIPPED) return 1;
    return a->state == BS_GATE_FAIL;
  }
  if (isnan(a->value)) return 1;
  return a->limit > 0 && b->limit > 0 ? a->value / a->limit > b->value / b->limit : a->value > b->value;
}

static void same_bits_gate(const bs_case *c, const bs_case_result *result, bs_gate *gate) {
  int32_t rank = -1;
  uint32_t differing = 0;
  uint32_t unstable = 0;
  int64_t covered = 0; /* split: the ranks' features follow one another and are all of them */
  const int split = c->spec.y_placement == BS_SPLIT;
  for (uint32_t r = 0; r < result->world_size; ++r) {
    unstable += !result->ranks[r].same_each_time;
    if (split) {
      differing += result->ranks[r].y_cols > 0 && result->ranks[r].y_begin != covered;
      covered += result->ranks[r].y_cols;
    } else if (result->ranks[r].hash != result->ranks[0].hash) {
      if (differing++ == 0) rank = (int32_t)r;
    }
  }
  differing += split && covered != c->spec.N;
  const uint32_t apart = !split && bs_place_unordered(c) ? differing : 0;
  differing -= apart;
  bs_gate_set(gate, "T4", rank, differing + unstable, 0.0, "%s", "");
  if (unstable) {
    snprintf(gate->text, sizeof gate->text, "%u rank(s) gave other bits from one iteration to the next",
             unstable);
  } else if (apart) {
    snprintf(gate->text, sizeof gate->text,
             "%u rank(s) hold other bits than rank 0, as hardware.algorithm %.60s allows (R0)", apart,
             c->algorithm);
  } else if (differing && split) {
    snprintf(gate->text, sizeof gate->text, "the ranks' features are not %lld in a row",
             (long long)c->spec.N);
  } else if (differing) {
    snprintf(gate->text, sizeof gate->text, "%u rank(s) hold other bits than rank 0", differing);
  } else if (split) {
    snprintf(gate->text, sizeof gate->text,
             "every feature on one of %u rank(s), the same bits in each of %lld", result->world_size,
             (long long)result->iterations);
  } else if (bs_place_assembles(c)) {
    snprintf(gate->text, sizeof gate->text, "%s on %u rank(s), the same bits in each of %lld iterations",
             c->spec.y_placement == BS_PARTIAL ? "partial sums" : "own tokens", result->world_size,
             (long long)result->iterations);
  } else {
    snprintf(gate->text, sizeof gate->text, "the same bits on %u rank(s), in each of %lld iterations",
             result->world_size, (long long)result->iterations);
  }
}

static void add_counts(bs_verdict *out, const bs_judgement *j) {
  out->overflow += j->overflow;
  out->nonfinite += j->nonfinite;
  out->propagated += j->propagated;
}

static void keep_worst(bs_verdict *out, const bs_gate *gates, uint32_t count, const bs_judgement *j) {
  for (uint32_t g = 0; g < count; ++g) {
    if (out->n_gates < count) {
      out->gates[out->n_gates++] = gates[g];
    } else if (worse(&gates[g], &out->gates[g])) {
      out->gates[g] = gates[g];
    }
  }
  out->max_abs_error = fmax(out->max_abs_error, j->max_abs);
  out->mean_abs_error = fmax(out->mean_abs_error, j->mean_abs);
  out->max_rel_error = fmax(out->max_rel_error, j->max_rel);
  out->relative_error = fmax(out->relative_error, j->relative);
  add_counts(out, j);
}

/* Has rank r the same features with the same bits as the rank before? Then one judgement serves both. */
static int same_as_before(const bs_case_result *result, uint32_t r) {
  const bs_case_rank *rank = &result->ranks[r];
  return r > 0 && rank->y_begin == rank[-1].y_begin && rank->y_cols == rank[-1].y_cols &&
         rank->hash == rank[-1].hash;
}

int32_t bs_verdict_make(const bs_case *c, const bs_case_result *result, int64_t max_features, bs_verdict *out,
                        bs_error *err) {
  const bs_verdict_within exactly = {0};
  return bs_verdict_make_within(c, result, max_features, &exactly, out, err);
}

/* The data by which a run is judged. */
typedef struct yardstick {
  bs_arithmetic arithmetic;
  bs_reference reference, bounds;
  bs_prediction prediction;
} yardstick;

static void close_yardstick(yardstick *y) {
  bs_prediction_free(&y->prediction);
  bs_reference_free(&y->reference);
  bs_reference_free(&y->bounds);
}

bs_reference_request bs_verdict_request(const bs_case *c, const bs_case_result *result,
                                        const uint32_t *column_rank, struct bs_owners *owners,
                                        bs_case *teller) {
  return (bs_reference_request){.x = c->x,
                                .w = c->w,
                                .bias = c->spec.has_bias ? c->bias : NULL,
                                .world_size = result->world_size,
                                .column_rank = column_rank,
                                .owners = bs_owners_by_row(result) ? bs_owners_read : NULL,
                                .owners_ctx = owners,
                                .terms = bs_owners_terms(result),
                                .tell = bs_case_tell_user,
                                .tell_user = teller};
}

/* result: the owners. The caller closes it after any result. */
static int32_t open_yardstick(const bs_case *c, const bs_case_result *result, int64_t max_features,
                              const bs_verdict_within *within, yardstick *out, bs_error *err) {
  uint32_t *column_rank = NULL;
  bs_case teller = *c;
  bs_mixed mixed;
  bs_mixed_view views[2];
  bs_source x, w; /* the operands: in two precisions, rounded */
  memset(out, 0, sizeof *out);
  out->arithmetic = bs_arithmetic_of_run(&c->spec, result);
  out->arithmetic.zero_products = result->zero_products;
  int32_t rc = bs_mixed_open(c, result->ranks[0].proposal.split, &mixed, err);
  if (rc == BS_OK) rc = bs_case_column_ranks(c, result, &column_rank, err);
  if (rc == BS_OK) rc = bs_mixed_source(&views[0], &mixed, BS_MIXED_X, c->x, &x, err);
  if (rc == BS_OK) rc = bs_mixed_source(&views[1], &mixed, BS_MIXED_W, c->w, &w, err);
  bs_owners owners = bs_owners_of(c, result);
  bs_reference_request request = bs_verdict_request(c, result, column_rank, &owners, &teller);
  request.x = &x;
  request.w = &w;
  request.max_features = max_features;
  request.activation = c->spec.activation;
  if (rc == BS_OK) rc = bs_reference_compute(&request, &out->reference, err);
  out->reference.bias_error = within->bias_error;
  out->reference.gaps = within->gaps;
  const bs_carried *carried = within->carried;
  if (rc == BS_OK && carried) {
    const bs_reference_request of_bounds = {
        .x = carried->bound_x, .w = carried->bound_w, .world_size = 1, .max_features = max_features};
    rc = bs_reference_compute(&of_bounds, &out->bounds, err);
    out->reference.carried_bound2 = out->bounds.y;
  }
  if (rc == BS_OK) rc = bs_predict(&out->reference, &out->arithmetic, &out->prediction, err);
  free(column_rank);
  bs_mixed_close(&mixed);
  return rc;
}

int32_t bs_verdict_make_within(const bs_case *c, const bs_case_result *result, int64_t max_features,
                               const bs_verdict_within *within, bs_verdict *out, bs_error *err) {
  yardstick y;
  bs_judgement j = {0};
  memset(out, 0, sizeof *out);
  if (!bs_case_judged(c)) return BS_OK;
  const int32_t rc = open_yardstick(c, result, max_features, within, &y, err);
  for (uint32_t r = 0; rc == BS_OK && r < result->world_size; ++r) {
    const bs_case_rank *rank = &result->ranks[r];
    bs_case_tell(c, "judge", r + 1, result->world_size);
    if (same_as_before(result, r)) {
      add_counts(out, &j);
      continue;
    }
    bs_gate gates[4];
    bs_judge(&y.reference, &y.arithmetic, &y.prediction, rank->y, rank->y_cols, rank->y_begin, rank->y_cols,
             &j);
    keep_worst(out, gates, bs_gates_from_judgement(&y.reference, &j, (int32_t)r, gates, 4), &j);
  }
  if (rc == BS_OK) {
    same_bits_gate(c, result, &out->gates[out->n_gates++]);
    out->predicted = y.prediction.relative;
    out->nonfinite_inputs = y.reference.nonfinite_inputs;
    out->features = y.reference.features;
  }
  close_yardstick(&y);
  return rc;
}

int32_t bs_verdict_shift(const bs_case *c, const bs_case *other, const bs_case_result *result,
                         double *out_share, bs_error *err) {
  const bs_verdict_within exactly = {0};
  yardstick right, moved = {0};
  bs_gate gates[4];
  bs_judgement j;
  *out_share = 0.0;
  int32_t rc = open_yardstick(c, result, 0, &exactly, &right, err);
  if (rc == BS_OK) rc = open_yardstick(other, result, 0, &exactly, &moved, err);
  if (rc == BS_OK) {
    right.arithmetic.y_dtype = BS_F64; /* the judged outputs are f64; predictions and bounds are not
                                        * rounded */
    bs_judge(&right.reference, &right.arithmetic, &right.prediction, moved.reference.y, c->spec.N, 0,
             c->spec.N, &j);
    const uint32_t n = bs_gates_from_judgement(&right.reference, &j, 0, gates, 4);
    for (uint32_t g = 0; g < n; ++g)
      if (gates[g].state != BS_GATE_SKIPPED) *out_share = fmax(*out_share, gates[g].value / gates[g].limit);
  }
  close_yardstick(&right);
  close_yardstick(&moved);
  return rc;
}
