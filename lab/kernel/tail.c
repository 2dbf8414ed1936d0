/* SPDX-License-Identifier: MIT
 * tail.c - see tail.h. With x = d z, z normal and d log-normal of spread s: E[d^4] / E[d^2]^2 = exp(4 s^2),
 * E[x^4] = 3 E[d^4], and the logarithm of d has the mean ln(E[d^2]) / 2 - s^2. */
#include "lab/kernel/tail.h"

#include <math.h>

void bs_tail_add(bs_tail *t, double values, double squares, double fourths) {
  t->rows++;
  t->values += values;
  t->squares += squares;
  t->fourths += fourths;
  t->means += squares / values * (squares / values);
}

void bs_tail_divide(bs_tail *t, double by) {
  const double square = by * by;
  t->squares /= square;
  t->fourths /= square * square;
  t->means /= square * square;
}

void bs_tail_join(bs_tail *t, const bs_tail *other) {
  t->rows += other->rows;
  t->values += other->values;
  t->squares += other->squares;
  t->fourths += other->fourths;
  t->means += other->means;
}

double bs_tail_rmse(const bs_tail *t) {
  return t->values > 0.0 ? sqrt(t->squares / t->values) : 0.0;
}

/* Log-normal deviations. */
typedef struct deviations {
  double mean, spread; /* of the logarithm */
} deviations;

/* Finds the spread from the mean of the squares and of the fourth powers. */
static deviations fit(double square, double fourth) {
  const double s2 = fmax(0.0, log(fourth / (square * square)) / 4.0);
  return (deviations){0.5 * log(square) - s2, sqrt(s2)};
}

static double normal_beyond(double x) {
  return 0.5 * erfc(x / sqrt(2.0));
}

/* The probability that an error is beyond exp(x) in size. */
static double beyond(deviations d, double x) {
  enum { STEPS = 180 };
  const double widest = 9.0, step = 2.0 * widest / STEPS;
  double p = 0.0;
  if (d.spread == 0.0) return 2.0 * normal_beyond(exp(x - d.mean));
  for (int i = 0; i <= STEPS; i++) {
    const double g = i * step - widest;
    p += exp(-0.5 * g * g) * 2.0 * normal_beyond(exp(x - d.mean - d.spread * g));
  }
  return p * step * 0.3989422804014327; /* 1 / sqrt(2 pi) */
}

/* The tail probability of one error for which the largest of n independent errors has p. */
static double each_of(double n, double p) {
  return -log1p(-p) / fmax(n, 1.0);
}

/* The normal number that is exceeded with this probability. */
static double normal_at(double p) {
  double low = 0.0, high = 9.0;
  for (int i = 0; i < 60; i++) {
    const double x = 0.5 * (low + high);
    if (normal_beyond(x) > p)
      low = x;
    else
      high = x;
  }
  return high;
}

/* The standard deviation of the logarithm of the root mean square of so many errors. Few of them show too
 * little of a kurtosis. */
static double uncertainty(const bs_tail *t, double values) {
  const double square = t->squares / t->values, kurtosis = t->fourths / t->values / (square * square);
  return sqrt((fmax(kurtosis, 3.0) - 1.0) / (4.0 * values));
}

/* The factor by which a small sample may underestimate the errors. */
static double few(const bs_tail *t, double p) {
  return exp(normal_at(p) * uncertainty(t, t->values));
}

double bs_tail_largest(const bs_tail *t, double n, double p) {
  if (!(t->squares > 0.0)) return t->squares; /* none, or NaN */
  const deviations d = fit(t->squares / t->values, t->fourths / t->values / 3.0);
  const double wanted = each_of(n, p);
  double low = d.mean - 9.0 * d.spread - 4.0, high = d.mean + 9.0 * d.spread + 4.0;
  for (int i = 0; i < 60; i++) {
    const double x = 0.5 * (low + high);
    if (beyond(d, x) > wanted)
      low = x;
    else
      high = x;
  }
  return exp(high) * few(t, p);
}

double bs_tail_slice(const bs_tail *t, double n, double rows, double values, double p) {
  if (!(t->squares > 0.0)) return t->squares;
  /* The mean square of v normal errors varies too, and adds 2 / v to the ratio of these moments. */
  const double square = t->squares / t->values, spread_of_few = 1.0 + 2.0 * t->rows / t->values;
  const deviations d = fit(square, t->means / t->rows / spread_of_few);
  const double row = exp(d.mean + d.spread * normal_at(each_of(n * rows, p)));
  const double drawn = normal_at(each_of(n, p)) / sqrt(2.0 * values);
  return sqrt(square + row * row / rows) * (1.0 + drawn) * few(t, p);
}

double bs_tail_ratio(const bs_tail *t, double n, double values, double p) {
  if (!(t->squares > 0.0)) return 1.0;
  return exp(normal_at(each_of(n, p)) * sqrt(2.0) * uncertainty(t, values));
}
