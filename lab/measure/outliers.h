/* SPDX-License-Identifier: MIT
 * outliers.h - a look at one series of samples: order statistics, outliers by two rules, and three shapes
 * that a median would hide. Nothing is ever taken out of a series here: it is counted and told. */
#ifndef BS_LAB_MEASURE_OUTLIERS_H
#define BS_LAB_MEASURE_OUTLIERS_H
#include <stddef.h>
#include <stdint.h>

typedef struct bs_look {
  size_t count;
  double min, p50, p90, p99, max;
  double mad;                   /* median absolute deviation, not scaled */
  size_t z_low, z_high;         /* |modified z| > 3.5: 0.6745 (x - median) / MAD; both tails */
  size_t far;                   /* |modified z| > 6: these are told in a sentence */
  size_t tukey_low, tukey_high; /* beyond 1.5 interquartile ranges below and above the quartiles */
  uint32_t first_slow, trending, bimodal;
  double first;      /* first sample / median of the others */
  double trend;      /* median of the last third / median of the first third */
  double mode[2];    /* when bimodal: median of either group */
  double mode_share; /* when bimodal: share of the slower group */
} bs_look;

/* In the order of time. Returns 0 when out of memory. Fewer than 6 samples: no shapes are looked for; fewer
 * than 16: no modes. */
int bs_look_at(const double *values, size_t count, bs_look *out);

enum { BS_LOOK_SENTENCES = 4, BS_LOOK_SENTENCE = 160 };
/* One sentence for each thing that the reader should know, `name` in front; how many. */
size_t bs_look_sentences(const bs_look *look, const char *name, char out[][BS_LOOK_SENTENCE]);
#endif
