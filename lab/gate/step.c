/* SPDX-License-Identifier: MIT
 * step.c - see step.h. */
#include "lab/gate/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/case/owners.h"
#include "lab/case/place.h"
#include "lab/error.h"
#include "lab/gate/judge.h"
#include "lab/gate/step_judging.h"

double bs_step_accumulate(double n) {
  return n < 4 * sqrt(n) ? n : 4 * sqrt(n);
}

static int are_finite(const double *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!isfinite(values[i])) return 0;
  return 1;
}

int bs_step_row_is_finite(const bs_judging *j, int64_t step, int64_t f) {
  return are_finite(j->r->w + (step * j->r->features + f) * j->c->spec.K, j->c->spec.K);
}

/* dW of a row in fp64, the sum of its terms' sizes, and the effect of errors of dZ. */
static void gradient_of_row(const bs_judging *j, int64_t step, int64_t f) {
  const int64_t B = j->c->spec.B, K = j->c->spec.K, F = j->r->features, first = step * B * F + f;
  memset(j->dw, 0, (size_t)(3 * K) * sizeof *j->dw);
  for (int64_t b = 0; b < B; ++b) {
    const double d = j->dz[first + b * F], *x = j->x + b * K;
    const double bound2 = j->dz_bound2 ? j->dz_bound2[first + b * F] : 0.0;
    for (int64_t k = 0; k < K; ++k) {
      j->dw[k] += d * x[k];
      j->magnitude[k] += fabs(d * x[k]);
      if (bound2 > 0.0) j->bound2[k] += bound2 * x[k] * x[k];
    }
  }
}

static bs_slope slope_of(const bs_judging *j, int64_t k) {
  const double n = (double)j->c->spec.B, u = j->wide ? 0x1p-53 : 0x1p-24;
  return (bs_slope){.g = j->dw[k],
                    .bound = bs_step_accumulate(n) * u * j->magnitude[k] + u * fabs(j->dw[k]) + 0x1p-149 +
                             4.0 * sqrt(j->bound2[k])};
}

/* Judges one weight after one step. */
static void judge_weight(bs_judging *j, int64_t step, int64_t f, int64_t k, uint32_t rank, double want,
                         double bound) {
  const int64_t F = j->r->features, K = j->c->spec.K;
  const double got = j->r->w[((step + 1) * F + f) * K + k];
  const uint32_t dtype = j->c->spec.w_dtype;
  const double ulp = bs_ulp(dtype, fabs(want) + bound);
  const double narrow = !j->wide && dtype != BS_F32 ? 0x1p-24 * fabs(want) : 0.0;
  const double fp64 = dtype == BS_F64 ? ulp / 2 : 0.0; /* the reference rounds as much as the layer */
  const double error = got - want, most = bound + ulp / 2 + narrow + fp64;
  const double ratio = isfinite(error) && isfinite(most) ? fabs(error) / most : INFINITY;
  ++j->judged;
  j->inexact += got != want;
  if (j->brought && !isfinite(want) && (isnan(got) || got == want)) { /* 0 Inf is NaN */
    ++j->propagated;
    return;
  }
  j->wrong += !(ratio <= 1.0);
  if (ratio > j->worst) {
    j->worst = ratio;
    j->worst_step = step;
    j->worst_feature = j->r->feature[f];
    j->worst_column = k;
  }
  j->ranks[rank].error2 += error * error;
  j->ranks[rank].norm2 += want * want;
}

static uint32_t owner_of(const bs_judging *j, int64_t row, int64_t k) {
  if (j->owner) return j->owner[k];
  if (j->rank_of) return j->rank_of[k];
  for (uint32_t r = 0; r < j->r->run.world_size; ++r) {
    const bs_ownership *own = &j->r->run.ranks[r].owns;
    if (row >= own->row_begin && row < own->row_begin + own->row_count) return r;
  }
  return 0;
}

/* Reads the owners in the last layer: before a re-mask a weight may have belonged to another rank. */
static int32_t read_owners(const bs_judging *j, int64_t f, bs_error *err) {
  uint32_t first;
  if (j->owner == NULL) return BS_OK;
  bs_owners owners = bs_owners_of(j->c, &j->r->run);
  return bs_owners_read(&owners, j->r->feature[f], j->owner, &first, err);
}

/* A row of W through all steps. */
static void judge_row(bs_judging *j, int64_t f) {
  const int64_t K = j->c->spec.K, F = j->r->features;
  int64_t t = 0;
  memset(j->weights, 0, (size_t)K * sizeof *j->weights);
  for (int64_t i = 0; i < j->r->steps; ++i) {
    const bs_stepper of_w = bs_stepper_make(j->o, ++t, 0, j->wide);
    gradient_of_row(j, i, f);
    j->brought = !j->x_finite || !isfinite(j->bias[i * F + f]) || !bs_step_row_is_finite(j, i, f);
    for (int64_t k = 0; k < K; ++k) {
      double bound;
      const uint32_t rank = owner_of(j, j->r->feature[f], k);
      if (rank == BS_OWNER_NONE) continue; /* no rank owns it: it is in the other half */
      const double want =
          bs_follow(&of_w, &j->weights[k], j->r->w[(i * F + f) * K + k], slope_of(j, k), &bound);
      judge_weight(j, i, f, k, rank, want, bound);
    }
    if (!bs_train_remasks(j->o, i + 1, j->r->steps)) continue;
    t = 0; /* a new layer has no optimiser state */
    memset(j->weights, 0, (size_t)K * sizeof *j->weights);
  }
}

/* ---- gates --------------------------------------------------------------------------------------- */

static void weight_gates(const bs_judging *j, bs_step_verdict *out) {
  for (uint32_t r = 0; r < j->r->run.world_size; ++r) {
    const bs_step_sums *s = &j->ranks[r];
    if (s->norm2 > 0) out->relative = fmax(out->relative, sqrt(s->error2 / s->norm2));
  }
  bs_gate_set(&out->gates[out->n_gates++], "W.T3", -1, j->worst, 1.0,
              "worst |error|/bound, in step %lld at row %lld column %lld; %llu of %llu over",
              (long long)j->worst_step + 1, (long long)j->worst_feature, (long long)j->worst_column,
              (unsigned long long)j->wrong, (unsigned long long)j->judged);
  if (!j->c->spec.has_bias) return;
  bs_gate_set(&out->gates[out->n_gates++], "b.T3", -1, j->worst_bias, 1.0,
              "worst |error|/bound of the bias behind the last step");
}

/* Compares the outputs of every step on all ranks, if all ranks hold all outputs. */
static void same_gate(const bs_judging *j, bs_step_verdict *out) {
  uint64_t differing = 0;
  int32_t rank = -1;
  const int split = j->c->spec.y_placement == BS_SPLIT;
  for (uint32_t r = 1; !split && r < j->r->run.world_size; ++r)
    for (int64_t i = 0; i <= j->r->steps; ++i) {
      if (j->r->ranks[r].hash[i] == j->r->ranks[0].hash[i]) continue;
      if (differing++ == 0) rank = (int32_t)r;
    }
  bs_gate *gate = &out->gates[out->n_gates++];
  bs_gate_set(gate, "T4", rank, (double)differing, 0.0, "outputs of %lld steps that differ between ranks",
              (long long)j->r->steps + 1);
  if (split || j->r->run.world_size == 1) bs_gate_skip(gate, split ? "the output is split" : "one rank");
  if (!split && bs_place_unordered(j->c)) bs_gate_skip(gate, "ranks may differ (R0)");
}

/* Judges forward after the last step, in the sampled features, with the weights as they were read back. */
static int32_t judge_outputs(const bs_judging *j, bs_step_verdict *out, bs_error *err) {
  const int64_t F = j->r->features, B = j->c->spec.B;
  const size_t size = BS_DTYPE_BYTES(j->c->spec.y_dtype);
  const uint32_t world = j->r->run.world_size;
  bs_case g;
  bs_case_result run;
  bs_source w = {0}, bias = {0};
  bs_verdict verdict = {0};
  char *values = calloc((size_t)world * (size_t)(B * F) + 1, size);
  int32_t rc = bs_step_forward_case(j, j->r->steps, j->shown, &w, &bias, &g, &run, err);
  run.ranks = calloc(world, sizeof *run.ranks);
  if (rc == BS_OK && (!values || !run.ranks)) rc = bs_no_memory(err, "judging training");
  for (uint32_t r = 0; rc == BS_OK && r < world; ++r) {
    const bs_case_rank *from = &j->r->run.ranks[r];
    bs_case_rank *to = &run.ranks[r];
    char *y = values + (size_t)r * (size_t)(B * F) * size;
    int64_t first = 0, count = 0;
    for (int64_t f = 0; f < F; ++f) {
      first += j->r->feature[f] < from->y_begin;
      count += j->r->feature[f] >= from->y_begin && j->r->feature[f] < from->y_begin + from->y_cols;
    }
    for (int64_t b = 0; b < B; ++b)
      for (int64_t f = 0; f < count; ++f)
        memcpy(y + (size_t)(b * count + f) * size,
               (const char *)from->y +
                   (size_t)(b * from->y_cols + j->r->feature[first + f] - from->y_begin) * size,
               size);
    *to = *from;
    to->y = y;
    to->y_begin = first;
    to->y_cols = count;
  }
  const bs_verdict_within within = {.bias_error = j->shown_error, .gaps = F < j->c->spec.N};
  if (rc == BS_OK) rc = bs_verdict_make_within(&g, &run, 0, &within, &verdict, err);
  if (rc == BS_OK) out->nonfinite = verdict.propagated + verdict.nonfinite + verdict.overflow;
  for (uint32_t i = 0; rc == BS_OK && i < verdict.n_gates && i < 5; ++i) {
    bs_gate *gate = &out->gates[out->n_gates++];
    *gate = verdict.gates[i];
    snprintf(gate->name, sizeof gate->name, "y.%.16s", verdict.gates[i].name);
  }
  bs_source_release(&w);
  bs_source_release(&bias);
  free(run.ranks);
  free(values);
  return rc;
}

static int32_t open_judging(const bs_case *c, const bs_train_result *r, bs_judging *j, bs_error *err) {
  const size_t B = (size_t)c->spec.B, K = (size_t)c->spec.K, F = (size_t)r->features;
  const size_t biases = ((size_t)r->steps + 1) * F;
  j->x = calloc(B * K + 1, sizeof *j->x);
  j->dw = calloc(3 * K + 1, sizeof *j->dw);
  j->weights = calloc(K + 1, sizeof *j->weights);
  j->bias = calloc(2 * biases + 2 * F + 1, sizeof *j->bias);
  j->ranks = calloc(r->run.world_size, sizeof *j->ranks);
  if (!j->x || !j->dw || !j->weights || !j->bias || !j->ranks) return bs_no_memory(err, "judging training");
  j->bias_bound = j->bias + biases;
  j->shown = j->bias_bound + biases;
  j->shown_error = j->shown + F;
  j->magnitude = j->dw + K;
  j->bound2 = j->magnitude + K;
  if (bs_owners_by_row(&r->run)) {
    j->owner = calloc(K + 1, sizeof *j->owner);
    if (!j->owner) return bs_no_memory(err, "judging training");
  }
  int32_t rc = bs_case_column_ranks(c, &r->run, &j->rank_of, err);
  if (rc == BS_OK) rc = c->x->read(c->x->ctx, 0, c->spec.B, NULL, BS_F64, j->x, c->spec.K, err);
  j->x_finite = rc == BS_OK && are_finite(j->x, (int64_t)(B * K));
  for (size_t f = 0; rc == BS_OK && c->spec.has_bias && f < F; ++f) {
    const bs_partition one = {.struct_size = sizeof one,
                              .kind = BS_PARTITION_CONTIGUOUS,
                              .total = c->spec.N,
                              .begin = r->feature[f],
                              .count = 1};
    rc = c->bias->read(c->bias->ctx, 0, 1, &one, BS_F64, &j->bias[f], 1, err);
  }
  return rc;
}

int32_t bs_step_judge(const bs_case *c, const bs_train_options *o, const bs_train_result *r,
                      bs_step_verdict *out, bs_error *err) {
  const bs_layer_spec *s = &c->spec;
  bs_judging j = {.c = c, .o = o, .r = r};
  memset(out, 0, sizeof *out);
  if (!bs_case_judged(c)) return BS_OK;
  j.wide = bs_case_wide(s) == BS_F64;
  j.b_dtype = s->y_dtype == BS_F64 ? BS_F64 : BS_F32;
  int32_t rc = open_judging(c, r, &j, err);
  if (rc == BS_OK) rc = bs_step_follow_biases(&j, err);
  for (int64_t f = 0; rc == BS_OK && f < r->features; ++f) {
    bs_case_tell(c, "judge", (uint64_t)f + 1, (uint64_t)r->features);
    rc = read_owners(&j, f, err);
    if (rc == BS_OK) judge_row(&j, f);
    if (rc == BS_OK && s->has_bias) bs_step_judge_bias(&j, f);
  }
  if (rc == BS_OK) {
    weight_gates(&j, out);
    same_gate(&j, out);
    rc = judge_outputs(&j, out, err);
  }
  out->inexact = j.inexact;
  out->judged = j.judged;
  out->nonfinite += j.propagated;
  void *const all[] = {j.x, j.dw, j.weights, j.bias, j.slopes, j.ranks, j.rank_of, j.owner};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) free(all[i]);
  return rc;
}
