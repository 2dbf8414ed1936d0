/* SPDX-License-Identifier: MIT
 * test_sampler_told.c - the sampler on synthetic clocks: the sentence that each shape of a series has, and
 * none on a clean clock; what ends a sampling with an error. */
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

/* ---- what is told ------------------------------------------------------------------------------- */

static const struct {
  const char *says;
  clock_model m;
} told[] = {{"outliers", {.noise = 0.004, .spikes = 0.08, .spike = 0.5}},
            {"settle", {.noise = 0.0001, .warm = 1e9}}};

START_TEST(each_shape_has_its_sentence) {
  clock_make(&r, &told[_i].m, 11);
  r.o.pairs_min = r.o.pairs_max = 60;
  r.o.warm_blocks = 4;
  sampled(2, alike);
  ck_assert_msg(clock_says(r.s, told[_i].says), "%s", told[_i].says);
  done();
}
END_TEST

START_TEST(a_clean_clock_is_not_talked_about) {
  const clock_model clean = {.noise = 0.004};
  int sentences = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    clock_make(&r, &clean, 100 + seed);
    r.o.pairs_min = r.o.pairs_max = 60;
    sampled(2, alike);
    sentences += (int)r.s->n_warnings;
    for (uint32_t i = 0; i < r.s->n_warnings; ++i) printf("clean clock: %s\n", r.s->warning[i]);
    done();
  }
  ck_assert_int_le(sentences, 2); /* of 50 samplings of 2 arms, by chance */
}
END_TEST

START_TEST(many_warnings_end_in_a_word) {
  const clock_model bad = {.noise = 0.004, .spikes = 0.1, .spike = 1, .warm = 1e200};
  bs_sampler_arm arms[BS_SAMPLER_ARMS];
  clock_arm shared = {&r.world, 0, 1e-3};
  clock_make(&r, &bad, 12);
  for (uint32_t i = 0; i < BS_SAMPLER_ARMS; ++i) {
    arms[i] = (bs_sampler_arm){.name = "a name that is rather long, longer than there is room for",
                               .user = &shared,
                               .batch = clock_batch};
  }
  r.o.warm_blocks = 3;
  ck_assert_msg(bs_sampler_run(&r.o, &r.host, arms, BS_SAMPLER_ARMS, &r.s, &r.err) == BS_OK, "%s",
                r.err.message);
  ck_assert_uint_eq(r.s->n_warnings, BS_SAMPLER_WARNINGS);
  ck_assert_str_eq(r.s->warning[BS_SAMPLER_WARNINGS - 1], "and more of the kind");
  done();
}
END_TEST

/* ---- errors ------------------------------------------------------------------------------------- */

START_TEST(an_arm_that_fails_ends_it) {
  static const uint64_t when[] = {1, 3, 70}; /* first call, warm-up, pairs */
  clock_make(&r, &still, 13);
  r.world.fail_after = when[_i];
  ck_assert_int_eq(clock_sample(&r, 3, alike), BS_RANK_FAILED);
  ck_assert_str_eq(r.err.id, "BS-CLOCK-FAIL");
  ck_assert_ptr_null(r.s);
}
END_TEST

START_TEST(no_time_at_all_is_an_error) {
  static const double none[] = {1e-3, 0.0};
  clock_make(&r, &still, 14);
  ck_assert_int_eq(clock_sample(&r, 2, none), BS_INTERNAL);
  ck_assert_str_eq(r.err.id, "BS-SAMPLER-TIME");
  ck_assert_ptr_nonnull(strstr(r.err.message, "other"));
}
END_TEST

START_TEST(options_without_sense_are_refused) {
  for (int how = 0; how < 8; ++how) {
    uint32_t n_arms = 2;
    clock_make(&r, &still, 15);
    if (how == 0) r.o.pairs_min = 4;
    if (how == 1) r.o.pairs_max = 19;
    if (how == 2) r.o.batch_seconds = 0.9e-3;
    if (how == 3) r.o.batch_seconds = NAN;
    if (how == 4) r.o.batch_calls = 0;
    if (how == 5) r.o.phase = BS_TIME_FIRST;
    if (how == 6) n_arms = 0;
    if (how == 7) n_arms = BS_SAMPLER_ARMS + 1;
    const bs_sampler_arm arms[BS_SAMPLER_ARMS + 1] = {{0}};
    ck_assert_int_eq(bs_sampler_run(&r.o, &r.host, arms, n_arms, &r.s, &r.err), BS_INVALID_ARGUMENT);
    ck_assert_str_eq(r.err.id, "BS-SAMPLER-OPTIONS");
    ck_assert_ptr_null(r.s);
    ck_assert_uint_eq(r.world.n_log, 0);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_shape_has_its_sentence, TEST_COUNT(told)},
                             {a_clean_clock_is_not_talked_about},
                             {many_warnings_end_in_a_word},
                             {an_arm_that_fails_ends_it, 3},
                             {no_time_at_all_is_an_error},
                             {options_without_sense_are_refused},
                             {0}};
  return run_tests("sampler told", tests, (test_setup){0});
}
