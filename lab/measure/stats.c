/* SPDX-License-Identifier: MIT
 * stats.c - order statistics and paired comparison. */
#include "lab/measure/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/rng.h"

enum { RESAMPLES = 2000, MIN_PAIRS = 5, USUAL_PAIRS = 20, MOST_PAIRS = 20000 };

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

typedef struct bootstrap {
  size_t pairs, block;
  double *ratio, *sorted, *medians; /* [pairs], [pairs], [RESAMPLES] */
  uint32_t *rank, *seen, *pick;     /* [pairs]: place of each ratio among the sorted; counts; draws */
} bootstrap;

static int bootstrap_make(size_t pairs, bootstrap *b) {
  memset(b, 0, sizeof *b);
  b->pairs = pairs;
  b->ratio = malloc((2 * pairs + RESAMPLES) * sizeof *b->ratio);
  b->rank = malloc(3 * pairs * sizeof *b->rank);
  if (!b->ratio || !b->rank) return 0;
  b->sorted = b->ratio + pairs;
  b->medians = b->sorted + pairs;
  b->seen = b->rank + pairs;
  b->pick = b->seen + pairs;
  return 1;
}

static void bootstrap_free(bootstrap *b) {
  free(b->ratio);
  free(b->rank);
}

/* Equal ratios share the lowest place: which of them is drawn makes no difference. */
static void rank_all(bootstrap *b) {
  memcpy(b->sorted, b->ratio, b->pairs * sizeof *b->sorted);
  qsort(b->sorted, b->pairs, sizeof *b->sorted, ascending);
  for (size_t i = 0; i < b->pairs; ++i) {
    size_t low = 0, high = b->pairs;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (b->sorted[middle] < b->ratio[i])
        low = middle + 1;
      else
        high = middle;
    }
    b->rank[i] = (uint32_t)low;
  }
}

/* Of the ranks of neighbours, not of the ratios: one spike must not decide it. */
static double neighbours_alike(const bootstrap *b) {
  const size_t n = b->pairs;
  double mean = 0.0, both = 0.0, all = 0.0;
  for (size_t i = 0; i < n; ++i) mean += (double)b->rank[i] / (double)n;
  for (size_t i = 0; i < n; ++i) {
    const double d = b->rank[i] - mean;
    all += d * d;
    if (i + 1 < n) both += d * (b->rank[i + 1] - mean);
  }
  return all > 0 ? both / all : 0.0;
}

static size_t block_length(double alike, size_t pairs) {
  if (pairs < 10 || alike < 2.0 / sqrt((double)pairs)) return 1;
  return alike < 0.35 ? 2 : alike < 0.5 ? 3 : 4;
}

/* The median of one resample: the drawn places are counted, and the middle is walked to. */
static double resampled_median(bootstrap *b) {
  const size_t n = b->pairs, lower = (n - 1) / 2, upper = n / 2;
  memset(b->seen, 0, n * sizeof *b->seen);
  for (size_t i = 0; i < n; ++i) {
    const size_t first = (size_t)((uint64_t)b->pick[i / b->block] * n >> 32) + i % b->block;
    ++b->seen[b->rank[first < n ? first : first - n]];
  }
  size_t at = 0, before = b->seen[0];
  while (before <= lower) before += b->seen[++at];
  const double low = b->sorted[at];
  while (before <= upper) before += b->seen[++at];
  return low + 0.5 * (double)(upper - lower) * (b->sorted[at] - low);
}

static void resample(bootstrap *b, bs_comparison *out) {
  for (size_t s = 0; s < RESAMPLES; ++s) {
    bs_rng_bits(20261121, 7, (uint64_t)s * b->pairs, b->pairs, b->pick);
    b->medians[s] = resampled_median(b);
  }
  qsort(b->medians, RESAMPLES, sizeof *b->medians, ascending);
  out->ratio = sorted_percentile(b->sorted, b->pairs, 0.5);
  out->low = sorted_percentile(b->medians, RESAMPLES, 0.025);
  out->high = sorted_percentile(b->medians, RESAMPLES, 0.975);
}

/* ---- the verdict -------------------------------------------------------------------------------- */

static uint32_t word_of(const bs_comparison *c) {
  if (c->pairs < MIN_PAIRS) return BS_WORD_UNCLEAR;
  if (c->low > 1.0 && c->ratio > 1.0 + c->margin) return BS_WORD_FASTER;
  if (c->high < 1.0 && c->ratio < 1.0 / (1.0 + c->margin)) return BS_WORD_SLOWER;
  if (c->low >= 1.0 / (1.0 + c->margin) && c->high <= 1.0 + c->margin) return BS_WORD_SAME;
  return BS_WORD_UNCLEAR;
}

/* The half width falls with the root of the pairs. It must fit between the ratio and the margin when the
 * ratio lies inside it, else between the ratio and 1. */
static size_t pairs_needed(const bs_comparison *c) {
  if (c->word != BS_WORD_UNCLEAR) return 0;
  if (c->pairs < MIN_PAIRS) return USUAL_PAIRS;
  const double away = c->ratio >= 1.0 ? c->ratio - 1.0 : 1.0 / c->ratio - 1.0;
  const double room = away <= c->margin ? c->margin - away : away;
  const double half = (c->high - c->low) / (2.0 * c->ratio);
  const double times = half / (room > 0 ? room : 1e-9);
  double needs = (double)c->pairs * fmax(1.25, times * times);
  if (!(needs <= MOST_PAIRS)) return 0;
  needs = ceil(needs / 10.0) * 10.0;
  return (size_t)needs;
}

int bs_compare_pairs(const double *subject, const double *other, size_t pairs, double margin,
                     bs_comparison *out) {
  bootstrap b;
  memset(out, 0, sizeof *out);
  out->pairs = pairs;
  out->margin = margin;
  out->block = 1;
  out->needs = USUAL_PAIRS;
  if (pairs == 0) return 1;
  const int made = bootstrap_make(pairs, &b);
  if (made) {
    for (size_t i = 0; i < pairs; ++i) b.ratio[i] = other[i] / subject[i];
    rank_all(&b);
    out->autocorrelation = neighbours_alike(&b);
    b.block = block_length(out->autocorrelation, pairs);
    out->block = (uint32_t)b.block;
    resample(&b, out);
    out->word = word_of(out);
    out->needs = pairs_needed(out);
  }
  bootstrap_free(&b);
  return made;
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
  return bs_error_set(err, BS_NO_MEMORY, "BS-STATS-MEMORY", "no memory to compare %zu pairs", subject->count);
}

const char *bs_comparison_name(uint32_t word) {
  static const char *const names[] = {"UNCLEAR", "FASTER", "SLOWER", "SAME"};
  return word < 4 ? names[word] : "?";
}

const char *bs_comparison_next(const bs_comparison *c, char *out, size_t size) {
  if (c->word != BS_WORD_UNCLEAR) {
    snprintf(out, size, "%s", "");
  } else if (c->needs > 0) {
    snprintf(out, size, "needs about %zu pairs", c->needs);
  } else {
    snprintf(out, size, "more samples cannot decide; the difference is as large as the %g %% margin",
             c->margin * 100.0);
  }
  return out;
}
