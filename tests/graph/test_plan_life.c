/* SPDX-License-Identifier: MIT
 * test_plan_life.c - lifetimes: views and joins lie in one block, what is overwritten exactly shares it, and
 * only when nobody needs it; outputs live to the end; the report's numbers are those that follow by hand. */
#include <string.h>

#include "core/base/error.h"
#include "tests/graph/plan_oracle.h"
#include "tests/run_tests.h"

#define OWN .inside = GPLAN_NONE
#define OVER(value) .n_over = 1, .over = {value}

static gplan_life make(const gplan_value *values, uint32_t n, uint32_t n_steps) {
  gplan_life life;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(gplan_life_make(values, n, NULL, n_steps, &life, &err) == BS_OK, "%s: %s", err.id,
                err.message);
  return life;
}

START_TEST(a_chain_with_a_view) {
  /* x (the caller's) -> 0: a -> 1: b, by a view of a -> 2: c, the output; b is read in step 2. */
  const gplan_value v[] = {{400, 0, 0, 0, OWN, .flags = GPLAN_OUTSIDE},
                           {400, 0, 0, 0, OWN},
                           {200, 100, 0, 1, .inside = 1},
                           {300, 0, 1, 2, OWN},
                           {50, 0, 2, 2, OWN, .flags = GPLAN_KEPT}};
  gplan_life life = make(v, 5, 5);
  ck_assert_uint_eq(life.n_blocks, 3);
  ck_assert_uint_eq(life.block[0], GPLAN_NONE);
  ck_assert_uint_eq(life.block[1], life.block[2]);
  ck_assert_uint_eq(life.at[2], 100);
  const gplan_block a = life.blocks[life.block[1]], c = life.blocks[life.block[4]];
  ck_assert(a.bytes == 400 && a.lower == 0 && a.upper == 2); /* the view is read in step 1 */
  ck_assert(c.lower == 2 && c.upper == 5);                   /* kept: to the end */
  ck_assert_uint_eq(life.naive, 400 + 200 + 300 + 50);
  ck_assert_uint_eq(life.bound_before, 448 + 256); /* step 0: a and the view, rounded up to 64 */
  ck_assert_uint_eq(life.n_inside, 1);
  gplan_life_free(&life);
}
END_TEST

START_TEST(a_view_of_the_callers_memory_needs_none) {
  const gplan_value v[] = {{400, 0, 0, 0, OWN, .flags = GPLAN_OUTSIDE}, {200, 100, 0, 1, .inside = 0}};
  gplan_life life = make(v, 2, 2);
  ck_assert_uint_eq(life.n_blocks, 0);
  ck_assert_uint_eq(life.block[1], GPLAN_NONE);
  ck_assert_uint_eq(life.at[1], 100);
  gplan_life_free(&life);
}
END_TEST

START_TEST(parts_of_a_join_are_written_in_place) {
  /* Steps 1 and 3 write the parts of value 0, step 5 reads it; a view of the second part is read in step 7.
   */
  const gplan_value v[] = {{256, 0, 3, 5, OWN},
                           {128, 0, 1, 1, .inside = 0},
                           {128, 128, 3, 3, .inside = 0},
                           {64, 64, 3, 7, .inside = 2}};
  gplan_life life = make(v, 4, 8);
  ck_assert_uint_eq(life.n_blocks, 1);
  ck_assert(life.blocks[0].bytes == 256 && life.blocks[0].lower == 1 && life.blocks[0].upper == 8);
  ck_assert_uint_eq(life.at[3], 192);
  gplan_life_free(&life);
}
END_TEST

/* Step 1 writes value 1 and may overwrite value 0. Does it? */
static const struct {
  const char *what;
  int overwrites;
  uint32_t n;
  gplan_value v[4];
} cases[] = {
    {"the last reader", 1, 2, {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, OWN, OVER(0)}}},
    {"read again later", 0, 2, {{64, 0, 0, 2, OWN}, {64, 0, 1, 2, OWN, OVER(0)}}},
    {"another size", 0, 2, {{128, 0, 0, 1, OWN}, {64, 0, 1, 2, OWN, OVER(0)}}},
    {"the caller's memory", 0, 2, {{64, 0, 0, 1, OWN, .flags = GPLAN_OUTSIDE}, {64, 0, 1, 2, OWN, OVER(0)}}},
    {"an output", 0, 2, {{64, 0, 0, 1, OWN, .flags = GPLAN_KEPT}, {64, 0, 1, 2, OWN, OVER(0)}}},
    {"a view of it is read later",
     0,
     3,
     {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, OWN, OVER(0)}, {32, 0, 0, 3, .inside = 0}}},
    {"a view of it is an output",
     0,
     3,
     {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, OWN, OVER(0)}, {32, 0, 0, 1, .inside = 0, .flags = GPLAN_KEPT}}},
    {"another part of the same memory is read later",
     1,
     4,
     {{64, 0, 0, 1, .inside = 2},
      {64, 0, 1, 2, OWN, OVER(0)},
      {192, 0, 0, 0, OWN},
      {128, 64, 0, 3, .inside = 2}}},
    {"a part that overlaps it is read later",
     0,
     4,
     {{64, 0, 0, 1, .inside = 2},
      {64, 0, 1, 2, OWN, OVER(0)},
      {192, 0, 0, 0, OWN},
      {128, 32, 0, 3, .inside = 2}}},
    {"two values over one: the first alone",
     1,
     3,
     {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, OWN, OVER(0)}, {64, 0, 1, 2, OWN, OVER(0)}}},
    {"a second choice",
     0,
     3,
     {{64, 0, 0, 2, OWN}, {64, 0, 1, 2, OWN, .n_over = 2, .over = {0, 2}}, {64, 0, 0, 1, OWN}}},
    {"a part of a join",
     0,
     3,
     {{64, 0, 0, 1, OWN}, {64, 0, 1, 1, .inside = 2, OVER(0)}, {128, 0, 1, 3, OWN}}},
};

START_TEST(what_may_be_overwritten) {
  gplan_life life = make(cases[_i].v, cases[_i].n, 5);
  const int shares = life.block[0] != GPLAN_NONE && life.block[0] == life.block[1];
  ck_assert_msg(shares == cases[_i].overwrites, "%s", cases[_i].what);
  ck_assert_uint_eq(life.over[1] == 0, shares);
  if (shares) ck_assert_uint_eq(life.at[0], life.at[1]);
  if (strncmp(cases[_i].what, "two values", 10) == 0) ck_assert_uint_ne(life.block[2], life.block[0]);
  if (strcmp(cases[_i].what, "a second choice") == 0) ck_assert_uint_eq(life.over[1], 2);
  gplan_life_free(&life);
}
END_TEST

/* Residuals: 6 values of one size in a chain, each over the one before: one block. */
START_TEST(a_chain_is_one_block) {
  gplan_value v[6];
  for (uint32_t i = 0; i < 6; i++)
    v[i] = (gplan_value){64, 0, i, i < 5 ? i + 1 : i, OWN, .n_over = i > 0, .over = {i - 1}};
  v[0].n_over = 0;
  v[5].flags = GPLAN_KEPT;
  gplan_life life = make(v, 6, 9);
  ck_assert_uint_eq(life.n_blocks, 1);
  ck_assert_uint_eq(life.n_over, 5);
  ck_assert(life.blocks[0].lower == 0 && life.blocks[0].upper == 9);
  ck_assert_uint_eq(life.bound_before, 128);
  gplan_life_free(&life);
}
END_TEST

/* What is never in use together by hand must not be in the same bytes after planning: lifetimes, in-place and
 * offsets as one. Random chains with views; each byte has one owner in a step, unless it was overwritten. */
START_TEST(random_values_keep_their_bytes) {
  for (uint64_t number = 0; number < 60; number++) {
    enum { N = 60 };
    gplan_value v[N];
    uint64_t offsets[2 * N], state = number + 99;
    for (uint32_t i = 0; i < N; i++) {
      v[i] = (gplan_value){64 * (1 + oracle_random(&state) % 4), 0, i, i, OWN};
      const uint32_t from = i == 0 ? 0 : oracle_random(&state) % i, what = oracle_random(&state) % 4;
      if (i == 0) continue;
      if (what == 0) { /* a view */
        v[i].bytes = v[from].bytes / 2;
        v[i].offset = v[from].bytes / 2;
        v[i].inside = from;
      } else if (what == 1) {
        v[i].bytes = v[from].bytes;
        v[i].n_over = 1;
        v[i].over[0] = from;
      }
      if (v[from].last < i) v[from].last = i;
      if (oracle_random(&state) % 20 == 0) v[i].flags = GPLAN_KEPT;
    }
    gplan_life life = make(v, N, N);
    gplan_arena arena;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(
        gplan_place(life.blocks, life.n_blocks, &(gplan_options){64, 1000000}, offsets, &arena, &err), BS_OK);
    ck_assert_uint_eq(oracle_faults(life.blocks, life.n_blocks, 64, offsets, arena.bytes), 0);
    for (uint32_t i = 0; i < N; i++) { /* nothing that is needed is written over */
      for (uint32_t k = 0; k < N; k++) {
        if (i == k || v[i].inside != GPLAN_NONE) continue; /* views are not written */
        uint32_t of_k = k;
        while (v[of_k].inside != GPLAN_NONE) of_k = v[of_k].inside;
        if (of_k == i || v[of_k].def > v[i].def) continue; /* k holds nothing yet when i is written */
        const int needed = v[k].last > v[i].def || v[k].flags & GPLAN_KEPT ||
                           (v[k].last == v[i].def && life.over[i] == GPLAN_NONE);
        const uint64_t bi = offsets[life.block[i]] + life.at[i], bk = offsets[life.block[k]] + life.at[k];
        ck_assert_msg(!needed || bi >= bk + v[k].bytes || bk >= bi + v[i].bytes,
                      "case %u: value %u is written over value %u", (unsigned)number, i, k);
      }
    }
    gplan_life_free(&life);
  }
}
END_TEST

static const struct {
  const char *id;
  gplan_value v[2];
} bad[] = {
    {"BS-PLAN-LIFE", {{64, 0, 0, 1, OWN}, {64, 0, 9, 9, OWN}}},
    {"BS-PLAN-LIFE", {{64, 0, 0, 1, OWN}, {64, 0, 2, 1, OWN}}},
    {"BS-PLAN-LIFE", {{64, 0, 0, 1, OWN}, {64, 0, 2, 9, OWN}}},
    {"BS-PLAN-INSIDE", {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, .inside = 2}}},
    {"BS-PLAN-INSIDE", {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, .inside = 1}}},
    {"BS-PLAN-INSIDE", {{64, 0, 0, 1, OWN}, {64, 1, 1, 2, .inside = 0}}},
    {"BS-PLAN-INSIDE", {{64, 0, 0, 1, OWN}, {64, UINT64_MAX, 1, 2, .inside = 0}}},
    {"BS-PLAN-INSIDE", {{64, 0, 0, 1, .inside = 1}, {64, 0, 1, 2, .inside = 0}}},
    {"BS-PLAN-OVER", {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, OWN, OVER(2)}}},
    {"BS-PLAN-OVER", {{64, 0, 0, 1, OWN}, {64, 0, 1, 2, OWN, .n_over = 5}}},
};

START_TEST(bad_values_are_refused) {
  gplan_life life;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(gplan_life_make(bad[_i].v, 2, NULL, 3, &life, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, bad[_i].id);
  ck_assert_ptr_null(life.blocks);
}
END_TEST

START_TEST(the_report_is_that_of_the_plan) {
  /* Step 2 is the peak: 0, 1, 2 and 640 bytes of scratch. Value 3 is over value 2. */
  const gplan_value v[] = {
      {1000, 0, 0, 3, OWN}, {200, 0, 1, 2, OWN}, {400, 0, 2, 3, OWN}, {400, 0, 3, 4, OWN, OVER(2)}};
  const uint64_t scratch[] = {0, 0, 640, 64, 0};
  gplan_life life;
  gplan_arena arena;
  gplan_report report;
  uint64_t offsets[8];
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(gplan_life_make(v, 4, scratch, 5, &life, &err), BS_OK);
  ck_assert_uint_eq(life.scratch[0], GPLAN_NONE);
  ck_assert_int_eq(gplan_place(life.blocks, life.n_blocks, &(gplan_options){64, 1000}, offsets, &arena, &err),
                   BS_OK);
  gplan_report_make(v, &life, &arena, &report);
  ck_assert_uint_eq(report.naive, 2000);
  ck_assert_uint_eq(report.bound_before, 1024 + 256 + 448 + 640);
  ck_assert_uint_eq(report.bound, 1024 + 256 + 448 + 640);
  ck_assert_uint_eq(report.arena, arena.bytes);
  ck_assert(report.ratio >= 1 && report.proven);
  ck_assert_uint_eq(report.scratch, 640);
  ck_assert_uint_eq(report.peak, 2);
  ck_assert_uint_eq(report.n_top, 4);
  const uint32_t names[] = {0, GPLAN_NONE, 2, 1};
  const uint64_t bytes[] = {1000, 640, 400, 200};
  for (int k = 0; k < 4; k++) ck_assert(report.top[k].value == names[k] && report.top[k].bytes == bytes[k]);
  gplan_life_free(&life);
}
END_TEST

/* The five largest of many, whatever their order. */
START_TEST(the_five_largest) {
  gplan_value v[12];
  for (uint32_t i = 0; i < 12; i++) v[i] = (gplan_value){64 * (1 + i * 5 % 12), 0, 0, 0, OWN};
  gplan_life life = make(v, 12, 1);
  gplan_arena arena;
  gplan_report report;
  uint64_t offsets[12];
  ck_assert_int_eq(gplan_place(life.blocks, 12, &(gplan_options){64, 0}, offsets, &arena, NULL), BS_OK);
  gplan_report_make(v, &life, &arena, &report);
  ck_assert_uint_eq(report.n_top, 5);
  for (uint32_t k = 0; k < 5; k++) {
    ck_assert_uint_eq(report.top[k].bytes, 64 * (12 - k));
    ck_assert_uint_eq(v[report.top[k].value].bytes, report.top[k].bytes);
  }
  gplan_life_free(&life);
}
END_TEST

int main(void) {
  return run_tests("plan_life",
                   (test_case[]){{a_chain_with_a_view},
                                 {a_view_of_the_callers_memory_needs_none},
                                 {parts_of_a_join_are_written_in_place},
                                 {what_may_be_overwritten, TEST_COUNT(cases)},
                                 {a_chain_is_one_block},
                                 {random_values_keep_their_bytes},
                                 {bad_values_are_refused, TEST_COUNT(bad)},
                                 {the_report_is_that_of_the_plan},
                                 {the_five_largest},
                                 {0}},
                   (test_setup){0});
}
