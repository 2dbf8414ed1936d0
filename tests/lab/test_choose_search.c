/* SPDX-License-Identifier: MIT
 * test_choose_search.c - strategies on made-up landscapes: what they find for how much, from a bad start; the
 * same seed gives the same points; budgets, failures and constraints hold; halving mends a lucky first look.
 */
#include <math.h>

#include "core/base/rng.h"
#include "lab/choose/replay.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

/* Of a kernel: tiles with an optimum inside, tied by their product; splitting, an exp, an order of loops; 2 %
 * of noise that belongs to the point. ragged: no structure at all. */
typedef struct landscape {
  const char *name;
  double tiles, tied, words;
  int ragged, fails; /* fails: tiles whose product is above 16384 do not run */
} landscape;

static const landscape lands[] = {{"smooth", 0.25, 0.0, 0.15, 0, 0},
                                  {"tied", 0.15, 0.30, 0.15, 0, 0},
                                  {"steep", 0.60, 0.20, 0.40, 0, 1},
                                  {"flat", 0.08, 0.04, 0.06, 0, 1},
                                  {"ragged", 0.0, 0.0, 0.0, 1, 0}};

static double seconds_at(const landscape *l, const bs_space *s, uint64_t p) {
  double v[BS_SPACE_KNOBS] = {0}, t = 1e-3;
  uint32_t bits = 0;
  for (uint32_t k = 0; k < s->n; k++) v[k] = bs_space_place(s, p, k);
  bs_rng_bits(11, (uint32_t)(l - lands), p, 1, &bits);
  const double noise = bits / 4294967296.0;
  if (l->fails && v[0] + v[1] > 6) return INFINITY;
  if (l->ragged) return t * (1.0 + noise);
  t *= 1.0 + l->tiles * fabs(v[0] - 2.0);
  t *= 1.0 + l->tiles * fabs(v[1] - 3.0);
  t *= 1.0 + l->tied * fabs(v[0] + v[1] - 5.0);
  t *= 1.0 + l->words * v[2];
  t *= 1.0 + l->words * (v[3] != 1.0);
  t *= 1.0 + l->words * (v[4] != 0.0);
  return t * (1.0 + 0.02 * noise);
}

static void make_space(bs_space *s) {
  bs_error err = BS_ERROR_INIT;
  bs_space_init(s);
  ck_assert_int_eq(bs_space_add(s, "rows", "8:128*2", "32", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(s, "keys", "16:256*2", "64", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(s, "split", "1:4*2", "1", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(s, "exp", "exact,fast", "exact", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(s, "loop", "mn,nm", "mn", &err), BS_OK);
}

static void make_replay(const landscape *l, bs_replay *r) {
  memset(r, 0, sizeof *r);
  make_space(&r->space);
  r->present = r->space.size;
  r->seconds = malloc(r->space.size * sizeof *r->seconds);
  for (uint64_t p = 0; p < r->space.size; p++) {
    r->seconds[p] = seconds_at(l, &r->space, p);
    if (r->seconds[p] < r->seconds[r->best]) r->best = p;
  }
}

static bs_replayed replay(const bs_replay *r, uint32_t strategy, uint64_t points) {
  const bs_replay_options o = {
      .strategy = strategy, .repeats = 20, .finalists = 4, .seed = 1, .points = points, .goal = 0.95};
  bs_replayed out;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_replay_run(r, &o, &out, &err) == BS_OK, "%s", err.message);
  if (getenv("BS_TEST_PRINT") != NULL)
    printf("%-7s 5%% %.3f 10%% %.3f 25%% %.3f end %.3f low %.3f measured %.3f goal after %.3f, %u of %u\n",
           bs_strategy_names[strategy], out.found_5, out.found_10, out.found_25, out.found, out.low,
           out.measured, out.goal_cost, out.reached, out.repeats);
  return out;
}

/* The goal, on every landscape that has a structure. */
START_TEST(elite_finds_the_best_for_a_quarter) {
  bs_replay r;
  make_replay(&lands[_i], &r);
  if (getenv("BS_TEST_PRINT") != NULL) printf("%s\n", lands[_i].name);
  for (uint32_t strategy = BS_STRATEGY_ELITE; strategy <= BS_STRATEGY_MIXED; strategy++) {
    const bs_replayed got = replay(&r, strategy, 0);
    ck_assert_double_ge(got.found, 0.95);
    ck_assert_double_le(got.measured, 0.25);
    ck_assert_uint_ge(got.reached, 18);
    ck_assert_double_le(got.goal_cost, 0.20);
  }
  bs_replay_free(&r);
}
END_TEST

/* What costs elite so much costs random twice that and more, where there is a structure to follow; where
 * there is none elite is no better. */
START_TEST(random_is_worse_where_there_is_structure) {
  bs_replay r;
  make_replay(&lands[_i], &r);
  const bs_replayed elite = replay(&r, BS_STRATEGY_ELITE, r.space.size / 4);
  const bs_replayed by_chance = replay(&r, BS_STRATEGY_RANDOM, r.space.size / 4);
  if (lands[_i].ragged) {
    ck_assert_double_le(elite.found, by_chance.found + 0.03);
  } else {
    ck_assert_double_ge(by_chance.goal_cost, 2.0 * elite.goal_cost);
    ck_assert_double_ge(elite.found, by_chance.found + 0.03);
    ck_assert_double_ge(elite.low, by_chance.low + 0.05);
  }
  bs_replay_free(&r);
}
END_TEST

START_TEST(full_finds_the_very_best) {
  bs_replay r;
  make_replay(&lands[_i], &r);
  const bs_replayed got = replay(&r, BS_STRATEGY_FULL, 0);
  ck_assert_double_eq(got.found, 1.0);
  ck_assert_double_ge(got.measured, 1.0);
  ck_assert_double_eq(replay(&r, BS_STRATEGY_FAST, 0).measured, (8.0 + 6.0) / 300.0);
  bs_replay_free(&r);
}
END_TEST

/* ---- one search ----------------------------------------------------------------------------- */

typedef struct probe {
  const bs_space *space;
  const landscape *land;
  double now, lucky; /* lucky: the first look at point 0 says so many seconds */
  int calls, errs_at, all_fail;
  uint64_t most_effort;
} probe;

static double now_of(void *user) {
  return ((const probe *)user)->now;
}

static int32_t measure(void *user, uint64_t point, uint32_t effort, double *out, bs_error *err) {
  probe *p = user;
  ck_assert(bs_space_allows(p->space, point));
  p->now += 1.0;
  if (++p->calls == p->errs_at) return bs_error_set(err, BS_IO, "TEST-DISK", "the disk is full");
  if (effort > p->most_effort) p->most_effort = effort;
  *out = p->all_fail                                 ? INFINITY
         : p->lucky > 0 && point == 0 && effort == 0 ? p->lucky
                                                     : seconds_at(p->land, p->space, point);
  return BS_OK;
}

static int32_t search(probe *p, bs_search *s, bs_searched *out, bs_error *err) {
  s->user = p;
  s->measure = measure;
  s->now = now_of;
  p->calls = 0;
  return bs_search_run(p->space, s, out, err);
}

START_TEST(the_seed_decides_the_points) {
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  make_space(&space);
  probe p = {.space = &space, .land = &lands[1]};
  bs_searched a, b, other;
  bs_search s = {.strategy = (uint32_t)_i, .seed = 5, .start = 299, .finalists = 4};
  ck_assert_int_eq(search(&p, &s, &a, &err), BS_OK);
  ck_assert_int_eq(search(&p, &s, &b, &err), BS_OK);
  s.seed = 6;
  ck_assert_int_eq(search(&p, &s, &other, &err), BS_OK);
  ck_assert_uint_eq(a.n, b.n);
  int same = a.n == other.n;
  for (size_t i = 0; i < a.n; i++) {
    ck_assert_uint_eq(a.rows[i].point, b.rows[i].point);
    same = same && a.rows[i].point == other.rows[i].point;
    for (size_t j = 0; j < i; j++) /* no point twice but in the halving */
      ck_assert(a.rows[i].effort > 0 || a.rows[i].point != a.rows[j].point);
  }
  ck_assert_int_eq(same, _i == BS_STRATEGY_FULL || _i == BS_STRATEGY_FAST);
  ck_assert_uint_eq(a.measured, a.n);
  ck_assert_uint_le(a.measured, bs_search_points(&s, &space));
  bs_searched_free(&a);
  bs_searched_free(&b);
  bs_searched_free(&other);
}
END_TEST

START_TEST(budgets_constraints_and_errors_end_it) {
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  make_space(&space);
  ck_assert_int_eq(bs_space_limit(&space, "rows*keys <= 2048", &err), BS_OK);
  probe p = {.space = &space, .land = &lands[1]};
  bs_searched got;
  bs_search s = {.strategy = (uint32_t)_i, .points = 7, .start = 299};
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
  ck_assert_uint_eq(got.measured, 7);
  ck_assert_uint_eq(got.end, BS_SEARCH_POINTS);
  bs_searched_free(&got);
  s.points = 0;
  s.seconds = 5;
  p.now = 100;
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
  ck_assert_uint_eq(got.measured, 5);
  ck_assert_uint_eq(got.end, BS_SEARCH_SECONDS);
  bs_searched_free(&got);
  s.seconds = 0;
  p.errs_at = 3;
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_IO);
  ck_assert_str_eq(err.id, "TEST-DISK");
  ck_assert_uint_eq(got.measured, 2);
  bs_searched_free(&got);
  p.errs_at = 0;
  p.all_fail = 1;
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
  ck_assert(isinf(got.best_seconds));
  bs_searched_free(&got);
}
END_TEST

/* The halving takes at most half of a budget, and what it does not need goes to the search. */
START_TEST(a_budget_is_used_up) {
  static const struct {
    uint64_t points, looked_at;
    uint32_t finalists;
    int all_fail;
  } rows[] = {{1, 1, 4, 0},    {2, 2, 4, 0},  {4, 2, 4, 0},  {8, 6, 4, 0},   {8, 8, 0, 0},
              {9, 7, 4, 0},    {10, 5, 4, 0}, {12, 6, 4, 0}, {16, 10, 4, 0}, {16, 10, 8, 0},
              {16, 10, 32, 0}, {8, 8, 4, 1},  {16, 16, 8, 1}};
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  make_space(&space);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    probe p = {.space = &space, .land = &lands[1], .all_fail = rows[i].all_fail};
    bs_search s = {.strategy = (uint32_t)_i, .points = rows[i].points, .finalists = rows[i].finalists};
    bs_searched got;
    uint64_t looked_at = 0;
    if (rows[i].all_fail && _i >= BS_STRATEGY_ELITE) continue; /* without a survivor they end before */
    ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
    for (size_t k = 0; k < got.n; k++) looked_at += got.rows[k].effort == 0;
    ck_assert_msg(looked_at == rows[i].looked_at && got.measured == rows[i].points,
                  "%s: %u of %u points, %u measurements", bs_strategy_names[_i], (unsigned)looked_at,
                  (unsigned)rows[i].looked_at, (unsigned)got.measured);
    ck_assert_str_eq(bs_search_end_names[got.end], "budget");
    bs_searched_free(&got);
  }
}
END_TEST

/* An implementation without knobs is one point. */
START_TEST(one_point_is_a_space) {
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  bs_space_init(&space);
  for (int i = 0; i < 2; i++) {
    probe p = {.space = &space, .land = &lands[1], .all_fail = 0, .lucky = 2e-3};
    bs_searched got;
    bs_search s = {.strategy = (uint32_t)_i, .finalists = 4};
    ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
    ck_assert_uint_eq(got.measured, 1);
    ck_assert_uint_eq(got.best, 0);
    ck_assert_double_eq(got.best_seconds, 2e-3);
    bs_searched_free(&got);
    ck_assert_int_eq(bs_space_add(&space, "only", "7", "7", &err),
                     BS_OK); /* a knob with one value is no more */
  }
}
END_TEST

START_TEST(no_point_is_left) {
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  make_space(&space);
  ck_assert_int_eq(bs_space_limit(&space, "rows > 1000", &err), BS_OK);
  probe p = {.space = &space, .land = &lands[1]};
  bs_searched got;
  bs_search s = {.strategy = (uint32_t)_i};
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-KNOB-SPACE");
  ck_assert_int_eq(p.calls, 0);
  bs_searched_free(&got);
}
END_TEST

/* A point that looked the fastest by luck is found out by the second look. */
START_TEST(halving_looks_again) {
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  make_space(&space);
  probe p = {.space = &space, .land = &lands[1], .lucky = 1e-5};
  bs_searched got;
  bs_search s = {.strategy = BS_STRATEGY_FULL};
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
  ck_assert_uint_eq(got.best, 0);
  bs_searched_free(&got);
  s.finalists = 8;
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
  ck_assert_uint_ne(got.best, 0);
  ck_assert_uint_eq(p.most_effort, 3);
  ck_assert_uint_eq(got.measured, 300 + 8 + 4 + 2);
  size_t rows[3];
  ck_assert_uint_eq(bs_searched_elite(&got, 3, rows), 3);
  ck_assert_uint_eq(got.rows[rows[0]].point, got.best);
  ck_assert_uint_eq(got.rows[rows[0]].effort, 3);
  bs_searched_free(&got);
}
END_TEST

/* What a history knows costs nothing. */
static int all_known(void *user, uint64_t point, double *out) {
  const probe *p = user;
  *out = seconds_at(p->land, p->space, point);
  return 1;
}

START_TEST(known_points_are_free) {
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  make_space(&space);
  probe p = {.space = &space, .land = &lands[0]};
  bs_searched got;
  bs_search s = {.strategy = BS_STRATEGY_FULL, .known = all_known};
  ck_assert_int_eq(search(&p, &s, &got, &err), BS_OK);
  ck_assert_int_eq(p.calls, 0);
  ck_assert_uint_eq(got.measured, 0);
  ck_assert_uint_eq(got.n, 300);
  ck_assert(isfinite(got.best_seconds));
  bs_searched_free(&got);
}
END_TEST

static double prior_of(void *user, uint64_t point) {
  const probe *p = user;
  return seconds_at(p->land, p->space, point);
}

START_TEST(a_prior_leads_fast) {
  bs_space space;
  bs_error err = BS_ERROR_INIT;
  make_space(&space);
  probe p = {.space = &space, .land = &lands[2]};
  bs_searched plain, led;
  bs_search s = {.strategy = BS_STRATEGY_FAST, .start = 4 * 60};
  ck_assert_int_eq(search(&p, &s, &plain, &err), BS_OK);
  s.prior = prior_of;
  ck_assert_int_eq(search(&p, &s, &led, &err), BS_OK);
  ck_assert_uint_eq(led.measured, plain.measured);
  ck_assert_double_lt(led.best_seconds, plain.best_seconds);
  bs_searched_free(&plain);
  bs_searched_free(&led);
}
END_TEST

START_TEST(the_least_of_a_list) {
  ck_assert_uint_eq(bs_choose_least((const double[]){3, 2, 1.98, 5}, 4, 1.0), 2);
  ck_assert_uint_eq(bs_choose_least((const double[]){3, 2, 1.98, 5}, 4, 0.95), 1);
  ck_assert_uint_eq(bs_choose_least((const double[]){0, -1, INFINITY, NAN}, 4, 1.0), 4);
  ck_assert_uint_eq(bs_choose_least((const double[]){0, 7}, 2, 0.95), 1);
}
END_TEST

int main(void) {
  const test_case rows[] = {{elite_finds_the_best_for_a_quarter, 4},
                            {random_is_worse_where_there_is_structure, TEST_COUNT(lands)},
                            {full_finds_the_very_best, TEST_COUNT(lands)},
                            {the_seed_decides_the_points, BS_STRATEGIES},
                            {budgets_constraints_and_errors_end_it, BS_STRATEGIES},
                            {a_budget_is_used_up, BS_STRATEGIES},
                            {one_point_is_a_space, BS_STRATEGIES},
                            {no_point_is_left, BS_STRATEGIES},
                            {halving_looks_again},
                            {known_points_are_free},
                            {a_prior_leads_fast},
                            {the_least_of_a_list},
                            {0}};
  return run_tests("choose_search", rows, (test_setup){0});
}
