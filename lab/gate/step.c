/* SPDX-License-Identifier: MIT
 * step.c - see step.h. */
#include "lab/gate/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/gate/step_follow.h"
#include "lab/phase/owners.h"

/* Sums over the weights of one rank, or of one row. */
typedef struct sums {
  double error2, norm2, var, count;
} sums;

typedef struct judging {
  const bs_case *c;
  const bs_train_options *o;
  const bs_train_result *r;
  int wide;
  uint32_t b_dtype;
  double *x;                       /* [B][K] */
  double *dw, *energy, *magnitude; /* [K] of one row */
  bs_followed *weights;            /* [K] of one row */
  double *bias, *bias_error;       /* [features] as it is behind the last step, and how far it may be off */
  uint32_t *rank_of;               /* [K] */
  uint32_t *owner;                 /* [K] of one row, where columns do not tell; NULL: they do */
  sums *ranks;                     /* [world] */
  int x_finite, brought; /* NaN or Inf in what the row was multiplied with, or in itself: from the inputs */
  double worst_row, worst, worst_bias;
  int64_t worst_step, worst_feature, worst_column;
  uint64_t wrong, inexact, judged, propagated;
} judging;

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-STEP-MEMORY", "no memory to judge training");
}

static double accumulate_error(double n) {
  return n < 4 * sqrt(n) ? n : 4 * sqrt(n);
}

/* dW of a row in fp64, what its terms add up to, and the sum of their squares. */
static void gradient_of_row(const judging *j, int64_t step, int64_t f) {
  const int64_t B = j->c->spec.B, K = j->c->spec.K, F = j->r->features;
  const double *dy = j->r->dy + step * B * F + f;
  memset(j->dw, 0, (size_t)K * sizeof *j->dw);
  memset(j->energy, 0, (size_t)K * sizeof *j->energy);
  memset(j->magnitude, 0, (size_t)K * sizeof *j->magnitude);
  for (int64_t b = 0; b < B; ++b) {
    const double d = dy[b * F], *x = j->x + b * K;
    for (int64_t k = 0; k < K; ++k) {
      const double p = d * x[k];
      j->dw[k] += p;
      j->magnitude[k] += fabs(p);
      j->energy[k] += p * p;
    }
  }
}

static bs_slope slope_of(const judging *j, int64_t k) {
  const double n = (double)j->c->spec.B, u = j->wide ? 0x1p-53 : 0x1p-24;
  return (bs_slope){.g = j->dw[k],
                    .bound = accumulate_error(n) * u * j->magnitude[k] + u * fabs(j->dw[k]) + 0x1p-149,
                    .var = n / 6 * u * u * j->energy[k] + u * u * j->dw[k] * j->dw[k] / 3};
}

static void add(sums *s, double error, double want, double var) {
  s->error2 += error * error;
  s->norm2 += want * want;
  s->var += var;
  s->count += 1;
}

/* The square of what rounding to the weight's dtype does. A weight lies on the grid of its dtype and many
 * steps are equal (AdamW's first are all lr long), so that errors are not spread over an ulp: where
 * arithmetic adds little to the exact value, the rounding of that is the error. */
static double rounding_of(uint32_t dtype, double want, double var, double ulp) {
  unsigned char stored[8];
  if (var > ulp * ulp / 256) return ulp * ulp / 12;
  bs_store_f64(dtype, stored, 0, want);
  const double off = bs_load_f64(dtype, stored, 0) - want;
  return off * off;
}

/* One weight behind one step. */
static void judge_weight(judging *j, int64_t step, int64_t f, int64_t k, uint32_t rank, double want,
                         double bound, double var, sums *row) {
  const int64_t F = j->r->features, K = j->c->spec.K;
  const double got = j->r->w[((step + 1) * F + f) * K + k];
  const uint32_t dtype = j->c->spec.w_dtype;
  const double ulp = bs_ulp(dtype, fabs(want) + bound);
  const double narrow = !j->wide && dtype != BS_F32 ? 0x1p-24 * fabs(want) : 0.0;
  const double error = got - want, most = bound + ulp / 2 + narrow;
  const double ratio = isfinite(error) && isfinite(most) ? fabs(error) / most : INFINITY;
  ++j->judged;
  j->inexact += got != want;
  if (j->brought && !isfinite(want) && !isfinite(got)) { /* not lost on the way: no error to take */
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
  const double rounding = rounding_of(dtype, want, var, ulp);
  add(&j->ranks[rank], error, want, var + rounding);
  add(row, error, want, var + rounding);
}

static uint32_t owner_of(const judging *j, int64_t row, int64_t k) {
  if (j->owner) return j->owner[k];
  if (j->rank_of) return j->rank_of[k];
  for (uint32_t r = 0; r < j->r->run.world_size; ++r) {
    const bs_ownership *own = &j->r->run.ranks[r].owns;
    if (row >= own->row_begin && row < own->row_begin + own->row_count) return r;
  }
  return 0;
}

static double beyond(const sums *s) {
  if (s->error2 == 0.0) return 0.0;
  return s->var > 0 ? sqrt(s->error2 / s->var) : INFINITY;
}

/* Of the last layer: before a mask is made anew a weight may have been another rank's. */
static int32_t read_owners(const judging *j, int64_t f, bs_error *err) {
  uint32_t first;
  if (j->owner == NULL) return BS_OK;
  bs_owners owners = bs_owners_of(j->c, &j->r->run);
  return bs_owners_read(&owners, j->r->feature[f], j->owner, &first, err);
}

/* What rounding to a dtype of the way takes from the bias; nothing where it is as wide. */
static double lost_in(const judging *j, uint32_t dtype, double value) {
  return BS_DTYPE_BYTES(dtype) >= BS_DTYPE_BYTES(j->b_dtype) ? 0.0 : bs_ulp(dtype, value) / 2;
}

/* Of sums in int8 steps: half a step of its group for each time that they are rounded. */
static double lost_in_steps(const judging *j, int64_t f) {
  const bs_layer_spec *s = &j->c->spec;
  if (s->reduce_dtype != BS_I8 || j->r->run.world_size < 2) return 0.0;
  const double most = j->r->zero_largest[j->r->steps * j->r->features + f];
  return bs_arithmetic_of(s).wire_steps * 0.5 * most / BS_WIRE_LEVELS * (1.0 + 1.0 / BS_WIRE_LEVELS) +
         0x1p-22 * most;
}

static int are_finite(const double *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!isfinite(values[i])) return 0;
  return 1;
}

/* The row of sampled feature f as it was read back behind `step` steps. */
static int row_is_finite(const judging *j, int64_t step, int64_t f) {
  return are_finite(j->r->w + (step * j->r->features + f) * j->c->spec.K, j->c->spec.K);
}

/* The steps take the bias to within `bound` of b; what forward makes of zeros shows where it is, as near as
 * the dtypes on the way let it. Forward behind the last step is judged with the bias that both allow: many
 * steps that round may take it far from b. */
static void judge_bias(judging *j, int64_t f, double b, double bound) {
  const bs_layer_spec *s = &j->c->spec;
  const double got = j->r->zero[j->r->steps * j->r->features + f], in_steps = lost_in_steps(j, f);
  const double most = bound + bs_ulp(s->y_dtype, fabs(b) + bound) / 2 + in_steps +
                      (s->reduce_dtype ? bs_ulp(s->reduce_dtype, fabs(b) + bound) / 2 : 0.0);
  j->inexact += got != b;
  j->bias[f] = b;
  if (!isfinite(got) &&
      (!isfinite(b) || !row_is_finite(j, j->r->steps, f))) { /* zero times Inf is not the bias */
    ++j->propagated;
    return;
  }
  const double ratio = isfinite(got) ? fabs(got - b) / most : INFINITY;
  j->worst_bias = ratio <= j->worst_bias ? j->worst_bias : isnan(ratio) ? INFINITY : ratio;
  const uint32_t wire = j->r->run.world_size > 1 ? s->reduce_dtype : 0;
  const double shown =
      lost_in(j, s->y_dtype, got) + in_steps + (wire && wire != BS_I8 ? lost_in(j, wire, got) : 0.0);
  j->bias[f] = fmin(fmax(b, got - shown), got + shown);
  j->bias_error[f] = fmin(bound, shown);
}

/* A row of W through all steps; the bias of it beside. */
static void judge_row(judging *j, int64_t f) {
  const int64_t K = j->c->spec.K, B = j->c->spec.B, F = j->r->features;
  bs_followed of_bias = {0};
  double b = j->bias[f], b_bound = 0.0, ignored;
  int64_t t = 0;
  sums row = {0};
  memset(j->weights, 0, (size_t)K * sizeof *j->weights);
  for (int64_t i = 0; i < j->r->steps; ++i) {
    const bs_stepper of_w = bs_stepper_make(j->o, ++t, 0, j->wide),
                     of_b = bs_stepper_make(j->o, t, 1, j->wide);
    gradient_of_row(j, i, f);
    j->brought = !j->x_finite || !isfinite(b) || !row_is_finite(j, i, f);
    for (int64_t k = 0; k < K; ++k) {
      double bound, var;
      const uint32_t rank = owner_of(j, j->r->feature[f], k);
      if (rank == BS_OWNER_NONE) continue; /* of the other half: nobody has it */
      const double want =
          bs_follow(&of_w, &j->weights[k], j->r->w[(i * F + f) * K + k], slope_of(j, k), &bound, &var);
      judge_weight(j, i, f, k, rank, want, bound, var, &row);
    }
    double sum = 0, magnitude = 0, e = 0;
    for (int64_t n = 0; n < B; ++n) {
      const double d = j->r->dy[(i * B + n) * F + f];
      sum += d;
      magnitude += fabs(d);
    }
    const double u = j->wide ? 0x1p-53 : 0x1p-24;
    const bs_slope slope = {.g = sum, .bound = accumulate_error((double)B) * u * magnitude + u * fabs(sum)};
    b = bs_follow(&of_b, &of_bias, b, slope, &e, &ignored);
    b_bound += e + bs_ulp(j->b_dtype, fabs(b) + e) / 2;
    if (!bs_train_remasks(j->o, i + 1, j->r->steps)) continue;
    t = 0; /* a new layer: it remembers nothing, and its bias is what forward gave for zeros */
    memset(&of_bias, 0, sizeof of_bias);
    memset(j->weights, 0, (size_t)K * sizeof *j->weights);
    b = j->r->zero[(i + 1) * F + f];
    b_bound = 0.0;
  }
  j->worst_row = fmax(j->worst_row, beyond(&row));
  if (j->c->spec.has_bias) judge_bias(j, f, b, b_bound);
}

/* ---- gates --------------------------------------------------------------------------------------- */

static bs_gate *new_gate(bs_step_verdict *out, const char *name, int32_t rank, double value, double limit) {
  bs_gate *gate = &out->gates[out->n_gates++];
  memset(gate, 0, sizeof *gate);
  snprintf(gate->name, sizeof gate->name, "%s", name);
  gate->rank = rank;
  gate->value = value;
  gate->limit = limit;
  gate->state = isfinite(value) && isfinite(limit) && value <= limit ? BS_GATE_PASS : BS_GATE_FAIL;
  return gate;
}

static bs_gate *skip(bs_gate *gate, const char *why) {
  gate->state = BS_GATE_SKIPPED;
  gate->value = gate->limit = 0.0;
  snprintf(gate->text, sizeof gate->text, "%s", why);
  return gate;
}

static void weight_gates(const judging *j, bs_step_verdict *out) {
  int32_t worst = 0;
  double share = -1.0;
  for (uint32_t r = 0; r < j->r->run.world_size; ++r) {
    const sums *s = &j->ranks[r];
    const double limit = 1.3 + BS_T1_C / sqrt(s->count > 0 ? s->count : 1.0), now = beyond(s) / limit;
    if (s->count < BS_T1_MIN_OUTPUTS || !(now > share || isnan(now))) continue;
    share = now;
    worst = (int32_t)r;
  }
  const sums *s = &j->ranks[worst];
  out->relative = s->norm2 > 0 ? sqrt(s->error2 / s->norm2) : 0.0;
  out->predicted = s->norm2 > 0 ? sqrt(s->var / s->norm2) : 0.0;
  bs_gate *gate = new_gate(out, "W.T1", worst, out->relative,
                           out->predicted * (1.3 + BS_T1_C / sqrt(s->count > 0 ? s->count : 1.0)));
  snprintf(gate->text, sizeof gate->text, "relative Frobenius error of stepped weights; predicted %.3g",
           out->predicted);
  if (share < 0) skip(gate, "fewer than 128 weights on each rank: T3 and T5 judge alone");
  gate = new_gate(out, "W.T2.row", -1, j->worst_row, 1.0 + 9.0 / sqrt((double)j->c->spec.K));
  snprintf(gate->text, sizeof gate->text, "worst row, in units of its own prediction");
  if (j->c->spec.K < BS_T2_MIN || share < 0) skip(gate, "rows of fewer than 8 weights, or fewer than 128");
  gate = new_gate(out, "W.T3", -1, j->worst, 1.0);
  snprintf(gate->text, sizeof gate->text,
           "worst |error|/bound, in step %lld at row %lld column %lld; %llu of %llu over",
           (long long)j->worst_step + 1, (long long)j->worst_feature, (long long)j->worst_column,
           (unsigned long long)j->wrong, (unsigned long long)j->judged);
  if (!j->c->spec.has_bias) return;
  gate = new_gate(out, "b.T3", -1, j->worst_bias, 1.0);
  snprintf(gate->text, sizeof gate->text, "worst |error|/bound of the bias behind the last step");
}

/* Outputs of every step on every rank, where all hold all. */
static void same_gate(const judging *j, bs_step_verdict *out) {
  uint64_t differing = 0;
  int32_t rank = -1;
  const int split = j->c->spec.y_placement == BS_SPLIT;
  for (uint32_t r = 1; !split && r < j->r->run.world_size; ++r)
    for (int64_t i = 0; i <= j->r->steps; ++i) {
      if (j->r->ranks[r].hash[i] == j->r->ranks[0].hash[i]) continue;
      if (differing++ == 0) rank = (int32_t)r;
    }
  bs_gate *gate = new_gate(out, "T4", rank, (double)differing, 0.0);
  snprintf(gate->text, sizeof gate->text, "outputs of %lld steps that differ between ranks",
           (long long)j->r->steps + 1);
  if (split || j->r->run.world_size == 1) skip(gate, split ? "the output is split" : "one rank");
}

/* Forward behind the last step, in the sampled features, with the weights as they were read back. */
static int32_t judge_outputs(const judging *j, bs_step_verdict *out, bs_error *err) {
  const int64_t F = j->r->features, K = j->c->spec.K, B = j->c->spec.B;
  const size_t size = BS_DTYPE_BYTES(j->c->spec.y_dtype);
  const uint32_t world = j->r->run.world_size;
  bs_case g = *j->c;
  bs_case_result run = j->r->run;
  bs_source w = {0}, bias = {0};
  bs_verdict verdict = {0};
  char *values = calloc((size_t)world * (size_t)(B * F) + 1, size);
  run.ranks = calloc(world, sizeof *run.ranks);
  int32_t rc = values && run.ranks ? BS_OK : no_memory(err);
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
  g.spec.N = F;
  run.rows = j->r->feature;
  if (rc == BS_OK) rc = bs_source_from_memory(j->r->w + j->r->steps * F * K, BS_F64, F, K, K, &w, err);
  if (rc == BS_OK) rc = bs_source_from_memory(j->bias, BS_F64, 1, F, F, &bias, err);
  g.w = &w;
  g.bias = g.spec.has_bias ? &bias : NULL;
  const bs_verdict_within within = {.bias_error = j->bias_error, .gaps = F < j->c->spec.N};
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

static int32_t open_judging(const bs_case *c, const bs_train_result *r, judging *j, bs_error *err) {
  const size_t B = (size_t)c->spec.B, K = (size_t)c->spec.K, F = (size_t)r->features;
  j->x = calloc(B * K + 1, sizeof *j->x);
  j->dw = calloc(3 * K + 1, sizeof *j->dw);
  j->weights = calloc(K + 1, sizeof *j->weights);
  j->bias = calloc(2 * F + 1, sizeof *j->bias);
  j->ranks = calloc(r->run.world_size, sizeof *j->ranks);
  if (!j->x || !j->dw || !j->weights || !j->bias || !j->ranks) return no_memory(err);
  j->bias_error = j->bias + F;
  j->energy = j->dw + K;
  j->magnitude = j->energy + K;
  if (bs_owners_by_row(&r->run)) {
    j->owner = calloc(K + 1, sizeof *j->owner);
    if (!j->owner) return no_memory(err);
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
  judging j = {.c = c, .o = o, .r = r};
  memset(out, 0, sizeof *out);
  if (!bs_case_judged(c)) return BS_OK;
  j.wide = s->x_dtype == BS_F64 || s->w_dtype == BS_F64 || s->y_dtype == BS_F64;
  j.b_dtype = s->y_dtype == BS_F64 ? BS_F64 : BS_F32;
  int32_t rc = open_judging(c, r, &j, err);
  for (int64_t f = 0; rc == BS_OK && f < r->features; ++f) {
    bs_case_tell(c, "judge", (uint64_t)f + 1, (uint64_t)r->features);
    rc = read_owners(&j, f, err);
    if (rc == BS_OK) judge_row(&j, f);
  }
  if (rc == BS_OK) {
    weight_gates(&j, out);
    same_gate(&j, out);
    rc = judge_outputs(&j, out, err);
  }
  out->inexact = j.inexact;
  out->judged = j.judged;
  out->nonfinite += j.propagated;
  void *const all[] = {j.x, j.dw, j.weights, j.bias, j.ranks, j.rank_of, j.owner};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) free(all[i]);
  return rc;
}
