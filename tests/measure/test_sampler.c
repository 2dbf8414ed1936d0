/* SPDX-License-Identifier: MIT
 * test_sampler.c - the sampler on synthetic clocks: warm-up, length of a sample, order, stopping rules, what
 * is discarded and what never is. */
#include "lab/measure/sampler_arm.h"
#include "tests/measure/clock.h"
#include "tests/run_tests.h"

static clock_run r;
static const clock_model still = {.noise = 0.001};
static const double alike[CLOCK_ARMS] = {1e-3, 1e-3, 1e-3, 1e-3};

static void sampled(uint32_t n_arms, const double *seconds) {
  ck_assert_msg(clock_sample(&r, n_arms, seconds) == BS_OK, "%s", r.err.message);
}
static void done(void) {
  bs_sampling_free(r.s);
  r.s = NULL;
}
/* Where the pairs begin in the log. */
static size_t pairs_begin(void) {
  return r.world.steady_at;
}
static int32_t note_steady(void *user, bs_error *err) {
  (void)err;
  clock_world *w = user;
  if (w->steady_at == 0) w->steady_at = w->n_log;
  return w->fail_after == UINT64_MAX ? BS_ABORTED : BS_OK;
}
static void made(const clock_model *m, uint64_t seed) {
  clock_make(&r, m, seed);
  r.host.steady = note_steady;
}

/* ---- warm-up and samples ------------------------------------------------------------------------ */

START_TEST(samples_are_long_enough) {
  static const double seconds[] = {2e-6, 150e-6, 30e-3};
  made(&still, 1);
  sampled(3, seconds);
  for (uint32_t i = 0; i < 3; ++i) {
    const uint64_t calls = r.s->arm[i].warm.calls;
    ck_assert_double_ge((double)calls * seconds[i], 0.98 * r.o.batch_seconds);
    ck_assert_double_le((double)calls * seconds[i], 1.1 * r.o.batch_seconds + seconds[i]);
    ck_assert(r.s->arm[i].warm.settled);
  }
  ck_assert_uint_eq(r.s->arm[2].warm.calls, 1);
  for (size_t i = pairs_begin(); i < r.world.n_log; ++i) /* the calls do not change during the pairs */
    ck_assert_uint_eq(r.world.log[i].calls, r.s->arm[r.world.log[i].arm].warm.calls);
  done();
  made(&still, 1);
  r.o.batch_calls = 10;
  sampled(1, seconds);
  ck_assert_uint_eq(r.s->arm[0].warm.calls, 10);
  done();
}
END_TEST

START_TEST(the_first_call_is_kept_apart) {
  const clock_model slow_start = {.noise = 0.001, .warm = 8};
  made(&slow_start, 2);
  r.o.warm_calls = 500;
  sampled(2, alike);
  for (uint32_t i = 0; i < 2; ++i) {
    const bs_warm *w = &r.s->arm[i].warm;
    ck_assert(w->settled);
    ck_assert(w->first.phase == BS_TIME_FIRST && w->first.count == 1);
    ck_assert_double_eq_tol(w->first.seconds, 9e-3, 1e-4);
    ck_assert(w->warm.phase == BS_TIME_WARM && w->warm.count >= 499 && w->blocks >= 2);
    /* every call is of one phase and one only */
    uint64_t calls = w->first.count + w->warm.count;
    for (size_t k = pairs_begin(); k < r.world.n_log; ++k)
      calls += r.world.log[k].arm == i ? w->lead + w->calls : 0;
    ck_assert_uint_eq(calls, r.world.calls_of[i]);
    ck_assert_double_le(r.s->arm[i].look.max, 1.02e-3);
  }
  ck_assert(!clock_says(r.s, "settle"));
  done();
}
END_TEST

START_TEST(what_does_not_settle_is_told) {
  made(&still, 3);
  r.world.jump = 0.02;
  r.o.warm_seconds = 1e9;
  r.o.warm_blocks = 30;
  r.o.pairs_max = 20;
  sampled(1, alike);
  ck_assert(!r.s->arm[0].warm.settled);
  ck_assert_uint_eq(r.s->arm[0].warm.blocks, 30);
  ck_assert_msg(clock_says(r.s, "subject did not settle in 30 blocks"), "%s", r.s->warning[0]);
  done();
  made(&still, 3); /* the time is up first, in the middle of a block */
  r.world.jump = 0.02;
  r.o.warm_seconds = 0.021;
  r.o.pairs_max = 20;
  sampled(1, alike);
  ck_assert(!r.s->arm[0].warm.settled);
  ck_assert_uint_ge(r.s->arm[0].warm.blocks, 1);
  ck_assert_uint_lt(r.s->arm[0].warm.blocks, 6);
  ck_assert(clock_says(r.s, "did not settle"));
  done();
}
END_TEST

START_TEST(the_host_hears_when_all_is_warm) {
  made(&still, 17);
  sampled(3, alike);
  ck_assert_uint_eq(r.world.steady_at, pairs_begin());
  ck_assert_uint_gt(r.world.steady_at, 0);
  done();
  made(&still, 17);
  r.world.fail_after = UINT64_MAX;
  ck_assert_int_eq(clock_sample(&r, 3, alike), BS_ABORTED);
  ck_assert_ptr_null(r.s);
}
END_TEST

/* ---- order -------------------------------------------------------------------------------------- */

/* Over a whole design each arm is once in each place and follows each other arm equally often. */
START_TEST(each_arm_follows_each_other_equally_often) {
  for (uint32_t n = 1; n <= BS_SAMPLER_ARMS; ++n) {
    uint32_t follows[BS_SAMPLER_ARMS][BS_SAMPLER_ARMS] = {{0}},
             place[BS_SAMPLER_ARMS][BS_SAMPLER_ARMS] = {{0}};
    const uint32_t rows = bs_design_rows(n), times = n > 1 ? rows / n : 1;
    for (uint32_t row = 0; row < rows; ++row) {
      uint32_t order[BS_SAMPLER_ARMS];
      bs_design_row(n, row, order);
      for (uint32_t j = 0; j < n; ++j) {
        ++place[j][order[j]];
        if (j > 0) ++follows[order[j - 1]][order[j]];
      }
    }
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t j = 0; j < n; ++j) {
        ck_assert_uint_eq(place[i][j], times);
        ck_assert_uint_eq(follows[i][j], i == j ? 0 : times);
      }
  }
}
END_TEST

/* The order of the arms in a pair, as digits. */
static uint32_t pair_order(size_t pair, uint32_t n_arms) {
  uint32_t digits = 0;
  for (uint32_t i = 0; i < n_arms; ++i)
    digits = 10 * digits + 1 + r.world.log[pairs_begin() + pair * n_arms + i].arm;
  return digits;
}

START_TEST(rows_come_in_the_order_of_the_seed) {
  uint32_t first[24], same = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) { /* 1 again as 3: the same order */
    made(&still, 1);
    r.o.seed = seed == 3 ? 1 : seed;
    r.o.phase = BS_TIME_COLD; /* flushed caches: nothing is sampled again after itself */
    r.o.pairs_min = r.o.pairs_max = 24;
    sampled(4, alike);
    for (int round = 0; round < 6; ++round) {
      uint32_t seen = 0;
      for (int k = 0; k < 4; ++k) {
        const uint32_t order = pair_order((size_t)(4 * round + k), 4);
        if (seed == 1) first[4 * round + k] = order;
        same += seed == 2 && order == first[4 * round + k];
        if (seed == 3) ck_assert_uint_eq(order, first[4 * round + k]);
        seen |= 1u << (order / 1000);
      }
      ck_assert_uint_eq(seen, 0x1e); /* each row once a round: each arm came first */
    }
    done();
  }
  ck_assert_uint_lt(same, 20);
}
END_TEST

/* An arm that slows the one behind it by 40 %, for some milliseconds or for good. The true ratio is that of
 * arms that follow themselves. */
static const struct {
  double ratio, carry_for;
} carried[] = {{1.0, 0.005}, {1.0, 1e9}, {1.5, 0.005}, {1.5, 1e9}, {0.8, 1e9}};

START_TEST(what_an_arm_leaves_behind_is_not_speed) {
  const clock_model m = {.noise = 0.004, .carry = 0.4, .carry_for = carried[_i].carry_for, .build = 0.002};
  const double seconds[] = {1e-3, 1e-3 * carried[_i].ratio, 1.1e-3};
  int missed = 0;
  for (uint64_t seed = 20; seed < 40; ++seed) {
    for (uint32_t n_arms = 2; n_arms <= 3; ++n_arms) {
      made(&m, seed);
      r.o.pairs_max = 60;
      sampled(n_arms, seconds);
      const bs_comparison *c = &r.s->arm[1].comparison;
      missed += c->low > carried[_i].ratio || carried[_i].ratio > c->high;
      if (carried[_i].ratio == 1.0) ck_assert(c->word == BS_WORD_SAME || c->word == BS_WORD_UNCLEAR);
      if (c->word == BS_WORD_UNCLEAR && carried[_i].carry_for > 1) ck_assert(c->cause == BS_UNCLEAR_ORDER);
      if (carried[_i].carry_for < 1) {
        ck_assert(r.s->lead_seconds >= carried[_i].carry_for && r.s->lead_seconds < 0.05);
        ck_assert_double_le(fabs(c->order), 0.02);
      } else {
        ck_assert(clock_says(r.s, "longer after another arm"));
        ck_assert_double_lt(c->order, -0.2);
      }
      done();
    }
  }
  /* Of 40 intervals of 95 % seven or more miss in one case of 200. */
  ck_assert_msg(missed <= 6, "%d of 40 intervals miss the true ratio", missed);
}
END_TEST

/* The old order, ABBA with one call of lead, takes it for speed. */
START_TEST(the_old_order_takes_it_for_speed) {
  enum { PAIRS = 60 };
  const clock_model m = {.noise = 0.004, .carry = 0.4, .carry_for = 0.005};
  double seconds[2][PAIRS];
  bs_comparison c;
  made(&m, 1);
  clock_arm arms[] = {{&r.world, 0, 1e-3}, {&r.world, 1, 1e-3}};
  for (int pair = 0; pair < PAIRS; ++pair) {
    for (int half = 0; half < 2; ++half) {
      const int arm = (pair % 2 == 0) == (half == 1);
      bs_sample sample = {0};
      ck_assert_int_eq(clock_batch(&arms[arm], 1, 2, &sample, &r.err), BS_OK);
      seconds[arm][pair] = sample.seconds;
    }
  }
  ck_assert(bs_compare_pairs(seconds[0], seconds[1], PAIRS, 0.01, &c));
  ck_assert_msg(c.low > 1.01, "%g [%g, %g]", c.ratio, c.low, c.high);
}
END_TEST

/* ---- builds ------------------------------------------------------------------------------------- */

START_TEST(arms_are_built_anew) {
  const clock_model m = {.noise = 0.004, .build = 0.01};
  made(&m, 3);
  r.o.pairs_min = r.o.pairs_max = 60;
  sampled(3, alike);
  ck_assert(r.s->builds == 10 && r.s->groups == 10 && r.world.rebuilds == 9 && r.world.odd == 9);
  ck_assert_uint_eq(r.s->arm[2].comparison.builds, 10);
  for (uint32_t g = 0; g <= 10; ++g) ck_assert_uint_eq(r.s->start[g], 6 * g);
  done();
  made(&m, 3);
  r.o.pairs_min = r.o.pairs_max = 60;
  r.world.rebuild_takes = 0.7; /* a third of what rebuilding may take in all: three builds */
  sampled(2, alike);
  ck_assert(r.s->builds == 3 && r.s->groups == 3);
  done();
  made(&m, 3);
  r.o.pairs_min = r.o.pairs_max = 60;
  r.world.rebuild_takes = 5; /* not cheap: three builds even so, and what follows is of the third */
  sampled(2, alike);
  ck_assert(r.s->builds == 3 && r.s->groups == 3 && r.s->arm[1].comparison.groups == 3);
  done();
  made(&m, 3);
  r.o.pairs_max = 60; /* the time is up with the fewest pairs: they are of three builds */
  r.o.seconds = 0.5;
  r.world.rebuild_takes = 0.5;
  sampled(2, alike);
  ck_assert(r.s->builds >= 3 && r.s->arm[1].comparison.groups >= 3 && r.s->pairs < 30);
  done();
  made(&m, 3);
  r.o.pairs_max = 10000; /* so many pairs do not make the first groups long */
  r.o.seconds = 1;
  sampled(2, alike);
  ck_assert_msg(r.s->builds >= 4 && r.s->arm[1].comparison.groups + 1 >= r.s->builds, "%u %u", r.s->builds,
                r.s->arm[1].comparison.groups);
  done();
}
END_TEST

/* One arm is 3 % slower in one of its builds: a word would be of that place, not of the arm. */
START_TEST(what_differs_by_build_has_no_word) {
  const clock_model m = {.noise = 0.001, .build = 0.03};
  int by_build = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    made(&m, seed);
    r.o.pairs_min = r.o.pairs_max = 60;
    sampled(2, alike);
    const bs_comparison *c = &r.s->arm[1].comparison;
    ck_assert(c->word == BS_WORD_UNCLEAR);
    by_build += c->cause == BS_UNCLEAR_BUILD;
    done();
  }
  ck_assert_int_ge(by_build, 18);
}
END_TEST

/* ---- when it stops ------------------------------------------------------------------------------ */

START_TEST(each_rule_stops) {
  const clock_model noisy = {.noise = 0.2};
  made(&still, 4); /* quiet: the fewest pairs are enough */
  sampled(2, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_INTERVAL);
  ck_assert_uint_eq(r.s->pairs, 120); /* twenty groups */
  ck_assert_uint_eq(r.s->arm[1].comparison.word, BS_WORD_SAME);
  done();
  made(&noisy, 6);
  r.o.pairs_max = 41; /* not a whole round at the end */
  sampled(3, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_PAIRS);
  ck_assert_uint_eq(r.s->pairs, 41);
  ck_assert_uint_eq(r.s->arm[2].comparison.word, BS_WORD_UNCLEAR);
  done();
  made(&noisy, 4);
  r.o.seconds = 0.3;
  sampled(2, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_SECONDS);
  ck_assert(r.s->seconds >= 0.3 && r.s->seconds < 0.33 && r.s->pairs < 300 && r.s->pairs > 20);
  done();
  made(&noisy, 4); /* the cap does not come before the fewest pairs */
  r.o.seconds = 1e-3;
  sampled(2, alike);
  ck_assert(r.s->stop == BS_STOP_SECONDS && r.s->pairs == 20);
  done();
  ck_assert_str_eq(bs_stop_name(BS_STOP_INTERVAL), "interval");
  ck_assert_str_eq(bs_stop_name(BS_STOP_PAIRS), "max_pairs");
  ck_assert_str_eq(bs_stop_name(BS_STOP_SECONDS), "seconds");
}
END_TEST

/* Between the fewest and the most: more pairs until it is narrow, and narrow it is. */
START_TEST(noise_costs_pairs) {
  const clock_model some = {.noise = 0.013};
  made(&some, 5);
  sampled(2, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_INTERVAL);
  ck_assert(r.s->pairs > 120 && r.s->pairs < 300);
  const bs_comparison *c = &r.s->arm[1].comparison;
  ck_assert_double_le((c->high - c->low) / 2, r.o.half_width * c->ratio);
  done();
}
END_TEST

START_TEST(one_arm_alone) {
  made(&still, 6);
  r.o.pairs_max = 25;
  sampled(1, alike);
  ck_assert(r.s->stop == BS_STOP_PAIRS && r.s->pairs == 25);
  ck_assert_double_eq_tol(r.s->arm[0].look.p50, 1e-3, 1e-6);
  done();
}
END_TEST

/* ---- what is kept ------------------------------------------------------------------------------- */

/* Every sample that the clock gave is in the result, in its order, with the value it had; but echoes. */
static void nothing_is_missing(uint32_t n_arms) {
  size_t seen[CLOCK_ARMS] = {0}, echoes = 0;
  ck_assert_uint_eq(r.s->batches, n_arms * (r.s->pairs + r.s->discarded));
  for (size_t i = pairs_begin(); i < r.world.n_log; ++i) {
    const clock_entry *e = &r.world.log[i];
    if (seen[e->arm] < r.s->pairs && r.s->arm[e->arm].seconds[seen[e->arm]] == e->seconds)
      ++seen[e->arm];
    else
      ++echoes;
  }
  for (uint32_t i = 0; i < n_arms; ++i) ck_assert_uint_eq(seen[i], r.s->pairs);
  ck_assert_uint_le(echoes, n_arms * r.s->groups);
}

START_TEST(outliers_are_never_dropped) {
  const clock_model spiky = {.noise = 0.004, .spikes = 0.1, .spike = 3};
  made(&spiky, 8);
  r.o.pairs_min = r.o.pairs_max = 60;
  sampled(3, alike);
  ck_assert_uint_eq(r.s->pairs, 60);
  ck_assert_uint_eq(r.s->discarded, 0);
  nothing_is_missing(3);
  for (uint32_t i = 0; i < 3; ++i) {
    ck_assert_uint_ge(r.s->arm[i].look.z_high, 2);
    ck_assert_uint_eq(r.s->arm[i].look.count, 60);
    ck_assert_double_ge(r.s->arm[i].look.max, 3.9e-3);
  }
  ck_assert(clock_says(r.s, "subject") && clock_says(r.s, "outliers") && clock_says(r.s, "all kept"));
  done();
}
END_TEST

START_TEST(disturbed_pairs_go_whole) {
  static const double seconds[] = {1e-3, 1.05e-3};
  made(&still, 8);
  r.o.pairs_min = r.o.pairs_max = 40;
  r.o.phase = BS_TIME_COLD;
  r.world.steal_every = 11;
  sampled(2, seconds);
  ck_assert_uint_eq(r.s->pairs, 40);
  ck_assert_uint_ge(r.s->discarded, 6);
  ck_assert_uint_le(r.s->discarded, 10);
  ck_assert_uint_eq(r.s->disturbed[BS_DISTURB_STEAL], r.s->discarded);
  ck_assert_uint_eq(r.s->disturbed_kept, 0);
  ck_assert_uint_eq(r.s->batches, 2 * (r.s->pairs + r.s->discarded));
  size_t slow = 0;
  for (size_t i = 0; i < r.s->discarded; ++i) /* one arm of each was hit; both are gone, and kept aside */
    slow += (r.s->arm[0].discarded[i] > 1.2e-3) + (r.s->arm[1].discarded[i] > 1.26e-3);
  ck_assert_uint_eq(slow, r.s->discarded);
  ck_assert_double_le(r.s->arm[0].look.max, 1.01e-3);
  ck_assert_double_eq_tol(r.s->arm[1].comparison.ratio, 1.05, 1e-3);
  ck_assert(clock_says(r.s, "stolen time in"));
  done();
}
END_TEST

START_TEST(switches_are_counted_and_kept) {
  made(&still, 8);
  r.o.pairs_min = r.o.pairs_max = 40;
  r.world.switch_every = 1;
  sampled(2, alike);
  ck_assert(r.s->discarded == 0 && r.s->disturbed[BS_DISTURB_SWITCH] == 40);
  ck_assert(clock_says(r.s, "involuntary switches in 40 of 40 pairs, all kept"));
  done();
}
END_TEST

START_TEST(not_all_pairs_can_be_discarded) {
  made(&still, 9);
  r.o.pairs_min = r.o.pairs_max = 40;
  r.world.steal_every = 5; /* two pairs of five */
  sampled(2, alike);
  ck_assert_uint_eq(r.s->pairs, 40);
  ck_assert_uint_eq(r.s->discarded, 10);
  ck_assert_uint_ge(r.s->disturbed_kept, 8);
  ck_assert_uint_eq(r.s->disturbed[BS_DISTURB_STEAL], r.s->discarded + r.s->disturbed_kept);
  done();
  made(&still, 9);
  r.o.pairs_min = r.o.pairs_max = 40;
  r.world.steal_every = 2; /* every pair: taking others would not help */
  sampled(2, alike);
  ck_assert_uint_eq(r.s->pairs, 40);
  ck_assert_uint_eq(r.s->discarded, 8);
  ck_assert_uint_eq(r.s->disturbed_kept, 40);
  ck_assert(clock_says(r.s, "8 disturbed pairs were discarded and taken again, 40 kept"));
  done();
}
END_TEST

START_TEST(without_a_source_nothing_is_discarded) {
  for (int how = 0; how < 3; ++how) {
    made(&still, 10);
    r.o.pairs_min = r.o.pairs_max = 30;
    r.world.steal_every = how == 2 ? 0 : 7;
    if (how == 0) r.host.disturb = NULL;
    if (how == 1) r.world.counts.known[BS_DISTURB_STEAL] = 0; /* counts that nobody vouches for */
    sampled(2, alike);
    ck_assert_uint_eq(r.s->discarded, 0);
    nothing_is_missing(2);
    ck_assert(!clock_says(r.s, "stolen"));
    done();
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{samples_are_long_enough},
                             {the_first_call_is_kept_apart},
                             {what_does_not_settle_is_told},
                             {the_host_hears_when_all_is_warm},
                             {each_arm_follows_each_other_equally_often},
                             {rows_come_in_the_order_of_the_seed},
                             {what_an_arm_leaves_behind_is_not_speed, 5},
                             {the_old_order_takes_it_for_speed},
                             {arms_are_built_anew},
                             {what_differs_by_build_has_no_word},
                             {switches_are_counted_and_kept},
                             {each_rule_stops},
                             {noise_costs_pairs},
                             {one_arm_alone},
                             {outliers_are_never_dropped},
                             {disturbed_pairs_go_whole},
                             {not_all_pairs_can_be_discarded},
                             {without_a_source_nothing_is_discarded},
                             {0}};
  return run_tests("sampler", tests, (test_setup){0});
}
