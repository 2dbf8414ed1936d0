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

typedef struct scratch {
  size_t n;
  double *sorted, *work;
} scratch;

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a;
  const double y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The scale of a modified z: 1.4826 MAD; when more than half of the samples are equal, 1.2533 times the mean
 * absolute deviation; 0 when all are. */
static double scale_of(const scratch *s, double median, double mad) {
  double mean = 0.0;
  if (mad > 0) return 1.4826 * mad;
  for (size_t i = 0; i < s->n; ++i) mean += fabs(s->sorted[i] - median) / (double)s->n;
  return 1.2533 * mean;
}

static void count_outliers(const scratch *s, bs_look *out) {
  const double low = bs_percentile(s->sorted, s->n, 0.25), high = bs_percentile(s->sorted, s->n, 0.75);
  const double reach = FENCE * (high - low), scale = scale_of(s, out->p50, out->mad);
  for (size_t i = 0; i < s->n; ++i) {
    const double v = s->sorted[i];
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
  scratch s = {.n = count, .sorted = malloc(2 * count * sizeof *s.sorted)};
  if (!s.sorted) return 0;
  s.work = s.sorted + count;
  memcpy(s.sorted, values, count * sizeof *values);
  qsort(s.sorted, count, sizeof *s.sorted, ascending);
  out->min = s.sorted[0];
  out->max = s.sorted[count - 1];
  out->p50 = bs_median(values, count);
  out->p90 = bs_percentile(values, count, 0.9);
  out->p99 = bs_percentile(values, count, 0.99);
  for (size_t i = 0; i < count; ++i) s.work[i] = fabs(values[i] - out->p50);
  out->mad = bs_median(s.work, count);
  count_outliers(&s, out);
  free(s.sorted);
  return 1;
}

int bs_look_sentence(const bs_look *look, const char *name, char *out, size_t size) {
  if (look->far == 0) return 0;
  snprintf(out, size, "%.48s: %zu of %zu samples are outliers (%zu low, %zu high), all kept", name,
           look->z_low + look->z_high, look->count, look->z_low, look->z_high);
  return 1;
}
