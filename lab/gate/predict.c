/* SPDX-License-Identifier: MIT
 * predict.c - the effects of round-off, from the reference itself (docs/gates.md). Used by judge.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/case/case.h"
#include "lab/error.h"
#include "lab/gate/judge.h"

/* ---- sums in int8 steps -------------------------------------------------------------------------- */

#define FARTHEST 7.0  /* assumed bound, in deviations, of a group's largest value that is not known */
#define LARGEST2 8.15 /* E[max^2] of 128 standard normal values: tests/gate/test_gate_wire.c */

/* The largest of n values' sizes. A value that is not finite has no step: its group is lost, and those of its
 * outputs that are finite in the reference are judged by the steps that they would have without it. */
static double largest(const double *values, int64_t n) {
  double most = 0.0;
  for (int64_t i = 0; i < n; ++i)
    if (isfinite(values[i]) && fabs(values[i]) > most) most = fabs(values[i]);
  return most;
}

/* One group of one token: columns first .. first+n-1 of `values`. The error of the partial sums, `carried`,
 * reaches the sum and may raise its largest value. */
static void add_group(const double *values, int64_t n, double carried, double *variance, double *bound) {
  const double step = largest(values, n) / BS_WIRE_LEVELS,
               kept = (double)(n - 1) / (double)n; /* the largest itself is exact */
  for (int64_t i = 0; i < n; ++i) {
    variance[i] += step * step / 12.0 * kept;
    bound[i] += 0.5 * (step + carried / BS_WIRE_LEVELS);
  }
}

static void whole_groups(const bs_reference *ref, uint32_t steps, double *variance, double *bound) {
  const int64_t P = ref->world_size, base = ref->N / P, extra = ref->N % P;
  for (int64_t r = 0, begin = 0; r < P; ++r) {
    const int64_t end = begin + base + (r < extra);
    for (int64_t first = begin; first < end; first += BS_WIRE_GROUP) {
      const int64_t n = end - first < BS_WIRE_GROUP ? end - first : BS_WIRE_GROUP;
      for (int64_t b = 0; b < ref->B; ++b) {
        const int64_t at = b * ref->features + first;
        for (int64_t p = 0; p < P; ++p) add_group(ref->partial[p] + at, n, 0.0, variance + at, bound + at);
        if (steps < 2) continue;
        const double *sum = (ref->pre ? ref->pre : ref->y) + at;
        add_group(sum, n, largest(bound + at, n), variance + at, bound + at);
      }
    }
    begin = end;
  }
}

static double mean_square(const double *values, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += isfinite(values[i]) ? values[i] * values[i] : 0.0;
  return n > 0 ? sum / (double)n : 0.0;
}

static void sampled(const bs_reference *ref, uint32_t steps, double *variance, double *bound) {
  for (int64_t b = 0; b < ref->B; ++b) {
    const int64_t at = b * ref->features;
    double square = 0.0, reach = 0.0;
    for (uint32_t p = 0; p < ref->world_size + (steps > 1); ++p) {
      const double *values = p < ref->world_size ? ref->partial[p] : ref->pre ? ref->pre : ref->y;
      const double mean = mean_square(values + at, ref->features);
      square += mean;
      reach += FARTHEST * sqrt(mean);
    }
    for (int64_t f = 0; f < ref->features; ++f) {
      variance[at + f] = square * LARGEST2 / (BS_WIRE_LEVELS * BS_WIRE_LEVELS * 12.0);
      bound[at + f] = 0.5 * reach / BS_WIRE_LEVELS * (1.0 + 1.0 / BS_WIRE_LEVELS);
    }
  }
}

/* Fills both if the sums are in int8 steps; 0: no memory. The caller frees both. */
static int wire_steps(const bs_reference *ref, const bs_arithmetic *a, double **out_variance,
                      double **out_bound) {
  const size_t n = (size_t)(ref->B * ref->features) + 1u;
  *out_variance = *out_bound = NULL;
  if (a->reduce_dtype != BS_I8 || !ref->partial || ref->world_size < 2) return 1;
  *out_variance = calloc(n, sizeof **out_variance);
  *out_bound = calloc(n, sizeof **out_bound);
  if (!*out_variance || !*out_bound) return 0;
  if (ref->features == ref->N && !ref->gaps)
    whole_groups(ref, a->wire_steps, *out_variance, *out_bound);
  else
    sampled(ref, a->wire_steps, *out_variance, *out_bound);
  return 1;
}

/* ---- all sums ------------------------------------------------------------------------------------- */

/* Unit round-off of the accumulator of the products. Hopper's tensor cores keep 13 bits after the binary
 * point of the largest term of a sum of fp8. */
static double accumulate_roundoff(const bs_arithmetic *arithmetic) {
  if (arithmetic->accumulate == BS_ACC_F64 || arithmetic->y_dtype == BS_F64) return 0x1p-53;
  return arithmetic->low_sums ? 0x1p-13 : 0x1p-24;
}

static double rounding_variance(uint32_t dtype, double value) {
  const double ulp = bs_ulp(dtype, value);
  return ulp * ulp / 12.0;
}

double bs_reference_sum(const bs_reference *ref, int64_t at) {
  return ref->pre ? ref->pre[at] : ref->y[at];
}

/* The rounding of the last sum over ranks makes the output: no activation computes anything between them. */
static int last_sum_is_output(const bs_reference *ref, const bs_arithmetic *a) {
  return ref->partial && ref->world_size > 1 && a->reduce_dtype == a->y_dtype &&
         (a->activation == BS_ACT_NONE || a->activation == BS_ACT_RELU);
}

/* Variance from the values that one sum stores: each partial, each partial sum after the first. */
static double stored_variance(const bs_reference *ref, const bs_arithmetic *a, const double *steps,
                              int64_t at) {
  if (steps) return steps[at];
  double variance = 0.0;
  double sum = 0.0;
  for (uint32_t r = 0; ref->partial && ref->world_size > 1 && r < ref->world_size; ++r) {
    const double part = ref->partial[r][at];
    if (part == 0.0) continue; /* not this rank's feature: no value is stored and rounded */
    variance += rounding_variance(a->reduce_dtype, part);
    if (sum != 0.0) variance += rounding_variance(a->reduce_dtype, sum + part);
    sum += part;
  }
  return variance;
}

/* Unit round-off of the format in which an activation is evaluated. */
static double evaluation_roundoff(const bs_arithmetic *a) {
  return a->y_dtype == BS_F64 ? 0x1p-53 : 0x1p-24;
}

static double tail_error(const bs_arithmetic *a, double z) {
  return a->usual_tail ? bs_activation_tail_error(a->activation, z, evaluation_roundoff(a)) : 0.0;
}

/* The variance from evaluating the activation and storing the output. An eighth of the largest error is
 * typical, and a quarter at the tail (docs/check.md). */
static double output_variance(const bs_reference *ref, const bs_arithmetic *a, int64_t at) {
  const double z = bs_reference_sum(ref, at), tail = tail_error(a, z) / 4.0;
  const double own = bs_activation_error(a->activation, z, evaluation_roundoff(a)) / 8.0;
  return own * own + tail * tail +
         (last_sum_is_output(ref, a) ? 0.0 : rounding_variance(a->y_dtype, ref->y[at]));
}

static double bias_error(const bs_reference *ref, int64_t at) {
  return ref->bias_error ? ref->bias_error[at % ref->features] : 0.0;
}

/* Variance of one output: that of its sum, `stored` and the accumulation, as far as the activation lets it
 * through. The slope is the largest within six deviations: near relu's kink an error may pass. */
static double element_variance(const bs_reference *ref, const bs_arithmetic *a, const double *steps,
                               int64_t at, double accumulation, double *out_slope2) {
  const double off = bias_error(ref, at);
  const double before = stored_variance(ref, a, steps, at) + accumulation + off * off;
  const double reach = 6.0 * sqrt(before), z = bs_reference_sum(ref, at);
  const double slope = bs_activation_slope(a->activation, z - reach, z + reach);
  *out_slope2 = slope * slope;
  return *out_slope2 * before + output_variance(ref, a, at);
}

/* The step below the normal range, for all values: of K products and K sums. */
static double least_step(const bs_arithmetic *a) {
  return accumulate_roundoff(a) == 0x1p-53 ? 0x1p-1074 : 0x1p-149;
}

/* The sum of the squared magnitudes of feature f's outputs. */
static double magnitude2(const bs_reference *ref, int64_t f) {
  double sum = 0.0;
  for (int64_t at = f; at < ref->B * ref->features; at += ref->features)
    sum += ref->magnitude[at] * ref->magnitude[at];
  return sum;
}

/* The share of an output in the mean accumulation error of its feature: tokens may differ in size. */
static double share_of(const bs_reference *ref, int64_t at, double all) {
  return all > 0.0 && isfinite(all) ? (double)ref->B * ref->magnitude[at] * ref->magnitude[at] / all : 1.0;
}

/* Accumulation: sqrt(K/6) u relative to the products' energy, or to the result if that is larger (sums of one
 * sign). For an output of feature f, in the mean over tokens. */
static double accumulation_variance(const bs_reference *ref, const bs_arithmetic *a, int64_t f) {
  const double u = accumulate_roundoff(a);
  double norm = 0.0;
  for (int64_t b = 0; b < ref->B; ++b) {
    const double z = bs_reference_sum(ref, b * ref->features + f);
    if (isfinite(z)) norm += z * z;
  }
  const double energy = isfinite(ref->energy[f]) ? ref->energy[f] : 0.0;
  return (double)ref->K / 6.0 *
         (u * u * fmax(norm, energy) / (double)ref->B + least_step(a) * least_step(a)); /* 2 K step^2/12 */
}

/* Rigorous for the roundings; the accumulation term is 4 sqrt(K) u (|X| |W|^T), far above its spread and far
 * below a lost weight; that of inputs with errors of their own is 4 times the root of the sum of their
 * squares. An activation carries the sum's bound on by its largest slope within that bound. */
static double element_bound(const bs_reference *ref, const bs_arithmetic *a, const double *steps,
                            int64_t at) {
  const double u_out = bs_dtype_unit_roundoff(a->y_dtype);
  const double u_acc = accumulate_roundoff(a);
  const double z = bs_reference_sum(ref, at), half_step = 0.5 * bs_ulp(a->y_dtype, 0.0);
  double bound =
      4.0 * sqrt((double)ref->K + 1.0) * (u_acc * ref->magnitude[at] + least_step(a)) + bias_error(ref, at);
  if (ref->carried_bound2) bound += 4.0 * sqrt(ref->carried_bound2[at]);
  if (steps) {
    bound += a->activation == BS_ACT_NONE ? (1.0 + u_out) * steps[at] : steps[at];
  } else if (ref->partial && ref->world_size > 1) {
    const int plain = a->activation == BS_ACT_NONE;
    const double u_part = bs_dtype_unit_roundoff(a->reduce_dtype);
    double roundings = 0.0;
    double sum = 0.0;
    for (uint32_t r = 0; r < ref->world_size; ++r) {
      const double part = ref->partial[r][at];
      roundings += fabs(part);
      sum += part;
      if (r > 0 && (!plain || r + 1 < ref->world_size || a->reduce_dtype != a->y_dtype))
        roundings += fabs(sum);
    }
    const double each = 0.5 * bs_ulp(a->reduce_dtype, 0.0) * (2.0 * ref->world_size);
    const double stored = u_part * roundings * (1.0 + ref->world_size * u_part) + each;
    bound += plain ? (1.0 + u_out) * stored : stored;
  }
  if (a->activation == BS_ACT_NONE) return u_out * fabs(ref->y[at]) + half_step + bound;
  bound *= bs_activation_slope(a->activation, z - bound, z + bound);
  bound += bs_activation_error(a->activation, z, evaluation_roundoff(a)) + tail_error(a, z);
  return last_sum_is_output(ref, a) ? bound : (1.0 + u_out) * bound + u_out * fabs(ref->y[at]) + half_step;
}

static int alloc_prediction(const bs_reference *ref, const bs_arithmetic *a, bs_prediction *out) {
  const size_t outputs = (size_t)(ref->B * ref->features) + 1;
  out->bound = calloc(outputs, sizeof(double));
  out->variance = calloc(outputs, sizeof(double));
  if (a->activation != BS_ACT_NONE) out->slope2 = calloc(outputs, sizeof(double));
  return out->bound && out->variance && (out->slope2 || a->activation == BS_ACT_NONE) &&
         wire_steps(ref, a, &out->step_variance, &out->step_bound);
}

int32_t bs_predict(const bs_reference *ref, const bs_arithmetic *a, bs_prediction *out, bs_error *err) {
  double variance = 0.0, norm = 0.0;
  memset(out, 0, sizeof *out);
  if (!alloc_prediction(ref, a, out)) {
    bs_prediction_free(out);
    return bs_no_memory(err, "a prediction of %lld x %lld outputs", (long long)ref->B,
                        (long long)ref->features);
  }
  for (int64_t f = 0; f < ref->features; ++f) {
    const double accumulation = accumulation_variance(ref, a, f), all = magnitude2(ref, f);
    for (int64_t at = f; at < ref->B * ref->features; at += ref->features) {
      double slope2 = 1.0;
      out->bound[at] = element_bound(ref, a, out->step_bound, at);
      if (!isfinite(ref->y[at]) || !isfinite(bs_reference_sum(ref, at)))
        continue; /* from the inputs: nothing to round */
      out->variance[at] =
          element_variance(ref, a, out->step_variance, at, accumulation * share_of(ref, at, all), &slope2);
      if (out->slope2) out->slope2[at] = slope2;
      variance += out->variance[at];
      norm += ref->y[at] * ref->y[at];
    }
  }
  out->relative = norm > 0 ? sqrt(variance / norm) : 0.0;
  return BS_OK;
}

int32_t bs_bound_sums(const bs_reference *ref, const bs_arithmetic *a, double *bound, bs_error *err) {
  double *step_variance, *step_bound;
  const int made = wire_steps(ref, a, &step_variance, &step_bound);
  for (int64_t at = 0; made && at < ref->B * ref->features; ++at)
    bound[at] = element_bound(ref, a, step_bound, at);
  free(step_variance);
  free(step_bound);
  return made ? BS_OK
              : bs_no_memory(err, "the bounds of %lld x %lld sums", (long long)ref->B,
                             (long long)ref->features);
}

void bs_prediction_free(bs_prediction *prediction) {
  free(prediction->bound);
  free(prediction->variance);
  free(prediction->slope2);
  free(prediction->step_variance);
  free(prediction->step_bound);
  memset(prediction, 0, sizeof *prediction);
}
