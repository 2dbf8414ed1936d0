/* SPDX-License-Identifier: MIT
 * test_calibration.c - is the 95 % interval one? On synthetic clocks that drift, swing, spike, have noise,
 * two modes, or lose time to other guests, the sampler's comparison of an arm with itself must miss 1 in 2 to
 * 9 % of the cases, and find planted differences. The same samples taken one arm after the other must fail.
 * BS_TEST_BIG multiplies the number of cases (make verify: more than 1000 of each). */
#include <stdio.h>
#include <stdlib.h>

#include "tests/measure/clock.h"
#include "tests/run_tests.h"

/* A machine as they are: 3 % drift over 60 samples, a swing of 1 %, 0.4 % noise, 3 % of the samples spikes.
 */
static const clock_model machine = {
    .drift = 0.03, .sine = 0.01, .period = 47, .noise = 0.004, .spikes = 0.03, .spike = 0.3};
static const clock_model noise_only = {.noise = 0.004};
/* What lies where in memory changes an arm by 0.5 % from build to build. */
static const clock_model places = {
    .drift = 0.03, .sine = 0.01, .period = 47, .noise = 0.004, .spikes = 0.03, .spike = 0.3, .build = 0.005};
static const clock_model places_only = {.noise = 0.001, .build = 0.01};
/* Two modes: a third of the samples is 5 % slower, as with another page layout or turbo step. */
static const clock_model two_modes = {
    .drift = 0.03, .sine = 0.01, .period = 47, .noise = 0.004, .slow_share = 0.33, .slow = 0.05};
/* Another guest takes 30 % of a sample in twelve; the counter tells, pairs are discarded and taken again. */
static const clock_model stolen = {
    .drift = 0.03, .sine = 0.01, .period = 47, .noise = 0.004, .stolen = 1.0 / 12};
/* So often that most pairs are disturbed and all are kept. */
static const clock_model robbed = {.drift = 0.03, .noise = 0.004, .stolen = 0.4};

static int cases(int small) {
  const char *big = getenv("BS_TEST_BIG");
  return big ? small * atoi(big) : small;
}

/* log of n over k */
static double log_choose(int n, int k) {
  return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0);
}
static double at_most(int k, int n, double p) {
  double sum = 0;
  for (int i = 0; i <= k; ++i) sum += exp(log_choose(n, i) + i * log(p) + (n - i) * log1p(-p));
  return sum;
}

/* With 1000 cases or more the share itself must lie within the bounds. With fewer that would be luck: the
 * count must not be one that a share at a bound would lead to less than once in 10,000 times. */
static void check_share(const char *what, int count, int n, double least, double most) {
  const double share = (double)count / n;
  printf("%s: %d of %d = %.1f %% (%.0f to %.0f %%)\n", what, count, n, 100 * share, 100 * least, 100 * most);
  if (n >= 1000) {
    ck_assert_msg(share >= least && share <= most, "%s: %d of %d", what, count, n);
    return;
  }
  if (least > 0) ck_assert_msg(at_most(count, n, least) > 1e-4, "%s: %d of %d", what, count, n);
  if (most < 1) ck_assert_msg(1 - at_most(count - 1, n, most) > 1e-4, "%s: %d of %d", what, count, n);
}

typedef struct tally {
  int n, above, below; /* intervals that lie above 1, below 1 */
  int words;           /* FASTER or SLOWER */
  double width;
} tally;

/* Each with other seeds of noise and order. pairs 0: as the stopping rules say. */
static tally compare_many(const clock_model *m, double ratio, size_t pairs, int n) {
  static clock_run r;
  const double seconds[] = {1e-3, 1e-3 * ratio};
  tally t = {.n = n};
  for (int i = 0; i < n; ++i) {
    clock_make(&r, m, 5000 + (uint64_t)i);
    if (pairs > 0) {
      r.o.pairs_min = r.o.pairs_max = pairs;
      r.world.at = (uint64_t)(60 * clock_uniform(&r.world)); /* the pairs begin anywhere in the swing */
    }
    ck_assert_msg(clock_sample(&r, 2, seconds) == BS_OK, "%s", r.err.message);
    const bs_comparison *c = &r.s->arm[1].comparison;
    if (pairs > 0) ck_assert_uint_eq(c->pairs, pairs);
    t.above += c->low > 1;
    t.below += c->high < 1;
    t.words += c->word == BS_WORD_FASTER || c->word == BS_WORD_SLOWER;
    t.width += (c->high - c->low) / n;
    bs_sampling_free(r.s);
  }
  return t;
}

static const struct {
  const char *name;
  const clock_model *m;
  size_t pairs;
} same[] = {{"A/A, noise only, 12 pairs", &noise_only, 12},
            {"A/A, 12 pairs", &machine, 12},
            {"A/A, 20 pairs", &machine, 20},
            {"A/A, 30 pairs", &machine, 30},
            {"A/A, 60 pairs", &machine, 60},
            {"A/A, stopping rules", &machine, 0},
            {"A/A, two modes, 12 pairs", &two_modes, 12},
            {"A/A, two modes, 30 pairs", &two_modes, 30},
            {"A/A, two modes, stopping rules", &two_modes, 0},
            {"A/A, stolen time, 12 pairs", &stolen, 12},
            {"A/A, stolen time, 30 pairs", &stolen, 30},
            {"A/A, stolen time, stopping rules", &stolen, 0},
            {"A/A, stolen from most pairs, 30 pairs", &robbed, 30},
            {"A/A, places, 20 pairs", &places, 20},
            {"A/A, places, 60 pairs", &places, 60},
            {"A/A, places, stopping rules", &places, 0},
            {"A/A, places only, 60 pairs", &places_only, 60}};

START_TEST(an_arm_equals_itself) {
  const int n = cases(250);
  const tally t = compare_many(same[_i].m, 1.0, same[_i].pairs, n);
  check_share(same[_i].name, t.above + t.below, n, 0.02, 0.09);
  check_share("  of them with a word", t.words, n, 0.0, 0.01);
  /* and on both sides alike: no arm is favoured by its place */
  check_share("  of them above 1", t.above, n, 0.0, 0.06);
  check_share("  of them below 1", t.below, n, 0.0, 0.06);
}
END_TEST

static const struct {
  const char *name;
  double ratio;
  size_t pairs;
} planted[] = {{"1 % found in 12 pairs", 1.01, 12},
               {"0.5 % found in 30 pairs", 1.005, 30},
               {"-1 % found in 12 pairs", 1 / 1.01, 12}};

START_TEST(a_planted_difference_is_found) {
  const int n = cases(250);
  const tally t = compare_many(&machine, planted[_i].ratio, planted[_i].pairs, n);
  const int slower = planted[_i].ratio < 1;
  check_share(planted[_i].name, slower ? t.below : t.above, n, 0.85, 1.0);
  check_share("  found on the wrong side", slower ? t.above : t.below, n, 0.0, 0.01);
}
END_TEST

/* The negative control: all of A, then all of B, from the same clock, given to the same statistics. */
START_TEST(one_arm_after_the_other_is_wrong) {
  enum { PAIRS = 30 };
  static clock_run r;
  const int n = cases(250);
  double seconds[2][PAIRS];
  int wrong = 0;
  for (int i = 0; i < n; ++i) {
    bs_comparison c;
    clock_make(&r, &machine, 9000 + (uint64_t)i);
    r.world.at = (uint64_t)(60 * clock_uniform(&r.world));
    clock_arm arm = {&r.world, 0, 1e-3};
    for (int k = 0; k < 2 * PAIRS; ++k) {
      bs_sample sample = {0};
      ck_assert_int_eq(clock_batch(&arm, 0, 1, &sample, &r.err), BS_OK);
      seconds[k / PAIRS][k % PAIRS] = sample.seconds;
    }
    ck_assert(bs_compare_pairs(seconds[0], seconds[1], PAIRS, 0.01, &c));
    wrong += c.low > 1 || c.high < 1;
  }
  check_share("A/A, all of A before all of B", wrong, n, 0.5, 1.0);
}
END_TEST

/* A word needs 99 % and room to the margin: 3 % is called, 0.3 % is not. */
static const struct {
  const char *name;
  const clock_model *m;
  double ratio, least, most;
} words[] = {{"word for 3 %", &places, 1.03, 0.95, 1.0},
             {"word for 0.3 %", &places, 1.003, 0.0, 0.05},
             {"word for 3 %, no builds", &machine, 1.03, 0.95, 1.0},
             {"word for 1 %", &places, 1.01, 0.0, 0.05}};

START_TEST(words_are_for_what_matters) {
  const int n = cases(100);
  const tally t = compare_many(words[_i].m, words[_i].ratio, 60, n);
  check_share(words[_i].name, t.words, n, words[_i].least, words[_i].most);
}
END_TEST

/* Holm: of fifteen arms that are all alike one gets a word hardly more often than one alone. */
START_TEST(a_table_has_no_more_false_words_than_a_row) {
  static clock_run r;
  clock_arm alike[BS_SAMPLER_ARMS];
  bs_sampler_arm arms[BS_SAMPLER_ARMS];
  const clock_model m = {.noise = 0.02};
  const int n = cases(40);
  int wrong = 0;
  for (int i = 0; i < n; ++i) {
    clock_make(&r, &m, 100 + (uint64_t)i);
    for (uint32_t k = 0; k < BS_SAMPLER_ARMS; ++k) {
      alike[k] = (clock_arm){&r.world, 0, 1e-3};
      arms[k] = (bs_sampler_arm){.name = "alike", .user = &alike[k], .batch = clock_batch};
    }
    r.o.pairs_min = r.o.pairs_max = 30;
    r.o.margin = 1e-6; /* any difference would be worth a word */
    ck_assert_int_eq(bs_sampler_run(&r.o, &r.host, arms, BS_SAMPLER_ARMS, &r.s, &r.err), BS_OK);
    int words_here = 0;
    for (uint32_t k = 1; k < BS_SAMPLER_ARMS; ++k)
      words_here +=
          r.s->arm[k].comparison.word == BS_WORD_FASTER || r.s->arm[k].comparison.word == BS_WORD_SLOWER;
    wrong += words_here > 0;
    bs_sampling_free(r.s);
  }
  check_share("a word in a table of 15 equal arms", wrong, n, 0.0, 0.02);
}
END_TEST

/* Noise that lasts longer than a pair: groups of pairs hold most of it. */
START_TEST(noise_that_lasts_is_inside_the_interval) {
  const clock_model lasting = {.noise = 0.004, .alike = 0.7};
  const int n = cases(250);
  const tally t = compare_many(&lasting, 1.0, 60, n);
  check_share("A/A, lasting noise", t.above + t.below, n, 0.02, 0.2);
}
END_TEST

/* UNCLEAR comes with a number of pairs: with so many it is clear, as a rule. */
START_TEST(what_unclear_needs_is_enough) {
  const clock_model noisy = {.noise = 0.03};
  static clock_run r;
  const double seconds[] = {1e-3, 1.03e-3};
  const int n = cases(40);
  int asked = 0, clear = 0;
  for (int i = 0; i < n; ++i) {
    char next[160];
    clock_make(&r, &noisy, 300 + (uint64_t)i);
    r.o.pairs_min = r.o.pairs_max = 12;
    ck_assert_int_eq(clock_sample(&r, 2, seconds), BS_OK);
    const bs_comparison c = r.s->arm[1].comparison;
    bs_sampling_free(r.s);
    bs_comparison_next(&c, next, sizeof next);
    ck_assert((c.word == BS_WORD_UNCLEAR) == (next[0] != '\0'));
    if (c.cause != BS_UNCLEAR_FEW || c.needs > 2000) continue;
    ck_assert_ptr_nonnull(strstr(next, "needs about"));
    ck_assert_uint_gt(c.needs, 12);
    ++asked;
    clock_make(&r, &noisy, 300 + (uint64_t)i);
    r.o.pairs_min = r.o.pairs_max = c.needs;
    ck_assert_int_eq(clock_sample(&r, 2, seconds), BS_OK);
    clear += r.s->arm[1].comparison.word != BS_WORD_UNCLEAR;
    bs_sampling_free(r.s);
  }
  ck_assert_int_ge(asked, n / 3);
  check_share("UNCLEAR made clear by what it needs", clear, asked, 0.6, 1.0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{an_arm_equals_itself, TEST_COUNT(same)},
                             {a_planted_difference_is_found, TEST_COUNT(planted)},
                             {one_arm_after_the_other_is_wrong},
                             {words_are_for_what_matters, TEST_COUNT(words)},
                             {a_table_has_no_more_false_words_than_a_row},
                             {noise_that_lasts_is_inside_the_interval},
                             {what_unclear_needs_is_enough},
                             {0}};
  return run_tests("calibration", tests, (test_setup){.timeout = 3600}); /* BS_TEST_BIG */
}
