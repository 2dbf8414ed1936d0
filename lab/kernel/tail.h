/* SPDX-License-Identifier: MIT
 * tail.h - the size of the largest of many errors without a fault. Errors are normal with different
 * deviations: a large output is rounded to fewer places; a query with few keys, or with one dominant key, is
 * less exact. Deviations are assumed log-normal, with the spread that matches the fourth moment of the
 * emulated errors. Pure. */
#ifndef BS_LAB_KERNEL_TAIL_H
#define BS_LAB_KERNEL_TAIL_H

/* The probability that a right kernel exceeds the limit that a gate takes from these functions. */
#define BS_TAIL_ODDS 1e-4

/* Sums over rows of errors. Begins as {0}. */
typedef struct bs_tail {
  double rows, values;
  double squares, fourths; /* of the errors */
  double means;            /* of the squares of the rows' mean squares */
} bs_tail;

/* The errors of a row: how many, and the sums of their squares and fourth powers. */
void bs_tail_add(bs_tail *tail, double values, double squares, double fourths);
/* Divides all errors by `by`, which makes them relative. */
void bs_tail_divide(bs_tail *tail, double by);
/* Adds all rows of another one. */
void bs_tail_join(bs_tail *tail, const bs_tail *other);
double bs_tail_rmse(const bs_tail *tail);
/* The bound that the largest of n errors exceeds with the probability p. */
double bs_tail_largest(const bs_tail *tail, double n, double p);
/* The bound that the worst root mean square of n slices, each of `rows` rows and `values` values, exceeds
 * with the probability p. One row in it is as bad as the worst row of all n slices; the others are
 * average. */
double bs_tail_slice(const bs_tail *tail, double n, double rows, double values, double p);
/* The bound that the ratio of two root mean squares, each of `values` errors, exceeds in the worst of n
 * pairs. */
double bs_tail_ratio(const bs_tail *tail, double n, double values, double p);
#endif
