/* SPDX-License-Identifier: MIT
 * outliers.h - a look at one series of samples: order statistics, and outliers
 * by two rules. Nothing is ever taken out of a series here: it is counted and told. */
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
} bs_look;

/* Returns 0 when out of memory. */
int bs_look_at(const double *values, size_t count, bs_look *out);

enum { BS_LOOK_SENTENCE = 160 };
/* 1 and a sentence when there are outliers, `name` in front. */
int bs_look_sentence(const bs_look *look, const char *name, char *out, size_t size);
#endif
