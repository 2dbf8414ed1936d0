/* SPDX-License-Identifier: MIT
 * stats.c - order statistics and paired comparison. */
#include "lab/measure/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"

enum { RESAMPLES = 2000, MIN_PAIRS = 5 };

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

static uint32_t word_of(const bs_comparison *c) {
  if (c->pairs < MIN_PAIRS) return BS_WORD_UNCLEAR;
  if (c->low > 1.0 && c->ratio > 1.0 + c->margin) return BS_WORD_FASTER;
  if (c->high < 1.0 && c->ratio < 1.0 / (1.0 + c->margin)) return BS_WORD_SLOWER;
  if (c->low >= 1.0 / (1.0 + c->margin) && c->high <= 1.0 + c->margin) return BS_WORD_SAME;
  return BS_WORD_UNCLEAR;
}

int bs_compare_pairs(const double *subject, const double *other, size_t pairs, double margin,
                     bs_comparison *out) {
  memset(out, 0, sizeof *out);
  out->pairs = pairs;
  out->margin = margin;
  if (pairs == 0) return 1;
  double *ratio = malloc((2 * pairs + RESAMPLES) * sizeof *ratio);
  uint32_t *pick = malloc(pairs * sizeof *pick);
  if (!ratio || !pick) {
    free(ratio);
    free(pick);
    return 0;
  }
  double *drawn = ratio + pairs;
  double *medians = drawn + pairs;
  for (size_t i = 0; i < pairs; ++i) ratio[i] = other[i] / subject[i];
  for (size_t s = 0; s < RESAMPLES; ++s) {
    bs_rng_bits(20261121, 7, (uint64_t)s * pairs, pairs, pick);
    for (size_t i = 0; i < pairs; ++i) drawn[i] = ratio[(uint64_t)pick[i] * pairs >> 32];
    qsort(drawn, pairs, sizeof *drawn, ascending);
    medians[s] = sorted_percentile(drawn, pairs, 0.5);
  }
  qsort(medians, RESAMPLES, sizeof *medians, ascending);
  out->ratio = bs_median(ratio, pairs);
  out->low = sorted_percentile(medians, RESAMPLES, 0.025);
  out->high = sorted_percentile(medians, RESAMPLES, 0.975);
  out->word = word_of(out);
  free(ratio);
  free(pick);
  return 1;
}

const char *bs_comparison_name(uint32_t word) {
  static const char *const names[] = {"UNCLEAR", "FASTER", "SLOWER", "SAME"};
  return word < 4 ? names[word] : "?";
}
