/* SPDX-License-Identifier: MIT
 * stats.c - order statistics and paired comparison. */
#include "lab/measure/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"

enum {
  MIN_PAIRS = 5,
  MIN_GROUPS = 3,
  MOST_SINGLE = 24,
  USUAL_GROUPS = 15,
  USUAL_PAIRS = 20,
  MOST_PAIRS = 20000
};
static const double INTERVAL_TAIL = 0.05; /* of the interval that is shown, both sides */
static const double WORD_TAIL = 0.005;    /* one side of the 99 % interval that a word needs */
static const double SPARE = 1.4;          /* additional pairs, as a factor of those that the estimates of
                                           * ratio and error require */
static const double BY_BUILD = 3.0;
static const double TRIMMED = 0.2; /* share of the observations that is cut off on either side */

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a;
  const double y = *(const double *)b;
  return (x > y) - (x < y);
}

static double sorted_percentile(const double *sorted, size_t count, double q) {
  if (count == 0) return 0.0;
  const double at = (double)(count - 1) * q;
  const size_t low = (size_t)at;
  const size_t high = low + 1 < count ? low + 1 : low;
  return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

double bs_percentile(const double *values, size_t count, double q) {
  if (count == 0) return 0.0;
  double *copy = malloc(count * sizeof *copy);
  if (!copy) return NAN;
  memcpy(copy, values, count * sizeof *copy);
  qsort(copy, count, sizeof *copy, ascending);
  const double result = sorted_percentile(copy, count, q);
  free(copy);
  return result;
}

double bs_median(const double *values, size_t count) {
  return bs_percentile(values, count, 0.5);
}

/* ---- the interval ------------------------------------------------------------------------------- */

/* The probability of |T| > t, by the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4. */
static double student_tail(double t, uint32_t dof) {
  const double angle = atan(fabs(t) / sqrt((double)dof)), c2 = cos(angle) * cos(angle);
  double term = dof % 2 == 0 ? 1.0 : cos(angle), sum = dof == 1 ? 0.0 : term;
  for (uint32_t k = dof % 2 == 0 ? 2 : 3; k + 2 <= dof; k += 2) {
    term *= c2 * (k - 1.0) / k;
    sum += term;
  }
  const double within = dof % 2 == 0 ? sin(angle) * sum : 2.0 / M_PI * (angle + sin(angle) * sum);
  return fmax(0.0, 1.0 - within);
}

double bs_student_quantile(double tail, uint32_t dof) {
  double low = 0.0, high = 1e6;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    *(student_tail(middle, dof) > tail ? &low : &high) = middle;
  }
  return 0.5 * (low + high);
}

/* log of the group's median ratio, and the square of its standard error by the spread of its pairs; NAN when
 * out of memory. */
static double group_median(const double *subject, const double *other, size_t n, double *out_error2) {
  double *ratio = malloc(n * sizeof *ratio);
  if (ratio == NULL) return NAN;
  for (size_t i = 0; i < n; ++i) ratio[i] = log(other[i] / subject[i]);
  const double median = bs_median(ratio, n);
  for (size_t i = 0; i < n; ++i) ratio[i] = fabs(ratio[i] - median);
  const double scale = 1.2533 * 1.4826 * bs_median(ratio, n);
  *out_error2 = scale * scale / (double)n;
  free(ratio);
  return median;
}

/* Mean of the observations without the lowest and highest ones, its standard error from the winsorised ones
 * (Tukey and McLaughlin), and the number that remain: a few disturbed ones do not decide. */
static double trimmed_mean(const double *sorted, uint32_t n, double *out_error, uint32_t *out_left) {
  const uint32_t cut = (uint32_t)(TRIMMED * n), left = n - 2 * cut;
  double mean = 0.0, all = 0.0, square = 0.0;
  for (uint32_t i = cut; i < n - cut; ++i) mean += sorted[i] / left;
  for (int pass = 0; pass < 2; ++pass) {
    for (uint32_t i = 0; i < n; ++i) {
      const double v = sorted[i < cut ? cut : i >= n - cut ? n - cut - 1 : i];
      if (pass == 0)
        all += v / n;
      else
        square += (v - all) * (v - all);
    }
  }
  *out_error = left > 1 ? sqrt(square / (n - 1.0) * n) / left : 0.0;
  *out_left = left;
  return mean;
}

/* The ratio, its interval, and whether the observations differ by more than their own errors explain. */
static void summarise(double *v, uint32_t n, double error2, bs_comparison *out) {
  uint32_t left = 0;
  qsort(v, n, sizeof *v, ascending);
  const double mean = trimmed_mean(v, n, &out->error, &left);
  const double half = left > 1 ? bs_student_quantile(INTERVAL_TAIL, left - 1) * out->error : 0.0;
  out->ratio = exp(mean);
  out->low = exp(mean - half);
  out->high = exp(mean + half);
  out->freedom = left > 1 ? left - 1 : 1;
  out->by_build = out->error * sqrt((double)n) > BY_BUILD * sqrt(error2 / n);
}

/* Are all builds that the trimmed mean keeps on the same side of 1 as `ratio`? The others may differ: a
 * disturbance in few pairs can move one of many builds. */
static int on_one_side(const double *sorted, uint32_t n, double ratio) {
  const uint32_t cut = (uint32_t)(TRIMMED * n);
  return ratio > 1 ? sorted[cut] > 0 : sorted[n - 1 - cut] <= 0;
}

/* Observations of single pairs may be on both sides of 1: only effects of a build must not. */
static int compare(const double *subject, const double *other, const size_t *start, uint32_t groups,
                   int one_side, double margin, bs_comparison *out) {
  double observed[BS_GROUPS_MAX], sorted[BS_GROUPS_MAX], error2 = 0.0;
  memset(out, 0, sizeof *out);
  out->pairs = start[groups] - start[0];
  out->groups = groups;
  out->margin = margin;
  for (uint32_t g = 0; g < groups; ++g) {
    double own = 0.0;
    observed[g] = group_median(subject + start[g], other + start[g], start[g + 1] - start[g], &own);
    if (isnan(observed[g])) return 0;
    error2 += own;
  }
  memcpy(sorted, observed, groups * sizeof *sorted);
  summarise(sorted, groups, error2, out);
  out->one_side = !one_side || on_one_side(sorted, groups, out->ratio);
  bs_comparison *const table[] = {out};
  bs_comparisons_decide(table, 1);
  return 1;
}

int bs_compare_groups(const double *subject, const double *other, const size_t *start, uint32_t groups,
                      double margin, bs_comparison *out) {
  return compare(subject, other, start, groups, 1, margin, out);
}

int bs_compare_pairs(const double *subject, const double *other, size_t pairs, double margin,
                     bs_comparison *out) {
  size_t start[BS_GROUPS_MAX + 1];
  const size_t groups = pairs < MIN_PAIRS ? 1 : pairs <= MOST_SINGLE ? pairs : USUAL_GROUPS;
  for (size_t g = 0; g <= groups; ++g) start[g] = g * pairs / groups;
  if (pairs > 0) return compare(subject, other, start, (uint32_t)groups, 0, margin, out);
  *out = (bs_comparison){.margin = margin, .needs = USUAL_PAIRS, .cause = BS_UNCLEAR_FEW};
  return 1;
}

void bs_comparison_widen(bs_comparison *c, double order) {
  c->order = order;
  *(order < 0 ? &c->low : &c->high) *= exp(order);
}

/* ---- the words ---------------------------------------------------------------------------------- */

/* The order of arms may have changed the ratio; returns the end of its range that is nearer to 1, as a
 * logarithm. */
static double nearest_log(const bs_comparison *c) {
  const double as_seen = log(c->ratio), after_itself = as_seen + c->order;
  if (as_seen * after_itself <= 0) return 0.0;
  return fabs(as_seen) < fabs(after_itself) ? as_seen : after_itself;
}

/* The chance of such a ratio or a larger one if the true one is at the margin. */
static double chance(const bs_comparison *c, double seen) {
  const double beyond = fabs(seen) - log1p(c->margin);
  if (c->pairs < MIN_PAIRS || c->groups < MIN_GROUPS || !c->one_side || beyond <= 0) return 1.0;
  return c->error > 0 ? 0.5 * student_tail(beyond / c->error, c->freedom) : 0.0;
}

/* The half width falls with the root of the pairs. It must fit between the ratio and the margin. */
static size_t pairs_needed(const bs_comparison *c) {
  if (c->pairs < MIN_PAIRS || c->groups < MIN_GROUPS)
    return (size_t)fmax(USUAL_PAIRS, ceil(1.25 * (double)c->pairs));
  const double away = fabs(log(c->ratio)), margin = log1p(c->margin);
  const double tail = away <= margin ? INTERVAL_TAIL : 2 * WORD_TAIL;
  const double half = bs_student_quantile(tail, c->freedom) * c->error;
  const double times = half / fmax(fabs(away - margin), 1e-9);
  const double needs = (double)c->pairs * fmax(1.25, SPARE * times * times);
  return needs <= MOST_PAIRS ? (size_t)(ceil(needs / 10.0) * 10.0) : 0;
}

static uint32_t calm_word(const bs_comparison *c) {
  const double most = 1.0 + c->margin;
  return c->pairs >= MIN_PAIRS && c->groups >= MIN_GROUPS && c->low >= 1.0 / most && c->high <= most
             ? BS_WORD_SAME
             : BS_WORD_UNCLEAR;
}

static uint32_t cause_of(const bs_comparison *c) {
  if (c->word != BS_WORD_UNCLEAR) return BS_UNCLEAR_NO;
  if (c->order != 0) return BS_UNCLEAR_ORDER;
  if (c->by_build && c->builds >= MIN_GROUPS) return BS_UNCLEAR_BUILD;
  return c->needs > 0 ? BS_UNCLEAR_FEW : BS_UNCLEAR_MARGIN;
}

void bs_comparisons_decide(bs_comparison *const *table, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) table[i]->word = calm_word(table[i]);
  for (uint32_t left = n; left > 0; --left) { /* the most certain first */
    bs_comparison *most = NULL;
    double least = WORD_TAIL / left;
    for (uint32_t i = 0; i < n; ++i) {
      const double p = chance(table[i], nearest_log(table[i]));
      if (table[i]->word == BS_WORD_FASTER || table[i]->word == BS_WORD_SLOWER || p > least) continue;
      least = p;
      most = table[i];
    }
    if (most == NULL) break;
    most->word = most->ratio > 1 ? BS_WORD_FASTER : BS_WORD_SLOWER;
  }
  for (uint32_t i = 0; i < n; ++i) {
    table[i]->needs = table[i]->word == BS_WORD_UNCLEAR ? pairs_needed(table[i]) : 0;
    table[i]->cause = cause_of(table[i]);
  }
}

int32_t bs_compare_series(const bs_series *subject, const bs_series *other, double margin, bs_comparison *out,
                          bs_error *err) {
  double ignored = 0.0;
  const bs_span over = bs_span_make(other->phase, 1.0, 1);
  const bs_span under = bs_span_make(subject->phase, 1.0, 1);
  memset(out, 0, sizeof *out);
  const int32_t rc = bs_span_ratio(&over, &under, &ignored, err);
  if (rc != BS_OK) return rc;
  if (subject->count != other->count)
    return bs_error_set(err, BS_USAGE, "BS-SPAN-PHASE", "%zu samples cannot be paired with %zu",
                        subject->count, other->count);
  if (bs_compare_pairs(subject->seconds, other->seconds, subject->count, margin, out)) return BS_OK;
  return bs_no_memory(err, "comparing %zu pairs", subject->count);
}

/* ---- a look at a series -------------------------------------------------------------------------- */

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
