/* SPDX-License-Identifier: MIT
 * test_sampler.c - the sampler on synthetic clocks: warm-up, length of a sample, order, stopping rules, what
 * is discarded and what never is. */
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
  return r.world.n_log - (size_t)r.s->batches;
}

/* ---- warm-up and samples ------------------------------------------------------------------------ */

START_TEST(samples_are_long_enough) {
  static const double seconds[] = {2e-6, 150e-6, 30e-3};
  clock_make(&r, &still, 1);
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
  clock_make(&r, &still, 1);
  r.o.batch_calls = 10;
  sampled(1, seconds);
  ck_assert_uint_eq(r.s->arm[0].warm.calls, 10);
  done();
}
END_TEST

START_TEST(the_first_call_is_kept_apart) {
  const clock_model slow_start = {.noise = 0.001, .warm = 8};
  clock_make(&r, &slow_start, 2);
  r.o.warm_calls = 500;
  sampled(2, alike);
  for (uint32_t i = 0; i < 2; ++i) {
    const bs_warm *w = &r.s->arm[i].warm;
    ck_assert(w->settled);
    ck_assert(w->first.phase == BS_TIME_FIRST && w->first.count == 1);
    ck_assert_double_eq_tol(w->first.seconds, 9e-3, 1e-4);
    ck_assert(w->warm.phase == BS_TIME_WARM && w->warm.count >= 499 && w->blocks >= 2);
    /* every call is of one phase and one only */
    ck_assert_uint_eq(w->first.count + w->warm.count + r.s->pairs * w->calls, r.world.calls_of[i]);
    ck_assert_double_le(r.s->arm[i].look.max, 1.02e-3);
  }
  ck_assert(!clock_says(r.s, "settle"));
  done();
}
END_TEST

START_TEST(what_does_not_settle_is_told) {
  clock_make(&r, &still, 3);
  r.world.jump = 0.02;
  r.o.warm_seconds = 1e9;
  r.o.warm_blocks = 30;
  r.o.pairs_max = 20;
  sampled(1, alike);
  ck_assert(!r.s->arm[0].warm.settled);
  ck_assert_uint_eq(r.s->arm[0].warm.blocks, 30);
  ck_assert_msg(clock_says(r.s, "subject did not settle in 30 blocks"), "%s", r.s->warning[0]);
  done();
  clock_make(&r, &still, 3); /* the time is up first, in the middle of a block */
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

static int32_t note_steady(void *user, bs_error *err) {
  (void)err;
  clock_world *w = user;
  w->steady_at = w->n_log;
  return w->fail_after == UINT64_MAX ? BS_ABORTED : BS_OK;
}

START_TEST(the_host_hears_when_all_is_warm) {
  clock_make(&r, &still, 17);
  r.host.steady = note_steady;
  sampled(3, alike);
  ck_assert_uint_eq(r.world.steady_at, pairs_begin());
  ck_assert_uint_gt(r.world.steady_at, 0);
  done();
  clock_make(&r, &still, 17);
  r.host.steady = note_steady;
  r.world.fail_after = UINT64_MAX;
  ck_assert_int_eq(clock_sample(&r, 3, alike), BS_ABORTED);
  ck_assert_ptr_null(r.s);
}
END_TEST

/* ---- order -------------------------------------------------------------------------------------- */

/* The order of the arms in each half round, as digits. */
static uint32_t half(size_t pair, uint32_t n_arms) {
  uint32_t digits = 0;
  for (uint32_t i = 0; i < n_arms; ++i)
    digits = 10 * digits + 1 + r.world.log[pairs_begin() + pair * n_arms + i].arm;
  return digits;
}

START_TEST(rounds_go_both_ways) {
  const uint32_t n_arms = (uint32_t)_i, forwards = n_arms == 2 ? 12 : 123, backwards = n_arms == 2 ? 21 : 321;
  uint32_t abba = 0, first_order = 0, other_seed = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) { /* 1 again as 3: the same order */
    uint32_t order = 0;
    clock_make(&r, &still, 1);
    r.o.seed = seed == 3 ? 1 : seed;
    r.o.pairs_min = r.o.pairs_max = 40;
    sampled(n_arms, alike);
    ck_assert_uint_eq(r.s->pairs, 40);
    for (size_t round = 0; round < 20; ++round) {
      const uint32_t a = half(2 * round, n_arms), b = half(2 * round + 1, n_arms);
      ck_assert((a == forwards && b == backwards) || (a == backwards && b == forwards));
      order |= (uint32_t)(a == forwards) << round;
      abba += a == forwards;
    }
    if (seed == 1) first_order = order;
    if (seed == 2) other_seed = order;
    if (seed == 3) ck_assert_uint_eq(order, first_order);
    done();
  }
  ck_assert_uint_ne(first_order, other_seed);
  ck_assert(abba > 10 && abba < 50);
}
END_TEST

/* ---- when it stops ------------------------------------------------------------------------------ */

START_TEST(each_rule_stops) {
  const clock_model noisy = {.noise = 0.2};
  clock_make(&r, &still, 4); /* quiet: the fewest pairs are enough */
  sampled(2, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_INTERVAL);
  ck_assert_uint_eq(r.s->pairs, 20);
  ck_assert_uint_eq(r.s->arm[1].comparison.word, BS_WORD_SAME);
  done();
  clock_make(&r, &noisy, 6);
  r.o.pairs_max = 41; /* half a round at the end */
  sampled(3, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_PAIRS);
  ck_assert_uint_eq(r.s->pairs, 41);
  ck_assert_uint_eq(r.s->arm[2].comparison.word, BS_WORD_UNCLEAR);
  done();
  clock_make(&r, &noisy, 4);
  r.o.seconds = 0.3;
  sampled(2, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_SECONDS);
  ck_assert(r.s->seconds >= 0.3 && r.s->seconds < 0.33 && r.s->pairs < 300 && r.s->pairs > 20);
  done();
  clock_make(&r, &noisy, 4); /* the cap does not come before the fewest pairs */
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
  const clock_model some = {.noise = 0.008};
  clock_make(&r, &some, 5);
  sampled(2, alike);
  ck_assert_uint_eq(r.s->stop, BS_STOP_INTERVAL);
  ck_assert(r.s->pairs > 20 && r.s->pairs < 120);
  const bs_comparison *c = &r.s->arm[1].comparison;
  ck_assert_double_le((c->high - c->low) / 2, r.o.half_width * c->ratio);
  done();
}
END_TEST

START_TEST(one_arm_alone) {
  clock_make(&r, &still, 6);
  r.o.pairs_max = 25;
  sampled(1, alike);
  ck_assert(r.s->stop == BS_STOP_PAIRS && r.s->pairs == 25);
  ck_assert_double_eq_tol(r.s->arm[0].look.p50, 1e-3, 1e-6);
  done();
}
END_TEST

/* ---- what is kept ------------------------------------------------------------------------------- */

/* Every sample that the clock gave is in the result, in its order, with the value it had. */
static void nothing_is_missing(uint32_t n_arms) {
  size_t seen[CLOCK_ARMS] = {0};
  ck_assert_uint_eq(r.s->batches, n_arms * (r.s->pairs + r.s->discarded));
  for (size_t i = pairs_begin(); i < r.world.n_log; ++i) {
    const clock_entry *e = &r.world.log[i];
    ck_assert_double_eq(r.s->arm[e->arm].seconds[seen[e->arm]++], e->seconds);
  }
  for (uint32_t i = 0; i < n_arms; ++i) ck_assert_uint_eq(seen[i], r.s->pairs);
}

START_TEST(outliers_are_never_dropped) {
  const clock_model spiky = {.noise = 0.004, .spikes = 0.1, .spike = 3};
  clock_make(&r, &spiky, 7);
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
  clock_make(&r, &still, 8);
  r.o.pairs_min = r.o.pairs_max = 40;
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

START_TEST(not_all_pairs_can_be_discarded) {
  clock_make(&r, &still, 9);
  r.o.pairs_min = r.o.pairs_max = 40;
  r.world.steal_every = 5; /* two pairs of five */
  sampled(2, alike);
  ck_assert_uint_eq(r.s->pairs, 40);
  ck_assert_uint_eq(r.s->discarded, 10);
  ck_assert_uint_ge(r.s->disturbed_kept, 8);
  ck_assert_uint_eq(r.s->disturbed[BS_DISTURB_STEAL], r.s->discarded + r.s->disturbed_kept);
  done();
  clock_make(&r, &still, 9);
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
    clock_make(&r, &still, 10);
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
                             {rounds_go_both_ways, 4, 2},
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
