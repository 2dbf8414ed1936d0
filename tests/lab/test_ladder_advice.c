/* SPDX-License-Identifier: MIT
 * test_ladder_advice.c - the advice of `bsrun compare` for an UNCLEAR comparison: options that it takes. */
#include "lab/ladder/ladder.h"
#include "tests/run_tests.h"

static const struct {
  uint32_t cause;
  size_t needs;
  double seconds;
  const char *next;
} cases[] = {
    {BS_UNCLEAR_FEW, 80, 20, "needs about 80 pairs: --samples 80 --seconds 30"},
    {BS_UNCLEAR_FEW, 40, 1, "needs about 40 pairs: --samples 40 --seconds 10"},
    {BS_UNCLEAR_FEW, 19, 1, "needs about 19 pairs: --samples 20 --seconds 10"},
    {BS_UNCLEAR_BUILD, 0, 0, "builds differ: sample more by --samples 600 --seconds 30"},
    {BS_UNCLEAR_MARGIN, 0, 0, "more samples cannot decide; the difference is as large as the 1 % margin"},
};

START_TEST(advice) {
  const bs_comparison unclear = {.ratio = 1,
                                 .low = 0.9,
                                 .high = 1.1,
                                 .margin = 0.01,
                                 .pairs = 20,
                                 .word = BS_WORD_UNCLEAR,
                                 .cause = cases[_i].cause,
                                 .needs = cases[_i].needs,
                                 .needs_seconds = cases[_i].seconds};
  bs_rung rungs[2] = {{.name = "first", .measured = 1, .seconds = 1, .place = 1},
                      {.name = "second", .measured = 1, .seconds = 1, .place = 2, .against = unclear}};
  const bs_ladder ladder = {.n = 2, .rungs = rungs};
  json_t *rows = bs_ladder_rows(&ladder);
  ck_assert_uint_eq(json_array_size(rows), 2);
  const json_t *row = json_array_get(rows, 1);
  ck_assert_str_eq(json_string_value(json_object_get(row, "next")), cases[_i].next);
  json_decref(rows);
}
END_TEST

int main(void) {
  const test_case tests[] = {{advice, sizeof cases / sizeof cases[0]}, {0}};
  return run_tests("ladder_advice", tests, (test_setup){0});
}
