/* SPDX-License-Identifier: MIT
 * test_stats.c - order statistics and paired comparison on synthetic clocks: drift, spikes, steal, two modes.
 * No real time is measured. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/base/rng.h"
#include "lab/measure/stats.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { PAIRS = 40 };

START_TEST(percentiles_interpolate) {
  const double v[] = {4, 1, 3, 2};
  ck_assert_double_eq(bs_median(v, 4), 2.5);
  ck_assert_double_eq_tol(bs_percentile(v, 4, 0.95), 3.85, 1e-12);
  ck_assert_double_eq(bs_percentile(v, 4, 0.0), 1.0);
  ck_assert_double_eq(bs_percentile(v, 4, 1.0), 4.0);
  const double one = 5;
  ck_assert_double_eq(bs_percentile(&one, 1, 0.95), 5.0);
  ck_assert_double_eq(bs_percentile(v, 0, 0.5), 0.0);
}
END_TEST

typedef struct clock_model {
  double drift, noise, spike_rate, spike, sine;
} clock_model;

/* ABBA samples of two arms whose true times are 1 and `ratio`. */
static void sample(const clock_model *m, double ratio, uint64_t seed, double *a, double *b) {
  float z[2 * PAIRS];
  float u[2 * PAIRS];
  bs_rng_normal(seed, 1, 0, 2 * PAIRS, z);
  bs_rng_uniform(seed, 2, 0, 2 * PAIRS, u);
  for (int i = 0; i < PAIRS; ++i) {
    for (int half = 0; half < 2; ++half) {
      const int at = 2 * i + half;
      const int arm_b = (i % 2 == 0) == (half == 1);
      double t = (arm_b ? ratio : 1.0) * (1.0 + m->drift * at / (2.0 * PAIRS) + m->sine * sin(at * 0.2));
      t *= 1.0 + m->noise * z[at] + (u[at] < m->spike_rate ? m->spike : 0.0);
      *(arm_b ? &b[i] : &a[i]) = t;
    }
  }
}

static int false_verdicts(const clock_model *m, double ratio, uint32_t allowed_word, int runs) {
  double a[PAIRS];
  double b[PAIRS];
  int wrong = 0;
  for (int r = 0; r < runs; ++r) {
    bs_comparison c;
    sample(m, ratio, 1000 + (uint64_t)r, a, b);
    ck_assert_int_eq(bs_compare_pairs(a, b, PAIRS, 0.01, &c), 1);
    wrong += c.word != allowed_word && c.word != BS_WORD_UNCLEAR;
  }
  return wrong;
}

static const clock_model models[] = {
    {0.0, 0.004, 0.0, 0.0, 0.0},
    {0.03, 0.004, 0.03, 0.5, 0.01},
    {0.5, 0.004, 0.0, 0.0, 0.0},
    {0.0, 0.004, 0.3, 1.0, 0.0},
};

START_TEST(equal_arms_are_not_called_different) {
  for (size_t i = 0; i < sizeof models / sizeof models[0]; ++i) {
    ck_assert_int_le(false_verdicts(&models[i], 1.0, BS_WORD_SAME, 60), 2);
  }
}
END_TEST

START_TEST(a_real_difference_is_found) {
  double a[PAIRS];
  double b[PAIRS];
  for (size_t i = 0; i < 3; ++i) {
    bs_comparison c;
    sample(&models[i], 1.05, 5, a, b);
    ck_assert_int_eq(bs_compare_pairs(a, b, PAIRS, 0.01, &c), 1);
    ck_assert_uint_eq(c.word, BS_WORD_FASTER);
    ck_assert_double_eq_tol(c.ratio, 1.05, 0.02);
    ck_assert_int_eq(bs_compare_pairs(b, a, PAIRS, 0.01, &c), 1);
    ck_assert_uint_eq(c.word, BS_WORD_SLOWER);
  }
}
END_TEST

START_TEST(interval_contains_the_ratio_and_is_repeatable) {
  double a[PAIRS];
  double b[PAIRS];
  bs_comparison first;
  bs_comparison second;
  sample(&models[1], 1.02, 9, a, b);
  bs_compare_pairs(a, b, PAIRS, 0.01, &first);
  bs_compare_pairs(a, b, PAIRS, 0.01, &second);
  ck_assert_double_le(first.low, first.ratio);
  ck_assert_double_ge(first.high, first.ratio);
  ck_assert_double_lt(first.low, first.high);
  ck_assert_double_eq(first.ratio, second.ratio);
  ck_assert_double_eq(first.low, second.low);
  ck_assert_double_eq(first.high, second.high);
}
END_TEST

START_TEST(few_pairs_are_unclear) {
  const double a[] = {1, 1, 1, 1};
  const double b[] = {2, 2, 2, 2};
  bs_comparison c;
  ck_assert_int_eq(bs_compare_pairs(a, b, 4, 0.01, &c), 1);
  ck_assert_uint_eq(c.word, BS_WORD_UNCLEAR);
  ck_assert_int_eq(bs_compare_pairs(a, b, 0, 0.01, &c), 1);
  ck_assert_uint_eq(c.word, BS_WORD_UNCLEAR);
}
END_TEST

/* Each word by what it needs, on pairs whose ratios are given. */
static uint32_t word_of(double centre, double spread) {
  double a[PAIRS], b[PAIRS];
  bs_comparison c;
  for (int i = 0; i < PAIRS; ++i) {
    a[i] = 2.0;
    b[i] = 2.0 * centre * exp(spread * ((7 * i % PAIRS) / (PAIRS - 1.0) - 0.5)); /* evenly, in no order */
  }
  ck_assert_int_eq(bs_compare_pairs(a, b, PAIRS, 0.01, &c), 1);
  ck_assert_double_eq_tol(c.ratio, centre, 1e-9);
  return c.word;
}

START_TEST(words) {
  ck_assert_uint_eq(word_of(1.03, 0.02), BS_WORD_FASTER);
  ck_assert_uint_eq(word_of(0.97, 0.02), BS_WORD_SLOWER);
  ck_assert_uint_eq(word_of(1.002, 0.005), BS_WORD_SAME);
  ck_assert_uint_eq(word_of(0.995, 0.002), BS_WORD_SAME); /* surely slower, and by less than matters */
  ck_assert_uint_eq(word_of(1.03, 0.4), BS_WORD_UNCLEAR); /* beyond the margin, and 1 is in the interval */
  ck_assert_uint_eq(word_of(0.97, 0.4), BS_WORD_UNCLEAR);
  ck_assert_uint_eq(word_of(1.0, 0.2), BS_WORD_UNCLEAR);
  ck_assert_uint_eq(word_of(1.009, 0.02), BS_WORD_UNCLEAR); /* above 1, around the margin */
}
END_TEST

/* 6 pairs of each build, 9 % apart; in the first `hit` builds something made them seem 0.4 times as fast. */
static uint32_t word_of_builds(uint32_t builds, uint32_t hit) {
  double a[6 * BS_GROUPS_MAX], b[6 * BS_GROUPS_MAX];
  size_t start[BS_GROUPS_MAX + 1] = {0};
  bs_comparison c, turned;
  for (uint32_t g = 0; g < builds; ++g) {
    start[g + 1] = start[g] + 6;
    for (size_t i = start[g]; i < start[g + 1]; ++i) {
      a[i] = 1.0;
      b[i] = (g < hit ? 0.4 : 1.09) * (1.0 + 1e-3 * (double)(i % 7));
    }
  }
  ck_assert_int_eq(bs_compare_groups(a, b, start, builds, 0.01, &c), 1);
  ck_assert_int_eq(bs_compare_groups(b, a, start, builds, 0.01, &turned), 1);
  const uint32_t other[] = {BS_WORD_UNCLEAR, BS_WORD_SLOWER, BS_WORD_FASTER, BS_WORD_SAME};
  ck_assert_uint_eq(turned.word, other[c.word]);
  return c.word;
}

START_TEST(one_of_many_builds_takes_no_word_away) {
  ck_assert_uint_eq(word_of_builds(3, 0), BS_WORD_FASTER);
  ck_assert_uint_eq(word_of_builds(3, 1), BS_WORD_UNCLEAR); /* of so few each counts */
  ck_assert_uint_eq(word_of_builds(4, 1), BS_WORD_UNCLEAR);
  ck_assert_uint_eq(word_of_builds(10, 1), BS_WORD_FASTER);
  ck_assert_uint_eq(word_of_builds(25, 2), BS_WORD_FASTER);
  ck_assert_uint_eq(word_of_builds(25, 6), BS_WORD_UNCLEAR); /* more than a fifth */
}
END_TEST

START_TEST(unclear_says_what_next) {
  char text[160];
  bs_comparison c = {.pairs = 20, .word = BS_WORD_UNCLEAR, .needs = 80, .needs_seconds = 20, .margin = 0.01};
  ck_assert_str_eq(bs_comparison_next(&c, text, sizeof text),
                   "needs about 80 pairs: --set phase.pairs_max=80 --set phase.pairs_seconds=30");
  c.needs = 0;
  ck_assert_ptr_nonnull(strstr(bs_comparison_next(&c, text, sizeof text), "as large as the 1 % margin"));
  c.word = BS_WORD_SAME;
  ck_assert_str_eq(bs_comparison_next(&c, text, sizeof text), "");
}
END_TEST

static double normal(uint64_t seed, uint64_t at) {
  float z;
  bs_rng_normal(seed, 3, at, 1, &z);
  return z;
}

/* n samples around `centre` with so much noise, of `builds` builds that differ by so much. */
static bs_apart series_of(double *values, size_t *start, double centre, double noise, double by_build,
                          uint64_t seed) {
  enum { EACH = 10, BUILDS = 5 };
  for (size_t g = 0; g < BUILDS; ++g) {
    const double built = centre * (1 + by_build * normal(seed, 1000 + g));
    start[g] = g * EACH;
    for (size_t i = 0; i < EACH; ++i) values[g * EACH + i] = built * (1 + noise * normal(seed, g * EACH + i));
  }
  start[BUILDS] = EACH * BUILDS;
  return (bs_apart){.seconds = values, .count = EACH * BUILDS, .start = start, .groups = BUILDS};
}

/* Two runs of their own: the ratio lies in its interval, a difference is found, equal ones are not called
 * different more often than the words allow, and what builds differ by is in the interval. */
START_TEST(series_apart_are_compared) {
  double a[64], b[64];
  size_t start_a[8], start_b[8], wrong = 0, missed = 0, covered = 0;
  bs_comparison c;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const bs_apart x = series_of(a, start_a, 1e-3, 0.02, 0.02, seed);
    const bs_apart same = series_of(b, start_b, 1e-3, 0.02, 0.02, seed + 5000);
    ck_assert_int_eq(bs_compare_apart(&x, &same, 0.01, &c), 1);
    wrong += c.word == BS_WORD_FASTER || c.word == BS_WORD_SLOWER;
    covered += c.low <= 1 && 1 <= c.high;
    const bs_apart slow = series_of(b, start_b, 1.2e-3, 0.02, 0.02, seed + 5000);
    ck_assert_int_eq(bs_compare_apart(&x, &slow, 0.01, &c), 1);
    missed += c.word != BS_WORD_FASTER; /* the subject is */
  }
  ck_assert_msg(wrong <= 4 && missed <= 4 && covered >= 180, "%zu wrong, %zu missed, %zu covered", wrong,
                missed, covered);
  const bs_apart none = {.count = 0}, some = series_of(a, start_a, 1e-3, 0.02, 0, 1);
  ck_assert_int_eq(bs_compare_apart(&none, &some, 0.01, &c), 0);
  bs_apart few = some;
  few.count = 4;
  few.groups = 0;
  ck_assert_int_eq(bs_compare_apart(&few, &some, 0.01, &c), 1);
  ck_assert_uint_eq(c.word, BS_WORD_UNCLEAR);
}
END_TEST

int main(void) {
  const test_case tests[] = {{percentiles_interpolate},
                             {equal_arms_are_not_called_different},
                             {a_real_difference_is_found},
                             {interval_contains_the_ratio_and_is_repeatable},
                             {few_pairs_are_unclear},
                             {words},
                             {one_of_many_builds_takes_no_word_away},
                             {unclear_says_what_next},
                             {series_apart_are_compared},
                             {0}};
  return run_tests("stats", tests, (test_setup){.timeout = 120});
}
