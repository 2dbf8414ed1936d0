/* SPDX-License-Identifier: MIT
 * wire.c - what sums in int8 steps do to each output (docs/methods.md): the partial sums, and behind them the
 * sum, are rounded to 1/127 of the largest value of their group. From the reference itself where it has all
 * features; from the spread of those that it has otherwise. */
#include <math.h>
#include <stdlib.h>

#include "lab/gate/judge.h"

#define FARTHEST \
  7.0 /* deviations that a group's largest value is assumed to stay within when it is not seen */
#define LARGEST2 8.15 /* E[max^2] of 128 standard normal values: tests/gate/test_gate_wire.c */

/* The largest of n values' sizes. What is not finite has no step: the wire loses its group, and the outputs
 * of it that are finite in the reference are judged by the steps that they would have had. */
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

int bs_wire_steps(const bs_reference *ref, const bs_arithmetic *a, double **out_variance,
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
