/* SPDX-License-Identifier: MIT
 * test_sim_fit.c - fits of measured times: the published all-reduce of 8 ranks to all digits, held-out
 * errors, pieces that are found again, shares that are never negative, and points that are refused. */
#include <math.h>
#include <string.h>

#include "sim/fit.h"
#include "tests/run_tests.h"

/* kvcache-ai/Mooncake#3484: bytes, us. */
static const sim_fit_point published[] = {{32768, 18.66},     {65536, 18.95},    {131072, 19.25},
                                          {262144, 19.54},    {524288, 20.39},   {1048576, 27.76},
                                          {2097152, 40.66},   {4194304, 53.24},  {8388608, 81.16},
                                          {16777216, 121.33}, {33554432, 195.40}};
enum { PUBLISHED = sizeof published / sizeof published[0] };

static void in_seconds(sim_fit_point *out) {
  for (int i = 0; i < PUBLISHED; ++i)
    out[i] = (sim_fit_point){published[i].bytes, published[i].seconds * 1e-6};
}

#define NEAR(got, want, digits) \
  ck_assert_msg(fabs((got) - (want)) <= (digits), "%.9g instead of %.9g", (double)(got), (double)(want))

START_TEST(the_published_points_are_fitted_to_all_digits) {
  sim_fit_point p[PUBLISHED];
  sim_fit fit;
  sim_fit_error e;
  in_seconds(p);
  ck_assert_int_eq(sim_fit_make(p, PUBLISHED, 1, &fit, NULL), BS_OK);
  sim_fit_judge(&fit, p, PUBLISHED, &e);
  NEAR(fit.segment[0].alpha_s * 1e6, 18.9414, 5e-5);
  NEAR(fit.segment[0].s_per_byte * 1e6, 6.293637e-6, 5e-13);
  NEAR(e.mape, 0.0888, 5e-5);
  NEAR(e.worst, -0.2095, 5e-5);
  ck_assert_int_eq(sim_fit_make(p, PUBLISHED, 2, &fit, NULL), BS_OK);
  sim_fit_judge(&fit, p, PUBLISHED, &e);
  NEAR(fit.segment[0].alpha_s * 1e6, 17.9845, 5e-5);
  NEAR(fit.segment[0].s_per_byte * 1e6, 7.766252e-6, 5e-13);
  NEAR(fit.segment[1].alpha_s * 1e6, 31.2332, 5e-5);
  NEAR(fit.segment[1].s_per_byte * 1e6, 5.209306e-6, 5e-13);
  ck_assert(fit.segment[1].from_bytes == 2097152 && fit.segment[0].points == 6);
  NEAR(e.mape, 0.0380, 5e-5);
  NEAR(e.worst, 0.0817, 5e-5);
}
END_TEST

START_TEST(half_of_the_points_judge) {
  sim_fit_point p[PUBLISHED], even[PUBLISHED], odd[PUBLISHED];
  uint32_t n[2] = {0, 0};
  sim_fit fit;
  sim_fit_error e, chosen;
  in_seconds(p);
  for (uint32_t i = 0; i < PUBLISHED; ++i) (i % 2 ? odd : even)[n[i % 2]++] = p[i];
  ck_assert_int_eq(sim_fit_make(even, n[0], 1, &fit, NULL), BS_OK);
  sim_fit_judge(&fit, odd, n[1], &e);
  NEAR(e.mape, 0.0660, 5e-5);
  NEAR(e.worst, -0.1674, 5e-5);
  ck_assert_int_eq(sim_fit_choose(p, PUBLISHED, &fit, &chosen, NULL), BS_OK);
  ck_assert_uint_ge(fit.segments, 2); /* two lower the error of what was held out */
  ck_assert_uint_eq(chosen.cells, 5);
  ck_assert(chosen.mape < e.mape);
  ck_assert(fit.least_bytes == 32768 && fit.most_bytes == 33554432);
}
END_TEST

START_TEST(exact_pieces_are_found_again) {
  sim_fit_point p[40];
  sim_fit fit;
  sim_fit_error e;
  for (int i = 0; i < 40; ++i) {
    const double n = 64.0 * (i + 1);
    p[i] = (sim_fit_point){n, n < 1000 ? 2e-6 + n * 1e-9 : 9e-6 + n * 5e-10};
  }
  ck_assert_int_eq(sim_fit_choose(p, 40, &fit, &e, NULL), BS_OK);
  ck_assert_uint_eq(fit.segments, 2);
  for (int i = 0; i < 40; ++i)
    ck_assert_msg(fabs(sim_fit_seconds(&fit, p[i].bytes) / p[i].seconds - 1) < 1e-9, "point %d", i);
}
END_TEST

START_TEST(no_share_is_negative) {
  const sim_fit_point falling[] = {{1, 5e-6}, {1000, 4e-6}, {2000, 3e-6}};
  const sim_fit_point steep[] = {{1000, 1e-6}, {2000, 3e-6}, {3000, 5e-6}};
  sim_fit fit;
  ck_assert_int_eq(sim_fit_make(falling, 3, 1, &fit, NULL), BS_OK);
  ck_assert(fit.segment[0].s_per_byte == 0 && fit.segment[0].alpha_s > 3e-6);
  ck_assert_int_eq(sim_fit_make(steep, 3, 1, &fit, NULL), BS_OK);
  ck_assert(fit.segment[0].alpha_s == 0 && fit.segment[0].s_per_byte > 0);
}
END_TEST

START_TEST(points_that_are_none_are_refused) {
  static const struct {
    sim_fit_point p[4];
    uint32_t n, segments;
    const char *id;
  } cases[] = {{{{1, 1}}, 1, 1, "BS-FIT-POINTS"},          {{{1, 1}, {2, 1}, {3, 1}}, 3, 2, "BS-FIT-POINTS"},
               {{{1, 1}, {2, 1}}, 2, 5, "BS-FIT-POINTS"},  {{{2, 1}, {1, 1}}, 2, 1, "BS-FIT-POINT"},
               {{{1, 1}, {1, 1}}, 2, 1, "BS-FIT-POINT"},   {{{1, 0}, {2, 1}}, 2, 1, "BS-FIT-POINT"},
               {{{1, 1}, {2, NAN}}, 2, 1, "BS-FIT-POINT"}, {{{-1, 1}, {2, 1}}, 2, 1, "BS-FIT-POINT"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bs_error err = BS_ERROR_INIT;
    sim_fit fit;
    sim_fit_error e;
    ck_assert_int_eq(sim_fit_make(cases[i].p, cases[i].n, cases[i].segments, &fit, &err),
                     BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, cases[i].id);
    if (cases[i].segments == 1 && cases[i].n > 1)
      ck_assert_int_eq(sim_fit_choose(cases[i].p, cases[i].n, &fit, &e, &err), BS_INVALID_ARGUMENT);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_published_points_are_fitted_to_all_digits},
                             {half_of_the_points_judge},
                             {exact_pieces_are_found_again},
                             {no_share_is_negative},
                             {points_that_are_none_are_refused},
                             {0}};
  return run_tests("sim_fit", tests, (test_setup){0});
}
