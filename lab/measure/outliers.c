/* SPDX-License-Identifier: MIT
 * outliers.c - a look at a series of samples: order statistics and outliers. */
#include "lab/measure/outliers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/measure/stats.h"

static const double Z = 3.5;     /* modified z beyond which a sample is an outlier */
static const double FAR = 6;     /* modified z that is worth a sentence: chance hardly gets there */
static const double FENCE = 1.5; /* interquartile ranges */

/* The scale of a modified z: 1.4826 MAD; when more than half of the samples are equal, 1.2533 times the mean
 * absolute deviation; 0 when all are. */
static double scale_of(const double *values, const bs_look *look) {
  double mean = 0.0;
  if (look->mad > 0) return 1.4826 * look->mad;
  for (size_t i = 0; i < look->count; ++i) mean += fabs(values[i] - look->p50) / (double)look->count;
  return 1.2533 * mean;
}

static void count_outliers(const double *values, bs_look *out) {
  const double low = bs_percentile(values, out->count, 0.25), high = bs_percentile(values, out->count, 0.75);
  const double reach = FENCE * (high - low), scale = scale_of(values, out);
  for (size_t i = 0; i < out->count; ++i) {
    const double v = values[i];
    out->z_low += scale > 0 && (out->p50 - v) / scale > Z;
    out->z_high += scale > 0 && (v - out->p50) / scale > Z;
    out->far += scale > 0 && fabs(v - out->p50) / scale > FAR;
    out->tukey_low += v < low - reach;
    out->tukey_high += v > high + reach;
  }
}

int bs_look_at(const double *values, size_t count, bs_look *out) {
  memset(out, 0, sizeof *out);
  out->count = count;
  if (count == 0) return 1;
  double *deviations = malloc(count * sizeof *deviations);
  if (deviations == NULL) return 0;
  out->min = bs_percentile(values, count, 0.0);
  out->p50 = bs_median(values, count);
  out->p90 = bs_percentile(values, count, 0.9);
  out->p99 = bs_percentile(values, count, 0.99);
  out->max = bs_percentile(values, count, 1.0);
  for (size_t i = 0; i < count; ++i) deviations[i] = fabs(values[i] - out->p50);
  out->mad = bs_median(deviations, count);
  count_outliers(values, out);
  free(deviations);
  return 1;
}

int bs_look_sentence(const bs_look *look, const char *name, char *out, size_t size) {
  if (look->far == 0) return 0;
  snprintf(out, size, "%.48s: %zu of %zu samples are outliers (%zu low, %zu high), all kept", name,
           look->z_low + look->z_high, look->count, look->z_low, look->z_high);
  return 1;
}
