/* SPDX-License-Identifier: MIT
 * stats.h - order statistics and the comparison of two arms from interleaved pairs (docs/measuring.md). Pure
 * functions: the tests feed them synthetic clocks. */
#ifndef BS_LAB_MEASURE_STATS_H
#define BS_LAB_MEASURE_STATS_H
#include <stddef.h>
#include <stdint.h>

#include "lab/measure/disturbance.h"
#include "lab/measure/span.h"

/* Percentile q in [0,1] by linear interpolation of the sorted values: k = (n-1) q. 0 for no values. Sorts a
 * copy; NaN on out of memory. */
double bs_percentile(const double *values, size_t count, double q);
double bs_median(const double *values, size_t count);

enum bs_comparison_word {
  BS_WORD_UNCLEAR = 0,
  BS_WORD_FASTER = 1,
  BS_WORD_SLOWER = 2,
  BS_WORD_SAME = 3,
  BS_WORD_NONE = 4 /* both sides are the same configuration: numbers, and no word */
};

/* The reason why a comparison is UNCLEAR, or has no word. */
enum bs_unclear {
  BS_UNCLEAR_NO = 0,             /* it is not */
  BS_UNCLEAR_FEW = 1,            /* more pairs would decide: `needs` */
  BS_UNCLEAR_MARGIN = 2,         /* the ratio is at the margin: no practical number of pairs decides */
  BS_UNCLEAR_ORDER = 3,          /* an arm's time depends on the arm before it */
  BS_UNCLEAR_BUILD = 4,          /* the ratio differs by build more than within a build */
  BS_UNCLEAR_DISTURBED = 5,      /* other programs, the hypervisor or a quota took the processor */
  BS_UNCLEAR_OVERSUBSCRIBED = 6, /* more threads than cores */
  BS_UNCLEAR_BOUND = 7,          /* an arm was faster than its bound allows */
  BS_UNCLEAR_EQUAL = 8           /* both sides are equal; of BS_WORD_NONE */
};

enum { BS_GROUPS_MAX = 64 };

/* ratio = other / subject, so > 1 means that the subject is faster. */
typedef struct bs_comparison {
  size_t pairs;
  uint32_t groups;  /* of consecutive pairs; the median of each counts as one observation */
  uint32_t builds;  /* how often the arms were built; 0: not known */
  double ratio;     /* geometric mean of the groups' medians, the outermost left out */
  double low, high; /* 95 % interval, Student's t over the groups */
  double error;     /* standard error of log(ratio) */
  uint32_t freedom; /* degrees of freedom of `error` */
  uint32_t word;    /* enum bs_comparison_word, with equivalence margin `margin` */
  uint32_t cause;   /* enum bs_unclear */
  double margin;
  double order;         /* log of the factor by which the ratio changes if each arm follows itself; 0: none */
  size_t needs;         /* when UNCLEAR: about so many pairs would decide; 0: no number that is practical */
  double needs_seconds; /* and so long they would take; 0: not known */
  uint32_t one_side;    /* all builds in the ratio's mean are on its side of 1 */
  uint32_t by_build;    /* the groups differ by more than three times what their own pairs explain */
  bs_disturbance disturbance; /* of the sampling; by bs_comparison_settle */
} bs_comparison;

/* Student's t over groups of consecutive pairs: a group's median ratio is one observation. So the interval
 * covers noise that lasts for some pairs, and, if a group is one build, the effects of a build. subject[i]
 * and other[i] are seconds of pair i. Fewer than 5 pairs: UNCLEAR. Returns 0 when out of memory. */
int bs_compare_pairs(const double *subject, const double *other, size_t pairs, double margin,
                     bs_comparison *out);
/* Like bs_compare_pairs, with the caller's groups: group g holds the pairs start[g] to start[g + 1] - 1. 1 to
 * BS_GROUPS_MAX groups, none of them empty; with fewer than 3 the word is UNCLEAR. */
int bs_compare_groups(const double *subject, const double *other, const size_t *start, uint32_t groups,
                      double margin, bs_comparison *out);
/* The series of one of two separate runs. start: [groups + 1], group g holds the samples start[g] to start[g
 * + 1] - 1; with less than 3 groups the series is cut into equal ones. */
typedef struct bs_apart {
  const double *seconds;
  size_t count;
  const size_t *start;
  uint32_t groups;
} bs_apart;
/* apart.c: the same for two series that were taken one after the other. A change of the machine between both
 * runs affects the ratio, but not the interval. one_side: no group of one lies among those of the other. 0:
 * no samples, or no memory. */
int bs_compare_apart(const bs_apart *subject, const bs_apart *other, double margin, bs_comparison *out);
/* Widens the interval so that it also holds ratio * exp(order). */
void bs_comparison_widen(bs_comparison *comparison, double order);
/* Gives the words of the comparisons of one table (Holm's correction over them), and `needs`. FASTER and
 * SLOWER: the 99 % interval is beyond the margin, and each group on that side of 1. SAME: the 95 % interval
 * is inside the margin. Comparisons of one table differ only in the other arm. */
void bs_comparisons_decide(bs_comparison *const *table, uint32_t n);

/* ---- word.c ------------------------------------------------------------------------------------ */

/* Facts on a comparison in addition to its samples. */
typedef struct bs_word_facts {
  const bs_disturbance *disturbance; /* NULL: not known */
  uint32_t equal;                    /* both sides are the same configuration */
  uint32_t below_bound;              /* a side was faster than the machine allows */
  uint32_t oversubscribed;           /* a side has more threads than there are cores */
} bs_word_facts;
/* Finds the final word, for all verbs, after bs_comparisons_decide. Equal sides get no word. A time below its
 * bound, or a disturbed measurement, gives UNCLEAR for any samples. If the samples alone give UNCLEAR, the
 * cause may be too many threads. Facts of several calls add up. */
void bs_comparison_settle(bs_comparison *comparison, const bs_word_facts *facts);
/* "FASTER", ...; "" for BS_WORD_NONE. */
const char *bs_comparison_name(uint32_t word);
/* The word of the other side. */
uint32_t bs_word_turned(uint32_t word);
/* "order effect", "differs by build", ...; "" for BS_UNCLEAR_NO. */
const char *bs_unclear_name(uint32_t cause);
/* The advice for an UNCLEAR comparison, one sentence; empty for the other words. Returns out. */
const char *bs_comparison_next(const bs_comparison *comparison, char *out, size_t size);

/* Like bs_compare_pairs, for typed samples. BS_USAGE (BS-SPAN-PHASE): they are of different phases, or their
 * numbers differ. */
int32_t bs_compare_series(const bs_series *subject, const bs_series *other, double margin, bs_comparison *out,
                          bs_error *err);
/* Student's t with `dof` degrees of freedom (1 or more): |T| exceeds it with probability `tail`. */
double bs_student_quantile(double tail, uint32_t dof);

/* A look at one series of samples: order statistics, and outliers by two rules. Outliers are counted and
 * reported, and never removed here. */
typedef struct bs_look {
  size_t count;
  double min, p50, p90, p99, max;
  double mad;                   /* median absolute deviation, not scaled */
  size_t z_low, z_high;         /* |modified z| > 3.5: 0.6745 (x - median) / MAD; both tails */
  size_t far;                   /* |modified z| > 6: these are reported in a sentence */
  size_t tukey_low, tukey_high; /* beyond 1.5 interquartile ranges below and above the quartiles */
} bs_look;

/* Returns 0 when out of memory. */
int bs_look_at(const double *values, size_t count, bs_look *out);

enum { BS_LOOK_SENTENCE = 160 };
/* 1 and a sentence when there are outliers, `name` in front. */
int bs_look_sentence(const bs_look *look, const char *name, char *out, size_t size);
#endif
