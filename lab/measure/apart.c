/* SPDX-License-Identifier: MIT
 * apart.c - compares two series that were taken at different times, in separate runs, as bs_compare_pairs
 * does for pairs (stats.h). A group's median is one observation of its series (of a build, if groups are
 * builds); Welch's t of the logarithms gives the interval. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/measure/stats.h"

enum { LEAST_GROUPS = 3, LEAST_SAMPLES = 5, USUAL_GROUPS = 8 };

/* Statistics of the logarithms of a series' groups. */
typedef struct spread {
  double mean, error2; /* squared standard error of the mean */
  double low, high;
  uint32_t groups;
} spread;

static int observe(const double *values, const size_t *start, uint32_t groups, spread *out) {
  double square = 0.0;
  *out = (spread){.low = INFINITY, .high = -INFINITY, .groups = groups};
  for (uint32_t g = 0; g < groups; ++g) {
    const double x = log(bs_median(values + start[g], start[g + 1] - start[g])), away = x - out->mean;
    if (!isfinite(x)) return 0;
    out->mean += away / (g + 1);
    square += away * (x - out->mean);
    out->low = fmin(out->low, x);
    out->high = fmax(out->high, x);
  }
  out->error2 = groups > 1 ? square / (groups - 1.0) / groups : 0.0;
  return 1;
}

static int observe_series(const bs_apart *s, spread *out) {
  size_t start[BS_GROUPS_MAX + 1];
  if (s->groups >= LEAST_GROUPS) return observe(s->seconds, s->start, s->groups, out);
  const uint32_t groups = s->count < LEAST_SAMPLES  ? 1u
                          : s->count < USUAL_GROUPS ? (uint32_t)s->count
                                                    : (uint32_t)USUAL_GROUPS;
  for (uint32_t g = 0; g <= groups; ++g) start[g] = g * s->count / groups;
  return s->count > 0 && observe(s->seconds, start, groups, out);
}

/* Welch and Satterthwaite. */
static uint32_t freedom_of(const spread *a, const spread *b) {
  const double sum = a->error2 + b->error2;
  double under = 0.0;
  if (a->groups > 1) under += a->error2 * a->error2 / (a->groups - 1.0);
  if (b->groups > 1) under += b->error2 * b->error2 / (b->groups - 1.0);
  const uint32_t most = a->groups + b->groups > 3 ? a->groups + b->groups - 2 : 1;
  const double freedom = under > 0 ? floor(sum * sum / under) : most;
  return freedom < 1 ? 1 : freedom > most ? most : (uint32_t)freedom;
}

int bs_compare_apart(const bs_apart *subject, const bs_apart *other, double margin, bs_comparison *out) {
  spread s, o;
  memset(out, 0, sizeof *out);
  out->margin = margin;
  if (!observe_series(subject, &s) || !observe_series(other, &o)) return 0;
  const double log_ratio = o.mean - s.mean;
  out->pairs = subject->count < other->count ? subject->count : other->count;
  out->groups = s.groups < o.groups ? s.groups : o.groups;
  out->ratio = exp(log_ratio);
  out->error = sqrt(s.error2 + o.error2);
  out->freedom = freedom_of(&s, &o);
  const double half = bs_student_quantile(0.05, out->freedom) * out->error;
  out->low = exp(log_ratio - half);
  out->high = exp(log_ratio + half);
  out->one_side = log_ratio > 0 ? o.low > s.high : o.high < s.low;
  bs_comparison *const table[] = {out};
  bs_comparisons_decide(table, 1);
  return 1;
}
