/* SPDX-License-Identifier: MIT
 * stats.h - order statistics and the comparison of two arms from interleaved pairs (docs/measuring.md). Pure
 * functions: the tests feed them synthetic clocks. */
#ifndef BS_LAB_MEASURE_STATS_H
#define BS_LAB_MEASURE_STATS_H
#include <stddef.h>
#include <stdint.h>

#include "lab/measure/span.h"

/* Percentile q in [0,1] by linear interpolation of the sorted values: k = (n-1) q. 0 for none. Sorts a copy;
 * NaN on out of memory. */
double bs_percentile(const double *values, size_t count, double q);
double bs_median(const double *values, size_t count);

enum bs_comparison_word { BS_WORD_UNCLEAR = 0, BS_WORD_FASTER = 1, BS_WORD_SLOWER = 2, BS_WORD_SAME = 3 };

/* ratio = other / subject, so > 1 means that the subject is faster. */
typedef struct bs_comparison {
  size_t pairs;
  double ratio;     /* median of the pairs' ratios */
  double low, high; /* 95 % percentile bootstrap over pairs */
  uint32_t word;    /* enum bs_comparison_word, with equivalence margin `margin` */
  uint32_t block;   /* pairs that were drawn together: 1, or 2 to 4 when neighbours are alike */
  double margin;
  double autocorrelation; /* of neighbouring pairs' ratios */
  size_t needs;           /* when UNCLEAR: about so many pairs would decide; 0: no number that is practical */
} bs_comparison;

/* Bootstrap with 2000 resamples of pairs from a fixed seed: the same samples give the same interval.
 * subject[i] and other[i] are seconds of pair i. Fewer than 5 pairs: UNCLEAR. Returns 0 when out of memory.
 */
int bs_compare_pairs(const double *subject, const double *other, size_t pairs, double margin,
                     bs_comparison *out);
const char *bs_comparison_name(uint32_t word);
/* As bs_compare_pairs, of typed samples: BS_USAGE (BS-SPAN-PHASE) when they are of different phases or not of
 * the same number. */
int32_t bs_compare_series(const bs_series *subject, const bs_series *other, double margin, bs_comparison *out,
                          bs_error *err);
/* What to do about an UNCLEAR comparison, one sentence; empty for the other words. Returns out. */
const char *bs_comparison_next(const bs_comparison *comparison, char *out, size_t size);
#endif
