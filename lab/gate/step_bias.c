/* SPDX-License-Identifier: MIT
 * step_bias.c - judges training: the biases through all steps, together with the gradient before the
 * activation. They depend on each other: a step's slopes are evaluated at a Z that has the previous bias. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/activation.h"
#include "lab/case/owners.h"
#include "lab/error.h"
#include "lab/gate/slope.h"
#include "lab/gate/step_judging.h"

int32_t bs_step_forward_case(const bs_judging *j, int64_t step, const double *bias, bs_source *w,
                             bs_source *b, bs_case *c, bs_case_result *run, bs_error *err) {
  const int64_t F = j->r->features, K = j->c->spec.K;
  *c = *j->c;
  *run = j->r->run;
  run->rows = j->r->feature;
  c->spec.N = F;
  int32_t rc = bs_source_from_memory(j->r->w + step * F * K, BS_F64, F, K, K, w, err);
  if (rc == BS_OK) rc = bs_source_from_memory(bias, BS_F64, 1, F, F, b, err);
  c->w = w;
  c->bias = c->spec.has_bias ? b : NULL;
  return rc;
}

/* Weights of rows' own positions that a later mask gives to others. */
static int moves_behind(const bs_judging *j, int64_t i) {
  for (int64_t k = i + 1; bs_owners_by_row(&j->r->run) && k < j->r->steps; ++k)
    if (bs_train_remasks(j->o, k, j->r->steps)) return 1;
  return 0;
}

/* dZ of step i; the arrays that it is put into were taken with the first. */
static int32_t take_slopes(bs_judging *j, int64_t i, bs_error *err) {
  const int64_t F = j->r->features, n = j->c->spec.B * F, all = j->r->steps * n;
  bs_source w = {0}, bias = {0};
  bs_case c;
  bs_case_result run;
  bs_slopes s = {0};
  if (j->slopes == NULL) {
    j->slopes = calloc((size_t)(2 * all) + 1, sizeof *j->slopes);
    if (j->slopes == NULL) return bs_no_memory(err, "judging training");
    j->dz = j->slopes;
    j->dz_bound2 = j->slopes + all;
  }
  const bs_slopes_given given = {.y = j->r->y + i * n,
                                 .dy = j->r->dy + i * n,
                                 .dtype = BS_F64,
                                 .bias_error = j->c->spec.has_bias ? j->bias_bound + i * F : NULL,
                                 .gaps = F < j->c->spec.N,
                                 .moved = moves_behind(j, i)};
  int32_t rc = bs_step_forward_case(j, i, j->bias + i * F, &w, &bias, &c, &run, err);
  c.progress = NULL;
  if (rc == BS_OK) rc = bs_slopes_make(&c, &run, &given, &s, err);
  if (rc == BS_OK) {
    memcpy(j->slopes + i * n, s.dz, (size_t)n * sizeof *s.dz);
    memcpy(j->dz_bound2 + i * n, s.bound2, (size_t)n * sizeof *s.dz);
  }
  bs_slopes_free(&s);
  bs_source_release(&w);
  bs_source_release(&bias);
  return rc;
}

/* db of a row in one step. */
static bs_slope slope_of_bias(const bs_judging *j, int64_t i, int64_t f) {
  const int64_t B = j->c->spec.B, F = j->r->features;
  const double u = j->wide ? 0x1p-53 : 0x1p-24;
  double sum = 0, magnitude = 0, bound2 = 0;
  for (int64_t n = 0; n < B; ++n) {
    const int64_t at = (i * B + n) * F + f;
    sum += j->dz[at];
    magnitude += fabs(j->dz[at]);
    if (j->dz_bound2) bound2 += j->dz_bound2[at];
  }
  return (bs_slope){
      .g = sum, .bound = bs_step_accumulate((double)B) * u * magnitude + u * fabs(sum) + 4.0 * sqrt(bound2)};
}

int32_t bs_step_follow_biases(bs_judging *j, bs_error *err) {
  const int64_t F = j->r->features;
  bs_followed *state = calloc((size_t)F + 1, sizeof *state);
  int64_t t = 0;
  int32_t rc = BS_OK;
  if (state == NULL) return bs_no_memory(err, "judging training");
  j->dz = j->r->dy;
  for (int64_t i = 0; rc == BS_OK && i < j->r->steps; ++i) {
    const bs_stepper step = bs_stepper_make(j->o, ++t, 1, j->wide);
    const int anew = bs_train_remasks(j->o, i + 1, j->r->steps);
    if (j->c->spec.activation != BS_ACT_NONE) rc = take_slopes(j, i, err);
    for (int64_t f = 0; rc == BS_OK && f < F; ++f) {
      double e = 0;
      double *b = &j->bias[(i + 1) * F + f], *bound = &j->bias_bound[(i + 1) * F + f];
      *b = bs_follow(&step, &state[f], b[-F], slope_of_bias(j, i, f), &e);
      *bound = bound[-F] + e + bs_ulp(j->b_dtype, fabs(*b) + e) / 2;
      if (!anew) continue;
      *b = j->r->zero[(i + 1) * F + f]; /* the bias of a new layer is forward's output for zeros */
      *bound = 0.0;
    }
    if (!anew) continue;
    t = 0; /* and it has no optimiser state */
    memset(state, 0, (size_t)F * sizeof *state);
  }
  free(state);
  return rc;
}

/* The error that rounding to `dtype` adds to the bias; 0 if that dtype is at least as wide. */
static double lost_in(const bs_judging *j, uint32_t dtype, double value) {
  return BS_DTYPE_BYTES(dtype) >= BS_DTYPE_BYTES(j->b_dtype) ? 0.0 : bs_ulp(dtype, value) / 2;
}

/* The largest bias of a group whose outputs share a step, read from its outputs. With an activation, which
 * may have made those small, it uses the biases: of all rows, or by the spread of some (as
 * lab/gate/wire.c). */
static double largest_of_group(const bs_judging *j, int64_t f) {
  const int64_t F = j->r->features, last = j->r->steps * F;
  double most = 0.0, square = 0.0;
  if (j->c->spec.activation == BS_ACT_NONE) return j->r->zero_largest[last + f];
  for (int64_t i = 0; i < F; ++i) {
    most = fmax(most, fabs(j->bias[last + i]) + j->bias_bound[last + i]);
    square += j->bias[last + i] * j->bias[last + i];
  }
  return F < j->c->spec.N ? fmax(most, 7.0 * sqrt(square / (double)F)) : most;
}

/* The error of sums in int8 steps: half a step of its group for each rounding. */
static double lost_in_steps(const bs_judging *j, int64_t f) {
  const bs_layer_spec *s = &j->c->spec;
  if (s->reduce_dtype != BS_I8 || j->r->run.world_size < 2) return 0.0;
  const double most = largest_of_group(j, f);
  return bs_arithmetic_of(s).wire_steps * 0.5 * most / BS_WIRE_LEVELS * (1.0 + 1.0 / BS_WIRE_LEVELS) +
         0x1p-22 * most;
}

/* The largest distance of forward's output for zeros from act(b), with b known to `bound`. */
static double most_off(const bs_judging *j, double b, double bound, double in_steps) {
  const bs_layer_spec *s = &j->c->spec;
  const double u = j->wide ? 0x1p-53 : 0x1p-24;
  const double before = bound + in_steps + bs_ulp(bs_arithmetic_of(s).reduce_dtype, fabs(b) + bound) / 2;
  const double slope = bs_activation_slope(s->activation, b - before, b + before);
  return before * slope + bs_activation_error(s->activation, b, u) +
         bs_ulp(s->y_dtype, fabs(bs_activation_value(s->activation, b)) + bound * slope) / 2;
}

/* Judges the bias of feature f. The steps bring it to within `bound` of b; forward of zeros shows it as
 * exactly as the dtypes allow. Forward after the last step is judged with the bias that both allow: many
 * rounded steps may move it far from b. With an activation forward is judged with b alone. */
void bs_step_judge_bias(bs_judging *j, int64_t f) {
  const bs_layer_spec *s = &j->c->spec;
  const int64_t last = j->r->steps * j->r->features + f;
  const double b = j->bias[last], bound = j->bias_bound[last];
  const double got = j->r->zero[last], in_steps = lost_in_steps(j, f);
  const double want = bs_activation_value(s->activation, b), most = most_off(j, b, bound, in_steps);
  j->inexact += got != want;
  j->shown[f] = b;
  if (!isfinite(got) && (!isfinite(b) || !bs_step_row_is_finite(j, j->r->steps, f))) {
    ++j->propagated; /* zero times Inf is not the bias */
    return;
  }
  const double ratio = got == want ? 0.0 : isfinite(got) ? fabs(got - want) / most : INFINITY;
  j->worst_bias = ratio <= j->worst_bias ? j->worst_bias : isnan(ratio) ? INFINITY : ratio;
  j->shown_error[f] = bound;
  if (s->activation != BS_ACT_NONE) return;
  const uint32_t wire = j->r->run.world_size > 1 ? bs_arithmetic_of(s).reduce_dtype : 0;
  const double shown =
      lost_in(j, s->y_dtype, got) + in_steps + (wire && wire != BS_I8 ? lost_in(j, wire, got) : 0.0);
  j->shown[f] = fmin(fmax(b, got - shown), got + shown);
  j->shown_error[f] = fmin(bound, shown);
}
