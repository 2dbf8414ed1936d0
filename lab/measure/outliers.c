/* SPDX-License-Identifier: MIT
 * outliers.c - a look at a series of samples: what a median would hide. */
#include "lab/measure/outliers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/measure/stats.h"

enum { LEAST = 6, LEAST_FOR_MODES = 16 };
static const double Z = 3.5;          /* modified z beyond which a sample is an outlier */
static const double FAR = 6;          /* modified z that is worth a sentence: chance hardly gets there */
static const double FENCE = 1.5;      /* interquartile ranges */
static const double NOTABLE = 0.01;   /* shapes smaller than this share of the median are not told */
static const double TREND_SIGMAS = 4; /* of the difference of two medians */
static const double APART = 5;        /* distance of two groups in their standard deviations (Ashman's D) */
static const double MODE_SHARE = 0.15;

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

/* The first sample against the rest of them. */
static void look_at_first(const double *v, const scratch *s, bs_look *out) {
  const double others = bs_median(v + 1, s->n - 1);
  out->first = v[0] / others;
  const double scale = scale_of(s, out->p50, out->mad);
  out->first_slow = out->first > 1.0 + NOTABLE && v[0] - others > Z * scale;
}

/* First third against last third. The noise is taken from the steps between neighbours, which a trend hardly
 * widens. */
static void look_for_trend(const double *v, const scratch *s, bs_look *out) {
  const size_t third = s->n / 3;
  const double before = bs_median(v, third), after = bs_median(v + s->n - third, third);
  for (size_t i = 0; i + 1 < s->n; ++i) s->work[i] = fabs(v[i + 1] - v[i]);
  const double sigma = 1.4826 * bs_median(s->work, s->n - 1) / sqrt(2.0);
  const double error = 1.2533 * sigma * sqrt(2.0 / (double)third);
  out->trend = after / before;
  out->trending = fabs(out->trend - 1.0) > NOTABLE && fabs(after - before) > TREND_SIGMAS * error;
}

/* Two groups: the cut of the sorted samples that leaves the least variance within both. They are two modes
 * when both are more than a few and lie far apart for their own width. */
static void look_for_modes(const scratch *s, bs_look *out) {
  const size_t n = s->n;
  size_t least = (size_t)ceil(MODE_SHARE * (double)n), cut = 0;
  double all = 0.0, below = 0.0, best = -1.0;
  if (least < 3) least = 3;
  for (size_t i = 0; i < n; ++i) all += s->sorted[i];
  for (size_t k = 1; k < n; ++k) {
    below += s->sorted[k - 1];
    const double apart = (all - below) / (double)(n - k) - below / (double)k;
    const double between = (double)k * (double)(n - k) * apart * apart;
    if (k < least || n - k < least || between <= best) continue;
    best = between;
    cut = k;
  }
  if (cut == 0) return;
  double mean[2] = {0, 0}, variance[2] = {0, 0};
  for (size_t i = 0; i < n; ++i) mean[i >= cut] += s->sorted[i] / (double)(i < cut ? cut : n - cut);
  for (size_t i = 0; i < n; ++i)
    variance[i >= cut] += pow(s->sorted[i] - mean[i >= cut], 2) / (double)(i < cut ? cut : n - cut);
  const double width = sqrt((variance[0] + variance[1]) / 2);
  out->mode[0] = bs_median(s->sorted, cut);
  out->mode[1] = bs_median(s->sorted + cut, n - cut);
  out->mode_share = (double)(n - cut) / (double)n;
  out->bimodal = mean[1] - mean[0] > NOTABLE * out->p50 && mean[1] - mean[0] > APART * width;
}

int bs_look_at(const double *values, size_t count, bs_look *out) {
  memset(out, 0, sizeof *out);
  out->count = count;
  out->first = out->trend = 1.0;
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
  if (count >= LEAST) {
    look_at_first(values, &s, out);
    look_for_trend(values, &s, out);
    if (count >= LEAST_FOR_MODES) look_for_modes(&s, out);
  }
  free(s.sorted);
  return 1;
}

size_t bs_look_sentences(const bs_look *look, const char *name, char out[][BS_LOOK_SENTENCE]) {
  size_t n = 0;
  if (look->far > 0)
    snprintf(out[n++], BS_LOOK_SENTENCE,
             "%.48s: %zu of %zu samples are outliers (%zu low, %zu high), all kept", name,
             look->z_low + look->z_high, look->count, look->z_low, look->z_high);
  if (look->first_slow)
    snprintf(out[n++], BS_LOOK_SENTENCE,
             "%.48s: the first sample took %.2f times the others: the warm-up was too short", name,
             look->first);
  if (look->trending)
    snprintf(out[n++], BS_LOOK_SENTENCE,
             "%.48s: the last third is %.1f %% %s than the first: clock or load moved, trust pairs only",
             name, 100.0 * fabs(look->trend - 1.0), look->trend > 1 ? "slower" : "faster");
  if (look->bimodal)
    snprintf(
        out[n++], BS_LOOK_SENTENCE,
        "%.48s: times fall into two groups, %.4g and %.4g ms (%.0f %% in the slower); the median shows one",
        name, 1e3 * look->mode[0], 1e3 * look->mode[1], 100.0 * look->mode_share);
  return n;
}
